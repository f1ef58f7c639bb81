"""What the back ends that write code have in common: formulas as text, names, and what is said of a step's source."""
