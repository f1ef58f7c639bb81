"""The rows of a table as the statements that write them: lane by lane, a fused receive and send as one.

A step reads before it writes, so of what is posted together only the messages of a connection have an order, and what
is added or received at a rank. Statements of a step stand with their sends first, then copies, then the others: the
same whatever the order of the table's rows, so that steps which do alike look alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise

import numpy as np

from schedlang.diagnostics import SchedError, error
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ir.words import row_text
from schedlang.ops import Op


@dataclass(frozen=True, eq=False)
class Statements:
    """All statements, by lane, then step.

    One entry a statement: ``row``; ``forward``, the row of the fused send that it is, too (NONE: none); ``lane``;
    ``opens``: whether a step begins there. One entry a lane: ``rank``, ``stream``, ``first``, where its statements
    begin (one entry more than lanes). ``connection``, a row each: which of the connections it uses, NONE for none;
    ``sources``, ``targets``: their ends.
    """

    table: OpTable
    row: Array
    forward: Array
    lane: Array
    opens: Array
    rank: Array
    stream: Array
    first: Array
    connection: Array
    sources: Array
    targets: Array


def statements(table: OpTable) -> Statements:
    """The statements of a legal table. Raises SchedError SL808 where their order in a step cannot be written, and
    where something is combined in a collective that has no operator."""
    adds = np.flatnonzero((table.op == Op.REDUCE) | (table.op == Op.REDUCE_RECV))
    if len(adds) and table.operator is None:
        raise cannot(table, int(adds[0]), f"`reduce` combines with the operator of the collective, and "
                     f"{table.collective.name} has none")
    size = len(table)
    streams = max(1, len(table.streams))
    keys, lane = np.unique(table.rank.astype(np.int64) * streams + table.stream, return_inverse=True)
    lane = lane.reshape(size)
    node = lane * np.int64(int(table.step.max(initial=0)) + 1) + table.step
    forward = np.full(size + 1, NONE, np.int64)
    fused = np.flatnonzero(table.of != NONE)
    forward[table.of[fused]] = fused
    place = np.where(table.op == Op.SEND, 0, np.where(table.op == Op.COPY, 1, 2))
    order = np.lexsort((np.arange(size), place, node))
    order = order[table.of[order] == NONE]
    connection, sources, targets = _connections(table)
    order = _settled(table, order, node, forward, connection)
    opens = np.ones(len(order), bool)
    opens[1:] = node[order[1:]] != node[order[:-1]]
    first = np.searchsorted(lane[order], np.arange(len(keys) + 1))
    return Statements(table, order, forward[order], lane[order], opens, keys // streams, keys % streams, first,
                      connection, sources, targets)


def _connections(table: OpTable) -> tuple[Array, Array, Array]:
    connection = np.full(len(table), NONE, np.int64)
    rows = np.flatnonzero(table.peer != NONE)
    sends = table.op[rows] == Op.SEND
    source = np.where(sends, table.rank[rows], table.peer[rows]).astype(np.int64)
    target = np.where(sends, table.peer[rows], table.rank[rows])
    names = max(1, len(table.streams))
    keys, connection[rows] = np.unique((source * table.ranks + target) * names + table.chan[rows], return_inverse=True)
    ends = keys // names
    return connection, ends // table.ranks, ends % table.ranks


def _settled(table: OpTable, order: Array, node: Array, forward: Array, connection: Array) -> Array:
    """The order of statements, changed in steps where it would turn round the messages of a connection."""
    sends = np.flatnonzero(table.op == Op.SEND)
    position = np.zeros(len(table), np.int64)
    position[order] = np.arange(len(order))
    own = np.where(table.of[sends] == NONE, sends, table.of[sends])
    by = np.lexsort((sends, connection[sends], node[sends]))
    sends, own = sends[by], own[by]
    together = (node[sends[1:]] == node[sends[:-1]]) & (connection[sends[1:]] == connection[sends[:-1]])
    wrong = together & (position[own[1:]] < position[own[:-1]])
    if not wrong.any():
        return order
    order = order.copy()
    for n in np.unique(node[sends[1:][wrong]]).tolist():
        places = np.flatnonzero(node[order] == n)
        order[places] = _sorted_step(table, order[places].tolist(), forward, connection)
    return order


def _sorted_step(table: OpTable, rows: list[int], forward: Array, connection: Array) -> list[int]:
    """The statements of one step, such that sends of a connection, and all that arrives or is added, keep their
    order; else as they stand. Raises SchedError SL808."""
    after: dict[int, list[int]] = {row: [] for row in rows}
    before = dict.fromkeys(rows, 0)
    chains: dict[object, list[tuple[int, int]]] = {}
    for row in rows:
        sent = row if table.op[row] == Op.SEND else int(forward[row])
        if sent != NONE:
            chains.setdefault(int(connection[sent]), []).append((sent, row))
        if table.op[row] not in (Op.SEND, Op.COPY):
            chains.setdefault("others", []).append((row, row))
    for chain in chains.values():
        chain.sort()
        for (_, one), (_, other) in pairwise(chain):
            if one != other:
                after[one].append(other)
                before[other] += 1
    rank = {row: i for i, row in enumerate(rows)}
    free = [rank[row] for row in rows if not before[row]]
    heapify(free)
    found: list[int] = []
    while free:
        row = rows[heappop(free)]
        found.append(row)
        for other in after[row]:
            before[other] -= 1
            if not before[other]:
                heappush(free, rank[other])
    if len(found) < len(rows):
        row = next(row for row in rows if before[row])
        raise cannot(table, row, "its step passes messages on in another order than they arrive in, which no order of "
                     "statements says")
    return found


def cannot(table: OpTable, row: int, why: str, help: str | None = None) -> SchedError:
    """What a row says that the language does not."""
    return SchedError(error("SL808", f"cannot be written as source: {row_text(table, row)}: {why}",
                            table.origin(row)[0] or table.location, help=help, row=row))
