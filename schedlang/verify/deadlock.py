"""No operations wait for each other in a circle; and how much buffering would be enough."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from schedlang.diagnostics import Diagnostic, Note, error
from schedlang.ir.origin import at_row
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ir.words import standing, step_text
from schedlang.ops import Op
from schedlang.verify import words
from schedlang.verify.sends import depth_words
from schedlang.verify.timing.connections import Matching, connection_keys
from schedlang.verify.timing.flow import Exhausted
from schedlang.verify.timing.graph import Graph, build
from schedlang.verify.timing.order import Order
from schedlang.verify.timing.order import order as make_order
from schedlang.verify.timing.slots import Slots

STARTS = 64
"""From so many places a shortest circle is sought."""

WORK = 2_000_000
"""How many edges the search for a shorter circle may look at, once there is one."""

MANY = 1 << 16
"""Where more moments of operations than that are stuck, one whose step is not posted stands for its lane, too."""

SHOWN = 12
"""A circle of up to so many operations is shown whole."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Row ``row`` waits for row ``cause``."""

    row: int
    cause: int


def check(table: OpTable, matching: Matching, order: Order, pieces: Slots | None = None) -> list[Diagnostic]:
    """SL305 with the shortest circle found. Nothing where all that is stuck waits, in the end, for an operation without
    partner: that is for the matching to report. ``pieces``: the messages of several chunks chunk by chunk, judged where
    whole messages come to their end and the model is that of a transport."""
    depth = order.sends.deadlock_depth
    if order.sends.transport is None:
        pieces = None
    if not order.deadlock_free:
        graph = order.graph if depth == order.sends.depth else build(table, matching, depth)
        circle = shortest_circle(graph)
        return [_finding(table, matching, order, circle, _stuck(graph), pieces)] if circle else []
    if pieces is None or order.completes(0):     # then with any room, in any pieces
        return []
    assert depth is not None    # it is a transport's
    try:
        graph = pieces.graph(depth)
    except Exhausted:
        return [error("SL208", "messages of many chunks are passed on as they arrive, and whether they come to their "
                      f"end chunk by chunk ({depth_words(depth, 'chunk')}) takes too long to say", table.location,
                      help="pass on fewer chunks at a time; --sends buffered=N judges whole messages")]
    if graph.complete:
        return []
    circle = [Wait(int(pieces.row[w.row]), int(pieces.row[w.cause])) for w in shortest_circle(graph)]
    return [_finding(table, matching, order, circle, _stuck(graph), pieces, split=True)]


