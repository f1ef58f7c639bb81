"""Findings as JSON values, for programs. The keys are stable: new ones may come, none goes or changes its meaning."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from schedlang.codes import CODES
from schedlang.diagnostics import Diagnostic
from schedlang.source import Location, Span, on_disk


def diagnostic(d: Diagnostic) -> dict[str, Any]:
    """One finding as a JSON object.

    Keys: ``code name severity message file line column end_line end_column help count notes witness``; the place's are
    null where there is none, ``end_*`` also where only a line is known. Lines and columns count from 1; the end is the
    first column behind the place.
    """
    code = CODES.get(d.code)
    return {
        "code": d.code, "name": code.name if code is not None else None, "severity": str(d.severity),
        "message": d.message,
        **location(d.location), "help": d.help, "count": d.count,
        "notes": [{"message": n.message, **location(n.location)} for n in d.notes],
        "witness": plain(d.witness),
    }


def location(at: Location | None) -> dict[str, Any]:
    """A place as ``file line column end_line end_column``. The file is one that a program can open, also where it is a
    shipped one, which messages call by another name."""
    end = at.source.position(at.end) if isinstance(at, Span) else (None, None)
    return {"file": on_disk(at.file) if at else None, "line": at.line if at else None,
            "column": at.column if at else None, "end_line": end[0], "end_column": end[1]}


def plain(value: Any) -> Any:
    """A value in terms of JSON: mappings and sequences copied, NumPy scalars and arrays as numbers and lists, other
    objects (fractions, infinities) as their text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in value]
    tolist = getattr(value, "tolist", None)  # NumPy scalars and arrays, without importing numpy for them
    return plain(tolist()) if tolist is not None else str(value)


def dumps(document: Mapping[str, Any]) -> str:
    """A JSON document, indented, ending in a newline."""
    return json.dumps(plain(document), indent=1, ensure_ascii=False) + "\n"
