"""Table to loop nests: lanes that run alike, the repetition in them, and formulas for what varies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from schedlang.ir.loops.fold import Leaf, Repeat, fold
from schedlang.ir.loops.formulas import Formula, Lookup, Modular, fit
from schedlang.ir.loops.nests import Lanes, Loop, Part, Program, Statement, Step, statements
from schedlang.ir.reverse.timeline import nodes
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op

_MOST_SPLIT = 1 << 16
"""A loop of more turns than this is not tried as two nested ones."""

ORIGIN = ("row", "site", "turn", "number")
"""The formulas of a statement that say where its rows come from, not what they do."""


def lanes(table: OpTable, more: Mapping[str, Array] | None = None, *, fixed: Sequence[Array] = (),
          place: Array | None = None) -> Lanes:
    """The loop nests of a legal table: one program for all ranks on which a stream runs alike.

    Lanes are alike if their rows agree in all but chunk, count, peer, event index and origin. Within a program, steps
    that follow each other alike are a loop. Then each varying field gets an affine or modular formula in the rank and
    the loop variables if one is true of every row, and a table over those that matter if not.

    ``more``: further columns (integers, one a row) that get formulas, by name. ``fixed``: columns in which all rows of
    a statement agree. ``place``: what stands first in a step, in place of what :class:`Step` says (integers, a row
    each; equal ones in row order).
    """
    by_lane = _ByLane(table, more or {}, fixed, place)
    programs = tuple(by_lane.program(stream, np.array(ranks), firsts) for stream, ranks, firsts in by_lane.alike())
    return Lanes(table, len(table), programs)


class _ByLane:
    """A table's rows, lane by lane. ``order``: row ids by lane and step, in each step as :class:`Step` has them;
    ``kind``: by place in that order, what a row is apart from what formulas say of it; ``opens``: by place, whether a
    step begins there; ``of``: by row, the place within its step of the receive whose value a fused send passes on."""

    def __init__(self, table: OpTable, more: Mapping[str, Array], fixed: Sequence[Array], place: Array | None) -> None:
        self.table, self.more = table, more
        node = nodes(table)[0]
        if place is None:
            place = np.where(table.op == Op.SEND, 0, np.where(table.op == Op.COPY, 1, 2))
        self.order = np.lexsort((place, node))
        in_order = node[self.order]
        self.opens = np.ones(len(table), bool)
        self.opens[1:] = in_order[1:] != in_order[:-1]
        indices = np.array([len(i) for i in table.event_indices] or [0])
        names = list(dict.fromkeys(table.events))
        places = {name: i for i, name in enumerate(names)}
        name = np.array([places[e] for e in table.events] or [0])
        of = np.full(len(table), NONE)
        fused = np.flatnonzero(table.of != NONE)
        if len(fused):
            position = np.empty(len(table), np.int64)
            position[self.order] = np.arange(len(table))
            first = np.maximum.accumulate(np.where(self.opens, np.arange(len(table)), 0))
            receives = position[table.of[fused]]
            of[fused] = receives - first[receives]
        lines: dict[object, int] = {}
        line = np.array([lines.setdefault(s.location, len(lines)) for s in table.sites] or [0])
        columns = [table.op, line[table.site], table.buffer, table.from_buffer, table.chan, of]
        if len(table.events):
            columns += [np.where(table.event == NONE, NONE, name[table.event]),
                        np.where(table.event == NONE, NONE, indices[table.event])]
        kind = np.zeros(len(table), np.int64)
        for column in [*columns, *fixed]:
            kind = _combined(kind, column)
        self.of = of
        self.kind = kind[self.order]
        self.width = int(indices.max())
        self.indices = np.array([(*i, *(0,) * (self.width - len(i))) for i in table.event_indices] or [(0,)], np.int64)

    def alike(self) -> list[tuple[int, list[int], Array]]:
        """Lanes that run alike: their stream, their ranks and where each starts in ``order``."""
        t = self.table
        if not len(t):
            return []
        rank, stream = t.rank[self.order], t.stream[self.order]
        new = np.ones(len(t), bool)
        new[1:] = (rank[1:] != rank[:-1]) | (stream[1:] != stream[:-1])
        starts = np.flatnonzero(new)
        marked = (self.kind * 2 + self.opens).astype(np.int64)
        found: dict[tuple[int, bytes], tuple[list[int], list[int]]] = {}
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(t)], strict=True):
            ranks, firsts = found.setdefault((int(stream[start]), marked[start:stop].tobytes()), ([], []))
            ranks.append(int(rank[start]))
            firsts.append(start)
        return sorted(((s, ranks, np.array(firsts)) for (s, _), (ranks, firsts) in found.items()), key=lambda p: p[:2])

    def program(self, stream: int, ranks: Array, firsts: Array) -> Program:
        """The program of lanes that run alike."""
        start = int(firsts[0])
        where = self.order[start:]
        table = self.table
        mine = (table.rank[where] == ranks[0]) & (table.stream[where] == stream)
        length = len(where) if mine.all() else int(np.argmin(mine))
        opens = np.flatnonzero(self.opens[start : start + length])
        bounds = [*opens.tolist(), length]
        kinds = self.kind[start : start + length].tolist()
        tokens: dict[tuple[int, ...], int] = {}
        sequence = [tokens.setdefault(tuple(kinds[a:b]), len(tokens)) for a, b in pairwise(bounds)]
        build = _Build(self, kinds, ranks, firsts, bounds)
        return Program(stream, ranks, build.body(fold(sequence), ()))


@dataclass(frozen=True)
class _Turns:
    """A loop round a statement: how often it turns, and how many rows of the lane one turn has."""

    count: int
    rows: int


@dataclass(frozen=True)
class _Build:
    """Puts formulas into what was folded. ``bounds``: where each leaf starts among a lane's rows, and the end.
    ``within``: whether leaves are the statements of a step, rather than steps. ``kinds``: what the lane's rows are."""

    by_lane: _ByLane
    kinds: list[int]
    ranks: Array
    firsts: Array
    bounds: Sequence[int]
    within: bool = False
    splits: bool = True

    def body(self, parts: Sequence[Leaf | Repeat], turns: tuple[_Turns, ...]) -> tuple[Any, ...]:
        return tuple(self.leaf(p, turns) if isinstance(p, Leaf) else self.loop(p, turns) for p in parts)

    def leaf(self, leaf: Leaf, turns: tuple[_Turns, ...]) -> Step | Statement:
        start, stop = self.bounds[leaf.at], self.bounds[leaf.at + 1]
        if self.within:
            return self.statement(start, turns)
        inside = replace(self, bounds=range(start, stop + 1), within=True)
        return Step(inside.body(fold(self.kinds[start:stop]), turns))

    def loop(self, part: Repeat, turns: tuple[_Turns, ...]) -> Loop:
        """The loop, as two nested ones where that turns tables into formulas."""
        whole = self._loop(part, turns)
        if not self.splits or part.count > _MOST_SPLIT or not _tables(whole):
            return whole
        one = replace(self, ranks=self.ranks[:1], firsts=self.firsts[:1], splits=False)
        least, best = _tables(one._loop(part, turns)), part
        for inner in range(2, part.count // 2 + 1):
            if part.count % inner == 0 and least:
                tried = Repeat(part.count // inner, (Repeat(inner, part.body, part.length),), inner * part.length)
                tables = _tables(one._loop(tried, turns))
                if tables < least:
                    least, best = tables, tried
        return whole if best is part else self._loop(best, turns)

    def _loop(self, part: Repeat, turns: tuple[_Turns, ...]) -> Loop:
        first = _first(part)
        rows = self.bounds[first + part.length] - self.bounds[first]
        return Loop(part.count, self.body(part.body, (*turns, _Turns(part.count, rows))))

    def statement(self, at: int, turns: tuple[_Turns, ...]) -> Statement:
        """The statement whose first row on each lane stands at ``at`` there."""
        by_lane, t = self.by_lane, self.by_lane.table
        axes = 1 + len(turns)
        places = self.firsts.reshape([-1] + [1] * (axes - 1)) + at
        for k, turn in enumerate(turns, 1):
            shape = [turn.count if j == k else 1 for j in range(axes)]
            places = places + (np.arange(turn.count) * turn.rows).reshape(shape)
        rows = by_lane.order[places]
        row = int(rows.flat[0])
        op = Op(int(t.op[row]))

        def formula(column: Array) -> Formula:
            return fit(column[rows], self.ranks)

        formulas: dict[str, Formula] = {}
        if op < Op.RECORD:
            formulas |= {"chunk": formula(t.chunk), "count": formula(t.count)}
        if op <= Op.REDUCE_RECV:
            formulas["peer"] = formula(t.peer)
        if Op.REDUCE_RECV <= op <= Op.REDUCE:
            formulas["from_chunk"] = formula(t.from_chunk)
        event = None
        if op >= Op.RECORD:
            event = t.events[int(t.event[row])]
            happening = t.event[rows]
            for k in range(len(t.event_indices[int(t.event[row])])):
                formulas[f"index{k}"] = fit(by_lane.indices[happening, k], self.ranks)
        formulas |= {"row": fit(rows, self.ranks), "site": formula(t.site), "turn": formula(t.turn)}
        if t.number is not None:
            formulas["number"] = formula(t.number)
        formulas |= {name: formula(column) for name, column in by_lane.more.items()}
        of = int(by_lane.of[row])
        return Statement(op, int(t.buffer[row]), int(t.from_buffer[row]), int(t.chan[row]), None if of == NONE else of,
                         event, formulas)


def _first(part: Leaf | Repeat) -> int:
    while isinstance(part, Repeat):
        part = part.body[0]
    return part.at


def _tables(part: Part) -> int:
    """How many of the formulas that say what is done are tables."""
    return sum(isinstance(f, Lookup) or (isinstance(f, Modular) and isinstance(f.inside, Lookup))
               for s in statements((part,)) for name, f in s.formulas.items() if name not in ORIGIN)


def _combined(one: Array, other: Array) -> Array:
    """Numbers from 0 for the pairs that occur."""
    low = int(other.min(initial=0))
    size = int(other.max(initial=0)) - low + 1
    pairs = one * size + (other - np.int64(low))
    top = int(pairs.max(initial=0)) + 1
    if top > 1 << 24:
        return np.unique(pairs, return_inverse=True)[1].astype(np.int64)
    seen = np.zeros(top + 1, np.int64)
    seen[pairs] = 1
    numbers: Array = (np.cumsum(seen) - seen)[pairs]
    return numbers


