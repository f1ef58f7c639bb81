"""Messages of several chunks, chunk by chunk: kept whole, as rows, and counted, against tables cut plainly and run by
the interpreter."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from schedlang.interpret import interpret
from schedlang.ir.table import NONE, Transport
from schedlang.ops import Op
from schedlang.source import Place
from schedlang.verify import deadlock, verify
from schedlang.verify.matching import match
from schedlang.verify.sends import Sends
from schedlang.verify.timing import flow, graph, slots
from schedlang.verify.timing.order import order
from tests.pieces import in_pieces
from tests.tables import allreduce

DEPTHS = range(1, 11)


def paths(rng):
    """Random messages along paths of ranks, passed on as they arrive or step by step, of up to as many chunks; some
    steps change places, or become one, and a stream may wait for another."""
    ranks, streams, most = rng.randint(2, 5), rng.randint(1, 2), rng.choice([2, 3, 12])
    lanes = {}
    for _ in range(rng.randint(2, 12)):
        stream, count, fused = rng.randrange(streams), rng.randint(1, most), rng.random() < 0.7
        path = [rng.randrange(ranks)]
        for _ in range(rng.randint(1, 5)):
            path.append(rng.choice([r for r in range(ranks) if r != path[-1]]))
        for k, r in enumerate(path):
            lane = lanes.setdefault((r, stream), [])
            came = [("recv", path[k - 1], count)] if k else []
            goes = [("send", path[k + 1], count)] if k < len(path) - 1 else []
            if came and goes and fused:
                lane.append([*came, (*goes[0], "fused")])
            else:
                lane += [step for step in (came, goes) if step]
    for lane in lanes.values():
        for _ in range(rng.choice([0, 1, 4])):
            k = rng.randrange(len(lane))
            lane[k - 1], lane[k] = lane[k], lane[k - 1]
        if rng.random() < 0.15:
            lane[-2:] = [[operation for step in lane[-2:] for operation in step]]
    for r in range(ranks):
        if (r, 0) in lanes and (r, 1) in lanes and rng.random() < 0.5:
            for stream, op in ((0, "record"), (1, "wait")):
                lanes[r, stream].insert(rng.randint(0, len(lanes[r, stream])), [(op,)])
    return transported([((r, f"s{s}"), lane) for (r, s), lane in lanes.items()], ranks, 12)


def transported(lanes, ranks, chunks, depth=1):
    """The table of lanes, each its (rank, stream) and its steps, for a transport of that depth."""
    rows = []
    for (rank, stream), steps in lanes:
        for step, operations in enumerate(steps):
            for op, *how in operations:
                row = {"op": op, "rank": rank, "stream": stream, "step": step}
                if not how:
                    row["event"] = f"e{rank}"
                else:
                    row |= {"peer": how[0], "count": how[1], "chunk": 0, "buffer": "data" if op == "send" else "other"}
                if how[2:]:
                    row |= {"of": len(rows) - 1, "buffer": "other"}
                rows.append(row)
    table = allreduce(rows, ranks, chunks=chunks, scratch=[("other", chunks)])
    return replace(table, transport=Transport("wire", depth))


def both_ways(table, matched, monkeypatch):
    """The slots with chunks as rows, and counted where that can be."""
    for few in (1 << 20, -1):
        monkeypatch.setattr(slots, "FEW", few)
        found = slots.slots(table, matched)
        if found is not None:
            assert found.flow is None or (found.table is table and found.matching is matched)
            yield "rows" if found.flow is None else "counted", found


@pytest.mark.parametrize("seed", range(2))
def test_chunk_by_chunk(seed, monkeypatch):
    """What comes to its end, what is stuck, what waits for what, and the least depth, which a plain search finds."""
    rng, seen = random.Random(seed), Counter()
    for _ in range(40):
        table = paths(rng)
        matched = match(table)
        plain = in_pieces(table)
        again = match(plain)
        if matched.diagnostics:
            continue
        cut = np.where(table.op <= Op.REDUCE_RECV, table.count, 1)
        whole = np.repeat(np.arange(len(table)), cut)
        graphs = {depth: graph.build(plain, again, depth) for depth in DEPTHS}
        for way, found in both_ways(table, matched, monkeypatch):
            for depth, real in graphs.items():
                assert found.completes(depth) == real.complete
                ours = found.graph(depth)
                assert ours.complete == real.complete and deadlock._stuck(ours) == deadlock._stuck(real)
                circle = [(int(found.row[w.row]), int(found.row[w.cause])) for w in deadlock.shortest_circle(ours)]
                assert bool(circle) == (not real.complete)
                edges = set(zip(whole[real.effect].tolist(), whole[real.cause].tolist()))
                assert edges.issuperset(circle)
                seen[way, real.complete] += 1
            least = deadlock.least_depth(table, matched, None, found)
            plainly = next((n for n in DEPTHS if graphs[n].complete), None)
            if least and least in DEPTHS:
                assert least == plainly
                for depth in (least - 1, least):
                    assert interpret(plain, 0, sends=f"buffered={depth}" if depth else "rendezvous",
                                     clocks=False).finished == (depth == least)
            else:
                assert least == 0 or plainly is None
    assert all(seen[key] > 20 for key in (("rows", True), ("rows", False), ("counted", True), ("counted", False))), seen


def waits_now(real, whole, touched):
    """What waits for what where a graph of single chunks is stuck, as (effect, cause, target): of a row of the whole
    table (``whole``: the row of each piece) on the connections with a fused end (``touched``: its rows) only the first
    piece that is not done counts, of other rows all. The target is the end of a step or, NONE, an operation at work."""
    node, level, lanes, found = real.lanes.node, real.level, real.lanes, set()
    at = {int(row): lanes.nodes + k for k, row in enumerate(real.extra)}
    first = {}      # of each row that is at work: its first piece that is not done
    for piece, row in enumerate(whole.tolist()):
        moment = at.get(piece)
        if moment is not None and level[moment] == NONE:
            first.setdefault(row, piece)
    columns = real.source, real.target, real.cause, real.effect
    for source, target, cause, effect in zip(*(column.tolist() for column in columns)):
        posted = level[node[effect]] != NONE
        if not posted or level[source] != NONE or level[target] != NONE or target == node[effect]:
            continue
        row = int(whole[effect])
        if row in touched:
            mine = target - lanes.nodes if target >= lanes.nodes else None
            piece = int(real.extra[mine]) if mine is not None else effect
            if first.get(int(whole[piece])) != piece:
                continue
        found.add((row, int(whole[cause]), target if target < lanes.nodes else NONE))
    return found


def test_what_waits_for_what_where_chunks_are_counted(monkeypatch):
    """All that an execution is stuck at, against the same with a row for each chunk."""
    monkeypatch.setattr(slots, "FEW", -1)
    rng, seen = random.Random(10), Counter()
    for _ in range(200):
        table = paths(rng)
        matched = match(table)
        found = slots.slots(table, matched) if not matched.diagnostics else None
        if found is None or found.flow is None or not flow.in_order(matched, found.flow._passing):
            continue
        plain, node = in_pieces(table), matched.lanes.node
        whole = np.repeat(np.arange(len(table)), np.where(table.op <= Op.REDUCE_RECV, table.count, 1))
        ends, passing = matched.connections, found.flow._passing
        touched = {*ends.sends[passing[ends.of_send]].tolist(), *ends.receives[passing[ends.of_receive]].tolist()}
        for depth in (1, 2, 5):
            real, ours = graph.build(plain, match(plain), depth), found.graph(depth)
            edges = list(zip(*(x.tolist() for x in (ours.effect, ours.cause, ours.target, ours.source))))
            assert len(set(edges)) == len(edges)
            assert waits_now(real, whole, touched) == {
                (row, cause, target if target < matched.lanes.nodes else NONE) for row, cause, target, _ in edges}
            moments = {int(row): matched.lanes.nodes + k for k, row in enumerate(ours.extra)}
            for row, cause, target, source in edges:
                assert target in (node[row] + 1, moments.get(int(table.of[row]) if table.of[row] != NONE else row))
                posted = moments.get(int(table.of[cause]) if table.of[cause] != NONE else cause)
                assert source == (node[cause] if posted is None else posted)
                seen[Op(table.op[row]).name, cause == row, cause in touched] += 1
    assert all(seen[op, False, way] > 5 for op in ("SEND", "RECV") for way in (False, True)), seen
    assert seen["WAIT", False, False] > 5, seen


def test_on_plain_connections_messages_stay_whole(monkeypatch):
    """The lengths of circles, too, are what they are with a row for each chunk."""
    rng, seen = random.Random(3), 0
    for _ in range(150):
        table = paths(rng)
        table = table.with_columns(of=np.full(len(table), NONE, np.int32))
        matched, plain = match(table), in_pieces(table)
        found = slots.slots(table, matched) if not matched.diagnostics else None
        if found is None:
            continue
        assert len(found.table) == len(table) and found.flow is None
        for depth in DEPTHS:
            real = graph.build(plain, match(plain), depth)
            circles = [deadlock.shortest_circle(g) for g in (found.graph(depth), real)]
            assert len(circles[0]) == len(circles[1])
            seen += bool(circles[0])
    assert seen > 50


def ring(count, ranks=4, fused=3, depth=8):
    """Each rank sends, passes on what comes so many times, and receives."""
    lanes = [((r, "s"), [[("send", (r + 1) % ranks, count)],
                         *[[("recv", (r - 1) % ranks, count), ("send", (r + 1) % ranks, count, "fused")]] * fused,
                         [("recv", (r - 1) % ranks, count)]]) for r in range(ranks)]
    return transported(lanes, ranks, count, depth)


def the_deadlock(table):
    (found,) = [d for d in verify(table).diagnostics if d.code in ("SL208", "SL305")]
    return found


def test_a_hostile_table_takes_no_longer_than_a_small_one(monkeypatch):
    """None of two million chunks on their way is looked at by itself."""
    monkeypatch.setattr(flow, "WORK", 10_000)
    large, small = the_deadlock(ring(1 << 17)), the_deadlock(ring(10))
    assert large.message.replace("131072", "10") == small.message
    assert (large.witness["least_depth"], small.witness["least_depth"]) == ((1 << 17) + 1, 11)


def test_what_takes_too_long_is_said(monkeypatch):
    monkeypatch.setattr(slots, "FEW", 300)
    monkeypatch.setattr(flow, "WORK", 5)
    here = Place("ring.json", 3, 1)
    found = the_deadlock(replace(ring(100), location=here))
    assert (found.code, found.location) == ("SL208", here) and found.message == (
        "messages of many chunks are passed on as they arrive, and whether they come to their end chunk by chunk "
        "(with 8 chunks in flight per connection) takes too long to say")
    assert found.help == "pass on fewer chunks at a time; --sends buffered=N judges whole messages"
    assert the_deadlock(ring(9)).code == "SL305"


def test_a_depth_that_takes_too_long_to_find_is_one_that_is_enough(monkeypatch):
    monkeypatch.setattr(slots, "FEW", 100)
    monkeypatch.setattr(flow, "WORK", 400)
    found = the_deadlock(ring(1000))
    enough = found.witness["least_depth"]
    assert enough > 1001 and found.notes[-1].message == (
        f"it would go through with {enough:d} chunks in flight per connection and perhaps with fewer, but wire offers "
        "no more than 8")
    monkeypatch.setattr(flow, "WORK", 10_000)
    found = the_deadlock(ring(1000))
    assert found.witness["least_depth"] == 1001 and "perhaps" not in found.notes[-1].message
    facts = verify(ring(1000, depth=1001)).facts
    assert facts["least_depth"] == 1001 and "least_depth_exact" not in facts
    monkeypatch.setattr(flow, "WORK", 100)
    facts = verify(ring(1000, depth=1001)).facts
    assert facts["least_depth"] > 1001 and facts["least_depth_exact"] is False


@pytest.mark.parametrize("name", ["ROWS", "MOST"])
def test_what_cannot_be_counted_is_refused_if_it_is_large(name, monkeypatch):
    """Too many rows; two messages of one connection in a step, which are no longer in order."""
    monkeypatch.setattr(slots, "FEW", 0)
    monkeypatch.setattr(flow if name == "ROWS" else slots, name, 10)
    table = ring(9)
    if name == "MOST":
        assert the_deadlock(table).code == "SL305"
        table = table.with_columns(step=np.maximum(table.step - 1, 0))
    assert the_deadlock(table).code == "SL208"


def test_messages_of_one_step_keep_their_order(monkeypatch):
    """On a plain connection beside one whose chunks are counted."""
    monkeypatch.setattr(slots, "FEW", 0)
    sizes = [1 + 7 * k % 5 for k in range(60)]
    lanes = [((0, "s"), [[("send", 1, size) for size in sizes]]), ((1, "s"), [[("recv", 0, size) for size in sizes]]),
             ((2, "s"), [[("send", 3, 5)]]), ((3, "s"), [[("recv", 2, 5), ("send", 4, 5, "fused")]]),
             ((4, "s"), [[("recv", 3, 5)]])]
    table = transported(lanes[::-1], 5, 5)
    (found,) = [found for way, found in both_ways(table, match(table), monkeypatch) if way == "counted"]
    assert found.completes(1)


def test_what_goes_without_room_is_not_looked_at_chunk_by_chunk(monkeypatch):
    monkeypatch.setattr(slots, "FEW", 0)
    monkeypatch.setattr(flow, "WORK", 0)
    lanes = [((0, "s"), [[("send", 1, 9)]]), ((1, "s"), [[("recv", 0, 9), ("send", 2, 9, "fused")]]),
             ((2, "s"), [[("recv", 1, 9)]])]
    table = transported(lanes, 3, 9)
    matched = match(table)
    assert deadlock.check(table, matched, order(table, matched, Sends.on(table.transport)),
                          slots.slots(table, matched)) == []


def test_what_is_not_posted_stands_for_its_lane(monkeypatch):
    rng, seen = random.Random(5), 0
    for _ in range(100):
        table = paths(rng)
        matched = match(table)
        if matched.diagnostics:
            continue
        stuck = graph.build(table, matched, 1)
        monkeypatch.setattr(deadlock, "MANY", 1 << 16)
        usual = deadlock.shortest_circle(stuck)
        monkeypatch.setattr(deadlock, "MANY", 0)
        found = deadlock.shortest_circle(stuck)
        edges = set(zip(stuck.effect.tolist(), stuck.cause.tolist()))
        assert bool(found) == bool(usual) and all((w.row, w.cause) in edges for w in found)
        seen += bool(found)
    assert seen > 10
