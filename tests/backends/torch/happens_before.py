"""What the plans of all ranks leave to chance: whatever the timing, everything that touches a place comes in the order
of the schedule.

Nothing is executed. A graph says what is over before what: a rank does one instruction after another; a message moves,
some time, once both its ends are posted; a wait ends after its message has moved. Memory that is sent from is read, and
memory that is received into is written, when the message moves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations, pairwise

from schedlang.backends.torch.execution import execution
from schedlang.backends.torch.plan import AHEAD, Walk
from schedlang.backends.torch.tasks import STAGING, Instruction, Kind, listed, settled
from schedlang.ir.table import OpTable

_POSTS = (Kind.POST_RECV, Kind.POST_SEND)
_WAITS = (Kind.WAIT_RECV, Kind.WAIT_SEND)


class Graph:
    """Points in time and which come before which; :meth:`before` as bits."""

    def __init__(self) -> None:
        self.follow: list[set[int]] = []

    def point(self, *after: int) -> int:
        self.follow.append(set())
        for other in after:
            self.follow[other].add(len(self.follow) - 1)
        return len(self.follow) - 1

    def before(self) -> list[int]:
        """For each point a number, whose bits say which points come before it. AssertionError: it hangs."""
        left = [0] * len(self.follow)
        for follow in self.follow:
            for other in follow:
                left[other] += 1
        found, known = [point for point, n in enumerate(left) if not n], [0] * len(left)
        for point in found:
            for other in self.follow[point]:
                known[other] |= known[point] | 1 << point
                left[other] -= 1
                if not left[other]:
                    found.append(other)
        assert len(found) == len(left), "ranks wait for each other"
        return known


def require_order(table: OpTable, early: bool = True, ahead: int = AHEAD) -> int:
    """Raises AssertionError where two accesses to a place, of which one writes, may come in the wrong order, a message
    meets another's receive, or ranks wait for each other. Returns how many pairs are in order only because of what
    other ranks do: an access, and a receive into its place that may be posted before it is over."""
    graph, partner = Graph(), execution(table).partner.tolist()
    walks = [Walk(table, rank, execution(table), early=early) for rank in range(table.ranks)]
    orders: list[list[Instruction]] = []
    at: dict[int, int] = {}                 # by id of an instruction: when it is done
    lines: dict[tuple[int, int, int, bool], list[int]] = defaultdict(list)
    for rank, walk in enumerate(walks):
        walk.plan(ahead)
        orders.append(listed(walk.tasks, ahead))
        at |= {id(x): graph.point() for x in orders[-1]}
        for x, y in pairwise(orders[-1]):
            graph.follow[at[id(x)]].add(at[id(y)])
        for x in orders[-1]:
            if x.kind in _POSTS:
                sends = x.kind == Kind.POST_SEND
                lines[rank if sends else x.peer, x.peer if sends else rank, x.tag, sends].append(x.row)
    posted = {x.row: at[id(x)] for order in orders for x in order if x.kind in _POSTS}
    moves: dict[int, int] = {}              # by row: when its message moves
    for (source, target, tag, sends), rows in lines.items():
        others = lines.get((source, target, tag, not sends), [])
        assert [partner[row] for row in rows] == others, "messages meet other receives"
        if sends:
            for row, end in zip(rows, others, strict=True):
                moves[row] = moves[end] = graph.point(posted[row], posted[end])
    for order in orders:
        for x in order:
            if x.kind in _WAITS:
                graph.follow[moves[x.row]].add(at[id(x)])
    before, pairs = graph.before(), 0
    for walk, order in zip(walks, orders, strict=True):
        when = {id(x): moves[x.row] if x.kind in _POSTS else at[id(x)] for x in order}
        for one, other in _conflicts(walk.tasks.instructions):
            assert before[when[id(other)]] >> when[id(one)] & 1, f"{other} may come before {one}"
            pairs += other.kind == Kind.POST_RECV and not before[at[id(other)]] >> when[id(one)] & 1
        moved, _ = settled(order, walk.tasks.slots)         # now slots are shared by what comes one after another
        when |= {id(x): when[id(y)] for x, y in zip(moved, order, strict=True)}
        for one, other in _conflicts(moved, STAGING):
            assert before[when[id(other)]] >> when[id(one)] & 1, f"{other} may come before {one}"
    return pairs


def _conflicts(instructions: list[Instruction],
               buffer: int | None = None) -> Iterator[tuple[Instruction, Instruction]]:
    """Pairs that touch one cell (of a buffer, or of any), of which one writes there, in order."""
    touch: dict[tuple[int, int], list[tuple[Instruction, bool]]] = defaultdict(list)
    for x in instructions:
        if x.kind not in _WAITS:
            for place, writes in ((x.source, False), (x.operand, False), (x.target, True)):
                for cell in place.cells() if place is not None else ():
                    touch[cell].append((x, writes))
    for cell, known in touch.items():
        if buffer not in (None, cell[0]):
            continue
        for (one, writes), (other, also) in combinations(known, 2):
            if (writes or also) and one is not other:
                yield one, other
