"""How results are compared with what they must hold: which way is taken, and what is told of those that differ."""

from importlib import import_module

import numpy as np
import pytest

from schedlang.verify import dataflow
from schedlang.verify.dataflow import judge
from schedlang.verify.matching import match
from schedlang.verify.steps import steps
from schedlang.verify.timing.order import order
from schedlang.verify.values.carriers import carriers
from schedlang.verify.values.conditions import conditions
from schedlang.verify.values.records import Sets
from schedlang.verify.values.walk import Program
from tests.unit.test_values import build, direct
from tests.unit.test_values_corners import ensured


def judged(table, agree=False, **kw):
    matched, before_after = match(table), conditions(table)
    moving = carriers(table, matched, order(table, matched), before_after.locations,
                      steps(table, matched.lanes, before_after))
    return judge(table, Program.of(moving), before_after, agree=agree, **kw)


def told(held):
    """Code, count and place of each finding."""
    return [(d.code, d.count, d.witness["rank"], d.witness["chunk"]) for d in held.wrong]


def summed(n, more=()):
    """A reduction of six chunks on rank 0, all in one step: 0 and 4 are right, 1 lacks rank 1's, 2 has it twice, and 3
    holds the last rank's chunk 4 instead."""
    moves = [("reduce", "data", c, r, 0, "data", c) for c in (0, 1, 2, 4, 5) for r in range(1, n) if (c, r) != (1, 1)]
    moves += [("reduce", "data", 2, 1, 0, "data", 2), ("send", "data", 4, n - 1, 0, "data", 3), *more]
    return build("reduce", n, [moves], chunks=6, op="sum", root=0)


@pytest.mark.parametrize("n", [3, 70])
@pytest.mark.parametrize(("method", "more", "findings"), [
    (None, [], [("SL503", 1, 0, 3), ("SL502", 1, 0, 2), ("SL501", 1, 0, 1)]),
    ("sets", [], [("SL503", 1, 0, 3), ("SL502", 1, 0, 2), ("SL501", 1, 0, 1)]),
    # Classes meet in chunk 5: bits stand for all contributions.
    (None, [("reduce", "data", 0, 1, 0, "data", 5)],
     [("SL503", 2, 0, 3), ("SL502", 1, 0, 2), ("SL501", 1, 0, 1)]),
    # By the number of contributions something is missing in chunks 1 and 3, and chunk 3 is finished first.
    ("fingerprints", [], [("SL502", 1, 0, 2), ("SL503", 2, 0, 3)]),
])
def test_what_is_wrong_with_sums_of_one_statement(n, method, more, findings):
    assert told(judged(summed(n, more), method=method, seed=1)) == findings


def test_what_is_wrong_where_nothing_is_added():
    """One statement lets a rank keep some of what it should hold, and brings another what does not belong there."""
    table = build("allreduce", 3, [[("send", "data", 1, 1, 0, "data", 0), ("send", "data", 1, 2, 0, "data", 1)]],
                  chunks=2, op="sum")
    assert [d[:2] for d in told(judged(table))] == [("SL503", 1), ("SL501", 5)]


@pytest.mark.parametrize("n", [2, 3])
def test_foreign_values_are_told_in_the_order_in_which_they_come(n):
    """A part of an all-to-all is the right one of another rank; then one is another part."""
    right = [("send", "input", p, r, p, "output", r) for r in range(n) for p in range(n) if r != p]
    right += [("copy", "input", r, r, "output", r) for r in range(2, n)]
    wrong = [[("send", "input", 1, 0, 1, "output", 1)], [("copy", "input", 1, 0, "output", 0)]]
    held = judged(build("alltoall", n, [right, *wrong], chunks=n, inplace=False))
    assert told(held) == [("SL503", 1, 1, 1), ("SL503", 1, 0, 0)]


@pytest.mark.parametrize("method", ["names", "sets"])
def test_custom_results_without_all_that_they_must_hold(method):
    """Rank 0's result holds the second of the two values that it must hold, rank 1's one that it must not."""
    ensures = ensured([(1, 0, 0), (1, 1, 0)], [[(0, 0, 0), (0, 1, 1)], [(0, 0, 0), (0, 1, 1)]])
    table = build("custom", 2, [[("send", "input", 1, 1, 0, "output", 0), ("copy", "input", 0, 1, "output", 0)]],
                  scratch=[("input", 2), ("output", 1)], ensures=ensures, op="sum")
    assert told(judged(table, method=method)) == [("SL503", 1, 1, 0), ("SL501", 1, 0, 0)]


def test_sets_that_results_must_hold():
    """Words and bits beyond the first; values of several classes have none."""
    n = 70
    ensures = ensured([(1, r, 0) for r in range(3)], [[(0, 69, 1)], [(0, 64, 0), (0, 63, 0), (0, 0, 0)],
                                                      [(0, 1, 0), (0, 66, 1)]])
    found = conditions(build("custom", n, [], scratch=[("input", 2), ("output", 1)], ensures=ensures, op="sum"))
    apart = dataflow._want(Sets(n, 2, whole=False), found, np.arange(3))
    assert apart[:2].tolist() == [[2, 0, 1 << 5], [1, 1 << 63 | 1, 1]]
    assert apart[2].tolist() == [(1 << 64) - 1, 1 << 1, 1 << 2]
    whole = dataflow._want(Sets(n, 2, whole=True), found, np.array([2, 0]))
    assert whole.tolist() == [[1, 1 << 1, 0, 1 << 8], [1, 0, 0, 1 << 11]]


def test_which_way_is_taken(monkeypatch):
    """Names without sums; sets where the words of all places, and of all that moves, keep to the limits."""
    module = import_module("schedlang.verify.dataflow")     # not the function
    table = direct("allreduce", 70, 2, inplace=True)
    assert judged(direct("allgather", 3)).method == "names"
    size, places, moved = 8 * (1 + 3), 70 * 2, 70 * 69 * 2      # a count, a class, two words of bits
    for fewer, less, way in ((0, 0, "sets"), (1, 0, "fingerprints"), (0, 1, "fingerprints")):
        monkeypatch.setattr(module, "STATE_LIMIT", size * places - fewer)
        monkeypatch.setattr(module, "TRAFFIC_LIMIT", size * moved - less)
        held = judged(table, agree=True)
        assert (held.method, held.wrong) == (way, ()) and held.agreement.diagnostic.code == "SL505"
        assert held.doubt == (140 / (2**61 - 1) if way == "fingerprints" else 0)
    assert judged(table, method="sets").method == "sets"
