"""The order in which operations can happen: a legal execution of the whole table, as levels."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from schedlang.ir.table import NONE, Array, OpTable
from schedlang.verify.sends import DEFAULT, Sends
from schedlang.verify.timing.connections import Matching
from schedlang.verify.timing.graph import Graph, build
from schedlang.verify.timing.lanes import fused_sends, records

__all__ = ["DEFAULT", "Order", "Sends", "order"]

WIDE = 64
"""With so many rows a level, `table.number` serves as it is; with fewer, levels made anew are worth their cost."""

FEW = 512
"""Up to so many levels are never worth making anew."""


@dataclass(frozen=True)
class Order:
    """A legal execution of a table, one int32 a row: at level t = 0, 1, .. of ``levels``

    1. every row with ``posted == t`` reads (plain sends, copies, operands of reductions): memory as it stands;
    2. every fused send with ``ready == t`` passes on the value its receive yields: the message that arrived, combined
       with the operand the receive has read. The message that arrived was ready at t or before if its send is plain,
       strictly before t if that is fused too; so the fused sends of one level do not depend on each other;
    3. every row with ``done == t`` writes; several reductions of one step into one location in row order.

    ``posted <= ready <= done`` of the row itself, and the ``ready`` of a send is at most the ``done`` of its receive.
    All rows of one step of a lane have one ``posted`` and one ``done``. ``ready`` of a row that is no fused send is its
    ``posted``. The three may be one and the same array. ``complete``: the execution came to its end; where it did not
    (a deadlock, an operation without its partner), rows that were never posted, ready or done have NONE there.
    ``deadlock_free``: nothing is stuck where deadlock is judged (``sends.deadlock_depth``). ``numbered``: the levels
    are `table.number` (spread out where fused chains need room), which was checked.
    """

    posted: Array
    ready: Array
    done: Array
    levels: int
    complete: bool
    numbered: bool
    deadlock_free: bool
    sends: Sends
    table: OpTable = field(repr=False)
    matching: Matching = field(repr=False)

    @cached_property
    def graph(self) -> Graph:
        """What must happen before what, for all proofs but deadlock (``sends.depth``).

        Where every node is a step's, its levels are those of this execution, not made anew: an execution that is legal
        with less buffering puts every node after what it comes after, and that is what levels are for.
        """
        graph = build(self.table, self.matching, self.sends.depth)
        if self.complete and not len(graph.extra):
            node = self.matching.lanes.node
            level = np.full(graph.nodes, NONE, np.int32)
            level[node + 1] = self.done + 1
            level[node] = self.posted
            graph.__dict__["level"] = level
        return graph

    @cached_property
    def _completes(self) -> dict[int | None, bool]:
        return {self.sends.depth: self.complete, self.sends.deadlock_depth: self.deadlock_free}

    def completes(self, depth: int | None) -> bool:
        """Whether the execution comes to its end where connections hold ``depth`` messages (0: rendezvous, None: no
        limit)."""
        if depth not in self._completes:
            self._completes[depth] = build(self.table, self.matching, depth).complete
        return self._completes[depth]


def order(table: OpTable, matching: Matching, sends: Sends = DEFAULT) -> Order:
    """Execute the table, so to speak: under the model for deadlock where that comes to its end, else under the
    other."""
    proven = matching.numbered and _numbers_hold(table, matching)
    if proven and table.number is not None:
        levels = int(table.number.max()) + 1
        if levels <= FEW or len(table) >= WIDE * levels:
            return _from_numbers(table, matching, sends)
    graph = build(table, matching, sends.depth if proven else sends.deadlock_depth)
    free = proven or graph.complete
    if not free and sends.depth != sends.deadlock_depth:
        graph = build(table, matching, sends.depth)
    found = _from_graph(table, matching, sends, graph, free)
    if not proven and free and sends.depth != sends.deadlock_depth:
        return found
    found.__dict__["graph"] = graph  # the very graph that the cached property would build
    return found


def _numbers_hold(table: OpTable, matching: Matching) -> bool:
    """Whether executing the table number by number is legal even without buffering. Pairs are known to share a number
    that rises along lanes; what is left is that waits come after their records, and that fused messages in one number
    depend on each other in row order only."""
    number = table.number
    assert number is not None
    waits, made = records(table)
    if len(waits) and ((made == NONE).any() or (number[made] >= number[waits]).any()):
        return False
    fused = fused_sends(table)
    if not len(fused):
        return True
    feeding, partner = table.of[fused], matching.partner
    if (feeding >= fused).any() or (partner[feeding] >= feeding).any() or (partner[fused] <= fused).any():
        return False
    # Two messages of one connection in one step: the second can only be taken after the first, perhaps fused, one.
    ends = matching.connections
    node = matching.lanes.node[ends.receives]
    return not ((ends.of_receive[1:] == ends.of_receive[:-1]) & (node[1:] == node[:-1])).any()


def _from_numbers(table: OpTable, matching: Matching, sends: Sends) -> Order:
    number = table.number
    assert number is not None
    levels = int(number.max()) + 1
    fused = fused_sends(table)
    if not len(fused):
        return Order(number, number, number, levels, True, True, True, sends, table, matching)
    came = matching.partner[table.of[fused]]  # the send of the message that a fused send passes on
    depth = np.zeros(len(table), np.int32)
    left = np.flatnonzero(table.of[came] != NONE)
    while len(left):  # chains go forward in row order, so this ends
        deeper = depth[came[left]] + 1
        grown = deeper > depth[fused[left]]
        left = left[grown]
        depth[fused[left]] = deeper[grown]
    room = np.ones(levels, np.int32)
    np.maximum.at(room, number[fused], depth[fused] + 1)
    last = np.cumsum(room, dtype=np.int32) - 1
    done = last[number]
    posted = done - (room - 1)[number]
    return Order(posted, posted + depth, done, int(last[-1]) + 1, True, True, True, sends, table, matching)


def _from_graph(table: OpTable, matching: Matching, sends: Sends, graph: Graph, free: bool) -> Order:
    level, node = graph.level, matching.lanes.node
    posted = level[node]
    done = level[node + 1] - 1
    done[done < 0] = NONE
    ready = posted
    rows, made = graph.ready
    if len(rows):
        ready = posted.copy()
        ready[rows] = np.where(level[made] == NONE, NONE, level[made] - 1)
    levels = max(0, int(level.max()))
    return Order(posted, ready, done, levels, graph.complete, False, free, sends, table, matching)
