"""Matching, deadlock, races and barriers on tables written by hand: what is found, and whether the message says it."""

import itertools
from random import Random

import numpy as np
import pytest

from schedlang.diagnostics import SchedError
from schedlang.ir.build import table_from_rows
from schedlang.ir.table import NONE, Buffer, Collective, Site
from schedlang.ops import Op
from schedlang.source import Place
from schedlang.verify import barrier, deadlock, races
from schedlang.verify.matching import match
from schedlang.verify.timing import rounds, why
from schedlang.verify.timing.connections import connections
from schedlang.verify.timing.lanes import Lanes
from schedlang.verify.timing.order import DEFAULT, Sends, order
from tests.tables import allreduce, ring


class Lane:
    """Rows of one lane, step by step, each on a line of its own of a file that does not exist."""

    lines = 0

    def __init__(self, rank, stream="main", **common):
        self.rank, self.stream, self.common, self.rows, self.step = rank, stream, common, [], -1

    def __call__(self, op, *, together=False, **row):
        self.step += not together
        Lane.lines += 1
        if op in ("send", "recv", "reduce_recv", "copy", "reduce"):
            row = {"buffer": "data", "chunk": 0, **row}
        self.rows.append({"op": op, "rank": self.rank, "stream": self.stream, "step": self.step, **self.common, **row,
                          "location": Place("hand.sched", Lane.lines)})
        return self


def table(ranks, *lanes, chunks=4, **kw):
    return allreduce([row for lane in lanes for row in lane.rows], ranks, chunks, **kw)


def everything(t, sends=DEFAULT):
    found = match(t, sends)
    done = order(t, found, sends)
    return [*found.diagnostics, *deadlock.check(t, found, done), *races.check(t, done)]


def only(t, sends=DEFAULT):
    findings = everything(t, sends)
    assert len(findings) == 1, findings
    return findings[0]


# Matching


def test_ring_is_proven_by_its_numbers():
    t = ring(5, channels=2)
    found = match(t)
    assert found.numbered and not found.diagnostics
    assert (found.partner == np.arange(len(t)) ^ 1).all()
    bare = match(t.with_columns(number=None))
    assert not bare.numbered and (bare.partner == found.partner).all() and (bare.message == found.message).all()
    assert everything(t) == []


def test_no_rows_at_all():
    t = table(1)
    found = match(t)
    done = order(t, found)
    assert everything(t) == [] and done.complete and done.levels == 0 and rounds.critical_path(t, found, done) == 0
    assert deadlock.least_depth(t, found) == 0


def test_neighbours_between_local_rows_pair_and_compare_sizes():
    t = table(2, Lane(0)("send", peer=1, count=2)("copy", chunk=3, from_buffer="data", from_chunk=0),
              Lane(1)("recv", peer=0, count=2))
    by = [0, 2, 1]
    t = t.with_columns(number=np.array([0, 0, 1], np.int32), **{c: v[by] for c, v in t.take(np.arange(3)).items()} )
    assert match(t).numbered and match(t).partner.tolist() == [1, 0, NONE] and not match(t).diagnostics
    assert [d.code for d in match(t.with_columns(count=np.array([2, 1, 1], np.int32))).diagnostics] == ["SL303"]


def test_unmatched_send():
    a = Lane(0)("send", peer=1)("send", peer=1, chunk=2)
    t = table(2, a, Lane(1)("recv", peer=0))
    found = match(t).diagnostics
    assert [d.code for d in found] == ["SL301"]
    assert "send data[2] to rank 1" in found[0].message
    assert "sends 2 messages to rank 1, which receives 1" in found[0].message
    assert found[0].location.line == a.rows[1]["location"].line
    assert match(t).partner.tolist() == [2, NONE, 0]


def test_unmatched_receive():
    t = table(2, Lane(0)("send", peer=1), Lane(1)("recv", peer=0)("reduce_recv", peer=0, chunk=3))
    (finding,) = match(t).diagnostics
    assert finding.code == "SL302" and "reduce data[3] from rank 0" in finding.message


def test_other_stream_is_named():
    t = table(2, Lane(0, "wire")("send", peer=1), Lane(1, "lan")("recv", peer=0))
    sent, received = match(t).diagnostics
    assert (sent.code, received.code) == ("SL301", "SL302")
    assert "the send is on stream wire, the receive on stream lan" in sent.help and "chan" in sent.help
    assert "the receive is on stream lan, the send on stream wire" in received.help
    assert "to rank 1 on stream wire, which receives 0" in sent.message


