"""Where rows come from, for findings: the place, the loop values, and the `use` statements that brought them in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice, zip_longest
from typing import Any, TypeVar

from schedlang.diagnostics import Diagnostic, Note
from schedlang.ir.table import NONE, OpTable, Site
from schedlang.ir.words import row_text, shown, turn_text
from schedlang.source import Location

_Item = TypeVar("_Item")

MOST_USES = 4
"""So many uses within uses are told of an operation; of more, those between the first and the last are left out."""

MOST_CHAINS = 4
"""Of so many operations of one finding the uses are told."""

MOST_RANKS = 8
"""So many ranks of a use are told."""


def at_row(finding: Diagnostic, table: OpTable, row: int, *others: int) -> Diagnostic:
    """The finding at the place of a row; its last notes are the `use` statements that brought in the row, innermost
    first, and those of ``others``, the further rows that it speaks of. NONE: no row; the place is the schedule's."""
    known = [r for r in dict.fromkeys((row, *others)) if r != NONE]
    notes = dict.fromkeys(note for r in known[:MOST_CHAINS] for note in uses(table, r))
    at = table.origin(row)[0] if row != NONE else table.location or table.collective.location
    return replace(finding, location=at, notes=(*finding.notes, *notes))


def uses(table: OpTable, row: int) -> list[Note]:
    """The `use` statements that brought a row in, innermost first: see :func:`used_note`."""
    chain = islice(table.turns_round(row), 1, None)
    return _cut([_used(site, turn) for site, turn in chain], lambda n: Note(f"... {n} more uses between"))


def _used(site: Site, turn: int) -> Note:
    loops = site.loop_values(turn)
    if site.use is None:
        return used_note(None, {}, loops, site.location)
    ranks = site.use.ranks[turn].tolist() if site.use.on else ()
    return used_note(site.use.schedule, site.use.arguments, loops, site.location, ranks)


def used_note(schedule: str | None, arguments: Mapping[str, str], loops: Mapping[str, Any], at: Location | None,
              ranks: Sequence[int] = ()) -> Note:
    """``in `ring`, used here with ranks = 3, where g = 1; its ranks 0, 1, 2 are 1, 3, 5 here``. ``ranks``: where its
    ranks lie, told where there are any."""
    text = (f"in `{schedule}`, " if schedule else "") + "used here"
    if arguments:
        text += " with " + ", ".join(f"{name} = {value}" for name, value in arguments.items())
    if loops:
        text += ", where " + ", ".join(f"{name} = {shown(value)}" for name, value in loops.items())
    if ranks:
        more = ", ..." if len(ranks) > MOST_RANKS else ""
        own, here = (", ".join(map(str, islice(r, MOST_RANKS))) + more for r in (range(len(ranks)), ranks))
        text += f"; its rank{f's {own} are' if len(ranks) > 1 else f' {own} is'} {here} here"
    return Note(text, at)


def row_note(table: OpTable, row: int, prefix: str = "") -> Note:
    """A note at the place of a row that says what it does, after ``prefix``, and where it comes from."""
    return Note(f"{prefix}{row_text(table, row)}{came_from(table, row)}", table.origin(row)[0])


def in_row(table: OpTable, row: int) -> Note:
    """``in send data[3] from rank 0 to rank 1, with s=3``: what a finding at the place of a row speaks of."""
    turn = turn_text(table, row)
    return Note(f"in {row_text(table, row)}" + (f", with {turn}" if turn else ""))


def came_from(table: OpTable, row: int) -> str:
    """Where a row comes from, to follow what is said of it: `` (line 12, s=3, r=17)``; empty where nothing is known."""
    text = origin_text(table, [row])
    return f" ({text})" if text else ""


def origin_text(table: OpTable, rows: Iterable[int]) -> str:
    """The lines that rows come from and the loop values they share, then those of the `use` statements that brought
    them in: ``line 12, s=3; used in line 30, i=1``; empty where nothing is known. A line of another file than the place
    before it goes by its file, too."""
    chains = [list(table.origins(row)) for row in rows]
    parts: list[str] = []
    file: str | None = None
    for depth, places in enumerate(zip_longest(*chains)):
        known = [place for place in places if place is not None]
        text, file = _level(known, file if depth else None)
        if text:
            parts.append(f"used in {text}" if depth else text)
    return "; ".join(_cut(parts, lambda n: f"... {n} more"))


def _level(places: Sequence[tuple[Location | None, Mapping[str, int]]], before: str | None) -> tuple[str, str | None]:
    """Places of one depth in words, and the file of the last one; ``before``: the file of those that they brought
    in."""
    lines = sorted({(at.file, at.line) for at, _ in places if at is not None})
    shared = dict(places[0][1])
    for _, values in places[1:]:
        shared = {name: v for name, v in shared.items() if values.get(name) == v}
    parts = []
    if lines:
        parts.append(f"line{'s' * (len(lines) > 1)} " + ", ".join(
            f"{line}" + (f" of {file}" if before not in (None, file) else "") for file, line in lines))
    parts += [f"{name}={value}" for name, value in shared.items()]
    return ", ".join(parts), lines[-1][0] if lines else before


def _cut(items: list[_Item], between: Callable[[int], _Item]) -> list[_Item]:
    """The items, those between the first and the last replaced by one where there are more than MOST_USES."""
    left = len(items) - MOST_USES
    return items if left <= 0 else [*items[:MOST_USES - 1], between(left), items[-1]]
