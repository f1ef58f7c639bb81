"""The lanes of a table, and one number for every step of every lane."""

from __future__ import annotations

import numpy as np

from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op


class Lanes:
    """Lanes (rank, stream) and their steps as dense numbers.

    Steps are *nodes*: the node of step s of a lane stands for the moment it is posted, which is also the moment at
    which step s - 1 has ended. So a lane of n steps has n + 1 nodes, side by side; the last stands for the lane's end.

    ``lane`` (a row each): which lane. ``rank``, ``stream``, ``steps``, ``start`` (a lane each): what it is, how many
    steps it has, its first node; lanes without rows may be among them, with no node. ``node`` (a row each): the node of
    its step.
    """

    def __init__(self, table: OpTable) -> None:
        streams, rows = max(1, len(table.streams)), len(table)
        keys = np.arange(table.ranks * streams, dtype=np.int64)
        if streams == 1:
            lane = table.rank
        elif len(keys) <= max(1 << 20, 4 * rows):
            lane = (table.rank * np.int32(streams) + table.stream).astype(np.int32, copy=False)
        else:
            keys, lane = np.unique(table.rank.astype(np.int64) * streams + table.stream, return_inverse=True)
            lane = lane.astype(np.int32).reshape(rows)
        self.lane: Array = lane
        self.rank = (keys // streams).astype(np.int32)
        self.stream = (keys % streams).astype(np.int32)
        last = np.full(len(keys), NONE, np.int32)
        np.maximum.at(last, self.lane, table.step)
        self.steps = last + 1
        ends = np.cumsum(self.steps + (last >= 0), dtype=np.int64)
        self.nodes = int(ends[-1]) if len(ends) else 0
        self.start = (ends - self.steps - (last >= 0)).astype(np.int32)
        self.node = self.start[self.lane]
        self.node += table.step

    @property
    def used(self) -> Array:
        """The lanes that have rows."""
        return np.flatnonzero(self.steps)

    @property
    def ends(self) -> Array:
        """The last node of every used lane."""
        used = self.used
        return self.start[used] + self.steps[used]

    def lane_of(self, nodes: Array) -> Array:
        """The lane of each node."""
        return np.searchsorted(self.start, nodes, side="right") - 1

    def per_rank(self, ranks: int) -> Array:
        """How many lanes each rank uses."""
        return np.bincount(self.rank[self.used], minlength=ranks)


def fused_sends(table: OpTable) -> Array:
    """The rows that are fused sends."""
    if int(table.of.max(initial=NONE)) == NONE:
        return np.zeros(0, np.int64)
    return np.flatnonzero(table.of != NONE)


def records(table: OpTable) -> tuple[Array, Array]:
    """The wait rows of a table and, for each, the row that records its event (NONE where nothing does)."""
    if int(table.op.max(initial=0)) < Op.RECORD:
        none = np.zeros(0, np.int64)
        return none, none
    waits = np.flatnonzero(table.op == Op.WAIT)
    made = np.flatnonzero(table.op == Op.RECORD)
    if not len(waits):
        return waits, waits
    events = max(1, len(table.events))
    keys = table.rank[made].astype(np.int64) * events + table.event[made]
    by_key = np.argsort(keys, kind="stable")
    keys, made = keys[by_key], made[by_key]
    wanted = table.rank[waits].astype(np.int64) * events + table.event[waits]
    at = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
    if not len(keys):
        return waits, np.full(len(waits), NONE)
    return waits, np.where(keys[at] == wanted, made[at], NONE)
