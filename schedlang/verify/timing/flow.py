"""Chunks of messages counted, not listed: how far each connection comes where it has room for so many chunks.

For tables in which what is passed on has too many chunks for a row each. Such chunks go in order: at an end of a
connection (one lane, and one transfer in a step) a chunk is never done before the one that stands before it, so two
numbers say it all of a connection, how many are sent and how many are received. An operation at work has one before it
and one behind it on its connections. So those at work are chains (or rings), and how far all of a chain can go follows
from the shortest of the ways that limits take along it: no chunk is looked at by itself.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op
from schedlang.verify.timing.connections import Matching
from schedlang.verify.timing.graph import Graph
from schedlang.verify.timing.lanes import fused_sends, records

WORK = 5_000_000
"""How many operations may be looked at in all runs together, each time that one is."""

ROWS = 1 << 21
"""Tables of more rows are not looked at."""

_LOCAL, _RECORD, _WAIT, _SEND, _RECEIVE, _WORK = range(6)
"""Kinds of rows: done at once, or, for a fused send, with its receive; ...; a transfer without and with a fused end on
its connection."""


class Exhausted(Exception):
    """More would have to be looked at than WORK allows."""


def in_order(matching: Matching, passing: Array) -> bool:
    """Whether the transfers at each end of the connections ``passing`` are of one lane, and of different steps."""
    ends, lanes = matching.connections, matching.lanes
    for rows, of in ((ends.sends, ends.of_send), (ends.receives, ends.of_receive)):
        follows = (of[1:] == of[:-1]) & passing[of[1:]]
        lane, node = lanes.lane[rows], lanes.node[rows]
        if (follows & ((lane[1:] != lane[:-1]) | (node[1:] == node[:-1]))).any():
            return False
    return True


@dataclass(frozen=True)
class _Program:
    """A table as lists. ``rows``: by step, those of node v from ``first[v]`` on. ``kind``, ``lane``: a row each.
    ``connection``, ``stop``: of a transfer, the latter the number of the chunk behind its last one, where the chunks of
    all connections are numbered through. ``base``: the first chunk of each connection. ``ways``: where what is at work
    takes from and where it sends to, each as a connection (NONE: none) and the chunk to stop at. ``made``: the record
    of each wait. ``begins``, ``ends``: the first and the last node of each lane."""

    rows: list[int]
    first: list[int]
    kind: list[int]
    lane: list[int]
    connection: list[int]
    stop: list[int]
    base: list[int]
    ways: dict[int, tuple[int, int, int, int]]
    made: dict[int, int]
    begins: list[int]
    ends: list[int]

    @classmethod
    def of(cls, table: OpTable, matching: Matching, stops: Array, passing: Array) -> _Program:
        """``stops``: of each message, in the order of the connections. ``passing``: those with a fused end."""
        ends, lanes = matching.connections, matching.lanes
        kind = np.full(len(table), _LOCAL, np.int8)
        kind[table.op == Op.RECORD], kind[table.op == Op.WAIT] = _RECORD, _WAIT
        connection, stop = np.full(len(table), NONE, np.int64), np.zeros(len(table), np.int64)
        for rows, of, plain in ((ends.sends, ends.of_send, _SEND), (ends.receives, ends.of_receive, _RECEIVE)):
            connection[rows], stop[rows], kind[rows] = of, stops, np.where(passing[of], _WORK, plain)
        fused = fused_sends(table)
        kind[fused] = _LOCAL
        ways = {}
        for row in np.flatnonzero(kind == _WORK).tolist():
            way = int(connection[row]), int(stop[row])
            ways[row] = (NONE, 0, *way) if table.op[row] == Op.SEND else (*way, NONE, 0)
        for send, row in zip(fused.tolist(), table.of[fused].tolist(), strict=True):
            ways[row] = (*ways[row][:2], int(connection[send]), int(stop[send]))
        by = np.argsort(lanes.node, kind="stable")
        waits, made = records(table)
        return cls(by.tolist(), np.searchsorted(lanes.node[by], np.arange(lanes.nodes + 1)).tolist(), kind.tolist(),
                   lanes.lane.tolist(), connection.tolist(), stop.tolist(),
                   np.concatenate([[0], stops])[ends.first_send[:-1]].tolist(), ways,
                   dict(zip(waits.tolist(), made.tolist(), strict=True)),
                   lanes.start.tolist(), (lanes.start + lanes.steps).tolist())


class Flow:
    """Runs of a table that is matched without a finding. ``chunks``: of each message, in the order of the connections;
    ``passing``: the connections with a fused end. Where these are not in order (:func:`in_order`) there are no runs.
    ``exhausted``: more was asked than may be looked at."""

    def __init__(self, table: OpTable, matching: Matching, chunks: Array, passing: Array) -> None:
        self._matching, self._passing, self.exhausted = matching, passing, False
        self._stops = np.cumsum(chunks, dtype=np.int64)
        self._left = WORK if in_order(matching, passing) and len(table) <= ROWS else 0

    @cached_property
    def _program(self) -> _Program:
        return _Program.of(self._matching.table, self._matching, self._stops, self._passing)

    def completes(self, depth: int) -> bool:
        """Whether all comes to its end where connections hold ``depth`` chunks. Raises Exhausted."""
        return self._run(depth).complete

    def graph(self, depth: int) -> Graph:
        """What is stuck, and what it waits for; an operation at work on a connection with a fused end is a node of its
        own. What is reached has level 0. Raises Exhausted."""
        run, lanes = self._run(depth), self._matching.lanes
        work = sorted({row for row in (*run.sender, *run.taker) if row != NONE})
        nodes = {row: lanes.nodes + k for k, row in enumerate(work)}
        columns = np.array(list(_waits(self._matching, run, self._stops, nodes)), np.int32).reshape(-1, 4).T
        never = lanes.nodes + len(work)
        none = np.zeros(0, np.int64)
        graph = Graph(lanes, np.array(work, np.int64), np.where(columns[0] == NONE, never, columns[0]), columns[1],
                      columns[2], columns[3], (none, none))
        node = np.arange(lanes.nodes)
        level = np.full(graph.nodes, NONE, np.int32)
        level[node[node <= np.array(run.at)[lanes.lane_of(node)]]] = 0
        graph.__dict__["level"] = level
        return graph

    def _run(self, depth: int) -> _Run:
        if self._left:
            run = _Run(self._program, depth, self._left)
            with suppress(Exhausted):
                run.play()
                self._left = run.limit
                return run
        self._left, self.exhausted = 0, True
        raise Exhausted


class _Run:
    """An execution, as far as it goes, for ``depth`` chunks of room. ``limit``: how much more work may be done.

    ``at``: the node of each lane's present step, which is posted; its end where all is done. ``open``: how many
    operations of that step are not done. ``sent``, ``taken``: the first chunk of each connection that is not; without
    fused ends that is not posted. ``sender``, ``taker``: what is at work at the ends of each connection with a fused
    one; ``blocked``, ``awaiting``: the sends and receives that wait on others. ``waiting``: by record, waits for it.
    """

    def __init__(self, program: _Program, depth: int, limit: int) -> None:
        self.program, self.depth, self.limit = program, depth, limit
        self.at, self.open = list(program.begins), [0] * len(program.begins)
        self.sent, self.taken = list(program.base), list(program.base)
        self.sender, self.taker = [NONE] * len(program.base), [NONE] * len(program.base)
        self.blocked: dict[int, deque[int]] = defaultdict(deque)
        self.awaiting: dict[int, deque[int]] = defaultdict(deque)
        self.waiting: dict[int, list[int]] = defaultdict(list)
        self.recorded: set[int] = set()
        self.ready = [lane for lane, end in enumerate(program.ends) if self.at[lane] < end]
        self.new: set[int] = set()

    @property
    def complete(self) -> bool:
        """Whether all lanes have come to their end."""
        return self.at == self.program.ends

    def play(self) -> None:
        """Goes on until nothing can."""
        while self.ready:
            for lane in self.ready:     # more come while these are posted
                self._post(lane)
            self.ready = []
            while self.new:
                self._settle(self.new.pop())

    def _spend(self, work: int) -> None:
        self.limit -= work
        if self.limit <= 0:
            raise Exhausted

    def _post(self, lane: int) -> None:
        """Posts the present step of a lane, and those after it as long as they are done at once."""
        p, node = self.program, self.at[lane]
        while node < p.ends[lane]:
            begin, end = p.first[node], p.first[node + 1]
            self._spend(end - begin)
            self.open[lane] = 1     # while not all of it is posted
            for row in p.rows[begin:end]:
                self.open[lane] += self._waits(row, p.kind[row])
            self.open[lane] -= 1
            if self.open[lane]:
                return
            node += 1
            self.at[lane] = node

    def _done(self, row: int) -> None:
        lane = self.program.lane[row]
        self.open[lane] -= 1
        if not self.open[lane]:
            self.at[lane] += 1
            self.ready.append(lane)

    def _waits(self, row: int, kind: int) -> bool:
        """Posts a row, and says whether it is not done at once."""
        p = self.program
        if kind == _WORK:
            into, _, out, _ = p.ways[row]
            if into != NONE:
                self.taker[into] = row
            if out != NONE:
                self.sender[out] = row
            self.new.add(row)
            return True
        if kind == _SEND:
            c = p.connection[row]
            self.sent[c] = p.stop[row]
            self._wake(self.awaiting[c], self.sent[c])
            if p.stop[row] > self.taken[c] + self.depth:
                self.blocked[c].append(row)
                return True
        elif kind == _RECEIVE:
            c = p.connection[row]
            self.taken[c] = p.stop[row]
            self._wake(self.blocked[c], self.taken[c] + self.depth)
            if p.stop[row] > self.sent[c]:
                self.awaiting[c].append(row)
                return True
        elif kind == _RECORD:
            self.recorded.add(row)
            for other in self.waiting.pop(row, ()):
                self._done(other)
        elif kind == _WAIT and p.made[row] not in self.recorded:
            self.waiting[p.made[row]].append(row)
            return True
        return False

    def _wake(self, queue: deque[int], up_to: int) -> None:
        while queue and self.program.stop[queue[0]] <= up_to:
            self._done(queue.popleft())

    # What is at work on connections with a fused end

    def _settle(self, row: int) -> None:
        """Moves an operation that is new as far as it can go, and with it all of its chain that this lets go on."""
        into, _, out, _ = self.program.ways[row]
        if (into != NONE and self.sent[into] == self.taken[into] and self._before(row) == NONE) or (
                out != NONE and self.sent[out] == self.taken[out] + self.depth and self._after(row) == NONE):
            return
        chain = deque([row])
        while (after := self._after(chain[-1])) not in (NONE, row):
            chain.append(after)
        while after == NONE and (before := self._before(chain[0])) not in (NONE, chain[-1]):
            chain.appendleft(before)
        self._spend(len(chain))
        self.new.difference_update(chain)
        ways = [self.program.ways[row] for row in chain]
        for row, (into, stop, out, end), move in zip(chain, ways, self._moves(chain, ways), strict=True):
            if into != NONE:
                self.taken[into] += move
            if out != NONE:
                self.sent[out] += move
            if self.taken[into] == stop if into != NONE else self.sent[out] == end:
                if into != NONE:
                    self.taker[into] = NONE
                if out != NONE:
                    self.sender[out] = NONE
                self._done(row)

    def _before(self, row: int) -> int:
        """What is at work at the other end of the connection that an operation takes from, if it is new or waits for
        room there; NONE if not."""
        into = self.program.ways[row][0]
        other = NONE if into == NONE else self.sender[into]
        return other if other in self.new or self.sent[into] == self.taken[into] + self.depth else NONE

    def _after(self, row: int) -> int:
        """What is at work at the other end of the connection that an operation sends to, if it is new or waits for
        chunks there; NONE if not."""
        out = self.program.ways[row][2]
        other = NONE if out == NONE else self.taker[out]
        return other if other in self.new or self.sent[out] == self.taken[out] else NONE

    def _moves(self, chain: Sequence[int], ways: Sequence[tuple[int, int, int, int]]) -> list[int]:
        """How many chunks each operation of a chain moves. One goes no further than to its end, than those that come to
        it and than the room behind it; all of these are ways along the chain. Where one is a ring, and there is nothing
        on it, or no room, nothing moves."""
        moves = [stop - self.taken[into] if into != NONE else end - self.sent[out] for into, stop, out, end in ways]
        under_way = [self.sent[out] - self.taken[out] for _, _, out, _ in ways]     # behind each
        first, last = ways[0][0], ways[-1][2]
        if first != NONE and first == last:
            if not any(under_way) or all(held == self.depth for held in under_way):
                return [0] * len(chain)
            turns = 2
        else:
            turns = 1
            if first != NONE:
                moves[0] = min(moves[0], self.sent[first] - self.taken[first])
            if last != NONE:
                moves[-1] = min(moves[-1], self.taken[last] + self.depth - self.sent[last])
        edges = range(1 - turns, len(chain) - 1)     # of a ring also from the last to the first
        for _ in range(turns):
            for k in edges:
                moves[k + 1] = min(moves[k + 1], moves[k] + under_way[k])
        for _ in range(turns):
            for k in reversed(edges):
                moves[k] = min(moves[k], moves[k + 1] + self.depth - under_way[k])
        return moves


def _waits(matching: Matching, run: _Run, stops: Array, nodes: dict[int, int]) -> Iterator[tuple[int, int, int, int]]:
    """What waits for what where a run is stuck, as the columns of a graph: source (NONE: what never happens), target,
    cause, effect. ``stops``: as ``_Program.of`` takes them; ``nodes``: of what is at work."""
    node, ends, of = matching.lanes.node.tolist(), matching.connections, matching.table.of

    def moment(row: int) -> int:
        """When the next chunk of a transfer on a connection with a fused end may come."""
        return nodes.get(row if of[row] == NONE else int(of[row]), node[row])

    for row, own in nodes.items():
        yield own, node[row] + 1, row, row
        into, _, out, _ = run.program.ways[row]
        if into != NONE and run.sent[into] == run.taken[into]:
            send = int(matching.partner[row])
            yield moment(send), own, send, row
        if out != NONE and run.sent[out] == run.taken[out] + run.depth:
            send, receive = (int(rows[np.searchsorted(stops, chunk, side="right")])
                             for rows, chunk in ((ends.sends, run.sent[out]), (ends.receives, run.taken[out])))
            yield moment(receive), own, receive, send
    for connection, sends in run.blocked.items():
        for row in sends:
            stop = run.program.stop[row]
            start = stop - int(matching.table.count[row])
            first, last = np.searchsorted(stops, [max(run.taken[connection], start - run.depth), stop - run.depth - 1],
                                          side="right").tolist()
            for receive in ends.receives[first:last + 1].tolist():
                yield node[receive], node[row] + 1, receive, row
    for receives in run.awaiting.values():
        for row in receives:
            send = int(matching.partner[row])
            yield node[send], node[row] + 1, send, row
    for made, rows in run.waiting.items():
        for row in rows:
            yield NONE if made == NONE else node[made], node[row] + 1, made, row
