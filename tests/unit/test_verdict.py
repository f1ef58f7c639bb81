"""What a verdict says of its proofs where they are not judged, or judged otherwise, and which facts it has."""

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

from schedlang.diagnostics import Severity
from schedlang.ir.build import table_from_rows
from schedlang.ir.table import Buffer, Collective, Transport
from schedlang.ops import Op
from schedlang.source import Place
from schedlang.verify import deadlock, room, verify
from schedlang.verify.sends import Sends
from tests.tables import allreduce, ring
from tests.unit.test_steps import stating
from tests.unit.test_values import build, direct, the

NAMES = ("form", "steps", "matching", "deadlock", "races", "initialisation", "postcondition", "agreement")


def proofs(verdict):
    """Of each property the state and the detail."""
    rest = ("barrier",) if verdict.table.collective.name == "barrier" else NAMES[5:]
    assert tuple(p.name for p in verdict.proofs) == (*NAMES[:5], *rest)
    return {p.name: (p.state, p.detail) for p in verdict.proofs}


def left_open(why, *names):
    return {name: ("not judged", why) for name in names}


def test_without_memory_enough_nothing_is_judged(monkeypatch):
    monkeypatch.setattr(room, "MANY_ROWS", 1)
    monkeypatch.setattr(room, "available", lambda: 1)
    assert proofs(verify(ring(2))) == {"form": ("failed", ""), **left_open("there is not memory enough", *NAMES[1:])}


@pytest.mark.parametrize("count", [1, 3])
def test_how_much_memory_is_asked_for(count, monkeypatch):
    """For 24 rows and 9 places, and for what 12 of the rows bring besides their first chunk."""
    table = ring(3).with_columns(count=np.full(24, count, np.int32), location=Place("x.sched", 7))
    needed, most = 24 * room.ROW + 9 * room.LOCATION + 12 * (count - 1) * room.PIECE, 24
    for least, there, enough in ((most, needed, True), (most + 1, needed - 1, True), (most, None, True),
                                 (most, needed - 1, False)):
        monkeypatch.setattr(room, "MANY_ROWS", least)
        monkeypatch.setattr(room, "available", lambda there=there: there)
        monkeypatch.setattr(room, "gigabytes", "{:,} bytes".format)
        assert (room.check(table) == []) is enough
    (found,) = room.check(table)
    assert (found.code, found.location) == ("SL208", Place("x.sched", 7))
    assert found.message == (f"to verify 24 operations on 9 chunks takes more than {needed:,} bytes of memory; "
                             f"{needed - 1:,} bytes are available")
    assert found.help == "verify a smaller world, take fewer chunks, or a machine with more memory"


@pytest.mark.parametrize("rows", [1, 7])
def test_memory_is_asked_for_what_each_operation_but_sends_brings(rows, monkeypatch):
    """However many are counted at a time; the first row is a receive here."""
    counts = [2, 1, 3, 5] * 6
    table = ring(3)
    table = table.with_columns(count=np.array(counts, np.int32), op=table.op[::-1].copy())
    needed = 24 * room.ROW + 9 * room.LOCATION + sum(
        counts[row] - 1 for row in range(24) if table.op[row] != Op.SEND) * room.PIECE
    monkeypatch.setattr(room, "MANY_ROWS", rows)
    for there in (needed - 1, needed):
        monkeypatch.setattr(room, "available", lambda there=there: there)
        assert (room.check(table) == []) == (there == needed)


