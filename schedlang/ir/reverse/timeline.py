"""One legal execution of a table, as times. For transforms of tables; the verifier judges all executions on its own.

Messages are buffered without limit, which is the model of values: a table that cannot run to its end so, never can.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op


@dataclass(frozen=True)
class Timeline:
    """``partner``: the row at the other end of a transfer, NONE for other rows (int32).

    ``begin``, ``end``: when a row's step is posted and when the row is done (int32, begin <= end). In each moment all
    reads of rows that begin come first, then all writes of rows that end. ``node``: a number for the (lane, step) of
    each row (int32): lane by lane, within one step by step.
    """

    partner: Array
    begin: Array
    end: Array
    node: Array


class CannotRun(Exception):
    """The table has no complete execution: ``row`` is one that is left over, and the text says why."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row = row


def timeline(table: OpTable) -> Timeline:
    """A legal execution of a legal table. Raises CannotRun where there is none."""
    node = nodes(table)[0]
    partner = _adjacent(table)
    if partner is not None and _numbers_prove(table, node, partner):
        assert table.number is not None
        return Timeline(partner, table.number, table.number, node)
    partner = _first_in_first_out(table)
    begin, end = _longest_paths(table, node, partner)
    return Timeline(partner, begin, end, node)


def nodes(table: OpTable) -> tuple[Array, Array, Array]:
    """Steps numbered lane by lane: the number of each row's step, and for each lane its first number and its length.

    A lane's place in the latter two is ``rank * len(streams) + stream``.
    """
    lane = table.rank * np.int32(len(table.streams)) + table.stream
    length = np.zeros(table.ranks * len(table.streams), np.int32)
    np.maximum.at(length, lane, table.step + np.int32(1))
    first = (np.cumsum(length) - length).astype(np.int32)
    return first[lane] + table.step, first, length


def _adjacent(table: OpTable) -> Array | None:
    """The partners where every send stands right before the receive that takes it; None where not."""
    sends = np.flatnonzero(table.op == Op.SEND)
    receives = np.flatnonzero((table.op == Op.RECV) | (table.op == Op.REDUCE_RECV))
    if len(sends) != len(receives) or (sends + 1 != receives).any():
        return None
    for one, other in (("rank", "peer"), ("peer", "rank"), ("chan", "chan"), ("count", "count")):
        if (getattr(table, one)[sends] != getattr(table, other)[receives]).any():
            return None
    partner = np.full(len(table), NONE, np.int32)
    partner[sends], partner[receives] = receives, sends
    return partner


def _numbers_prove(table: OpTable, node: Array, partner: Array) -> bool:
    """Whether running the source steps by their numbers, all reads of one before all its writes, is a legal execution.

    Then first-in first-out pairs adjacent rows, too: at both ends messages come by number and then by row.
    """
    number = table.number
    if number is None or not len(table):
        return number is not None
    paired = np.flatnonzero(partner != NONE)
    if (number[paired] != number[partner[paired]]).any():
        return False
    by_node = np.empty(int(node.max()) + 1, np.int32)
    by_node[node] = number
    first = np.zeros(len(by_node), bool)
    first[node[table.step == 0]] = True
    if (by_node[node] != number).any() or ((by_node[1:] <= by_node[:-1]) & ~first[1:]).any():
        return False
    waits, records = wait_pairs(table)
    return bool((number[waits] > number[records]).all())


def wait_pairs(table: OpTable) -> tuple[Array, Array]:
    """All waits and, for each, the row that records what it waits for."""
    waits, records = np.flatnonzero(table.op == Op.WAIT), np.flatnonzero(table.op == Op.RECORD)
    if not len(waits):
        return waits, waits
    size = np.int64(len(table.events))
    keys = table.rank[records] * size + table.event[records]
    order = np.argsort(keys, kind="stable")
    found = np.searchsorted(keys[order], table.rank[waits] * size + table.event[waits])
    return waits, records[order[found]]


