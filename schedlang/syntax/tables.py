"""The parse tables: made from ``grammars/sched.lark`` by Lark, kept beside it as JSON, so that reading a schedule needs
neither Lark nor the quarter of a second that building them takes.

``python -m schedlang.syntax.generate`` writes the file anew. Where the grammar has changed since (its hash tells), the
tables are built in memory instead, so a stale file costs time and never a wrong parse.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

GRAMMAR = Path(__file__).parent.parent / "grammars" / "sched.lark"
FILE = GRAMMAR.with_name("sched.tables.json")
FORMAT = 1
STARTS = ("file", "value")
NEWLINE, INDENT, DEDENT, END = "_NL", "_INDENT", "_DEDENT", "$END"
ACCEPT = 0


@dataclass(frozen=True, slots=True)
class Terminal:
    """``kind``: ``word`` and ``mark`` are literals, of letters and of other characters; ``regex``; ``ignore`` for a
    regex that is skipped; ``line`` for what the lexer makes of line ends and indentation."""

    name: str
    kind: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Rule:
    """``plan`` says what a reduction gives to the builder's method ``callback``: k >= 0 the k-th value, -1 None (an
    optional part that is absent), -2 - k the items of the k-th value, a list. Without a callback the rule passes on its
    one value or, where ``splice``, makes such a list."""

    origin: int
    length: int
    callback: str | None
    splice: bool
    plan: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tables:
    """LALR(1) tables over terminal and nonterminal numbers. An action is ``state + 1`` for a shift, ``-1 - rule`` for a
    reduction, ``ACCEPT`` at the end."""

    terminals: tuple[Terminal, ...]
    nonterminals: tuple[str, ...]
    rules: tuple[Rule, ...]
    starts: dict[str, int]
    actions: tuple[dict[int, int], ...]
    gotos: tuple[dict[int, int], ...]
    number: dict[str, int]
    """the number of a terminal, by its name"""
    literals: dict[str, int]
    """the number of a terminal, by its spelling"""


@cache
def load() -> Tables:
    """The tables of the grammar: read from the JSON file, or built where that file is missing, damaged or stale."""
    grammar = GRAMMAR.read_bytes()
    try:
        data = json.loads(FILE.read_bytes())
        if data["format"] == FORMAT and data["grammar"] == digest(grammar):
            return _decode(data)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    from schedlang.syntax.generate import build

    return _decode(build(grammar.decode()))


def digest(grammar: bytes) -> str:
    """What tells two grammars apart: a hash of the text, whatever its line ends."""
    return hashlib.sha256(grammar.replace(b"\r\n", b"\n")).hexdigest()


def _decode(data: dict[str, Any]) -> Tables:
    terminals = tuple(Terminal(*t) for t in data["terminals"])
    actions = [dict(zip(row[::2], row[1::2], strict=True)) for row in data["actions"]]
    gotos = [dict(zip(row[::2], row[1::2], strict=True)) for row in data["gotos"]]
    return Tables(
        terminals,
        tuple(data["nonterminals"]),
        tuple(Rule(r[0], r[1], r[2], r[3], tuple(r[4])) for r in data["rules"]),
        data["starts"],
        tuple(actions[a] for a, _ in data["states"]),
        tuple(gotos[g] for _, g in data["states"]),
        {t.name: n for n, t in enumerate(terminals)},
        {t.pattern: n for n, t in enumerate(terminals) if t.kind in ("word", "mark")},
    )
