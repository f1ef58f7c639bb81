"""The tools of the comparison: mutants are well-formed and differ, shrinking keeps what it looks for, and a verifier
that errs is caught."""

import random
from dataclasses import replace

import numpy as np
import pytest

from schedlang.diagnostics import error
from schedlang.ir import legal
from schedlang.ir.table import COLUMNS
from schedlang.verify import verify
from tests import comparison
from tests.campaign import shrink
from tests.mutants import MUTATIONS, mutate
from tests.strategies import arbitrary_table, working_table


def differs(a, b):
    return len(a) != len(b) or any(not np.array_equal(getattr(a, c), getattr(b, c)) for c in COLUMNS if c != "number")


@pytest.mark.parametrize("kind", MUTATIONS)
def test_a_mutant_is_well_formed_and_another_table(kind):
    changed = 0
    for seed in range(60):
        rng = random.Random(seed)
        table = working_table(rng) if seed % 2 else arbitrary_table(rng)
        mutant = mutate(table, kind, rng)
        if mutant is not None:
            assert not legal.form(mutant)
            changed += differs(table, mutant)
    assert changed >= 5


def faulty(verdict, count=5):
    """Some tables of which both say ``verdict``."""
    found, seed = [], 0
    while len(found) < count:
        seed += 1
        rng = random.Random(seed)
        table = arbitrary_table(rng)
        if seed % 2:
            table = mutate(working_table(rng, flawless=True), rng.choice(list(MUTATIONS)), rng)
        if table is not None and comparison.compare(table, "default", seed).verdict == verdict:
            found.append((table, seed))
    return found


@pytest.mark.parametrize("verdict", ["unmatched", "SL303", "SL304", "SL305", "SL401", "SL402", "SL403", "SL5xx"])
def test_a_verifier_that_sees_nothing_is_caught(verdict, monkeypatch):
    tables = faulty(verdict)
    monkeypatch.setattr(comparison, "verify", lambda table, **kw: replace(verify(table, **kw), diagnostics=()))
    assert all(comparison.compare(table, "default", seed).disagreement for table, seed in tables)


@pytest.mark.parametrize("code", ["SL301", "SL303", "SL304", "SL305", "SL401", "SL402", "SL403", "SL501"])
def test_a_verifier_that_sees_what_is_not_there_is_caught(code, monkeypatch):
    tables = faulty("clean")
    monkeypatch.setattr(comparison, "verify", lambda table, **kw: replace(
        verify(table, **kw), diagnostics=(error(code, "not so"),)))
    assert all(comparison.compare(table, "default", seed).disagreement for table, seed in tables)


def test_shrinking_keeps_the_fault_and_little_else():
    for table, seed in faulty("SL401"):
        def races(t, seed=seed):
            return comparison.compare(t, "default", seed).verdict == "SL401"
        small = shrink(table, races)
        assert races(small) and len(small) <= min(6, len(table))
