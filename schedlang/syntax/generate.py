"""Makes ``grammars/sched.tables.json`` from the grammar, by Lark: ``python -m schedlang.syntax.generate``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from schedlang.syntax.tables import (
    ACCEPT,
    DEDENT,
    END,
    FILE,
    FORMAT,
    GRAMMAR,
    INDENT,
    NEWLINE,
    STARTS,
    Terminal,
    digest,
)


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
    table = made.parser.parser._parse_table

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
        "grammar": digest(grammar.encode()),
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


def _walk(states: Any, start: int, shift: object, number: dict[str, int], symbol: dict[str, int],
          order: dict[int, int]) -> None:
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
        if literal:
            kind = "word" if pattern.isidentifier() else "mark"
        else:
            kind = "ignore" if t.name in made.ignore_tokens else "regex"
        places = [text.find(f'"{pattern}"')] if literal else []
        named = re.search(rf"\b{t.name}\b", text)
        places += [named.start()] if named else []
        found.append((min(p for p in places if p >= 0), Terminal(t.name, kind, pattern)))
    lines = [Terminal(n, "line", "") for n in (NEWLINE, INDENT, DEDENT, END)]
    return [t for _, t in sorted(found, key=lambda f: f[0])] + lines


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
