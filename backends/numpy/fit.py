"""Do the values fit the parts they move into? A value keeps its length; parts of one buffer may differ by an
element."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from schedlang.backends.numpy.moves import Plan
from schedlang.backends.numpy.temporaries import spread
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.running.binding import Bound, index_of, starts
from schedlang.running.executable import misfit


def lengths(table: OpTable, plan: Plan, bound: Bound) -> Array | None:
    """How many elements each move of a plan moves (of several locations, in the longest); None where all parts are
    equally long, so that every move moves as many.

    Raises SchedError (SL802) where, with these sizes, a value moves into a shorter part, or two values of different
    lengths are reduced.
    """
    room, own = _rooms(table, plan, bound)
    if not own.any() or room[own].min() == room.max():
        return None
    target, owner = spread(plan.target, plan.count)
    source, _ = spread(plan.source, plan.count)
    operand, _ = spread(plan.operand, plan.count)
    operand[plan.operand[owner] == NONE] = NONE
    fixed = np.append(own, np.zeros(plan.temporaries + 1, bool))            # the last one stands for "no operand"
    room = np.append(room, np.full(plan.temporaries + 1, np.iinfo(np.int64).max))
    plain = fixed[target] & fixed[source] & (room[target] == room[source])
    plain &= (operand == NONE) | (fixed[operand] & (room[operand] == room[source]))
    if plain.all():                                         # every move stays among parts of one length
        return _longest(room[source], plan.count)
    held = np.full(len(room), NONE, np.int64)               # the length of what a location holds; NONE: nothing yet
    for rank, ranges in enumerate(starts(table)):
        for name, chunks in ranges.items():
            index = index_of(table, name)
            first = int(plan.base[index]) + rank * table.buffers[index].chunks
            held[first + chunks.start : first + chunks.stop] = room[first + chunks.start : first + chunks.stop]
    moved = np.zeros(len(target), np.int64)
    group = plan.group[owner]
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(group)) + 1, [len(group)]]).tolist()
    for a, b in pairwise(bounds):
        to, value, with_ = target[a:b], held[source[a:b]], operand[a:b]
        other = held[with_]
        unequal = (with_ != NONE) & (other != value) & (value != NONE) & (other != NONE)
        wrong = np.flatnonzero((value > room[to]) | unequal)
        if len(wrong):
            k = int(wrong[0])
            limit = other[k] if unequal[k] else room[to[k]]
            raise misfit(bound.layout, int(plan.row[owner[a + k]]), int(value[k]), int(limit), bool(unequal[k]))
        held[to] = moved[a:b] = value
    return _longest(moved, plan.count)


def _longest(values: Array, count: Array) -> Array:
    return values if len(values) == len(count) else np.maximum.reduceat(values, np.cumsum(count) - count)


def _rooms(table: OpTable, plan: Plan, bound: Bound) -> tuple[Array, Array]:
    """Per location, the length of its part, and whether that is its own (scratch parts have the longest there is)."""
    room = np.zeros(plan.locations, np.int64)
    own = np.zeros(plan.locations, bool)
    for index, buffer in enumerate(table.buffers):
        for rank in range(table.ranks) if buffer.only is None else [buffer.only]:
            first = int(plan.base[index]) + rank * buffer.chunks
            room[first : first + buffer.chunks] = bound.lengths(index, rank, range(buffer.chunks))
            own[first : first + buffer.chunks] = buffer.role != "scratch"
    return room, own
