"""More forms of formulas than the tables' loops have, for numbers that people would write with them: by a place in a
ring, with an exclusive or, with a coordinate both under a modulus and before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from schedlang.ir.loops.formulas import Affine, Formula, Lookup, Modular, fit
from schedlang.ir.table import Array

TABLE = 6
"""What a table costs to read beside its entries."""


@dataclass(frozen=True, eq=False)
class Seated:
    """``base + scale * rings[axis 1][seat]``: a rank by its place in a ring."""

    base: Formula
    scale: int
    seat: Formula
    rings: Array

    def __call__(self, coordinates: Sequence[Array]) -> Array:
        at = self.rings[coordinates[1], self.seat(coordinates)]
        return np.asarray(self.base(coordinates) + self.scale * at)

    def text(self, names: Sequence[str]) -> str:
        return f"{self.base.text(names)} + {self.scale} * ring[{names[1]}][{self.seat.text(names)}]"


@dataclass(frozen=True, eq=False)
class Xor:
    """``base + scale * (anchor ^ mask)``."""

    base: Affine
    scale: int
    mask: int

    def __call__(self, coordinates: Sequence[Array]) -> Array:
        return np.asarray(self.base(coordinates) + self.scale * (coordinates[0].astype(np.int64) ^ self.mask))

    def text(self, names: Sequence[str]) -> str:
        return f"{self.base.text(names)} + {self.scale} * ({names[0]} ^ {self.mask})"


def fitted(values: Array, anchors: Array) -> Formula:
    """A formula for values that have an axis for the anchors, then others: what :func:`fit` finds, or, where that is a
    table, one with a coordinate both under the modulus and before it, or with an exclusive or of the anchor."""
    if values.size == 1:
        return Affine(int(values.flat[0]), (0,) * values.ndim)
    plain = fit(values, anchors)
    if tabled(plain) is None:
        return plain
    for axis, size in enumerate(values.shape):
        coordinate = anchors if axis == 0 else np.arange(size)
        where = coordinate.reshape([-1 if k == axis else 1 for k in range(values.ndim)])
        for outside in _outside(values, axis, where):
            made = fit(values - outside * where, anchors)
            if tabled(made) is None:
                return _sloped(made, axis, outside)
    return _exclusive(values, anchors) or plain


def _outside(values: Array, axis: int, where: Array) -> list[int]:
    """What values may rise by along an axis besides what a modulus wraps."""
    if values.shape[axis] < 2:
        return []
    steps = np.unique(np.diff(values, axis=axis))
    gap = np.unique(np.diff(where.ravel()))
    if len(steps) != 2 or len(gap) != 1:
        return []
    found = {int(s) // int(gap[0]) + t for s in steps for t in (-1, 1)}
    return sorted(found - {0}, key=abs)


def _sloped(formula: Formula, axis: int, slope: int) -> Formula:
    """A formula without a table, plus ``slope`` times a coordinate."""
    if isinstance(formula, Affine):
        return Affine(formula.offset, tuple(s + slope * (k == axis) for k, s in enumerate(formula.slopes)))
    assert isinstance(formula, Modular)
    base = _sloped(formula.base, axis, slope)
    assert isinstance(base, Affine)
    return replace(formula, base=base)


def _exclusive(values: Array, anchors: Array) -> Xor | None:
    """``base + scale * (anchor ^ mask)``, if that is what values are."""
    along = values[(slice(None),) + (0,) * (values.ndim - 1)].astype(np.int64)
    if len(along) < 2:
        return None
    scale = int(np.gcd.reduce(np.diff(along)))
    rest = values - along.reshape([-1] + [1] * (values.ndim - 1))
    base = fit(rest, anchors)
    if not scale or not isinstance(base, Affine):
        return None
    for mask in range(1, 2 * int(anchors.max())):
        apart = along - scale * (anchors ^ mask)
        if (apart == apart[0]).all():
            return Xor(replace(base, offset=base.offset + int(apart[0])), scale, mask)
    return None


def tabled(formula: Formula) -> Lookup | None:
    """The table in a formula."""
    if isinstance(formula, (Seated, Xor)):
        return None
    inside = formula.inside if isinstance(formula, Modular) else formula
    return inside if isinstance(inside, Lookup) else None


def weight(formula: Formula) -> int:
    if isinstance(formula, Affine):
        return sum(slope != 0 for slope in formula.slopes)
    if isinstance(formula, Seated):
        return 1 + weight(formula.seat) + weight(formula.base)
    if isinstance(formula, Xor):
        return 2 + weight(formula.base)
    table = tabled(formula)
    if table is not None:
        return TABLE + table.values.size
    assert isinstance(formula, Modular)
    return 1 + weight(formula.base) + weight(formula.inside)


def uses(formula: Formula, axis: int) -> bool:
    """Whether a formula depends on a coordinate."""
    if isinstance(formula, Affine):
        return formula.slopes[axis] != 0
    if isinstance(formula, Lookup):
        return formula.base.slopes[axis] != 0 or formula.values.shape[axis] > 1
    if isinstance(formula, Seated):
        return axis < 2 or uses(formula.base, axis) or uses(formula.seat, axis)
    if isinstance(formula, Xor):
        return axis == 0 or uses(formula.base, axis)
    assert isinstance(formula, Modular)
    return uses(formula.base, axis) or uses(formula.inside, axis)
