"""Formulas as Python expressions; what is irregular as a literal that they look things up in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from schedlang.ir.loops.formulas import Affine, Formula, Lookup, Modular, fit
from schedlang.ir.table import Array

INLINE = 8
"""A table of one axis and so few entries stands where it is used."""


@dataclass
class Tables:
    """The literals of a file: name -> lines. Equal ones are one."""

    made: dict[str, list[str]] = field(default_factory=dict)
    _known: dict[tuple[object, ...], str] = field(default_factory=dict)

    def name(self, word: str, values: Array, ranks: Array | None) -> str:
        """The name of a table; with ``ranks``, its first axis is looked up by rank."""
        key = values.shape, values.tobytes(), None if ranks is None else ranks.tobytes()
        if key not in self._known:
            name, number = word.upper(), 1
            while name in self.made:
                number += 1
                name = f"{word.upper()}_{number}"
            self._known[key] = name
            self.made[name] = literal(name, values, ranks)
        return self._known[key]


def expression(formula: Formula, names: Sequence[str], counts: Sequence[int], ranks: Array, tables: Tables,
               word: str) -> str:
    """A formula over (rank, loop variables ...) in Python. ``counts``: how many values each coordinate has, the ranks
    being ``ranks``. ``word``: what a table that it needs is called."""
    lookup = formula.inside if isinstance(formula, Modular) else formula
    if not isinstance(lookup, Lookup):
        return formula.text(names)
    shape = [len(ranks) if k == 0 else n for k, n in enumerate(counts)]
    axes = [ranks, *(np.arange(n) for n in counts[1:])]
    coordinates = [axis.reshape([-1 if j == k else 1 for j in range(len(shape))]) for k, axis in enumerate(axes)]
    values = np.broadcast_to(formula(coordinates), shape).astype(np.int64)
    found = next(_regular(values, coordinates, names), None)
    if found is not None:
        return found
    if isinstance(formula, Modular):
        power = next(_power_within(lookup, formula.modulus, names), None)
        table = power or _looked_up(lookup, names, ranks, tables, word)
        inside = f"({table}) % {formula.modulus}"
        return inside if formula.base.constant and not formula.base.offset else f"{formula.base.text(names)} + {inside}"
    return _looked_up(lookup, names, ranks, tables, word)


def _looked_up(lookup: Lookup, names: Sequence[str], ranks: Array, tables: Tables, word: str) -> str:
    used = [k for k, n in enumerate(lookup.values.shape) if n > 1]
    values = lookup.values.reshape([lookup.values.shape[k] for k in used])
    by_rank = ranks if used[0] == 0 and ranks.tolist() != list(range(len(ranks))) else None
    if len(used) == 1 and len(values) <= INLINE:
        if by_rank is None:
            table = str(values.tolist())
        else:
            table = "{" + ", ".join(f"{r}: {v}" for r, v in zip(ranks.tolist(), values.tolist(), strict=True)) + "}"
    else:
        table = tables.name(word, values, by_rank)
    text = table + "".join(f"[{names[k]}]" for k in used)
    return text if lookup.base.constant and not lookup.base.offset else f"{lookup.base.text(names)} + {text}"


def literal(name: str, values: Array | list[Any], ranks: Array | None = None) -> list[str]:
    """An assignment of a list, or, with ``ranks``, of a dict by rank."""
    rows = values.tolist() if isinstance(values, np.ndarray) else values
    if ranks is not None:
        entries = [f"{rank}: {row}" for rank, row in zip(ranks.tolist(), rows, strict=True)]
    else:
        entries = list(map(str, rows))
    opening, closing = ("{", "}") if ranks is not None else ("[", "]")
    lines, line = [f"{name} = {opening}"], "   "
    for entry in entries:
        if len(line) + len(entry) > 116 and line.strip():
            lines.append(line)
            line = "   "
        line += f" {entry},"
    return [*lines, line, closing]


# What people write with powers of two, exclusive or, comparisons and quotients


def _regular(values: Array, coordinates: list[Array], names: Sequence[str]) -> Iterator[str]:
    """Expressions without a table that are, for every coordinate, these values; none where nothing fits."""
    rank, ranks = names[0], coordinates[0]
    yield from _powers(values, names)
    for k in range(1, len(names)):                          # all others but oneself
        if np.array_equal(values, np.broadcast_to(coordinates[k] + (coordinates[k] >= ranks), values.shape)):
            yield f"{names[k]} + ({names[k]} >= {rank})"
    for text, width in _widths(values.shape, names):
        partner = ranks ^ width
        for base, what in ((f"({rank} ^ {text})", partner), (rank, ranks)):
            if what is partner and np.array_equal(values, np.broadcast_to(what, values.shape)):
                yield f"{rank} ^ {text}"
            for times in (1, 2):
                wide = text if times == 1 else _doubled(text)
                if np.array_equal(values, np.broadcast_to(what // (width * times) * (width * times), values.shape)):
                    yield f"{base} // {wide} * {wide}"
    yield from _quotients(values, ranks, names)


def _powers(values: Array, names: Sequence[str]) -> Iterator[str]:
    """``c << i`` or ``c >> i`` in one loop variable."""
    for k in range(1, len(names)):
        along = np.moveaxis(values, k, 0).reshape(values.shape[k], -1)
        if not (along == along[:, :1]).all():
            continue
        line = along[:, 0]
        turns = np.arange(len(line))
        if 0 < len(line) < 60 and line[0] > 0:
            for sign, what in (("<<", line[0] << turns), (">>", line[0] >> turns)):
                if np.array_equal(line, what):
                    yield f"({line[0]} {sign} {names[k]})"
        return


def _power_within(lookup: Lookup, modulus: int, names: Sequence[str]) -> Iterator[str]:
    """A table under a modulus that is ``c << i`` or ``-(c << i)``, added to the rest."""
    for sign, values in (("+", lookup.values), ("-", -lookup.values % modulus)):
        for text in _powers(values, names):
            plain = lookup.base.constant and not lookup.base.offset
            yield ("-" if sign == "-" else "") + text if plain else f"{lookup.base.text(names)} {sign} {text}"


def _widths(shape: tuple[int, ...], names: Sequence[str]) -> Iterator[tuple[str, Array]]:
    """Powers of two that rise or fall along a loop."""
    for k in range(1, len(names)):
        turns = np.arange(shape[k]).reshape([-1 if j == k else 1 for j in range(len(shape))])
        for low in range(4) if shape[k] < 40 else ():
            yield f"({1 << low} << {names[k]})", (1 << low) << turns
            high = 1 << (shape[k] - 1 + low)
            yield f"({high} >> {names[k]})", high >> turns


def _doubled(text: str) -> str:
    number, rest = text[1:].split(" ", 1)
    return f"({2 * int(number)} {rest}"


def _quotients(values: Array, ranks: Array, names: Sequence[str]) -> Iterator[str]:
    """A formula in ``rank // g`` and ``rank % g``; one with a modulus only where that has to do with the ranks."""
    size = ranks.size
    if size < 4 or ranks.ravel().tolist() != list(range(size)):
        return
    fits = [(g, fit(values.reshape(size // g, g, *values.shape[1:]), np.arange(size // g)))
            for g in range(2, size // 2 + 1) if size % g == 0]
    for g, made in fits:
        if isinstance(made, Affine):
            yield made.text([f"({names[0]} // {g})", f"({names[0]} % {g})", *names[1:]])
    for g, made in fits:
        if isinstance(made, Modular) and isinstance(made.inside, Affine) and size % made.modulus == 0:
            within = names[0] if g % made.modulus == 0 else f"({names[0]} % {g})"
            base = made.base.text([f"({names[0]} // {g})", f"({names[0]} % {g})", *names[1:]])
            inside = made.inside.text([f"({names[0]} // {g})", within, *names[1:]])
            whole = f"{inside if inside == within else f'({inside})'} % {made.modulus}"
            yield whole if base == "0" else f"{base} + {whole}"
