"""What a verdict says of tables that the language makes seldom or never: of other origin, very large, nearly empty."""

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from schedlang.expand import expand, load_program, load_text
from schedlang.ir.build import table_from_rows
from schedlang.ir.table import Buffer, Collective
from schedlang.verify import agreement, verify
from schedlang.verify.dataflow import judge
from schedlang.verify.facts import traffic
from schedlang.verify.matching import match
from schedlang.verify.steps import steps
from schedlang.verify.timing import rounds
from schedlang.verify.timing.lanes import Lanes
from schedlang.verify.timing.order import order
from schedlang.verify.values.carriers import carriers
from schedlang.verify.values.conditions import conditions
from schedlang.verify.values.explanations import MOST_GROUPS
from schedlang.verify.values.walk import Program
from tests.tables import ring
from tests.unit.test_values import build, the

CASES = Path(__file__).parent.parent / "cases"


def case(name, ranks):
    table, findings = expand(load_program(str(CASES / f"{name}.sched")), name, ranks=ranks, params={})
    assert table is not None, findings
    return table


def test_there_is_a_proof_of_each_property_and_of_no_other():
    verdict = verify(ring(2))
    assert verdict.proof("races").state == "proved"
    with pytest.raises(KeyError):
        verdict.proof("speed")


# Numbers of source steps


def test_numbers_that_differ_within_a_step_prove_nothing():
    table = ring(5)
    number = table.number.copy()
    number[0] += 1      # a send; the receive in its rank's step keeps its own
    found = match(table.with_columns(number=number))
    assert not found.numbered and not found.diagnostics and (found.partner == match(table).partner).all()
    assert verify(table.with_columns(number=number)).ok


@pytest.mark.parametrize("change", [lambda n: 3 * n, lambda n: n + 2], ids=["with gaps", "that begin late"])
@pytest.mark.parametrize("shuffled", [False, True])
def test_rounds_by_numbers(change, shuffled):
    """Numbers need not be without gaps, nor rows in their order."""
    table = ring(4, channels=2)
    if shuffled:        # both ends of a transfer stay together, so rows of a step keep their order on a connection
        by = np.argsort(-(np.arange(len(table)) // 2), kind="stable")
        table = table.with_columns(**{c: v[by] for c, v in table.take(np.arange(len(table))).items()})
    table = table.with_columns(number=change(table.number))
    matched = match(table)
    found = order(table, matched)
    assert matched.numbered and found.numbered
    assert rounds.critical_path(table, matched, found) == 6
    verdict = verify(table)
    assert verdict.ok and verdict.facts["rounds"] == 6


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


def test_many_statements_that_go_wrong_are_told_up_to_a_limit():
    """A rank's result comes from a statement of its own; of all but one too little is added."""
    ranks = MOST_GROUPS + 5
    lines = [[("reduce", "data", 0, (r + 1) % ranks, r, "data", 0)] for r in range(ranks)]
    verdict = verify(build("allreduce", ranks, lines, op="sum"))
    found = [d for d in verdict.diagnostics if d.code == "SL501"]
    assert len(found) == MOST_GROUPS
    assert sum(d.count for d in found) == ranks and found[-1].count > 1


def test_a_tree_with_a_part_that_occurs_twice_is_written_out():
    pair = (1, 2)
    assert agreement.written((pair, pair), SimpleNamespace(ranks=4)) == "the ranks' (1 + 2) + (1 + 2)"


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
    table, _ = expand(load_text(TWO_CHAINS), "two_chains", ranks=712, params={"first": 711 - 1})
    found = the(verify(table, dtype="bfloat16"), "SL614")
    assert found.witness["ones"] == 256 and found.notes[0].message.startswith("256 of them make as much already")


# What is useless


def test_in_large_tables_messages_are_taken_to_be_needed_for_their_order(monkeypatch):
    table = case("message_for_its_order", 3)
    assert the(verify(table), "SL607").witness["rank"] == 2
    monkeypatch.setattr(import_module("schedlang.verify.useless"), "TRIED_ROWS", 0)    # not the function
    verdict = verify(table)
    assert verdict.ok and not [d for d in verdict.diagnostics if d.code == "SL607"]
