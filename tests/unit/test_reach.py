"""Which steps of a rank come before which, by lanes, events and other ranks: against all paths of the graph, with room
for few cells and for many."""

from itertools import product
from random import Random

import numpy as np
import pytest

from schedlang.ir.table import NONE
from schedlang.verify.matching import match
from schedlang.verify.sends import Sends
from schedlang.verify.timing import reach
from schedlang.verify.timing.graph import build
from schedlang.verify.timing.order import order
from tests.unit.order_oracle import random_table


def paths(graph):
    """[v, w]: whether there is a path from v to w."""
    found = np.eye(graph.nodes, dtype=bool)
    edges = [*zip(graph.source.tolist(), graph.target.tolist()),
             *((v, v + 1) for v in np.flatnonzero(graph.lane_edges).tolist())]
    for v, w in sorted(edges, key=lambda edge: graph.level[edge[1]]):
        if graph.level[w] != NONE:
            found[:, w] |= found[:, v]
    return found


@pytest.mark.parametrize("cells", [1 << 24, 30, 1])
@pytest.mark.parametrize("model", ["rendezvous", "unlimited"])
def test_what_is_ordered(cells, model, monkeypatch):
    monkeypatch.setattr(reach, "CELLS", cells)
    random, seen, sends = Random(7), 0, Sends.parse(model)
    for _ in range(30):
        table = random_table(random, statements=24, ranks=2, streams=3, swaps=0)
        matched = match(table, sends)
        found, graph = order(table, matched, sends), build(table, matched, sends.depth)
        lanes = matched.lanes
        posts = [n for n in np.unique(lanes.node).tolist() if graph.level[n] != NONE]
        pairs = [(v + 1, w) for v, w in product(posts, posts)
                 if lanes.rank[lanes.lane_of(np.array([v]))] == lanes.rank[lanes.lane_of(np.array([w]))]
                 and lanes.lane_of(np.array([v])) != lanes.lane_of(np.array([w]))]
        if not pairs:
            continue
        before, after = np.array(pairs).T
        expected = paths(graph)[before, after]
        there = reach.Reach(table, found)
        assert there.ordered(before, after).tolist() == expected.tolist()
        unordered, judged = there.some_unordered(before, after, len(pairs) + 1)
        assert judged and unordered.tolist() == np.flatnonzero(~expected).tolist()
        for enough in {1, int((~expected).sum())} - {0}:
            some, judged = reach.Reach(table, found).some_unordered(before, after, enough)
            assert len(some) >= enough and set(some.tolist()) <= set(unordered.tolist())
            assert judged or cells < 1 << 24
        seen += int(expected.sum())
    assert seen > 50


def test_a_search_that_finds_enough_ends():
    """Every stream of rank 0 races with every other; one batch of lanes finds enough."""
    table = random_table(Random(1), statements=30, ranks=2, streams=6, fused=False)
    matched = match(table)
    found = order(table, matched)
    lanes = matched.lanes
    mine = [int(lanes.start[k]) for k in lanes.used.tolist() if lanes.rank[k] == 0]
    before, after = np.array([(v + 1, w) for v, w in product(mine, mine) if v != w]).T
    all_of_them, _ = reach.Reach(table, found).some_unordered(before, after, 10_000)
    assert len(all_of_them) > 10
    reach_, cells = reach.Reach(table, found), reach.CELLS
    try:
        reach.CELLS = 1
        some, judged = reach_.some_unordered(before, after, 2)
    finally:
        reach.CELLS = cells
    assert not judged and 2 <= len(some) < len(all_of_them)
