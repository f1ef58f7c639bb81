"""More forms of formulas than the tables' loops have, for numbers that people would write with them: by a place in a
ring, with an exclusive or, with a coordinate both under a modulus and before it, of one rank another than of the rest,
by a place among the other ranks.
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


@dataclass(frozen=True, eq=False)
class Single:
    """``base``, plus ``extra`` where the anchor is ``rank``."""

    base: Affine
    extra: int
    rank: int

    def __call__(self, coordinates: Sequence[Array]) -> Array:
        return np.asarray(self.base(coordinates) + self.extra * (coordinates[0] == self.rank))

    def text(self, names: Sequence[str]) -> str:
        return f"{self.base.text(names)} + ({self.extra} if {names[0]} == {self.rank} else 0)"


@dataclass(frozen=True, eq=False)
class Among:
    """``base``, plus ``scale`` times the place that the coordinate of an axis has among the ranks but for the anchor:
    ``p if p < r else p - 1``."""

    base: Formula
    scale: int
    axis: int

    def __call__(self, coordinates: Sequence[Array]) -> Array:
        at = coordinates[self.axis].astype(np.int64)
        return np.asarray(self.base(coordinates) + self.scale * (at - (at > coordinates[0])))

    def text(self, names: Sequence[str]) -> str:
        p, r = names[self.axis], names[0]
        return f"{self.base.text(names)} + {self.scale} * ({p} if {p} < {r} else {p} - 1)"


def fitted(values: Array, anchors: Array) -> Formula:
    """A formula for values that have an axis for the anchors, then others: what :func:`fit` finds, or, where that is a
    table, one with a coordinate both under the modulus and before it, one that is another for one anchor, or one with
    an exclusive or of the anchor."""
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
                found = sloped(made, axis, outside)
                assert found is not None
                return found
    return _single(values, anchors) or _exclusive(values, anchors) or plain


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


def sloped(formula: Formula, axis: int, slope: int) -> Formula | None:
    """A formula, plus ``slope`` times a coordinate; None for those that have no form with it."""
    if isinstance(formula, Affine):
        return Affine(formula.offset, tuple(s + slope * (k == axis) for k, s in enumerate(formula.slopes)))
    if isinstance(formula, (Lookup, Modular, Xor, Single)):
        base = sloped(formula.base, axis, slope)
        assert isinstance(base, Affine)
        return replace(formula, base=base)
    if isinstance(formula, Among):
        inside = sloped(formula.base, axis, slope)
        return None if inside is None else replace(formula, base=inside)
    return None


def _single(values: Array, anchors: Array) -> Single | None:
    """An affine formula, but for one anchor that has more or less, if that is what values are."""
    along = values[(slice(None),) + (0,) * (values.ndim - 1)].astype(np.int64)
    if len(along) < 3:
        return None
    found, count = np.unique(along, return_counts=True)
    if len(found) != 2 or 1 not in count:
        return None
    usual, other = found[np.argsort(count)[::-1]].tolist()
    at = int(np.argmax(along == other))
    rest = values.astype(np.int64)
    rest[at] -= other - usual
    base = fit(rest, anchors)
    return Single(base, other - usual, int(anchors[at])) if isinstance(base, Affine) else None


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
    if isinstance(formula, (Seated, Xor, Single)):
        return None
    if isinstance(formula, Among):
        return tabled(formula.base)
    inside = formula.inside if isinstance(formula, Modular) else formula
    return inside if isinstance(inside, Lookup) else None


def weight(formula: Formula) -> int:
    if isinstance(formula, Affine):
        return sum(slope != 0 for slope in formula.slopes)
    if isinstance(formula, Seated):
        return 1 + weight(formula.seat) + weight(formula.base)
    if isinstance(formula, Xor):
        return 2 + weight(formula.base)
    if isinstance(formula, (Single, Among)):
        return 3 + weight(formula.base)
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
    if isinstance(formula, (Xor, Single)):
        return axis == 0 or uses(formula.base, axis)
    if isinstance(formula, Among):
        return axis in (0, formula.axis) or uses(formula.base, axis)
    assert isinstance(formula, Modular)
    return uses(formula.base, axis) or uses(formula.inside, axis)