def least_depth(table: OpTable, matching: Matching, order: Order | None = None,
                pieces: Slots | None = None) -> int | None:
    """The least number of messages a connection must hold so that the execution comes to its end; 0: none (rendezvous
    is enough); None: no number is enough. Exact: what completes with N completes with N + 1. ``pieces``: where messages
    of several chunks may go chunk by chunk; it is then so many pieces, and where ``pieces`` is then ``exhausted``
    perhaps fewer do."""
    order = order or make_order(table, matching)
    if order.completes(0):
        return 0
    if not order.completes(None):
        return None

    def completes(depth: int) -> bool:
        return order.completes(depth) if pieces is None else pieces.completes(depth)

    low = 0
    high = int(matching.message.max()) + 1 if pieces is None else pieces.longest    # with so much room no send waits
    with suppress(Exhausted):
        while high - low > 1:
            middle = min(max(1, 2 * low), (low + high) // 2)    # the least depth is mostly small
            if completes(middle):
                high = middle
            else:
                low = middle
    return high


def shortest_circle(graph: Graph) -> list[Wait]:
    """A shortest circle found among operations that wait for each other; empty where there is none.

    Every lane that is stuck stands at one step. So it is enough to look at what those steps wait for: operations of
    other lanes that are behind *their* present step.
    """
    source, target, edge = _frontier(graph)
    waits: dict[int, list[tuple[int, int]]] = {}
    for a, b, e in zip(target.tolist(), source.tolist(), edge.tolist(), strict=True):
        waits.setdefault(a, []).append((b, e))
    _trim(waits)
    best: list[int] = []
    work = 0
    nodes = sorted(waits)
    for start in _on_circles(waits, nodes[:: max(1, len(nodes) // STARTS)]) if len(nodes) > 4 * STARTS else nodes:
        found, looked = _circle_through(waits, start, len(best))
        work += looked
        best = found or best
        if best and work > WORK:
            break
    return [Wait(int(graph.effect[e]), int(graph.cause[e])) for e in best if graph.effect[e] != graph.cause[e]]


def _blocked(graph: Graph) -> Array:
    """Per lane, the first node that is not reached; the lane's end + 1 where all are."""
    lanes = graph.lanes
    reached = np.concatenate([[0], np.cumsum(graph.level[: lanes.nodes] != NONE)])
    size = lanes.steps + (lanes.steps > 0)
    found: Array = lanes.start + (reached[lanes.start + size] - reached[lanes.start])
    return found


def _stuck(graph: Graph) -> int:
    """How many lanes never come to their end."""
    lanes = graph.lanes
    return int((graph.level[lanes.ends] == NONE).sum())


def _frontier(graph: Graph) -> tuple[Array, Array, Array]:
    """Edges (source, target, number) between what is stuck now; a step not yet posted stands for what its lane is stuck
    at."""
    lanes, blocked = graph.lanes, _blocked(graph)
    stands = np.arange(graph.nodes)
    late = np.flatnonzero(graph.level[: lanes.nodes] == NONE)
    stands[late] = blocked[lanes.lane_of(late)]
    stuck = np.zeros(graph.nodes, bool)
    stuck[stands[late]] = True
    extra = lanes.nodes + np.flatnonzero(graph.level[lanes.nodes: graph.never] == NONE)
    if len(extra) > MANY:
        post = lanes.node[graph.extra[extra - lanes.nodes]]
        late = graph.level[post] == NONE
        stands[extra[late]] = stands[post[late]]
        extra = extra[~late]
    stuck[extra] = True
    edge = np.flatnonzero(stuck[graph.target] & (graph.level[graph.source] == NONE) & (graph.source != graph.never))
    return stands[graph.source[edge]], graph.target[edge], edge


def _trim(waits: dict[int, list[tuple[int, int]]]) -> None:
    """Drop what is on no circle because it waits, in the end, only for what never comes."""
    needed_by: dict[int, list[int]] = {}
    for node, causes in waits.items():
        for cause, _ in causes:
            needed_by.setdefault(cause, []).append(node)
    count = {node: len(causes) for node, causes in waits.items()}
    loose = deque(node for node in needed_by if node not in waits)
    gone = set(loose)
    while loose:
        for node in needed_by.get(loose.popleft(), ()):
            count[node] -= 1
            if not count[node]:
                gone.add(node)
                loose.append(node)
    for node in list(waits):
        kept = [(cause, e) for cause, e in waits[node] if cause not in gone]
        if kept:
            waits[node] = kept
        else:
            del waits[node]


def _on_circles(waits: dict[int, list[tuple[int, int]]], starts: Sequence[int]) -> list[int]:
    """A node on a circle for each start from which a new one is found, at least one in all. Most of what is stuck may
    stand behind a circle, not on one; but each node left by :func:`_trim` waits for another that is left, so following
    one cause after another leads to a circle."""
    found: list[int] = []
    walk_of: dict[int, int] = {}  # the nodes walked over, and on which walk
    for walk, node in enumerate(starts):
        while node not in walk_of:
            walk_of[node] = walk
            node = waits[node][0][0]
        if walk_of[node] == walk:
            found.append(node)
    return found


def _circle_through(waits: dict[int, list[tuple[int, int]]], start: int, bound: int) -> tuple[list[int], int]:
    """The edges of a shortest circle through ``start``, if there is one shorter than ``bound`` (0: of any length), and
    how many edges were looked at."""
    came: dict[int, tuple[int, int]] = {}
    depth = {start: 0}
    queue, looked = deque([start]), 0
    while queue:
        node = queue.popleft()
        if bound and depth[node] + 1 >= bound:
            break
        for cause, edge in waits[node]:
            looked += 1
            if cause == start:
                path = [edge]
                while node != start:
                    node, edge = came[node]
                    path.append(edge)
                return path[::-1], looked
            if cause not in depth:
                depth[cause] = depth[node] + 1
                came[cause] = node, edge
                queue.append(cause)
    return [], looked


def _finding(table: OpTable, matching: Matching, order: Order, circle: Sequence[Wait], stuck: int,
             pieces: Slots | None, *, split: bool = False) -> Diagnostic:
    """``split``: they wait only where messages go chunk by chunk."""
    first = min(range(len(circle)), key=lambda k: (int(table.rank[circle[k].row]), int(table.step[circle[k].row])))
    circle = [*circle[first:], *circle[:first]]
    depth = order.sends.deadlock_depth
    least = least_depth(table, matching, order, pieces)
    notes = [Note(_hop(table, wait, circle[(k + 1) % len(circle)]), table.origin(wait.row)[0])
             for k, wait in enumerate(circle) if k < SHOWN or k == len(circle) - 1]
    if len(circle) > SHOWN + 1:
        notes.insert(SHOWN, Note(f"... and so on, {len(circle) - SHOWN - 1} more"))
    if split:
        notes.append(Note("whole messages would go through; one too large for a slot goes chunk by chunk, and each "
                          "chunk then takes a slot"))
    if depth is not None:
        enough = depth_words(least) if pieces is None else depth_words(least, "chunk")
        if pieces is not None and pieces.exhausted:
            enough += " and perhaps with fewer"
        notes.append(Note("no amount of buffering would help" if least is None else
                          f"it would go through {enough}, {_offered(table, least)}"))
    ranks = sorted({int(table.rank[wait.row]) for wait in circle})
    who = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:8]))}{', ...' if len(ranks) > 8 else ''}"
    what = "an operation waits for itself" if len(circle) == 1 else (
        f"{len(circle)} operations wait for each other in a circle")
    model = depth_words(depth, "chunk" if split else "message")
    row = circle[0].row
    rest = "1 lane (stream of a rank) never comes" if stuck == 1 else f"{stuck} lanes (streams of a rank) never come"
    return at_row(error(
        "SL305",
        f"{what} ({model}), on {who}, beginning with {words.sentence(table, row)}; {rest} to an end",
        notes=notes, help=_apart(table, matching, circle) or _help(table, circle, least),
        circle=[{"row": w.row, "waits_for": w.cause, "rank": int(table.rank[w.row]),
                 "stream": table.streams[int(table.stream[w.row])], "step": int(table.step[w.row])}
                for w in circle[:64]],
        length=len(circle), least_depth=least), table, *(wait.row for wait in circle))


