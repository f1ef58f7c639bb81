"""The Pygments lexer for ``.sched``; Pygments finds it by its entry point, for ``pygmentize`` and Sphinx."""

from __future__ import annotations

import re
from typing import Any

from pygments.lexer import RegexLexer, bygroups, include
from pygments.token import Error, Whitespace, string_to_tokentype

from schedlang.editors.rules import Match, Rule, states


def _tokens() -> dict[str, list[Any]]:
    """The rules as Pygments writes them: a region is a state, and what no rule matches is an error."""
    made: dict[str, list[Any]] = {
        "root": [include("file"), include("rest")],
        "rest": [(r"[ \t\r]+|\n", Whitespace), (r"[\s\S]", Error)],
    }

    def rule(r: Rule) -> tuple[Any, ...]:
        if isinstance(r, Match):
            return r.pattern, _action(r)
        state = f"in {r.name}"
        made[state] = [(r.end.pattern, _action(r.end), "#pop"), include(r.inside), include("rest")]
        return r.begin.pattern, _action(r.begin), state

    for name, rules in states().items():
        made[name] = [include(r) if isinstance(r, str) else rule(r) for r in rules]
    return made


def _action(match: Match) -> Any:
    types = [Whitespace if kind is None else string_to_tokentype(kind.pygments) for kind in match.kinds]
    return bygroups(*types) if re.compile(match.pattern).groups else types[0]


class SchedLexer(RegexLexer):  # type: ignore[misc]  # Pygments has no types
    """Schedules of collective communication."""

    name = "schedlang"
    aliases = ("sched", "schedlang")
    filenames = ("*.sched",)
    tokens = _tokens()
