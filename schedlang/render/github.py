"""Findings as workflow commands of GitHub Actions, which shows them at their lines."""

from __future__ import annotations

import os
from collections.abc import Iterable

from schedlang.codes import CODES
from schedlang.diagnostics import Severity
from schedlang.render.listed import Listed, relative
from schedlang.render.style import clean
from schedlang.render.terminal import place, summary
from schedlang.source import Span, on_disk

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def text(findings: Iterable[Listed], *, right: int, judged: int, unread: int, root: str) -> str:
    """A command a finding, in the order given, and a last line that counts. Files are named from the folder ``root``.

    ``right`` of ``judged`` schedules are right; ``unread`` files could not be used.
    """
    findings = list(findings)
    counts = [summary(f.diagnostic for f in findings) or "no findings", f"{right} of {judged} schedules are right"]
    if unread:
        counts.append(f"{unread} file{'s' * (unread > 1)} could not be used")
    return "".join(f"{_command(f, root)}\n" for f in findings) + "; ".join(counts) + "\n"


def _command(finding: Listed, root: str) -> str:
    d = finding.diagnostic
    at = finding.at
    file = at.file if at is not None else finding.file
    properties: dict[str, object] = {}
    if file is not None:
        properties["file"] = relative(file, root) or os.path.abspath(on_disk(file))
    if at is not None:
        properties["line"] = at.line
    if isinstance(at, Span):
        end_line, end_column = at.source.position(at.end)
        properties["endLine"] = end_line
        if end_line == at.line:         # columns are taken only of what lies in one line
            properties |= {"col": at.column, "endColumn": end_column}
    elif at is not None and at.column > 1:
        properties["col"] = at.column
    properties["title"] = f"{d.code} {CODES[d.code].name}"
    lines = [finding.message, *([finding.case] if finding.case else []), *map(str, d.notes)]
    if finding.user is not None:
        lines.insert(1, f"found in {place(d.location)}")
    if d.help:
        lines.append(f"help: {d.help}")
    said = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
    return f"::{_COMMANDS[d.severity]} {said}::{_data(chr(10).join(lines))}"


def _data(text: str) -> str:
    """What may stand behind the second ``::``. A line end as it is would end the command, and the next line might be
    another one; other control characters go by stand-ins."""
    return clean(text).replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
