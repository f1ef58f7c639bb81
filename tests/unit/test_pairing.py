"""The execution that pairs messages where streams share an end of a connection, on tables of every kind, though most
do not need it: it gets as far as the graph of the order says, and the verdict is the one without it."""

import numpy as np
import pytest

from schedlang.ops import Op
from schedlang.verify import matching, verify
from schedlang.verify.sends import Sends
from schedlang.verify.timing import pairing
from schedlang.verify.timing.connections import Connections
from schedlang.verify.timing.order import order
from tests.test_cases import CASES, expanded, read_case

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