def test_a_chan_is_called_so():
    sent, received = match(table(2, Lane(0)("send", peer=1, chan="4"), Lane(1)("recv", peer=0))).diagnostics
    assert "to rank 1 on chan 4, which receives 0" in sent.message
    assert sent.notes[0].message.startswith("without partner, too, on stream main: ")
    assert "the receive is on stream main, the send on chan 4" in received.help


def test_of_a_connection_that_is_missed_one_finding_says_how_often():
    a = Lane(0)("send", peer=1, chan="4")("send", peer=1, chan="4")("send", peer=2)("send", peer=1, chan="4")
    sent, other, received = match(table(3, a, Lane(1)("recv", peer=0)("recv", peer=0)("recv", peer=0))).diagnostics
    assert [(d.code, d.count) for d in (sent, other, received)] == [("SL301", 3), ("SL301", 1), ("SL302", 3)]
    assert "rank 0 sends 3 messages to rank 1 on chan 4, which receives 0" in sent.message


@pytest.mark.parametrize("chan, received, told", [("p", 2, True), ("q", 2, False), ("p", 1, False)])
def test_a_deadlock_beside_as_many_messages_on_another_chan(chan, received, told):
    a, b = Lane(0)("send", peer=1)("recv", peer=1), Lane(1)("send", peer=0)("recv", peer=0)
    sends, receives = Lane(0, "p"), Lane(1, "q")
    for _ in range(2):
        sends("send", peer=1, chan=chan)
    for _ in range(received):
        receives("recv", peer=0)
    found = [d for d in everything(table(2, a, b, sends, receives)) if d.code == "SL305"]
    help = ("first let the two ends meet: from rank 0 to rank 1 2 messages have no receive on chan p, and as many "
            "receives have no send on chan q")
    assert len(found) == 1 and (found[0].help == help) == told


def test_whichever_ends_of_a_deadlock_could_meet():
    """Two of four ranks stand in a circle, and any two have messages on a chan without receive, or without send."""
    random, told = Random(4), 0
    for _ in range(40):
        lanes = {(r, "main"): Lane(r)("send", peer=1 - r)("recv", peer=1 - r) for r in range(2)}
        alone = {}
        for a, b, chan in itertools.product(range(4), range(4), "pqr"):
            times = random.randint(1, 2) if a != b and random.random() < 0.5 else 0
            alone[a, b, chan] = times * random.choice([1, -1])      # as many sends, or receives
            for _ in range(times):
                op, rank, peer = ("send", a, b) if alone[a, b, chan] > 0 else (
                    random.choice(["recv", "reduce_recv"]), b, a)
                lanes.setdefault((rank, chan), Lane(rank, chan))(op, peer=peer)
        made = table(4, *lanes.values())
        first = None
        for a, b in ((0, 1), (1, 0)):
            for chan in made.streams:
                others = [c for c in made.streams if chan != "main" != c and alone[a, b, c] == -alone[a, b, chan]]
                if first is None and others and alone[a, b, chan] > 0:
                    first = a, b, alone[a, b, chan], chan, others[-1]
        found = [d for d in everything(made) if d.code == "SL305"]
        expected = None
        if first is not None:
            a, b, times, chan, other = first
            what = "1 message has" if times == 1 else f"{times} messages have"
            expected = (f"first let the two ends meet: from rank {a} to rank {b} {what} no receive on chan {chan}, and "
                        f"as many receives have no send on chan {other}")
        assert len(found) == 1 and (expected == found[0].help if expected else "meet" not in found[0].help)
        told += first is not None
    assert 5 < told < 35


@pytest.mark.parametrize(("receiver", "source", "sends", "receives"), [
    (2, 0, "this send is to rank 1, and it is rank 2 that receives from rank 0",
     "this receive is rank 2's, and rank 0 sends to rank 1"),
    (1, 2, "this send is rank 0's, and rank 1 receives from rank 2",
     "this receive is from rank 2, and it is rank 0 that sends to rank 1"),
])
def test_wrong_peer_is_named(receiver, source, sends, receives):
    t = table(3, Lane(0)("send", peer=1), Lane(receiver)("recv", peer=source))
    sent, received = match(t).diagnostics
    for finding, says in ((sent, sends), (received, receives)):
        assert finding.help == f"where the two belong together, let both name the same two ranks: {says}"
        assert finding.notes[0].message.startswith("without partner, too: rank ")


