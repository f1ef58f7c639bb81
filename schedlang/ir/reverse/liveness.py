"""Where values go in a table, and which of them a result needs: the ground that :mod:`schedlang.ir.reverse` stands on.

An *element* is one chunk of one row: a row of count 3 has three; record and wait have none.
"""

from __future__ import annotations

import numpy as np

from schedlang.diagnostics import SchedError, error
from schedlang.ir.buffers import results
from schedlang.ir.locations import Locations
from schedlang.ir.reverse.timeline import Timeline
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import MAX_OPS, Op


class Flow:
    """The elements of a table and the life of their values.

    By row: ``base``, the first element; ``forward``, of a receive the fused send that passes its value on, else NONE.

    By element: ``row`` and ``offset`` (the chunk within the row); ``place``, the location that the row names (what a
    send reads, what others write), and ``operand``, the location of its source or local operand, each NONE where there
    is none; ``begin`` and ``end`` (moments: all reads of one come before all its writes, so reads are even, writes
    odd).

    By element, of receives and local operations: ``stored``, whether the value is used from where the row puts it;
    ``passed``, whether it is used by being forwarded; ``used``, whether either. On a send ``used`` says whether the
    receive at its other end is. A value is used if it reaches a result in the end.
    """

    def __init__(self, table: OpTable, time: Timeline) -> None:
        self.table, self.time = table, time
        self.locations = Locations(table.ranks, table.buffers)
        elements = int(table.count.sum(dtype=np.int64))
        if max(elements, self.locations.total) > MAX_OPS:
            raise SchedError(error("SL208", f"{table.name} moves {elements} chunks between {self.locations.total} "
                                   f"places, too many to reverse; the most is {MAX_OPS}", table.location))
        self.base = (np.cumsum(table.count, dtype=np.int64) - table.count).astype(np.int32)
        self.row = np.repeat(np.arange(len(table), dtype=np.int32), table.count)
        self.offset = np.arange(elements, dtype=np.int32) - self.base[self.row]
        self.results = results(table)
        self.place = self._locations(table.buffer, table.chunk)
        self.operand = self._locations(table.from_buffer, table.from_chunk)
        self.begin, self.end = 2 * time.begin[self.row], 2 * time.end[self.row] + 1

        fused = np.flatnonzero(table.of != NONE)
        self.forward = np.full(len(table), NONE, np.int32)
        self.forward[table.of[fused]] = fused
        self.is_send = table.op[self.row] == Op.SEND
        self.is_reading_send = self.is_send & (table.of[self.row] == NONE)
        self.is_write = ~self.is_send & (self.place != NONE)
        # The element at the other end of a send, and at the other end of the fused send of a receive.
        self.target = self.same_element(np.where(table.op == Op.SEND, time.partner, NONE))
        self.following = self.same_element(np.where(self.forward != NONE, time.partner[self.forward], NONE))

        self.stored = self.is_write.copy()
        self._spread()
        if not self._nothing_is_lost():
            self._sweep()
            self._spread()

    def same_element(self, rows: Array) -> Array:
        """For each element, the corresponding one of the row that ``rows`` gives for its row; NONE for NONE."""
        mine = rows[self.row]
        return np.where(mine != NONE, self.base[mine] + self.offset, NONE)

    def same_place(self) -> Array:
        """By element: whether the local operand of a reduce_recv is the place it writes to (or it is no
        reduce_recv)."""
        return np.where(self.table.op[self.row] == Op.REDUCE_RECV, self.place == self.operand, True)

    def any_along_chain(self, flags: Array) -> Array:
        """By element of a receive: whether ``flags`` holds there or at a receive further along the fused chain."""
        flags, following = flags.copy(), self.following
        at = np.flatnonzero(following != NONE)
        while len(at):  # each turn looks twice as far
            to = following[at]
            seen, further = flags[at] | flags[to], following[to]
            flags[at] = seen
            following = following.copy()
            following[at] = further
            at = at[further != NONE]
        return flags

    def _locations(self, buffer: Array, chunk: Array) -> Array:
        where = buffer[self.row]
        at = self.locations.at(where, self.table.rank[self.row], chunk[self.row] + self.offset)
        return np.where(where != NONE, at, NONE).astype(np.int32)

    def _spread(self) -> None:
        """``used`` and ``passed`` from ``stored``."""
        self.used = self.any_along_chain(self.stored)
        self.passed = np.where(self.following != NONE, self.used[self.following], False)
        sends = self.target != NONE
        self.used[sends] = self.used[self.target[sends]]

    def _nothing_is_lost(self) -> bool:
        """Whether all values are used, judging by what is touched last: a written location must be read again, or a
        result.

        If each is, then by induction from the end of the execution every write reaches a result.
        """
        if not self.used.all():
            return False
        last_read = np.full(self.locations.total, NONE, np.int32)
        last_write = np.full(self.locations.total, NONE, np.int32)
        np.maximum.at(last_read, self.operand[self.operand != NONE], self.begin[self.operand != NONE])
        np.maximum.at(last_read, self.place[self.is_reading_send], self.begin[self.is_reading_send])
        np.maximum.at(last_write, self.place[self.is_write], self.end[self.is_write])
        return bool(((last_write < last_read) | (last_write == NONE) | self.results).all())

    def _sweep(self) -> None:
        """``stored``, moment by moment from the end."""
        alive = self.results.copy()
        plain = self.table.op[self.row] != Op.REDUCE  # a reduce_recv reads its operand apart, so it counts as one, too
        reads = np.flatnonzero(self.is_reading_send | (self.operand != NONE))
        read_place = np.where(self.is_reading_send, self.place, self.operand)
        first_hop = np.where(self.is_send, self.target, np.arange(len(self.row), dtype=np.int32))
        writes = np.flatnonzero(self.is_write)
        reads, writes = reads[np.argsort(self.begin[reads])], writes[np.argsort(self.end[writes])]
        moments = np.unique(np.concatenate((self.begin[reads], self.end[writes])))[::-1]
        starts_r = np.searchsorted(self.begin[reads], moments, "left").tolist()
        stops_r = np.searchsorted(self.begin[reads], moments, "right").tolist()
        starts_w = np.searchsorted(self.end[writes], moments, "left").tolist()
        stops_w = np.searchsorted(self.end[writes], moments, "right").tolist()
        self.stored[:] = False
        for i in range(len(moments)):
            w = writes[starts_w[i] : stops_w[i]]
            self.stored[w] = alive[self.place[w]]
            alive[self.place[w[plain[w]]]] = False
            r = reads[starts_r[i] : stops_r[i]]
            hop, used = first_hop[r], np.zeros(len(r), bool)
            while len(r) and (hop != NONE).any():
                used |= self.stored[hop] & (hop != NONE)
                hop = np.where(hop != NONE, self.following[hop], NONE)
            alive[read_place[r[used]]] = True
