"""Makes ``grammars/sched.tmLanguage.json``, the grammar for VS Code and other editors that take TextMate's form:
``python -m schedlang.editors.textmate``."""

from __future__ import annotations

import json
import re
from typing import Any

from schedlang.editors.rules import Match, Rule, states
from schedlang.syntax.tables import GRAMMAR

FILE = GRAMMAR.with_name("sched.tmLanguage.json")


def build() -> dict[str, Any]:
    """The grammar, as plain JSON values."""
    return {
        "information_for_contributors": "Made by `python -m schedlang.editors.textmate`; a test compares.",
        "name": "schedlang",
        "scopeName": "source.sched",
        "fileTypes": ["sched"],
        "patterns": [{"include": "#file"}],
        "repository": {name: {"patterns": [{"include": f"#{r}"} if isinstance(r, str) else _rule(r) for r in rules]}
                       for name, rules in states().items()},
    }


def _rule(rule: Rule) -> dict[str, Any]:
    if isinstance(rule, Match):
        return {"match": rule.pattern, **_scopes(rule, "name", "captures")}
    return {
        "begin": rule.begin.pattern, **_scopes(rule.begin, "", "beginCaptures"),
        "end": rule.end.pattern, **_scopes(rule.end, "", "endCaptures"),
        "patterns": [{"include": f"#{rule.inside}"}],
    }


def _scopes(match: Match, whole: str, captures: str) -> dict[str, Any]:
    grouped = re.compile(match.pattern).groups > 0
    if not grouped and whole:
        return {whole: match.kinds[0].scope} if match.kinds[0] is not None else {}
    named = {str(n): {"name": kind.scope} for n, kind in enumerate(match.kinds, int(grouped)) if kind is not None}
    return {captures: named} if named else {}


def dumps() -> str:
    """The file's text."""
    return json.dumps(build(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(dumps(), encoding="utf-8", newline="\n")
