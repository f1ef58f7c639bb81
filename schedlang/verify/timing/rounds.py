"""How many steps depend on each other at most: the longest chain, steps with a transfer counting one, local ones
nothing."""

from __future__ import annotations

import numpy as np

from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op
from schedlang.verify.timing.connections import Matching
from schedlang.verify.timing.graph import Graph, build
from schedlang.verify.timing.lanes import records
from schedlang.verify.timing.order import Order


def critical_path(table: OpTable, matching: Matching, order: Order) -> int | None:
    """The number of steps with a transfer on the longest chain of steps that depend on each other.

    A step of a lane ends one round after the latest of: the lane's step before it, and the posts of the sends whose
    messages it receives; a step without transfers ends with what it follows. A message that was passed on is there one
    round after the message it came from. Sends are taken not to wait. None where the execution does not come to its
    end.
    """
    if not len(table):
        return 0
    if order.numbered and not len(np.flatnonzero(table.of != NONE)):
        return _by_number(table, matching, order)
    graph = build(table, matching, None) if order.sends.depth is not None else order.graph
    return _by_graph(table, matching, graph) if graph.complete else None


def _by_number(table: OpTable, matching: Matching, order: Order) -> int:
    number, lane, op = order.posted, matching.lanes.lane, table.op
    cause = np.where(op == Op.SEND, NONE, matching.partner)
    waits, made = records(table)
    cause[waits] = made
    transfer = op <= Op.REDUCE_RECV
    rows: Array | None = None
    if (number[1:] < number[:-1]).any():
        rows = np.argsort(number, kind="stable")
        number = number[rows]
    bounds = np.searchsorted(number, np.arange(order.levels + 1))
    rounds = np.zeros(len(matching.lanes.start), np.int32)
    posted = np.zeros(len(table) + 1, np.int32)  # a row each; the last stands for the cause NONE
    for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if start == end:
            continue
        these: slice | Array = slice(start, end) if rows is None else rows[start:end]
        lanes = lane[these]
        before = rounds[lanes]
        posted[these] = before
        np.maximum.at(rounds, lanes, np.maximum(before, posted[cause[these]]) + transfer[these])
    return int(rounds.max())


def _by_graph(table: OpTable, matching: Matching, graph: Graph) -> int:
    weight = np.zeros(graph.nodes, np.int32)
    weight[matching.lanes.node[np.flatnonzero(table.op <= Op.REDUCE_RECV)] + 1] = 1
    weight[matching.lanes.nodes:] = 1
    rounds = np.zeros(graph.nodes, np.int32)
    for targets, sources, starts in graph.sweep():
        rounds[targets] = np.maximum.reduceat(rounds[sources], starts) + weight[targets]
    return int(rounds.max())