@pytest.mark.parametrize(("sent", "taken", "words"), [(2, 1, "1 too many"), (1, 3, "2 too few")])
def test_sizes(sent, taken, words):
    t = table(2, Lane(0)("send", peer=1, count=sent), Lane(1)("recv", peer=0, count=taken))
    finding = only(t)
    assert finding.code == "SL303" and words in finding.message
    assert f"rank 0 sends {sent} chunk" in finding.message and f"rank 1 receives {taken}" in finding.message
    assert finding.witness == {"send": 0, "receive": 1, "sent": sent, "received": taken}


def test_crossed_receives_are_named():
    """Previous and next are one rank when there are two: the receives of a step pair in the order in which they
    stand."""
    t = table(2, Lane(0)("send", peer=1, count=1)("send", peer=1, count=2, together=True),
              Lane(1)("recv", peer=0, chunk=0, count=2)("recv", peer=0, chunk=2, count=1, together=True))
    found = match(t).diagnostics
    assert [d.code for d in found] == ["SL303", "SL303"]
    assert any("probably meant for rank 1, step 0: recv data[2] from rank 0" in n.message for n in found[0].notes)


def test_many_findings_end_in_a_count():
    lane = Lane(0)
    for peer in range(1, 41):
        lane("send", peer=peer)
    found = match(table(41, lane)).diagnostics
    assert len(found) == 16 and sum(d.count for d in found) == 40


def from_one_statement(t, *kinds):
    """The table as if all its rows of a kind came from one statement."""
    lines = tuple(Site(Place("x.sched", k + 1)) for k in range(len(kinds)))
    site = np.array([kinds.index(Op(int(op)).name.lower()) for op in t.op], np.int32)
    return t.with_columns(sites=lines, site=site, turn=np.zeros(len(t), np.int32))


def test_equal_findings_of_a_statement_are_one_with_a_count():
    """One line forgotten in a loop over 8 ranks; and its receives that take too much."""
    sends = [Lane(r)("send", peer=(r + 1) % 8) for r in range(8)]
    finding = only(from_one_statement(table(8, *sends), "send"))
    assert (finding.code, finding.count, finding.location.line) == ("SL301", 8, 1)
    assert "this send of rank 0, step 0" in finding.message
    receives = [Lane(r)("recv", peer=(r - 1) % 8, count=2) for r in range(8)]
    assert [(d.code, d.count) for d in everything(from_one_statement(table(8, *receives), "recv"))] == [("SL302", 8)]
    both = [lane("recv", peer=(r - 1) % 8, count=2, together=True) for r, lane in enumerate(sends)]
    found = everything(from_one_statement(table(8, *both), "send", "recv"))
    assert [(d.code, d.count) for d in found] == [("SL303", 8)]


def test_json_row_order_does_not_matter_across_steps():
    a, b = Lane(0)("send", peer=1)("send", peer=1, chunk=1), Lane(1)("recv", peer=0)("recv", peer=0, chunk=1)
    found = match(allreduce([*a.rows[::-1], *b.rows], 2, 4))
    assert found.partner.tolist() == [3, 2, 1, 0] and found.message.tolist() == [1, 0, 0, 1]


# Connections that streams share


def shared(*events):
    """Streams a and b of rank 0 both send to rank 1 on one connection."""
    a, b = Lane(0, "a", chan="wire")("send", peer=1), Lane(0, "b", chan="wire")
    if events:
        a, b = a("record", event="sent"), b("wait", event="sent")
    b("send", peer=1, chunk=1)
    return table(2, a, b, Lane(1, "a", chan="wire")("recv", peer=0)("recv", peer=0, chunk=1))


def test_shared_connections_of_one_statement_are_one_finding():
    lanes = []
    for r in range(4):
        for stream in "ab":
            lanes.append(Lane(r, stream, chan="wire")("send", peer=(r + 1) % 4)("recv", peer=(r - 1) % 4))
    found = match(from_one_statement(table(4, *lanes), "send", "recv")).diagnostics
    assert [(d.code, d.message.split()[0], d.count) for d in found] == [("SL304", "sends", 4), ("SL304", "receives", 4)]


