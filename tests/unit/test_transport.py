"""Verdicts on tables that were written for a transport: its depth, and messages that go whole or chunk by chunk."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from schedlang.diagnostics import SchedError
from schedlang.interpret import interpret
from schedlang.ir import json, legal
from schedlang.ir.table import COLUMNS, Transport
from schedlang.ops import Op
from schedlang.verify import DEFAULT, Sends, deadlock, verify
from schedlang.verify.matching import match
from schedlang.verify.removal import settled
from schedlang.verify.timing.slots import slots
from tests.comparison import compare
from tests.pieces import in_pieces
from tests.strategies import working_table
from tests.tables import allreduce
from tests.unit.test_values import the


def transfer(source, destination, first, last=None, *, count=1, step, **more):
    """A send of rank ``source`` in its step ``step[0]``, and the receive in step ``step[1]``."""
    base = {"chunk": first, "count": count, **more}
    return [{"op": "send", "rank": source, "peer": destination, "buffer": "data", "step": step[0], **base},
            {"op": "recv", "rank": destination, "peer": source, "buffer": "other", "step": step[1], **base}]


def crossed(count, depth=2, name="wire"):
    """Two ranks that both send ``count`` chunks, and then receive."""
    rows = [*transfer(0, 1, 0, count=count, step=(0, 1)), *transfer(1, 0, 0, count=count, step=(0, 1))]
    return replace(allreduce(rows, 2, chunks=count, scratch=[("other", count)]), transport=Transport(name, depth))


def stuck(table, sends=DEFAULT):
    return [d for d in verify(table, sends=sends).diagnostics if d.code == "SL305"]


def fused_ring(depth, count=1):
    """Every rank sends, then passes on what comes, then receives: in a circle of three."""
    rows = []
    for r in range(3):
        common = {"rank": r, "buffer": "other", "chunk": 0, "count": count, "peer": (r - 1) % 3}
        rows += [{"op": "send", "rank": r, "buffer": "data", "chunk": 0, "count": count, "peer": (r + 1) % 3},
                 {"op": "recv", "step": 1, **common},
                 {"op": "send", "rank": r, "step": 1, "count": count, "peer": (r + 1) % 3, "of": len(rows) + 1},
                 {"op": "recv", "step": 2, **common}]
    return replace(allreduce(rows, 3, chunks=count, scratch=[("other", count)]), transport=Transport("wire", depth))


# Models


def test_the_default_is_what_the_transport_offers():
    table = crossed(1)
    assert not stuck(table) and stuck(replace(table, transport=None))
    verdict = verify(table)
    assert verdict.sends == Sends(2, None, table.transport) and str(verdict.sends) == "wire"
    assert verdict.proof("deadlock").detail == "wire: with 2 messages in flight per connection"
    assert {k: verdict.facts[k] for k in ("transport", "transport_depth", "least_depth")} == {
        "transport": "wire", "transport_depth": 2, "least_depth": 1}
    assert "least_depth_whole" not in verdict.facts


@pytest.mark.parametrize("text", ["rendezvous", "buffered=1", "buffered=2", "unlimited"])
def test_a_model_that_is_asked_for_is_taken_as_it_is(text):
    """Messages are then whole, whatever the transport does."""
    verdict = verify(crossed(3), sends=Sends.parse(text))
    assert verdict.sends == Sends.parse(text) and bool(stuck(crossed(3), Sends.parse(text))) == (text == "rendezvous")
    assert "wire" not in verdict.proof("deadlock").detail


@pytest.mark.parametrize("own", [Transport("wire", 9), None])
def test_a_transport_that_is_asked_for_takes_the_place_of_its_own(own):
    verdict = verify(replace(crossed(3), transport=own), sends=Sends.parse("Simple"))
    assert the(verdict, "SL305").notes[-1].message.endswith("but Simple offers no more than 2")
    assert str(verdict.sends) == "Simple" and verdict.model == "Simple: with 2 messages in flight per connection"
    assert verify(replace(crossed(3), transport=own), sends=Sends.parse("LL")).facts["transport_depth"] == 8
    for table, races in ((answered("send"), {"LL": False, "default": False}),
                         (answered("send", transport=False), {"LL": False, "default": True})):
        for text, expected in races.items():
            codes = [d.code for d in verify(table, sends=Sends.parse(text)).diagnostics]
            assert ("SL401" in codes) == expected
            assert compare(table, text).disagreement is None


def test_without_a_transport_nothing_is_cut():
    table = replace(crossed(3), transport=None)
    assert slots(table, match(table)) is None
    assert verify(table, sends=Sends.parse("buffered=1")).facts["least_depth"] == 1


def test_copies_of_several_chunks_are_no_messages():
    """Each message is of one chunk, so none is cut, and none is told of as whole."""
    rows = [*transfer(0, 1, 0, step=(0, 0)), {"op": "copy", "rank": 0, "step": 1, "buffer": "other", "chunk": 0,
                                              "from_buffer": "data", "from_chunk": 0, "count": 3}]
    table = replace(allreduce(rows, 2, chunks=3, scratch=[("other", 3)]), transport=Transport("wire", 1))
    assert slots(table, match(table)) is None


# Messages of several chunks


def test_a_message_of_several_chunks_may_take_a_slot_for_each():
    table = crossed(3)
    found = the(verify(table), "SL305")
    assert "(with 2 chunks in flight per connection)" in found.message
    assert found.message.endswith("; 2 lanes (streams of a rank) never come to an end")
    assert "send data[0:3] to rank 1" in found.message and found.witness["least_depth"] == 3
    assert [(hop["row"], hop["waits_for"]) for hop in found.witness["circle"]] == [(0, 1), (2, 3)]
    assert [n.message for n in found.notes][-2:] == [
        "whole messages would go through; one too large for a slot goes chunk by chunk, and each chunk then takes a "
        "slot",
        "it would go through with 3 chunks in flight per connection, but wire offers no more than 2"]
    assert not stuck(crossed(3, depth=3)) and not stuck(crossed(2))
    facts = verify(crossed(2)).facts
    assert (facts["least_depth"], facts["least_depth_whole"]) == (2, 1)


def test_where_whole_messages_are_stuck_that_is_told():
    found = the(verify(fused_ring(1)), "SL305")
    assert "(with 1 message in flight per connection)" in found.message and found.witness["least_depth"] == 2
    assert found.notes[-1].message == (
        "it would go through with 2 messages in flight per connection, but wire offers no more than 1")
    assert not any("chunk by chunk" in n.message for n in found.notes)
    asked = the(verify(fused_ring(8), sends=Sends.parse("buffered=1")), "SL305")
    assert asked.notes[-1].message == "it would go through with 2 messages in flight per connection, and wire offers 8"
    cut = the(verify(fused_ring(1, count=2)), "SL305")
    assert cut.notes[-1].message == (
        "it would go through with 3 chunks in flight per connection, but wire offers no more than 1")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_fused_messages_are_cut_at_both_ends(count):
    for depth in range(1, 2 * count + 2):
        table = fused_ring(depth, count)
        assert bool(stuck(table)) == (not interpret(in_pieces(table), 0, sends=f"buffered={depth}").finished)
        assert bool(stuck(table)) == (depth < count + 1)


def messages(rng):
    """Random messages on connections of up to four ranks, of up to three chunks, some passed on as they arrive. Sends
    go ahead of receives, here and there, so that buffers are needed; some tables are stuck with any."""
    ranks = rng.randint(2, 4)
    lanes = [[] for _ in range(ranks)]
    for _ in range(rng.randint(2, 9)):
        a, b = rng.sample(range(ranks), 2)
        count = rng.choice([1, 1, 2, 3])
        lanes[a].append(("send", b, count))
        lanes[b].append(("recv", a, count))
    rows = []
    for r, lane in enumerate(lanes):
        for _ in range(rng.randint(0, 6)):
            for k in range(len(lane) - 1):
                if lane[k][0] != lane[k + 1][0] and rng.random() < (0.4 if lane[k][0] == "recv" else 0.05):
                    lane[k], lane[k + 1] = lane[k + 1], lane[k]
        step = -1
        for k, (op, peer, count) in enumerate(lane):
            before = lane[k - 1] if k else None
            fused = before is not None and (before[0], op, before[2]) == ("recv", "send", count) and rng.random() < 0.7
            step += not fused
            row = {"op": op, "rank": r, "peer": peer, "count": count, "step": step, "chunk": 0,
                   "buffer": "data" if op == "send" else "other"}
            rows.append({**row, "buffer": "other", "of": len(rows) - 1} if fused else row)
    return replace(allreduce(rows, ranks, chunks=3, scratch=[("other", 3)]), transport=Transport("wire", 1))


def random_tables():
    rng = random.Random(11)
    for k in range(300):
        table = messages(rng) if k % 3 else replace(working_table(rng), transport=Transport("wire", 1))
        matched = match(table)
        found = slots(table, matched)
        assert (found is None) == (int(table.count[table.op <= Op.REDUCE_RECV].max(initial=0)) < 2)
        if found is not None and not matched.diagnostics:
            yield table, matched, found


def test_pieces_are_those_of_the_plain_way():
    """Where each connection has a fused end; others keep their messages whole (tests/unit/test_flow.py)."""
    seen = Counter()
    for table, matched, found in random_tables():
        plain = in_pieces(table)
        again = match(plain)
        assert not again.diagnostics
        assert np.array_equal(found.table.rank, table.rank[found.row])
        assert deadlock.least_depth(table, matched, None, found) == deadlock.least_depth(plain, again)
        seen[len(found.table) == len(plain)] += 1
        if len(found.table) < len(plain):
            continue
        for column in COLUMNS:
            ours, theirs = getattr(found.table, column), getattr(plain, column)
            assert (ours is None and theirs is None) or (np.array_equal(ours, theirs) and ours.dtype == theirs.dtype)
        assert np.array_equal(found.matching.partner, again.partner)
        assert np.array_equal(found.matching.message, again.message)
    assert min(seen[True], seen[False]) > 5, seen


def test_pieces_of_operands_and_of_what_is_not_stored():
    """Of what is passed on as it arrives: added to a place, stored there or not."""
    rows = [{"op": "send", "rank": 0, "step": 0, "peer": 1, "buffer": "data", "chunk": 1, "count": 3},
            {"op": "reduce_recv", "rank": 1, "step": 0, "peer": 0, "buffer": "other", "chunk": 2, "count": 3,
             "from_buffer": "data", "from_chunk": 1},
            {"op": "send", "rank": 1, "step": 0, "peer": 2, "of": 1, "count": 3},
            {"op": "reduce_recv", "rank": 2, "step": 0, "peer": 1, "buffer": None, "count": 3, "from_buffer": "data",
             "from_chunk": 2},
            {"op": "send", "rank": 2, "step": 0, "peer": 3, "of": 3, "count": 3},
            {"op": "recv", "rank": 3, "step": 0, "peer": 2, "buffer": "data", "chunk": 2, "count": 3},
            {"op": "copy", "rank": 3, "step": 1, "buffer": "other", "chunk": 1, "from_buffer": "data", "from_chunk": 1,
             "count": 3}]
    table = replace(allreduce(rows, 4, chunks=5, scratch=[("other", 5)]), transport=Transport("wire", 1))
    found, plain = slots(table, match(table)), in_pieces(table)
    for column in COLUMNS:
        ours, theirs = getattr(found.table, column), getattr(plain, column)
        assert (ours is None and theirs is None) or (np.array_equal(ours, theirs) and ours.dtype == theirs.dtype)
    assert found.row.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6] and found.longest == 3


def test_single_chunks_ask_for_most():
    """docs/decisions/0008: what comes to its end cut into single chunks does so whole, and the interpreter says the
    same of what does not."""
    seen = Counter()
    for table, matched, found in random_tables():
        whole, cut = deadlock.least_depth(table, matched), deadlock.least_depth(table, matched, None, found)
        assert (whole is None) == (cut is None) and (whole == 0) == (cut == 0)
        assert whole is None or whole <= cut
        seen["never" if whole is None else "none" if whole == 0 else "deeper" if whole < cut else "equal"] += 1
        for depth in range(1, 5):
            for form, least in ((table, whole), (in_pieces(table), cut)):
                run = interpret(form, "contributions", sends=f"buffered={depth}", clocks=False)
                assert run.finished == (least is not None and least <= depth)
    assert min(seen[k] for k in ("never", "deeper", "equal", "none")) > 5, seen


def test_what_can_go_is_tried_on_the_transport():
    wire = Transport("wire", 2)
    assert not settled(crossed(3), Sends.on(wire)) and settled(crossed(3), Sends(2, 2))
    assert settled(crossed(2), Sends.on(wire))


# The form


def test_a_transport_holds_a_message():
    (found,) = legal.check(crossed(1, depth=0))
    assert found.code == "SL107" and "holds 0 messages" in found.message


def test_the_json_form_says_the_transport():
    table = crossed(2)
    text = json.dumps(table)
    assert '"transport": {"name": "wire", "depth": 2}' in text
    assert json.loads(text, "x.json").transport == table.transport
    assert "transport" not in json.dumps(replace(table, transport=None))
    assert json.loads(json.dumps(replace(table, transport=None)), "x.json").transport is None


@pytest.mark.parametrize("form, says", [
    ("7", "transport"), ('{"name": "LL"}', "depth"), ('{"name": "LL", "depth": 0}', "depth"),
    ('{"name": 3, "depth": 1}', "name of the transport"), ('{"name": "LL", "depth": 8.5}', "depth")])
def test_a_transport_that_is_none_is_refused(form, says):
    text = json.dumps(crossed(2)).replace('{"name": "wire", "depth": 2}', form)
    with pytest.raises(SchedError) as caught:
        json.loads(text, "x.json")
    (found,) = caught.value.diagnostics
    assert found.code == "SL107" and says in found.message


# Races


def answered(op, *, before="data", operand=None, extra=(), transport=True):
    """Rank 0 sends ``data[0]`` (or passes a message on, ``op`` added to it), and rank 1 answers to another lane of
    rank 0, which then writes ``data[0]``."""
    rows = []
    if op == "send":
        rows.append({"op": "send", "rank": 0, "stream": "a", "peer": 1, "buffer": before, "chunk": 0})
    else:
        rows += [{"op": "send", "rank": 2, "stream": "a", "peer": 0, "buffer": "data", "chunk": 0},
                 {"op": "reduce_recv", "rank": 0, "stream": "a", "peer": 2, "buffer": operand, "chunk": 0,
                  "from_buffer": "data", "from_chunk": 0},
                 {"op": "send", "rank": 0, "stream": "a", "peer": 1, "of": 1}]
    rows += [*extra, {"op": "recv", "rank": 1, "stream": "a", "peer": 0, "buffer": "other", "chunk": 0},
             {"op": "send", "rank": 1, "stream": "a", "step": 1, "peer": 0, "chan": "b", "buffer": "other", "chunk": 0},
             {"op": "recv", "rank": 0, "stream": "b", "peer": 1, "buffer": "other", "chunk": 0},
             {"op": "copy", "rank": 0, "stream": "b", "step": 1, "buffer": "data", "chunk": 0, "from_buffer": "other",
              "from_chunk": 0}]
    table = allreduce(rows, 3, scratch=[("other", 1), ("more", 1)])
    return replace(table, transport=Transport("wire", 1) if transport else None)


WRITE_OTHER = {"op": "copy", "rank": 0, "stream": "a", "buffer": "more", "chunk": 0, "from_buffer": "data",
               "from_chunk": 0}


@pytest.mark.parametrize("table, races", [
    (answered("send"), False), (answered("send", transport=False), True),
    (answered("pass", operand=None), False), (answered("pass", operand=None, transport=False), True),
    (answered("pass", operand="more"), False),
    (answered("pass", operand="data"), True),                   # it stores there, and that may come later
    (answered("send", extra=[WRITE_OTHER]), True),              # of another operation of the step nothing is known
], ids=["sent", "sent anyhow", "passed on", "passed on anyhow", "stored elsewhere", "stored", "read twice"])
def test_what_has_arrived_has_been_read(table, races):
    verdict = verify(table)
    assert [d.code for d in verdict.diagnostics if d.code == "SL401"] == ["SL401"] * races
    assert compare(table).disagreement is None
    if races and table.transport is None and table.of.max() == -1:
        assert any("only the stream of the send knows" in n.message for n in the(verdict, "SL401").notes)
    elif races:
        assert not any("only the stream" in n.message for n in the(verdict, "SL401").notes)


def test_an_answer_to_something_else_shows_nothing():
    """Rank 1 sends before it has received."""
    table = answered("send")
    step = table.step.copy()
    step[1], step[2] = 1, 0
    assert the(verify(table.with_columns(step=step)), "SL401")
    assert compare(table.with_columns(step=step)).disagreement is None


def exchanges(rng):
    """Transfers between lanes of two ranks, one after another, over few places; some are passed on or summed up."""
    ranks, step, rows = 2, Counter(), []

    def add(rank, stream, **row):
        rows.append({"rank": rank, "stream": stream, "step": step[rank, stream], "chunk": 0, **row})
        step[rank, stream] += 1

    for _ in range(rng.randint(3, 8)):
        a, (s, t) = rng.randrange(ranks), rng.choices("xy", k=2)
        chan = {"chan": f"{s}{t}", "peer": 1 - a}
        add(a, s, op="send", buffer=rng.choice(["data", "other"]), **chan)
        source, target = rng.choice(["data", "other"]), rng.choice(["data", "other"])
        kind = rng.choice(["recv", "reduce_recv", "pass"])
        row = {"op": "recv" if kind == "recv" else "reduce_recv", "buffer": target if kind != "pass" else None,
               "chan": chan["chan"], "peer": a}
        if kind != "recv":
            row |= {"from_buffer": source, "from_chunk": 0}
        add(1 - a, t, **row)
        if (kind != "recv" and rng.random() < 0.7) or kind == "pass":
            back = rng.choice("xy")
            rows.append({"op": "send", "rank": 1 - a, "stream": t, "step": step[1 - a, t] - 1, "peer": a,
                         "chan": f"{t}{back}", "of": len(rows) - 1})
            add(a, back, op="recv", buffer=rng.choice(["data", "other"]), chan=f"{t}{back}", peer=1 - a)
    return replace(allreduce(rows, ranks, scratch=[("other", 1)]), transport=Transport("wire", 1))


def test_answers_order_reads_as_the_interpreter_says():
    rng, fewer = random.Random(3), 0
    for k in range(250):
        table = exchanges(rng)
        verdict, plain = (verify(t, sends=Sends(None, None)) for t in (table, replace(table, transport=None)))
        fewer += sum(d.count for d in verdict.diagnostics if d.code == "SL401") < sum(
            d.count for d in plain.diagnostics if d.code == "SL401")
        assert compare(table, "unlimited", k).disagreement is None
        assert compare(table, "default", k).disagreement is None
    assert fewer > 20, fewer
