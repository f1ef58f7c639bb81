"""Integers as functions of the rank and the loop variables round them: affine, modular, or looked up in a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from schedlang.ir.table import Array


class Formula(Protocol):
    """A function of the coordinates: the rank first, then the loop variables from the outermost in."""

    def __call__(self, coordinates: Sequence[Array]) -> Array:
        """Its values (int64). Coordinates are integer arrays that broadcast against each other."""
        ...

    def text(self, names: Sequence[str]) -> str:
        """The formula in the language's own notation; ``names`` are those of the coordinates."""
        ...


@dataclass(frozen=True, slots=True)
class Affine:
    """``offset + sum(slopes[k] * coordinate[k])``."""

    offset: int
    slopes: tuple[int, ...]

    def __call__(self, coordinates: Sequence[Array]) -> Array:
        total = np.int64(self.offset)
        for slope, coordinate in zip(self.slopes, coordinates, strict=True):
            if slope:
                total = total + slope * coordinate.astype(np.int64)
        return np.asarray(total)

    @property
    def constant(self) -> bool:
        """Whether it is the same at all coordinates."""
        return not any(self.slopes)

    def text(self, names: Sequence[str]) -> str:
        parts = []
        for slope, name in zip(self.slopes, names, strict=True):
            if slope:
                parts.append(("-" if slope < 0 else "+", name if abs(slope) == 1 else f"{abs(slope)} * {name}"))
        parts.sort()  # those that are added first
        if self.offset or not parts:
            parts.append(("-" if self.offset < 0 else "+", str(abs(self.offset))))
        first, *rest = parts
        return ("-" if first[0] == "-" else "") + first[1] + "".join(f" {sign} {term}" for sign, term in rest)


@dataclass(frozen=True, eq=False)
class Lookup:
    """``base + values[coordinate ...]``.

    ``values`` has one axis for each coordinate, of length 1 where the coordinate makes no difference. The first axis is
    read by the rank's place in the program's ranks, the others by the loop variables.
    """

    base: Affine
    values: Array
    ranks: Array

    def __call__(self, coordinates: Sequence[Array]) -> Array:
        places = [np.searchsorted(self.ranks, coordinates[0]), *coordinates[1:]]
        at = tuple(p if n > 1 else 0 for p, n in zip(places, self.values.shape, strict=True))
        return np.asarray(self.base(coordinates) + self.values[at])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lookup) and self.base == other.base and np.array_equal(self.values, other.values) \
            and np.array_equal(self.ranks, other.ranks)

    def __hash__(self) -> int:
        return hash((self.base, self.values.shape))

    def text(self, names: Sequence[str]) -> str:
        used = [name for name, n in zip(names, self.values.shape, strict=True) if n > 1]
        if len(used) == 1 and self.values.size <= 16:
            values = list(map(str, self.values.ravel().tolist()))
            if used[0] == names[0] and self.ranks.tolist() != list(range(len(values))):
                pairs = (f"{r}: {v}" for r, v in zip(self.ranks.tolist(), values, strict=True))
                table = f"{{{', '.join(pairs)}}}[{used[0]}]"
            else:
                table = f"[{', '.join(values)}][{used[0]}]"
        else:
            table = f"table[{', '.join(used)}]"
        if self.base == Affine(0, (0,) * len(self.base.slopes)):
            return table
        return f"{self.base.text(names)} + {table}"


@dataclass(frozen=True, slots=True)
class Modular:
    """``base + inside % modulus``; ``inside`` is affine, or has a table added."""

    base: Affine
    inside: Affine | Lookup
    modulus: int

    def __call__(self, coordinates: Sequence[Array]) -> Array:
        return np.asarray(self.base(coordinates) + self.inside(coordinates) % self.modulus)

    def text(self, names: Sequence[str]) -> str:
        text = self.inside.text(names)
        inside = f"{text if text in names else f'({text})'} % {self.modulus}"
        return inside if self.base.constant and not self.base.offset else f"{self.base.text(names)} + {inside}"


