"""Formulas as C++ expressions; what is irregular as a constant table that they look things up in.

The expressions are those of emitted Python, put into C++: operators bind differently there, and quotients and
remainders of what may be negative need functions (``mod``, ``div``).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from schedlang.codegen.expressions import expression
from schedlang.ir.loops.formulas import Formula
from schedlang.ir.table import Array

_PRECEDENCE = {ast.Mult: 5, ast.FloorDiv: 5, ast.Mod: 5, ast.Add: 4, ast.Sub: 4}
_SIGNS = {ast.Mult: "*", ast.FloorDiv: "/", ast.Mod: "%", ast.Add: "+", ast.Sub: "-", ast.LShift: "<<",
          ast.RShift: ">>", ast.BitXor: "^", ast.GtE: ">=", ast.Gt: ">", ast.Lt: "<", ast.LtE: "<=", ast.Eq: "=="}
_ATOM, _UNARY, _LOOSE = 9, 6, 0


@dataclass
class Tables:
    """The constant tables of a file, by name; equal ones are one. ``ranks``: the world size; a table that is looked up
    by the rank has an entry for each. ``taken``: names of other things in the file."""

    ranks: int
    taken: frozenset[str] = frozenset()
    made: dict[str, Array] = field(default_factory=dict)
    _known: dict[tuple[object, ...], str] = field(default_factory=dict)

    def name(self, word: str, values: Array, ranks: Array | None) -> str:
        """The name of a table; with ``ranks``, those that its first axis stands for."""
        if ranks is not None:
            full = np.zeros((self.ranks, *values.shape[1:]), np.int64)
            full[ranks] = values
            values = full
        key = values.shape, values.astype(np.int64).tobytes()
        if key not in self._known:
            name, number = word.upper(), 1
            while name in self.made or name in self.taken:
                number += 1
                name = f"{word.upper()}_{number}"
            self._known[key] = name
            self.made[name] = values
        return self._known[key]


@dataclass(frozen=True)
class Writer:
    """Writes formulas over (rank, loop variables ...), which are never negative."""

    tables: Tables
    ranks: Array

    def __call__(self, formula: Formula, names: Sequence[str], counts: Sequence[int], word: str) -> str:
        """``counts``: how many values each coordinate has, the ranks being ``ranks``. ``word``: what a table is
        called that the formula needs."""
        text = expression(formula, names, counts, self.ranks, self.tables, word)  # type: ignore[arg-type]
        return self._text(ast.parse(text, mode="eval").body, word)[0]

    def _text(self, node: ast.expr, word: str) -> tuple[str, int, bool]:
        """Of an expression: its text, how strongly its parts are bound, and whether it cannot be negative."""
        if isinstance(node, ast.Constant):
            return str(node.value), _ATOM, True
        if isinstance(node, ast.Name):
            return node.id, _ATOM, True
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner, binds, _ = self._text(node.operand, word)
            return f"-{inner if binds > _UNARY else f'({inner})'}", _UNARY, False
        if isinstance(node, ast.Subscript):
            return self._looked_up(node, word)
        if isinstance(node, ast.Compare):
            left, right = (self._bound(n, _ATOM, word) for n in (node.left, node.comparators[0]))
            return f"{left} {_SIGNS[type(node.ops[0])]} {right}", _LOOSE, True
        if not isinstance(node, ast.BinOp):
            raise NotImplementedError(f"no C++ for {ast.unparse(node)}")
        return self._binary(node, word)

    def _binary(self, node: ast.BinOp, word: str) -> tuple[str, int, bool]:
        (left, _, one), (right, _, other) = self._text(node.left, word), self._text(node.right, word)
        kind, never = type(node.op), one and other
        if kind in (ast.FloorDiv, ast.Mod) and not one:
            return f"{'mod' if kind is ast.Mod else 'div'}({left}, {right})", _ATOM, kind is ast.Mod
        binds = _PRECEDENCE.get(kind, _LOOSE)
        if binds == _LOOSE:                         # shifts and exclusive or: C++ binds them in ways nobody remembers
            left, right = self._bound(node.left, _ATOM, word), self._bound(node.right, _ATOM, word)
        else:
            left, right = self._bound(node.left, binds, word), self._bound(node.right, binds + 1, word)
        return f"{left} {_SIGNS[kind]} {right}", binds, never and kind is not ast.Sub

    def _bound(self, node: ast.expr, least: int, word: str) -> str:
        text, binds, _ = self._text(node, word)
        return text if binds >= least else f"({text})"

    def _looked_up(self, node: ast.Subscript, word: str) -> tuple[str, int, bool]:
        index = self._text(node.slice, word)[0]
        if isinstance(node.value, (ast.List, ast.Dict)):
            found = ast.literal_eval(node.value)
            ranks = np.array(list(found)) if isinstance(found, dict) else None
            values = np.array(list(found.values()) if isinstance(found, dict) else found, np.int64)
            name = self.tables.name(word, values, ranks)
        else:
            name = self._text(node.value, word)[0]
        return f"{name}[{index}]", _ATOM, int(self.tables.made[name.split("[")[0]].min()) >= 0


def literal(name: str, values: Array) -> list[str]:
    """The declaration of a constant table."""
    small = values.size == 0 or (values.min() >= -(1 << 31) and values.max() < 1 << 31)
    axes = "".join(f"[{n}]" for n in values.shape)
    lines, line = [f"__device__ const {'int' if small else 'long long'} {name}{axes} = {{"], "   "
    for row in values.tolist():
        entry = str(row).replace("[", "{").replace("]", "}")
        if len(line) + len(entry) > 116 and line.strip():
            lines.append(line)
            line = "   "
        line += f" {entry},"
    return [*lines, line, "};"]
