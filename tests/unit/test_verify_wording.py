"""What findings say where there is much to say, or little: lists cut short, counts, singular and plural."""

import random
import re
from types import SimpleNamespace

import numpy as np
import pytest

from schedlang.diagnostics import SchedError
from schedlang.ir.build import table_from_rows
from schedlang.ir.table import Buffer, Collective, Site, Transport
from schedlang.source import Place
from schedlang.verify import agreement, barrier, collapse, races, verify
from schedlang.verify.sends import Sends
from schedlang.verify.timing import reach
from tests.tables import allreduce, ring
from tests.unit.test_values import the
from tests.unit.test_verify_corners import case


def test_numbers_in_runs():
    """What is written reads as the same numbers; what is left out is counted."""
    rng = random.Random(5)
    for _ in range(300):
        there = rng.sample(range(30), rng.randint(0, 20))
        text, more = re.fullmatch(r"(.*?)(?: and (\d+) more)?", collapse.numbers(rng.choice([there, np.array(there)]))
                                  ).groups() if there else (collapse.numbers(iter(there)), None)
        read = []
        for run in filter(None, text.split(", ")):
            begin, _, end = run.partition(" to ")
            read += range(int(begin), int(end or begin) + 1)
        assert read == sorted(there)[:len(read)] and len(read) + int(more or 0) == len(there)
        runs = sum(a + 1 not in there for a in there)
        assert (more is not None) == (runs > 6)


def test_groups_that_are_left_out_count_with_the_last():
    groups = [(7, 1), (8, 2), (9, 4), (11, 8)]
    assert collapse.shown(groups, 4) == groups
    assert collapse.shown(groups, 3) == [(7, 1), (8, 2), (9, 12)]
    assert collapse.shown(groups, 1) == [(7, 15)]


@pytest.mark.parametrize(("ranks", "more"), [(8, False), (9, True)])
def test_eight_ranks_of_a_circle_are_named(ranks, more):
    found = the(verify(case("cycle_send_then_recv", ranks)), "SL305")
    assert (", 7, ...," in found.message) is more and ", 7" in found.message


def test_the_witness_of_a_long_circle_ends():
    found = the(verify(case("cycle_send_then_recv", 70)), "SL305")
    assert found.witness["length"] == 70 and [w["rank"] for w in found.witness["circle"]] == [*range(64)]


def test_findings_that_stand_for_several_count_so():
    table = ring(2)         # rows 0 and 4 come from different statements
    rows = np.array([0, 4, 0, 4, 4])
    assert collapse.by_statement(table, rows) == [(0, 2), (1, 3)]
    assert collapse.by_statement(table, rows, times=np.array([1, 10, 100, 1_000, 10_000])) == [(0, 101), (1, 11_010)]


# Barriers


def entering(ranks, known, lanes=1):
    """A barrier that fails: every rank knows of the ``known`` ranks before it, and of itself, on its first stream; each
    has ``lanes`` more streams that wait for nothing."""
    rows = []
    for r in range(ranks):
        for k in range(known):
            rows.append(dict(op="send", rank=r, peer=(r + k + 1) % ranks, step=0, buffer="data", chunk=0))
        for k in range(known):
            rows.append(dict(op="recv", rank=r, peer=(r - k - 1) % ranks, step=1, buffer="data", chunk=0))
        rows += [dict(op="record", rank=r, stream=f"s{k}", event=f"e{k}", index=[0]) for k in range(lanes)]
    return table_from_rows(rows, ranks=ranks, collective=Collective("barrier"),
                           buffers=[Buffer("data", 1, role="data")])


@pytest.mark.parametrize(("ranks", "named"), [
    (3, "rank 0 does not wait for 2 ranks: 1, 2"),
    (9, "rank 0 does not wait for 8 ranks: 1, 2, 3, 4, 5, 6, 7, 8"),
    (10, "rank 0 does not wait for 9 ranks: 1, 2, 3, 4, 5, 6, 7, 8, ..."),
])
def test_ranks_that_a_barrier_does_not_wait_for(ranks, named):
    rows = [dict(op=op, rank=a, peer=b, buffer="data", chunk=0, step=s) for r in range(1, ranks)
            for op, a, b, s in (("send", 0, r, r - 1), ("recv", r, 0, 0))]
    table = table_from_rows(rows, ranks=ranks, collective=Collective("barrier"),
                            buffers=[Buffer("data", 1, role="data")])
    found = the(verify(table, sends=Sends.parse("buffered=1")), "SL308")
    assert named in [n.message for n in found.notes]
    assert "(with 1 message in flight per connection)" in found.message


@pytest.mark.parametrize("words", [1 << 22, 1])
@pytest.mark.parametrize(("ranks", "known", "lanes"), [(70, 60, 0), (3, 2, 66), (130, 1, 0)])
def test_barriers_of_more_lanes_than_a_word_has_bits(ranks, known, lanes, words, monkeypatch):
    monkeypatch.setattr(barrier, "WORDS", words)
    found = the(verify(entering(ranks, known, lanes)), "SL308")
    assert found.count == ranks * (ranks if lanes else ranks - 1 - known)