def _offered(table: OpTable, least: int) -> str:
    """Whether so much buffering can be had, to follow how much would do."""
    if table.transport is None:
        return f"but no transport has to offer that (verify --sends buffered={least} judges it for one that does)"
    name, depth = table.transport.name, table.transport.depth
    return f"and {name} offers {depth}" if least <= depth else f"but {name} offers no more than {depth}"


def _hop(table: OpTable, wait: Wait, following: Wait) -> str:
    """One operation of a circle: where it stands, what it waits for, and why that does not come."""
    row, cause = wait.row, wait.cause
    awaited = f"\"{words.operation(table, cause)}\" on {standing(table, cause)}"
    text = f"{words.sentence(table, row)} waits for {awaited}"
    if table.step[cause] != table.step[following.row] or table.stream[cause] != table.stream[following.row]:
        text += f", which comes after {step_text(table, following.row)}"
    return text


def _apart(table: OpTable, matching: Matching, circle: Sequence[Wait]) -> str | None:
    """What could be wrong instead, where ranks of the circle send as many messages without receive on one connection as
    they receive without send on another."""
    alone = np.flatnonzero((matching.partner == NONE) & (table.op <= Op.REDUCE_RECV))
    if not len(alone):
        return None
    sending = table.op[alone] == Op.SEND
    stuck = [int(table.rank[wait.row]) for wait in circle]
    here = np.isin(table.rank[alone], stuck) & np.isin(table.peer[alone], stuck)
    chans = len(table.streams)

    def ends(rows: Array) -> list[tuple[int, int, int]]:
        """Of each connection: its two ranks as one number, its chan, how many of the rows it has."""
        keys, counts = np.unique(connection_keys(table, rows), return_counts=True)
        return list(zip((keys // chans).tolist(), (keys % chans).tolist(), counts.tolist(), strict=True))

    received = {(ranks, count): chan for ranks, chan, count in ends(alone[here & ~sending])}
    for ranks, chan, count in ends(alone[here & sending]):
        other = received.get((ranks, count))
        if other is not None:
            what = f"{count} messages have" if count > 1 else "1 message has"
            a, b = divmod(ranks, table.ranks)
            return (f"first let the two ends meet: from rank {a} to rank {b} {what} no receive on chan "
                    f"{table.streams[chan]}, and as many receives have no send on chan {table.streams[other]}")
    return None


def _help(table: OpTable, circle: Sequence[Wait], least: int | None) -> str:
    rows = [w.row for w in circle]
    if any(table.op[row] in (Op.WAIT, Op.RECORD) for row in rows):
        return "record the event earlier, or wait for it later: a wait must not stand before what leads to its record"
    if any(table.of[row] != NONE for w in circle for row in (w.row, w.cause)):
        return "let one operation of the circle receive and send in two steps, not pass its message on as it arrives"
    if least is not None and any(table.op[row] == Op.SEND for row in rows):
        return "post the send and the receive of a rank in one `step:`, or let every other rank receive first"
    return "let one of them come earlier: the receives and sends of two ranks must be in the same order on both"
