"""Random programs rich in streams, events and own views: every way through the package says the same of them.

``python -m tests.property.test_lane_programs --count 5000`` judges many, and prints what they came to.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence

import pytest

from schedlang.diagnostics import Diagnostic, SchedError, Severity
from schedlang.expand import expand, load_text
from schedlang.expand.expansion import Failed
from schedlang.expand.program import Program
from schedlang.ir import json
from schedlang.ir.table import OpTable
from schedlang.source import Source
from schedlang.syntax import format_file, parse
from schedlang.verify import verify
from schedlang.verify.sends import Sends
from tests.comparison import MODELS, compare
from tests.lane_programs import Sample, sample
from tests.line_faults import planted
from tests.scalar_expand import Bad, Expander, canonical, of_table
from tests.strategies import working_table
from tests.table_text import written

NOT_SCALAR = ("SL201", "SL202", "SL204", "SL206", "SL208", "SL209", "SL211", "SL213", "SL214")
"""Findings that the scalar expander does not look for: names, limits, what has no reverse."""


def expanded(program: Program, which: Sample) -> OpTable | None:
    """The table, equal to that of the scalar expander, which fails where expansion fails."""
    table, findings = expand(program, which.name, ranks=which.ranks)
    if any(d.code in NOT_SCALAR for d in findings):
        return None
    schedule = program.root.schedules[which.name]
    scalar = Expander(schedule, program.root, {"ranks": which.ranks})
    try:
        rows = scalar.run()
    except Bad as bad:
        assert table is None, f"the scalar expander finds {bad.code} at {bad.statement.span.text}"
        assert any(_inside(d, bad.outermost) for d in findings), (bad.code, bad.statement.span.text, findings)
        return None
    except (Failed, SchedError) as why:  # inside what is used backwards, which the scalar expander leaves to the other
        assert table is None, str(why)
        return None
    assert table is not None, [str(d) for d in findings]
    assert canonical(of_table(table)) == canonical(rows)
    return table


def _inside(finding, statement) -> bool:
    spans = [finding.location, *(n.location for n in finding.notes)]
    return any(s is not None and statement.span.start <= s.start and s.end <= statement.span.end for s in spans)


def without_lines(table: OpTable) -> list[dict]:
    return [{k: v for k, v in row.items() if k not in ("line", "loops")} for row in canonical(of_table(table))]


def errors(found: Sequence[Diagnostic], table: OpTable) -> list[tuple[str, int]]:
    """The codes of the errors and their lines; of what no operation did, which stands at the header, without. Of races
    only whether there is one: which pairs show it depends on the order of rows in the source."""
    operations = {table.sites[s].location.line for s in set(table.site.tolist())}
    lines = [(d.code, d.location.line if d.location else 0) for d in found if d.severity == Severity.ERROR]
    return sorted({(code, line if line in operations and code != "SL401" else 0) for code, line in lines})


def judge(which: Sample, sends: str, seed: int) -> tuple[str, OpTable | None]:
    """What all say of a program, in a word. An assertion fails where they differ."""
    program = load_text(which.text)
    table = expanded(program, which)
    if table is None:
        return "no table", None
    judged = compare(table, sends, seed)
    assert judged.disagreement is None, judged.disagreement
    first = verify(table, sends=Sends.parse(sends))
    if judged.verdict != "illegal":
        second = verify(json.loads(json.dumps(table), "table.json"), sends=Sends.parse(sends))
        assert errors(second.diagnostics, table) == errors(first.diagnostics, table)
        assert second.facts == first.facts
    file, _ = parse(Source("<text>", which.text))
    assert file is not None
    formatted, _ = expand(load_text(format_file(file)), which.name, ranks=which.ranks)
    assert formatted is not None and without_lines(formatted) == without_lines(table)
    for code, line in errors(first.diagnostics, table):
        assert line or code in ("SL401", "SL501", "SL504")
    return judged.verdict, table


def campaign(count: int, seed: int, shown: int = 0) -> tuple[Counter[str], Counter[str]]:
    """Judge ``count`` programs: verdicts of programs that are right and of those with a fault."""
    rng = random.Random(seed)
    right: Counter[str] = Counter()
    faulty: Counter[str] = Counter()
    while right.total() + faulty.total() < count:
        model, at = rng.choice(MODELS), rng.randrange(1 << 30)
        if rng.random() < 0.15:
            table = working_table(rng, flawless=True)
            text = written(rng, table)
            if text is None:
                continue
            which = Sample(text, "main", table.ranks)
        else:
            which = sample(rng)
        fault = planted(rng, which.text) if rng.random() < 0.85 else None
        if fault is None:
            told, counter = which, right
        else:
            told, counter = Sample(fault[0], which.name, which.ranks), faulty
        file, _ = parse(Source("<text>", told.text))
        if file is None:
            faulty["no syntax"] += 1
            continue
        try:
            counter[judge(told, model, at)[0]] += 1
        except Exception as why:
            if not shown:
                raise AssertionError(f"{fault and fault[1:]} {model} {told.ranks} ranks\n{told.text}") from why
            shown -= 1
            trace = "".join(traceback.format_exception(why)[-4:])[:2500]
            print(f"---- {fault and fault[1:]} {model} {told.ranks} ranks, seed {at}\n{told.text}\n{trace}")
            counter["FAILED"] += 1
    return right, faulty


def nothing_differs(count: int, seed: int) -> None:
    right, faulty = campaign(count, seed)
    assert set(right) <= {"clean", "no table"} and right["clean"] > right["no table"]
    assert faulty["clean"] < faulty.total() / 2
    assert faulty["SL401"] and faulty["SL5xx"] and faulty["SL305"] and faulty["unmatched"]


def test_programs():
    nothing_differs(150, 1)


@pytest.mark.nightly
def test_5_000_programs():
    nothing_differs(5_000, 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    began = time.process_time()
    right, faulty = campaign(given.count, given.seed, shown=20)
    print(f"right: {dict(right)}\nwith a fault: {dict(faulty)}\n{time.process_time() - began:.0f} s CPU")
    return 1 if right["FAILED"] or faulty["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
