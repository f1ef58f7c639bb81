"""Sequences of statements that run alike, and loop nests with formulas, which is what they are written as.

A *strand* is a sequence of steps of statements: what a lane runs, or what lanes that belong together run. Each
statement has a kind, the same number for statements that are written alike, and integer fields. Strands whose kinds
and steps are equal are written once, over axes that say which of them is meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from schedlang.ir.loops.formulas import Formula
from schedlang.ir.table import Array
from schedlang.lift.formulas import fitted, tabled, weight
from schedlang.lift.others import fitted_in


@dataclass(frozen=True, eq=False)
class Strands:
    """``first``: where each strand's statements begin, one entry more than strands. One entry a statement: ``kind``,
    ``opens`` (a step begins there), and a row of ``fields``. ``anchor``: of each strand, the rank that formulas start
    from. ``ranked``: which fields are ranks, of which there are ``world``."""

    first: Array
    kind: Array
    opens: Array
    fields: Array
    anchor: Array
    ranked: tuple[int, ...]
    world: int

    def alike(self) -> list[Array]:
        """The strands in classes that run alike, each ascending."""
        marked = self.kind * 2 + self.opens
        found: dict[bytes, list[int]] = {}
        for k, (a, b) in enumerate(pairwise(self.first.tolist())):
            found.setdefault(marked[a:b].tobytes(), []).append(k)
        return [np.array(members, np.int64) for members in found.values()]


@dataclass(frozen=True, eq=False)
class Line:
    """A statement: ``formulas[f]`` of its fields, over the axes and the loops round it."""

    kind: int
    formulas: tuple[Formula, ...]


@dataclass(frozen=True, eq=False)
class Group:
    """A step of several statements, posted together."""

    body: tuple[Line | Turns, ...]


@dataclass(frozen=True, eq=False)
class Turns:
    """``body``, ``count`` times; but not where the coordinate is one of the ranks ``out``."""

    count: int
    body: tuple[Part, ...]
    out: tuple[Formula, ...] = ()


Part = Line | Group | Turns


@dataclass(frozen=True, eq=False)
class Others:
    """An axis over the ranks, ``world`` of them, but for some: ``ranks`` has those there are for each anchor, ``out``
    says which there are not."""

    ranks: Array
    out: tuple[Formula, ...]
    world: int


@dataclass(frozen=True, eq=False)
class Nest:
    """A class of strands: ``members`` has an axis for the anchors (``anchors``, ascending), then the others; ``body``
    what they run. ``cost``: how much there is to read. ``rings``: where anchors are not ranks but places in rings, the
    ranks by ring, which the second axis stands for, and place. ``others``: where the second axis stands for ranks but
    for some.
    """

    members: Array
    anchors: Array
    body: tuple[Part, ...]
    cost: int
    rings: Array | None = None
    others: Others | None = None

    def numbers(self) -> tuple[Array, int]:
        """Numbers for the members that tell those of one anchor apart, in the shape of ``members``, and how many there
        could be."""
        shape = self.members.shape
        inner = np.arange(int(np.prod(shape[1 if self.others is None else 2 :])))
        if self.others is None:
            return np.broadcast_to(inner.reshape(1, *shape[1:]), shape), len(inner)
        ranks = self.others.ranks.reshape(shape[:2] + (1,) * (len(shape) - 2))
        return np.broadcast_to(ranks * len(inner) + inner.reshape(1, 1, *shape[2:]), shape), (
            self.others.world * len(inner))

    def formula(self, values: Array) -> Formula:
        """A formula for values in the shape of ``members``."""
        if self.others is None:
            return fitted(values, self.anchors)
        return fitted_in(values, self.anchors, self.others.world, {1: self.others.ranks},
                         lambda v: fitted(v, self.anchors))


PLAIN, HEAD, CHANCE = 8, 4, 4
"""What a statement, a loop, and a slope that two numbers only speak for cost to read, beside what they name."""


def shifted(body: Sequence[Part], more: int) -> tuple[Part, ...]:
    """A body whose kinds have other numbers."""
    return tuple(replace(part, kind=part.kind + more) if isinstance(part, Line)
                 else replace(part, body=shifted(part.body, more)) for part in body)  # type: ignore[arg-type]


def lines(body: Sequence[Part]) -> Iterator[Line]:
    """The statements of a body, each once."""
    for part in body:
        if isinstance(part, Line):
            yield part
        else:
            yield from lines(part.body)


def tables(body: Sequence[Part]) -> int:
    """How many formulas of a body are tables."""
    return sum(tabled(f) is not None for line in lines(body) for f in line.formulas)


def cost(body: Sequence[Part]) -> int:
    """How much there is to read in a body: statements, loops, 1 for each thing that a formula names and for each entry
    of a table."""
    found = 0
    for part in body:
        if isinstance(part, Line):
            found += PLAIN + sum(map(weight, part.formulas))
        else:
            found += HEAD + cost(part.body) + (left(part.out) if isinstance(part, Turns) else 0)
    return found


def left(out: Sequence[Formula]) -> int:
    """What it costs to read that a loop leaves some ranks out."""
    return sum(1 + weight(f) for f in out)
