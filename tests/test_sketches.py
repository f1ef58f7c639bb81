"""Schedules of many kinds, on 1 to 16 ranks each: right, but for the two that are kept to be found wrong, and without
warnings, but for one that wastes a copy."""

from pathlib import Path

import pytest

from schedlang.diagnostics import Severity
from schedlang.expand import cases, expand, load_program
from schedlang.verify import verify
from tests.comparison import compare

FOLDER = Path(__file__).parent / "sketches"
NAMES = [(path, name) for path in sorted(FOLDER.glob("*.sched")) for name in load_program(str(path)).names]
WRONG = {
    "short_barrier": "SL308",  # one round too few
    "double_tree": "SL401",  # the way down overwrites what the way up may still be sending
}
WASTEFUL = {"one_shot": {"SL607", "SL608"}}  # rank 0 need not bounce what it has
NOT_FOR_ALL = {"halving_doubling": "SL207", "swing": "SL207", "even_odd_shift": "SL224"}


def worlds(path, name):
    """The parameters of each world of 1 to 16 ranks, in all shapes where the schedule has two dimensions."""
    program = load_program(str(path))
    params = [p.name for p in program.root.schedules[name].params]
    for n in range(1, 17):
        if "ranks" in params:
            found = cases(program, name, ranks=[n])
        else:
            found = [case for a in range(1, n + 1) if n % a == 0
                     for case in cases(program, name, params={params[0]: a, params[1]: n // a})]
        for case in found:
            yield n, expand(program, name, ranks=n, params={k: v for k, v in case.items() if k != "ranks"})


@pytest.mark.parametrize(("path", "name"), NAMES, ids=lambda x: x if isinstance(x, str) else x.stem)
def test_sketch(path, name):
    proved = set()
    for n, (table, findings) in worlds(path, name):
        if table is None:
            assert [d.code for d in findings if d.severity == Severity.ERROR][:1] == [NOT_FOR_ALL[name]]
            continue
        found = {d.code for d in (*findings, *verify(table).diagnostics) if d.severity > Severity.NOTE}
        expected = {WRONG[name]} if name in WRONG else WASTEFUL.get(name, set())
        assert found == (expected if n > 1 else set()), n
        proved.add(n)
        if n in (3, 4):
            assert compare(table).disagreement is None
    assert len(proved) == {"SL207": 5, "SL224": 15}.get(NOT_FOR_ALL.get(name), 16)
