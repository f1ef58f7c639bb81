"""What holds of the interpreter itself, whatever the table."""

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from schedlang.interpret import interpret
from schedlang.interpret.sizes import Sizes
from schedlang.ir import legal
from schedlang.ir.layout import Layout
from schedlang.ops import COLLECTIVES, REDUCE_OPS
from tests.strategies import arbitrary_tables, tables

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}


@settings(max_examples=150, **QUIET)
@given(tables(), st.integers(0, 40))
def test_parts_have_the_lengths_that_the_layout_gives_them(table, size):
    kind = COLLECTIVES[table.collective.name]
    elements = size * table.ranks if kind.family == "blocked" else size
    measure = next((b.chunks for b in table.buffers if b.role == "input"), 1)
    whole = None if kind.family == "vector" else size * measure if kind.family == "custom" else elements
    layout, sizes = Layout(table, whole), Sizes(table, elements)
    assert layout.part == sizes.longest
    for b, buffer in enumerate(table.buffers):
        for r in range(table.ranks):
            if buffer.only in (None, r):
                rank = r if layout.per_rank else None
                assert sizes.of(b, r) == [int(layout.length(b, c, rank)) for c in range(buffer.chunks)]


@settings(max_examples=150, **QUIET)
@given(st.one_of(tables(), arbitrary_tables()), st.sampled_from(["rendezvous", "buffered=1", "unlimited"]),
       st.integers(0, 100))
def test_all_runs_do_the_same(table, sends, seed):
    assume(not legal.check(table))
    orders = ("in-order", "random", "adversarial")
    runs = [interpret(table, "contributions", sends=sends, order=o, seed=seed) for o in orders]
    first = runs[0]
    assume(not first.ambiguous)
    for run in runs[1:]:
        assert run.finished == first.finished
        assert {b.row for b in run.blocked} == {b.row for b in first.blocked}
        assert run.races == first.races
        assert run.unordered == first.unordered and not run.ambiguous
        settled = not first.races and not first.conflicts and table.collective.name != "barrier"  # tokens may race
        if settled and first.finished:
            assert set(run.uninitialised) == set(first.uninitialised)
            assert run.wrong == first.wrong
            assert run.memory.keys() == first.memory.keys()
            assert all(np.array_equal(run.memory[k], first.memory[k]) for k in first.memory)


@settings(max_examples=200, **QUIET)
@given(arbitrary_tables())
def test_more_buffers_never_hurt(table):
    """docs/decisions/0001: no deadlock under rendezvous means none for every N, and for N none for N + 1."""
    assume(not legal.check(table))
    models = ("rendezvous", "buffered=1", "buffered=2", "buffered=3", "unlimited")
    runs = [interpret(table, "contributions", sends=s) for s in models]
    assume(not any(r.ambiguous for r in runs))
    finished = [r.finished for r in runs]
    assert finished == sorted(finished)


@settings(max_examples=150, **QUIET)
@given(tables(flawless=True), st.sampled_from(sorted(REDUCE_OPS)), st.integers(0, 100),
       st.sampled_from(["int8", "uint16", "int64"]))
def test_what_counts_each_contribution_once_is_right_for_every_operator(table, op, seed, dtype):
    assert interpret(table, "contributions", op=op).clean
    assert interpret(table, seed, op=op, dtype=dtype, order="adversarial", seed=seed).clean
