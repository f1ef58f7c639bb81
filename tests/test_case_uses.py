"""Of which operations each finding on tests/cases tells the uses, and in which order: every row gets a use of its own.

`pytest tests/test_case_uses.py --update` writes golden/verdicts/uses.txt anew: a finding's code and count, its row,
then the others it speaks of.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from schedlang.ir.table import OpTable, Site
from schedlang.source import Place
from schedlang.verify import verify
from tests.test_cases import CASES, expands, judge, read_case

GOLDEN = Path(__file__).parent / "golden" / "verdicts" / "uses.txt"


def used(table: OpTable) -> OpTable:
    """The table with a statement of its own for each row, brought in by a `use` of its own in that line of `uses`."""
    rows = range(len(table))
    return replace(table, site=np.arange(len(table), dtype=np.int32), turn=np.zeros(len(table), np.int32), sites=(
        *(Site(Place("statements", r), parent=(len(table) + r, 0)) for r in rows),
        *(Site(Place("uses", r)) for r in rows)))


def told(path: Path) -> list[str]:
    """A line for each finding: its code and count, and the rows of which it tells the uses."""
    _, verdict = judge(path, read_case(path))
    assert verdict is not None
    options = {"require_agreement": "require-agreement" in read_case(path).options, "sends": verdict.sends}
    lines = []
    for d in verify(used(verdict.table), **options).diagnostics:
        rows = [n.location.line for n in d.notes if n.location is not None and n.location.file == "uses"]
        times = f" x{d.count}" if d.count > 1 else ""
        lines.append(" ".join([f"{path.stem}: {d.code}{times}", *map(str, rows)]))
    return lines


def test_whose_uses_are_told(update: bool) -> None:
    said = "".join(f"{line}\n" for path in CASES if expands(path) for line in told(path))
    if update:
        GOLDEN.write_text(said, encoding="utf-8")
    assert said == GOLDEN.read_text(encoding="utf-8")
