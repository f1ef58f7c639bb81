"""Formulas as text in the language's notation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import gcd

import numpy as np

from schedlang.ir.loops.formulas import Affine, Formula, Lookup, Modular
from schedlang.ir.table import Array
from schedlang.lift.formulas import Among, Seated, Single, Xor
from schedlang.lift.names import VARIABLES

INDENT = "    "
INLINE = 8
"""A table of one axis and so few entries stands where it is used."""


@dataclass(frozen=True)
class Coordinate:
    """A variable that a formula may name, of ``count`` values. It is ``start`` where the formula counts 0; ``places``:
    for that of the ranks, those it runs over, in order. ``name`` is empty where there is nothing to run over."""

    name: str
    start: int = 0
    count: int = 1
    places: Array | None = None


@dataclass(eq=False)
class Tables:
    """The lists that formulas look things up in, each with a name; ``world``: how many ranks there are."""

    world: int
    taken: set[str]
    named: dict[tuple[tuple[int, ...], bytes], str] = field(default_factory=dict)
    values: dict[str, Array] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def name(self, values: Array, word: str) -> str:
        """The name of a list of these values, a new one where there is none."""
        key = values.shape, values.tobytes()
        if key not in self.named:
            name, number = word, 1
            while name in self.taken:
                number += 1
                name = f"{word}{number}"
            self.taken.add(name)
            self.named[key], self.values[name] = name, values
        return self.named[key]


def phrase(formula: Formula, at: Sequence[Coordinate], tables: Tables, word: str, more: int = 0) -> str:
    """A formula plus ``more`` as an expression; ``word``: what a list that it needs may be called."""
    if isinstance(formula, Affine):
        return _sum(_terms(formula, at, more))
    if isinstance(formula, Lookup):
        return _sum([_looked_up(formula, at, tables, word), *_terms(formula.base, at, more)])
    if isinstance(formula, Seated):
        row = f"[{at[1].name}{f' - {at[1].start}' if at[1].start else ''}]" if len(formula.rings) > 1 else ""
        rank = f"{ring_name(formula.rings, tables)}{row}[{phrase(formula.seat, at, tables, word)}]"
        scaled = rank if formula.scale == 1 else f"{formula.scale} * {rank}"
        base = phrase(formula.base, at, tables, word, more)
        return scaled if base == "0" else f"{base} + {scaled}"
    if isinstance(formula, Xor):
        rank = f"{at[0].name} ^ {formula.mask}"
        rest = _terms(formula.base, at, more)
        scaled = f"({rank})" if formula.scale == 1 else f"{formula.scale} * ({rank})"
        return _sum([(1, scaled), *rest]) if rest or formula.scale != 1 else rank
    if isinstance(formula, Single):
        return _single(formula, at, more)
    if isinstance(formula, Among):
        place = (1 if formula.scale > 0 else -1, _times(formula.scale, slot(at[formula.axis].name, at[0].name)))
        if isinstance(formula.base, Affine):
            return _sum([place, *_terms(formula.base, at, more)])
        return _sum([(1, phrase(formula.base, at, tables, word, more)), place])
    assert isinstance(formula, Modular)
    return _sum([(1, _modular(formula, at, tables, word)), *_terms(formula.base, at, more)])


def slot(rank: str, anchor: str) -> str:
    """The place of a rank among the ranks other than the anchor."""
    return f"({rank} if {rank} < {anchor} else {rank} - 1)"


def first(anchor: str) -> str:
    """The first of the ranks other than the anchor."""
    return _case(1, anchor, 0, 0)


def _case(one: int, anchor: str, rank: int, others: int) -> str:
    return f"({one} if {anchor} == {rank} else {others})"


def _single(formula: Single, at: Sequence[Coordinate], more: int) -> str:
    base, anchor = replace(formula.base, offset=formula.base.offset + more), at[0].name
    if base.constant:
        return _case(base.offset + formula.extra, anchor, formula.rank, base.offset)
    extra = _times(formula.extra, _case(1, anchor, formula.rank, 0))
    return _sum([(1 if formula.extra > 0 else -1, extra), *_terms(base, at)])


def _times(scale: int, text: str) -> str:
    return text if abs(scale) == 1 else f"{abs(scale)} * {text}"


def ring_name(rings: Array, tables: Tables) -> str:
    """What the ranks of rings, in their order, are called."""
    return tables.name(np.ascontiguousarray(rings if len(rings) > 1 else rings[0]), "ring")


def _terms(formula: Affine, at: Sequence[Coordinate], more: int = 0) -> list[tuple[int, str]]:
    """What is added up: (1 or -1, text), constants last."""
    offset = formula.offset + more
    found = []
    for slope, c in sorted(zip(formula.slopes, at, strict=True), key=lambda pair: pair[1].name != VARIABLES[0]):
        if slope:
            offset -= slope * c.start
            found.append((1 if slope > 0 else -1, _times(slope, c.name)))
    return [*found, *([(1 if offset > 0 else -1, str(abs(offset)))] if offset else [])]


def _sum(terms: Sequence[tuple[int, str]]) -> str:
    """Terms, those that are added first."""
    ordered = [t for t in terms if t[0] > 0] + [t for t in terms if t[0] < 0]
    if not ordered:
        return "0"
    (sign, first), *rest = ordered
    return ("-" if sign < 0 else "") + first + "".join(f" {'+' if s > 0 else '-'} {text}" for s, text in rest)


def _modular(formula: Modular, at: Sequence[Coordinate], tables: Tables, word: str) -> str:
    modulus, inside = formula.modulus, formula.inside
    if isinstance(inside, Lookup):
        text = _sum([_looked_up(inside, at, tables, word), *_terms(inside.base, at)])
        return f"({text}) % {_size(modulus, tables)}"
    blocks = _blocks(inside, modulus, at)
    if blocks is not None:
        whole = _modular(Modular(formula.base, blocks[0], modulus), at, tables, word)
        return _sum([(1, whole), *_terms(blocks[1], at)])
    offset = inside.offset - sum(s * c.start for s, c in zip(inside.slopes, at, strict=True))
    factor = gcd(modulus, offset, *inside.slopes)
    modulus //= factor
    offset = offset // factor % modulus
    if 2 * offset > modulus:
        offset -= modulus
    slopes = tuple(s // factor for s in inside.slopes)
    terms = _terms(Affine(offset, slopes), [Coordinate(c.name) for c in at])
    text = _sum(terms)
    rest = f"{text if len(terms) == 1 and text.isidentifier() else f'({text})'} % {_size(modulus, tables)}"
    return rest if factor == 1 else f"{factor} * ({rest})"


def _blocks(inside: Affine, modulus: int, at: Sequence[Coordinate]) -> tuple[Affine, Affine] | None:
    """What is under a modulus as whole blocks, and what stays within one: ``(8 * r + c) % 64`` is ``8 * r % 64 + c``
    where c is less than 8. None where it is not so."""
    if any(c.places is not None and slope and (c.places.max() >= modulus or c.places.min() < 0)
           for slope, c in zip(inside.slopes, at, strict=True)):
        return None
    for block in sorted({abs(s) for s in inside.slopes if abs(s) > 1}, reverse=True):
        if modulus % block or block == modulus:
            continue
        within = [s if s % block else 0 for s in inside.slopes]
        if not any(within) or any(s < 0 for s in within) or any(
                s and c.places is not None for s, c in zip(within, at, strict=True)):
            continue
        start = inside.offset % block
        if start + sum(s * (c.count - 1) for s, c in zip(within, at, strict=True)) < block:
            whole = tuple(s if s % block == 0 else 0 for s in inside.slopes)
            return Affine(inside.offset - start, whole), Affine(start, tuple(within))
    return None


def _size(modulus: int, tables: Tables) -> str:
    return "ranks" if modulus == tables.world else str(modulus)


def _looked_up(formula: Lookup, at: Sequence[Coordinate], tables: Tables, word: str) -> tuple[int, str]:
    values, index = formula.values, []
    for axis, c in enumerate(at):
        if values.shape[axis] == 1:
            continue
        if c.places is None:
            index.append(f"{c.name} - {c.start}" if c.start else c.name)
            continue
        low, gaps = int(c.places[0]), np.unique(np.diff(c.places))
        if len(gaps) == 1 and gaps[0] == 1:
            index.append(f"{c.name} - {low}" if low else c.name)
        else:
            wide = np.zeros([int(c.places[-1]) + 1 if k == axis else n for k, n in enumerate(values.shape)], np.int64)
            wide[(slice(None),) * axis + (c.places,)] = values
            values = wide
            index.append(c.name)
    values = values.reshape([n for n in values.shape if n > 1])
    if values.ndim == 1 and len(values) <= INLINE:
        name = f"[{', '.join(map(str, values.tolist()))}]"
    else:
        name = tables.name(np.ascontiguousarray(values), word)
        tables.used.add(name)
    return 1, name + "".join(f"[{i}]" for i in index)


def listed(name: str, values: Array, width: int) -> list[str]:
    """The lines of ``let NAME = [...]``, no wider than ``width`` if that can be."""
    text = f"let {name} = {_nested(values)}"
    return [text] if len(text) <= width else [f"let {name} = [", *_items(values, width - len(INDENT)), "]"]


def _items(values: Array, width: int) -> list[str]:
    """The lines of the items of a list: as many on each as have room; one that has none is broken itself."""
    found: list[str] = []
    row = ""
    for part in values:
        text = _nested(part)
        if row and len(row) + len(text) + 3 > width:
            found.append(f"{INDENT}{row},")
            row = ""
        if len(text) >= width and isinstance(part, np.ndarray):
            found += [f"{INDENT}[", *(INDENT + line for line in _items(part, width - len(INDENT))), f"{INDENT}],"]
        else:
            row += f"{', ' if row else ''}{text}"
    return [*found, *([f"{INDENT}{row},"] if row else [])]


def _nested(values: Array) -> str:
    if isinstance(values, np.ndarray):
        return f"[{', '.join(map(_nested, values))}]"
    return str(int(values))
