"""What the lanes, connections and scratch buffers of a table are like, as colours: hashes that do not see names."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import numpy as np

from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op
from schedlang.verify.matching import match
from schedlang.verify.timing.connections import connection_keys
from schedlang.verify.timing.lanes import Lanes, records


def own_buffers(table: OpTable) -> set[int]:
    """The buffers that the caller knows by name: all but scratch, and what an `ensure` speaks of."""
    own = {i for i, b in enumerate(table.buffers) if b.role != "scratch"}
    ensures = table.collective.ensures
    return own if ensures is None else own | {*ensures.buffer.tolist(), *ensures.source_buffer.tolist()}


@dataclass(frozen=True)
class Colours:
    """What lanes, buffers and connections are like: uint64, the last entry of each stands for NONE."""

    lanes: Array
    buffers: Array
    connections: Array

    def kinds(self) -> tuple[Array, Array, Array]:
        """All three, in the order that a kind's number stands for."""
        return self.lanes, self.buffers, self.connections

    def marked(self, kind: int, which: int) -> Colours:
        """These colours with one thing singled out."""
        changed = [colours.copy() for colours in self.kinds()]
        changed[kind][which] ^= np.uint64(0xA5A5_5A5A_0F0F_F0F1)
        return Colours(*changed)


class Rows:
    """One table, its rows by what they do. All arrays of the length of the table. ``step`` is that of the table, but
    for waits that follow each other in a lane: these all have the first one's (see :mod:`schedlang.diff.operations`).
    """

    def __init__(self, table: OpTable) -> None:
        self.table = table
        self.lanes = Lanes(table)
        self.lane = self.lanes.lane
        self.step = without_order(table)
        self.matching = match(table)
        self.partner = self.matching.partner
        waits, made = records(table)
        self.record = np.full(len(table), NONE, np.int64)
        self.record[waits] = made
        self.connection = np.full(len(table), NONE, np.int64)
        transfers = np.flatnonzero(table.op <= Op.REDUCE_RECV)
        keys, self.connection[transfers] = np.unique(connection_keys(table, transfers), return_inverse=True)
        self.connections = len(keys)
        own = own_buffers(table)
        self.scratch = np.array([i not in own for i in range(len(table.buffers))], bool)
        used = np.zeros(len(table.buffers) + 1, bool)
        used[table.buffer] = used[table.from_buffer] = True
        self.used = (self.lanes.steps > 0, used[:-1] & self.scratch, np.ones(self.connections, bool))
        sending = table.op == Op.SEND
        columns = [table.op, table.count, np.where(table.buffer == NONE, 0, table.chunk), table.peer,
                   np.where(table.from_buffer == NONE, 0, table.from_chunk),
                   turns(mix(self.lanes.node, sending, table.peer, self.connection)) * (table.peer != NONE),
                   self._additions()]
        self.columns = [np.asarray(c, np.int64) for c in columns]
        done = mix(*self.columns)
        self.does = mix(done, np.where(table.of == NONE, 0, done[table.of]))

    def _additions(self) -> Array:
        """Of additions of one step into places that overlap, which comes first; elsewhere 0."""
        t = self.table
        turn = np.zeros(len(t), np.int64)
        adds = t.op == Op.REDUCE
        adds |= (t.op == Op.REDUCE_RECV) & (t.buffer == t.from_buffer) & (t.chunk == t.from_chunk)
        rows = np.flatnonzero(adds)
        rows = rows[np.bincount(self.lanes.node[rows], minlength=self.lanes.nodes)[self.lanes.node[rows]] > 1]
        if not len(rows):
            return turn
        _, group = np.unique(self.lanes.node[rows].astype(np.int64) * len(t.buffers) + t.buffer[rows],
                             return_inverse=True)
        room = int((t.chunk[rows] + t.count[rows]).max()) + 1
        begin = group * room + t.chunk[rows]
        order = np.argsort(begin, kind="stable")
        ends = np.maximum.accumulate((begin + t.count[rows])[order])
        meets = np.zeros(int(group.max()) + 1, bool)
        meets[group[order[1:]][begin[order[1:]] < ends[:-1]]] = True
        rows, group = rows[meets[group]], group[meets[group]]
        turn[rows] = turns(group) + 1
        return turn

    def start(self) -> Colours:
        """The colours before anything is known but what a buffer is for."""
        buffers = [text_hash(b.name) if not self.scratch[i] else text_hash(f"{b.place} {b.only}")
                   for i, b in enumerate(self.table.buffers)]
        return Colours(mix(np.append(self.lanes.rank, NONE)), np.array([*buffers, 1], np.uint64),
                        np.zeros(self.connections + 1, np.uint64))

    def rows(self, c: Colours) -> Array:
        """What each row is like: what it does, where, and with whom."""
        step, lane = np.append(self.step, NONE), np.append(self.lane, NONE)
        return mix(self.alone(c), c.connections[self.connection], c.lanes[lane[self.partner]], step[self.partner],
                   c.lanes[lane[self.record]], step[self.record])

    def alone(self, c: Colours) -> Array:
        """What each row is like, whatever it meets."""
        return mix(self.does, c.buffers[self.table.buffer], c.buffers[self.table.from_buffer])

    def steps(self, rows: Array) -> Array:
        """What each step of each lane is like, by its node: waits that follow each other at the first one's."""
        found = np.zeros(self.lanes.nodes, np.uint64)
        np.add.at(found, self.lanes.start[self.lane] + self.step, mix(rows))
        return found

    def lane_sums(self, rows: Array) -> Array:
        """What each lane does, NONE's included."""
        found = np.zeros(len(self.lanes.rank) + 1, np.uint64)
        np.add.at(found, self.lane, mix(rows, self.step))
        return found

    def refined(self, c: Colours) -> Colours:
        """Colours that see one neighbour further."""
        rows = self.rows(c)
        at = mix(rows, c.lanes[self.lane], self.step)
        buffers, connections = np.zeros_like(c.buffers), np.zeros_like(c.connections)
        np.add.at(buffers, self.table.buffer, at)
        np.add.at(buffers, self.table.from_buffer, mix(at))
        np.add.at(connections, self.connection, at)
        new = mix(c.buffers, buffers)
        new[:-1][~self.scratch] = c.buffers[:-1][~self.scratch]
        new[-1], connections[-1] = c.buffers[-1], 0
        return Colours(mix(c.lanes, self.lane_sums(rows)), new, mix(c.connections, connections))


