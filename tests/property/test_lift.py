"""Random tables as source: what is written says the same, or it is said what cannot be written."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schedlang import lift
from schedlang.diagnostics import SchedError
from schedlang.ir import legal
from schedlang.verify.matching import match
from tests.lifted import comes_back
from tests.renaming import in_other_words
from tests.strategies import arbitrary_table, arbitrary_tables, tables, working_table

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}

UNSAYABLE = ("neither stored nor passed on", "in another order than they arrive", "on one channel", "more than once",
             "contributions of several places")
"""Why a table may have no source."""


def holds(table):
    """Whether a table was written; it then says the same (where it is settled which messages go together)."""
    try:
        lift.source(table)
    except SchedError as why:
        assert [d.code for d in why.diagnostics] == ["SL808"]
        assert any(reason in why.diagnostics[0].message for reason in UNSAYABLE), why
        return False
    if not match(table).diagnostics:
        comes_back(table)
    return True


@settings(max_examples=40, **QUIET)
@given(tables(), st.integers(0, 1000))
def test_working_tables_come_back(table, seed):
    holds(in_other_words(table, random.Random(seed)))


@settings(max_examples=40, **QUIET)
@given(arbitrary_tables())
def test_tables_thrown_together_come_back(table):
    if not legal.form(table):
        holds(table)


def test_nearly_all_tables_have_source():
    assert sum(holds(working_table(random.Random(k))) for k in range(30)) >= 27


@pytest.mark.nightly
def test_many_tables_come_back():
    for k in range(3000):
        rng = random.Random(k)
        holds(in_other_words((working_table if k % 3 else arbitrary_table)(rng), rng))
