"""The execution that pairs messages where streams share an end of a connection, on tables of every kind, though most
do not need it: it gets as far as the graph of the order says, and the verdict is the one without it."""

from random import Random

import numpy as np
import pytest

from schedlang.ir.table import NONE
from schedlang.ops import Op
from schedlang.verify import matching, verify
from schedlang.verify.sends import Sends
from schedlang.verify.timing import pairing
from schedlang.verify.timing.connections import Connections
from schedlang.verify.timing.lanes import Lanes
from schedlang.verify.timing.order import order
from tests.tables import allreduce
from tests.test_cases import CASES, expanded, read_case
from tests.unit.order_oracle import Oracle, random_table

DEPTHS = (0, 1, 2, None)


@pytest.fixture(scope="module")
def tables():
    found = [expanded(path, read_case(path))[0] for path in CASES]
    return [table for table in found if table is not None and len(table)]


@pytest.mark.parametrize("depth", DEPTHS)
def test_what_is_posted_and_done_is_what_can_happen(tables, depth):
    stuck = 0
    for table in tables:
        sends = Sends(depth, depth)
        matched = matching.match(table, sends)
        if matched.diagnostics:     # which message is which may depend on timing
            continue
        found = order(table, matched, sends)
        play = pairing._Play(table, matched.lanes, depth)
        play.run()
        transfers = np.flatnonzero(table.op <= Op.REDUCE_RECV)
        posted = transfers[found.posted[transfers] >= 0]
        assert sorted(play.posted_sends + play.posted_receives) == posted.tolist(), table.name
        assert (len(play.done) == len(table)) is found.complete, table.name
        stuck += not found.complete
    assert stuck >= (0 if depth is None else 2)


@pytest.mark.parametrize("depth", DEPTHS)
def test_verdicts_do_not_change(tables, depth, monkeypatch):
    sends = Sends(depth, depth)
    expected = [verify(table.with_columns(number=None), sends=sends) for table in tables]

    def played(table, lanes, guess, sends):
        ends = Connections.of(table, *pairing._play(table, lanes, guess, sends.depth))
        first, second, _ = pairing._unsettled(table, lanes, ends, sends)
        return ends, pairing._findings(table, first, second, sends) if len(first) else []

    monkeypatch.setattr(matching, "_shared", lambda lanes, ends: True)
    monkeypatch.setattr(matching, "settle", played)
    for table, verdict in zip(tables, expected, strict=True):
        found = verify(table.with_columns(number=None), sends=sends)
        assert (found.proofs, found.diagnostics, found.facts) == (
            verdict.proofs, verdict.diagnostics, verdict.facts), table.name


def test_play_gets_as_far_as_every_interleaving():
    """Random tables whose streams may share connections: all that an execution posts and completes, by brute force, is
    what is played, and in an order that it could have."""
    random, stuck, fused = Random(4), 0, 0
    for k in range(120):
        depth = DEPTHS[k % 4]
        table = random_table(random, statements=5, ranks=3, streams=2, shared_chan=True, lost=0.05 * (k % 3))
        oracle = Oracle(table, depth)
        finals, orders = oracle.explore()
        if any(len(seen) > 1 for seen in orders.values()):
            continue
        play = pairing._Play(table, Lanes(table), depth)
        play.run()
        ends = {}
        for row in play.posted_sends + play.posted_receives:
            ends.setdefault(oracle.end(row), []).append(row)
        assert {end: tuple(rows) for end, rows in ends.items()} == finals[0][1]
        assert play.done == oracle.done(finals[0])
        stuck += len(play.done) < len(table)
        fused += bool((table.of != NONE).any())
    assert stuck > 10 and fused > 10, (stuck, fused)


@pytest.mark.parametrize("model", ["rendezvous", "buffered=1", "unlimited"])
def test_what_is_ambiguous_is_so_in_some_interleavings(model):
    random, seen, sends = Random(model), 0, Sends.parse(model)
    for _ in range(60):
        table = random_table(random, statements=4, ranks=2, streams=3, shared_chan=True)
        _, orders = Oracle(table, sends.depth).explore()
        found = matching.match(table, sends)
        ambiguous = any(len({order[:k] for order in group}) > 1 for group in orders.values() for k in range(1, 9))
        assert ("SL304" in [d.code for d in found.diagnostics]) == ambiguous
        if not ambiguous:
            for rows in (next(iter(group)) for group in orders.values()):
                assert [int(found.message[row]) for row in rows] == list(range(len(rows)))
        seen += ambiguous
    assert 10 < seen < 50


def test_sends_that_wait_for_an_earlier_receive():
    """Of two connections the first has three sends and one receive, the second one of each."""
    at = {"buffer": "data", "chunk": 0}
    rows = [dict(op="send", rank=0, peer=1, step=k, **at) for k in range(3)]
    rows += [dict(op="recv", rank=1, peer=0, **at), dict(op="send", rank=1, peer=0, step=1, **at),
             dict(op="recv", rank=0, peer=1, step=3, **at)]
    table = allreduce(rows, 2)
    ends = matching.match(table).connections
    for depth, sent, taken in ((1, [1, 2], [3, NONE]), (2, [2], [3]), (3, [], [])):
        assert [x.tolist() for x in ends.receive_before(depth)] == [sent, taken]
    lonely = matching.match(allreduce(rows[:4], 2)).connections
    assert [x.tolist() for x in lonely.receive_before(1)] == [[1, 2], [3, NONE]]
    silent = matching.match(allreduce(rows[:3], 2)).connections
    assert [x.tolist() for x in silent.receive_before(1)] == [[1, 2], [NONE, NONE]]
