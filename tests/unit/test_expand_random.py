"""Random programs: expansion over whole index arrays gives the rows, or the error, that the scalar expander gives."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schedlang.expand import expand, load_text
from schedlang.ir.legal import check
from tests.programs import programs
from tests.scalar_expand import Bad, Expander, canonical, of_table


def inside(finding, statement):
    """Whether a finding, or a call that led to it, stands in a statement."""
    spans = [finding.location, *(n.location for n in finding.notes)]
    return any(s is not None and statement.span.start <= s.start and s.end <= statement.span.end for s in spans)


@settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
@given(programs(), st.integers(1, 5), st.integers(0, 3))
def test_random_programs(text, ranks, k):
    program = load_text(text)
    table, findings = expand(program, "main", ranks=ranks, params={"k": k}, max_ops=10_000)
    if table is None and any(f.code == "SL208" for f in findings):
        return
    try:
        scalar = Expander(program.root.schedules["main"], program.root, {"ranks": ranks, "k": k})
        rows = scalar.run()
    except Bad as bad:
        assert table is None, f"the scalar expander finds {bad.code} at {bad.statement.span.text}"
        # a statement that fails in a later turn hides what depends on it, in earlier turns, too
        assert any(inside(f, bad.outermost) for f in findings), (bad.code, bad.statement.span.text, findings)
        return
    assert table is not None, findings
    assert canonical(of_table(table)) == canonical(rows)
    assert {d.code for d in check(table)} <= {"SL306", "SL307"}
