"""In which order the host issues what several streams do: turns, one order common to all ranks.

A transfer has one turn at both of its ends, and a lane's turns rise. So whoever executes turn by turn, posting all of a
turn before waiting for any of it, never hangs: of all transfers that are not done, take one with the lowest turn; both
of its ends are posted. Not even one communicator for everything, working in order, would hang.
"""

from __future__ import annotations

import numpy as np

from schedlang.backends.torch.emit.split import APART, split
from schedlang.diagnostics import SchedError, error
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op
from schedlang.verify.matching import match
from schedlang.verify.timing.connections import Matching
from schedlang.verify.timing.lanes import records
from schedlang.verify.timing.order import order


def in_turns(table: OpTable) -> tuple[OpTable, bool]:
    """A table without fused operations whose ``number`` is the turn of each row, and whether turns matter: whether some
    rank has several streams. The table is known to be right without buffering."""
    pairs = match(table)
    several = bool((pairs.lanes.per_rank(table.ranks) > 1).any())
    fused = bool((table.of != NONE).any()) or bool(((table.buffer == NONE) & (table.peer != NONE)).any())
    if not several and not fused:
        return table, False
    if not fused and pairs.numbered:
        turn = _of_numbers(table)
        if turn is not None:
            return table.with_columns(number=turn), several
    table, turn = split(table, _of_levels(table, pairs))
    _require_order(table, turn)
    return table.with_columns(number=turn), several


def _of_numbers(table: OpTable) -> Array | None:
    """Turns where a source step is one everywhere: the longest way to it, from source step to source step. None where
    a wait does not come after its record in that order."""
    assert table.number is not None
    number = table.number.astype(np.int64)
    waits, made = records(table)
    by = np.lexsort((table.step, table.stream, table.rank))
    here, there = by[:-1], by[1:]
    follows = ((table.rank[here] == table.rank[there]) & (table.stream[here] == table.stream[there])
               & (number[here] != number[there]))
    edges = np.concatenate([np.stack([number[here[follows]], number[there[follows]]], 1),
                            np.stack([number[made], number[waits]], 1)])
    if (edges[:, 0] >= edges[:, 1]).any():
        return None
    edges = np.unique(edges, axis=0)
    level = np.zeros(int(number.max(initial=0)) + 1, np.int64)
    for before, after in edges.tolist():        # sorted: whatever leads to `before` has been seen
        level[after] = max(level[after], level[before] + 1)
    turns: Array = level[number].astype(np.int32)
    return turns


def _of_levels(table: OpTable, pairs: Matching) -> Array:
    """Turns row by row, of a legal execution: a transfer's is when both ends are posted and its value is there, and
    what passes a value on comes after what brings it."""
    when = order(table, pairs)
    turn = APART * when.done.astype(np.int64)
    sends = np.flatnonzero(table.op == Op.SEND)
    receives = pairs.partner[sends]
    moved = np.maximum(when.ready[sends], when.posted[receives]).astype(np.int64)
    late = (table.of[sends] != NONE) & (when.ready[sends] == moved)
    turn[sends] = turn[receives] = APART * moved + APART // 2 * late
    local = np.flatnonzero(table.peer == NONE)
    turn[local] = APART * when.done[local].astype(np.int64) + APART - 2
    turn[table.op == Op.WAIT] += 1              # done when what it waits for is, perhaps in the same moment
    return turn


def _require_order(table: OpTable, turn: Array) -> None:
    """Raises SchedError where turns are not what they must be, which no table that was met has led to."""
    pairs = match(table)
    lanes = np.lexsort((turn, table.step, table.stream, table.rank))
    here, there = lanes[:-1], lanes[1:]
    same = (table.rank[here] == table.rank[there]) & (table.stream[here] == table.stream[there])
    one = same & (table.step[here] == table.step[there])
    sends = np.flatnonzero(table.op == Op.SEND)
    waits, made = records(table)
    if (any(d.severity.name == "ERROR" for d in pairs.diagnostics)
            or (turn[here[one]] != turn[there[one]]).any()
            or (turn[here[same & ~one]] >= turn[there[same & ~one]]).any()
            or (turn[sends] != turn[pairs.partner[sends]]).any() or (turn[made] >= turn[waits]).any()):
        raise SchedError(error("SL808", f"{table.name} cannot be written for PyTorch: its messages have no order in "
                               "which one process could exchange them", table.location))
