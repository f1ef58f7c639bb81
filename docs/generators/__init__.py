"""Pages made from the tables of the program: one file a kind of page, each with ``pages()``, which returns the texts by
their paths under docs/reference/generated."""
