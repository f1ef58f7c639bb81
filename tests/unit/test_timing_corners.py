"""The parts of the proofs about order one by one, each against a plain account of what it must say: lanes, events,
connections, levels, what is known within a rank, rounds, and findings on shared connections."""

from dataclasses import replace
from importlib import import_module
from itertools import product
from random import Random

import numpy as np
import pytest

from schedlang.ir.table import NONE, Transport
from schedlang.ops import Op
from schedlang.source import Place
from schedlang.verify.matching import match
from schedlang.verify.sends import Sends
from schedlang.verify.timing import graph as graphs
from schedlang.verify.timing import pairing, reach, rounds
from schedlang.verify.timing.connections import Connections, Matching, connections, pair
from schedlang.verify.timing.graph import build
from schedlang.verify.timing.lanes import Lanes, fused_sends, records
from schedlang.verify.timing.order import order
from schedlang.verify.timing.slots import slots
from tests.tables import allreduce
from tests.unit.order_oracle import Oracle, random_table
from tests.unit.test_order_random import _is_execution, _rounds, numbered_table
from tests.unit.test_reach import paths

DEPTHS = (0, 1, 2, None)
AT = {"buffer": "data", "chunk": 0}


def shuffled(random, table, number=None):
    """The table with its rows in another order, in which those of a step stay in theirs; ``number`` likewise."""
    key = (table.rank * len(table.streams) + table.stream) * 1000 + table.step if number is None else number
    new = {k: random.random() for k in np.unique(key).tolist()}
    by = np.argsort([new[k] for k in key.tolist()], kind="stable")
    return reordered(table, by).with_columns(number=None if number is None else number[by])


def reordered(table, by):
    """The table with rows ``by``, all of them."""
    cells = table.take(by)
    cells["of"] = np.where(cells["of"] == NONE, NONE, np.argsort(by)[cells["of"]]).astype(np.int32)
    return table.with_columns(**cells)


# Lanes and events


