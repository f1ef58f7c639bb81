"""The search for the shortest circle of what waits for each other, part by part, against the plainest way to do it."""

from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

from schedlang.ir.table import NONE
from schedlang.verify import deadlock, verify
from schedlang.verify.matching import match
from schedlang.verify.timing.graph import build
from tests.unit.order_oracle import random_table
from tests.unit.test_values import the
from tests.unit.test_verify_corners import case


def random_waits(random, nodes=12, edges=20):
    """By node: (cause, number of the edge); some wait for what is no node of the circle search."""
    waits = {}
    for number in range(random.randrange(edges)):
        waits.setdefault(random.randrange(nodes), []).append((random.randrange(nodes + 3), number))
    return waits


def trimmed(waits):
    """Without what waits for nothing but what is not there, again and again."""
    while True:
        fewer = {node: [(cause, e) for cause, e in causes if cause in waits] for node, causes in waits.items()}
        fewer = {node: causes for node, causes in fewer.items() if causes}
        if fewer == waits:
            return fewer
        waits = fewer


def around(waits, start):
    """The length of the shortest circle through a node; None where there is none."""
    reached, steps = {start}, 0
    while reached:
        reached, steps = {cause for node in reached for cause, _ in waits[node]}, steps + 1
        if start in reached or steps > len(waits):
            return steps if start in reached else None
    return None


def test_what_is_left_of_waits_that_end():
    random, left = Random(1), 0
    for _ in range(400):
        waits = random_waits(random)
        expected = trimmed(waits)
        deadlock._trim(waits)
        assert waits == expected
        left += bool(waits)
    assert 100 < left < 390


def test_circles():
    random, seen = Random(2), set()
    for _ in range(300):
        waits = trimmed(random_waits(random, edges=30))
        lengths = {node: around(waits, node) for node in waits}
        for node, length in lengths.items():
            found, looked = deadlock._circle_through(waits, node, 0)
            assert len(found) == (length or 0) and looked <= sum(map(len, waits.values()))
            edges = [next((n, c) for n in waits for c, e in waits[n] if e == edge) for edge in found]
            assert all(a[1] == b[0] for a, b in zip(edges, [*edges[1:], *edges[:1]]))
            if length:
                assert deadlock._circle_through(waits, node, length)[0] == []
                assert len(deadlock._circle_through(waits, node, length + 1)[0]) == length
        starts = deadlock._on_circles(waits, sorted(waits))
        assert len(starts) == len(set(starts)) and all(lengths[node] for node in starts) and bool(starts) == bool(waits)
        seen |= set(lengths.values())
    assert {None, 1, 2, 3, 4} <= seen


@pytest.mark.parametrize(("starts", "work"), [(64, 2_000_000), (1, 2_000_000), (64, 0)])
def test_the_shortest_circle(starts, work, monkeypatch):
    """With a few starts only, or little to look at, any circle will do."""
    monkeypatch.setattr(deadlock, "STARTS", starts)
    monkeypatch.setattr(deadlock, "WORK", work)
    random = Random(3)
    for _ in range(200):
        waits = random_waits(random, edges=26)
        edges = [(cause, node, e) for node, causes in waits.items() for cause, e in causes]
        columns = [np.array(x, np.int64) for x in zip(*edges)] or [np.zeros(0, np.int64)] * 3
        monkeypatch.setattr(deadlock, "_frontier", lambda graph, columns=columns: columns)
        numbers = np.arange(100)
        found = deadlock.shortest_circle(SimpleNamespace(effect=numbers, cause=numbers + 100))
        lengths = [around(trimmed(waits), node) for node in trimmed(waits)]
        shortest = min(filter(None, lengths), default=0)
        assert len(found) == shortest if (starts == 64 and work) or not shortest else len(found) in lengths


def test_where_lanes_are_stuck():
    random, stuck = Random(5), 0
    for _ in range(150):
        table = random_table(random, lost=0.1)
        graph = build(table, match(table), 0)
        lanes, level = graph.lanes, graph.level
        blocked, stands, at = deadlock._blocked(graph), {}, set()
        for lane in lanes.used.tolist():
            nodes = range(int(lanes.start[lane]), int(lanes.ends[np.flatnonzero(lanes.used == lane)[0]]) + 1)
            first = next((v for v in nodes if level[v] == NONE), nodes[-1] + 1)
            assert blocked[lane] == first
            stands |= {v: first for v in nodes if v >= first}
            at |= {first} & {*nodes}
        at |= {v for v in range(lanes.nodes, graph.never) if level[v] == NONE}
        edges = enumerate(zip(graph.source.tolist(), graph.target.tolist()))
        expected = {(stands.get(v, v), w, e) for e, (v, w) in edges
                    if w in at and v != graph.never and level[v] == NONE}
        assert {*zip(*(x.tolist() for x in deadlock._frontier(graph)))} == expected
        assert deadlock._stuck(graph) == sum(level[v] == NONE for v in lanes.ends)
        stuck += bool(expected)
    assert stuck > 30


def test_a_circle_is_told_from_its_least_rank_and_step():
    random, seen = Random(6), 0
    for _ in range(150):
        for found in verify(random_table(random)).diagnostics:
            if found.code == "SL305":
                circle = [(w["rank"], w["step"]) for w in found.witness["circle"]]
                assert circle[0] == min(circle)
                seen += 1
    assert seen > 30


@pytest.mark.parametrize(("ranks", "left"), [(11, 0), (12, 0), (13, 0), (14, 1), (15, 2)])
def test_of_a_circle_thirteen_are_told(ranks, left):
    found = the(verify(case("cycle_send_then_recv", ranks)), "SL305")
    said = [n.message for n in found.notes if "and so on" in n.message]
    assert said == ([f"... and so on, {left} more"] if left else [])
    assert sum(" waits for " in n.message for n in found.notes) == ranks - left
