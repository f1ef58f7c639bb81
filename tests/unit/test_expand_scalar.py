"""Expansion over whole index arrays against the scalar expander: the same rows, in the same order."""

from pathlib import Path

import pytest

from schedlang.expand import cases, expand, load_program
from tests.scalar_expand import Expander, canonical, of_table

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").rglob("*.sched"))


def same_rows(table, scalar):
    assert canonical(of_table(table)) == canonical(scalar.run())


def compare(path, name, program, case):
    params = dict(case)
    ranks = params.pop("ranks")
    table, findings = expand(program, name, ranks=ranks, params=params)
    if table is None:
        assert [d.code for d in findings] == ["SL207"], findings
        return
    plain = {k: v.tolist() if hasattr(v, "tolist") else v for k, v in params.items()}
    schedule = program.root.schedules[name]
    if any(p.name == "ranks" for p in schedule.params):
        plain["ranks"] = ranks
    scalar = Expander(schedule, program.root, plain)
    same_rows(table, scalar)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_examples(path):
    program = load_program(str(path))
    for name in program.names:
        for case in cases(program, name):
            compare(path, name, program, case)
