"""Sequences of statements that run alike, as one loop nest with formulas.

A *strand* is a sequence of steps of statements: what a lane runs, or what lanes that belong together run. Each
statement has a kind, the same number for statements that are written alike, and integer fields. Strands whose kinds
and steps are equal are written once, over axes that say which of them is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from schedlang.ir.loops.fold import Leaf, Repeat, fold
from schedlang.ir.loops.formulas import Affine, Formula
from schedlang.ir.table import Array
from schedlang.lift.formulas import Seated, fitted, tabled, uses, weight

MANY = 1 << 13
"""Strands of more statements are laid out in one way only."""

MOST_SPLIT = 1 << 12
"""A loop of more turns than this is not tried as two nested ones."""


@dataclass(frozen=True, eq=False)
class Strands:
    """``first``: where each strand's statements begin, one entry more than strands. One entry a statement: ``kind``,
    ``opens`` (a step begins there), and a row of ``fields``. ``anchor``: of each strand, the rank that formulas start
    from. ``ranked``: which fields are ranks."""

    first: Array
    kind: Array
    opens: Array
    fields: Array
    anchor: Array
    ranked: tuple[int, ...]

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
    """``body``, ``count`` times."""

    count: int
    body: tuple[Part, ...]


Part = Line | Group | Turns


@dataclass(frozen=True, eq=False)
class Nest:
    """A class of strands: ``members`` has an axis for the anchors (``anchors``, ascending), then the others; ``body``
    what they run. ``cost``: how much there is to read. ``rings``: where anchors are not ranks but places in rings, the
    ranks by ring, which the second axis stands for, and place.
    """

    members: Array
    anchors: Array
    body: tuple[Part, ...]
    cost: int
    rings: Array | None = None


def nests(strands: Strands, members: Array, *, loops: bool = True) -> list[Nest]:
    """Strands that run alike, as few nests as read well. ``loops``: whether what repeats is looked for."""
    anchors, count = np.unique(strands.anchor[members], return_counts=True)
    found = []
    for size in np.unique(count).tolist():
        these = members[np.isin(strands.anchor[members], anchors[count == size])]
        found += _uniform(strands, these, loops)
    return found


def _uniform(strands: Strands, members: Array, loops: bool) -> list[Nest]:
    """Nests of strands of which each anchor has as many."""
    found = [best(strands, members, loops)]
    anchors = np.unique(strands.anchor[members])
    if not tables(found[0].body):
        return found
    of = np.searchsorted(anchors, strands.anchor[members])
    size = len(anchors)
    for parts in (*(p for p in range(2, size // 2 + 1) if size % p == 0 and p <= MOST_PARTS), size):
        if parts * (_total(found) - sum(_listed(n.body) for n in found)) // len(found) >= _total(found):
            continue
        for group in (of % parts, of // (size // parts))[: 1 + (parts < size)]:
            made: list[Nest] = []
            for part in range(parts):
                made.append(best(strands, members[group == part], loops))
                if _total(made) >= _total(found):
                    break
            else:
                found = made
    return found


MOST_PARTS = 16
"""So many groups of ranks are tried, but for one of each rank."""


def _listed(body: Sequence[Part]) -> int:
    """How much of what there is to read are tables."""
    return sum(weight(f) for line in lines(body) for f in line.formulas if tabled(f) is not None)


def _total(made: Sequence[Nest]) -> int:
    return sum(n.cost for n in made)


PLAIN, HEAD, CHANCE = 8, 4, 4
"""What a statement, a loop, and a slope that two numbers only speak for cost to read, beside what they name."""


def best(strands: Strands, members: Array, loops: bool) -> Nest:
    """The nest of all these strands that costs least."""
    build = _Build.of(strands, members, loops)
    found: Nest | None = None
    for grid in _grids(strands, members):
        made = build.nest(grid)
        if found is None or made.cost < found.cost:
            found = made
        if not tables(found.body) or len(build.kinds) > MANY:
            break
    assert found is not None
    if tables(found.body) and len(build.kinds) <= MANY:
        other = replace(build, unrolls=True).nest(found.members)
        return other if other.cost < found.cost else found
    return found


def _grids(strands: Strands, members: Array) -> Iterator[Array]:
    """Ways to lay strands out: an axis for the anchors, then one or two for those of one anchor, in an order that their
    fields say."""
    anchors = np.unique(strands.anchor[members])
    each = len(members) // len(anchors)
    if each == 1:
        yield members[np.argsort(strands.anchor[members], kind="stable")]
        return
    seen: set[bytes] = set()
    orders = []
    for key in _keys(strands, members):
        order = np.lexsort((*key[::-1], strands.anchor[members]))
        if order.tobytes() not in seen:
            seen.add(order.tobytes())
            orders.append(members[order].reshape(len(anchors), each))
    yield from orders
    if each > MOST_SPLIT:
        return
    for inner in range(2, each // 2 + 1):
        if each % inner == 0:
            for order in orders:
                yield order.reshape(len(anchors), each // inner, inner)


def _keys(strands: Strands, members: Array) -> Iterator[list[Array]]:
    """What strands of one anchor may be sorted by, the most telling first."""
    length = int(strands.first[members[0] + 1] - strands.first[members[0]])
    at = strands.first[members][:, None] + np.arange(length)
    ranks = int(strands.fields[:, strands.ranked].max(initial=0)) + 1
    away = [(strands.fields[at, f] - strands.anchor[members][:, None]) % ranks for f in strands.ranked]
    known = [strands.fields[at, f] for f in strands.ranked]
    rest = [strands.fields[at, f] for f in range(strands.fields.shape[1]) if f not in strands.ranked]
    for parts in ((away, rest), (rest, away), (known, rest)):
        columns = [c for part in parts for column in part for c in column.T]
        yield [c for c in columns if len(c) and (c != c[0]).any()][:64] or [np.zeros(len(members), np.int64)]


@dataclass(frozen=True, eq=False)
class _Build:
    """Puts formulas into the steps of a class, folded. ``bounds``: where each leaf starts in a strand, and the end."""

    strands: Strands
    folded: tuple[Leaf | Repeat, ...]
    kinds: list[int]
    bounds: Sequence[int]
    loops: bool
    starts: Array
    anchors: Array
    fit: Fit
    busy: list[bool]
    within: bool = False
    splits: bool = True
    unrolls: bool = False

    @classmethod
    def of(cls, strands: Strands, members: Array, loops: bool, fit: Fit | None = None) -> _Build:
        a, b = int(strands.first[members[0]]), int(strands.first[members[0] + 1])
        kinds = strands.kind[a:b].tolist()
        bounds = [*np.flatnonzero(strands.opens[a:b]).tolist(), b - a]
        tokens: dict[tuple[int, ...], int] = {}
        sequence = [tokens.setdefault(tuple(kinds[x:y]), len(tokens)) for x, y in pairwise(bounds)]
        folded = fold(sequence) if loops else [Leaf(k) for k in range(len(sequence))]
        empty = np.zeros(0, np.int64)
        return cls(strands, tuple(folded), kinds, bounds, loops, empty, empty, fit or _fit,
                   np.any(strands.fields, axis=0).tolist() if len(strands.fields) else [])

    def nest(self, grid: Array) -> Nest:
        anchors = self.strands.anchor[grid.reshape(len(grid), -1)[:, 0]]
        here = replace(self, starts=self.strands.first[grid], anchors=anchors)
        body = here.body(self.folded, ())
        return Nest(grid, anchors, body, cost(body))

    def body(self, parts: Sequence[Leaf | Repeat], turns: tuple[tuple[int, int], ...]) -> tuple[Part, ...]:
        found: list[Part] = []
        for p in parts:
            found += (self.leaf(p, turns),) if isinstance(p, Leaf) else self.loop(p, turns)
        return tuple(found)

    def leaf(self, leaf: Leaf, turns: tuple[tuple[int, int], ...]) -> Part:
        start, stop = self.bounds[leaf.at], self.bounds[leaf.at + 1]
        if self.within or stop == start + 1:
            return self.line(start, turns)
        inside = replace(self, bounds=range(start, stop + 1), within=True)
        kinds = self.kinds[start:stop]
        folded = fold(kinds) if self.loops else [Leaf(k) for k in range(len(kinds))]
        return Group(inside.body(folded, turns))  # type: ignore[arg-type]

    def loop(self, part: Repeat, turns: tuple[tuple[int, int], ...]) -> tuple[Part, ...]:
        """The loop, as two nested ones where that turns tables into formulas, or as what it does turn by turn where
        that is less to read."""
        found = self.split(part, turns)
        most = cost((found,))
        if part.count == 2:         # any two numbers lie on a line
            axis = self.starts.ndim + len(turns)
            most += CHANCE * sum(uses(f, axis) for line in lines((found,)) for f in line.formulas)
        elif not self.unrolls or not tables((found,)):
            return (found,)
        if part.count * PLAIN >= most:
            return (found,)
        each = self.body([_moved(p, k * part.length) for k in range(part.count) for p in part.body], turns)
        return each if cost(each) <= most else (found,)

    def split(self, part: Repeat, turns: tuple[tuple[int, int], ...]) -> Part:
        """The loop, as two nested ones where that turns tables into formulas."""
        whole = self.turned(part, turns)
        if not self.splits or part.count > MOST_SPLIT or not tables((whole,)):
            return whole
        tried = replace(self, splits=False)
        found = whole
        for inner in range(2, part.count // 2 + 1):
            if part.count % inner == 0:
                split = Repeat(part.count // inner, (Repeat(inner, part.body, part.length),), inner * part.length)
                made = tried.turned(split, turns)
                if cost((made,)) < cost((found,)):
                    found = made
                if not tables((found,)):
                    break
        return found

    def turned(self, part: Repeat, turns: tuple[tuple[int, int], ...]) -> Turns:
        at = _first(part)
        rows = self.bounds[at + part.length] - self.bounds[at]
        return Turns(part.count, self.body(part.body, (*turns, (part.count, rows))))

    def line(self, at: int, turns: tuple[tuple[int, int], ...]) -> Line:
        axes = self.starts.ndim + len(turns)
        where = self.starts.reshape([*self.starts.shape, *[1] * len(turns)]) + at
        for k, (count, rows) in enumerate(turns, self.starts.ndim):
            where = where + (np.arange(count) * rows).reshape([count if j == k else 1 for j in range(axes)])
        fields, zero = self.strands.fields, Affine(0, (0,) * axes)
        return Line(self.kinds[at], tuple(self.fit(fields[where, f], self.anchors, f) if self.busy[f] else zero
                                          for f in range(fields.shape[1])))


def _moved(part: Leaf | Repeat, by: int) -> Leaf | Repeat:
    """The same part of the sequence, so many steps later."""
    if isinstance(part, Leaf):
        return Leaf(part.at + by)
    return Repeat(part.count, tuple(_moved(p, by) for p in part.body), part.length)


def _first(part: Leaf | Repeat) -> int:
    while isinstance(part, Repeat):
        part = part.body[0]
    return part.at


def ring_nest(strands: Strands, grid: Array, rings: Array, loops: bool) -> Nest:
    """The nest of strands that lie on rings: ``grid``: by place, then ring; ``rings``: the rank by ring, then place."""
    build = replace(_Build.of(strands, grid.ravel(), loops), fit=_on_rings(strands, rings))
    places = np.arange(len(grid))
    body = replace(build, starts=strands.first[grid], anchors=places).body(build.folded, ())
    return Nest(grid, places, body, cost(body) + rings.size, rings)


def _on_rings(strands: Strands, rings: Array) -> Fit:
    """How numbers are made formulas of where a strand lies on a ring."""
    count, size = rings.shape
    places = np.zeros((count, int(rings.max()) + 1), np.int64)
    places[np.arange(count)[:, None], rings] = np.arange(size)

    def fit_on_ring(values: Array, anchors: Array, which: int) -> Formula:
        plain = _fit(values, anchors, which)
        if tabled(plain) is None and which not in strands.ranked:
            return plain
        ring = np.arange(count).reshape([1, count] + [1] * (values.ndim - 2))
        zero = Affine(0, (0,) * values.ndim)
        ways = [(1, size), (int(values.max()) // size + 1, 1)]
        for scale, wide in ways[:1] if which in strands.ranked else ways:
            rank = values % size if wide == size else values // scale
            rest = values - scale * rank
            if int(rank.max()) >= places.shape[1]:
                continue
            seat, base = _fit(places[ring, rank], anchors, which), _fit(rest, anchors, which)
            if tabled(seat) is None and tabled(base) is None:
                return Seated(zero if not rest.any() else base, scale, seat, rings)
        return plain

    return fit_on_ring


Fit = Callable[[Array, Array, int], Formula]


def _fit(values: Array, anchors: Array, which: int) -> Formula:
    return fitted(values, anchors)


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
            found += HEAD + cost(part.body)
    return found
