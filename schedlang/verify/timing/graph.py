"""What must happen before what: all rules of completion as one graph, and its levels.

Every rule of language.md (Semantics 2, 5, 7) and of docs/decisions/0001 says: this happens once all of those have
happened. So what can happen at all is a least fixed point, found by one topological pass, and no interleaving reaches
more or less than another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op
from schedlang.verify.timing.connections import Matching
from schedlang.verify.timing.lanes import Lanes, records

THIN = 32
"""Below so many nodes a level, plain Python is faster than NumPy."""

SMALL = 20_000
"""Up to so many nodes, plain Python is fast enough anyway."""


@dataclass
class Graph:
    """Nodes and the order between them.

    Nodes are the moments of ``lanes.node`` (a step posted, the step before it ended), then one for each of ``extra`` (a
    row: the moment at which a fused message exists, or can be taken, or an operation is done), then ``never``, which
    never happens. Within a lane every node comes after the one before it; edge i says that node ``target[i]`` comes
    after node ``source[i]``, because row ``effect[i]`` waits for row ``cause[i]`` (NONE: for an operation that does not
    exist). ``ready``: the node at which the message of each fused send exists, as (rows, nodes).
    """

    lanes: Lanes
    extra: Array
    source: Array
    target: Array
    cause: Array
    effect: Array
    ready: tuple[Array, Array]

    @property
    def never(self) -> int:
        """The node that is never reached."""
        return self.lanes.nodes + len(self.extra)

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return self.never + 1

    @cached_property
    def level(self) -> Array:
        """The length of the longest chain that leads to each node, or another number that rises along every edge (see
        ``Order.graph``), int32; NONE for nodes that are never reached."""
        return levels(self)

    @property
    def complete(self) -> bool:
        """Whether every node but ``never`` is reached."""
        return bool((self.level[:-1] != NONE).all())

    @cached_property
    def lane_edges(self) -> Array:
        """The nodes that have a successor in their lane: node v comes before node v + 1 (bool, a node each)."""
        follows = np.zeros(self.nodes, bool)
        follows[: self.lanes.nodes] = True
        follows[self.lanes.ends] = False
        return follows

    @cached_property
    def _incoming(self) -> tuple[Array, Array, Array, Array]:
        """The edges between reached nodes, those of lanes included, sorted by level and node of their target: the
        sources, the targets (each once), where the sources of each target start, and where the targets of each level
        start."""
        lane = np.flatnonzero(self.lane_edges[: self.lanes.nodes])
        source = np.concatenate([self.source, lane.astype(np.int32)])
        target = np.concatenate([self.target, (lane + 1).astype(np.int32)])
        reached = self.level[target] != NONE
        source, target = source[reached], target[reached]
        by = np.argsort(self.level[target].astype(np.int64) * self.nodes + target)
        source, target = source[by], target[by]
        new = np.ones(len(target), bool)
        new[1:] = target[1:] != target[:-1]
        starts = np.flatnonzero(new)
        targets = target[starts]
        return source, targets, starts, np.searchsorted(self.level[targets], np.arange(int(self.level.max()) + 2))

    def sweep(self, above: int = 0, to: int | None = None) -> Iterator[tuple[Array, Array, Array]]:
        """Level by level, from the one after ``above`` to ``to``: the reached nodes of the level, all sources of edges
        into them, and where the sources of each node start, as ``np.ufunc.reduceat`` takes them."""
        sources, targets, starts, bounds = self._incoming
        for level in range(above + 1, (len(bounds) - 2 if to is None else to) + 1):
            a, b = bounds[level], bounds[level + 1]
            if a < b:
                first = starts[a]
                last = starts[b] if b < len(starts) else len(sources)
                yield targets[a:b], sources[first:last], starts[a:b] - first


@dataclass
class _Edges:
    """Edges as they are collected."""

    source: list[Array] = field(default_factory=list)
    target: list[Array] = field(default_factory=list)
    cause: list[Array] = field(default_factory=list)
    effect: list[Array] = field(default_factory=list)

    def add(self, source: Array, target: Array, cause: Array, effect: Array) -> None:
        for edges, new in ((self.source, source), (self.target, target), (self.cause, cause), (self.effect, effect)):
            edges.append(np.asarray(new, np.int32))

    def joined(self) -> tuple[Array, Array, Array, Array]:
        source, target, cause, effect = (np.concatenate(parts)
                                         for parts in (self.source, self.target, self.cause, self.effect))
        return source, target, cause, effect


def build(table: OpTable, matching: Matching, depth: int | None) -> Graph:
    """The graph for connections that hold ``depth`` messages (0: rendezvous, None: without limit)."""
    return _Builder(table, matching).build(depth)


class _Builder:
    """``done``: for each row the node at which others may count on it, where that differs from its step's node."""

    def __init__(self, table: OpTable, matching: Matching) -> None:
        self.table, self.matching, self.lanes = table, matching, matching.lanes
        self.node, self.partner = self.lanes.node, matching.partner
        self.edges, self.extra, self.count = _Edges(), [np.empty(0, np.intp)], 0
        self.sends = np.flatnonzero(table.op == Op.SEND)
        self.receives = np.flatnonzero((table.op == Op.RECV) | (table.op == Op.REDUCE_RECV))
        self.fused = self.sends[table.of[self.sends] != NONE]
        self.feeding = table.of[self.fused]

    def build(self, depth: int | None) -> Graph:
        self._events()
        if depth is None or depth == 0:
            ready = self._available()
            if depth == 0:
                self._taken()
        else:
            ready = self._buffered(depth)
        never = self.lanes.nodes + self.count
        source, target, cause, effect = self.edges.joined()
        source[source == NONE] = never
        return Graph(self.lanes, np.concatenate(self.extra), source, target, cause, effect, ready)

    def _new(self, rows: Array) -> Array:
        """New nodes, one for each of the rows, each after the post of its row's step."""
        nodes = np.arange(len(rows), dtype=np.int32) + (self.lanes.nodes + self.count)
        self.count += len(rows)
        self.extra.append(rows)
        self.edges.add(self.node[rows], nodes, rows, rows)
        return nodes

    def _at(self, nodes: Array, rows: Array) -> Array:
        """``nodes[rows]``, NONE for the row NONE."""
        return np.where(rows == NONE, NONE, nodes[rows])

    def _events(self) -> None:
        waits, made = records(self.table)
        self.edges.add(self._at(self.node, made), self.node[waits] + 1, made, waits)

    def _available(self) -> tuple[Array, Array]:
        """A receive, and a fused send, wait for the message: a plain one exists when its send is posted."""
        available, receives = self.node, self.receives
        made = self._new(self.fused)
        if len(self.fused):
            available = self.node.copy()
            available[self.fused] = made
            came = self.partner[self.feeding]
            self.edges.add(self._at(available, came), made, came, self.feeding)
        came = self.partner[receives]
        self.edges.add(self._at(available, came), self.node[receives] + 1, came, receives)
        return self.fused, made

    def _taken(self) -> None:
        """Rendezvous: a send waits until its message can be taken; see docs/decisions/0001."""
        takeable = self.node
        if len(self.fused):
            ends = self.matching.connections
            through = np.zeros(len(ends.first_receive), bool)  # the connections that end, somewhere, in a fused receive
            receive_connection = np.full(len(self.table), NONE, np.int32)
            receive_connection[ends.receives] = ends.of_receive
            through[receive_connection[self.feeding]] = True
            rows = ends.receives[through[ends.of_receive]]
            taken = self._new(rows)
            takeable = self.node.copy()
            takeable[rows] = taken
            later = receive_connection[rows[1:]] == receive_connection[rows[:-1]]
            self.edges.add(taken[:-1][later], taken[1:][later], rows[:-1][later], rows[1:][later])
            out = self.partner[self.fused]
            self.edges.add(self._at(takeable, out), takeable[self.feeding], out, self.fused)
        taker = self.partner[self.sends]
        self.edges.add(self._at(takeable, taker), self.node[self.sends] + 1, taker, self.sends)

    def _buffered(self, depth: int) -> tuple[Array, Array]:
        """Buffered: a receive waits for its send to be done, a send for the receive ``depth`` messages before it.

        Where no end of a connection is fused, being done comes down to the posts of both sides, since those of one lane
        come in order. Elsewhere every operation has its own moment.
        """
        ends, done = self.matching.connections, self.node
        blocked, freeing = ends.receive_before(depth)
        own = np.zeros(len(self.table), bool)  # rows whose being done is a node of its own
        if len(self.fused):
            touched = ends.with_end(np.concatenate([self.fused, self.feeding]))
            own[ends.sends[touched[ends.of_send]]] = True
            own[ends.receives[touched[ends.of_receive]]] = True
            own[self.fused] = False
            rows = np.flatnonzero(own)
            done = self.node.copy()
            done[rows] = self._new(rows)
            own[self.fused] = True
            done[self.fused] = done[self.feeding]
            self.edges.add(done[rows], self.node[rows] + 1, rows, rows)
        for rows, causes in ((self.receives, self.partner[self.receives]), (blocked, freeing)):
            after = np.where(own[rows], done[rows], self.node[rows] + 1)
            self.edges.add(self._at(done, causes), after, causes, rows)
        return self.fused, done[self.fused]


