"""How many steps depend on each other at most: the longest chain, steps with a transfer counting one, local ones
nothing."""

from __future__ import annotations

import numpy as np

from schedlang.ir.legal.blocks import BLOCK
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op
from schedlang.verify.timing.connections import Matching
from schedlang.verify.timing.graph import Graph, build
from schedlang.verify.timing.lanes import fused_sends, records
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
    if order.numbered and not len(fused_sends(table)):
        longest = _busy(table, matching, order)
        return longest if longest is not None else _by_number(table, matching, order)
    graph = build(table, matching, None) if order.sends.depth is not None else order.graph
    return _by_graph(table, matching, graph) if graph.complete else None


def _busy(table: OpTable, matching: Matching, order: Order) -> int | None:
    """The longest chain where that is seen at once, else None.

    Steps of one level do not depend on each other. So where all rows are transfers and messages stay on their stream, a
    chain is at most as long as its stream has levels, and the longest is at least as long as any lane has steps: it is
    known where some lane is busy in every level of its stream, and no stream has more.
    """
    op, stream, number = table.op, table.stream, order.posted
    levels, lanes = order.levels, matching.lanes
    longest = int(lanes.steps.max())
    if int(op.max()) > Op.REDUCE_RECV or levels * len(table.streams) > len(table) + BLOCK:
        return None
    used = np.zeros((len(table.streams), levels), np.bool_)
    for start in range(0, len(table), BLOCK):
        rows = slice(start, start + BLOCK)
        if not np.array_equal(table.chan[rows], stream[rows]):
            return None
        used[stream[rows], number[rows]] = True
    return longest if longest == int(used.sum(1).max()) else None


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
