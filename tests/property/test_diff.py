"""What `diff` says of random tables, held against the interpreter and against copies in other words."""

import random
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from schedlang.diff import diff, operations, path, promises
from schedlang.interpret import interpret
from schedlang.interpret.conditions import conditions
from schedlang.interpret.sizes import always_empty
from schedlang.ir import json, legal
from schedlang.verify import verify
from schedlang.verify.matching import match
from schedlang.verify.sends import Sends
from schedlang.verify.timing.why import path as ordered
from tests.campaign import shipped_tables
from tests.mutants import MUTATIONS, mutate
from tests.renaming import in_other_words
from tests.strategies import arbitrary_tables, tables

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
SEED = st.integers(0, 1000)


def final(table):
    """What the result locations hold at the end: by counts of initial values, and these with a hash of the tree of
    additions; None where nothing."""
    run, empty = interpret(table, "contributions"), always_empty(table)
    held = {at: None if at not in run.memory else run.memory[at].tolist()
            for at in conditions(table).results if at not in empty}
    return {at: counts and counts[:-1] for at, counts in held.items()}, held


def bits(table, seed):
    """What the result locations hold at the end, as bytes; what else a custom collective's buffers hold is free."""
    memory = interpret(table, seed, dtype="float32", clocks=False).memory
    return {at: memory[at].tobytes() for at in conditions(table).results if at in memory}


@settings(max_examples=40, **QUIET)
@given(tables(), SEED)
def test_copies_in_other_words_have_the_same_operations(table, seed):
    copy = in_other_words(table, random.Random(seed))
    note(json.dumps(table))
    note(json.dumps(copy))
    assert operations.difference(table, copy) == ()
    assert operations.difference(copy, table) == ()


@settings(max_examples=40, **QUIET)
@given(arbitrary_tables(), SEED)
def test_copies_of_faulty_tables_have_the_same_operations(table, seed):
    if not legal.check(table) and not match(table).diagnostics:
        assert operations.difference(table, in_other_words(table, random.Random(seed))) == ()


@settings(max_examples=80, **QUIET)
@given(tables(flawless=True), st.lists(st.sampled_from(sorted(MUTATIONS)), min_size=1, max_size=2), SEED)
def test_mutants_differ_where_the_interpreter_says_so(table, kinds, seed):
    rng = random.Random(seed)
    mutant = table
    for kind in kinds:
        mutant = mutate(mutant, kind, rng) or mutant
    note(json.dumps(table))
    note(json.dumps(mutant))
    found = diff(table, in_other_words(mutant, rng) if seed % 2 and not legal.check(mutant) else mutant)
    if found.level == "faulty":
        assert not found.b.settled and not verify(mutant).ok
        return
    (ours, our_trees), (theirs, their_trees) = final(table), final(mutant)
    assert (found.level == "different") == (ours != theirs)
    assert (found.level in ("operations", "bits")) == (our_trees == their_trees)
    if found.level in ("operations", "bits"):
        assert bits(table, seed) == bits(mutant, seed)
    assert found.ok == (verify(mutant).ok and found.equivalent)
    assert bool(found.notes) == (found.level != "operations")


@settings(max_examples=20, **QUIET)
@given(tables(flawless=True), st.sampled_from([2, 3]))
def test_finer_chunks_give_the_same_bits(table, factor):
    if table.collective.counts is not None or table.collective.name == "barrier":
        return
    finer = promises.refined(table, factor)
    assert not legal.check(finer) and verify(finer).ok
    found = diff(table, finer)
    assert found.level in ("operations", "bits") and found.ok
    assert found.level == "bits" or not len(table)
    if found.level == "bits":
        assert found.parts == promises.common_parts(finer, finer)


@settings(max_examples=40, **QUIET)
@given(tables())
def test_the_critical_path_is_a_chain_as_long_as_the_rounds(table):
    verdict = verify(table)
    if verdict.facts.get("rounds") is None:
        return
    matched = match(table)
    rows = path.chain(table, matched)
    assert len(rows) == verdict.facts["rounds"]
    for before, after in pairwise(rows):
        together = (table.rank[before], table.stream[before], table.step[before]) == (
            table.rank[after], table.stream[after], table.step[after])
        assert together or ordered(table, matched, before, after, Sends.parse("unlimited"), start="post",
                                   until="end") is not None
    found = path.stretches(table, rows)
    assert sum(s.times for s in found) == len(rows)


@pytest.mark.parametrize("seed", range(2))
def test_shipped_schedules_in_other_words(seed):
    rng = random.Random(seed)
    for _, table in shipped_tables(4):
        copy = in_other_words(table, rng)
        found = diff(table, copy)
        assert found.level == "operations", (table.name, [n.message for n in found.notes])
        assert sum(s.times for s in found.a.path) == sum(s.times for s in found.b.path)
