"""What findings say where there is much to say, or little: lists cut short, counts, singular and plural."""

import random
import re

import numpy as np
import pytest

from schedlang.verify import collapse, verify
from tests.tables import ring
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
