"""What a comparison of two tables found, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from schedlang.diagnostics import Diagnostic, Note
from schedlang.ir.table import OpTable
from schedlang.source import Location

Level = Literal["operations", "bits", "state", "different", "faulty"]

LEVELS: dict[str, str] = {
    "operations": "the same operations",
    "bits": "other operations, but the same results to the bit",
    "state": "the same results, but added up in another order, so their bits may differ",
    "different": "different",
    "faulty": "not comparable",
}
"""What is said of two tables, the strongest first. ``faulty``: one of them does not come to its end in a settled order,
or reads what nothing has written, so that it has no one result."""


@dataclass(frozen=True)
class Stretch:
    """``times`` operations of a chain, one after another, that come from one statement; ``first`` and ``last``: rows of
    the table."""

    location: Location | None
    times: int
    first: int
    last: int


@dataclass(frozen=True)
class Side:
    """One of two tables. ``ok``: it was proved right; ``settled``: at least, it has one result, whatever the order of
    events. ``facts``: those of the verdict (see :mod:`schedlang.verify.facts`), and ``operations`` (rows of the table),
    ``streams`` (the most on one rank) and ``chunks``. ``path``: its critical path."""

    table: OpTable = field(repr=False)
    ok: bool
    settled: bool
    diagnostics: tuple[Diagnostic, ...]
    facts: Mapping[str, Any]
    path: tuple[Stretch, ...]

    @property
    def values(self) -> dict[str, Any]:
        """``ranks`` and the parameters it was expanded for."""
        return {"ranks": self.table.ranks, **self.table.params}


@dataclass(frozen=True)
class Difference:
    """What was found of two tables.

    ``level``: the strongest of LEVELS that holds. ``notes``: why no stronger one does: in words for A and for B, where
    they differ first. ``results``: how many results (locations, in common parts) were compared, and in how many of them
    the tables ``differ`` (for ``state`` in order only); None where the comparison did not come to that. ``parts``: into
    how many parts the buffer must divide for the answer to hold, where the tables divide it differently; else None.
    ``doubt`` bounds the probability that results which differ were taken for equal.
    """

    a: Side
    b: Side
    level: Level
    notes: tuple[Note, ...]
    results: int | None = None
    differ: int | None = None
    parts: int | None = None
    doubt: float = 0.0

    @property
    def equivalent(self) -> bool:
        """Whether both leave the same results."""
        return self.level in ("operations", "bits", "state")

    @property
    def ok(self) -> bool:
        """Whether both leave the same results, and these are right."""
        return self.equivalent and self.a.ok and self.b.ok

    def at_least(self, level: str) -> bool:
        """Whether this level of LEVELS, or a stronger one, holds."""
        names = list(LEVELS)
        return names.index(self.level) <= names.index(level)
