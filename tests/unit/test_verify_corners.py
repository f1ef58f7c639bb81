"""What a verdict says of tables that the language makes seldom or never: of other origin, very large, nearly empty."""

from collections import Counter
from importlib import import_module
from itertools import combinations
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

from schedlang.expand import expand, load_program, load_text
from schedlang.ir.build import table_from_rows
from schedlang.ir.table import NONE, Buffer, Collective
from schedlang.ops import Op
from schedlang.verify import agreement, deadlock, races, verify
from schedlang.verify.dataflow import judge
from schedlang.verify.facts import traffic
from schedlang.verify.matching import match
from schedlang.verify.sends import Sends
from schedlang.verify.steps import steps
from schedlang.verify.timing import rounds, why
from schedlang.verify.timing.lanes import Lanes, records
from schedlang.verify.timing.order import order
from schedlang.verify.values.carriers import carriers
from schedlang.verify.values.conditions import conditions
from schedlang.verify.values.explanations import MOST_GROUPS
from schedlang.verify.values.walk import Program
from tests.tables import allreduce, ring
from tests.unit.order_oracle import random_table
from tests.unit.test_values import build, the

CASES = Path(__file__).parent.parent / "cases"


def case(name, ranks):
    table, findings = expand(load_program(str(CASES / f"{name}.sched")), name, ranks=ranks, params={})
    assert table is not None, findings
    return table


def test_there_is_a_proof_of_each_property_and_of_no_other():
    verdict = verify(ring(2))
    assert verdict.proof("races").state == "proved"
    with pytest.raises(KeyError, match="speed"):
        verdict.proof("speed")


# Numbers of source steps


def test_numbers_that_differ_within_a_step_prove_nothing():
    table = ring(5)
    number = table.number.copy()
    number[0] += 1      # a send; the receive in its rank's step keeps its own
    found = match(table.with_columns(number=number))
    assert not found.numbered and not found.diagnostics and (found.partner == match(table).partner).all()
    assert verify(table.with_columns(number=number)).ok


