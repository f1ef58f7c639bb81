"""``verify`` and the interpreter say the same of random tables and of mutants; see :mod:`tests.comparison` for what is
compared and why one run is enough. The full product is ``make nightly``."""

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from schedlang.expand import cases, load_program
from schedlang.ir import json
from schedlang.ir.build import table_from_rows
from schedlang.ir.table import Buffer, Collective, OpTable, Transport
from tests.campaign import EXAMPLES, campaign, schedule_of, shipped_tables
from tests.comparison import MODELS, Comparison, compare
from tests.mutants import MUTATIONS, mutate
from tests.strategies import arbitrary_tables, tables

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
MODEL = st.sampled_from(MODELS)
SEED = st.integers(0, 1000)


def agree(table: OpTable, sends: str, seed: int) -> None:
    note(json.dumps(table))
    assert compare(table, sends, seed).disagreement is None


@settings(max_examples=400, **QUIET)
@given(tables(), MODEL, SEED)
def test_on_schedules_that_are_nearly_right(table, sends, seed):
    agree(table, sends, seed)


@settings(max_examples=400, **QUIET)
@given(arbitrary_tables(), MODEL, SEED)
def test_on_rows_thrown_together(table, sends, seed):
    agree(table, sends, seed)


@settings(max_examples=100, **QUIET)
@given(tables(flawless=True), MODEL, SEED)
def test_schedules_that_are_right_are_clean(table, sends, seed):
    assert compare(table, sends, seed).verdict == "clean"


@settings(max_examples=400, **QUIET)
@given(tables(flawless=True), st.lists(st.sampled_from(sorted(MUTATIONS)), min_size=1, max_size=2), MODEL, SEED)
def test_on_mutants(table, kinds, sends, seed):
    for kind in kinds:
        table = mutate(table, kind, random.Random(seed)) or table
    agree(table, sends, seed)


@settings(max_examples=150, **QUIET)
@given(st.one_of(tables(), arbitrary_tables(), tables(flawless=True)), st.integers(1, 3), SEED)
def test_on_tables_for_a_transport(table, depth, seed):
    agree(replace(table, transport=Transport("wire", depth)), "default", seed)


def test_on_messages_that_wait_for_their_receiver():
    """Three are sent at once and received one after another."""
    rows = [{"op": "send", "rank": r, "peer": 1, "buffer": "data", "chunk": 0} for r in (0, 2, 3)]
    rows += [{"op": "reduce_recv", "rank": 1, "peer": r, "buffer": "data", "chunk": 0, "step": s}
             for s, r in enumerate((2, 3, 0))]
    table = table_from_rows(rows, ranks=4, collective=Collective("reduce", "sum", root=1),
                            buffers=[Buffer("data", 1, role="data")])
    assert all(compare(table, model) == Comparison("clean") for model in MODELS)


def test_every_shipped_schedule_is_a_base_in_all_its_forms():
    """None is left out for its size: each in several worlds, each with every value that its `verify` line gives its
    parameters, up to 8 ranks."""
    bases = {what for what, _ in shipped_tables()}
    for path in EXAMPLES.rglob("*.sched"):
        program = load_program(str(path))
        for name in program.names:
            which = f"{path.relative_to(EXAMPLES)}::{name}"
            small = [case for case in cases(program, name, ranks=None, params={}) if 2 <= case["ranks"] <= 8]
            here = [case for case in small if f"{which} {case}" in bases]
            assert len({case["ranks"] for case in here}) >= 3, which
            for parameter in small[0].keys() - {"ranks", "counts"}:
                values, wanted = ({str(case[parameter]) for case in some} for some in (here, small))
                assert values == wanted, (which, parameter)


def campaign_finds_nothing(count: int, seed: int) -> None:
    figures = campaign(count, seed, shipped_tables())
    print("\n".join(figures.lines()))
    assert not figures.disagreements
    assert set(figures.kinds) == set(MUTATIONS)
    assert set(figures.schedules) == {schedule_of(what) for what, _ in shipped_tables()}
    assert figures.verdicts["clean"] < count / 2  # most mutants are wrong: the comparison has something to say


def test_on_mutants_of_what_ships():
    campaign_finds_nothing(1500, 1)


@pytest.mark.nightly
def test_on_20_000_mutants():
    campaign_finds_nothing(20_000, 2)
