"""Formulas for the statements of strands that run alike, and loops over what repeats in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from schedlang.ir.loops.fold import Leaf, Repeat, fold
from schedlang.ir.loops.formulas import Affine, Formula
from schedlang.ir.table import Array
from schedlang.lift.formulas import Seated, fitted, tabled, uses
from schedlang.lift.nest import (
    CHANCE,
    PLAIN,
    Group,
    Line,
    Nest,
    Others,
    Part,
    Strands,
    Turns,
    cost,
    left,
    lines,
    tables,
)
from schedlang.lift.others import MOST_OUT, Loops, fitted_in, left_out

MOST_SPLIT = 1 << 12
"""A loop of more turns than this is not tried as two nested ones."""

NEAR = 4
"""So many statements of a loop are looked at for a rank that it goes over."""


@dataclass(frozen=True, eq=False)
class Build:
    """Puts formulas into the steps of a class, folded. ``bounds``: where each leaf starts in a strand, and the end.
    ``others``: the coordinates of the axes that are ranks but for some. ``within``: whether leaves are the statements
    of a step, rather than steps; ``splits``: whether loops are tried as two nested ones; ``unrolls``: whether they are
    tried turn by turn; ``skips``: whether they are tried as loops over the ranks but for some."""

    strands: Strands
    folded: tuple[Leaf | Repeat, ...]
    kinds: list[int]
    bounds: Sequence[int]
    loops: bool
    starts: Array
    anchors: Array
    fit: Fit
    busy: list[bool]
    others: Loops
    within: bool = False
    splits: bool = True
    unrolls: bool = False
    skips: bool = True

    @classmethod
    def of(cls, strands: Strands, members: Array, loops: bool) -> Build:
        a, b = int(strands.first[members[0]]), int(strands.first[members[0] + 1])
        kinds = strands.kind[a:b].tolist()
        bounds = [*np.flatnonzero(strands.opens[a:b]).tolist(), b - a]
        tokens: dict[tuple[int, ...], int] = {}
        sequence = [tokens.setdefault(tuple(kinds[x:y]), len(tokens)) for x, y in pairwise(bounds)]
        folded = fold(sequence) if loops else [Leaf(k) for k in range(len(sequence))]
        empty = np.zeros(0, np.int64)
        return cls(strands, tuple(folded), kinds, bounds, loops, empty, empty, _fit,
                   np.any(strands.fields, axis=0).tolist() if len(strands.fields) else [], {})

    def nest(self, grid: Array) -> Nest:
        anchors = self.strands.anchor[grid.reshape(len(grid), -1)[:, 0]]
        here = replace(self, starts=self.strands.first[grid], anchors=anchors)
        body = here.body(self.folded, ())
        return Nest(grid, anchors, body, cost(body))

    def by_rank(self, grid: Array, ranks: Array) -> Nest | None:
        """The nest of strands laid out so that the second axis stands for ``ranks``, which are some for each anchor;
        None where these are all, or it cannot be said which they are."""
        anchors = self.strands.anchor[grid.reshape(len(grid), -1)[:, 0]]
        world = self.strands.world
        out = left_out(ranks, world, anchors, {}, lambda v: _fit(v, anchors, 0))
        if out is None:
            return None
        here = replace(self, starts=self.strands.first[grid], anchors=anchors, others={1: ranks})
        body = here.body(self.folded, ())
        return Nest(grid, anchors, body, cost(body) + left(out), others=Others(ranks, out, world))

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
        """The loop, over the ranks but for some or as two nested ones where that turns tables into formulas."""
        found: Part = self.turned(part, turns)
        if not tables((found,)):
            return found
        skipping = self.skipping(part, turns)
        if skipping is not None and cost((skipping,)) < cost((found,)):
            found = skipping
        if not self.splits or part.count > MOST_SPLIT or not tables((found,)):
            return found
        tried = replace(self, splits=False)
        for inner in range(2, part.count // 2 + 1):
            if part.count % inner == 0:
                split = Repeat(part.count // inner, (Repeat(inner, part.body, part.length),), inner * part.length)
                made = tried.split(split, turns)
                if cost((made,)) < cost((found,)):
                    found = made
                if not tables((found,)):
                    break
        return found

    def turned(self, part: Repeat, turns: tuple[tuple[int, int], ...]) -> Turns:
        at = _first(part)
        rows = self.bounds[at + part.length] - self.bounds[at]
        return Turns(part.count, self.body(part.body, (*turns, (part.count, rows))))

    def skipping(self, part: Repeat, turns: tuple[tuple[int, int], ...]) -> Turns | None:
        """The loop over the ranks but for some, as a number of one of its statements is such a one; None where there is
        none."""
        at, strands = _first(part), self.strands
        start, stop = self.bounds[at], self.bounds[at + part.length]
        inside = (*turns, (part.count, stop - start))
        axis = self.starts.ndim + len(turns)
        if not self.skips or not 1 <= strands.world - part.count <= MOST_OUT:
            return None
        for place in range(start, min(stop, start + NEAR)):
            where = self.where(place, inside)
            for field in strands.ranked:
                ranks = strands.fields[where, field]
                out = left_out(ranks, strands.world, self.anchors, self.others,
                               lambda v: _fit(v, self.anchors, 0)) if self.busy[field] else None
                if out is not None:
                    here = replace(self, others={**self.others, axis: ranks})
                    return Turns(strands.world, here.body(part.body, inside), out)
        return None

    def where(self, at: int, turns: tuple[tuple[int, int], ...]) -> Array:
        """Where the statement at ``at`` of a strand stands, for all strands and turns."""
        axes = self.starts.ndim + len(turns)
        where = self.starts.reshape([*self.starts.shape, *[1] * len(turns)]) + at
        for k, (count, rows) in enumerate(turns, self.starts.ndim):
            where = where + (np.arange(count) * rows).reshape([count if j == k else 1 for j in range(axes)])
        return where

    def line(self, at: int, turns: tuple[tuple[int, int], ...]) -> Line:
        where = self.where(at, turns)
        fields, zero = self.strands.fields, Affine(0, (0,) * where.ndim)
        return Line(self.kinds[at], tuple(self.formula(fields[where, f], f) if self.busy[f] else zero
                                          for f in range(fields.shape[1])))

    def formula(self, values: Array, which: int) -> Formula:
        return fitted_in(values, self.anchors, self.strands.world, self.others,
                         lambda v: self.fit(v, self.anchors, which))


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
    build = replace(Build.of(strands, grid.ravel(), loops), fit=_on_rings(strands, rings), skips=False)
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
