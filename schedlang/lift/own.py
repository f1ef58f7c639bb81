"""Lanes as strands: each rank's own view."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from schedlang.ir.table import NONE, Array
from schedlang.lift.kinds import AFTER, LOST, RANKED, Field, Kind
from schedlang.lift.nest import Strands
from schedlang.lift.statements import Statements, cannot
from schedlang.ops import Op

_WORDS = {Op.SEND: "send", Op.RECV: "recv", Op.REDUCE_RECV: "reduce", Op.COPY: "copy", Op.REDUCE: "add",
          Op.RECORD: "record", Op.WAIT: "wait"}

_DONE = {Op.SEND: "sent", Op.RECV: "landed", Op.REDUCE_RECV: "summed", Op.COPY: "copied", Op.REDUCE: "summed"}


class Numbering(Enum):
    """How the lanes are told apart that record events of one sort on a rank: as those of a class of lanes that run
    alike, through all lanes of the rank, or by whom they exchange messages with."""

    BY_CLASS = 0
    THROUGH = 1
    BY_PARTNER = 2


@dataclass(frozen=True, eq=False)
class Events:
    """Which lane records what is recorded or waited for, what it has done last when it does (a place in AFTER), and
    which of its records after such things it is: one entry a statement, NONE for statements that are neither; of a wait
    for what is never recorded, lane NONE, and turn tells such events of a rank apart."""

    lane: Array
    after: Array
    turn: Array

    def sorts(self, lane_class: Array) -> Array:
        """The sort of each event, by the class of the lane that records it, and what that has done; NONE for statements
        that have no event, and events that are never recorded."""
        return np.where(self.lane == NONE, NONE, lane_class[self.lane] * len(AFTER) + self.after)


def events(s: Statements) -> Events:
    """The events of all statements."""
    t = s.table
    lane, turn, after = (np.full(len(s.row), NONE, np.int64) for _ in range(3))
    op = t.op[s.row]
    key = t.rank[s.row].astype(np.int64) * max(1, len(t.events)) + t.event[s.row]
    made, waits = np.flatnonzero(op == Op.RECORD), np.flatnonzero(op == Op.WAIT)
    lane[made] = s.lane[made]
    after[made] = _done(s, op)[made]
    turn[made] = _turns(lane[made] * len(AFTER) + after[made])
    keys, first, times = np.unique(key[made], return_index=True, return_counts=True)
    if (times > 1).any():
        row = int(s.row[made[first[times > 1][0]]])
        raise cannot(t, row, "its event is recorded more than once on this rank")
    if len(waits):
        at = np.searchsorted(keys, key[waits])
        there = at < len(keys)
        there[there] = keys[at[there]] == key[waits][there]
        found = made[first[at[there]]]
        for column in (lane, after, turn):
            column[waits[there]] = column[found]
        lost = waits[~there]
        ranks = t.rank[s.row[lost]]
        for rank in np.unique(ranks).tolist():
            mine = lost[ranks == rank]
            turn[mine] = np.unique(key[mine], return_inverse=True)[1].reshape(len(mine))
    return Events(lane, after, turn)


def partners(s: Statements, found: Events) -> Array | None:
    """Of each lane: whom it exchanges messages with, itself where it does not with any; None where a lane that records
    does with several, or none does with any."""
    t = s.table
    transfers = np.flatnonzero(t.op[s.row] <= Op.REDUCE_RECV)
    fused = np.flatnonzero(s.forward != NONE)
    peers = np.r_[t.peer[s.row[transfers]], t.peer[s.forward[fused]]]
    lanes = np.r_[s.lane[transfers], s.lane[fused]]
    low, high = np.full(len(s.rank), t.ranks), np.full(len(s.rank), NONE)
    np.minimum.at(low, lanes, peers)
    np.maximum.at(high, lanes, peers)
    records = np.unique(found.lane[found.lane != NONE])
    if (high[records] == NONE).all() or (low[records] < high[records]).any():
        return None
    return np.where(high == NONE, s.rank, high)


def _done(s: Statements, op: Array) -> Array:
    """What each statement's lane has done last, as a place in AFTER."""
    last = np.maximum.accumulate(np.where(op < Op.RECORD, np.arange(len(op)), NONE))
    names = np.array([AFTER.index(_DONE[k]) if k in _DONE else 0 for k in Op], np.int64)
    return np.where(last >= s.first[s.lane], names[op[last]], 0)


def _turns(keys: Array) -> Array:
    """Of equal keys, which comes first: 0, 1, ..."""
    order = np.argsort(keys, kind="stable")
    first = np.searchsorted(keys[order], keys)
    found = np.empty(len(keys), np.int64)
    found[order] = np.arange(len(keys))
    return found - first


