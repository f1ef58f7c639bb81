"""Findings as workflow commands of GitHub Actions, which shows them at their lines."""

from __future__ import annotations

import os
from collections.abc import Iterable

from schedlang.codes import CODES
from schedlang.diagnostics import Severity
from schedlang.render.json import location
from schedlang.render.listed import Listed, relative
from schedlang.render.terminal import summary

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
    at = location(d.location)
    file = at["file"] or finding.file
    properties: dict[str, object] = {}
    if file:
        properties["file"] = relative(file, root) or os.path.abspath(file)
    if at["line"]:
        properties["line"] = at["line"]
        # Columns can be given only for what lies in one line.
        if at["end_line"] is None or at["line"] == at["end_line"]:
            properties["col"] = at["column"]
        if at["end_line"] is not None:
            properties["endLine"] = at["end_line"]
            if at["line"] == at["end_line"]:
                properties["endColumn"] = at["end_column"]
    properties["title"] = f"{d.code} {CODES[d.code].name}"
    lines = [finding.message, *([finding.case] if finding.case else []), *map(str, d.notes)]
    if d.help:
        lines.append(f"help: {d.help}")
    said = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
    return f"::{_COMMANDS[d.severity]} {said}::{_data(chr(10).join(lines))}"


def _data(text: str) -> str:
    """What may stand behind the second ``::``; a bare line end would end the command, and the next line start one."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