def levels(graph: Graph) -> Array:
    """See :attr:`Graph.level`."""
    nodes = graph.nodes
    needs = np.bincount(graph.target, minlength=nodes).astype(np.int32)
    needs[1:] += graph.lane_edges[:-1]
    needs[graph.never] = 1
    by_source = np.argsort(graph.source, kind="stable")
    target = graph.target[by_source]
    first = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(graph.source, minlength=nodes), out=first[1:])
    level = np.full(nodes, NONE, np.int32)
    frontier, now = np.flatnonzero(needs == 0), 0
    while len(frontier):
        if nodes <= SMALL or (now % 256 == 255 and int((level != NONE).sum()) < THIN * now):
            _thin(graph, needs, first, target, level, frontier.tolist(), now)
            break
        level[frontier] = now
        now += 1
        starts, lengths = first[frontier], first[frontier + 1] - first[frontier]
        total = int(lengths.sum())
        reached = [frontier[graph.lane_edges[frontier]] + 1]
        if total:
            offsets = np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            reached.append(target[np.repeat(starts, lengths) + offsets])
        nearer = np.concatenate(reached)
        np.subtract.at(needs, nearer, 1)
        nearer = nearer[needs[nearer] == 0]
        needs[nearer] = NONE  # so that a node reached twice at once is kept once
        level[nearer] = np.arange(len(nearer))
        frontier = nearer[level[nearer] == np.arange(len(nearer))]
    return level


def _thin(graph: Graph, needs: Array, first: Array, target: Array, level: Array, frontier: list[int], now: int) -> None:
    """The rest of :func:`levels` in plain Python, for long graphs with few nodes a level."""
    need, start, targets, follows = needs.tolist(), first.tolist(), target.tolist(), graph.lane_edges.tolist()
    reached: list[int] = []
    times: list[int] = []
    while frontier:
        following: list[int] = []
        for node in frontier:
            if follows[node]:
                need[node + 1] -= 1
                if not need[node + 1]:
                    following.append(node + 1)
            for other in targets[start[node]:start[node + 1]]:
                need[other] -= 1
                if not need[other]:
                    following.append(other)
        reached += frontier
        times += [now] * len(frontier)
        frontier, now = following, now + 1
    level[reached] = times
