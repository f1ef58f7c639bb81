"""The parse tables: made from ``grammars/sched.lark`` by Lark, kept beside it as JSON, so that reading a schedule needs
neither Lark nor the quarter of a second that building them takes.

``python -m schedlang.syntax.tables`` writes the file anew. Where the grammar has changed since (its hash tells), the
tables are built in memory instead, so a stale file costs time and never a wrong parse.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
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
    """``kind``: ``word`` and ``mark`` are literals, of letters and of other characters; ``regex``; ``ignore`` for a regex
    that is skipped; ``line`` for what the lexer makes of line ends and indentation."""

    name: str
    kind: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Rule:
    """``plan`` says what a reduction gives to the builder's method ``callback``: k >= 0 the k-th value, -1 None (an optional
    part that is absent), -2 - k the items of the k-th value, a list. Without a callback the rule passes on its one
    value or, where ``splice``, makes such a list."""

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
        if data["format"] == FORMAT and data["grammar"] == _digest(grammar):
            return _decode(data)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return _decode(build(grammar.decode()))


def _digest(grammar: bytes) -> str:
    return hashlib.sha256(grammar.replace(b"\r\n", b"\n")).hexdigest()


def _decode(data: dict[str, Any]) -> Tables:
    terminals = tuple(Terminal(*t) for t in data["terminals"])
    actions = [dict(zip(row[::2], row[1::2], strict=True)) for row in data["actions"]]
    gotos = [dict(zip(row[::2], row[1::2], strict=True)) for row in data["gotos"]]
    return Tables(
        terminals,
        tuple(data["nonterminals"]),
        tuple(Rule(origin, length, callback, splice, tuple(plan)) for origin, length, callback, splice, plan in data["rules"]),
        data["starts"],
        tuple(actions[a] for a, _ in data["states"]),
        tuple(gotos[g] for _, g in data["states"]),
        {t.name: n for n, t in enumerate(terminals)},
        {t.pattern: n for n, t in enumerate(terminals) if t.kind in ("word", "mark")},
    )


# ---- making them -----------------------------------------------------------------------------------------------------


def build(grammar: str) -> dict[str, Any]:
    """The tables of a grammar text, as plain JSON values. States are numbered by a walk from the start, terminals by
    their first place in the text, so that the result depends on the grammar only. Raises lark's GrammarError, also
    where a shift/reduce conflict would be settled silently."""
    import logging

    import lark
    from lark.parsers.lalr_analysis import Shift

    conflicts: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: conflicts.append(record.getMessage())  # type: ignore[method-assign]
    level = lark.logger.level
    lark.logger.addHandler(handler)
    lark.logger.setLevel(logging.DEBUG)
    try:
        made = lark.Lark(grammar, parser="lalr", lexer="basic", start=list(STARTS), maybe_placeholders=True)
    finally:
        lark.logger.removeHandler(handler)
        lark.logger.setLevel(level)
    conflicts = [c for c in conflicts if "onflict" in c]
    if conflicts:
        raise lark.exceptions.GrammarError("; ".join(conflicts))
    table = made.parser.parser._parse_table  # type: ignore[attr-defined]

    terminals = _terminals(grammar, made)
    number = {t.name: n for n, t in enumerate(terminals)}
    nonterminals = list(dict.fromkeys(r.origin.name for r in made.rules))
    symbol = {n: k for k, n in enumerate(nonterminals)}
    rule_number = {r: k for k, r in enumerate(made.rules)}

    order: dict[int, int] = {}
    for start in STARTS:
        _walk(table.states, table.start_states[start], Shift, number, symbol, order)
    actions: dict[tuple[int, ...], int] = {}
    gotos: dict[tuple[int, ...], int] = {}
    states = []
    ends = set(table.end_states.values())
    for state in order:
        act, go = [], []
        for name, (action, argument) in table.states[state].items():
            if name in symbol:
                go.append((symbol[name], order[argument]))
            else:
                act.append((number[name], order[argument] + 1 if action is Shift else -1 - rule_number[argument]))
        if state in ends:
            act.append((number[END], ACCEPT))
        states.append((actions.setdefault(_flat(act), len(actions)), gotos.setdefault(_flat(go), len(gotos))))
    return {
        "format": FORMAT,
        "grammar": _digest(grammar.encode()),
        "terminals": [[t.name, t.kind, t.pattern] for t in terminals],
        "nonterminals": nonterminals,
        "rules": [_rule(r, symbol) for r in made.rules],
        "starts": {s: order[table.start_states[s]] for s in STARTS},
        "actions": list(actions),
        "gotos": list(gotos),
        "states": states,
    }


def _flat(pairs: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    return tuple(x for pair in sorted(pairs) for x in pair)


def _walk(states: Any, start: int, shift: object, number: dict[str, int], symbol: dict[str, int], order: dict[int, int]) -> None:
    queue = [start]
    while queue:
        state = queue.pop()
        if state in order:
            continue
        order[state] = len(order)
        following = [(number.get(n, len(number) + symbol.get(n, 0)), target)
                     for n, (action, target) in states[state].items() if action is shift]
        queue += [target for _, target in sorted(following, reverse=True)]


def _terminals(grammar: str, made: Any) -> list[Terminal]:
    text = re.sub(r"(?m)^//.*", "", grammar)
    found = []
    for t in made.terminals:
        pattern = t.pattern.value
        literal = type(t.pattern).__name__ == "PatternStr"
        kind = ("word" if pattern.isidentifier() else "mark") if literal else "ignore" if t.name in made.ignore_tokens else "regex"
        places = [text.find(f'"{pattern}"')] if literal else []
        named = re.search(rf"\b{t.name}\b", text)
        places += [named.start()] if named else []
        found.append((min(p for p in places if p >= 0), Terminal(t.name, kind, pattern)))
    return [t for _, t in sorted(found, key=lambda f: f[0])] + [Terminal(n, "line", "") for n in (NEWLINE, INDENT, DEDENT, END)]


def _rule(rule: Any, symbol: dict[str, int]) -> list[Any]:
    plan: list[int] = []
    absent = rule.options.empty_indices or (False,) * len(rule.expansion)
    symbols: Iterator[tuple[int, Any]] = iter(enumerate(rule.expansion))
    for is_absent in absent:
        if is_absent:
            plan.append(-1)
            continue
        k, s = next(symbols)
        if not s.is_term and s.name.startswith("_"):
            plan.append(-2 - k)
        elif not s.is_term or rule.options.keep_all_tokens or not s.filter_out:
            plan.append(k)
    splice = rule.origin.name.startswith("_")
    passes = rule.options.expand1 and not rule.alias and len(plan) == 1 and plan[0] >= 0
    callback = None if splice or passes else rule.alias or rule.origin.name
    return [symbol[rule.origin.name], len(rule.expansion), callback, splice, plan]


def dumps(data: dict[str, Any]) -> str:
    """The file's text: a line for each row, so that a change of the grammar can be read in a diff."""
    compact = (",", ":")
    parts = []
    for key, value in data.items():
        if isinstance(value, list):
            rows = ",\n".join(json.dumps(row, separators=compact) for row in value)
            parts.append(f'"{key}":[\n{rows}\n]')
        else:
            parts.append(f'"{key}":{json.dumps(value, separators=compact)}')
    return "{" + ",\n".join(parts) + "}\n"


if __name__ == "__main__":
    FILE.write_text(dumps(build(GRAMMAR.read_text(encoding="utf-8"))), encoding="utf-8", newline="\n")