def test_shared_connection():
    (finding,) = match(shared()).diagnostics
    assert finding.code == "SL304" and "streams a and b" in finding.message and "`chan`" in finding.help
    assert [n.message.split(":")[0] for n in finding.notes] == ["rank 0, stream a, step 0", "rank 0, stream b, step 0"]
    assert match(shared(True)).diagnostics == ()


@pytest.mark.parametrize("sending", [True, False])
def test_a_connection_is_shared_whichever_stream_comes_first_on_it(sending):
    """Stream a has a connection to itself, too, and comes second on the one that it shares."""
    here, there = ("send", "recv") if sending else ("recv", "send")
    own, b = Lane(0, "a")(here, peer=1, chan="a"), Lane(0, "b", chan="wire")(here, peer=1)
    a = Lane(0, "a", chan="wire")(here, peer=1)
    for row in a.rows:
        row["step"] = 1
    other = Lane(1, "a")(there, peer=0, chan="a")(there, peer=0, chan="wire")(there, peer=0, chan="wire")
    made = table(2, own, b, a, other)
    ends = connections(made, Lanes(made))
    assert Lanes(made).lane[ends.sends if sending else ends.receives].tolist()[::2] == [0, 0]
    (finding,) = match(made).diagnostics
    assert finding.code == "SL304" and "streams b and a" in finding.message


def test_shared_connection_whose_rows_stand_in_the_wrong_order():
    """The order of posts comes from events, whatever the order of rows says."""
    t = shared(True)
    by = np.array([2, 3, 0, 1, 4, 5])  # b's rows first
    t = t.with_columns(**{c: v[by] for c, v in t.take(np.arange(6)).items()})
    found = match(t)
    assert found.diagnostics == () and found.partner[2] == 4 and found.partner[1] == 5


def test_shared_connection_settled_through_another_rank():
    """Rank 1 answers the first message; only then does the other stream send."""
    t = table(2, Lane(0, "a", chan="wire")("send", peer=1),
              Lane(0, "b", chan="wire")("recv", peer=1, chunk=2, chan="back")("send", peer=1, chunk=1),
              Lane(1, "a", chan="wire")("recv", peer=0)("send", peer=0, chan="back")("recv", peer=0, chunk=1))
    assert match(t).diagnostics == ()
    assert match(t).message.tolist() == [0, 0, 1, 0, 0, 1]


# Deadlock


def exchange(n, together=False):
    lanes = [Lane(r)("send", peer=(r + 1) % n)("recv", peer=(r - 1) % n, chunk=1, together=together) for r in range(n)]
    return table(n, *lanes), lanes


def test_send_then_receive_on_every_rank():
    t, lanes = exchange(4)
    finding = only(t)
    assert finding.code == "SL305" and "4 operations wait for each other in a circle" in finding.message
    assert "without buffering" in finding.message and "ranks 0, 1, 2, 3" in finding.message
    assert finding.witness["length"] == 4 and finding.witness["least_depth"] == 1
    hops = [n for n in finding.notes if n.location]
    assert [n.location.line for n in hops] == [lane.rows[0]["location"].line for lane in lanes]
    assert hops[0].message.startswith("rank 0, step 0: send data[0] to rank 1 (line ")
    assert 'waits for "recv data[1] from rank 0" on rank 1, step 1, which comes after step 0' in hops[0].message
    assert "with 1 message in flight per connection" in finding.notes[-1].message
    assert "`step:`" in finding.help


def test_the_same_in_one_step_is_clean():
    assert everything(exchange(4, together=True)[0]) == []


def test_the_model_decides():
    t, _ = exchange(3)
    assert only(t, Sends.parse("rendezvous")).code == "SL305"
    assert everything(t, Sends.parse("buffered=1")) == everything(t, Sends.parse("unlimited")) == []


def test_receive_first_never_helps():
    t = table(2, *(Lane(r)("recv", peer=1 - r)("send", peer=1 - r) for r in range(2)))
    finding = only(t)
    assert finding.witness["least_depth"] is None
    assert any("no amount of buffering" in n.message for n in finding.notes)
    assert deadlock.least_depth(t, match(t)) is None


