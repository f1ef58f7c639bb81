"""One file an output format. What is found is data; only here does it become text."""