def _first_in_first_out(table: OpTable) -> Array:
    """Partners by connection. At an end that several lanes serve, messages count in source order (else in row
    order)."""
    ends = []
    for kinds, source, target in (((Op.SEND,), table.rank, table.peer),
                                  ((Op.RECV, Op.REDUCE_RECV), table.peer, table.rank)):
        rows = np.flatnonzero(np.isin(table.op, kinds))
        connection = (source[rows] * np.int64(table.ranks) + target[rows]) * len(table.streams) + table.chan[rows]
        ends.append((rows[np.lexsort((rows, _turn(table, rows, connection), connection))], np.sort(connection)))
    (sends, ours), (receives, theirs) = ends
    if len(ours) != len(theirs) or (ours != theirs).any():
        more = np.setdiff1d(ours, theirs) if len(ours) >= len(theirs) else np.setdiff1d(theirs, ours)
        lone, keys = (sends, ours) if len(ours) >= len(theirs) else (receives, theirs)
        at = int(np.searchsorted(keys, more[0])) if len(more) else len(lone) - 1
        raise CannotRun(int(lone[at]), "sends and receives do not match")
    differ = table.count[sends] != table.count[receives]
    if differ.any():
        raise CannotRun(int(sends[np.argmax(differ)]), "a send and its receive differ in size")
    partner = np.full(len(table), NONE, np.int32)
    partner[sends], partner[receives] = receives, sends
    return partner


def _turn(table: OpTable, rows: Array, connection: Array) -> Array:
    """What orders the rows of one end of a connection before their row number does."""
    if table.number is not None:
        return table.number[rows]
    order = np.lexsort((table.stream[rows], connection))
    ends, lanes = connection[order], table.stream[rows[order]]
    several = np.isin(connection, ends[1:][(ends[1:] == ends[:-1]) & (lanes[1:] != lanes[:-1])])
    return np.where(several, 0, table.step[rows])


def _longest_paths(table: OpTable, node: Array, partner: Array) -> tuple[Array, Array]:
    """``begin`` and ``end`` of the rows, by longest paths; plain Python, for tables whose numbering proves nothing.

    Vertices: the post of each step, its completion, and the moment each fused send's message exists.
    """
    steps = int(node.max()) + 1 if len(table) else 0
    fused = np.flatnonzero(table.of != NONE)
    message = node.copy()  # of a send: the vertex from which on its message exists
    message[fused] = 2 * steps + np.arange(len(fused))
    receives = np.flatnonzero((table.op == Op.RECV) | (table.op == Op.REDUCE_RECV))
    waits, records = wait_pairs(table)
    every = np.arange(steps)
    later = np.unique(node[table.step > 0])
    edges = [(every, every + steps, 0), (later - 1 + steps, later, 1),
             (message[partner[receives]], node[receives] + steps, 0), (node[records] + steps, node[waits] + steps, 0),
             (node[fused], message[fused], 0), (message[partner[table.of[fused]]], message[fused], 0)]
    source = np.concatenate([e[0] for e in edges])
    target = np.concatenate([e[1] for e in edges])
    length = np.concatenate([np.full(len(e[0]), e[2]) for e in edges])
    vertices = 2 * steps + len(fused)
    order = np.argsort(source, kind="stable")
    starts = np.searchsorted(source[order], np.arange(vertices + 1)).tolist()
    targets, lengths = target[order].tolist(), length[order].tolist()
    open_edges = np.bincount(target, minlength=vertices).tolist()
    time = [0] * vertices
    ready = deque(v for v in range(vertices) if not open_edges[v])
    done = 0
    while ready:
        v = ready.popleft()
        done += 1
        for e in range(starts[v], starts[v + 1]):
            w = targets[e]
            time[w] = max(time[w], time[v] + lengths[e])
            open_edges[w] -= 1
            if not open_edges[w]:
                ready.append(w)
    if done < vertices:
        stuck = next(v for v in range(vertices) if open_edges[v])
        raise CannotRun(int(np.argmax(node == stuck % steps)), "operations wait for each other in a circle")
    times = np.array(time, np.int32)
    return times[node], times[node + steps]
