"""Lanes as strands: each rank's own view."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from schedlang.ir.table import NONE, Array
from schedlang.lift.kinds import LOST, RANKED, Field, Kind
from schedlang.lift.nest import Strands
from schedlang.lift.statements import Statements, cannot
from schedlang.ops import Op

_WORDS = {Op.SEND: "send", Op.RECV: "recv", Op.REDUCE_RECV: "reduce", Op.COPY: "copy", Op.REDUCE: "add",
          Op.RECORD: "record", Op.WAIT: "wait"}


@dataclass(frozen=True, eq=False)
class Events:
    """Which lane records what is recorded or waited for, and which of its records it is: one entry a statement, NONE
    for statements that are neither; of a wait for what is never recorded, lane NONE, and turn tells such events of a
    rank apart. ``many``: of each lane, whether it records several times."""

    lane: Array
    turn: Array
    many: Array


def from_the_end(s: Statements, found: Events) -> Events:
    """The same events, the records of a lane counted from its last, which is 0: where lanes record differently often,
    it is their last ones that are alike."""
    most = np.zeros(len(s.rank), np.int64)
    known = found.lane != NONE
    np.maximum.at(most, found.lane[known], found.turn[known])
    return replace(found, turn=np.where(known, most[found.lane] - found.turn, found.turn))


def events(s: Statements) -> Events:
    """The events of all statements."""
    t = s.table
    lane, turn = np.full(len(s.row), NONE, np.int64), np.full(len(s.row), NONE, np.int64)
    op = t.op[s.row]
    key = t.rank[s.row].astype(np.int64) * max(1, len(t.events)) + t.event[s.row]
    made, waits = np.flatnonzero(op == Op.RECORD), np.flatnonzero(op == Op.WAIT)
    lane[made] = s.lane[made]
    start = np.searchsorted(s.lane[made], np.arange(len(s.rank)))
    turn[made] = np.arange(len(made)) - start[s.lane[made]]
    many = np.bincount(s.lane[made], minlength=len(s.rank)) > 1
    keys, first, times = np.unique(key[made], return_index=True, return_counts=True)
    if (times > 1).any():
        row = int(s.row[made[first[times > 1][0]]])
        raise cannot(t, row, "its event is recorded more than once on this rank")
    if len(waits):
        at = np.searchsorted(keys, key[waits])
        there = at < len(keys)
        there[there] = keys[at[there]] == key[waits][there]
        found = made[first[at[there]]]
        lane[waits[there]], turn[waits[there]] = lane[found], turn[found]
        lost = waits[~there]
        ranks = t.rank[s.row[lost]]
        for rank in np.unique(ranks).tolist():
            mine = lost[ranks == rank]
            turn[mine] = np.unique(key[mine], return_inverse=True)[1].reshape(len(mine))
    return Events(lane, turn, many)


def strands(s: Statements, found: Events, chan: Array, together: bool) -> tuple[Strands, list[Kind], Array]:
    """The lanes of a table as strands, the kinds of their statements, and the class of each lane, by which the events
    that it records are called: lanes of one class run alike, and wait alike for lanes of one class.

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
    made = Strands(s.first, kind, s.opens, fields, s.rank, RANKED)
    if together:
        lane_class = np.zeros(len(s.rank), np.int64)
        kind = made.kind * 2 + ((op == Op.WAIT) & (found.lane == NONE))
    else:
        kind, lane_class = _refined(made, found, op)
    written, kind = _written(s, kind, away.astype(bool), found, lane_class)
    return replace(made, kind=kind), written, lane_class


def _refined(made: Strands, found: Events, op: Array) -> tuple[Array, Array]:
    """Kinds that tell apart what is waited for, and the classes of lanes."""
    start, classes = made.kind, 0
    kind = start
    while True:
        lane_class = np.empty(len(made.first) - 1, np.int64)
        alike = replace(made, kind=kind).alike()
        for k, members in enumerate(alike):
            lane_class[members] = k
        if len(alike) == classes:
            return kind, lane_class
        classes = len(alike)
        target = np.where(found.lane == NONE, np.where(op == Op.WAIT, classes, NONE), lane_class[found.lane])
        target = np.where(op == Op.RECORD, NONE, target)
        _, kind = np.unique(np.stack([start, target], 1), axis=0, return_inverse=True)
        kind = kind.reshape(len(start)).astype(np.int64)


def _written(s: Statements, kind: Array, away: Array, found: Events, lane_class: Array) -> tuple[list[Kind], Array]:
    """The kinds as they are written, and the number of each statement's."""
    t = s.table
    recorder = np.where(found.lane == NONE, NONE, lane_class[found.lane])
    _, first, number = np.unique(np.stack([kind, recorder], 1), axis=0, return_index=True, return_inverse=True)
    kinds = []
    for i in first.tolist():
        row, word = int(s.row[i]), _WORDS[Op(int(t.op[s.row[i]]))]
        passes, buffer = bool(s.forward[i] != NONE), int(t.buffer[row])
        other = int(t.from_buffer[row])
        if word in ("recv", "reduce") and buffer == NONE and not passes:
            raise cannot(t, row, "what arrives is neither stored nor passed on", "give it a place in a buffer")
        event = int(recorder[i])
        if word == "wait" and event == NONE:
            event = LOST
        kinds.append(Kind(word, buffer, other if word in ("copy", "add") or (word == "reduce" and (
            away[i] or buffer == NONE)) else NONE, passes, buffer != NONE, event=event))
    return kinds, number.reshape(len(kind)).astype(np.int64)
