"""Findings as text for people: the place, the message, the source line with the span underlined, notes, help."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from schedlang.codes import CODES
from schedlang.diagnostics import Diagnostic, Note, Severity
from schedlang.render.style import Style, char_width, clean, one_line, printable, terminal_width, wants_color
from schedlang.source import Location, Span

Format = Literal["full", "concise"]


def render(diagnostics: Iterable[Diagnostic], *, format: Format = "full", color: bool | None = None,
           width: int | None = None) -> str:
    """The findings as text, one after another in the order given; an empty string for none, else ending in a newline.

    ``full`` shows source lines, notes and help with a blank line between findings; ``concise`` one line each.
    ``color``: None asks the terminal (see :func:`schedlang.render.style.wants_color`). ``width``: columns to cut long
    source lines to, default the terminal's.
    """
    style = Style(wants_color() if color is None else color)
    if format == "concise":
        return "".join(f"{' '.join(_head(d, style).split())}{_more(d)}\n" for d in diagnostics)
    columns = terminal_width() if width is None else width
    return "\n".join("".join(f"{line}\n" for line in _full(d, style, columns)) for d in diagnostics)


def notes(found: Iterable[Note], *, style: Style, width: int) -> Iterator[str]:
    """Notes that stand for themselves, line by line, each with its place and the source line."""
    shown: set[tuple[str, int, int]] = set()
    for note in found:
        yield from _note(note, style, width, shown)


def summary(diagnostics: Iterable[Diagnostic]) -> str:
    """How many findings there are, by severity: ``2 errors, 1 warning``; an empty string for none."""
    counts = dict.fromkeys(reversed(Severity), 0)
    for d in diagnostics:
        counts[d.severity] += 1
    return ", ".join(f"{n} {severity}{'s' if n > 1 else ''}" for severity, n in counts.items() if n)


def place(location: Location | None) -> str:
    """``file:line:col``, or an empty string."""
    return "" if location is None else one_line(f"{location.file}:{location.line}:{location.column}")


def _head(d: Diagnostic, style: Style) -> str:
    where = style("bold", f"{place(d.location)}: ") if d.location is not None else ""
    code = CODES.get(d.code)
    tag = style(str(d.severity), f"{d.severity}[{d.code}]")
    name = f" {code.name}" if code is not None else ""
    return f"{where}{tag}{name}: {clean(d.message)}"


def _more(d: Diagnostic) -> str:
    return f" (and {d.count - 1:,} more like it)" if d.count > 1 else ""


def _full(d: Diagnostic, style: Style, columns: int) -> Iterator[str]:
    yield from _indented(_head(d, style), "    ")
    shown: set[tuple[str, int, int]] = set()
    yield from _snippet(d.location, style, str(d.severity), columns, shown)
    for note in d.notes:
        yield from _note(note, style, columns, shown)
    if d.count > 1:
        yield f"  and {d.count - 1:,} more like it"
    if d.help:
        yield from _indented(f"  {style('help', 'help:')} {clean(d.help)}", "        ")


def _note(note: Note, style: Style, columns: int, shown: set[tuple[str, int, int]]) -> Iterator[str]:
    where = f"{place(note.location)}: " if note.location is not None else ""
    yield from _indented(f"  {style('note', 'note:')} {where}{clean(note.message)}", "        ")
    yield from _snippet(note.location, style, "note", columns, shown)


def _indented(text: str, indent: str) -> Iterator[str]:
    first, *rest = text.split("\n")
    yield first
    for line in rest:
        yield indent + line


def _snippet(location: Location | None, style: Style, kind: str, columns: int,
             shown: set[tuple[str, int, int]]) -> Iterator[str]:
    """The source line of a span and its underline; nothing where it was shown before or is only known by number."""
    if not isinstance(location, Span) or (location.file, location.start, location.end) in shown:
        return
    shown.add((location.file, location.start, location.end))
    number, column = location.source.position(location.start)
    text, at, length = _window(location.source.line(number), column - 1, location.end - location.start,
                               max(20, columns - len(str(number)) - 6))
    margin = " " * len(str(number))
    bar = style("line", "|")
    yield f" {style('line', str(number))} {bar} {text}".rstrip()
    yield f" {margin} {bar} {' ' * at}{style(kind, '^' * length)}"


_REACH = 8
"""How far from the start of a span a line is looked at, in times the columns that there are."""


def _window(line: str, start: int, length: int, columns: int) -> tuple[str, int, int]:
    """The part of a line that fits into ``columns`` round the span, as (text, column of the span, its columns)."""
    start = min(start, len(line))
    before = max(0, start - _REACH * columns)       # a file may be one line: nobody looks at what is far away
    after = len(line) > start + _REACH * columns
    line, start = line[before : start + _REACH * columns], start - before
    cells: list[str] = []
    starts: list[int] = []
    at = 0
    for char in line:
        starts.append(at)
        cells.append(printable(char, at))
        at += char_width(char, at)
    starts.append(at)
    end = min(max(start + length, start + 1), len(line))
    first, last = 0, len(line)
    if at > columns:
        # Keep the start of the span about a third from the left, and mark what was cut on either side.
        while starts[start] - starts[first] > columns // 3 and (at - starts[first]) > columns - 2:
            first += 1
        while starts[last] - starts[first] > columns - 2:
            last -= 1
    left = "…" if first or before else ""
    right = "…" if last < len(line) or after else ""
    text = left + "".join(cells[first:last]) + right
    column = len(left) + starts[start] - starts[first]
    under = starts[min(end, last)] - starts[start] if end > start else 1
    return text, column, max(1, under)