@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_least_depth(k):
    """k messages before the one that is received first."""
    a, b = Lane(0), Lane(1)
    for _ in range(k):
        a("send", peer=1)
    a("send", peer=1, chan="first")
    b("recv", peer=0, chan="first")
    for _ in range(k):
        b("recv", peer=0)
    t = table(2, a, b)
    assert deadlock.least_depth(t, match(t)) == k
    assert [d.code for d in everything(t, Sends(k, k))] == []
    if k > 1:
        assert only(t, Sends(k - 1, k - 1)).code == "SL305"


def test_a_wait_that_closes_a_circle():
    a = Lane(0, "a")("wait", event="x")("record", event="y")
    b = Lane(0, "b")("wait", event="y")("record", event="x")
    finding = only(table(1, a, b))
    assert finding.code == "SL305" and "2 operations" in finding.message and "on rank 0" in finding.message
    assert "stream a, step 0: wait x" in finding.notes[0].message and "record x" in finding.notes[0].message
    assert finding.help.startswith("record the event earlier")


def test_a_wait_for_its_own_record():
    finding = only(table(1, Lane(0)("wait", event="x")("record", event="x")))
    assert "an operation waits for itself" in finding.message


def test_only_the_circle_is_listed():
    """Ranks 2 and 3 are stuck behind ranks 0 and 1, and are not part of it."""
    lanes = [Lane(r)("send", peer=1 - r)("recv", peer=1 - r, chunk=1) for r in range(2)]
    lanes[0]("send", peer=2)
    t = table(4, *lanes, Lane(2)("recv", peer=0)("send", peer=3), Lane(3)("recv", peer=2))
    finding = only(t)
    assert {c["rank"] for c in finding.witness["circle"]} == {0, 1}
    assert finding.message.endswith("4 lanes (streams of a rank) never come to an end")


@pytest.mark.parametrize("behind", [70, 300, 1500])
def test_a_circle_that_many_are_stuck_behind_is_found(behind):
    """Of what is stuck, nearly all waits for the circle, in a chain, and is not on it."""
    middle = behind // 2
    lanes = [Lane(r) for r in range(behind)]
    for r in (middle, middle + 1):
        lanes[r]("send", peer=2 * middle + 1 - r)("recv", peer=2 * middle + 1 - r, chunk=1)
    for r, way in [*((r, 1) for r in range(middle + 1, behind - 1)), *((r, -1) for r in range(middle, 0, -1))]:
        lanes[r + way]("recv", peer=r)
        lanes[r]("send", peer=r + way)
    finding = only(table(behind, *lanes))
    assert finding.code == "SL305" and {c["rank"] for c in finding.witness["circle"]} == {middle, middle + 1}
    assert f"{behind} lanes" in finding.message


def test_shortest_circle():
    """A circle of three ranks and one of two: the one of two is shown."""
    lanes = [Lane(r)("send", peer=(r + 1) % 3)("recv", peer=(r - 1) % 3, chunk=1) for r in range(3)]
    pair = [Lane(3 + r)("send", peer=4 - r)("recv", peer=4 - r, chunk=1) for r in range(2)]
    assert only(table(5, *lanes, *pair)).witness["length"] == 2


def test_unmatched_is_not_deadlock():
    t = table(2, Lane(0)("recv", peer=1)("send", peer=1), Lane(1)("recv", peer=0, chunk=1))
    assert [d.code for d in everything(t)] == ["SL302"]
    t = table(4, Lane(0)("recv", peer=1), *(Lane(r)("send", peer=5 - r)("recv", peer=5 - r, chunk=1) for r in (2, 3)))
    assert [d.code for d in everything(t)] == ["SL302", "SL305"]


def fused_ring(n, first_sends):
    """Each rank passes on what it receives, round a ring; with ``first_sends`` rank 0 starts it with a send of its
    own."""
    lanes = [Lane(r)("recv", peer=(r - 1) % n, chunk=1)("send", peer=(r + 1) % n, chunk=1, together=True)
             for r in range(n)]
    if first_sends:
        lanes[0] = Lane(0)("send", peer=1)("recv", peer=n - 1, chunk=1, together=True)
    at = 0
    for lane in lanes:
        recv = at + [row["op"] for row in lane.rows].index("recv")
        if lane.rows[0]["op"] == "recv":
            lane.rows[1]["of"] = recv
        at += 2
    return table(n, *lanes)