def without_order(table: OpTable) -> Array:
    """The step of each row; waits that follow each other in a lane all have that of the first."""
    step = table.step.astype(np.int64)
    waits = np.flatnonzero(table.op == Op.WAIT)
    lane = table.rank[waits].astype(np.int64) * max(1, len(table.streams)) + table.stream[waits]
    by = np.lexsort((step[waits], lane))
    waits, lane = waits[by], lane[by]
    begins = np.ones(len(waits), bool)
    begins[1:] = (lane[1:] != lane[:-1]) | (step[waits[1:]] != step[waits[:-1]] + 1)
    first = np.maximum.accumulate(np.where(begins, np.arange(len(waits)), 0))
    step[waits] = step[waits[first]]
    return step


def mix(*columns: Array) -> Array:
    """A 64-bit hash of each row of columns."""
    found = np.full(len(columns[0]), 0x9E37_79B9_7F4A_7C15, np.uint64)
    for column in columns:
        found ^= column.astype(np.uint64)
        found *= np.uint64(0xD6E8_FEB8_6659_FD93)
        found ^= found >> np.uint64(32)
        found *= np.uint64(0xC2B2_AE3D_27D4_EB4F)
        found ^= found >> np.uint64(29)
    return found


def text_hash(text: str) -> int:
    """A text as a colour, other than that of NONE."""
    return crc32(text.encode()) + 2


def turns(keys: Array) -> Array:
    """Of equal keys, which comes first: 0, 1, .. in the order of the rows."""
    order = np.argsort(keys, kind="stable")
    new = np.flatnonzero(np.diff(keys[order].astype(np.uint64), prepend=np.uint64(0)) != 0)
    new = np.unique(np.concatenate([[0], new])) if len(keys) else new
    found = np.zeros(len(keys), np.int64)
    found[order] = np.arange(len(keys)) - np.repeat(new, np.diff(new, append=len(keys)))
    return found


def settled(a: Rows, b: Rows, ours: Colours, theirs: Colours) -> tuple[Colours, Colours, bool]:
    """Colours that tell apart all they can, and whether both tables have equally many of each."""
    known = 0
    while True:
        here, there = (_present(side, c) for side, c in ((a, ours), (b, theirs)))
        if not all(map(np.array_equal, here, there)):
            return ours, theirs, False
        kinds = sum(len(np.unique(x)) for x in here)
        if kinds == known:
            return ours, theirs, True
        known = kinds
        ours, theirs = a.refined(ours), b.refined(theirs)


def _present(side: Rows, colours: Colours) -> list[Array]:
    """The colours that occur, sorted: of lanes, scratch buffers, connections."""
    return [np.sort(x[:-1][used]) for x, used in zip(colours.kinds(), side.used, strict=True)]
