"""Counts from files: what ``-p counts=@FILE`` reads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedlang.cli.common import bad_option
from schedlang.files import read_file

if TYPE_CHECKING:
    from schedlang.ir.table import Array

LIMIT = 1 << 62
_FORM = "counts are integers from 0 on: a list of them, or a list of equally long rows; a .csv has commas"


class _NoCounts(Exception):
    """What a file holds instead of counts, and where."""


def read_counts(path: Path, label: str) -> Array:
    """The vector or matrix of counts in a .json file (a list, or a list of rows) or in any other, as .csv: int64,
    shape (n,) or (rows, n). One row of a .csv is a vector. Raises SchedError (SL806)."""
    import numpy as np

    try:
        text = read_file(str(path)).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as failure:
        why = failure.strerror if isinstance(failure, OSError) else "not UTF-8 text"
        raise bad_option(f"{label}: cannot read {path}: {why}") from None
    try:
        rows, vector = _json(text) if path.suffix.lower() == ".json" else _csv(text)
        for where, cells in rows:
            _check(where, cells, rows[0])
    except _NoCounts as failure:
        raise bad_option(f"{label}: {path} does not hold counts: {failure}", help=_FORM) from None
    except ValueError:                                  # more digits than Python reads
        raise bad_option(f"{label}: {path} does not hold counts: a number has too many digits", help=_FORM) from None
    except RecursionError:
        raise bad_option(f"{label}: {path} does not hold counts: its lists nest too deep", help=_FORM) from None
    return np.array(rows[0][1] if vector else [cells for _, cells in rows], np.int64)


def _json(text: str) -> tuple[list[tuple[str, list[Any]]], bool]:
    """Rows with how messages call them, and whether the only one is a vector. Raises _NoCounts, ValueError,
    RecursionError."""
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as failure:
        raise _NoCounts(f"line {failure.lineno}, column {failure.colno} is not JSON ({failure.msg})") from None
    if not isinstance(rows, list):
        raise _NoCounts(f"it is {_shown(rows)} where a list belongs")
    if not rows:
        raise _NoCounts("the list is empty")
    if not any(isinstance(row, list) for row in rows):
        return [("the list", rows)], True
    for at, row in enumerate(rows):
        if not isinstance(row, list):
            raise _NoCounts(f"row [{at}] is {_shown(row)}, where others are lists")
    return [(f"row [{at}]", row) for at, row in enumerate(rows)], False


def _csv(text: str) -> tuple[list[tuple[str, list[Any]]], bool]:
    """As `_json`; blank lines are left out."""
    rows: list[tuple[str, list[Any]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            cells = [cell.strip() for cell in line.split(",")]
            rows.append((f"line {number}", [int(c) if re.fullmatch(r"[+-]?[0-9]+", c) else c for c in cells]))
    if not rows:
        raise _NoCounts("the file is empty")
    return rows, len(rows) == 1


def _check(where: str, cells: list[Any], first: tuple[str, list[Any]]) -> None:
    """Raises _NoCounts where a row holds something else, or is not as long as the first."""
    for cell in cells:
        if type(cell) is not int:
            raise _NoCounts(f"{where} has {_shown(cell)} where an integer belongs")
        if not 0 <= cell < LIMIT:
            raise _NoCounts(f"{where} has {_shown(cell)}, which is " + (
                "negative" if cell < 0 else "too large: counts are below 2^62"))
    if not cells:
        raise _NoCounts(f"{where} is empty")
    if len(cells) != len(first[1]):
        raise _NoCounts(f"{where} has {len(cells)} count{'s' * (len(cells) != 1)}, and {first[0]} has {len(first[1])}")


def _shown(cell: Any) -> str:
    text = repr(cell) if isinstance(cell, str) else json.dumps(cell)
    return text if len(text) <= 22 else f"{text[:20]}..."
