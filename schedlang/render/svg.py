"""A schedule as one SVG drawing, ranks x time: see :mod:`schedlang.render.timeline`. Nothing is fetched from anywhere;
it follows the light or dark scheme that its reader prefers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from textwrap import wrap

from schedlang.codes import CODES
from schedlang.diagnostics import Diagnostic, Severity
from schedlang.ir.origin import origin_text
from schedlang.ir.table import OpTable
from schedlang.ir.words import counted
from schedlang.render.holdings import Walk
from schedlang.render.offences import numbered
from schedlang.render.palette import LIGHT, STYLE
from schedlang.render.shapes import CHIP_HEIGHT, Arrow, Band, Chip, Mark, Timeline
from schedlang.render.style import clean, width
from schedlang.render.timeline import LEFT, timeline
from schedlang.render.words import operation, stream

_KINDS = {"send": "sent", "recv": "arrives", "reduce": "arrives and is added", "pass": "passed on, not stored here",
          "copy": "copied within a rank", "add": "added within a rank", "stuck": "waits for ever"}
"""What the legend calls the kinds of chips."""

LEAST_WIDTH, LEAST_FAULTY = 420, 700
"""In pixels; the messages of findings need more."""

TITLE_LETTER = 9
"""The width of a letter of the title, at most on average."""

MOST_FINDINGS = 3
MOST_TITLED = 6
"""Of so many operations that share a chip the tooltip tells."""


def svg(table: OpTable, walk: Walk, wanted: range | None = None, findings: Sequence[Diagnostic] = ()) -> str:
    """The drawing as a file. ``wanted`` picks steps; ``findings``, as ``verify`` gives them, are told on top and
    marked. Raises timeline.TooLarge."""
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + drawing(table, walk, wanted, findings)


def drawing(table: OpTable, walk: Walk, wanted: range | None = None, findings: Sequence[Diagnostic] = (), *,
            headed: bool = True) -> str:
    """The ``svg`` element, as it stands in a page; where that has a heading and the findings, it is not ``headed``."""
    return "\n".join(_Drawing(table, walk, wanted, findings, headed).lines()) + "\n"


def title(table: OpTable, walk: Walk) -> str:
    """``ring: allreduce on 4 ranks, 6 steps``."""
    return (f"{table.name}: {table.collective.name} on {counted(table.ranks, 'rank')}, "
            f"{counted(len(walk.rounds), 'step')}")


def text(content: str) -> str:
    """A text for XML and HTML: escaped, and with a visible stand-in for what neither may contain."""
    return escape(clean(content).translate({0xFFFE: "\ufffd", 0xFFFF: "\ufffd"}))


def told(table: OpTable, row: int) -> str:
    """What an operation does and where it comes from, for a tooltip."""
    where = origin_text(table, [row])
    on = f", stream {stream(table, row)}" if len(table.streams) > 1 else ""
    return f"rank {int(table.rank[row])}{on}: {operation(table, row)}" + (f" ({where})" if where else "")


class _Drawing:
    def __init__(self, table: OpTable, walk: Walk, wanted: range | None, findings: Sequence[Diagnostic],
                 headed: bool) -> None:
        self.table, self.walk = table, walk
        if headed:
            findings = [d for d in findings if d.severity == Severity.ERROR]
        self.drawn: Timeline = timeline(table, walk, wanted)
        self.number = numbered(findings, table)
        self.wide = max(self.drawn.width, LEAST_FAULTY if headed and findings else LEAST_WIDTH)
        self.head = list(self.heading(findings)) if headed else []
        if self.head:
            self.wide = max(self.wide, 2 * LEFT + TITLE_LETTER * width(self.head[0][1]))
        self.top = (20 if headed else 2) + 16 * len(self.head)

    def heading(self, findings: Sequence[Diagnostic]) -> Iterator[tuple[str, str]]:
        """The lines on top as (class, text): what is drawn, which part of it, and the errors in it."""
        shown = [column.step for column in self.drawn.columns if column.step < len(self.walk.rounds)]
        part = ""
        if len(shown) < len(self.walk.rounds):
            part = f"; here {'step' if len(shown) == 1 else 'steps'} {shown[0]}" + (
                f" to {shown[-1]}" if len(shown) > 1 else "")
        yield "title", title(self.table, self.walk) + part
        letters = max(40, int(min(self.wide, 1200) / 6.4))
        for k, d in enumerate(findings[:MOST_FINDINGS], 1):
            name = f" {CODES[d.code].name}" if d.code in CODES else ""
            for line in wrap(f"{k}. {d.code}{name}: {clean(d.message)}", letters, subsequent_indent="\u2003"):
                yield "fault", line
        if len(findings) > MOST_FINDINGS:
            yield "fault", f"and {counted(len(findings) - MOST_FINDINGS, 'more error')}; `schedlang verify` tells all"

    def lines(self) -> Iterator[str]:
        legend = list(self.legend())
        high = self.top + self.drawn.height + 22 * max((line for line, *_ in legend), default=-1) + 30
        size = f"{self.wide:.0f} {high:.0f}"
        wide, tall = size.split()
        yield (f'<svg xmlns="http://www.w3.org/2000/svg" class="schedule" width="{wide}" height="{tall}" '
               f'viewBox="0 0 {size}" role="img" aria-labelledby="schedule-title schedule-desc">')
        yield f'<title id="schedule-title">{text(title(self.table, self.walk))}</title>'
        yield f'<desc id="schedule-desc">{text(self.description())}</desc>'
        yield f"<style>{STYLE}</style>"
        yield f'<rect class="ground" width="{wide}" height="{tall}"/>'
        for k, (kind, line) in enumerate(self.head):
            yield f'<text class="{kind}" x="{LEFT}" y="{22 + 16 * k + 3 * (k > 0)}">{text(line)}</text>'
        yield f'<g transform="translate(0 {self.top})">'
        yield from self.frame()
        for begin, end in self.drawn.links:
            yield f'<path class="link" d="M{begin.x:.1f} {begin.y:.1f}L{end.x:.1f} {end.y:.1f}"/>'
        yield from map(self.arrow, self.drawn.arrows)
        yield from map(self.chip, self.drawn.chips)
        yield from map(self.mark, self.drawn.marks)
        yield from self.labels()
        yield "</g>"
        for _, _, _, element in legend:
            yield element
        yield "</svg>"

    def description(self) -> str:
        """What a reader hears who does not see it."""
        said = (f"A band for each rank, a column for each step. {counted(len(self.drawn.arrows), 'message')} as arrows "
                "from the sender's band to the receiver's, coloured by chunk; an open head and a plus where the "
                "receiver adds.")
        if self.walk.stuck:
            said += f" {counted(len(self.walk.stuck), 'operation')} can never end."
        return said

    def frame(self) -> Iterator[str]:
        """Columns and bands."""
        drawn = self.drawn
        end = drawn.columns[-1].x + drawn.columns[-1].width if drawn.columns else drawn.width - LEFT
        for band in drawn.bands:
            yield _band(band, end)
            for lane in band.lanes[1:]:
                yield f'<path class="lane" d="M{LEFT} {lane.y:.1f}H{end:.1f}"/>'
        for column in drawn.columns:
            yield (f'<g class="column" data-step="{column.step}"><rect class="step" x="{column.x:.1f}" y="4" '
                   f'width="{column.width:.1f}" height="{drawn.height - 8:.1f}"/><text class="name" '
                   f'x="{column.x + column.width / 2:.1f}" y="18">{column.text}</text></g>')
        for column in drawn.columns[1:]:
            yield f'<path class="edge" d="M{column.x:.1f} 6V{drawn.height - 4:.1f}"/>'
        if not drawn.columns:
            yield '<text class="name" x="90" y="18">no steps</text>'

    def labels(self) -> Iterator[str]:
        """The names of ranks and streams, over everything: in a page they stay where the rest scrolls away."""
        drawn = self.drawn
        first = drawn.columns[0].x if drawn.columns else drawn.width - LEFT
        yield f'<g class="labels"><rect class="ground" y="22" width="{first:.1f}" height="{drawn.height - 24:.1f}"/>'
        for band in drawn.bands:
            yield _band(band, first)
            yield f'<text class="rank" x="{LEFT}" y="{band.lanes[0].y + 17:.1f}">rank {band.rank}</text>'
            for lane in band.lanes:
                if lane.stream:
                    yield f'<text class="stream" x="{first - 6:.1f}" y="{lane.y + 17:.1f}">{text(lane.stream)}</text>'
        yield "</g>"

    # ---- what happens ----------------------------------------------------------------------------------------------

    def titled(self, rows: Iterable[int]) -> str:
        rows = list(rows)
        lines = [told(self.table, row) for row in rows[:MOST_TITLED]]
        if len(rows) > MOST_TITLED:
            lines.append(f"and {len(rows) - MOST_TITLED:,} more")
        return "<title>" + "\n".join(map(text, lines)) + "</title>"

    def group(self, kind: str, chunk: int, step: int, rows: Sequence[int]) -> str:
        bad = " bad" if any(row in self.number for row in rows) else ""
        return f'<g class="op {kind} k{chunk % len(LIGHT)}{bad}" data-step="{step}">{self.titled(rows)}'

    def arrow(self, arrow: Arrow) -> str:
        kind = "arrow" if arrow.tip else "arrow away"
        head = ""
        if arrow.tip:
            x, y = arrow.tip
            away = 8 if arrow.back else -8
            head = f'<path class="{"open" if arrow.reduces else "full"}" d="M{x:.1f} {y:.1f}l{away} -4v8z"/>'
        start = self.group(kind, arrow.chunk, arrow.step, arrow.rows)
        return f'{start}<path class="line" d="{arrow.path}"/>{head}</g>'

    def chip(self, chip: Chip) -> str:
        number = next((self.number[row] for row in chip.rows if row in self.number), None)
        badge = ""
        if number is not None:
            badge = _badge(chip.x + chip.width, chip.y - CHIP_HEIGHT / 2, number)
        return (f"{self.group(f'chip {chip.kind}', chip.chunk, chip.step, chip.rows)}"
                f"{_box(chip.x, chip.y, chip.width, chip.text)}{badge}</g>")

    def mark(self, mark: Mark) -> str:
        kind = "record" if mark.records else "wait"
        return f"{self.group(f'mark {kind}', 0, mark.step, [mark.row])}{_diamond(mark.x, mark.y)}</g>"

    # ---- how to read it --------------------------------------------------------------------------------------------

    def legend(self) -> Iterator[tuple[int, float, float, str]]:
        """What stands below: (line, x, width, element)."""
        line, x = 0, float(LEFT)
        y = self.top + self.drawn.height + 12
        for sample, wide, words in self.samples():
            each = wide + 6 + 6.1 * width(words)
            if x > LEFT and x + each > self.wide - LEFT:
                line, x = line + 1, float(LEFT)
            yield line, x, each, (f'<g transform="translate({x:.1f} {y + 22 * line:.1f})">{sample}'
                                  f'<text class="words" x="{wide + 6:.1f}" y="4">{text(words)}</text></g>')
            x += each + 18

    def samples(self) -> Iterator[tuple[str, float, str]]:
        """(element, its width, what it means), for what there is in the drawing."""
        kinds = self.drawn.kinds
        example = {kind: next((c for c in self.drawn.chips if c.kind == kind), None) for kind in kinds}
        used = {chip.chunk for chip in self.drawn.chips}
        for kind, words in _KINDS.items():
            chip = example.get(kind)
            if chip is None:
                continue
            arrow, x = "", 0.0
            if kind in ("recv", "reduce"):
                head = "open" if kind == "reduce" else "full"
                arrow, x = f'<path class="line" d="M0 0h22"/><path class="{head}" d="M22 0l-8 -4v8z"/>', 22.0
            if kind == "send" and chip.text[0].isdigit():
                words = f"chunk{'s' if ':' in chip.text else ''} {chip.text} sent"
            box = _box(x, 0, chip.width, chip.text)
            yield f'<g class="op chip {kind} k{chip.chunk % len(LIGHT)}">{arrow}{box}</g>', x + chip.width, words
        for kind, words in (("record", "records an event"), ("wait", "waits for one")):
            if kind in kinds:
                yield f'<g class="op mark {kind}">{_diamond(5, 0)}</g>', 10, words
        if self.number:
            yield _badge(7, 0, 1), 14, "part of finding 1"
        if len(used) > 1:
            more = f", {len(LIGHT)} colours in turn" if max(used) >= len(LIGHT) else ""
            yield "", -6, f"coloured by the number of the chunk{more}"


def _band(band: Band, end: float) -> str:
    return (f'<rect class="band" x="{LEFT - 4}" y="{band.y:.1f}" width="{end - LEFT + 4:.1f}" '
            f'height="{band.height:.1f}" rx="3"/>')


def _box(x: float, y: float, wide: float, label: str) -> str:
    return (f'<rect x="{x:.1f}" y="{y - CHIP_HEIGHT / 2:.1f}" width="{wide:.1f}" height="{CHIP_HEIGHT}" rx="3"/>'
            f'<text x="{x + wide / 2:.1f}" y="{y + 4:.1f}">{text(label)}</text>')


def _badge(x: float, y: float, number: int) -> str:
    return (f'<circle class="badge" cx="{x:.1f}" cy="{y:.1f}" r="6.5"/>'
            f'<text class="count" x="{x:.1f}" y="{y + 3:.1f}">{number}</text>')


def _diamond(x: float, y: float) -> str:
    return f'<path d="M{x - 4:.1f} {y:.1f}l4 -4 4 4 -4 4z"/>'
