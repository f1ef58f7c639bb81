"""Steps whose rows are in each other's way: which they are, and how they are taken apart.

A step reads before it writes; a lane, in a step, receives and writes piece by piece. So where a row reads what another
row of its step writes, it reads a snapshot, taken before anything else. Sums into one place must come in row order,
which is not the order in which messages are taken: where the two disagree, a message waits in staging memory. So does
what has no place of its own, and what a fused reduction passes on where its place takes further sums. And what is sent
is sent from there where that is asked for (:mod:`.lasting`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

import numpy as np

from schedlang.ir.locations import Locations
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op

SNAPSHOT, SENDS, LOCALS = -3, -2, -1
"""Parts of a step that are no moments: before all else; with what is received first; and with what is received last."""

OWN = ("op", "buffer", "chunk", "count", "from_buffer", "from_chunk", "of")
"""The columns of a table that rows of a normal form have for themselves."""

_RECEIVES = (Op.RECV, Op.REDUCE_RECV)

Cell = tuple[int, int]
"""(buffer, chunk)"""


@dataclass(frozen=True, eq=False)
class Taken:
    """Rows of a normal form in the making, columns of int64.

    ``was``: the row of the table that each comes from, and whose other columns it has; ``turn``: rises among those that
    come from one row. ``part``: when in its step: the moment of a message (even; one more: right behind it),
    :data:`SNAPSHOT`, :data:`SENDS` or :data:`LOCALS`. ``of``: on a fused send, the row of the table whose receive it
    passes on. ``like``: its length class. The rest is as in a table; ``buffer`` may be the one behind the last, staging
    memory.
    """

    was: Array
    turn: Array
    part: Array
    op: Array
    buffer: Array
    chunk: Array
    count: Array
    from_buffer: Array
    from_chunk: Array
    of: Array
    like: Array

    @classmethod
    def plain(cls, table: OpTable, part: Array, like: Array) -> Taken:
        """The rows of a table as they stand."""
        rows = np.arange(len(table), dtype=np.int64)
        columns = {name: getattr(table, name).astype(np.int64) for name in OWN}
        return cls(was=rows, turn=np.zeros(len(table), np.int64), part=part, like=like, **columns)

    def replaced(self, gone: Array, rows: Array) -> Taken:
        """With ``rows``, columns in the order of the fields, in place of those that are ``gone`` (bool); sorted."""
        old = (getattr(self, f.name)[~gone] for f in fields(self))
        columns = [np.concatenate(pair) for pair in zip(old, rows, strict=True)]
        return Taken(*columns).taken(np.lexsort((columns[1], columns[0])))

    def taken(self, rows: Array) -> Taken:
        """Some of the rows, in some order."""
        return Taken(*(getattr(self, f.name)[rows] for f in fields(self)))


def hazardous(table: OpTable, node: Array) -> Array:
    """The rows of steps that must be looked at one by one (bool, a row each). ``node``: a number for each step of each
    lane. The messages of a barrier have no elements: nothing there is in the way."""
    op = table.op
    if table.collective.name == "barrier":
        lost = np.zeros(int(node.max(initial=-1)) + 1, bool)
        lost[node[(table.buffer == NONE) & ((op == Op.RECV) | (op == Op.REDUCE_RECV))]] = True
        return np.asarray(lost[node])
    local = (op == Op.COPY) | (op == Op.REDUCE)
    receives = (op == Op.RECV) | (op == Op.REDUCE_RECV)
    apart = (op == Op.REDUCE_RECV) & ((table.from_buffer != table.buffer) | (table.from_chunk != table.chunk))
    sends = np.flatnonzero((op == Op.SEND) & (table.of == NONE))
    reads = np.flatnonzero(local | apart)
    writes = np.flatnonzero((local | receives) & (table.buffer != NONE))
    bad = np.zeros(int(node.max(initial=-1)) + 1, bool)
    bad[node[receives & (table.buffer == NONE)]] = True
    several = np.bincount(node, minlength=len(bad)) > 1         # or a copy whose ends overlap
    several[node[reads[table.from_buffer[reads] == table.buffer[reads]]]] = True
    places = Locations(1, table.buffers)
    cells, nodes, writing = [], [], []
    accesses = ((sends, table.buffer, table.chunk, 0), (reads, table.from_buffer, table.from_chunk, 0),
                (writes, table.buffer, table.chunk, 1))
    for rows, buffer, chunk, how in accesses:
        rows = rows[several[node[rows]]]
        cell, owner = spread(places.at(buffer[rows], 0, chunk[rows]), table.count[rows].astype(np.int64))
        cells.append(cell)
        nodes.append(node[rows][owner])
        writing.append(np.full(len(cell), how, np.int8))
    key = np.concatenate(nodes).astype(np.int64) * (places.total + 1) + np.concatenate(cells)
    order = np.argsort(key, kind="stable")
    key, wrote = key[order], np.concatenate(writing)[order]
    clash = (key[1:] == key[:-1]) & ((wrote[1:] | wrote[:-1]) > 0)
    bad[key[1:][clash] // (places.total + 1)] = True
    return np.asarray(bad[node])


def spread(first: Array, count: Array) -> tuple[Array, Array]:
    """All locations of ranges of ``count`` from ``first``, and for each the index of its range."""
    owner = np.arange(len(first))
    if (count == 1).all():
        return first, owner
    owner = np.repeat(owner, count)
    return first[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count), owner


class Apart:
    """Takes steps apart, one call of :meth:`step` each, lane by lane and step by step.

    Each stream has its own part of staging memory; where lanes send from it in several steps, two that steps use in
    turn: so what a step keeps need not wait until what the step before has kept is taken. ``lasting``: sends whose
    values are kept, and where in a further part.
    """

    def __init__(self, table: OpTable, part: Array, like: Array, lasting: Mapping[int, int]) -> None:
        self.table, self.part, self.like, self.lasting = table, part, like, lasting
        self.staging = len(table.buffers)
        self._rows: list[tuple[int, ...]] = []
        self._odd: list[bool] = []                          # per row
        self._lane = (NONE, NONE)
        self._steps = self._posting = 0                     # of this lane: which use staging memory, and send from it
        self._need: defaultdict[int, int] = defaultdict(int)
        self._turns: defaultdict[int, int] = defaultdict(lambda: 1)

    def step(self, rows: list[int]) -> None:
        """The rows, rising, of one step of one lane."""
        stream = int(self.table.stream[rows[0]])
        lane = int(self.table.rank[rows[0]]), stream
        if lane != self._lane:
            self._lane, self._steps, self._posting = lane, 0, 0
        made = _Step(self, rows)
        taken = list(made.taken())
        self._rows += taken
        self._odd += [self._steps % 2 > 0] * len(taken)
        self._steps += made.used > 0
        self._posting += any(row[3] == Op.SEND and row[4] == self.staging for row in taken)
        self._need[stream] = max(self._need[stream], made.used)
        if self._posting > 1:
            self._turns[stream] = 2

    def finish(self) -> tuple[Array, int]:
        """The rows that all steps become, as columns in the order of the fields of :class:`Taken`, and how many chunks
        of staging memory they need."""
        rows = np.array(self._rows, np.int64).reshape(-1, len(fields(Taken))).T
        streams = max(1, len(self.table.streams))
        need = np.array([self._need[s] for s in range(streams)])
        turns = np.array([self._turns[s] for s in range(streams)])
        sends = np.array(list(self.lasting), np.int64)
        last = np.zeros(streams, np.int64)
        np.maximum.at(last, self.table.stream[sends], np.array(list(self.lasting.values()), np.int64)
                      + self.table.count[sends])
        total = need * turns + last
        base = np.cumsum(total) - total
        stream = self.table.stream[rows[0]]
        at = base[stream] + np.array(self._odd, bool) * (need * (turns - 1))[stream]
        for buffer, chunk in ((4, 5), (7, 8)):
            rows[chunk] += np.select([rows[buffer] == self.staging, rows[buffer] == self.staging + 1],
                                     [at, (base + need * turns)[stream]], 0)
            rows[buffer] = np.minimum(rows[buffer], self.staging)
        return rows, int(total.sum())


@dataclass(frozen=True)
class _Range:
    """Chunks of a buffer."""

    buffer: int
    chunk: int
    count: int

    def cells(self) -> Iterator[Cell]:
        return ((self.buffer, self.chunk + k) for k in range(self.count))


class _Step:
    """One step. ``used``: how many chunks of staging memory it needs."""

    def __init__(self, apart: Apart, rows: list[int]) -> None:
        t = apart.table
        self.apart, self.rows, self.used = apart, rows, 0
        self.op = {r: int(t.op[r]) for r in rows}
        self.passed = {int(t.of[r]): r for r in rows if t.of[r] != NONE}
        self.lasting = {r: _Range(apart.staging + 1, apart.lasting[r], int(t.count[r])) for r in rows
                        if r in apart.lasting}
        self.target = {r: _Range(int(t.buffer[r]), int(t.chunk[r]), int(t.count[r])) for r in rows
                       if self.op[r] != Op.SEND and t.buffer[r] != NONE}
        self.source: dict[int, _Range] = {}
        for r in rows:
            if self.op[r] == Op.SEND and t.of[r] == NONE:
                self.source[r] = _Range(int(t.buffer[r]), int(t.chunk[r]), int(t.count[r]))
            elif t.from_buffer[r] != NONE:
                self.source[r] = _Range(int(t.from_buffer[r]), int(t.from_chunk[r]), int(t.count[r]))
        self.writers: defaultdict[Cell, set[int]] = defaultdict(set)
        for r, target in self.target.items():
            for cell in target.cells():
                self.writers[cell].add(r)
        self.snapshots: dict[int, _Range] = {}      # per row: where what it reads is kept
        self.passing: dict[int, _Range] = {}        # per receive: where it stores
        self.made: dict[int, _Range] = {}           # per receive: what is passed on, where that is another place

    def taken(self) -> Iterator[tuple[int, ...]]:
        """The rows that the step becomes, as :class:`Taken` has them."""
        yield from self._snapshots()
        late = self._late()
        for r in self.rows:
            if self.op[r] in _RECEIVES:
                yield from self._received_late(r) if r in late else self._received(r)
        for r in self.rows:
            if self.op[r] == Op.SEND:
                yield self._sent(r)
            elif self.op[r] not in _RECEIVES:
                yield self._row(r, 0, LOCALS, self.op[r], self.target[r], self._read(r))

    def _snapshots(self) -> Iterator[tuple[int, ...]]:
        """Keeps what rows read where another one writes there. Readers of overlapping ranges share a copy."""
        readers = [r for r in self.rows if r in self.source and r not in self.lasting and self._torn(r)]
        runs: list[tuple[int, int, list[int]]] = []     # first chunk, end, rows: of one buffer each
        by_place = sorted(readers, key=lambda r: (self.source[r].buffer, self.source[r].chunk, r))
        for r in by_place:
            s = self.source[r]
            if runs and self.source[runs[-1][2][0]].buffer == s.buffer and s.chunk < runs[-1][1]:
                first, end, some = runs[-1]
                runs[-1] = (first, max(end, s.chunk + s.count), [*some, r])
            else:
                runs.append((s.chunk, s.chunk + s.count, [r]))
        for first, end, some in sorted(runs, key=lambda run: min(run[2])):
            kept = self._slot(end - first)
            classes: dict[int, int] = {}
            for r in some:
                s = self.source[r]
                self.snapshots[r] = _Range(kept.buffer, kept.chunk + s.chunk - first, s.count)
                classes |= {s.chunk + k: int(self.apart.like[r]) + k for k in range(s.count)}
            buffer = self.source[some[0]].buffer
            yield from self._kept(min(some), buffer, first, end, kept, classes)
        for r, kept in self.lasting.items():
            if r in self.source:
                self.snapshots[r] = kept
                yield self._row(r, -1, SNAPSHOT, Op.COPY, kept, self.source[r])

    def _kept(self, row: int, buffer: int, first: int, end: int, kept: _Range,
              classes: dict[int, int]) -> Iterator[tuple[int, ...]]:
        """The copies of chunks ``first .. end`` of a buffer: one for each run of classes that follow one another."""
        start = first
        for chunk in range(first + 1, end + 1):
            if chunk == end or classes[chunk] != classes[chunk - 1] + 1:
                here = _Range(kept.buffer, kept.chunk + start - first, chunk - start)
                there = _Range(buffer, start, chunk - start)
                yield self._row(row, start - end, SNAPSHOT, Op.COPY, here, there, like=classes[start])
                start = chunk

    def _torn(self, row: int) -> bool:
        """Whether what a row reads is written, by another row or elsewhere by itself, before it is done."""
        source, target = self.source[row], self.target.get(row)
        if source == target and self.op[row] == Op.REDUCE_RECV and row not in self.passed:
            return False                                # it adds to its place, in its turn
        own = {row} if source == target else set()
        return any(self.writers[cell] - own for cell in source.cells())

    def _late(self) -> set[int]:
        """The receives whose sums into a place must wait for those of rows before them."""
        direct: dict[Cell, list[int]] = defaultdict(list)
        closed: set[Cell] = set()
        late: set[int] = set()
        for r in self.rows:
            target = self.target.get(r)
            if target is None:
                continue
            cells = [c for c in target.cells() if len(self.writers[c]) > 1]
            if not cells:
                continue
            if (self.op[r] in _RECEIVES and not closed.intersection(cells) and r not in self.passed
                    and all(self._in_order(before, r) for c in cells for before in direct[c])):
                for c in cells:
                    direct[c].append(r)
            else:
                late.add(r)
                closed.update(cells)
        return late

    def _in_order(self, one: int, other: int) -> bool:
        """Whether, of two receives into one place, the first one adds first wherever they meet."""
        first, second = self._part(one), self._part(other)
        return first < second or (first == second and self.target[one].chunk == self.target[other].chunk)

    def _read(self, r: int) -> _Range:
        """Where a row reads what memory held before the step."""
        return self.snapshots.get(r, self.source[r])

    def _received(self, r: int) -> Iterator[tuple[int, ...]]:
        op, target, kept = self.op[r], self.target.get(r), self.lasting.get(self.passed.get(r, NONE))
        here = kept or target or self._slot(int(self.apart.table.count[r]))
        if target is None and r not in self.passed:
            op = Op.RECV
        self.passing[r] = here
        yield self._row(r, 1, self._part(r), op, here, self._read(r) if op == Op.REDUCE_RECV else None)
        if target is not None and here is not target:
            yield self._row(r, 4, LOCALS, Op.COPY, target, here)

    def _received_late(self, r: int) -> Iterator[tuple[int, ...]]:
        """A message waits in staging memory. What is passed on of it is made there, too, and sent like any other value:
        it is not what the place ends as."""
        target, part = self.target[r], self._part(r)
        message = self._slot(target.count)
        yield self._row(r, 1, part, Op.RECV, message)
        if r in self.passed:
            value = self.made[r] = self.lasting.get(self.passed[r]) or self._slot(target.count)
            yield self._row(r, 2, part, Op.COPY, value, self._read(r))
            yield self._row(r, 3, part, Op.REDUCE, value, message)
        yield self._row(r, 4, LOCALS, Op.REDUCE if self.op[r] == Op.REDUCE_RECV else Op.COPY, target, message)

    def _sent(self, r: int) -> tuple[int, ...]:
        receive = int(self.apart.table.of[r])
        if receive == NONE:
            return self._row(r, 0, SENDS, Op.SEND, self._read(r))
        if receive in self.made:
            return self._row(r, 0, self._part(receive) + 1, Op.SEND, self.made[receive])
        return self._row(r, 0, self._part(receive), Op.SEND, self.passing[receive], of=receive)

    def _part(self, r: int) -> int:
        return int(self.apart.part[r])

    def _slot(self, count: int) -> _Range:
        made = _Range(self.apart.staging, self.used, count)
        self.used += count
        return made

    def _row(self, was: int, turn: int, part: int, op: int, place: _Range, source: _Range | None = None, *,
             of: int = NONE, like: int | None = None) -> tuple[int, ...]:
        read = (NONE, NONE) if source is None else (source.buffer, source.chunk)
        return (was, turn, part, int(op), place.buffer, place.chunk, place.count, *read, of,
                int(self.apart.like[was]) if like is None else like)
