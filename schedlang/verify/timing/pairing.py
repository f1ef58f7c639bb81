"""Connections whose ends several lanes serve: in which order they post there, and whether that order is settled."""

from __future__ import annotations

import numpy as np

from schedlang.diagnostics import Diagnostic, error
from schedlang.ir.origin import at_row, came_from
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op
from schedlang.verify import collapse, words
from schedlang.verify.sends import Sends, depth_words
from schedlang.verify.timing.connections import Connections, Matching, connection_keys, pair
from schedlang.verify.timing.lanes import Lanes, records
from schedlang.verify.timing.order import Order, order
from schedlang.verify.timing.reach import Reach

SHOWN = 16
"""How many ends of connections, of different statements, are described one by one."""


def settle(table: OpTable, lanes: Lanes, guess: Connections, sends: Sends) -> tuple[Connections, list[Diagnostic]]:
    """The messages of all connections in the order of their posts, and SL304 for ends where nothing settles it.

    If in one legal execution each post at an end is ordered after the post before it, by what that execution's pairing
    implies, then every execution has this pairing: so a guess that proves itself in this way is right. Where it does
    not, one execution is played; what it yields proves itself, or is ambiguous.
    """
    first, second, all_posted = _unsettled(table, lanes, guess, sends)
    if all_posted and not len(first):
        return guess, []
    played = Connections.of(table, *_play(table, lanes, guess, sends.depth))
    first, second, _ = _unsettled(table, lanes, played, sends)
    return played, _findings(table, first, second, sends) if len(first) else []


def _unsettled(table: OpTable, lanes: Lanes, ends: Connections, sends: Sends) -> tuple[Array, Array, bool]:
    """Rows that follow each other at an end and whose posts nothing orders, among those that are posted at all; and
    whether all are, at ends that lanes share."""
    matching = Matching(pair(table, ends), (), False, lanes, table, ends)
    found: Order = order(table, matching, Sends(sends.depth, sends.depth))
    pairs = []
    for rows, of in ((ends.sends, ends.of_send), (ends.receives, ends.of_receive)):
        follows = (of[1:] == of[:-1]) & (lanes.lane[rows[1:]] != lanes.lane[rows[:-1]])
        pairs.append((rows[:-1][follows], rows[1:][follows]))
    first, second = (np.concatenate(column) for column in zip(*pairs, strict=True))
    posted = (found.posted[first] != NONE) & (found.posted[second] != NONE)
    first, second = first[posted], second[posted]
    ordered = Reach(table, found).ordered(lanes.node[first], lanes.node[second])
    return first[~ordered], second[~ordered], bool(posted.all())


def _findings(table: OpTable, first: Array, second: Array, sends: Sends) -> list[Diagnostic]:
    """SL304 for the first pair of each end of a connection, one for all ends at which the same two statements send (or
    receive)."""
    keys = connection_keys(table, first) * 2 + (table.op[first] == Op.SEND)
    _, at, counts = np.unique(keys, return_index=True, return_counts=True)
    by = np.argsort(at)
    at, counts = at[by], counts[by]
    groups = []
    for ends in (np.flatnonzero((table.op[first[at]] == Op.SEND) == sending) for sending in (True, False)):
        alike = collapse.by_statement(table, first[at[ends]], second[at[ends]], times=counts[ends])
        groups += [(int(at[ends[index]]), count) for index, count in alike]
    findings = []
    for index, count in collapse.shown(groups, SHOWN):
        a, b = int(first[index]), int(second[index])
        this = "sends" if table.op[a] == Op.SEND else "receives"
        rank, peer = int(table.rank[a]), int(table.peer[a])
        streams = [table.streams[int(table.stream[row])] for row in (a, b)]
        findings.append(at_row(error(
            "SL304",
            f"{this} of rank {rank} {'to' if this == 'sends' else 'from'} rank {peer} on "
            f"{table.streams[int(table.chan[a])]} are posted by streams {streams[0]} and {streams[1]} in no settled "
            f"order ({depth_words(sends.depth)}), so it depends on timing which message is which: "
            f"{words.operation(table, a)}{came_from(table, a)} and "
            f"{words.operation(table, b)}{came_from(table, b)}",
            notes=[collapse.note(table, row) for row in (a, b)],
            help=f"record an event on stream {streams[0]} after the one and wait for it on stream {streams[1]} before "
                 "the other, or give each stream a connection of its own by another `chan`",
            count=count, first=a, second=b, rank=rank, peer=peer),
            table, b, a))
    return findings


