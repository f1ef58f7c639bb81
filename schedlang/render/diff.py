"""What two schedules have in common and what each costs, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schedlang.diagnostics import Diagnostic, Severity
from schedlang.diff.report import LEVELS, Difference, Side, Stretch
from schedlang.render import json
from schedlang.render.style import Style, clean, one_line
from schedlang.render.style import width as columns
from schedlang.render.terminal import notes, render
from schedlang.render.verdict import values_text
from schedlang.render.words import operation
from schedlang.source import Span

FORMAT, VERSION = "schedlang-diff", 1

MOST_STRETCHES = 6
"""With more changes from statement to statement than this, a critical path is told by statement."""

_FACTS = {
    "chunks": "chunks",
    "operations": "operations",
    "streams": "streams on a rank, at most",
    "rounds": "rounds",
    "messages": "messages",
    "messages_most": "messages sent by a rank, at most",
    "sent_most": "sent by a rank, at most",
    "received_most": "received by a rank, at most",
    "link_most": "over one link, at most",
    "links": "links",
    "n": "n: the bytes of",
    "peak_scratch": "scratch chunks on a rank, at most",
    "least_depth": "messages a connection must hold",
    "agreement": "all ranks get the same bits",
}


@dataclass(frozen=True)
class Sizes:
    """The comparisons of two schedules, named as on the command line, for one size each; ``skipped``: the sizes that a
    `require` of one of them excludes, each with the reason."""

    a: str
    b: str
    found: Sequence[Difference]
    skipped: Sequence[tuple[int, Diagnostic]] = ()

    @property
    def worst(self) -> Difference:
        """The first of the comparisons that found the least in common."""
        names = list(LEVELS)
        return max(self.found, key=lambda d: (names.index(d.level), not d.ok))

    @property
    def largest(self) -> Difference:
        """The last one in which both schedules have one result, else the last."""
        return next((d for d in reversed(self.found) if d.level != "faulty"), self.found[-1])


def text(sizes: Sizes, *, style: Style, width: int) -> str:
    """For people: what the schedules have in common, where they differ first, what each costs."""
    return "".join(f"{line}\n" for line in _lines(sizes, style, width))


def _lines(sizes: Sizes, style: Style, width: int) -> Iterator[str]:
    several = len(sizes.found) > 1
    for name, target, side in (("A", sizes.a, "a"), ("B", sizes.b, "b")):
        values = values_text([getattr(d, side).values for d in sizes.found])
        yield f"{name}  {style('bold', one_line(_named(target, getattr(sizes.found[0], side))))}  {values}"
    yield ""
    yield from _verdict(sizes, style) if several else [_level(sizes.worst, style)]
    for ranks, why in sizes.skipped:
        yield f"    skipped ranks {ranks}: {clean(why.message)}"
    worst = sizes.worst
    if several and (worst.notes or worst.level == "faulty"):
        yield f"with {_size(worst)}:"
    yield from notes(worst.notes, style=style, width=width)
    yield from _faults(worst, style, width)
    this = sizes.largest
    if this.level == "faulty":
        return
    yield ""
    if several:
        yield f"with {_size(this)}:"
    yield from _costs(this, style)
    yield from _paths(this, width)


def _named(target: str, side: Side) -> str:
    return target if "::" in target else f"{target}::{side.table.name}"


def _size(d: Difference) -> str:
    return values_text([{"ranks": d.a.table.ranks}])


def _level(d: Difference, style: Style) -> str:
    found = style("ok" if d.ok else "error", LEVELS[d.level])
    if d.level == "faulty":
        found += f": {_who(d, 'settled')} has no settled result"
    elif d.results and d.differ:
        found += f": {d.differ:,} of {d.results:,} result{'s' * (d.results != 1)}"
    if d.parts is not None:
        found += f" (where the elements divide into {d.parts:,} equal parts)"
    if d.equivalent and not d.ok:
        found += f"; but {_who(d, 'ok')} is wrong"
    return found


def _who(d: Difference, what: str) -> str:
    sides = [name for name, side in (("A", d.a), ("B", d.b)) if not getattr(side, what)]
    return " as well as ".join(sides)


def _verdict(sizes: Sizes, style: Style) -> Iterator[str]:
    """A line a level that was found, with the sizes."""
    for level in LEVELS:
        these = [d for d in sizes.found if d.level == level]
        if these:
            values = values_text([{"ranks": d.a.table.ranks} for d in these])
            wrong = sum(d.equivalent and not d.ok for d in these)
            yield (f"{style('ok' if all(d.ok for d in these) else 'error', LEVELS[level])}: {values}"
                   + (f"; but in {wrong} of these {'cases' if len(these) > 1 else 'case'} the results are wrong"
                      if wrong else ""))


def _faults(d: Difference, style: Style, width: int) -> Iterator[str]:
    """What is wrong with either side; once, where it is the same."""
    sides: dict[str, list[str]] = {}
    for name, side in (("A", d.a), ("B", d.b)):
        errors = [x for x in side.diagnostics if x.severity is Severity.ERROR]
        if errors:
            sides.setdefault(render(errors, color=style.color, width=width).rstrip("\n"), []).append(name)
    for text, names in sides.items():
        yield ""
        yield f"{' as well as '.join(names)} is {style('error', 'FAULTY')}:"
        yield text


def _costs(d: Difference, style: Style) -> Iterator[str]:
    rows = [("", "A", "B")]
    for key, label in _FACTS.items():
        here, there = (_shown(side.facts.get(key)) for side in (d.a, d.b))
        if here or there:
            rows.append((label, here or "-", there or "-"))
    wide = [max(columns(row[k]) for row in rows) for k in range(3)]
    for number, (label, here, there) in enumerate(rows):
        gap = " " * (2 + wide[2] - columns(there))
        same = number == 0 or here == there
        yield f"  {label:<{wide[0]}}  {here:>{wide[1]}}{gap}{there if same else style('changed', there)}"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value).removeprefix("the bytes of ")


def _paths(d: Difference, width: int) -> Iterator[str]:
    """The critical paths by the statements that they lead through."""
    sides = [(name, list(_path(side))) for name, side in (("A", d.a), ("B", d.b)) if side.path]
    if not sides:
        return
    yield ""
    yield "critical path, by the statements it leads through:"
    for name, lines in sides:
        for number, (times, where, what) in enumerate(lines):
            line = f"  {' ' if number else name}  {times:>5,} x  {where}  {what}"
            yield line if len(line) <= width else line[: width - 3] + "..."


def _path(side: Side) -> Iterator[tuple[int, str, str]]:
    """How often, which line, what stands there."""
    path: Iterable[Stretch] = side.path
    if len(side.path) > MOST_STRETCHES:
        joined: dict[object, Stretch] = {}
        for s in side.path:
            key = s.location and (s.location.file, s.location.line, s.location.column)
            known = joined.get(key)
            joined[key] = s if known is None else Stretch(s.location, known.times + s.times, known.first, s.last)
        path = joined.values()
    for s in path:
        at = s.location
        said = at.text if isinstance(at, Span) else operation(side.table, s.first)
        yield s.times, clean(f"{at.file}:{at.line}") if at is not None else "-", clean(" ".join(said.split()))


# ---- JSON ------------------------------------------------------------------------------------------------------------


def document(sizes: Sizes, same: str) -> dict[str, Any]:
    """The JSON document of ``schedlang diff --format json``."""
    return {
        "format": FORMAT, "version": VERSION, "same": same,
        "ok": all(d.ok and d.at_least(same) for d in sizes.found), "level": sizes.worst.level,
        "a": sizes.a, "b": sizes.b,
        "cases": [{
            "level": d.level, "equivalent": d.equivalent, "results": d.results, "differ": d.differ, "parts": d.parts,
            "doubt": d.doubt, "notes": [{"message": n.message, **json.location(n.location)} for n in d.notes],
            "a": _side(d.a), "b": _side(d.b),
        } for d in sizes.found],
        "skipped": [{"ranks": ranks, "diagnostics": [json.diagnostic(why)]} for ranks, why in sizes.skipped],
    }


def _side(side: Side) -> Mapping[str, Any]:
    return {
        "schedule": side.table.name, "values": side.values, "ok": side.ok, "settled": side.settled,
        "facts": dict(side.facts),
        "path": [{"times": s.times, "first": s.first, "last": s.last, **json.location(s.location)} for s in side.path],
        "diagnostics": [json.diagnostic(d) for d in side.diagnostics],
    }