@pytest.mark.parametrize("change", [lambda n: n, lambda n: 3 * n, lambda n: n + 2], ids=["plain", "gaps", "late"])
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("crossed", [False, True])
def test_rounds_by_numbers(change, shuffled, crossed):
    """Numbers need not be without gaps, nor rows in their order, nor need streams keep to connections of their own."""
    table = ring(4, channels=2)
    if shuffled:        # both ends of a transfer stay together, so rows of a step keep their order on a connection
        by = np.argsort(-(np.arange(len(table)) // 2), kind="stable")
        table = table.with_columns(**{c: v[by] for c, v in table.take(np.arange(len(table))).items()})
    table = table.with_columns(number=change(table.number), chan=1 - table.stream if crossed else table.chan)
    matched = match(table)
    found = order(table, matched)
    assert matched.numbered and found.numbered
    assert rounds.critical_path(table, matched, found) == 6
    verdict = verify(table)
    assert verdict.ok and verdict.facts["rounds"] == 6


# What waits for what


@pytest.mark.parametrize("k", [3, 5, 6, 7])
def test_least_depth_between_powers_of_two(k):
    """k messages before the one that is received first, and many after it."""
    def send(step, chan):
        return dict(op="send", rank=0, peer=1, buffer="data", chunk=0, step=step, chan=chan)

    rows = [*(send(i, "main") for i in range(k)), send(k, "first"), *(send(k + 1 + i, "main") for i in range(9))]
    rows += [{**row, "op": "recv", "rank": 1, "peer": 0, "step": step}
             for step, row in enumerate([rows[k], *rows[:k], *rows[k + 1:]])]
    table = allreduce(rows, 2)
    assert deadlock.least_depth(table, match(table)) == k
    assert "SL305" not in [d.code for d in verify(table, sends=Sends(k, k)).diagnostics]
    assert the(verify(table, sends=Sends(k - 1, k - 1)), "SL305")


def test_of_a_long_circle_the_beginning_and_the_end_are_told():
    found = the(verify(case("cycle_send_then_recv", 20)), "SL305")
    hops = [n.message for n in found.notes[:-1]]
    assert len(hops) == deadlock.SHOWN + 2 and hops[-2] == f"... and so on, {20 - deadlock.SHOWN - 1} more"
    assert hops[0].startswith("rank 0, ") and hops[-1].startswith("rank 19, ")
    assert found.witness["length"] == 20 and "ranks 0, 1, 2, 3, 4, 5, 6, 7, ...," in found.message


@pytest.mark.parametrize(("bound", "circle", "looked"), [(0, [11, 13], 4), (3, [11, 13], 4), (2, [], 2), (1, [], 0)])
def test_the_shortest_circle_and_how_much_was_looked_at(bound, circle, looked):
    waits = {0: [(1, 10), (2, 11)], 1: [(3, 12)], 2: [(0, 13)], 3: [(0, 14)]}
    assert deadlock._circle_through(waits, 0, bound) == (circle, looked)


def test_nothing_comes_before_what_never_comes():
    table = case("cycle_send_then_recv", 4)
    send, receive = np.flatnonzero((table.rank == 0) & (table.op <= Op.REDUCE_RECV)).tolist()
    chain = [(h.kind, h.before, h.after) for h in why.path(table, match(table), send, receive, Sends(None, None))]
    assert chain == [("lane", send, receive)]
    assert why.path(table, match(table), send, receive, Sends(0, 0)) is None


def test_what_never_happens_does_not_race():
    """Both streams of rank 0 write data[0], each after a message that rank 1 never comes to send."""
    both = {"buffer": "data", "from_buffer": "data"}
    rows = []
    for stream, chunk in (("a", 1), ("b", 2)):
        rows += [dict(op="recv", rank=0, peer=1, stream=stream, buffer="data", chunk=chunk),
                 dict(op="copy", rank=0, stream=stream, step=1, chunk=0, from_chunk=chunk, **both)]
    rows += [dict(op="send", rank=0, peer=1, stream="a", step=2, chan="back", buffer="data", chunk=1),
             dict(op="recv", rank=1, peer=0, chan="back", buffer="data", chunk=3),
             *(dict(op="send", rank=1, peer=0, chan=chan, step=step, buffer="data", chunk=0)
               for step, chan in ((1, "a"), (2, "b")))]
    table = allreduce(rows, 2, chunks=4)
    found = order(table, match(table))
    assert not found.complete and races.check(table, found) == []
    assert the(verify(table), "SL305") and verify(table).proof("races").state == "not judged"


# Worlds that are mostly empty


def test_lanes_of_many_ranks_and_streams_of_which_few_are_used():
    """2,000 ranks and 600 streams: the lanes are counted, not numbered through. Two lanes write one chunk."""
    rows = [dict(op=op, rank=rank, peer=peer, buffer="data", chunk=0, stream=stream, chan=stream)
            for stream in ("a", "b") for op, rank, peer in (("send", 0, 1_999), ("recv", 1_999, 0))]
    few = table_from_rows(rows, ranks=2_000, collective=Collective("custom"), buffers=[Buffer("data", 1, role="data")])
    at = np.array([17, 17, 599, 599], np.int32)
    many = few.with_columns(streams=tuple(f"s{i}" for i in range(600)), stream=at, chan=at)
    lanes = Lanes(many)
    assert lanes.rank[lanes.lane].tolist() == [0, 1_999, 0, 1_999]
    assert lanes.stream[lanes.lane].tolist() == [17, 17, 599, 599] and len(lanes.start) == 4
    said, known = the(verify(many), "SL401"), the(verify(few), "SL401")
    assert said.message == known.message.replace("stream a", "stream s17").replace("stream b", "stream s599")


def test_a_wait_for_what_nothing_records_is_told_so():
    table = allreduce([dict(op="wait", rank=0, event="e", index=[0])], 2)
    waits, made = records(table)
    assert waits.tolist() == [0] and made.tolist() == [NONE]
    assert the(verify(table), "SL306")


def test_traffic_of_a_large_world_in_which_nothing_is_sent():
    facts = traffic(build("custom", 1_100, []))
    assert (facts["messages"], facts["messages_most"], facts["links"]) == (0, 0, 0)


# What is said of values


def test_names_are_for_schedules_without_reductions():
    table = ring(3)
    matched = match(table)
    found, before_after = order(table, matched), conditions(table)
    moving = carriers(table, matched, found, before_after.locations, steps(table, matched.lanes, before_after))
    with pytest.raises(AssertionError, match="without reductions"):
        judge(table, Program.of(moving), before_after, agree=False, method="names")


def test_fingerprints_of_results_that_hold_one_value():
    """They are for sums; where they are asked for, a result of one contribution has the fingerprint of that."""
    for chunk, wrong in ((1, []), (0, ["SL503"])):
        there, back = ("send", "data", 0, 0, 1, "data", 0), ("send", "data", chunk, 1, 0, "data", 1)
        table = build("allgather", 2, [[there], [back]], chunks=2)
        matched = match(table)
        found, before_after = order(table, matched), conditions(table)
        moving = carriers(table, matched, found, before_after.locations, steps(table, matched.lanes, before_after))
        held = judge(table, Program.of(moving), before_after, agree=False, method="fingerprints", seed=1)
        assert held.method == "fingerprints" and [d.code for d in held.wrong] == wrong


def test_many_statements_that_go_wrong_are_told_up_to_a_limit():
    """A rank's result comes from a statement of its own; of all but one too little is added."""
    ranks = MOST_GROUPS + 5
    lines = [[("reduce", "data", 0, (r + 1) % ranks, r, "data", 0)] for r in range(ranks)]
    verdict = verify(build("allreduce", ranks, lines, op="sum"))
    found = [d for d in verdict.diagnostics if d.code == "SL501"]
    assert len(found) == MOST_GROUPS
    assert [d.location.line for d in found] == [*range(1, MOST_GROUPS + 1)]
    assert [d.count for d in found] == [1] * (MOST_GROUPS - 1) + [6]


def test_a_tree_with_a_part_that_occurs_twice_is_written_out():
    pair = (1, 2)
    assert agreement.written((pair, pair), SimpleNamespace(ranks=4)) == "the ranks' (1 + 2) + (1 + 2)"


STAGED = """schedule staged(ranks, k, first=0):
    collective broadcast(0)
    chunks k
    buffer tmp[k]
    copy data[0:k - first] into tmp[first:k] on 0
    send tmp[first:k] from 0 to 1 into data[0:k - first]
    send data[k - first:k] from 0 to 1
    copy data[0] into data[k - 1] on 1 if first > 0
    send data[k - 1] from 0 to 1 if first > 0
"""


def test_lengths_of_many_initial_values():
    """More than are looked at together; through scratch they keep their lengths, but the first may not fit the last."""
    def said(first):
        table, findings = expand(load_text(STAGED), "staged", ranks=2, params={"k": 70_000, "first": first})
        assert table is not None, findings
        return [d.code for d in verify(table).diagnostics if d.code in ("SL602", "SL501", "SL503")]

    assert said(0) == [] and said(3) == ["SL602"]


TWO_CHAINS = """schedule two_chains(ranks, first):
    collective reduce(sum, 0)
    for k in 2..ranks: reduce data[0] from ranks - k + 1 to ranks - k if ranks - k != first
    reduce data[0] from 1 to 0
    reduce data[0] from first + 1 to 0
"""


def test_ones_lost_on_the_way_are_told_though_the_last_addition_counts():
    """A chain of 456 ones stops at 256 in bfloat16; with another 256 the sum is 512, and should be 712."""
    table, _ = expand(load_text(TWO_CHAINS), "two_chains", ranks=712, params={"first": 455})
    found = the(verify(table, dtype="bfloat16"), "SL614")
    assert (found.witness["ones"], found.witness["due"], found.witness["contributions"]) == (512, 712, 712)
    assert not found.notes and "`run --accumulate float32`" in found.help
    assert found.location.line == 5     # the last that writes there
    table, _ = expand(load_text(TWO_CHAINS), "two_chains", ranks=712, params={"first": 711 - 1})
    found = the(verify(table, dtype="bfloat16"), "SL614")
    assert found.witness["ones"] == 256 and found.notes[0].message.startswith("256 of them make as much already")


def test_an_average_that_overflows_may_be_held_in_a_wider_dtype():
    """Of 300 ranks: 65,504 / 300 is 218."""
    table = build("reduce", 300, [[("reduce", "data", 0, r, 0, "data", 0)] for r in range(1, 300)], op="avg", root=0)
    found = the(verify(table, dtype="float16"), "SL613")
    assert 200 < found.witness["largest_input"] < 256 and "`run --accumulate float32`" in found.help
    assert not [d for d in verify(table, dtype="float16", accumulate="float32").diagnostics if d.code == "SL613"]


# What is useless


@pytest.mark.parametrize("more", [0, -1])
def test_in_large_tables_messages_are_taken_to_be_needed_for_their_order(more, monkeypatch):
    table = case("message_for_its_order", 3)
    assert the(verify(table), "SL607").witness["rank"] == 2
    monkeypatch.setattr(import_module("schedlang.verify.useless"), "TRIED_ROWS", len(table) + more)  # not the function
    verdict = verify(table)
    assert verdict.ok and [d.code for d in verdict.diagnostics if d.code == "SL607"] == ["SL607"] * (1 + more)


# Races


@pytest.mark.parametrize("rows", [1 << 16, 1])
def test_lanes_that_keep_apart(rows, monkeypatch):
    """Two lanes of a rank are apart where the chunks that they name, from the first to the last, do not meet."""
    monkeypatch.setattr(races, "ROWS", rows)
    random, seen = Random(1), Counter()
    for _ in range(250):
        table = random_table(random, statements=random.randrange(2, 7), ranks=2, streams=3, chunks=30, fused=False)
        count = np.array([random.randint(1, 4) for _ in range(len(table))], np.int32)
        some = np.array([random.choice([0, 1, NONE]) for _ in range(len(table))], np.int32)
        table = table.with_columns(count=count, buffers=(Buffer("data", 40, role="data"), Buffer("t", 40)),
                                   buffer=np.where(table.buffer != NONE, some, NONE).astype(np.int32))
        named = {}
        for buffer, chunk in ((table.buffer, table.chunk), (table.from_buffer, table.from_chunk)):
            for row in np.flatnonzero(buffer != NONE).tolist():
                low = 40 * int(buffer[row]) + int(chunk[row])
                named.setdefault((int(table.rank[row]), int(table.stream[row])), []).extend([low, low + count[row] - 1])
        lanes = [(rank, min(places), max(places)) for (rank, _), places in named.items()]
        apart = not any(a[0] == b[0] and a[1] <= b[2] and b[1] <= a[2] for a, b in combinations(lanes, 2))
        assert races._apart(table, Lanes(table)) == apart
        seen[apart] += 1
    assert min(seen.values()) > 50
