"""Equal findings become one with a count."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from schedlang.diagnostics import Note
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.verify import words


def statements(table: OpTable) -> Array:
    """For each site the number of its source statement: sites that come from one place in one file share it."""
    known: dict[object, int] = {}
    numbers = []
    for index, site in enumerate(table.sites):
        at = site.location
        key: object = index if at is None else (at.file, at.line, at.column)
        numbers.append(known.setdefault(key, len(known)))
    return np.array(numbers, np.int64)


def by_statement(table: OpTable, rows: Array, *others: Array, times: Array | None = None) -> list[tuple[int, int]]:
    """Groups of equal findings: (index of the first, how many), in order of the first. ``times``: how many each of the
    rows stands for.

    Two findings are equal when their rows come from the same statement, and likewise the rows of each of ``others``
    (arrays of the length of ``rows``; NONE: no row).
    """
    if len(rows) == 0:
        return []
    of_site = statements(table)
    key = np.zeros(len(rows), np.int64)
    for column in (rows, *others):
        part = np.zeros(len(column), np.int64)
        part[column != NONE] = of_site[table.site[column[column != NONE]]] + 1
        _, key = np.unique(key * (len(of_site) + 1) + part, return_inverse=True)
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    count = np.bincount(which, times)
    return sorted((int(f), int(c)) for f, c in zip(first, count, strict=True))


def shown(groups: list[tuple[int, int]], limit: int) -> list[tuple[int, int]]:
    """The first ``limit`` groups; the last of them counts what is left out."""
    left = sum(count for _, count in groups[limit:])
    return groups if not left else [*groups[:limit - 1], (groups[limit - 1][0], groups[limit - 1][1] + left)]


def note(table: OpTable, row: int, before: str = "") -> Note:
    """A note at the place of a row, that says what it does after the words ``before``."""
    return Note(before + words.sentence(table, row), table.origin(row)[0])


def numbers(values: Array | Iterable[int], limit: int = 6) -> str:
    """Whole numbers, ascending, runs drawn together: ``0..2, 4, 7..9``; more than ``limit`` runs are cut short."""
    there = np.unique(values if isinstance(values, np.ndarray) else np.array(list(values), np.int64))
    breaks = np.flatnonzero(np.diff(there) != 1) + 1
    runs = [(int(run[0]), int(run[-1])) for run in np.split(there, breaks[:limit]) if len(run)]
    text = ", ".join(str(a) if a == b else f"{a}, {b}" if b == a + 1 else f"{a} to {b}" for a, b in runs[:limit])
    left = len(there) - int(breaks[limit - 1]) if len(breaks) >= limit else 0
    return text + (f" and {left} more" if left else "")