@pytest.mark.parametrize(("places", "count"), [(30, 1), (9, 4)])
def test_memory_is_asked_for_places_and_chunks_too(places, count, monkeypatch):
    """What there are most of decides whether it is asked for at all."""
    table = ring(3).with_columns(count=np.full(24, count, np.int32),
                                 buffers=(Buffer("data", places // 3, role="data"),))
    monkeypatch.setattr(room, "available", lambda: 1)
    most = max(places, 12 * (count - 1))
    for least, asked in ((most, True), (most + 1, False)):
        monkeypatch.setattr(room, "MANY_ROWS", least)
        assert bool(room.check(table)) is asked


def circle(*, alone):
    """Two ranks that send and then receive; with ``alone`` rank 0 sends once more, and nobody receives it."""
    rows = [dict(op=op, rank=r, peer=1 - r, buffer=buffer, chunk=0, step=step)
            for r in range(2) for step, (op, buffer) in enumerate([("send", "data"), ("recv", "tmp")])]
    more = [dict(op="send", rank=0, peer=1, chan="other", buffer="data", chunk=0, step=2)] if alone else []
    return allreduce([*rows, *more], 2, scratch=[("tmp", 1)])


@pytest.mark.parametrize(("sends", "judged"), [
    (Sends(), ("failed", "")), (Sends(0, 0), ("failed", "")), (Sends(1, 1), ("not judged", "transfers do not match"))])
def test_deadlock_is_looked_for_though_transfers_do_not_match(sends, judged):
    """What comes to its end but for the lack of a partner may still come to no end with one."""
    verdict = verify(circle(alone=True), sends=sends)
    assert proofs(verdict) == {
        "form": ("proved", ""), "steps": ("proved", ""), "matching": ("failed", ""), "deadlock": judged,
        **left_open("transfers do not match", *NAMES[4:])}
    assert [d.code for d in verdict.diagnostics] == ["SL301", *["SL305"] * (judged[0] == "failed")]


def test_a_deadlock_ends_the_proofs():
    assert proofs(verify(circle(alone=False), sends=Sends(0, 0))) == {
        "form": ("proved", ""), "steps": ("proved", ""), "matching": ("proved", ""),
        "deadlock": ("failed", "without buffering"),
        **left_open("the schedule does not come to its end", *NAMES[4:])}


@pytest.mark.parametrize(("sends", "deadlock", "rest"), [
    (Sends(), "without buffering", "with unlimited buffering"), (Sends(0, 0), "without buffering", "without buffering"),
    (Sends(3, 3), *["with 3 messages in flight per connection"] * 2),
    (Sends(2, 1), "with 2 messages in flight per connection", "with 1 message in flight per connection")])
def test_models_are_told_of_the_proofs_that_depend_on_them(sends, deadlock, rest):
    said = proofs(verify(ring(2), sends=sends))
    assert (said["deadlock"], said["races"]) == (("proved", deadlock), ("proved", rest))
    everyone = [[("send", "data", 0, r, 1 - r, "data", 0) for r in range(2)]]
    said = proofs(verify(build("barrier", 2, everyone), sends=sends))
    assert (said["deadlock"], said["races"], said["barrier"]) == (
        ("proved", deadlock), ("proved", rest), ("proved", rest))


def test_models_of_two_depths_in_words():
    assert str(Sends(2, 1)) == "buffered=2 for deadlock, buffered=1 for all else"
    assert str(Sends(0, 3)) == "rendezvous for deadlock, buffered=3 for all else"
    assert str(Sends(None, 0)) == "unlimited for deadlock, rendezvous for all else"


def test_ensures_that_cannot_be_meant_are_a_failed_postcondition():
    verdict = verify(stating([(1, 0, 0)], [[(0, 0, 0), (0, 0, 0)]]))
    assert [d.code for d in verdict.diagnostics] == ["SL205"]
    said = proofs(verdict)
    assert said["postcondition"] == ("failed", "") and said["initialisation"] == said["agreement"] == ("not judged", "")


def apart(more=()):
    """Each of three ranks adds up the others' values in an order of its own, through a place beside; nothing is added
    to what it is stored over."""
    rows = []
    for r in range(3):
        for k, (buffer, operand) in enumerate([("tmp", "data"), ("data", "tmp")]):
            rows += [dict(op="send", rank=r, peer=(r - 1 - k) % 3, step=0, buffer="data", chunk=0),
                     dict(op="reduce_recv", rank=r, peer=(r + 1 + k) % 3, step=1 + k, buffer=buffer, chunk=0,
                          from_buffer=operand, from_chunk=0)]
    return allreduce([*rows, *more], 3, scratch=[("tmp", 1)])


USELESS = dict(op="copy", rank=0, step=3, buffer="tmp", chunk=0, from_buffer="data", from_chunk=0)


def test_ranks_that_disagree_where_nothing_is_added_in_place():
    verdict = verify(apart(), sends=Sends(1, 1))
    assert verdict.facts["agreement"] is False and proofs(verdict)["agreement"] == ("failed", "")
    assert the(verdict, "SL505").severity == Severity.NOTE and verdict.ok


def test_of_a_table_with_an_error_no_more_is_told():
    """Where agreement is asked for, not what is useless, nor what a dtype does."""
    known = verify(apart([USELESS]), sends=Sends(1, 1), dtype="int8")
    assert [d.code for d in known.diagnostics] == ["SL505", "SL607", "SL613"]
    assert known.facts["dtype"] == "int8" and known.facts["rounds"] == 3 and known.facts["agreement"] is False
    asked = verify(apart([USELESS]), sends=Sends(1, 1), dtype="int8", require_agreement=True)
    assert [(d.code, d.severity) for d in asked.diagnostics] == [("SL505", Severity.ERROR)]
    assert "dtype" not in asked.facts and not asked.ok


@pytest.mark.parametrize("stream", ["main", "more"])
def test_messages_make_no_order_where_every_rank_has_one_stream(stream, monkeypatch):
    """In large tables messages are taken to be needed for their order, but not there."""
    monkeypatch.setattr(import_module("schedlang.verify.useless"), "TRIED_ROWS", 0)     # not the function
    rows = []
    for r in range(2):
        both = dict(rank=r, peer=1 - r, chunk=0)
        rows += [dict(op="send", buffer="input", **both),
                 dict(op="reduce_recv", buffer="output", from_buffer="input", from_chunk=0, **both)]
    rows += [dict(op=op, rank=r, peer=1 - r, buffer=buffer, chunk=0, stream=stream, step=1 if stream == "main" else 0)
             for r, (op, buffer) in enumerate([("send", "input"), ("recv", "tmp")])]
    table = table_from_rows(rows, ranks=2, collective=Collective("allreduce", "sum", inplace=False), buffers=[
        Buffer("input", 1, role="input"), Buffer("output", 1, role="output"), Buffer("tmp", 1)])
    verdict = verify(table)
    assert verdict.ok and ("SL607" in [d.code for d in verdict.diagnostics]) == (stream == "main")


def test_a_transport_is_told_beside_all_other_costs():
    table = direct("allreduce", 2, inplace=True)
    alone, verdict = verify(table).facts, verify(replace(table, transport=Transport("wire", 2))).facts
    assert verdict == {**alone, "transport": "wire", "transport_depth": 2} and alone["rounds"] == 1


def test_a_table_may_tell_findings_in_its_own_words():
    table = circle(alone=True)
    own = verify(replace(table, told=lambda found: [replace(d, message=f"own: {d.code}") for d in found]))
    assert [d.message for d in own.diagnostics] == ["own: SL301", "own: SL305"]


# Agreement


def test_the_first_chunk_of_several_that_ranks_add_up_differently():
    """Chunk 0 is added up by one rank, chunks 1 and 2 by each for itself."""
    own = [("reduce", "data", c, r, p, "data", c) for c in (1, 2) for r in range(3) for p in range(3) if r != p]
    one = [("reduce", "data", 0, r, 0, "data", 0) for r in (1, 2)]
    table = build("allreduce", 3, [[*own, *one], [("send", "data", 0, 0, r, "data", 0) for r in (1, 2)]], chunks=3,
                  op="sum")
    found = the(verify(table), "SL505")
    assert found.message == ("the ranks add up 2 chunks in different orders, so their bits may differ (first in chunk "
                             "1: rank 0 against rank 2)")
    assert found.count == 2 and found.witness == {"chunks": [1, 2], "ranks": [2]}
    assert [n.message for n in found.notes] == [
        "data[1] on rank 0 is the ranks' (0 + 1) + 2; written last by rank 0, step 0: reduce "
        "data[1] from rank 2 (line 1)",
        "data[1] on rank 2 is the ranks' (0 + 2) + 1; written last by rank 2, step 0: reduce "
        "data[1] from rank 1 (line 1)"]


@pytest.mark.parametrize(("ranks", "chunks"), [(3, 66), (67, 1)])
def test_a_witness_of_disagreement_lists_some(ranks, chunks):
    found = the(verify(direct("allreduce", ranks, chunks, inplace=True)), "SL505")
    assert found.witness == {"chunks": [*range(min(chunks, 64))], "ranks": [*range(2, ranks)][:64]}
    assert found.count == chunks


def test_whether_a_transport_offers_enough():
    table = ring(2).with_columns(transport=Transport("wire", 2))
    assert [deadlock._offered(table, least) for least in (1, 2, 3)] == [
        "and wire offers 2", "and wire offers 2", "but wire offers no more than 2"]


# Initialisation and lengths


def test_statements_that_read_too_early_are_told_up_to_a_limit():
    """Each reads two chunks that nothing writes, in a step of its own; the last that is told counts the rest."""
    lines = [[("copy", "tmp", 0, 0, "data", 0, 2)] for _ in range(20)]
    found = [d for d in verify(build("custom", 1, lines, scratch=[("tmp", 2), ("data", 2)])).diagnostics
             if d.code == "SL403"]
    assert [d.count for d in found] == [1] * 15 + [5] and [d.location.line for d in found] == [*range(1, 17)]
    assert found[0].witness == {"rows": [0], "place": [0, 0, 0]}
    assert (found[0].message, found[0].help) == (
        "tmp[0] on rank 0 is read before anything has written it: copy tmp[0:2] into data[0:2] (line 1)",
        "write it in an earlier step, or read another place")


def test_a_sum_into_what_is_written_only_later():
    """By the nearer of two; its own row, and a later one, are not told."""
    lines = [[("reduce here", "data", 0, 0, "tmp", 0)], [("copy", "data", 0, 0, "tmp", 0)],
             [("copy", "data", 0, 0, "tmp", 0)]]
    found = the(verify(build("custom", 1, lines, op="sum", scratch=[("tmp", 1), ("data", 1)])), "SL403")
    assert found.message == "tmp[0] on rank 0 has no value yet to add to: reduce data[0] into tmp[0] (line 1)"
    assert [n.message for n in found.notes] == [
        "it is written only later: rank 0, step 1: copy data[0] into tmp[0] (line 2)"]
    assert found.help == "let the first value come by `copy` or `send`, and reduce from the second on"
    assert found.witness == {"rows": [0], "place": [0, 0, 0]}


def test_of_the_later_writers_the_first_to_come_is_told():
    """Whichever stands first in the table, which has a receive with an operand: so values stand in its order."""
    rows = [dict(op="copy", rank=0, step=step, buffer="tmp", chunk=0, from_buffer="data", from_chunk=0)
            for step in (2, 1)]
    rows.append(dict(op="copy", rank=0, step=0, buffer="data", chunk=0, from_buffer="tmp", from_chunk=0))
    rows += [dict(op="send", rank=0, peer=1, step=3, buffer="data", chunk=0),
             dict(op="reduce_recv", rank=1, peer=0, buffer="tmp", chunk=0, from_buffer="data", from_chunk=0)]
    found = the(verify(allreduce(rows, 2, scratch=[("tmp", 1)])), "SL403")
    assert [n.message for n in found.notes] == ["it is written only later: rank 0, step 1: copy data[0] into tmp[0]"]


@pytest.mark.parametrize(("steps", "message", "count"), [
    # Of 3 n + 1 elements chunk 0 has one more.
    ([[("send", "data", 0, 0, r, "data", 1) for r in (1, 2)]], "data[1] on rank 1 is, for some sizes, shorter than the "
     "value that comes there: recv data[1] from rank 0 (line 1)", 2),
    ([[("copy", "data", 0, 0, "tmp", 0)], [("send", "tmp", 0, 0, 1, "data", 2)]], "data[2] on rank 1 is, for some "
     "sizes, shorter than the value that comes there: recv data[2] from rank 0 (line 2)", 1),
])
def test_moves_into_shorter_parts(steps, message, count):
    """What is moved on is right in the end: the last statement brings all that each rank must hold."""
    rest = [[("send", "data", c, 0, r, "data", c) for c in range(3) for r in (1, 2)]]
    found = the(verify(build("broadcast", 3, [*steps, *rest], chunks=3, root=0, scratch=[("tmp", 1)])), "SL602")
    assert (found.message, found.count, found.severity) == (message, count, Severity.WARNING)
    assert found.help == ("this is right only for sizes that make the parts equal; move values between places of one "
                          "chunk index, or through scratch, which holds the longest part")


@pytest.mark.parametrize(("source", "target"), [(1, 0), (0, 0), (2, 1)])
def test_moves_into_longer_parts_are_right(source, target):
    rest = [[("send", "data", c, 0, 1, "data", c) for c in range(3)]]
    table = build("broadcast", 2, [[("send", "data", source, 0, 1, "data", target)], *rest], chunks=3, root=0)
    assert not [d for d in verify(table).diagnostics if d.code == "SL602"]
