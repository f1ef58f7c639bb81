"""Connections (source, destination, chan), their messages in order, and the pairing that follows from that order."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from schedlang.diagnostics import Diagnostic
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op
from schedlang.verify.timing.lanes import Lanes


@dataclass(frozen=True)
class Connections:
    """The two ends of every connection (source, destination, chan), in the order of their messages.

    ``sends``, ``receives``: rows, sorted by connection and message. ``of_send``, ``of_receive``: the connection of each
    of those. ``first_send``, ``first_receive``: where the rows of connection c start, one entry more than there are
    connections.
    """

    sends: Array
    receives: Array
    of_send: Array
    of_receive: Array
    first_send: Array
    first_receive: Array

    @classmethod
    def of(cls, table: OpTable, sends: Array, receives: Array) -> Connections:
        """From the rows of all sends and receives, each in the order of the messages of its connection."""
        keys_s = connection_keys(table, sends)
        keys_r = connection_keys(table, receives)
        keys = np.unique(np.concatenate([keys_s, keys_r]))
        of_s, of_r = np.searchsorted(keys, keys_s), np.searchsorted(keys, keys_r)
        by_s, by_r = np.argsort(of_s, kind="stable"), np.argsort(of_r, kind="stable")
        of_s, of_r = of_s[by_s], of_r[by_r]
        bounds = np.arange(len(keys) + 1)
        first_s, first_r = np.searchsorted(of_s, bounds), np.searchsorted(of_r, bounds)
        return cls(sends[by_s], receives[by_r], of_s, of_r, first_s, first_r)

    @property
    def send_index(self) -> Array:
        """Which message of its connection each of ``sends`` is."""
        return np.arange(len(self.sends)) - self.first_send[self.of_send]

    @property
    def receive_index(self) -> Array:
        """Which message of its connection each of ``receives`` is."""
        return np.arange(len(self.receives)) - self.first_receive[self.of_receive]

    def with_end(self, rows: Array) -> Array:
        """The connections that one of the given rows is an end of (bool, a connection each)."""
        given = np.zeros(1 + max(int(self.sends.max(initial=0)), int(self.receives.max(initial=0))), bool)
        given[rows] = True
        found = np.zeros(len(self.first_send) - 1, bool)
        found[self.of_send[given[self.sends]]] = found[self.of_receive[given[self.receives]]] = True
        return found

    def receive_before(self, depth: int) -> tuple[Array, Array]:
        """For buffering of ``depth``: the sends that wait for an earlier receive, and that receive, ``depth`` messages
        before in the connection (NONE where the connection has too few receives)."""
        index = self.send_index
        late = index >= depth
        connection = self.of_send[late]
        at = self.first_receive[connection] + index[late] - depth
        there = at < self.first_receive[connection + 1]
        if not len(self.receives):
            return self.sends[late], np.full(len(at), NONE)
        return self.sends[late], np.where(there, self.receives[np.where(there, at, 0)], NONE)


@dataclass(frozen=True)
class Matching:
    """The pairing of a table's transfers.

    ``partner`` (int32, a row each): the receive of a send, the send of a receive; NONE where there is none and for rows
    that are no transfers. Also pairs that differ in size are partners. ``diagnostics``: SL301, SL302, SL303, SL304.
    ``numbered``: `table.number` was checked and proves the pairing: it is one number in a step of a lane, rises along
    every lane, and is equal at both ends of every pair; nothing is left without partner. ``lanes``: those of the table.
    """

    partner: Array
    diagnostics: tuple[Diagnostic, ...]
    numbered: bool
    lanes: Lanes = field(repr=False)
    table: OpTable = field(repr=False)
    ends: Connections | None = field(default=None, repr=False)

    @cached_property
    def connections(self) -> Connections:
        """All connections with their messages in order."""
        return self.ends or connections(self.table, self.lanes)

    @cached_property
    def message(self) -> Array:
        """Which message of its connection a transfer is, counted from 0 at its own end (int32, a row each); NONE for
        other rows."""
        found = np.full(len(self.table), NONE, np.int32)
        found[self.connections.sends] = self.connections.send_index
        found[self.connections.receives] = self.connections.receive_index
        return found


def pair(table: OpTable, ends: Connections) -> Array:
    """The partners (int32, a row each) that the order of messages at the two ends gives."""
    partner = np.full(len(table), NONE, np.int32)
    if np.array_equal(ends.of_send, ends.of_receive):
        partner[ends.sends], partner[ends.receives] = ends.receives, ends.sends
    elif len(ends.receives):
        index = ends.send_index
        at = ends.first_receive[ends.of_send] + index
        there = at < ends.first_receive[ends.of_send + 1]
        taken = ends.receives[at[there]]
        partner[ends.sends[there]], partner[taken] = taken, ends.sends[there]
    return partner


def connection_keys(table: OpTable, rows: Array) -> Array:
    """One int64 for the connection of each transfer row: equal where source, destination and chan are equal."""
    sending = table.op[rows] == Op.SEND
    rank, peer = table.rank[rows].astype(np.int64), table.peer[rows]
    source, destination = np.where(sending, rank, peer), np.where(sending, peer, rank)
    return (source * table.ranks + destination) * max(1, len(table.streams)) + table.chan[rows]


def connections(table: OpTable, lanes: Lanes) -> Connections:
    """The connections with the messages of each end in the order of its lane's steps, within a step in row order.

    Where several lanes serve one end, theirs are put in the order of `table.number`, else of the rows, as far as each
    lane's own order allows: a guess, for ``pairing.settle`` to judge.
    """
    sends = np.flatnonzero(table.op == Op.SEND)
    receives = np.flatnonzero((table.op == Op.RECV) | (table.op == Op.REDUCE_RECV))
    shared = not np.array_equal(table.chan[sends], table.stream[sends]) or not np.array_equal(
        table.chan[receives], table.stream[receives])
    return Connections.of(table, *(_in_lane_order(table, lanes, rows, shared) for rows in (sends, receives)))


def _in_lane_order(table: OpTable, lanes: Lanes, rows: Array, shared: bool) -> Array:
    node = lanes.node[rows]
    by_lane = rows[np.argsort(node, kind="stable")] if (node[1:] < node[:-1]).any() else rows
    if not shared:
        return by_lane
    # Each lane keeps the places that its rows have in the guessed order, and fills them in the order of its steps.
    guess = rows if table.number is None else rows[np.argsort(table.number[rows], kind="stable")]
    places = np.argsort(lanes.lane[guess], kind="stable")
    found = np.empty_like(rows)
    found[places] = by_lane
    return found