def strands(s: Statements, found: Events, chan: Array, together: bool) -> tuple[Strands, list[Kind], Array]:
    """The lanes of a table as strands, the kinds of their statements, and the class of each lane, by which the events
    that it records are called: lanes of one class run alike, and wait alike for lanes of one class. Waits that follow
    each other stand as :func:`settled` has them.

    ``together``: all lanes are of one class, so that alike is whatever waits, whomever it waits for. ``chan``: the
    number of each statement's connection where that has to be told statement by statement, else 0s.
    """
    t, rows = s.table, s.row
    op = t.op[rows].astype(np.int64)
    passes = s.forward != NONE
    columns = [op, t.buffer[rows], t.from_buffer[rows], passes]
    _, kind = np.unique(np.stack(columns, 1), axis=0, return_inverse=True)
    kind = kind.reshape(len(rows)).astype(np.int64)
    away = np.where(op == Op.REDUCE_RECV, (t.from_buffer[rows] != t.buffer[rows]) | (
        t.from_chunk[rows] != t.chunk[rows]), 0)
    kind = kind * 2 + away
    fields = np.zeros((len(rows), len(Field)), np.int64)
    transfer = op <= Op.REDUCE_RECV
    fields[:, Field.PEER] = np.where(transfer, t.peer[rows], 0)
    fields[:, Field.ONWARD] = np.where(passes, t.peer[s.forward], 0)
    fields[:, Field.AT], fields[:, Field.COUNT] = t.chunk[rows], t.count[rows]
    fields[:, Field.OTHER] = np.where((op == Op.COPY) | (op == Op.REDUCE) | (away == 1), t.from_chunk[rows], 0)
    fields[:, Field.CHAN] = chan
    fields[:, Field.TURN] = np.where(op >= Op.RECORD, found.turn, 0)
    made = Strands(s.first, kind, s.opens, fields, s.rank, RANKED, t.ranks)
    if together:
        lane_class = np.zeros(len(s.rank), np.int64)
        kind = made.kind * 2 + ((op == Op.WAIT) & (found.lane == NONE))
    else:
        kind, lane_class = _refined(s, made, found, op)
    written, kind = _written(s, kind, away.astype(bool), found.sorts(lane_class))
    return replace(made, kind=kind), written, lane_class


def settled(s: Statements, made: Strands) -> Strands:
    """The strands with waits that follow each other in the order of what they wait for."""
    by = np.lexsort((*(made.fields[:, f] for f in (Field.TURN, Field.LANE, Field.WITH)), made.kind, runs(s)))
    return replace(made, kind=made.kind[by], fields=made.fields[by])


def runs(s: Statements) -> Array:
    """A number for each statement, the same for waits that follow each other in a lane. Their order says nothing: what
    stands behind them is posted when all that they wait for is recorded."""
    wait = s.table.op[s.row] == Op.WAIT
    first = np.ones(len(wait), bool)
    first[1:] = ~(wait[1:] & wait[:-1] & (s.lane[1:] == s.lane[:-1]))
    return np.cumsum(first)


def _refined(s: Statements, made: Strands, found: Events, op: Array) -> tuple[Array, Array]:
    """Kinds that tell apart what is waited for, and the classes of lanes."""
    start, classes = made.kind, 0
    kind, run = start, runs(s)
    while True:
        lane_class = np.empty(len(made.first) - 1, np.int64)
        alike = replace(made, kind=kind[np.lexsort((kind, run))]).alike()
        for k, members in enumerate(alike):
            lane_class[members] = k
        if len(alike) == classes:
            return kind, lane_class
        classes = len(alike)
        target = np.where(op == Op.WAIT, found.sorts(lane_class), NONE - 1)
        _, kind = np.unique(np.stack([start, target], 1), axis=0, return_inverse=True)
        kind = kind.reshape(len(start)).astype(np.int64)


def _written(s: Statements, kind: Array, away: Array, sort: Array) -> tuple[list[Kind], Array]:
    """The kinds as they are written, and the number of each statement's. ``sort``: of its event."""
    t = s.table
    _, first, number = np.unique(np.stack([kind, sort], 1), axis=0, return_index=True, return_inverse=True)
    kinds = []
    for i in first.tolist():
        row, word = int(s.row[i]), _WORDS[Op(int(t.op[s.row[i]]))]
        passes, buffer = bool(s.forward[i] != NONE), int(t.buffer[row])
        other = int(t.from_buffer[row])
        if word in ("recv", "reduce") and buffer == NONE and not passes:
            raise cannot(t, row, "what arrives is neither stored nor passed on", "give it a place in a buffer")
        event = int(sort[i])
        if word == "wait" and event == NONE:
            event = LOST
        kinds.append(Kind(word, buffer, other if word in ("copy", "add") or (word == "reduce" and (
            away[i] or buffer == NONE)) else NONE, passes, buffer != NONE, event=event))
    return kinds, number.reshape(len(kind)).astype(np.int64)