def _play(table: OpTable, lanes: Lanes, guess: Connections, depth: int | None) -> tuple[Array, Array]:
    """The sends and the receives in the order in which one legal execution posts them; what is never posted comes last,
    in the order guessed."""
    play = _Play(table, lanes, depth)
    play.run()
    sends, receives = play.posted_sends, play.posted_receives
    seen = np.zeros(len(table), bool)
    seen[sends] = seen[receives] = True
    return (np.concatenate([np.array(sends, np.intp), guess.sends[~seen[guess.sends]]]),
            np.concatenate([np.array(receives, np.intp), guess.receives[~seen[guess.receives]]]))


class _Play:
    """An execution, step by step, that pairs messages as they are posted: the rules of docs/decisions/0001 as they
    stand.

    Plain Python, and used only where lanes share an end of a connection and the guess of their order failed.
    """

    def __init__(self, table: OpTable, lanes: Lanes, depth: int | None) -> None:
        self.depth = depth
        self.steps: dict[int, list[int]] = {}
        for row, node in enumerate(lanes.node.tolist()):
            self.steps.setdefault(node, []).append(row)
        self.at = {lane: int(lanes.start[lane]) for lane in lanes.used.tolist()}
        self.end = {lane: self.at[lane] + int(lanes.steps[lane]) for lane in self.at}
        transfers = np.flatnonzero(table.op <= Op.REDUCE_RECV)
        self.key = dict(zip(transfers.tolist(), connection_keys(table, transfers).tolist(), strict=True))
        self.op, self.of = table.op.tolist(), table.of.tolist()
        self.out: dict[int, list[int]] = {}
        for row in np.flatnonzero(table.of != NONE).tolist():
            self.out.setdefault(self.of[row], []).append(row)
        waits, made = records(table)
        self.record = dict(zip(waits.tolist(), made.tolist(), strict=True))
        self.ends: dict[tuple[int, bool], list[int]] = {}
        self.index: dict[int, int] = {}
        self.posted_sends: list[int] = []
        self.posted_receives: list[int] = []
        self.done: set[int] = set()
        self.available: set[int] = set()
        self.takeable: set[int] = set()

    def run(self) -> None:
        pending = [row for lane in self.at for row in self._post(self.at[lane])]
        moved = True
        while moved:
            moved, waiting = False, []
            for row in pending:
                moved |= self._advance(row)
                if row not in self.done:
                    waiting.append(row)
            pending = waiting
            for lane, end in self.end.items():
                while self.at[lane] < end and self.done.issuperset(self.steps[self.at[lane]]):
                    self.at[lane] += 1
                    pending += self._post(self.at[lane]) if self.at[lane] < end else []
                    moved = True

    def _post(self, node: int) -> list[int]:
        rows = self.steps[node]
        for row in rows:
            if row in self.key:
                sending = self.op[row] == Op.SEND
                end = self.ends.setdefault((self.key[row], sending), [])
                self.index[row] = len(end)
                end.append(row)
                (self.posted_sends if sending else self.posted_receives).append(row)
        return rows

    def _other(self, row: int, sending: bool, back: int = 0) -> int | None:
        """The send (or receive) posted for the message ``back`` before that of ``row``; None where there is none
        yet."""
        end, index = self.ends.get((self.key[row], sending), []), self.index[row] - back
        return end[index] if index < len(end) else None

    def _advance(self, row: int) -> bool:
        """Whether anything new holds of a row that is posted and not done."""
        op = self.op[row]
        if op not in (Op.SEND, Op.RECV, Op.REDUCE_RECV):
            if op != Op.WAIT or self.record[row] in self.done:
                self.done.add(row)
            return row in self.done
        before = len(self.done) + len(self.available) + len(self.takeable)
        if op == Op.SEND:
            self._send(row)
        else:
            self._receive(row)
        return len(self.done) + len(self.available) + len(self.takeable) > before

    def _send(self, row: int) -> None:
        feeding = self.of[row]
        if feeding == NONE or self._other(feeding, True) in self.available:
            self.available.add(row)
        if (feeding == NONE and self._has_room(row)) or feeding in self.done:
            self.done.add(row)

    def _receive(self, row: int) -> None:
        passed_on = self.out.get(row, [])
        if (self.index[row] == 0 or self._other(row, False, 1) in self.takeable) and all(
                self._other(send, False) in self.takeable for send in passed_on):
            self.takeable.add(row)
        came = self._other(row, True) in (self.available if self.depth == 0 else self.done)
        if came and all(map(self._has_room, passed_on)):
            self.done.add(row)

    def _has_room(self, send: int) -> bool:
        """Whether the message of a send can be taken from it."""
        if self.depth == 0:
            return self._other(send, False) in self.takeable
        return self.depth is None or self.index[send] < self.depth or self._other(send, False, self.depth) in self.done
