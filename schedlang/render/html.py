"""A schedule as one page to step through: the drawing, who holds what, the source, and what is wrong with it.
Everything is in the page; nothing is fetched."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from schedlang.codes import CODES
from schedlang.diagnostics import Diagnostic
from schedlang.ir.table import OpTable
from schedlang.render.cells import NOTHING, Cells
from schedlang.render.holdings import Place, Value, Walk
from schedlang.render.offences import place_of, rows_of
from schedlang.render.style import clean
from schedlang.render.svg import drawing, text, title
from schedlang.render.terminal import place
from schedlang.render.words import operation, stream, transfer
from schedlang.source import Source, Span


def html(table: OpTable, walk: Walk, wanted: range | None = None, findings: Sequence[Diagnostic] = ()) -> str:
    """The page. ``wanted`` picks steps; ``findings`` are all that ``verify`` gives. Raises timeline.TooLarge."""
    page = resources.files("schedlang.render") / "page"
    style, script = ((page / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    shown = _Shown(table, walk, wanted)
    heading = text(title(table, walk))
    parts = {
        "title": heading, "style": style, "script": script,
        "drawing": drawing(table, walk, wanted, findings, headed=False),
        "findings": "\n".join(_findings(findings, table, shown)), "legend": text(shown.cells.legend()),
        "data": _embedded(shown.data(findings)),
    }
    return _PAGE.format_map(parts)


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<h1>{title}</h1>
{findings}
<div id="drawing" class="drawing" tabindex="0" role="group" aria-label="The drawing; it scrolls">
{drawing}</div>
<noscript><p class="note">Without scripts there is the drawing only; stepping through it needs them.</p></noscript>
<div id="stepper" hidden>
<div class="controls" role="group" aria-label="Steps">
<button id="to-start" type="button" aria-label="to the start">|◀</button>
<button id="back" type="button" aria-label="one step back">◀</button>
<button id="on" type="button" aria-label="one step on">▶</button>
<button id="to-end" type="button" aria-label="to the end">▶|</button>
<button id="play" type="button">Play</button>
<input id="slider" type="range" min="-1" max="0" step="1" value="-1" aria-label="step">
<output id="now" aria-live="polite"></output>
<span class="note">or the arrow keys, Home and End</span>
</div>
<div class="panels">
<section>
<h2>Who holds what</h2>
<div class="scroll" tabindex="0" role="group" aria-label="Who holds what"><table><thead id="head"></thead>\
<tbody id="body"></tbody></table></div>
<p class="note">{legend}. What the step has written is marked.</p>
<div id="operations-panel"><h2>What happens</h2><ul id="operations" class="operations scroll"></ul></div>
</section>
<section id="source-panel">
<h2>The lines that do it</h2>
<div id="sources" class="scroll" tabindex="0" role="group" aria-label="Source text"></div>
</section>
</div>
</div>
<script type="application/json" id="data">{data}</script>
<script>
{script}</script>
</body>
</html>
"""


