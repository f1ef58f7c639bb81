"""Whether one step of a rank comes before another, by whatever way: lane order and events first, other ranks if need
be.

Two passes, each of them exact for what it claims. *Within the rank*: for each wait, the last step of every other lane
of its rank that is known to have been posted; all ranks go through this together. *Through other ranks*, only for the
pairs that remain: for a batch of lanes, the last of their steps known at every node of the whole graph.
"""

from __future__ import annotations

import numpy as np

from schedlang.ir.table import NONE, Array, OpTable
from schedlang.verify.timing.lanes import records
from schedlang.verify.timing.order import Order

CELLS = 1 << 24
"""How many int32 cells a pass may hold at a time."""


class Reach:
    """Answers about the order of steps, for one table and one model (``order.sends.depth``)."""

    def __init__(self, table: OpTable, order: Order) -> None:
        self.order, self.lanes = order, order.matching.lanes
        used = self.lanes.used
        per_rank = self.lanes.per_rank(table.ranks)
        self._slots = int(per_rank.max(initial=0))
        self._slot = np.zeros(len(self.lanes.start), np.int32)  # the lane's number among those of its rank
        self._slot[used] = np.arange(len(used)) - (np.cumsum(per_rank) - per_rank)[self.lanes.rank[used]]
        waits, made = records(table)
        known = (made != NONE) & (order.done[waits] != NONE)
        waits, made = waits[known], made[known]
        by_node = np.argsort(self.lanes.node[waits])
        self._waits, self._made = waits[by_node], made[by_node]
        self._wait_node = self.lanes.node[self._waits]
        self._clocks: dict[int, Array] = {}

    def ordered(self, before: Array, after: Array) -> Array:
        """For each i, whether node ``before[i]`` is ``after[i]`` or comes before it (bool). Both are nodes of lanes of
        one rank, and of different lanes."""
        found = self._within(before, after)
        left = np.flatnonzero(~found)
        if len(left):
            found[left] = self._anywhere(before[left], after[left], None)
        return found

    def across(self, before: Array, after: Array) -> Array:
        """As :meth:`ordered`, for nodes of lanes of any rank."""
        return self._anywhere(before, after, None) == 1 if len(before) else np.zeros(0, bool)

    def some_unordered(self, before: Array, after: Array, enough: int) -> tuple[Array, bool]:
        """The indices of pairs that are not ordered, and whether the search went on to its end: it stops early once it
        has found ``enough`` of them."""
        left = np.flatnonzero(~self._within(before, after))
        if not len(left):
            return left, True
        found = self._anywhere(before[left], after[left], enough)
        judged = found >= 0
        return left[judged & (found == 0)], bool(judged.all())

    def _within(self, before: Array, after: Array) -> Array:
        """Whether lane order and the events of the rank itself order the pairs."""
        found = np.zeros(len(before), bool)
        if not len(self._waits) or not len(before):
            return found
        lane, other = self.lanes.lane_of(before), self.lanes.lane_of(after)
        last = self._last_wait(after, other)
        slot, step = self._slot[lane], before - self.lanes.start[lane]
        width = max(1, CELLS // (len(self._waits) + 1))
        for low in range(0, self._slots, width):
            these = np.flatnonzero((last != NONE) & (slot >= low) & (slot < low + width))
            if len(these):
                clock = self._clock(low, min(width, self._slots - low))
                found[these] = clock[last[these], slot[these] - low] >= step[these]
        return found

    def _last_wait(self, node: Array, lane: Array) -> Array:
        """The last wait (as an index into ``_waits``) that has ended when each node is reached; NONE where there is
        none."""
        at = np.searchsorted(self._wait_node, node) - 1
        return np.where((at >= 0) & (self._wait_node[at] >= self.lanes.start[lane]), at, NONE)

    def _clock(self, low: int, width: int) -> Array:
        """For each wait, once it has ended: the last step of the lanes in slots ``low .. low + width`` of its rank
        known to have been posted. The last row, all NONE, stands for no wait at all."""
        if low in self._clocks:
            return self._clocks[low]
        lanes, waits, made = self.lanes, self._waits, self._made
        lane, made_lane = lanes.lane[waits], lanes.lane[made]
        previous = self._last_wait(self._wait_node, lane)
        inherited = self._last_wait(lanes.node[made], made_lane)
        slot, step = self._slot[made_lane] - low, lanes.node[made] - lanes.start[made_lane]
        direct = (slot >= 0) & (slot < width)
        clock = np.full((len(waits) + 1, width), NONE, np.int32)
        # The k-th wait of every rank, in an order in which it can end: all ranks at once.
        rank = lanes.rank[lane].astype(np.int64)
        by = np.argsort(rank * (int(self.order.done.max()) + 2) + self.order.done[waits], kind="stable")
        turn = np.arange(len(by)) - np.searchsorted(rank[by], rank[by])
        by_turn = by[np.argsort(turn, kind="stable")]
        bounds = np.cumsum(np.bincount(turn))
        for start, end in zip([0, *bounds[:-1].tolist()], bounds.tolist(), strict=True):
            these = by_turn[start:end]
            now = np.maximum(clock[previous[these]], clock[inherited[these]])
            own = np.flatnonzero(direct[these])
            now[own, slot[these[own]]] = np.maximum(now[own, slot[these[own]]], step[these[own]])
            clock[these] = now
        self._clocks = {low: clock}
        return clock

    def _anywhere(self, before: Array, after: Array, enough: int | None) -> Array:
        """Whether any chain orders the pairs: 1 yes, 0 no, -1 not judged (after ``enough`` that are not)."""
        graph, lanes = self.order.graph, self.lanes
        found = np.full(len(before), NONE, np.int8)
        lane = lanes.lane_of(before)
        sources = np.unique(lane)
        width = max(1, min(len(sources), CELLS // graph.nodes))
        level, unordered = graph.level, 0
        for low in range(0, len(sources), width):
            batch = sources[low:low + width]
            these = np.flatnonzero((lane >= batch[0]) & (lane <= batch[-1]))
            column = np.searchsorted(batch, lane[these])
            latest = np.full((graph.nodes, len(batch)), NONE, np.int32)
            for k, source in enumerate(batch.tolist()):
                start, steps = int(lanes.start[source]), int(lanes.steps[source])
                latest[start:start + steps + 1, k] = np.arange(steps + 1)
            above = max(0, int(level[before[these]].min()))
            for targets, edges, starts in graph.sweep(above, int(level[after[these]].max())):
                latest[targets] = np.maximum(latest[targets], np.maximum.reduceat(latest[edges], starts, axis=0))
            found[these] = latest[after[these], column] >= before[these] - lanes.start[lane[these]]
            unordered += int((found[these] == 0).sum())
            if enough is not None and unordered >= enough:
                break
        return found
