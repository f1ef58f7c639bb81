"""What the documentation takes from the program.

``collectives``, ``findings`` and ``schedules`` make pages, at every build: each has ``pages()``, which returns the
texts by their paths under docs/reference/generated. ``examples`` runs what ``findings`` shows; ``options`` makes the
committed list of options in docs/commands.md.
"""