def test_the_one_rank_of_many_that_nobody_waits_for_is_named():
    """All but rank 64 tell rank 0 that they have entered, and it tells all."""
    tell = [r for r in range(1, 70) if r != 64]
    rows = [dict(op=op, rank=a, peer=b, step=0, buffer="data", chunk=0)
            for r in tell for op, a, b in (("send", r, 0), ("recv", 0, r))]
    rows += [dict(op=op, rank=a, peer=b, step=1 if a != 64 else 0, buffer="data", chunk=0)
             for r in range(1, 70) for op, a, b in (("send", 0, r), ("recv", r, 0))]
    table = table_from_rows(rows, ranks=70, collective=Collective("barrier"), buffers=[Buffer("data", 1, role="data")])
    found = the(verify(table), "SL308")
    assert found.count == 69 and found.witness == {"leaving": 0, "entering": 64}


def test_of_many_idle_ranks_the_witness_lists_some():
    found = the(verify(case("short_barrier", 2).with_columns(ranks=80)), "SL308")
    assert found.count == 80 and found.witness["ranks"] == [*range(64)]


# Models of sends


@pytest.mark.parametrize(("text", "model"), [
    ("default", Sends()), ("rendezvous", Sends(0, 0)), ("unlimited", Sends(None, None)), ("buffered=1", Sends(1, 1)),
    ("buffered=999999999", Sends(999_999_999, 999_999_999)), ("LL", Sends(8, None, Transport("LL", 8))),
    ("LL128", Sends(8, None, Transport("LL128", 8))), ("Simple", Sends(2, None, Transport("Simple", 2)))])
def test_models_of_sends_read_as_they_are_written(text, model):
    assert Sends.parse(text) == model and str(model) == text


@pytest.mark.parametrize("text", ["", "buffered", "buffered=0", "buffered=-1", "buffered=1000000000", "LL=8", "L"])
def test_what_is_no_model_of_sends(text):
    with pytest.raises(SchedError) as error:
        Sends.parse(text)
    (said,) = error.value.diagnostics
    assert (said.code, said.message) == ("SL806", f"{text!r} is no model of sends")
    assert said.help == (
        "write rendezvous, buffered=N with N at least 1, unlimited, or the name of a protocol: Simple, LL, LL128; "
        "without the option deadlock is judged without buffering and all else with unlimited buffering")


@pytest.mark.parametrize(("text", "meant"), [("Rendezvous", "rendezvous"), ("ll", "LL"), ("SIMPLE", "Simple")])
def test_capitals_of_a_model_count(text, meant):
    with pytest.raises(SchedError) as error:
        Sends.parse(text)
    (said,) = error.value.diagnostics
    assert (said.code, said.help) == ("SL806", f"did you mean {meant}?")


# Races


def test_races_of_rows_without_a_place_in_a_file_are_told_apart():
    rows = [dict(op="copy", rank=0, stream=s, step=k, buffer="data", chunk=k, from_buffer="data", from_chunk=2)
            for s in "ab" for k in range(2)]
    table = allreduce(rows, 2, chunks=3)
    for sites, expected in (((Site(None),) * 4, [(1, 0), (1, 1)]), ((Site(Place("x.sched", 1)),) * 4, [(2, 0)])):
        found = verify(table.with_columns(sites=sites, site=np.arange(4, dtype=np.int32))).diagnostics
        assert [(d.count, d.witness["chunk"]) for d in found if d.code == "SL401"] == expected


def test_the_last_access_may_be_the_first_row():
    """Rows need not be in the order of their steps."""
    rows = [dict(op="copy", rank=0, stream=s, step=k, buffer="data", chunk=0, from_buffer="data", from_chunk=1)
            for s, k in (("a", 2), ("a", 1), ("a", 0), ("b", 0))]
    assert the(verify(allreduce(rows, 2, chunks=2)), "SL401").witness["first"] == 0


def test_a_search_for_races_that_ends_early_says_so(monkeypatch):
    table = allreduce([dict(op="copy", rank=0, stream=f"s{k}", buffer="data", chunk=0, from_buffer="data", from_chunk=1)
                       for k in range(6)], 2, chunks=2)
    whole = [d for d in verify(table).diagnostics if d.code == "SL401"]
    monkeypatch.setattr(races, "ENOUGH", 1)
    monkeypatch.setattr(reach, "CELLS", 1)
    early = [d for d in verify(table).diagnostics if d.code == "SL401"]
    stopped = "the search stopped here; there may be more races"
    assert 0 < sum(d.count for d in early) < sum(d.count for d in whole)
    assert all(stopped in [n.message for n in d.notes] for d in early)
    assert not any(stopped in [n.message for n in d.notes] for d in whole)


# Trees, and what they make of numbers


def test_a_long_sum_is_cut():
    tree = 0
    for rank in range(1, 60):
        tree = (tree, rank)
    whole = agreement.written(tree, SimpleNamespace(ranks=60), most=10**6)
    text = whole.removeprefix("the ranks' ")
    assert text.startswith("(" * 58 + "0 + 1) + 2)") and text.endswith(" + 59") and len(text) > 160
    assert agreement.written(tree, SimpleNamespace(ranks=60), most=len(text)) == whole
    assert agreement.written(tree, SimpleNamespace(ranks=60), most=len(text) - 1) == f"{whole[:-1]} ..."
    assert agreement.written(tree, SimpleNamespace(ranks=60)) == f"the ranks' {text[:160]} ..."