class _Shown:
    """The steps that a page shows, as what its script reads."""

    def __init__(self, table: OpTable, walk: Walk, wanted: range | None) -> None:
        self.table, self.walk, self.cells = table, walk, Cells(table, walk)
        total = len(walk.rounds)
        self.steps = walk.chosen(wanted)
        self.step_of: dict[int, int] = {}
        for number, step in enumerate(walk.rounds):
            self.step_of.update(dict.fromkeys(step.rows, number))
        self.stuck = walk.stuck if self.steps.stop == total else ()
        self.step_of.update(dict.fromkeys(walk.stuck, total))
        for row, began in walk.began.items():
            self.step_of.setdefault(row, min(began, total - 1))
        places = {(b, c) for b, _, c in walk.start} | {(b, c) for step in walk.rounds for b, _, c in step.written}
        self.column = {place: k for k, place in enumerate(sorted(places))}
        self.sources: dict[str, tuple[int, Source]] = {}

    def data(self, findings: Iterable[Diagnostic]) -> dict[str, Any]:
        """``start`` and ``changes``: [rank, column, what the cell holds]; ``lines``: [source, line]."""
        names = self.table.buffers
        before: dict[Place, Value | None] = {}
        for number, state in enumerate(self.walk.states()):
            if number == self.steps.start:
                before = dict(state)
                break
        steps = [{"name": f"step {number}", "operations": list(self.operations(self.walk.rounds[number].rows)),
                  "changes": self.changes(self.walk.rounds[number].written),
                  "lines": self.lines(self.walk.rounds[number].rows)} for number in self.steps]
        if self.stuck:
            steps.append({"name": "for ever", "operations": [self.waiting(row) for row in self.stuck], "changes": [],
                          "lines": self.lines(self.stuck)})
        wrong = [(at, finding) for finding in findings if (at := place_of(finding, self.table)) is not None]
        return {
            "ranks": [f"rank {rank}" for rank in range(self.table.ranks)],
            "columns": [clean(f"{names[b].name}[{c}]") for b, c in self.column],
            "nothing": NOTHING, "first": self.steps.start,
            "begin": f"before step {self.steps.start}" if self.steps.start else "at the start",
            "complete": self.steps.stop == len(self.walk.rounds),
            "start": self.changes(before), "steps": steps,
            "wrong": [[at[1], self.column[at[0], at[2]], clean(finding.message)] for at, finding in wrong
                      if (at[0], at[2]) in self.column],
            "sources": [{"path": clean(source.path), "lines": clean(source.text).removesuffix("\n").split("\n")}
                        for _, source in self.sources.values()],
        }

    def changes(self, written: Mapping[Place, Value | None]) -> list[list[Any]]:
        return [[at[1], self.column[at[0], at[2]], self.cells.text(at, value)] for at, value in written.items()]

    def operations(self, rows: Iterable[int]) -> Iterator[str]:
        for row in rows:
            said = transfer(self.table, row)
            if said:
                yield clean(said)

    def waiting(self, row: int) -> str:
        return clean(f"rank {self.table.rank[row]}, stream {stream(self.table, row)}: {operation(self.table, row)}")

    def lines(self, rows: Iterable[int]) -> list[list[int]]:
        """The source lines that rows come from, those of the `use` statements that brought them in as well."""
        found: set[tuple[int, int]] = set()
        for number in {int(self.table.site[row]) for row in rows}:
            at: int | None = number
            while at is not None:
                site = self.table.sites[at]
                if isinstance(site.location, Span):
                    source = site.location.source
                    index, _ = self.sources.setdefault(source.path, (len(self.sources), source))
                    found.add((index, site.location.line))
                at = site.parent[0] if site.parent is not None else None
        return [list(line) for line in sorted(found)]


def _embedded(data: Mapping[str, Any]) -> str:
    """JSON that can stand in a script element."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")


def _findings(findings: Sequence[Diagnostic], table: OpTable, shown: _Shown) -> Iterator[str]:
    """What is wrong, as a list in which each links to the steps that it speaks of."""
    if not findings:
        yield '<p class="note"><code>schedlang verify</code> finds nothing wrong.</p>'
        return
    yield '<section aria-labelledby="found"><h2 id="found">Findings</h2><ol class="findings">'
    for finding in findings:
        code = CODES.get(finding.code)
        more = f" (and {finding.count - 1:,} more like it)" if finding.count > 1 else ""
        name = f"{finding.severity} {finding.code}" + (f" {code.name}" if code else "")
        yield f'<li class="{finding.severity}"><p><b>{name}</b> {_lines(finding.message)}{more}</p>'
        steps = sorted({shown.step_of[row] for row in rows_of(finding, table) if row in shown.step_of})
        links = [f'<a href="#step={step}">{"for ever" if step == len(shown.walk.rounds) else f"step {step}"}</a>'
                 for step in steps if step in shown.steps or (step == len(shown.walk.rounds) and shown.stuck)]
        where = [text(place(finding.location))] if finding.location is not None else []
        if where or links:
            yield f'<p class="where">{", ".join([*where, *links])}</p>'
        if finding.notes:
            notes = "".join(f"<li>{text(place(n.location)) + ': ' if n.location else ''}{_lines(n.message)}</li>"
                            for n in finding.notes)
            yield f"<ul>{notes}</ul>"
        if finding.help:
            yield f"<p>To mend it: {_lines(finding.help)}</p>"
        yield "</li>"
    yield "</ol></section>"


def _lines(content: str) -> str:
    """A message: what stands between backticks is source text."""
    return re.sub(r"`([^`\n]+)`", r"<code>\1</code>", text(content)).replace("\n", "<br>")
