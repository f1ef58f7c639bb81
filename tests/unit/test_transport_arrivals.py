"""On a transport that copies messages nothing is stored before it has arrived; without one, a posted receive may write
from then on."""

from dataclasses import replace

import pytest

from schedlang.ir.table import Transport
from schedlang.verify import verify
from schedlang.verify.sends import Sends
from tests.comparison import compare
from tests.tables import allreduce

COPY = {"op": "copy", "rank": 0, "buffer": "data", "chunk": 0, "from_buffer": "other", "from_chunk": 0}


def written_twice(*, passed=False, kind="recv", source="other", first=COPY, early=False, besides=(), besides_pass=(),
                  transport=True):
    """Lane ``a`` of rank 0 writes ``data[0]`` and then sends to rank 1, which answers, or passes on what came
    (``passed``), to lane ``b`` of rank 0. That receives into ``data[0]`` in its first step, so it is posted from the
    beginning. ``kind``, ``source``: how it receives. ``first``: what lane a does at first. ``early``: it sends before
    that."""
    mine = {"op": "send", "rank": 0, "stream": "a", "peer": 1, "buffer": "data", "chunk": 1}
    does = {"stream": "a", **first}
    rows = [{**does, "step": int(early)}, {**mine, "step": int(not early)}]
    if passed:
        rows += [{"op": "reduce_recv", "rank": 1, "stream": "a", "peer": 0, "buffer": None, "from_buffer": "data",
                  "from_chunk": 1},
                 {"op": "send", "rank": 1, "stream": "a", "peer": 0, "chan": "b", "of": 2}, *besides_pass]
    else:
        rows += [{"op": "recv", "rank": 1, "stream": "a", "peer": 0, "buffer": "other", "chunk": 0},
                 {"op": "send", "rank": 1, "stream": "a", "step": 1, "peer": 0, "chan": "b", "buffer": "other",
                  "chunk": 0}]
    comes = {"op": kind, "rank": 0, "stream": "b", "peer": 1, "chan": "b", "buffer": "data", "chunk": 0}
    rows.append(comes if kind == "recv" else {**comes, "from_buffer": source, "from_chunk": 0})
    table = allreduce([*rows, *besides], 2, 2, scratch=[("other", 1), ("more", 1)])
    return replace(table, transport=Transport("wire", 1) if transport else None)


def races(table, sends="unlimited"):
    assert compare(table, sends).disagreement is None
    return any(d.code == "SL401" for d in verify(table, sends=Sends.parse(sends)).diagnostics)


ELSEWHERE = {"op": "copy", "rank": 0, "stream": "b", "buffer": "more", "chunk": 0, "from_buffer": "other",
             "from_chunk": 0}
READ = {"op": "copy", "rank": 0, "buffer": "more", "chunk": 0, "from_buffer": "data", "from_chunk": 0}
ON_RANK_1 = {**ELSEWHERE, "rank": 1, "stream": "a"}


@pytest.mark.parametrize("passed", [False, True])
@pytest.mark.parametrize("given, expected", [
    ({}, False),
    ({"transport": False}, True),
    ({"early": True}, True),                                # the answer says nothing of what follows the message
    ({"first": READ}, False),
    ({"kind": "reduce_recv"}, False),                       # its operand lies elsewhere
    ({"kind": "reduce_recv", "source": "data"}, True),      # its operand is read from the beginning
    ({"kind": "reduce_recv", "source": "data", "first": READ}, False),      # two reads, and a later store
    ({"besides": [ELSEWHERE]}, True),                       # of steps with several operations nothing is known
], ids=["stored", "anywhere", "early", "read", "added", "operand", "operand read", "step of two"])
def test_what_is_received_is_stored_when_it_has_come(passed, given, expected):
    assert races(written_twice(passed=passed, **given)) is expected


def test_what_is_passed_on_has_come_before():
    """... unless that step does something else, too, or nothing is buffered: then it may only be handed through, and
    the receive is posted whenever."""
    assert not races(written_twice(passed=True))
    assert races(written_twice(passed=True, besides_pass=[ON_RANK_1]))
    assert races(written_twice(passed=True), "rendezvous")
    assert not races(written_twice(passed=False), "rendezvous")


def test_a_message_that_came_long_ago():
    """Where the receive is posted after its message has arrived, its own place in the lane counts."""
    rows = [{"op": "send", "rank": 1, "stream": "a", "peer": 0, "chan": "b", "buffer": "data", "chunk": 1},
            {**COPY, "stream": "a"},
            {"op": "record", "rank": 0, "stream": "a", "step": 1, "event": "written"},
            {"op": "wait", "rank": 0, "stream": "b", "event": "written"},
            {"op": "recv", "rank": 0, "stream": "b", "step": 1, "peer": 1, "chan": "b", "buffer": "data", "chunk": 0}]
    for transport in (None, Transport("wire", 1)):
        waits = replace(allreduce(rows, 2, 2, scratch=[("other", 1)]), transport=transport)
        assert not races(waits)
        without = [*rows[:3], {**rows[4], "step": 0}]
        assert races(replace(allreduce(without, 2, 2, scratch=[("other", 1)]), transport=transport))


def test_the_race_that_is_told_is_one():
    """Of two stores in one lane the first races with a send; the second comes after the answer to what was sent."""
    rows = [{**COPY, "stream": "a"},
            {"op": "recv", "rank": 0, "stream": "a", "step": 1, "peer": 1, "chan": "b", "buffer": "other", "chunk": 0},
            {**COPY, "stream": "a", "step": 2},
            {"op": "recv", "rank": 1, "stream": "a", "peer": 0, "buffer": "other", "chunk": 0},
            {"op": "send", "rank": 1, "stream": "a", "step": 1, "peer": 0, "chan": "b", "buffer": "other", "chunk": 0},
            {"op": "send", "rank": 0, "stream": "b", "peer": 1, "chan": "a", "buffer": "data", "chunk": 0}]
    rows[3]["chan"] = "a"
    plain = allreduce(rows, 2, scratch=[("other", 1)])
    for table, first in ((replace(plain, transport=Transport("wire", 1)), 0), (plain, 2)):
        (found,) = [d for d in verify(table).diagnostics if d.code == "SL401" and d.witness["buffer"] == "data"]
        assert (found.witness["first"], found.witness["second"]) == (first, 5)
