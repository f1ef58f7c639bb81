"""Where a lane must wait until what it has sent is taken, because the place is written next.

The sends of a lane count in the order in which it posts them: phase by phase, in a phase those that post at its
beginning first, each kind in row order. That is the order of the rows of a normal form.
"""

from __future__ import annotations

import numpy as np

from schedlang.backends.cuda.hazards import spread
from schedlang.ir.locations import Locations
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op


class Sends:
    """The sends of a normal form's rows.

    ``rows``: of all lanes; ``index``: per row, which send of its lane it is (NONE: it is none); ``earlier``: per phase,
    how many its lane has posted before; ``posted``: with its own plain ones, which it posts first. ``phase``, ``lane``:
    a number for each, a row each; phases count lane by lane.
    """

    def __init__(self, table: OpTable, phase: Array, lane: Array) -> None:
        self.table, self.phase, self.lane = table, phase, lane
        self.phases = int(phase.max(initial=-1)) + 1
        self.rows = np.flatnonzero(table.op == Op.SEND)
        before = np.cumsum(self.of_phase) - self.of_phase           # of all lanes
        first = np.full(int(lane.max(initial=-1)) + 1, len(self.rows), np.int64)
        np.minimum.at(first, lane, before[phase])
        self.index = np.full(len(phase), NONE, np.int64)
        self.index[self.rows] = np.arange(len(self.rows)) - first[lane[self.rows]]
        self.earlier = np.zeros(self.phases, np.int64)
        self.earlier[phase] = before[phase] - first[lane]
        self.posted = self.earlier + np.bincount(phase[self.rows[table.of[self.rows] == NONE]], minlength=self.phases)

    @property
    def of_phase(self) -> Array:
        """How many sends each phase has."""
        return np.bincount(self.phase[self.rows], minlength=self.phases)

    def before(self) -> Array:
        """For each phase how many of the sends posted before it and first in it need not be taken yet; NONE: all of
        them (int64).

        A phase must not write a place that an earlier send of its lane reads; in a barrier there is nothing to read.
        """
        table = self.table
        if table.collective.name == "barrier":
            return np.full(self.phases, NONE, np.int64)
        places = Locations(table.ranks, table.buffers)
        writes = np.flatnonzero((table.op != Op.SEND) & (table.op < Op.RECORD))
        rows = np.concatenate([writes, self.rows])
        cell, owner = spread(places.at(table.buffer[rows], table.rank[rows], table.chunk[rows]),
                             table.count[rows].astype(np.int64))
        row, sending = rows[owner], owner >= len(writes)
        key = cell * max(1, len(table.streams)) + table.stream[row]
        order = np.lexsort((sending, self.phase[row], key))         # a phase's own sends come after its writes
        key, row, sending = key[order], row[order], sending[order]
        new = np.ones(len(key), bool)
        new[1:] = key[1:] != key[:-1]
        step = len(self.rows) + 1
        last = np.maximum.accumulate(np.where(sending, self.index[row] + 1, 0) + np.cumsum(new) * step)
        last = last % step - 1                                      # of this place, the last send so far
        needed = np.full(self.phases, NONE, np.int64)
        np.maximum.at(needed, self.phase[row[~sending]], last[~sending])
        return self._steady(np.where(needed == NONE, NONE, self.posted - 1 - needed))

    def _steady(self, settled: Array) -> Array:
        """With the number that phases from the same place of the source have, for those of them that need none, where
        all of a lane have posted too few sends for it to matter: loops have less to tell apart."""
        table = self.table
        leads = np.flatnonzero(np.diff(self.phase, prepend=-1))
        kind = table.site[leads].astype(np.int64) * len(Op) + table.op[leads]
        kind = kind * (len(table.buffers) + 1) + table.buffer[leads] + 1
        kind = np.unique(kind * max(1, len(table.streams)) + table.stream[leads], return_inverse=True)[1].reshape(-1)
        kinds = int(kind.max(initial=-1)) + 1
        none = settled == NONE
        least, most = np.full(kinds, np.iinfo(np.int64).max), np.full(kinds, NONE, np.int64)
        np.minimum.at(least, kind[~none], settled[~none])
        np.maximum.at(most, kind, settled)
        lane = np.unique(self.lane[leads] * kinds + kind, return_inverse=True)[1].reshape(-1)
        matters = np.zeros(int(lane.max(initial=-1)) + 1, bool)
        matters[lane[none & ((least != most)[kind] | (self.posted > most[kind]))]] = True
        return np.where(none & ~matters[lane], most[kind], settled)

    def after(self, step: Array, shared: Array) -> Array:
        """For each phase how many of the sends posted so far need not be taken yet at its end; NONE: all of them
        (int64).

        At the end of a step all its sends must be taken whose place another lane writes later. ``step`` (a row each): a
        number for each step as it was before it became phases, lane by lane; ``shared`` (bool, a row each): which sends
        these are.
        """
        last_phase = np.zeros(int(step.max(initial=-1)) + 1, np.int64)
        np.maximum.at(last_phase, step, self.phase)
        rows = self.rows[shared[self.rows]]
        last = np.full(self.phases, NONE, np.int64)
        np.maximum.at(last, last_phase[step[rows]], self.index[rows])
        return np.where(last == NONE, NONE, self.earlier + self.of_phase - 1 - last)


def written_later(table: OpTable, lane: Array, posted: Array, done: Array) -> Array:
    """Which sends have a place that another lane of their rank writes after their step (bool, a row each).

    ``posted``, ``done``: levels of a legal execution. Of a table without races, what comes after in one execution does
    so in all of them.
    """
    found = np.zeros(len(table), bool)
    if len(table.streams) < 2 or table.collective.name == "barrier":
        return found
    places = Locations(table.ranks, table.buffers)
    writes = np.flatnonzero((table.op != Op.SEND) & (table.op < Op.RECORD) & (table.buffer != NONE))
    sends = np.flatnonzero((table.op == Op.SEND) & (table.buffer != NONE))
    cell, owner = spread(places.at(table.buffer[writes], table.rank[writes], table.chunk[writes]),
                         table.count[writes].astype(np.int64))
    row = writes[owner]
    # The last write of each lane to each cell; of these the last two, which are of two lanes.
    order = np.lexsort((done[row], lane[row], cell))
    cell, row = cell[order], row[order]
    last = np.ones(len(cell), bool)
    last[:-1] = (cell[1:] != cell[:-1]) | (lane[row[1:]] != lane[row[:-1]])
    cell, row = cell[last], row[last]
    order = np.lexsort((done[row], cell))
    cell, row = cell[order], row[order]
    where, owner = spread(places.at(table.buffer[sends], table.rank[sends], table.chunk[sends]),
                          table.count[sends].astype(np.int64))
    send = sends[owner]
    at = np.searchsorted(cell, where, side="right") - 1
    for back in (0, 1):
        k = at - back
        there = (k >= 0) & (cell[np.maximum(k, 0)] == where) if len(cell) else np.zeros(len(where), bool)
        writer = row[np.where(there, k, 0)] if len(row) else np.zeros(len(where), np.int64)
        late = there & (lane[writer] != lane[send]) & (done[writer] >= posted[send])
        found[send[late]] = True
    return found