@pytest.mark.parametrize("world", [(3, 2), (70_000, 20)])
def test_lanes(world):
    """Those of a small world are numbered through; of a world with many more than there are rows, those with rows."""
    random, (ranks, streams) = Random(5), world
    for _ in range(5):
        table = random_table(random, statements=12, ranks=3, streams=2)
        names = tuple(f"s{k}" for k in range(streams))
        stream = (table.stream * (streams - 1)).astype(np.int32)
        table = table.with_columns(ranks=ranks, streams=names, stream=stream, rank=table.rank * (ranks // 3))
        lanes = Lanes(table)
        rows = [*zip(table.rank.tolist(), stream.tolist(), table.step.tolist())]
        length = {(r, s): 1 + max(k for q, t, k in rows if (q, t) == (r, s)) for r, s, _ in rows}
        used = lanes.used.tolist()
        assert [(lanes.rank[k], lanes.stream[k]) for k in used] == sorted(length)
        assert [int(lanes.steps[k]) for k in used] == [length[lane] for lane in sorted(length)]
        start, at = {}, 0
        for lane in sorted(length):
            start[lane], at = at, at + length[lane] + 1
        assert lanes.nodes == at and [int(lanes.start[k]) for k in used] == [start[lane] for lane in sorted(length)]
        assert lanes.ends.tolist() == [start[lane] + length[lane] for lane in sorted(length)]
        assert lanes.node.tolist() == [start[r, s] + k for r, s, k in rows]
        assert [(lanes.rank[k], lanes.stream[k]) for k in lanes.lane] == [(r, s) for r, s, _ in rows]
        assert [used.index(k) for k in lanes.lane_of(np.arange(at)).tolist()] == [
            k for k, lane in enumerate(sorted(length)) for _ in range(length[lane] + 1)]
        many = lanes.per_rank(ranks)
        assert len(many) == ranks and {int(r): int(many[r]) for r in np.flatnonzero(many)} == {
            r: len({s for q, s in length if q == r}) for r, _ in length}
        assert lanes.node.dtype == lanes.lane.dtype == lanes.start.dtype == np.int32


def test_lanes_of_nothing():
    lanes = Lanes(allreduce([], 2))
    assert (lanes.nodes, lanes.used.tolist(), lanes.ends.tolist(), lanes.per_rank(2).tolist()) == (0, [], [], [0, 0])
    assert Lanes(allreduce([], 1 << 20).with_columns(streams=("a", "b"))).nodes == 0
    assert [len(x) for x in (*records(allreduce([], 2)), fused_sends(allreduce([], 2)))] == [0, 0, 0]


def test_waits_and_their_records():
    """An event is of its rank and its name; what records it may stand after it, or nowhere."""
    random = Random(6)
    for k in range(40):
        table = random_table(random, statements=9, ranks=2, streams=3, lost=0.1 * (k % 4))
        waits, made = records(table)
        assert waits.tolist() == np.flatnonzero(table.op == Op.WAIT).tolist()
        event = [*zip(table.rank.tolist(), table.event.tolist())]
        by = {event[row]: row for row in np.flatnonzero(table.op == Op.RECORD).tolist()}
        assert made.tolist() == [by.get(event[row], NONE) for row in waits.tolist()]
        assert fused_sends(table).tolist() == np.flatnonzero(table.of != NONE).tolist()
    same_name = [dict(op=op, rank=r, step=k, event="e") for r in (1, 0) for k, op in enumerate(("record", "wait"))]
    assert [x.tolist() for x in records(allreduce(same_name, 2))] == [[1, 3], [0, 2]]
    assert [x.tolist() for x in records(allreduce(same_name[1::2], 2))] == [[0, 1], [NONE, NONE]]
    assert [x.tolist() for x in records(allreduce(same_name[::2], 2))] == [[], []]


# Connections


def test_messages_of_connections():
    """Rows of one lane and connection are its messages in the order of their steps, whatever the order of rows; pairs
    are those of one message number."""
    random = Random(8)
    for k in range(40):
        table = random_table(random, statements=12, ranks=3, streams=2, lost=0.05 * (k % 3))
        table = shuffled(random, table) if k % 2 else table
        ends = connections(table, Lanes(table))
        rows = {True: {}, False: {}}
        for row in sorted(np.flatnonzero(table.op <= Op.REDUCE_RECV).tolist(), key=lambda i: (table.step[i], i)):
            sending = bool(table.op[row] == Op.SEND)
            rank, peer = int(table.rank[row]), int(table.peer[row])
            key = (rank, peer, int(table.chan[row])) if sending else (peer, rank, int(table.chan[row]))
            rows[sending].setdefault(key, []).append(row)
        keys = sorted({*rows[True], *rows[False]})
        partner = np.full(len(table), NONE)
        for sending, at, of, first, index in (
                (True, ends.sends, ends.of_send, ends.first_send, ends.send_index),
                (False, ends.receives, ends.of_receive, ends.first_receive, ends.receive_index)):
            each = [rows[sending].get(key, []) for key in keys]
            assert at.tolist() == [row for some in each for row in some]
            assert of.tolist() == [c for c, some in enumerate(each) for _ in some]
            assert first.tolist() == np.cumsum([0, *map(len, each)]).tolist()
            assert index.tolist() == [i for some in each for i in range(len(some))]
        for key in keys:
            for a, b in zip(rows[True].get(key, []), rows[False].get(key, [])):
                partner[a], partner[b] = b, a
        assert pair(table, ends).tolist() == partner.tolist()
        message = Matching(partner, (), False, Lanes(table), table).message
        assert message[ends.sends].tolist() == ends.send_index.tolist()
        assert message[ends.receives].tolist() == ends.receive_index.tolist()
        assert (message[table.op > Op.REDUCE_RECV] == NONE).all()


def test_chunks_of_messages_go_in_the_order_of_their_messages():
    """Stream b sends after stream a, though its rows stand first; cut into chunks all the same."""
    at = {"buffer": "data", "rank": 0, "peer": 1, "chan": "w", "op": "send", "count": 2}
    rows = [dict(op="wait", rank=0, stream="b", event="sent"), dict(at, stream="b", step=1, chunk=0),
            dict(at, stream="a", chunk=2), dict(op="record", rank=0, stream="a", step=1, event="sent"),
            *(dict(op="recv", rank=1, peer=0, stream="w", step=k, buffer="data", chunk=k, count=2) for k in range(2))]
    table = replace(allreduce(rows, 2, 4), transport=Transport("wire", 1))
    matched = match(table)
    assert matched.diagnostics == () and matched.partner[1] == 5 and matched.partner[2] == 4
    found = slots(table, matched)
    assert found.longest == 4 and len(found.table) == len(table)
    waits = [sorted(zip(*(rows.tolist() for rows in found.matching.connections.receive_before(depth)), strict=True))
             for depth in range(1, 5)]
    assert waits == [[(1, 4), (1, 5), (2, 4)], [(1, 4)], [(1, 4)], []]


# Graphs


def executed(table, depth, oracle, final):
    """The order of a table, which gets as far as the last state of all interleavings."""
    lanes = Lanes(table)
    ends = Connections.of(table, *pairing._play(table, lanes, connections(table, lanes), depth))
    matched = Matching(pair(table, ends), (), False, lanes, table, ends)
    found = order(table, matched, Sends(depth, depth))
    posted = [final[0][oracle.step(i)[:2]] > oracle.rows[i]["step"] for i in range(len(table))]
    assert (found.posted != NONE).tolist() == posted
    done = oracle.done(final)
    assert (found.done != NONE).tolist() == [done.issuperset(oracle.steps[oracle.step(i)]) for i in range(len(table))]
    assert found.complete == found.deadlock_free == oracle.finished(final)
    assert min(found.ready, default=0) >= NONE
    _is_execution(table, matched, found)
    return found


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("shared", [False, True])
def test_what_is_posted_can_be(depth, shared):
    """By brute force, also on connections that streams share, and where messages or events are missing."""
    random, stuck, fused = Random(f"{depth}{shared}"), 0, 0
    while fused < 12:
        table = random_table(random, statements=5, ranks=3, streams=2, shared_chan=shared,
                             lost=random.choice([0, 0.1]))
        oracle = Oracle(table, depth)
        finals, orders = oracle.explore()
        if any(len(seen) > 1 for seen in orders.values()):
            continue
        stuck += not executed(table, depth, oracle, finals[0]).complete
        fused += bool(len(fused_sends(table)))
    assert stuck


@pytest.mark.parametrize("small", [0, 1 << 20])
@pytest.mark.parametrize("depth", DEPTHS)
def test_levels_are_the_longest_chains(depth, small, monkeypatch):
    monkeypatch.setattr(graphs, "SMALL", small)
    random, never = Random(9), 0
    for k in range(15):
        table = random_table(random, statements=10, ranks=3, streams=2, lost=0.1 * (k % 2))
        graph = build(table, match(table), depth)
        into = {w: [] for w in range(graph.nodes)}
        for v, w in zip(graph.source.tolist(), graph.target.tolist()):
            into[w].append(v)
        for v in np.flatnonzero(graph.lane_edges).tolist():
            into[v + 1].append(v)
        level = dict.fromkeys(into, NONE)
        for _ in into:
            for w, sources in into.items():
                if w != graph.never and all(level[v] != NONE for v in sources):
                    level[w] = max((level[v] + 1 for v in sources), default=0)
        assert graph.level.tolist() == [*level.values()]
        assert graph.complete == all(level[w] != NONE for w in range(graph.never))
        never += not graph.complete
        highest = max(level.values())
        for above, to in ((0, None), (2, None), (0, highest - 1), (1, highest)):
            swept = [(int(w), sorted(sources[a:b].tolist())) for targets, sources, starts in graph.sweep(above, to)
                     for w, a, b in zip(targets, starts, [*starts[1:], len(sources)])]
            levels = range(above + 1, (highest if to is None else to) + 1)
            assert swept == [(w, sorted(into[w])) for n in levels for w in sorted(into) if level[w] == n]
    assert never > 3


# Orders


def held(table, matched):
    """Whether the numbers of a table are those of an execution, by the rules one by one."""
    number, partner = table.number.tolist(), matched.partner.tolist()
    fine = matched.numbered
    for wait, made in zip(*(x.tolist() for x in records(table))):
        fine &= made != NONE and number[made] < number[wait]
    for row, feeding in enumerate(table.of.tolist()):
        if feeding != NONE:
            fine &= partner[feeding] < feeding < row < partner[row]
    if (table.of != NONE).any():
        step = [*zip(table.rank.tolist(), table.stream.tolist(), table.step.tolist(), table.peer.tolist(),
                     table.chan.tolist())]
        receives = [step[row] for row in np.flatnonzero((table.op == Op.RECV) | (table.op == Op.REDUCE_RECV))]
        fine &= len({*receives}) == len(receives)
    return fine


def spread(table, matched):
    """How many levels a chain of fused sends needs in its number: for each row how many fused sends its message has
    passed before it, and the levels in all."""
    def passed(row):
        before = int(matched.partner[table.of[row]])
        return 1 + passed(before) if table.of[before] != NONE else 0

    depth = [passed(row) if table.of[row] != NONE else 0 for row in range(len(table))]
    room = dict.fromkeys(range(int(table.number.max()) + 1), 0)
    for n, d in zip(table.number.tolist(), depth):
        room[n] = max(room[n], d)
    return depth, sum(1 + d for d in room.values())


@pytest.mark.parametrize(("made", "waits", "hold"), [
    (0, 1, True), (1, 1, False), (1, 0, False), (0, 0, False), (None, 0, False), (None, 1, False)])
def test_numbers_of_events(made, waits, hold):
    """A record's is smaller than its wait's; and there is one."""
    rows = [dict(op="wait", rank=0, stream="a", event="e"), dict(op="copy", rank=0, stream="c", from_buffer="data",
                                                                from_chunk=1, **AT)]
    number = [waits, 0]
    if made is not None:
        rows.append(dict(op="record", rank=0, stream="b", event="e"))
        number.append(made)
    table = allreduce(rows, 1, 2).with_columns(number=np.array(number, np.int32))
    matched = match(table)
    assert matched.numbered and order(table, matched).numbered is hold


@pytest.mark.parametrize("sends", [Sends(0, None), Sends(1, None), Sends(2, 2), Sends(0, 1)], ids=str)
def test_orders_by_number_and_by_graph(sends, monkeypatch):
    """Numbers serve where they hold, few or many to a level; else the model for deadlock where it comes to its end,
    else the other."""
    random, outcomes = Random(11), set()
    module = import_module("schedlang.verify.timing.order")
    for k in range(150):
        if k % 3:
            table, number = numbered_table(random, ranks=4)
            if not len(table):
                continue
            change = k % 4
            if change == 1:
                number[random.randrange(len(number))] += random.choice([-1, 1, 2])
            elif change > 1:        # all rows the other way round, or two that stand side by side
                by = np.arange(len(table))[::-1].copy() if change == 2 else np.arange(len(table))
                if change == 3 and len(table) > 1:
                    i = random.randrange(len(table) - 1)
                    by[[i, i + 1]] = i + 1, i
                table, number = reordered(table, by), number[by]
            table = table.with_columns(number=number - number.min())
        else:
            table = random_table(random, lost=0.1 * (k % 2))
            table = table.with_columns(number=np.sort(np.array(random.choices(range(6), k=len(table)), np.int32)))
        matched = match(table, sends)
        right = held(table, matched)
        for few, wide in ((512, 64), (0, 10**6), (int(table.number.max()) + 1, 10**6)):
            monkeypatch.setattr(module, "FEW", few)
            monkeypatch.setattr(module, "WIDE", wide)
            found = order(table, matched, sends)
            assert found.numbered is (right and few > 0)
            graph = build(table, matched, sends.deadlock_depth)
            assert found.deadlock_free is graph.complete
            assert found.complete is build(table, matched, sends.depth).complete
            assert found.completes(sends.depth) is found.complete and found.completes(None) is build(
                table, matched, None).complete
            assert np.array_equal(found.graph.source, build(table, matched, sends.depth).source)
            assert found.levels == (found.done.max() + 1 if len(table) else 0) or not found.complete
            if found.complete:
                _is_execution(table, matched, found)
                assert (found.graph.level[found.graph.target] > found.graph.level[found.graph.source]).all()
            if found.numbered:
                depth, levels = spread(table, matched)
                assert (found.ready - found.posted).tolist() == depth and found.levels == levels
            else:
                model = sends.depth if right or not graph.complete else sends.deadlock_depth
                assert found.posted.tolist() == build(table, matched, model).level[matched.lanes.node].tolist()
        outcomes.add((right, bool((table.of != NONE).any()), found.complete))
    assert len(outcomes) >= 6, outcomes


# Within a rank


def with_events(random, ranks=2, streams=3, statements=80):
    """Mostly records and waits; what is between them is a transfer to the other rank, in a lane of its own there."""
    lanes, recorded = {}, {r: [] for r in range(ranks)}
    for k in range(statements):
        rank, stream = random.randrange(ranks), random.randrange(streams)
        kind = random.choice(["record", "wait", "wait", "send"])
        if kind == "send":
            peer = (rank + 1) % ranks
            for op, r, s, p in (("send", rank, stream, peer), ("recv", peer, random.randrange(streams), rank)):
                lanes.setdefault((r, s), []).append(dict(op=op, peer=p, chan=f"c{k}", buffer="data", chunk=0))
        elif kind == "record":
            recorded[rank].append(f"e{k}")
            lanes.setdefault((rank, stream), []).append(dict(op=kind, event=f"e{k}"))
        elif recorded[rank]:
            lanes.setdefault((rank, stream), []).append(dict(op=kind, event=random.choice(recorded[rank])))
    return allreduce([dict(row, rank=r, stream=f"s{s}", step=k) for (r, s), steps in lanes.items()
                      for k, row in enumerate(steps)], ranks)


@pytest.mark.parametrize("cells", [1 << 24, 90, 1])
def test_what_lanes_and_events_of_a_rank_order(cells, monkeypatch):
    """Exactly the chains that leave no rank; the rest is left to the search through other ranks."""
    monkeypatch.setattr(reach, "CELLS", cells)
    random, seen, unseen = Random(7), 0, 0
    for _ in range(5):
        table = with_events(random)
        matched = match(table)
        graph = build(table, matched, None)
        inside = table.op[graph.effect] == Op.WAIT
        graph.source, graph.target = graph.source[inside], graph.target[inside]
        lanes = matched.lanes
        nodes = [n for n in np.unique(lanes.node).tolist() if graph.level[n] != NONE]
        of = lanes.lane_of(np.array(nodes)).tolist()
        before, after = np.array([(v + 1, w) for (v, a), (w, b) in product(zip(nodes, of), repeat=2)
                                  if lanes.rank[a] == lanes.rank[b] and a != b]).T
        expected = paths(graph)[before, after]
        there = reach.Reach(table, order(table, matched))
        assert there._within(before, after).tolist() == expected.tolist()
        every = np.flatnonzero(expected)
        unordered, judged = there.some_unordered(before[every], after[every], 1)
        assert not len(unordered) and judged
        seen, unseen = seen + int(expected.sum()), unseen + int((~expected).sum())
    assert seen > 500 and unseen > 500, (seen, unseen)


def test_the_only_event_of_a_table_orders():
    rows = [dict(op="copy", step=0, from_buffer="data", from_chunk=1, **AT), dict(op="record", step=1, event="e"),
            dict(op="wait", stream="b", step=0, event="e"),
            dict(op="copy", stream="b", step=1, from_buffer="data", from_chunk=1, **AT)]
    table = allreduce([dict(row, rank=0) for row in rows], 1, 2)
    matched = match(table)
    node = matched.lanes.node
    assert reach.Reach(table, order(table, matched))._within(node[:1] + 1, node[3:]).tolist() == [True]


def test_a_search_takes_one_lane_after_another_until_it_has_enough(monkeypatch):
    monkeypatch.setattr(reach, "CELLS", 1)
    table = random_table(Random(1), statements=30, ranks=2, streams=6, fused=False)
    matched = match(table)
    found = order(table, matched)
    lanes = matched.lanes
    nodes = [n for n in np.unique(lanes.node).tolist() if found.graph.level[n] != NONE]
    of = dict(zip(nodes, lanes.lane_of(np.array(nodes)).tolist()))
    before, after = np.array([(v + 1, w) for v, w in product(nodes, nodes)
                              if lanes.rank[of[v]] == lanes.rank[of[w]] and of[v] != of[w]]).T
    ordered = paths(found.graph)[before, after]
    left = np.flatnonzero(~reach.Reach(table, found)._within(before, after))
    lane = np.array([of[v - 1] for v in before.tolist()])
    sources = np.unique(lane[left]).tolist()
    many = np.cumsum([sum(not ordered[i] for i in left.tolist() if lane[i] == source) for source in sources]).tolist()
    assert len(many) > 4 and many[-1] > 20
    for enough in {1, *many, *(n + 1 for n in many)}:
        there = next((k for k, n in enumerate(many) if n >= enough), len(many))
        judged = {i for i in left.tolist() if lane[i] in sources[:there + 1]}
        some, all_of_them = reach.Reach(table, found).some_unordered(before, after, enough)
        assert some.tolist() == sorted(i for i in judged if not ordered[i])
        assert all_of_them == (len(judged) == len(left))


# Rounds


@pytest.mark.parametrize("sends", [Sends(), Sends(1, 1), Sends(0, 0)], ids=str)
def test_rounds_of_what_has_no_numbers(sends):
    """Against the definition, in which sends do not wait, whatever the model."""
    random, none = Random(3), 0
    for _ in range(60):
        table = random_table(random, statements=8)
        matched = match(table, sends)
        found = rounds.critical_path(table, matched, order(table, matched, sends))
        if not build(table, matched, None).complete:
            assert found is None
            none += 1
        else:
            assert found == _rounds(table, matched)
    assert 0 < none < 30
    empty = allreduce([], 2)
    assert rounds.critical_path(empty, match(empty), order(empty, match(empty))) == 0


def in_numbers(random, ranks, streams, first):
    """Numbered transfers and copies, one or two a number. Streams keep to their connections, or each to the other's.
    Rows stand as they are numbered, or in another order, in which number 0 may come first."""
    rows, number, steps, crossed = [], [], {}, streams == 2 and random.random() < 0.3

    def at(rank, stream):
        steps[rank, stream] = steps.get((rank, stream), -1) + 1
        return dict(rank=rank, stream="ab"[stream], step=steps[rank, stream], **AT)

    for k in range(random.randrange(1, 12)):
        free = random.sample(range(ranks), ranks)
        for _ in range(random.choice([1, 1, 2])):
            if len(free) >= 2:
                stream, a, b = random.randrange(streams), free.pop(), free.pop()
                kinds = [("send", a, b), ("recv", b, a)] if random.random() < 0.85 else [("copy", a, None)]
                for op, rank, peer in kinds:
                    how = dict(from_buffer="data", from_chunk=1) if peer is None else dict(peer=peer)
                    if crossed and peer is not None:
                        how["chan"] = "ba"[stream]
                    rows.append(dict(op=op, **how, **at(rank, stream)))
                    number.append(k)
    table, number = allreduce(rows, ranks, 2), np.array(number, np.int32)
    table = table.with_columns(number=number)
    if first is None:
        return table
    table = shuffled(random, table, number)
    if first:
        table = reordered(table, np.argsort(table.number != 0, kind="stable"))
    return table


@pytest.mark.parametrize("block", [1 << 20, 3, 1])
def test_rounds_of_numbered_steps(block, monkeypatch):
    """Against the definition."""
    monkeypatch.setattr(rounds, "BLOCK", block)
    random, busy, slow = Random(2), 0, 0
    for k in range(100):
        table = in_numbers(random, ranks=2 + k % 4, streams=1 + k % 2, first=(None, False, True)[k % 3])
        if k % 5 == 0:
            table = table.with_columns(number=table.number * np.int32(3) + np.int32(1))
        matched = match(table)
        found = order(table, matched)
        assert found.numbered
        expected = _rounds(table, matched)
        seen = rounds._busy(table, matched, found)
        assert seen in (None, expected) and rounds._by_number(table, matched, found) == expected
        assert rounds.critical_path(table, matched, found) == expected
        busy, slow = busy + (seen is not None), slow + (seen is None)
    assert busy > 10 and slow > 30, (busy, slow)


def test_rounds_where_a_lane_is_busy_with_what_is_no_transfer():
    """A copy in each step but the last: one round, though the rank has three steps and no stream has more levels."""
    rows = [dict(op="copy", rank=0, step=k, buffer="data", chunk=1, from_buffer="data", from_chunk=2) for k in range(2)]
    rows += [dict(op="send", rank=0, step=2, peer=1, buffer="data", chunk=0),
             dict(op="recv", rank=1, peer=0, buffer="data", chunk=0)]
    table = allreduce(rows, 2, 3)
    table = table.with_columns(number=np.array([0, 1, 2, 2], np.int32))
    matched = match(table)
    found = order(table, matched)
    assert found.numbered and rounds.critical_path(table, matched, found) == 1


def test_rounds_of_a_message_that_changes_its_stream():
    """Stream 0 of rank 2 is busy in all six levels of its stream; what rank 0 sends last comes in on stream 1 of rank
    1, whose four further messages make ten rounds. The row of that send stands first."""
    def ends(a, b, stream, other, step, back, number):
        at = {"buffer": "data", "chunk": 0}
        return [(number, dict(op="send", rank=a, peer=b, stream=stream, chan=other, step=step, **at)),
                (number, dict(op="recv", rank=b, peer=a, stream=other, chan=other, step=back, **at))]

    rows = ends(0, 1, "0", "1", 5, 0, 5)
    for k in range(5):
        rows += ends(0, 2, "0", "0", k, k, k)
    rows += ends(3, 2, "0", "0", 0, 5, 5)
    for k in range(4):
        rows += ends(1, 2, "1", "1", k + 1, k, k + 6)
    table = allreduce([row for _, row in rows], 4)
    table = table.with_columns(number=np.array([n for n, _ in rows], np.int32))
    matched = match(table)
    found = order(table, matched)
    assert found.numbered and rounds.critical_path(table, matched, found) == _rounds(table, matched) == 10


# Findings on connections that streams share


def on_shared(pairs, statements):
    """Rank 0 sends ``pairs[k]`` pairs of messages to rank k + 1 on a connection of its own; of each two, streams a and
    b post one, in no order."""
    rows = []
    for k, many in enumerate(pairs):
        for i in range(many):
            rows += [dict(op="send", rank=0, stream=s, chan=f"c{k}", peer=k + 1, step=sum(pairs[:k]) + i, buffer="data",
                          chunk=0, location=statements(k, s)) for s in "ab"]
        rows += [dict(op="recv", rank=k + 1, stream=f"c{k}", peer=0, step=i, buffer="data", chunk=0)
                 for i in range(2 * many)]
    return allreduce(rows, len(pairs) + 1)


def said(table):
    """The findings on shared ends, in short."""
    return [(d.message.split(" are ")[0], d.count, d.location.line, [n.location.line for n in d.notes])
            for d in match(table).diagnostics if d.code == "SL304"]


def test_ends_are_grouped_by_both_statements_and_each_pair_counts():
    """Stream a is line 1 for all; stream b is line 2 for two connections, line 3 for the third."""
    table = on_shared([1, 1, 1], lambda k, s: Place("x.sched", 1 if s == "a" else 2 + k // 2))
    assert said(table) == [("sends of rank 0 to rank 1 on c0", 2, 2, [1, 2]),
                           ("sends of rank 0 to rank 3 on c2", 1, 3, [1, 3])]
    table = on_shared([1, 1, 1], lambda k, s: Place("x.sched", 2 + k // 2 if s == "a" else 1))
    assert said(table) == [("sends of rank 0 to rank 1 on c0", 2, 1, [2, 1]),
                           ("sends of rank 0 to rank 3 on c2", 1, 1, [3, 1])]
    # Of a0, b0, a1, b1 nothing orders any that follow each other.
    table = on_shared([2, 1], lambda k, s: Place("x.sched", 1 if s == "a" else 2))
    assert said(table) == [("sends of rank 0 to rank 1 on c0", 3 + 1, 2, [1, 2])]


@pytest.mark.parametrize("apart", [1, 2, 3])
def test_the_two_ends_of_connections_are_findings_of_their_own(apart):
    """Rank 0's streams a and b both send on connection 0; rank 1's both receive on the one ``apart`` further."""
    names, at = ["a", "b", "c", "d"], {"buffer": "data", "chunk": 0}
    rows = [dict(op="send", rank=0, peer=1, stream=s, chan="a", **at) for s in names[:2]]
    rows += [dict(op="recv", rank=1, peer=0, stream="a", step=k, chan="a", **at) for k in range(2)]
    other = names[apart]
    rows += [dict(op="send", rank=0, peer=1, stream="d", step=k, chan=other, **at) for k in range(2)]
    rows += [dict(op="recv", rank=1, peer=0, stream=s, chan=other, **at) for s in "cd"]
    names_first = [dict(op="copy", rank=2, stream=s, from_buffer="data", from_chunk=1, **at) for s in names]
    found = match(allreduce(names_first + rows, 3, 2)).diagnostics
    assert [(d.code, d.message.split(" are ")[0], d.count) for d in found] == [
        ("SL304", "sends of rank 0 to rank 1 on a", 1), ("SL304", f"receives of rank 1 from rank 0 on {other}", 1)]


def test_what_is_never_posted_is_in_no_order_and_no_finding():
    at = {"buffer": "data", "chunk": 0}
    rows = [dict(op="send", rank=0, peer=1, stream="a", chan="w", **at),
            dict(op="recv", rank=0, peer=1, stream="b", **at),      # of which there is no send
            dict(op="send", rank=0, peer=1, stream="b", step=1, chan="w", **at),
            *(dict(op="recv", rank=1, peer=0, stream="w", step=k, **at) for k in range(2))]
    assert [d.code for d in match(allreduce(rows, 2)).diagnostics] == ["SL302"]


def test_an_order_that_only_rendezvous_makes():
    """Stream a sends on the connection once a message before it was taken, which is after the one of stream b, though b
    has two copies to make first."""
    at, here = {"buffer": "data", "chunk": 0}, {"rank": 0, "peer": 1}
    rows = [dict(op="send", stream="a", step=0, chan="own", **here, **at),
            dict(op="send", stream="a", step=1, chan="w", **here, **at),
            *(dict(op="copy", rank=0, stream="b", step=k, from_buffer="data", from_chunk=1, **at) for k in range(2)),
            dict(op="send", stream="b", step=2, chan="w", **here, **at),
            *(dict(op="recv", rank=1, peer=0, stream="s", step=k, chan=chan, **at)
              for k, chan in enumerate(("w", "own", "w")))]
    table = allreduce(rows, 2, 2)
    found = match(table, Sends(0, 0))
    assert found.diagnostics == () and found.message.tolist() == [0, 1, NONE, NONE, 0, 0, 0, 1]
    assert [d.code for d in match(table, Sends(None, None)).diagnostics] == ["SL304"]


def lane(rank, *steps):
    """Rows of rank ``rank``, each step a list of (op, peer[, the place of what it passes on among all rows])."""
    return [dict(op=op, rank=rank, peer=peer, step=k, **AT, **({"of": of[0]} if of else {}))
            for k, step in enumerate(steps) for op, peer, *of in step]


@pytest.mark.parametrize("rows", [
    # With one message under way the second send of rank 1 waits for the first to be taken, which never comes.
    [*lane(1, [("recv", 0), ("send", 2, 0), ("send", 2)]), *lane(2, [("recv", 1), ("recv", 1)])],
    # The same, and rank 2 would pass the second on to rank 3.
    [*lane(1, [("recv", 0), ("send", 2, 0), ("send", 2)]), *lane(2, [("recv", 1), ("recv", 1), ("send", 3, 4)]),
     *lane(3, [("recv", 2)], [("send", 0)])],
    # Rank 2 has what rank 1 passes on, though rank 3 never takes it.
    [*lane(1, [("recv", 0), ("send", 2, 0), ("send", 3, 0)]), *lane(0, [("send", 1)]), *lane(2, [("recv", 1)])],
    # That rank 3 takes it is known at rank 0 only after some time, in which no step ends.
    [*lane(1, [("recv", 0), ("send", 2, 0), ("recv", 0)]), *lane(2, [("recv", 1), ("send", 3, 3), ("recv", 0)]),
     *lane(3, [("recv", 2), ("recv", 0)]), *lane(0, [("send", 1)], [("send", 1), ("send", 2), ("send", 3)])],
    # Without buffering rank 0's message is taken once the one before it on the way to rank 2 can be, which is never.
    [*lane(2, [("recv", 3), ("send", 1, 0), ("recv", 3)]), *lane(3, [("send", 2), ("recv", 0), ("send", 2, 4)]),
     *lane(0, [("send", 3)], [("send", 1)]), *lane(1, [("recv", 0)])],
], ids=["room", "room and on", "two ways", "far", "behind"])
@pytest.mark.parametrize("depth", DEPTHS)
def test_executions_that_pass_messages_on(rows, depth):
    table = allreduce(rows, 4)
    oracle = Oracle(table, depth)
    (state,), _ = oracle.explore()
    play = pairing._Play(table, Lanes(table), depth)
    play.run()
    assert play.done == oracle.done(state)
    executed(table, depth, oracle, state)
