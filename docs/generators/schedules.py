"""The shipped schedules: which to take, from the README of the examples; and each with what it costs and a picture of
it; beside that the page that steps through it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from schedlang.expand import Program, cases, expand, load_program
from schedlang.ir.table import OpTable
from schedlang.ops import COLLECTIVES
from schedlang.render.holdings import walk
from schedlang.render.html import html
from schedlang.render.svg import svg, title
from schedlang.render.verdict import facts_text, values_text
from schedlang.verify import verify

EXAMPLES = Path(__file__).parents[2] / "examples"

RANKS = range(4, 9)
"""How many ranks a picture has, where the schedule allows."""


def pages() -> dict[str, str]:
    """The parts of the page on schedules, and the files that it shows, all as they lie under ``extra`` in the built
    documentation."""
    made: dict[str, str] = {}
    entries: dict[str, list[str]] = {}
    for path in sorted(EXAMPLES.rglob("*.sched")):
        program = load_program(str(path))
        for name in program.names:
            table, values = picture_case(program, name)
            entries.setdefault(table.collective.name, []).append("\n".join(_entry(program, path, table, values)))
            walked, found = walk(table), verify(table).diagnostics
            for form, render in (("svg", svg), ("html", html)):
                drawn = render(table, walked, None, found)
                made[f"extra/pictures/{name}.{form}"] = drawn.replace(f"{EXAMPLES.parent}/", "")
    lines: list[str] = []
    for collective in COLLECTIVES:
        if collective in entries:
            lines += [f"## {collective}", "", f"{_sentence(COLLECTIVES[collective].doc)}", "", *entries[collective]]
    return {"schedules.md": "\n".join(lines) + "\n", "schedules-overview.md": overview(), **made}


def overview() -> str:
    """The tables of the README of the examples, with what its symbols mean. Their headings are none here, where the
    collectives have theirs, and their links lead to the sections of the schedules."""
    paragraphs = (EXAMPLES / "README.md").read_text(encoding="utf-8").strip().split("\n\n")
    first = next(k for k, text in enumerate(paragraphs) if text.startswith("## ")) - 1      # that on symbols
    last = max(k for k, text in enumerate(paragraphs) if text.startswith("|"))
    text = "\n\n".join(paragraphs[first : last + 1]) + "\n"
    text = re.sub(r"^## (.*)$", r"**\1**", text, flags=re.M)
    return re.sub(r"\[`(\w+)`\]\([^)]*\)", r"[`\1`](#\1)", text)


def picture_case(program: Program, name: str) -> tuple[OpTable, dict[str, Any]]:
    """The table to draw and its values: of the cases of the `verify` line with a number of ranks in RANKS, and where
    that is possible no other size of 1, no list of one and no switch but by default, the one with the fewest
    operations."""
    defaults = {p.name: getattr(p.default, "value", None) for p in program.root.schedules[name].params}
    best: tuple[tuple[Any, ...], OpTable, dict[str, Any]] | None = None
    for values in cases(program, name):
        if values.get("ranks", RANKS.start) not in RANKS and best is not None:
            continue
        table, _ = expand(program, name, ranks=values.get("ranks"),
                          params={k: v for k, v in values.items() if k != "ranks"})
        if table is None:
            continue
        trivial = sum(v == 1 and defaults[k] != v if isinstance(v, int) else len(v) == 1
                      for k, v in values.items() if k in defaults and isinstance(v, (int, list)))
        order = (table.ranks not in RANKS, trivial, len(table) if table.ranks in RANKS else -table.ranks)
        if best is None or order < best[0]:
            best = order, table, values
    if best is None:
        raise ValueError(f"{program.path}::{name} has no case that expands")
    return best[1], best[2]


def _entry(program: Program, path: Path, table: OpTable, values: dict[str, Any]) -> Iterator[str]:
    name = table.name
    schedule = program.root.schedules[name]
    where = path.relative_to(EXAMPLES).as_posix()
    yield f"### {name}"
    yield ""
    yield from _markdown(schedule.doc or "")
    yield f"With {values_text([values])}:"
    yield ""
    yield from (f"* {fact}" for fact in facts_text(verify(table).facts))
    yield ""
    alt = escape(title(table, walk(table)), quote=True)
    yield (f'<div style="overflow-x: auto"><a href="pictures/{name}.html" title="step through it">'
           f'<img src="pictures/{name}.svg" alt="{alt}" style="max-width: none"></a></div>')
    yield ""
    yield f"<details><summary>Its text: examples/{where}</summary>"
    yield ""
    yield f"```{{literalinclude}} /../examples/{where}"
    yield ":language: sched"
    yield "```"
    yield ""
    yield "</details>"
    yield ""


def _markdown(doc: str) -> Iterator[str]:
    """A docstring as paragraphs, in which nothing is markup but what stands between backticks."""
    for paragraph in re.split(r"\n\s*\n", doc.strip()):
        parts = re.split(r"(`[^`]*`)", " ".join(paragraph.split()))
        yield "".join(part if k % 2 else re.sub(r"([*<\[$#])", r"\\\1", part) for k, part in enumerate(parts))
        yield ""


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + "."