def fit(values: Array, ranks: Array) -> Affine | Modular | Lookup:
    """A formula for ``values`` (integers, one axis for the ranks and one for each loop variable), true of all of them.

    ``ranks``: int array, increasing, the coordinates of the first axis. What fits no affine or modular formula becomes
    a table over the coordinates that matter.
    """
    flat = (0,) * values.ndim
    first = int(values[flat])
    if (values == first).all():
        return Affine(first, flat)
    values = values.astype(np.int64)
    axes = [_steps(values, axis, ranks) for axis in range(values.ndim)]
    moduli = [hi - lo for lo, hi, _ in (a for a in axes if a is not None) if hi != lo]
    if not moduli:
        return _tabled(values, ranks, [None if a is None else _slope(a, None) for a in axes])
    for modulus in dict.fromkeys(moduli):
        regular = [None if a is None or a[1] - a[0] not in (0, modulus) else a for a in axes]
        for all_inside in (True, False):  # whether steps that never wrap round count under the modulus, too
            inside = [a is not None and (all_inside or a[1] != a[0]) for a in regular]
            slopes = [None if a is None else _slope(a, modulus if i else None)
                      for a, i in zip(regular, inside, strict=True)]
            if found := _modular(values, ranks, slopes, inside, modulus):
                return found
    return _tabled(values, ranks, [None if a is None or a[0] != a[1] else _slope(a, None) for a in axes])


def _steps(values: Array, axis: int, ranks: Array) -> tuple[int, int, int] | None:
    """The one or two values by which ``values`` change along an axis, and the distance of coordinates; None:
    irregular."""
    if values.shape[axis] == 1:
        return 0, 0, 1
    distance = 1
    if axis == 0:
        gaps = np.diff(ranks)
        distance = int(gaps[0])
        if (gaps != distance).any():
            return (0, 0, 1) if (values == values[:1]).all() else None
    changes = np.diff(values, axis=axis)
    lo, hi = int(changes.min()), int(changes.max())
    return (lo, hi, distance) if lo == hi or ((changes == lo) | (changes == hi)).all() else None


def _slope(step: tuple[int, int, int], modulus: int | None) -> int | None:
    """The change for each unit of the coordinate, the smallest of those that are equal modulo ``modulus``."""
    lo, hi, distance = step
    changes = {lo, hi} if modulus is None else {lo, hi, lo + modulus, hi - modulus}
    slopes = sorted((c // distance for c in changes if c % distance == 0), key=lambda s: (abs(s), -s))
    return slopes[0] if slopes else None


def _coordinates(values: Array, ranks: Array) -> list[Array]:
    shape = values.shape
    return [np.asarray(ranks if k == 0 else np.arange(n)).reshape([n if j == k else 1 for j in range(len(shape))])
            for k, n in enumerate(shape)]


def _reduced(values: Array, kept: list[bool]) -> Array | None:
    """``values`` without the axes that are not kept; None if they make a difference."""
    small = values[tuple(slice(None) if k else slice(0, 1) for k in kept)]
    return small if (values == small).all() else None


def _tabled(values: Array, ranks: Array, slopes: list[int | None]) -> Affine | Lookup:
    """An affine formula in the axes that have a slope, plus a table over the others."""
    base = Affine(0, tuple(s or 0 for s in slopes))
    rest = values - base(_coordinates(values, ranks))
    table = _reduced(rest, [s is None for s in slopes])
    if table is None:  # a slope holds along an axis only by itself; cannot happen where changes are the same everywhere
        base, table = Affine(0, (0,) * values.ndim), values
    if table.size == 1:
        return Affine(int(table.ravel()[0]), base.slopes)
    return Lookup(base, table, ranks)


def _modular(values: Array, ranks: Array, slopes: list[int | None], inside: list[bool], modulus: int) -> Modular | None:
    """A formula with the axes of ``inside`` under the modulus and the others before it, if there is one."""
    where = _coordinates(values, ranks)
    outer = tuple(0 if i or s is None else s for s, i in zip(slopes, inside, strict=True))
    inner = tuple(s if i and s is not None else 0 for s, i in zip(slopes, inside, strict=True))
    rest = values - Affine(0, outer)(where)
    low = int(rest.min())
    if int(rest.max()) - low >= modulus:
        return None
    start = low // modulus * modulus
    if int(rest.max()) >= start + modulus:
        start = low
    seed = (rest - start - Affine(0, inner)(where)) % modulus
    table = _reduced(seed, [s is None for s in slopes])
    if table is None:
        return None
    base = Affine(start, outer)
    if table.size == 1:
        offset = int(table.ravel()[0])
        return Modular(base, Affine(offset - modulus if 2 * offset > modulus else offset, inner), modulus)
    return Modular(base, Lookup(Affine(0, inner), table, ranks), modulus)
