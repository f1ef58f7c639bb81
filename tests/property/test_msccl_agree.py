"""Reader, table, verifier and interpreter say of MSCCL files what a machine says that runs them as their format does:
see :mod:`tests.msccl_campaign` for what is compared. The full product is ``make nightly``."""

import itertools
import random

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from schedlang.diagnostics import Severity
from tests import msccl_campaign, msccl_machine
from tests.msccl_bases import BASES, moves
from tests.msccl_campaign import LARGER, SMALLER, as_source, campaign, judge, mutants, real_files
from tests.msccl_mutants import MUTATIONS, mutate
from tests.msccl_text import algo, block, gpu, step
from tests.strategies_msccl import files

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
VERDICTS = {"clean", "illegal", "never", "unmatched", "mismatched", "hangs", "races", "uninitialised", "wrong"}
WRONG = msccl_campaign.VALUES
NO_FILES = "../shared/cases/msccl is not there"


@pytest.mark.parametrize("base", sorted(BASES))
def test_own_files_are_right(base):
    judged = judge(BASES[base](), 1)
    assert (judged.verdict, judged.disagreement) == ("clean", None)


def test_own_files_have_everything():
    read = [msccl_machine.read(make()) for make in BASES.values()]
    steps = [step for file in read for block in file.blocks for step in block.steps]
    assert {step.kind for step in steps} == msccl_machine.KINDS
    assert {file.coll for file in read} == msccl_machine.COLLECTIVES - {
        "reducescatter", "custom", "send", "recv", "alltoallv"}
    assert {way for file in read for way in file.placements} == {True, False}
    assert any(step.depid >= 0 for step in steps) and max(step.count for step in steps) > 1


@settings(max_examples=40, **QUIET)
@given(st.integers(0, 1 << 30))
def test_moves_one_after_another_are_right(seed):
    text = moves(random.Random(seed))
    note(text)
    judged = judge(text, seed)
    assert (judged.verdict, judged.disagreement) == ("clean", None)


@pytest.mark.parametrize("count", [1, 2])
def test_a_file_that_breaks_two_rules(count):
    """Only the root of a gather has its output; and with two chunks, the first step reads what it writes."""
    steps = [step("cpy", ("i", 0), ("i", 1), cnt=count), step("cpy", ("i", 0), ("o", 0))]
    text = algo([gpu(0), gpu(1, [block(0, steps)])], chunks=6, coll="gather", outofplace=1)
    judged = judge(text)
    assert (judged.verdict, judged.disagreement) == ("illegal", None)


@settings(max_examples=100, **QUIET)
@given(files(), st.integers(0, 1000))
def test_on_files_thrown_together(text, seed):
    note(text)
    assert judge(text, seed).disagreement is None


def campaign_finds_nothing(count, seed, real):
    figures = campaign(count, seed, real)
    print("\n".join(figures.lines()))
    assert not figures.disagreements
    assert set(figures.kinds) == set(MUTATIONS)
    assert set(figures.verdicts) >= VERDICTS
    assert set(figures.bases) >= set(real)
    assert figures.verdicts["clean"] < count / 2
    return figures


def test_on_mutants_of_own_files():
    campaign_finds_nothing(150, 3, {})


def source_is_judged_alike(count, seed, real):
    """Source of damaged files has their verdict, with their protocol as ``--sends``. How many tables there were, and
    how many of them are faulty."""
    there = faulty = 0
    for name, kinds, text in itertools.islice(mutants(random.Random(seed), real), count):
        for ours, other in as_source(text) if text is not None else ():
            # Wrong results are told by where they come from, the first of them: steps of a file, statements of source.
            errors, again = (sorted({"SL50x" if d.code in WRONG else d.code for d in v.diagnostics
                                     if d.severity >= Severity.ERROR}) for v in (ours, other))
            assert (errors, ours.facts) == (again, other.facts), f"{name}, {kinds}: {text}"
            assert [(p.name, p.state) for p in ours.proofs] == [(p.name, p.state) for p in other.proofs]
            there += 1
            faulty += bool(errors)
    return there, faulty


def test_source_of_mutants_has_their_verdict():
    there, faulty = source_is_judged_alike(60, 4, {})
    assert there > 30 and faulty > 10


@pytest.mark.nightly
def test_source_of_many_mutants_has_their_verdict():
    there, faulty = source_is_judged_alike(1500, 5, real_files())
    assert there > 900 and faulty > 300


@pytest.mark.parametrize("name, depth, agreement", [
    ("ap-1pass", 1, False), ("ag-32m-1g", 2, True), ("all-reduce-ring-ll", 2, True), ("ap2ll", 1, True)])
def test_known_verdicts(name, depth, agreement):
    """What an independent checker says of them is what the machine says."""
    file = msccl_machine.read(real_files([name]).get(name) or pytest.skip(NO_FILES))
    for inplace in file.placements:
        found = msccl_machine.judge(file, inplace)
        assert (found.word, found.least[0], found.agreement) == ("clean", depth, agreement)


@pytest.mark.parametrize("name", SMALLER)
def test_real_files_are_right(name):
    text = real_files([name]).get(name) or pytest.skip(NO_FILES)
    judged = judge(text, 1, models=())
    assert (judged.verdict, judged.disagreement) == ("clean", None)


@pytest.mark.nightly
def test_on_2500_mutants():
    """Of real files, too, where they are there; those of own and drawn ones are 2,000 anyhow."""
    real = real_files()
    figures = campaign_finds_nothing(3000 if real else 2000, 2, real)
    assert set(figures.bases) >= set(BASES)


@pytest.mark.nightly
@pytest.mark.parametrize("name", LARGER)
def test_on_mutants_of_larger_files(name):
    """Without the interpreter, which takes its time."""
    text, rng = real_files([name]).get(name) or pytest.skip(NO_FILES), random.Random(name)
    judged = judge(text, 1, models=())
    assert (judged.verdict, judged.disagreement) == ("clean", None)
    for kind in sorted(MUTATIONS):
        mutant = mutate(text, kind, rng)
        if mutant is not None:
            assert judge(mutant, 1, models=()).disagreement is None, kind


@pytest.mark.nightly
@settings(max_examples=3000, **QUIET)
@given(files(), st.integers(0, 1 << 30))
def test_on_many_files_thrown_together(text, seed):
    note(text)
    assert judge(text, seed).disagreement is None
