"""Loops over the ranks but for some: those that are not the rank itself, say.

The coordinate of such a loop is a rank, and which ranks there are depends on the coordinates outside; so there are
fewer turns than values, and what holds of it is fitted turn by turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from schedlang.ir.loops.formulas import Affine, Formula, Lookup, Modular
from schedlang.ir.table import Array
from schedlang.lift.formulas import Among, sloped, tabled

MOST_OUT = 3
"""So many ranks at most are left out."""

Loops = Mapping[int, Array]
"""Coordinates by axis, with an entry for each turn of the axes outside; axes that are not there count from 0."""

Dense = Callable[[Array], Formula]
"""How values get a formula in which no coordinate leaves out any."""


def left_out(x: Array, world: int, anchors: Array, loops: Loops, dense: Dense) -> tuple[Formula, ...] | None:
    """The ranks that a loop does not go over, as formulas in the coordinates outside. ``x``: those it does, along the
    last axis. None where these are all, or most are left out, or they are not in order, or no formulas say which."""
    turns = x.shape[-1]
    if turns < 2 or not 1 <= world - turns <= MOST_OUT or not (np.diff(x) > 0).all():
        return None
    there = np.zeros((*x.shape[:-1], world), bool)
    np.put_along_axis(there, x, True, axis=-1)
    missing = np.nonzero(~there)[-1].reshape(*x.shape[:-1], world - turns)
    axes = x.ndim - 1
    found: list[Formula] = []
    for axis in (0, *sorted(loops)):
        rank = _spread(anchors, 0, axes) if axis == 0 else _padded(loops[axis], axes)
        this = missing == rank[..., None]
        if not this.any(-1).all():
            continue
        found.append(Affine(0, tuple(int(k == axis) for k in range(axes))) if axis or len(anchors) > 1
                     else Affine(int(anchors[0]), (0,) * axes))
        missing = missing[~this].reshape(*x.shape[:-1], missing.shape[-1] - 1)
    for values in np.moveaxis(missing, -1, 0):
        formula = fitted_in(values, anchors, world, loops, dense)
        if tabled(formula) is not None:
            return None
        found.append(formula)
    return tuple(found)


def fitted_in(values: Array, anchors: Array, world: int, loops: Loops, dense: Dense) -> Formula:
    """A formula for values with an axis for the anchors, then others, those of ``loops`` with these coordinates: a
    table where there is none else."""
    while loops:
        axis = max(loops)
        outside = {k: x for k, x in loops.items() if k != axis}
        if values.shape[axis] == 1 or (values == values.take([0], axis)).all():
            values, loops = values.take([0], axis), outside
            continue
        x = np.broadcast_to(_padded(loops[axis], values.ndim), values.shape)
        for coordinate, told in _views(x, axis, anchors, world):
            slope = _slope(values, coordinate, axis)
            if slope is not None:
                base = fitted_in((values - slope * coordinate).take([0], axis), anchors, world, outside, dense)
                formula = told(base, slope)
                if formula is not None and tabled(formula) is None:
                    return formula
        return _table(values, anchors, world, loops)
    return dense(values)


def _views(x: Array, axis: int, anchors: Array, world: int) -> Iterator[
        tuple[Array, Callable[[Formula, int], Formula | None]]]:
    """What a rank may count as: itself, its place among the others, how far it is from the anchor; and the formula of
    something plus so many times that."""
    yield x, lambda base, slope: sloped(base, axis, slope)
    if len(anchors) == 1:
        return
    r = _spread(anchors, 0, x.ndim)
    yield x - (x > r), lambda base, slope: Among(base, slope, axis)
    for sign in (1, -1):
        yield sign * (x - r) % world, partial(_away, axis=axis, sign=sign, world=world)


def _away(base: Formula, slope: int, axis: int, sign: int, world: int) -> Formula | None:
    if slope < 0 or not isinstance(base, Affine):
        return None
    step = sign * slope
    inside = tuple(step * ((k == axis) - (k == 0)) for k in range(len(base.slopes)))
    return Modular(base, Affine(0, inside), slope * world)


def _slope(values: Array, coordinate: Array, axis: int) -> int | None:
    """How much values rise with a coordinate along an axis; None if it is not everywhere the same."""
    rise, run = np.diff(values, axis=axis), np.diff(coordinate, axis=axis)
    at = np.unravel_index(int(np.argmax(run != 0)), run.shape)
    if not run[at] or rise[at] % run[at]:
        return None
    slope = int(rise[at] // run[at])
    return slope if slope and (rise == slope * run).all() else None


def _table(values: Array, anchors: Array, world: int, loops: Loops) -> Lookup:
    """A table by all coordinates, with 0 where there are no values."""
    shape = [world if axis in loops else size for axis, size in enumerate(values.shape)]
    at = tuple(_padded(loops[axis], values.ndim) if axis in loops else _spread(np.arange(size), axis, values.ndim)
               for axis, size in enumerate(values.shape))
    table = np.zeros(shape, np.int64)
    table[at] = values
    return Lookup(Affine(0, (0,) * values.ndim), table, anchors)


def _padded(x: Array, axes: int) -> Array:
    return x.reshape(x.shape + (1,) * (axes - x.ndim))


def _spread(x: Array, axis: int, axes: int) -> Array:
    return x.reshape([-1 if k == axis else 1 for k in range(axes)])
