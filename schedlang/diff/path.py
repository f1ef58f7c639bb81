"""The critical path of a table: the longest chain of steps that depend on each other, as operations and as lines."""

from __future__ import annotations

import numpy as np

from schedlang.diff.report import Stretch
from schedlang.ir.table import NONE, OpTable
from schedlang.ops import Op
from schedlang.verify.timing.connections import Matching
from schedlang.verify.timing.graph import build


def chain(table: OpTable, matching: Matching) -> list[int]:
    """The rows, from the first to the last, of one longest chain of operations that depend on each other: as many as
    there are rounds (see :func:`schedlang.verify.timing.rounds.critical_path`). Where several chains are equally long,
    messages are followed rather than steps of a stream. Empty where the execution does not come to its end."""
    graph = build(table, matching, None)
    if not len(table) or not graph.complete:
        return []
    node, nodes = matching.lanes.node, matching.lanes.nodes
    transfers = np.flatnonzero(table.op <= Op.REDUCE_RECV)[::-1]
    moves = np.full(graph.nodes, NONE, np.int64)        # a row for each node that counts a round
    moves[node[transfers] + 1] = transfers
    moves[nodes : nodes + len(graph.extra)] = graph.extra
    weight = (moves != NONE).astype(np.int32)
    weight[graph.never] = 1
    rounds = np.zeros(graph.nodes, np.int32)
    for targets, sources, starts in graph.sweep():
        rounds[targets] = np.maximum.reduceat(rounds[sources], starts) + weight[targets]
    by = np.argsort(graph.target, kind="stable")
    first = np.searchsorted(graph.target[by], np.arange(graph.nodes + 1))
    rounds[graph.never] = 0
    found, at = [], int(np.argmax(rounds))
    while rounds[at] > 0:
        before, row = int(rounds[at] - weight[at]), int(moves[at])
        came = NONE
        for edge in by[first[at] : first[at + 1]].tolist():
            source = int(graph.source[edge])
            if rounds[source] == before and source != graph.never:
                came = source
                row = int(graph.effect[edge]) if weight[at] and at < nodes else row
                break
        if weight[at]:
            found.append(row)
        if came == NONE:
            if at == 0 or at >= nodes or not graph.lane_edges[at - 1]:
                break
            came = at - 1
        at = came
    return found[::-1]


def stretches(table: OpTable, rows: list[int]) -> list[Stretch]:
    """A chain by the statements that its operations come from, in order."""
    found: list[Stretch] = []
    key: object = None
    for row in rows:
        at = table.origin(row)[0]
        here = None if at is None else (at.file, at.line, at.column)
        if found and here == key:
            last = found[-1]
            found[-1] = Stretch(last.location, last.times + 1, last.first, row)
        else:
            found.append(Stretch(at, 1, row, row))
        key = here
    return found
