"""The steps of each lane: without gaps, and record and wait alone in theirs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from schedlang.ir.legal.blocks import BLOCK, MANY
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ir.words import lane_text
from schedlang.ops import Op

Bad = tuple[int, str]
"""The first row that is wrong, and what is wrong with it."""


def uneven(table: OpTable) -> Bad | None:
    """Where a lane's steps are not without gaps, or a record or wait is not alone in its step; None: nowhere."""
    if not len(table):
        return None
    low, high = int(table.rank.min()), int(table.rank.max())
    lanes, steps = (high - low + 1) * len(table.streams), int(table.step.max()) + 1
    if lanes * steps > max(8 * len(table), 1 << 16):
        return uneven_by_sorting(table, low)
    seen = np.zeros(lanes * steps, bool)
    for _, key in _step_keys(table, low, steps):
        seen[key] = True
    grid = seen.reshape(lanes, steps)
    gap = (~grid[:, :-1] & grid[:, 1:]).any(1)
    if gap.any():
        return _gap(table, low, int(np.argmax(gap)))
    if (table.op < Op.RECORD).all():
        return None
    owner = np.full(lanes * steps, NONE, np.int32)
    for rows, key in _step_keys(table, low, steps):
        events = table.op[rows] >= Op.RECORD
        owner[key[events]] = np.flatnonzero(events) + rows.start
    for rows, key in _step_keys(table, low, steps):
        there = owner[key]
        shared = (there != NONE) & (there != np.arange(rows.start, rows.start + len(there)))
        if shared.any():
            at = int(np.argmax(shared))
            return _not_alone(table, int(there[at]), rows.start + at)
    return None


def _step_keys(table: OpTable, low: int, steps: int) -> Iterator[tuple[slice, Array]]:
    """For blocks of rows: the number of their (lane, step)."""
    for start in range(0, len(table), BLOCK):
        rows = slice(start, start + BLOCK)
        lane = (table.rank[rows].astype(np.int64) - low) * len(table.streams) + table.stream[rows]
        yield rows, lane * steps + table.step[rows]


def uneven_by_sorting(table: OpTable, low: int) -> Bad | None:
    """As :func:`uneven`, where step numbers are too large for a grid."""
    lane = (table.rank.astype(np.int64) - low) * len(table.streams) + table.stream
    order = np.lexsort((table.step, lane))
    lane, step = lane[order], table.step[order]
    new = np.concatenate(([True], lane[1:] != lane[:-1]))
    before = np.concatenate(([0], step[:-1]))
    gap = np.where(new, step != 0, (step != before) & (step != before + 1))
    if gap.any():
        at = int(np.argmax(gap))
        return _gap(table, low, int(lane[at]))
    same = ~new & (step == before)
    event = table.op[order] >= Op.RECORD
    crowded = same[1:] & (event[1:] | event[:-1])
    if crowded.any():
        at = int(np.argmax(crowded))
        one, other = sorted((int(order[at]), int(order[at + 1])), key=lambda r: table.op[r], reverse=True)
        return _not_alone(table, one, other)
    return None


def _gap(table: OpTable, low: int, lane: int) -> Bad:
    rank, stream = low + lane // len(table.streams), lane % len(table.streams)
    mine = np.flatnonzero((table.rank == rank) & (table.stream == stream))
    missing = next(k for k, s in enumerate([*np.unique(table.step[mine]).tolist(), MANY]) if k != s)
    row = int(mine[np.argmax(table.step[mine] > missing)])
    return row, (f"step is {table.step[row]}, but rank {rank} has no step {missing} on stream {table.streams[stream]}; "
                 "steps count up from 0 without gaps")


def _not_alone(table: OpTable, event: int, other: int) -> Bad:
    return event, (f"a {Op(int(table.op[event])).name.lower()} is alone in its step, but row {other} stands in it too "
                   f"({lane_text(table, event)})")