def test_fused_chain_goes_through_at_once():
    t = fused_ring(5, True)
    assert everything(t) == []
    found = match(t)
    done = order(t, found)
    assert done.complete and rounds.critical_path(t, found, done) == 5
    ready = done.ready[[3, 5, 7, 9]].tolist()
    assert ready == sorted(set(ready)) and done.posted.max() == 0


def test_fused_circle_never_starts():
    finding = only(fused_ring(4, False))
    assert finding.code == "SL305" and finding.witness["least_depth"] is None
    assert "in two steps" in finding.help


# Races


def test_two_streams_on_one_scratch():
    a = Lane(0, "a")("copy", buffer="tmp", from_buffer="data", from_chunk=0)
    b = Lane(0, "b")("copy", buffer="data", chunk=1, from_buffer="tmp", from_chunk=0)
    finding = only(table(1, a, b, scratch=[("tmp", 1)]))
    assert finding.code == "SL401" and "tmp[0] on rank 0" in finding.message
    assert "on stream a" in finding.message and "writes it" in finding.message and "reads it" in finding.message
    assert 'record an event on stream a of rank 0 after "copy data[0] into tmp[0]"' in finding.help
    assert 'wait for it on stream b before "copy tmp[0] into data[1]"' in finding.help
    assert (finding.witness["buffer"], finding.witness["chunk"]) == ("tmp", 0)
    a("record", event="staged")
    b.rows, b.step = [], -1
    b("wait", event="staged")("copy", buffer="data", chunk=1, from_buffer="tmp", from_chunk=0)
    assert everything(table(1, a, b, scratch=[("tmp", 1)])) == []


def test_reads_do_not_race():
    t = table(2, *(Lane(0, s)("send", peer=1) for s in "ab"),
              *(Lane(1, s)("recv", peer=0, chunk=k) for k, s in enumerate("ab")))
    assert everything(t) == []


def test_overlap_by_one_chunk():
    a = Lane(0, "a")("copy", buffer="tmp", chunk=0, count=3, from_buffer="data", from_chunk=0)
    b = Lane(0, "b")("copy", buffer="tmp", chunk=2, count=2, from_buffer="data", from_chunk=0)
    t = table(1, a, b, scratch=[("tmp", 4)])
    finding = only(t)
    assert finding.witness["chunk"] == 2 and finding.count == 1


def test_order_through_another_stream():
    t = table(1, Lane(0, "a")("copy", chunk=1, from_buffer="data", from_chunk=0)("record", event="x"),
              Lane(0, "b")("wait", event="x")("record", event="y"),
              Lane(0, "c")("wait", event="y")("copy", chunk=1, from_buffer="data", from_chunk=2))
    assert everything(t) == []


def through_another_rank(op):
    """Stream a of rank 0 touches data[0]; rank 1 hears of it and tells stream b, which then writes there."""
    a = Lane(0, "a")
    if op == "copy":
        a("copy", from_buffer="data", from_chunk=3)("send", peer=1, chunk=1, chan="go")
    else:
        a("send", peer=1, chan="go")
    return table(2, a, Lane(0, "b")("recv", peer=1, chunk=2, chan="back")("copy", from_buffer="data", from_chunk=3),
                 Lane(1, "a")("recv", peer=0, chan="go")("send", peer=0, chan="back"))


def test_order_through_another_rank():
    t = through_another_rank("copy")
    assert everything(t) == []
    hops = why.path(t, match(t), 0, 3)
    assert [(h.kind, h.before, h.after) for h in hops] == [
        ("lane", 0, 1), ("message", 1, 4), ("lane", 4, 5), ("message", 5, 2), ("lane", 2, 3)]
    assert why.path(t, match(t), 3, 0) is None and why.path(t, match(t), 0, 2) is None
    assert why.path(t, match(t), 0, 2, until="end") == hops[:-1]


@pytest.mark.parametrize("model", ["default", "rendezvous", "buffered=1"])
def test_that_a_message_arrived_does_not_show_that_its_sender_is_done(model):
    t = through_another_rank("send")
    finding = only(t, Sends.parse(model))
    assert finding.code == "SL401" and any("does not show that the sender is done" in n.message for n in finding.notes)


