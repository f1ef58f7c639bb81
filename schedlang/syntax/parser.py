"""The LALR(1) automaton: tokens to what the builder makes of them. No recursion, so no text is too deep for it."""

from __future__ import annotations

import keyword
from collections.abc import Callable
from typing import Any

from schedlang.source import Span
from schedlang.syntax.builder import Builder
from schedlang.syntax.lexer import Tokens
from schedlang.syntax.tables import ACCEPT, Rule, Tables

_shortcuts: dict[tuple[int, int, int], int] = {}
"""The state after a nonterminal was built on a state, with the rules that only pass it on already applied: a name in an
expression climbs fourteen of them."""


def run(table: Tables, tokens: Tokens, builder: Builder, start: str) -> Any:
    """What the builder makes of the whole text; None where the text is not of the language."""
    actions = table.actions
    rules = [(r.origin, r.length, _maker(r, builder), r.plan) for r in table.rules]
    kinds, texts, begins, ends = tokens.kinds, tokens.texts, tokens.starts, tokens.ends
    source = tokens.source
    states, values, lefts, rights = [table.starts[start]], [None], [0], [0]
    k = 0
    kind = kinds[0]
    while True:
        action = actions[states[-1]].get(kind)
        if action is None:
            return None
        if action > 0:
            states.append(action - 1)
            values.append(texts[k])  # type: ignore[arg-type]
            lefts.append(begins[k])
            rights.append(ends[k])
            k += 1
            kind = kinds[k]
            continue
        if action == ACCEPT:
            return values[-1]
        origin, length, make, plan = rules[-1 - action]
        if length:
            left, right = lefts[-length], rights[-1]
            parts = values[-length:]
            del states[-length:], values[-length:], lefts[-length:], rights[-length:]
        else:
            left = right = rights[-1]
            parts = []
        values.append(make(Span(source, left, right), parts, plan))
        lefts.append(left)
        rights.append(right)
        state = states[-1]
        after = _shortcuts.get((state, origin, kind))
        states.append(_climb(table, state, origin, kind) if after is None else after)


def _climb(table: Tables, state: int, origin: int, kind: int) -> int:
    symbol = origin
    while True:
        after = table.gotos[state][symbol]
        action = table.actions[after].get(kind)
        if action is None or action >= ACCEPT:
            break
        rule = table.rules[-1 - action]
        if rule.length != 1 or rule.callback is not None or rule.splice:
            break
        symbol = rule.origin
    _shortcuts[state, origin, kind] = after
    return after


Make = Callable[[Span, list[Any], tuple[int, ...]], Any]


def _maker(rule: Rule, builder: Builder) -> Make:
    if rule.splice:
        return _splice
    if rule.callback is None:
        only, = rule.plan
        return lambda span, parts, plan: parts[only]
    method = getattr(builder, rule.callback + "_" if keyword.iskeyword(rule.callback) else rule.callback)
    if rule.plan == tuple(range(rule.length)):
        return lambda span, parts, plan: method(span, *parts)
    if min(rule.plan, default=0) >= -1:
        return lambda span, parts, plan: method(span, *[None if p < 0 else parts[p] for p in plan])
    return lambda span, parts, plan: method(span, *_spread(parts, plan))


def _splice(span: Span, parts: list[Any], plan: tuple[int, ...]) -> list[Any]:
    """The list of a repetition; it grows in place, since nothing else holds it."""
    if plan and plan[0] < -1:
        found: list[Any] = parts[-2 - plan[0]]
        found += _spread(parts, plan[1:])
        return found
    return _spread(parts, plan)


def _spread(parts: list[Any], plan: tuple[int, ...]) -> list[Any]:
    found: list[Any] = []
    for p in plan:
        if p >= 0:
            found.append(parts[p])
        elif p == -1:
            found.append(None)
        else:
            found += parts[-2 - p]
    return found
