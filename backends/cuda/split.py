"""A table with what its normal form is made of: rows that move chunks of classes that follow one another, and when each
row happens."""

from __future__ import annotations

import numpy as np

from schedlang.backends.cuda.classes import Classes, like
from schedlang.backends.cuda.hazards import LOCALS, SENDS
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op
from schedlang.verify.timing.connections import Matching
from schedlang.verify.timing.order import Order


class Split:
    """A table whose rows have classes that follow one another: other rows are split into rows of one chunk.

    Columns: ``like``; ``partner``: the other end of a transfer; ``node``: the step, numbered through lane by lane;
    ``lane``; ``posted``, ``ready``, ``done``: levels; ``connection``, ``place``: of a send, its connection and which of
    its messages it is. NONE for rows without these.
    """

    def __init__(self, table: OpTable, pairs: Matching, when: Order, found: Classes) -> None:
        count = table.count.astype(np.int64)
        times = np.where(found.consecutive(count), 1, count)
        first = np.cumsum(times) - times
        rows = np.repeat(np.arange(len(table)), times)
        part = np.arange(len(rows)) - first[rows]

        def moved(column: Array) -> Array:
            """Row numbers, as those of the split table."""
            there = column[rows].astype(np.int64)
            return np.where(there == NONE, NONE, first[there] + part)

        if len(rows) > len(table):
            old = table.take(rows)
            new = {"count": np.where(times[rows] > 1, 1, old["count"]), "of": moved(table.of),
                   "chunk": np.where(old["buffer"] == NONE, old["chunk"], old["chunk"] + part),
                   "from_chunk": np.where(old["from_buffer"] == NONE, NONE, old["from_chunk"] + part)}
            table = table.with_columns(**(old | {name: column.astype(np.int32) for name, column in new.items()}))
            # The chunks of all rows stand in the same order as before.
            found = Classes(np.cumsum(table.count, dtype=np.int64) - table.count, found.of, found.parts)
        self.table = table
        self.partner = moved(pairs.partner)
        self.node = pairs.lanes.node[rows].astype(np.int64)
        self.lane = pairs.lanes.lane[rows].astype(np.int64)
        self.posted, self.ready, self.done = when.posted[rows], when.ready[rows], when.done[rows]
        ends = pairs.connections
        connection, place = np.full(len(times), NONE), np.full(len(times), NONE)
        connection[ends.sends], place[ends.sends] = ends.of_send, ends.send_index
        self.connection, self.place = connection[rows], place[rows]
        self.like = like(table, self.partner, found)

    def moments(self) -> Array:
        """When each row happens within its step (int64): messages when both their ends are there and their value is,
        in the second half of a level where a fused operation passes it on then; even numbers."""
        t = self.table
        part = np.where(t.op == Op.SEND, SENDS, LOCALS).astype(np.int64)
        receives = np.flatnonzero((t.op == Op.RECV) | (t.op == Op.REDUCE_RECV))
        sends = self.partner[receives]
        level = np.maximum(self.ready[sends], self.posted[receives]).astype(np.int64)
        late = (t.of[sends] != NONE) & (self.ready[sends] == level)
        part[receives] = 4 * level + 2 * late
        fused = np.flatnonzero(t.of != NONE)
        part[fused] = part[t.of[fused]]
        return part
