"""Which operations and places a finding speaks of, read from its witness."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from schedlang.diagnostics import Diagnostic, Severity
from schedlang.ir.table import OpTable


def rows_of(finding: Diagnostic, table: OpTable) -> list[int]:
    """The rows of the table that a finding names, each once."""
    said: Mapping[str, Any] = finding.witness
    named = [said.get(key) for key in ("row", "first", "second", "send", "receive")]
    for each in said.get("rows") or ():
        named.append(each)
    for wait in said.get("circle") or ():
        named += [wait.get("row"), wait.get("waits_for")]
    return list(dict.fromkeys(row for row in named if type(row) is int and 0 <= row < len(table)))


def place_of(finding: Diagnostic, table: OpTable) -> tuple[int, int, int] | None:
    """The place (buffer, rank, chunk) that a finding says holds something wrong at the end; None for others."""
    said = finding.witness
    buffer = table.buffer_index(str(said.get("buffer")))
    rank, chunk = said.get("rank"), said.get("chunk")
    if not finding.code.startswith("SL50") or buffer is None or type(rank) is not int or type(chunk) is not int:
        return None
    return buffer, rank, chunk


def numbered(findings: Iterable[Diagnostic], table: OpTable) -> dict[int, int]:
    """For each row that an error names the number of the first such finding, counted from 1 among all."""
    number: dict[int, int] = {}
    for k, finding in enumerate(findings, 1):
        if finding.severity == Severity.ERROR:
            for row in rows_of(finding, table):
                number.setdefault(row, k)
    return number
