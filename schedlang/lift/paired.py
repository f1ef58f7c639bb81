"""Lanes that exchange messages as one strand, in which both ends of a message are written at once.

It can be done where the lanes that belong together are of different ranks, so that they can share a name, and where
their steps fall in with each other: a step and those at the other ends of its messages are one step of the source.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from schedlang.ir.table import NONE, Array
from schedlang.lift.kinds import RANKED, Field, Kind
from schedlang.lift.nest import Strands
from schedlang.lift.statements import Statements
from schedlang.ops import Op


@dataclass(frozen=True, eq=False)
class Pairs:
    """``strands``: one for each of the groups of lanes that can be written so; ``lanes``: which lanes each has;
    ``kinds``: of its statements."""

    strands: Strands
    lanes: list[Array]
    kinds: list[Kind]


def paired(s: Statements, linked: Array) -> Pairs | None:
    """The groups of lanes that can be written with both ends at once; None where there are none. ``linked``: of each
    connection, which group of lanes uses it."""
    if not len(linked):
        return None
    found = list(_groups(s, linked))
    if not found:
        return None
    kinds: dict[Kind, int] = {}
    first, kind, opens, fields, anchor, lanes = [0], [], [], [], [], []
    for members, steps in found:
        for step in steps:
            for k, (what, numbers) in enumerate(step):
                kind.append(kinds.setdefault(what, len(kinds)))
                opens.append(k == 0)
                fields.append(numbers)
        first.append(len(kind))
        anchor.append(steps[0][0][1][Field.SOURCE])
        lanes.append(members)
    strands = Strands(np.array(first), np.array(kind, np.int64), np.array(opens), np.array(fields, np.int64),
                      np.array(anchor, np.int64), RANKED, s.table.ranks)
    return Pairs(strands, lanes, list(kinds))


Step = list[tuple[Kind, list[int]]]


def _groups(s: Statements, linked: Array) -> Iterator[tuple[Array, list[Step]]]:
    """The lanes of each group that can be written so, and its steps."""
    partner = _partners(s)
    connection = s.connection[s.row]
    group = np.full(len(s.rank), NONE, np.int64)
    using = connection != NONE
    group[s.lane[using]] = linked[connection[using]]
    t, rows = s.table, s.row
    apart = (t.op[rows] == Op.REDUCE_RECV) & ((t.buffer[rows] != t.from_buffer[rows]) | (
        t.chunk[rows] != t.from_chunk[rows]))
    odd = (t.op[rows] >= Op.RECORD) | (s.forward != NONE) | (using & (partner == NONE)) | apart
    bad = set(group[s.lane[odd]].tolist())
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(int(group.max()) + 2))
    node = np.cumsum(s.opens) - 1
    for g, (a, b) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        members = order[a:b]
        if g in bad or len(np.unique(s.rank[members])) < len(members):
            continue
        steps = _steps(s, members, partner, node)
        if steps is not None:
            yield members, steps


def _partners(s: Statements) -> Array:
    """The other end of each statement that sends or receives, by the order of messages; NONE where a connection is
    shared between lanes at one end or does not have as many at both."""
    t = s.table
    connection = s.connection[s.row]
    found = np.full(len(s.row), NONE, np.int64)
    at = np.flatnonzero(connection != NONE)
    sends = at[t.op[s.row[at]] == Op.SEND]
    receives = at[t.op[s.row[at]] != Op.SEND]
    size = len(s.sources)
    good = np.bincount(connection[sends], minlength=size) == np.bincount(connection[receives], minlength=size)
    for ends in (sends, receives):
        low, high = np.full(size, len(s.rank)), np.full(size, NONE)
        np.minimum.at(low, connection[ends], s.lane[ends])
        np.maximum.at(high, connection[ends], s.lane[ends])
        good &= low == high
    sends = sends[good[connection[sends]]]
    receives = receives[good[connection[receives]]]
    sends, receives = (e[np.argsort(connection[e], kind="stable")] for e in (sends, receives))
    fits = t.count[s.row[sends]] == t.count[s.row[receives]]
    found[sends[fits]], found[receives[fits]] = receives[fits], sends[fits]
    return found


def _steps(s: Statements, members: Array, partner: Array, node: Array) -> list[Step] | None:
    """The steps of a group of lanes; None where they do not fall in with each other."""
    at = np.concatenate([np.arange(s.first[lane], s.first[lane + 1]) for lane in members.tolist()])
    level: dict[int, int] = {}
    up: dict[int, int] = {}

    def root(n: int) -> int:
        while up[n] != n:
            up[n] = n = up[up[n]]
        return n

    for i in at.tolist():
        up.setdefault(int(node[i]), int(node[i]))
        if partner[i] != NONE:
            other = int(node[partner[i]])
            up.setdefault(other, other)
            up[root(int(node[i]))] = root(other)
    after: dict[int, set[int]] = {}
    waiting: dict[int, int] = {}
    for lane in members.tolist():
        a, b = int(s.first[lane]), int(s.first[lane + 1])
        nodes = [root(n) for n in range(int(node[a]), int(node[b - 1]) + 1)]
        if len(set(nodes)) < len(nodes):
            return None
        for one, other in zip([NONE, *nodes], nodes, strict=False):
            waiting.setdefault(other, 0)
            if one != NONE and other not in after.setdefault(one, set()):
                after[one].add(other)
                waiting[other] += 1
    free = [n for n, k in waiting.items() if not k]
    for n in free:
        level[n] = 0
    while free:
        n = free.pop()
        for other in after.get(n, ()):
            level[other] = max(level.get(other, 0), level[n] + 1)
            waiting[other] -= 1
            if not waiting[other]:
                free.append(other)
    if any(waiting.values()):
        return None
    steps: list[list[int]] = [[] for _ in range(max(level.values()) + 1)]
    for i in at.tolist():
        steps[level[root(int(node[i]))]].append(i)
    found = []
    for step in steps:
        ordered = _ordered(s, step, partner)
        if ordered is None:
            return None
        found.append([_statement(s, i, int(partner[i])) for i in ordered])
    return found


def _ordered(s: Statements, step: list[int], partner: Array) -> list[int] | None:
    """The statements of a step, each message by its receiving end, in an order that does not turn round messages of a
    connection, or what arrives at a rank or is added there; None where none of those tried does not."""
    t = s.table
    at = np.array(step)
    at = at[t.op[s.row[at]] != Op.SEND]
    if len(at) < 2:
        return at.tolist()
    op, rank = t.op[s.row[at]], t.rank[s.row[at]]
    source = np.where(partner[at] == NONE, rank, t.peer[s.row[at]])
    away, local = (rank - source) % t.ranks, partner[at] == NONE
    for key in ((at, away, source), (at, source, away), (at, rank)):
        tried: list[int] = at[np.lexsort((*key, op, local))].tolist()
        if _keeps(s, tried, partner):
            return tried
    return None


def _keeps(s: Statements, order: list[int], partner: Array) -> bool:
    """Whether an order of statements keeps that of the messages of each connection, at both ends, and of what arrives
    or is added at each rank."""
    t, at = s.table, np.array(order)
    rows, other = s.row[at], partner[at]
    moved, lands = other != NONE, t.op[rows] != Op.COPY
    connection = s.connection[rows[moved]]
    for key, place in ((connection, at[moved]), (connection, other[moved]), (t.rank[rows[lands]], at[lands])):
        by = np.argsort(key, kind="stable")
        if ((key[by][1:] == key[by][:-1]) & (place[by][1:] < place[by][:-1])).any():
            return False
    return True


def _statement(s: Statements, i: int, other: int) -> tuple[Kind, list[int]]:
    """A local statement, or a message by its receiving end ``i`` and its sending end ``other``."""
    t, row = s.table, int(s.row[i])
    numbers = [0] * len(Field)
    numbers[Field.COUNT], numbers[Field.SOURCE] = int(t.count[row]), int(t.rank[row])
    op = int(t.op[row])
    if other == NONE:
        numbers[Field.AT], numbers[Field.OTHER] = int(t.chunk[row]), int(t.from_chunk[row])
        return Kind("copy" if op == Op.COPY else "add", int(t.buffer[row]), int(t.from_buffer[row]), both=True), numbers
    sent = int(s.row[other])
    numbers[Field.SOURCE], numbers[Field.PEER] = int(t.peer[row]), int(t.rank[row])
    numbers[Field.AT], numbers[Field.OTHER] = int(t.chunk[sent]), int(t.chunk[row])
    word = "reduce" if op == Op.REDUCE_RECV else "send"
    return Kind(word, int(t.buffer[sent]), int(t.buffer[row]), both=True), numbers
