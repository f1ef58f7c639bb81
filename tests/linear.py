"""A table as a linear map: a small interpreter of its own, for tests of what transforms tables.

Every location holds a vector with one entry for each location there is; reductions add.
"""

from collections import defaultdict

import numpy as np

from schedlang.ir.buffers import initialised
from schedlang.ir.locations import Locations
from schedlang.ir.table import NONE, OpTable
from schedlang.ops import Op

RECEIVES = (Op.RECV, Op.REDUCE_RECV)


class Stuck(Exception):
    """Nothing can go on."""


def partners(table: OpTable) -> dict[int, int]:
    """For each receive the send it takes, first-in first-out; each end of a connection is served by one lane."""
    ends = defaultdict(lambda: ([], []))
    for row in sorted(range(len(table)), key=lambda r: (table.step[r], r)):
        rank, peer, chan = int(table.rank[row]), int(table.peer[row]), int(table.chan[row])
        if table.op[row] == Op.SEND:
            ends[rank, peer, chan][0].append(row)
        elif table.op[row] in RECEIVES:
            ends[peer, rank, chan][1].append(row)
    return {b: a for sends, receives in ends.values() for a, b in zip(sends, receives, strict=True)}


def matrix(table: OpTable) -> np.ndarray:
    """Entry (y, x): how often location y ends up holding what location x, initialised, starts with.

    Each step reads when it is posted and writes when all it waits for has come. A read of what nothing has written and
    conflicting writes of one step are AssertionErrors; a deadlock is Stuck.
    """
    places = Locations(table.ranks, table.buffers)
    held = initialised(table)
    state = np.diag(held.astype(np.int64))
    takes = partners(table)
    steps = defaultdict(list)
    for row in range(len(table)):
        steps[int(table.rank[row]), int(table.stream[row]), int(table.step[row])].append(row)
    at = {(rank, stream): 0 for rank, stream, _ in steps}
    posted, recorded = set(), set()
    message, operand = {}, {}

    def where(row, buffer, chunk):
        return places.at(int(buffer[row]), int(table.rank[row]), int(chunk[row]) + np.arange(int(table.count[row])))

    def read(row, buffer, chunk):
        at = where(row, buffer, chunk)
        assert held[at].all(), f"row {row} reads what nothing has written"
        return state[at].copy()

    def received(row):
        return message[takes[row]] + (operand[row] if table.op[row] == Op.REDUCE_RECV else 0)

    def post(rows):
        for row in rows:
            if table.op[row] == Op.SEND and table.of[row] == NONE:
                message[row] = read(row, table.buffer, table.chunk)
            elif table.from_buffer[row] != NONE:
                operand[row] = read(row, table.from_buffer, table.from_chunk)

    def write(rows):
        plain, sums = [], []
        for row in rows:
            op = table.op[row]
            if op == Op.RECORD:
                recorded.add((int(table.rank[row]), int(table.event[row])))
            if op in (Op.SEND, Op.RECORD, Op.WAIT) or table.buffer[row] == NONE:
                continue
            at = where(row, table.buffer, table.chunk)
            in_place = table.buffer[row] == table.from_buffer[row] and table.chunk[row] == table.from_chunk[row]
            if op == Op.REDUCE or (op == Op.REDUCE_RECV and in_place):
                sums.append((at, operand[row] if op == Op.REDUCE else message[takes[row]]))
            else:
                plain.append((at, operand[row] if op == Op.COPY else received(row)))
        written = np.concatenate([np.zeros(0, np.int64), *(w for w, _ in plain)])
        added = np.concatenate([np.zeros(0, np.int64), *(w for w, _ in sums)])
        assert len(np.unique(written)) == len(written) and not np.isin(written, added).any(), "conflicting writes"
        for at, value in plain:
            state[at], held[at] = value, True
        for at, value in sums:
            assert held[at].all(), "a sum into what nothing has written"
            state[at] += value

    moved = True
    while moved:
        moved = False
        for lane, step in at.items():
            rows = steps.get((*lane, step))
            if rows is None:
                continue
            if lane not in posted:
                posted.add(lane)
                post(rows)
                moved = True
            for row in rows:
                if table.of[row] != NONE and row not in message and takes[int(table.of[row])] in message:
                    message[row] = received(int(table.of[row]))
                    moved = True
            if all(takes[r] in message for r in rows if table.op[r] in RECEIVES) and all(
                    (int(table.rank[r]), int(table.event[r])) in recorded for r in rows if table.op[r] == Op.WAIT):
                write(rows)
                posted.discard(lane)
                at[lane] = step + 1
                moved = True
    if any((*lane, step) in steps for lane, step in at.items()):
        raise Stuck
    return state
