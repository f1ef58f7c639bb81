"""Files that runtimes ship, and what is known of them from an independent checker (``SOURCES.md`` beside them)."""

from pathlib import Path

import pytest

from schedlang.diagnostics import Severity
from schedlang.msccl import placements, read, table
from schedlang.verify import Sends, verify
from tests.comparison import Comparison, compare

FOLDER = Path(__file__).parents[2] / "shared" / "cases" / "msccl"

# Ways to be used (in place, out of place), least depth of whole messages and of single chunks, agreement.
KNOWN = {
    "a2a2ll": ((False,), 0, 0, None), "ag-1m": ((True,), 0, 0, True), "ag-32m-1g": ((True,), 2, 2, True),
    "ap-1pass": ((True,), 1, 8, False), "ap2ll": ((True,), 1, 8, True), "r48ll": ((True,), 1, 1, True),
    "ag_hier_4_LL": ((False,), 0, 0, True), "ag_hier_4_Simple": ((False,), 0, 0, True),
    "ar_hier_12_Simple": ((True,), 1, 1, True), "ar_tree_12_LL": ((True,), 0, 0, True),
    "alltoall-8n-0-9kb": ((False,), 0, 0, None), "alltoall-8n-7mb-43mb": ((False,), 1, 1, None),
    "allreduce-allpairs-8n-ll-32tb": ((True,), 1, 8, True), "all-reduce-ring-ll": ((True, False), 2, 2, True),
}
SMALL = ("a2a2ll", "ag-1m", "ag_hier_4_LL", "ag_hier_4_Simple", "ar_hier_12_Simple", "ar_tree_12_LL",
         "alltoall-8n-0-9kb")
"""These the interpreter judges always, the others nightly."""

files = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs ../shared/cases/msccl, which is not there")


def path(name):
    return str(FOLDER / f"{name}.xml.gz")


@files
def test_all_files_are_known():
    assert {f.name.removesuffix(".xml.gz") for f in FOLDER.iterdir()} == set(KNOWN)


@files
@pytest.mark.parametrize("name", KNOWN)
def test_a_file_has_its_known_verdict(name):
    """All are right with the depth of their protocol; two are stuck with one message in flight; one lets its ranks add
    up 32 chunks in different orders."""
    ways, whole, cut, agreement = KNOWN[name]
    plan = read(path(name))
    assert placements(plan) == ways
    for inplace in ways:
        found = table(plan, inplace)
        verdict = verify(found)
        assert verdict.ok and all(d.severity < Severity.WARNING for d in verdict.diagnostics)
        assert [(d.code, d.count) for d in verdict.diagnostics] == ([("SL505", 32)] if agreement is False else [])
        states = {p.name: p.state for p in verdict.proofs if p.name != "agreement"}
        assert len(states) == 7 and set(states.values()) == {"proved"}
        facts = verdict.facts
        assert (facts.get("least_depth_whole", facts["least_depth"]), facts["least_depth"]) == (whole, cut)
        assert facts["agreement"] is agreement
        stuck = name in ("ag-32m-1g", "all-reduce-ring-ll")
        found_at_one = verify(found, sends=Sends.parse("buffered=1"))
        assert [d.code for d in found_at_one.diagnostics if d.severity == Severity.ERROR] == ["SL305"] * stuck
        asked = verify(found, require_agreement=True)
        assert [d.code for d in asked.diagnostics if d.severity == Severity.ERROR] == ["SL505"] * (agreement is False)


@files
@pytest.mark.parametrize("name", [name if name in SMALL else pytest.param(name, marks=pytest.mark.nightly)
                                  for name in KNOWN])
def test_the_interpreter_says_the_same(name):
    plan = read(path(name))
    for inplace in placements(plan):
        assert compare(table(plan, inplace)) == Comparison("clean")
        stuck = name in ("ag-32m-1g", "all-reduce-ring-ll")
        assert compare(table(plan, inplace), "buffered=1") == Comparison("SL305" if stuck else "clean")
