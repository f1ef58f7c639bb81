"""The chain that orders two operations, for ``verify --why A B``."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

import numpy as np

from schedlang.ir.table import NONE, OpTable
from schedlang.ops import Op
from schedlang.verify.sends import DEFAULT, Sends
from schedlang.verify.timing.connections import Matching
from schedlang.verify.timing.graph import Graph, build

Moment = Literal["post", "end"]


@dataclass(frozen=True, slots=True)
class Hop:
    """One link of a chain: row ``after`` comes after row ``before``, because of

    ``lane``: it is in a later step of the same lane; ``message``: it receives what the other sends; ``event``: it waits
    for what the other records; ``fused``: it passes on what the other receives; ``room``: it is a send that needs the
    receive (without buffering its own, else an earlier one); ``head``: it is a receive behind another one of its
    connection.
    """

    kind: str
    before: int
    after: int


def path(table: OpTable, matching: Matching, a: int, b: int, sends: Sends = DEFAULT, *, start: Moment = "end",
         until: Moment = "post") -> list[Hop] | None:
    """The chain with the fewest links between lanes by which row ``b`` comes after row ``a``, or None where nothing
    orders them so.

    By default from the end of the step of ``a`` to the post of the step of ``b``, which is what keeps their accesses
    apart; ``start="post"`` asks for what comes after the post of ``a``, ``until="end"`` for what comes before the end
    of ``b``. The order is that of ``sends.depth``.
    """
    graph = build(table, matching, sends.depth)
    node = matching.lanes.node
    source, target = int(node[a]) + (start == "end"), int(node[b]) + (until == "end")
    if graph.level[target] == NONE or (source == target and node[a] == node[b]):
        return None
    edges = _search(graph, source, target)
    return None if edges is None else _hops(table, matching, graph, edges, a, b)


def _search(graph: Graph, source: int, target: int) -> list[int] | None:
    """The edges, those of lanes left out, of a path from one node to another with the fewest of them."""
    by = np.argsort(graph.source, kind="stable")
    first = np.searchsorted(graph.source[by], np.arange(graph.nodes + 1))
    came: dict[int, tuple[int, int]] = {source: (NONE, NONE)}
    settled: set[int] = set()
    queue = deque([source])
    latest = graph.level[target]
    while queue:
        node = queue.popleft()
        if node in settled:
            continue
        settled.add(node)
        if node == target:
            break
        if graph.lane_edges[node] and node + 1 not in settled and graph.level[node + 1] <= latest:
            came[node + 1] = node, NONE
            queue.appendleft(node + 1)
        for edge in by[first[node]:first[node + 1]].tolist():
            other = int(graph.target[edge])
            if other not in came and graph.level[other] <= latest:
                came[other] = node, edge
                queue.append(other)
    if target not in settled:
        return None
    edges, node = [], target
    while node != source:
        node, edge = came[node]
        if edge != NONE:
            edges.append(edge)
    return edges[::-1]


def _hops(table: OpTable, matching: Matching, graph: Graph, edges: list[int], a: int, b: int) -> list[Hop]:
    node, hops, now = matching.lanes.node, [], a

    def go(row: int) -> int:
        if row != now and node[row] != node[now]:
            hops.append(Hop("lane", now, row))
        elif row != now and table.of[row] == now:
            hops.append(Hop("fused", now, row))
        return row

    for edge in edges:
        cause, effect = int(graph.cause[edge]), int(graph.effect[edge])
        if cause == effect:
            continue
        now = go(cause)
        if table.op[effect] == Op.WAIT:
            kind = "event"
        elif table.op[effect] == Op.SEND:
            kind = "room"
        else:
            kind = "message" if table.op[cause] == Op.SEND else "head"
        hops.append(Hop(kind, cause, effect))
        now = effect
    go(b)
    return hops