def test_races_of_one_statement_are_one_finding():
    n = 6
    lanes = [Lane(r, s)("copy", chunk=1, from_buffer="data", from_chunk=k)
             for r in range(n) for k, s in enumerate("ab")]
    for lane in lanes:
        lane.rows[0]["location"] = Place("hand.sched", 1 + (lane.stream == "b"))
    finding = only(table(n, *lanes))
    assert finding.count == n and finding.witness["rank"] == 0


def test_barrier_tokens_do_not_race():
    rows = [*Lane(0, "a")("send", peer=1).rows, *Lane(0, "b")("recv", peer=1).rows,
            *Lane(1, "a")("recv", peer=0).rows, *Lane(1, "b")("send", peer=0).rows]
    t = table_from_rows(rows, ranks=2, collective=Collective("barrier"), buffers=[Buffer("data", 1, role="data")])
    assert races.check(t, order(t, match(t))) == []


@pytest.mark.parametrize("counts_read", [False, True])
def test_parts_without_elements_do_not_race(counts_read):
    """Known for one matrix only where the source reads the matrix."""
    rows = [row for s in "ab" for row in Lane(0, s)("copy", buffer="output", from_buffer="input", from_chunk=0).rows]
    t = table_from_rows(
        rows, ranks=2, chunks=2, buffers=[Buffer("input", 2, role="input"), Buffer("output", 2, role="output")],
        collective=Collective("alltoallv", inplace=False, counts=np.array([[0, 1], [1, 1]]), counts_read=counts_read))
    assert bool(races.check(t, order(t, match(t)))) != counts_read


def test_few_accesses_to_very_many_locations():
    t = table(1000, Lane(7, "a")("copy", buffer="tmp", chunk=999_999, from_buffer="data", from_chunk=0),
              Lane(7, "b")("copy", buffer="tmp", chunk=999_999, from_buffer="data", from_chunk=0),
              scratch=[("tmp", 1_000_000)])
    finding = only(t)
    assert (finding.witness["rank"], finding.witness["chunk"]) == (7, 999_999)


# Barriers


def dissemination(n, rounds_):
    lanes = []
    for r in range(n):
        lane = Lane(r)
        for k in range(rounds_):
            lane("send", peer=(r + (1 << k)) % n)("recv", peer=(r - (1 << k)) % n, together=True)
        lanes.append(lane)
    return table_from_rows([row for lane in lanes for row in lane.rows], ranks=n, collective=Collective("barrier"),
                           buffers=[Buffer("data", 1, role="data")])


@pytest.mark.parametrize(("n", "rounds_"), [(2, 1), (5, 3), (8, 3), (65, 7), (100, 7)])
def test_barrier(n, rounds_):
    t = dissemination(n, rounds_)
    assert barrier.check(t, order(t, match(t))) == []
    if rounds_ > 1:
        t = dissemination(n, rounds_ - 1)
        (finding,) = barrier.check(t, order(t, match(t)))
        assert finding.code == "SL308" and finding.count == n * (n - (1 << (rounds_ - 1)))
        r, p = finding.witness["leaving"], finding.witness["entering"]
        assert f"rank {r} can leave before rank {p} has entered" in finding.message
        assert 0 < (p - r) % n <= n - (1 << (rounds_ - 1))


def test_a_rank_without_steps_is_no_part_of_a_barrier():
    t = dissemination(4, 2)
    keep = np.flatnonzero((t.rank != 3) & (t.peer != 3))
    t = t.with_columns(**{c: v[keep] for c, v in t.take(np.arange(len(t))).items()})
    (finding,) = barrier.check(t, order(t, match(t)))
    assert finding.code == "SL308" and "rank 3 takes no part" in finding.message
    alone = dissemination(1, 0)
    assert barrier.check(alone, order(alone, match(alone))) == []


# Models


@pytest.mark.parametrize("text", ["rendezvous", "buffered=3", "unlimited", "default"])
def test_models_are_read_and_written(text):
    assert str(Sends.parse(text)) == text


@pytest.mark.parametrize("text", ["", "buffered", "buffered=0", "buffered=-1", "buffered=x", "Rendezvous"])
def test_other_models_are_refused(text):
    with pytest.raises(SchedError) as caught:
        Sends.parse(text)
    assert caught.value.diagnostics[0].code == "SL806"
