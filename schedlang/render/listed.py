"""What the formats for other tools list: every finding that a person would be shown, once, with its case; and how they
name files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from schedlang.diagnostics import Diagnostic
from schedlang.render.style import clean
from schedlang.render.verdict import values_text
from schedlang.report import Report
from schedlang.source import Location, on_disk


@dataclass(frozen=True)
class Listed:
    """A finding and where it was made.

    ``file``, ``schedule``, ``values``: what was verified, and the values of the smallest case; None and empty for what
    was found before there was a schedule. ``alike``: how many of the ``tried`` cases fail with errors of the same
    codes. ``user``: where the finding's place lies outside the checkout, as in a shipped schedule, the place in the
    checkout that uses it.
    """

    diagnostic: Diagnostic
    file: str | None = None
    schedule: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    alike: int = 1
    tried: int = 1
    user: Location | None = None

    @property
    def at(self) -> Location | None:
        """Where to show the finding."""
        return self.user or self.diagnostic.location

    @property
    def message(self) -> str:
        """What is wrong, and how many findings like it there are."""
        d = self.diagnostic
        return clean(d.message) + (f" (and {d.count - 1:,} more like it)" if d.count > 1 else "")

    @property
    def case(self) -> str:
        """For which values: ``in ring with ranks 3; 6 more of 8 cases fail alike``; empty where there are none."""
        values = values_text([self.values])
        text = f"in {self.schedule} with {values}" if values else ""
        return text + (f"; {self.alike - 1} more of {self.tried} cases fail alike" if text and self.alike > 1 else "")


def listed(reports: Iterable[Report], problems: Iterable[Diagnostic], root: str,
           more: Iterable[Listed] = ()) -> list[Listed]:
    """The findings of the smallest case of each kind of failure of a schedule, and the errors of others in lines where
    that has none; where no case fails its remarks; the notes on its file; and what was wrong before there were
    schedules; and ``more``. Sorted by file, line, column and code.

    Of several kinds of failure that have an error in one place, the one with the fewest ranks tells of it. ``root``:
    the folder of the checkout.
    """
    found = [*map(Listed, problems), *more]
    for report in reports:
        found += _of(report)
    return sorted((replace(one, user=_user(one.diagnostic, root)) for one in found), key=_order)


def _user(d: Diagnostic, root: str) -> Location | None:
    """The first place in the checkout that a finding at a place outside speaks of."""
    if d.location is None or relative(d.location.file, root) is not None:
        return None
    places = (note.location for note in d.notes)
    return next((at for at in places if at is not None and relative(at.file, root) is not None), None)


def _of(report: Report) -> Iterator[Listed]:
    failures, tried = report.failures, len(report.cases) - len(report.with_status("skipped"))
    told: set[tuple[object, ...]] = set()
    for d in report.notes:
        yield Listed(d, report.file, report.schedule)
    for failure in failures:
        case = failure.smallest
        here = [d for d in case.diagnostics if _place(d) not in told]
        told |= {_place(d) for d in here}
        for d in here:
            yield Listed(d, report.file, report.schedule, case.values, len(failure.cases), tried)
        for other, d in failure.elsewhere:
            if _place(d) not in told:
                told.add(_place(d))
                yield Listed(d, report.file, report.schedule, other.values, 1, tried)
    if not failures:
        for case, d in report.remarks:
            yield Listed(d, report.file, report.schedule, case.values, 1, tried)


def _place(d: Diagnostic) -> tuple[object, ...]:
    at = d.location
    return d.code, at and (at.file, at.line, at.column)


def _order(one: Listed) -> tuple[str, int, int, str]:
    at = one.at
    return (*((at.file, at.line, at.column) if at else (one.file or "", 0, 0)), one.diagnostic.code)


def relative(file: str, root: str) -> str | None:
    """A file's path from a folder, with forward slashes and links followed; None where it lies elsewhere, as a shipped
    one does, even of a package that is installed in that folder."""
    if file != on_disk(file):
        return None
    for resolved in (os.path.realpath, os.path.abspath):
        try:
            path = os.path.relpath(resolved(file), resolved(root))
        except ValueError:      # another drive; a name that no file can have
            continue
        if path.split(os.sep)[0] != os.pardir:
            return path.replace(os.sep, "/")
    return None
