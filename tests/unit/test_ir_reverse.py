"""Reversed tables compute the transposed map: checked by numbers on tables made by hand and at random."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings

from schedlang.diagnostics import SchedError, Severity
from schedlang.ir import legal
from schedlang.ir.buffers import initialised, results, standard_buffers
from schedlang.ir.build import table_from_rows
from schedlang.ir.locations import Locations
from schedlang.ir.reverse import reverse
from schedlang.ir.table import NONE, Buffer, Collective, Ensures, OpTable
from schedlang.ops import Op
from schedlang.source import Place
from schedlang.verify import verify
from tests.linear import Stuck, matrix
from tests.strategies import tables
from tests.tables import ring


def restricted(table: OpTable) -> np.ndarray:
    """The map from what is initialised to the results."""
    return matrix(table)[results(table)][:, initialised(table)]


def check_reverse(table: OpTable) -> OpTable:
    back = reverse(table)
    assert legal.check(back) == []
    assert np.array_equal(restricted(back), restricted(table).T)
    return back


def table(collective, ranks, chunks, lines, scratch=(), **fields):
    """A table of a collective, one source line an entry of ``lines``; entries of one inner list make one step.

    ("send" | "sum", r, p, X, Y), ("copy" | "reduce", r, X, Y), ("record" | "wait", r, event); a stream may follow.
    A place is "name3"; the receive of a fused forward is ("pass" | "passsum", r, p, q, X, Y, Z).
    """
    rows, lanes, numbers = [], {}, []

    def place(text):
        name = text.rstrip("0123456789")
        return {"buffer": name, "chunk": int(text[len(name):])} if text != "-" else {"buffer": None, "chunk": 0}

    for number, line in enumerate(lines):
        entries = line if isinstance(line, list) else [line]
        start = len(rows)
        for op, *rest in entries:
            at = {"location": Place("t.sched", number + 1), "stream": "main"}
            if op in ("send", "sum"):
                r, p, source, target, *stream = rest
                at["stream"] = stream[0] if stream else "main"
                rows.append({"op": "send", "rank": r, "peer": p, **place(source), **at})
                kind = "recv" if op == "send" else "reduce_recv"
                rows.append({"op": kind, "rank": p, "peer": r, **place(target), **at})
            elif op == "chain":  # r, source, then for each hop: rank, kind, target, operand
                r, source, *hops = rest
                rows.append({"op": "send", "rank": r, "peer": hops[0][0], **place(source), **at})
                for i, (p, kind, target, operand) in enumerate(hops):
                    local = {} if operand is None else {"from_buffer": place(operand)["buffer"],
                                                        "from_chunk": place(operand)["chunk"]}
                    before = r if i == 0 else hops[i - 1][0]
                    rows.append({"op": kind, "rank": p, "peer": before, **place(target), **local, **at})
                    if i + 1 < len(hops):
                        rows.append({"op": "send", "rank": p, "peer": hops[i + 1][0], "of": len(rows) - 1,
                                     **place(target), **at})
            elif op in ("copy", "reduce"):
                r, source, target, *stream = rest
                at["stream"] = stream[0] if stream else "main"
                source = place(source)
                rows.append({"op": op, "rank": r, **place(target), "from_buffer": source["buffer"],
                             "from_chunk": source["chunk"], **at})
            else:
                r, event, stream = rest
                rows.append({"op": op, "rank": r, "event": event, **at, "stream": stream})
        met = {(row["rank"], row["stream"]) for row in rows[start:]}
        for row in rows[start:]:
            row["step"] = lanes.get((row["rank"], row["stream"]), 0)
        for lane in met:
            lanes[lane] = lanes.get(lane, 0) + 1
        numbers += [number] * (len(rows) - start)
    buffers = (*standard_buffers(collective, ranks, chunks), *(Buffer(n, c) for n, c in scratch))
    made = table_from_rows(rows, ranks=ranks, chunks=chunks, collective=collective, buffers=buffers)
    made = made.with_columns(number=np.array(numbers, np.int32), **fields)
    assert legal.check(made) == []
    return made


def ops(made: OpTable) -> list[str]:
    return [Op(int(o)).name.lower() for o in made.op]


def test_a_broadcast_reverses_to_a_reduce():
    chain = table(Collective("broadcast", root=0), 3, 1, [
        ("send", 0, 1, "data0", "data0"), ("send", 1, 2, "data0", "data0")])
    back = check_reverse(chain)
    assert back.collective.name == "reduce" and back.collective.op == "sum" and back.collective.root == 0
    assert ops(back) == ["send", "reduce_recv"] * 2
    assert back.rank.tolist() == [2, 1, 1, 0] and back.peer.tolist() == [1, 2, 0, 1]
    assert back.step.tolist() == [0, 0, 1, 0] and back.number.tolist() == [0, 0, 1, 1]
    assert [back.origin(r)[0].line for r in range(4)] == [2, 2, 1, 1]
    assert ops(check_reverse(back)) == ["send", "recv"] * 2


def test_ring_all_gather_and_reduce_scatter():
    gather = table(Collective("allgather", inplace=False), 3, 3, [
        *(("copy", r, "input0", f"output{r}") for r in range(3)),
        *([("send", r, (r + 1) % 3, f"output{(r - s) % 3}", f"output{(r - s) % 3}") for r in range(3)]
          for s in range(2))])
    back = check_reverse(gather)
    assert back.collective.name == "reduce_scatter" and [b.name for b in back.buffers] == ["output", "input"]
    assert ops(back).count("reduce_recv") == 6 and ops(back)[-3:] == ["copy"] * 3
    assert check_reverse(back).collective.name == "allgather"


def test_in_place():
    gather = table(Collective("allgather", inplace=True), 4, 4, [
        [("send", r, (r + 1) % 4, f"data{(r - s) % 4}", f"data{(r - s) % 4}") for r in range(4)] for s in range(3)])
    assert check_reverse(gather).collective.inplace


def test_rooted_buffers_change_sides():
    gather = table(Collective("gather", root=1, inplace=False), 3, 3, [
        ("copy", 1, "input0", "output1"), [("send", 0, 1, "input0", "output0"), ("send", 2, 1, "input0", "output2")]])
    back = check_reverse(gather)
    assert back.collective.name == "scatter"
    assert [(b.name, b.only) for b in back.buffers] == [("output", None), ("input", 1)]


def test_counts_are_transposed():
    counts = np.array([[0, 1], [2, 3]])
    shuffle = table(Collective("alltoallv", inplace=False, counts=counts), 2, 2, [
        *(("copy", r, f"input{r}", f"output{r}") for r in range(2)),
        [("send", r, 1 - r, f"input{1 - r}", f"output{r}") for r in range(2)]])
    assert check_reverse(shuffle).collective.counts.tolist() == [[0, 2], [1, 3]]
    gather = table(Collective("allgatherv", inplace=False, counts=np.array([1, 2])), 2, 2, [
        *(("copy", r, "input0", f"output{r}") for r in range(2)),
        [("send", r, 1 - r, f"output{r}", f"output{r}") for r in range(2)]])
    assert check_reverse(gather).collective.name == "reduce_scatterv"


def test_an_all_reduce_by_a_root_is_its_own_reverse():
    tree = table(Collective("allreduce", "max", inplace=False), 3, 1, [
        ("copy", 0, "input0", "tmp0"), ("sum", 1, 0, "input0", "tmp0"), ("sum", 2, 0, "input0", "tmp0"),
        [("send", 0, 1, "tmp0", "output0"), ("send", 0, 2, "tmp0", "output0"), ("copy", 0, "tmp0", "output0")]],
        scratch=[("tmp", 1)])
    back = check_reverse(tree)
    assert back.collective.name == "allreduce" and back.collective.op == "max"
    # tmp0 gets three values in one step: the local one first, in a step of its own.
    assert ops(back)[:2] == ["copy", "send"] and back.number.tolist()[:2] == [0, 1]


def test_values_that_meet_in_an_empty_place_land_apart():
    star = table(Collective("broadcast", root=0, inplace=False), 4, 1, [
        ("copy", 0, "input0", "tmp0"), [("send", 0, p, "tmp0", "output0") for p in (1, 2, 3)],
        ("copy", 0, "input0", "output0")], scratch=[("tmp", 1)])
    back = check_reverse(star)
    landing = back.buffer_index("landing")
    assert back.buffers[landing].chunks == 2
    assert sorted(back.chunk[back.buffer == landing].tolist()) == [0, 1]
    assert ops(back).count("reduce") == 3


def test_a_partly_initialised_range_is_split():
    collective = Collective("broadcast", root=0, inplace=False)
    buffers = (*standard_buffers(collective, 2, 3), Buffer("tmp", 3))
    rows = [
        {"op": "copy", "rank": 0, "step": 0, "buffer": "tmp", "chunk": 0, "count": 3, "from_buffer": "input",
         "from_chunk": 0},
        {"op": "copy", "rank": 0, "step": 1, "buffer": "output", "chunk": 1, "from_buffer": "tmp", "from_chunk": 1},
        {"op": "send", "rank": 0, "peer": 1, "step": 2, "buffer": "tmp", "chunk": 0, "count": 3},
        {"op": "recv", "rank": 1, "peer": 0, "step": 0, "buffer": "output", "chunk": 0, "count": 3},
        {"op": "copy", "rank": 0, "step": 3, "buffer": "output", "chunk": 0, "from_buffer": "input", "from_chunk": 0},
        {"op": "copy", "rank": 0, "step": 3, "buffer": "output", "chunk": 2, "from_buffer": "input", "from_chunk": 2}]

    def received():
        made = table_from_rows(rows, ranks=2, chunks=3, collective=collective, buffers=buffers)
        back = check_reverse(made)
        found = zip(ops(back), back.chunk.tolist(), back.count.tolist(), back.rank, strict=True)
        return sorted((o, c, n) for o, c, n, rank in found if rank == 0 and o in ("recv", "reduce_recv"))

    assert received() == [("recv", 0, 3)]
    rows[1]["step"], rows[2]["step"] = 2, 1  # now tmp[1] is used after the send, so something comes back before it
    assert received() == [("recv", 0, 1), ("recv", 2, 1), ("reduce_recv", 1, 1)]


def test_events_turn_round():
    made = table(Collective("broadcast", root=0, inplace=False), 2, 1, [
        [("copy", 0, "input0", "tmp0", "a"), ("copy", 0, "input0", "tmp1", "a")], ("record", 0, "done", "a"),
        ("wait", 0, "done", "b"), ("copy", 0, "tmp0", "output0", "b"),
        ("wait", 0, "done", "c"), ("send", 0, 1, "tmp1", "output0", "c")], scratch=[("tmp", 2)])
    back = check_reverse(made)
    assert back.event_indices == ((0, 0), (0, 1))
    mine = [(back.streams[s], o) for o, s, r in zip(ops(back), back.stream, back.rank, strict=True) if r == 0]
    lanes = {s: [o for stream, o in mine if stream == s] for s in "abc"}
    assert lanes["b"] == ["copy", "record"] and lanes["a"][:2] == ["wait", "wait"]
    assert back.step[back.op == Op.WAIT].tolist() == [0, 1]


@pytest.mark.parametrize("hops, expected", [
    # stored and forwarded: what comes back is added to what the own copy has gathered
    ([(1, "recv", "data0", None), (2, "recv", "data0", None)], ["send", "reduce_recv", "send", "reduce_recv"]),
    # forwarded only
    ([(1, "recv", "-", None), (2, "recv", "data0", None)], ["send", "recv", "send", "reduce_recv"]),
])
def test_fused_copies(hops, expected):
    rest = [] if hops[0][2] != "-" else [("send", 2, 1, "data0", "data0")]
    made = table(Collective("broadcast", root=0), 3, 1, [("chain", 0, "data0", *hops), *rest])
    back = check_reverse(made)
    assert ops(back)[-4:] == expected
    assert (back.of != NONE).sum() == 1


@pytest.mark.parametrize("hops", [
    [(1, "reduce_recv", "data0", None), (2, "reduce_recv", "data0", None)],
    [(1, "reduce_recv", "-", "data0"), (2, "reduce_recv", "data0", None)],
    [(1, "reduce_recv", "tmp0", "data0"), (2, "reduce_recv", "data0", None)],
])
def test_fused_sums(hops):
    made = table(Collective("reduce", "sum", root=2), 3, 1, [("chain", 0, "data0", *hops)], scratch=[("tmp", 1)])
    back = check_reverse(made)
    assert ops(back) == ["send", "recv", "send", "recv"] and back.of.tolist() == [-1, -1, 1, -1]
    assert check_reverse(back).collective.name == "reduce"


def test_what_nothing_needs_is_left_out():
    made = table(Collective("broadcast", root=0), 3, 1, [
        ("send", 0, 1, "data0", "data0"), ("send", 1, 0, "data0", "tmp0"), ("send", 0, 2, "tmp0", "tmp0"),
        ("send", 1, 2, "data0", "data0")], scratch=[("tmp", 1)])
    back = check_reverse(made)
    assert ops(back) == ["send", "reduce_recv"] * 2 and back.number.tolist() == [0, 0, 1, 1]


def test_without_numbers_the_order_is_worked_out():
    made = table(Collective("broadcast", root=0), 4, 1, [
        ("send", 0, 1, "data0", "data0"), ("send", 1, 2, "data0", "data0"), ("send", 2, 3, "data0", "data0")])
    mixed = made.with_columns(number=None)
    mixed = mixed.with_columns(**{k: v for k, v in mixed.take(np.array([4, 1, 3, 0, 5, 2])).items()})
    back = check_reverse(mixed)
    assert ops(back).count("reduce_recv") == 3


def refused(made: OpTable) -> tuple[str, int]:
    with pytest.raises(SchedError) as e:
        reverse(made)
    (d,) = e.value.diagnostics
    assert d.code == "SL211"
    return d.message, d.location.line if d.location else 0


def test_no_reverse_where_a_copy_destroys():
    made = table(Collective("broadcast", root=0), 2, 1, [
        ("send", 0, 1, "data0", "tmp0"), ("send", 0, 1, "data0", "tmp0"), ("copy", 1, "tmp0", "data0")],
        scratch=[("tmp", 1)])
    message, line = refused(made)
    assert "tmp[0] on rank 1" in message and "written before" in message and line == 2
    message, _ = refused(ring(4))
    assert "from the start" in message


def test_no_reverse_where_a_summed_value_is_used_again():
    again = [("sum", 1, 0, "data0", "data0"), ("sum", 1, 2, "data0", "data0"), ("sum", 2, 0, "data0", "data0")]
    message, line = refused(table(Collective("reduce", "sum", root=0), 3, 1, again))
    assert "data[0] of rank 1" in message and line == 1
    doubling = [[("sum", 0, 1, "data0", "data0"), ("sum", 1, 0, "data0", "data0")]]
    assert "data[0] of rank" in refused(table(Collective("allreduce", "sum"), 2, 1, doubling))[0]


def test_no_reverse_of_what_cannot_run_or_moves_no_data():
    made = table(Collective("broadcast", root=0), 2, 1, [("send", 0, 1, "data0", "data0")])
    one = made.with_columns(**made.take(np.array([0])))
    assert "do not match" in refused(one)[0]
    assert "barrier" in refused(table(Collective("barrier"), 2, 1, [("send", 0, 1, "data0", "data0")]))[0]
    stuck = table_from_rows(
        [{"op": "recv", "rank": r, "peer": 1 - r, "buffer": "data", "chunk": 0, "step": 0} for r in (0, 1)]
        + [{"op": "send", "rank": r, "peer": 1 - r, "buffer": "data", "chunk": 0, "step": 1} for r in (0, 1)],
        ranks=2, collective=Collective("broadcast", root=0), buffers=[Buffer("data", 1, role="data")])
    assert "circle" in refused(stuck)[0]
    with pytest.raises(Stuck):
        matrix(stuck)


def test_a_custom_collective_has_its_results_where_inputs_can_stand():
    made = Author(3).table()
    assert len(made.collective.ensures.buffer)
    ensures = replace(made.collective.ensures, buffer=made.collective.ensures.buffer * 0 + made.buffer_index("tmp"))
    moved = made.with_columns(collective=replace(made.collective, ensures=ensures))
    assert "a result stands in tmp" in refused(moved)[0]


@settings(max_examples=150, deadline=None)
@given(tables(flawless=True))
def test_reverses_of_flawless_schedules_are_proved(made):
    """The verifier knows nothing of how they came about. Reads by two streams at a time may become racing writes."""
    try:
        back = reverse(made)
    except SchedError as e:
        assert [d.code for d in e.diagnostics] == ["SL211"]
        return
    verdict = verify(back)
    assert {d.code for d in verdict.diagnostics if d.severity == Severity.ERROR} <= {"SL401"}
    if verdict.ok:
        assert verify(reverse(back)).ok


class Author:
    """Writes random schedules that have a reverse: copies go to fresh places, summed-from places are not used again.

    All steps of a rank are ordered: where the stream changes, a record and a wait connect the two.
    """

    def __init__(self, seed):
        self.r = Random(seed)
        self.ranks = self.r.randint(2, 4)
        self.buffers = [Buffer("input", 2, role="input"), Buffer("tmp", 5), Buffer("output", 3, role="output")]
        self.chunks = {b.name: b.chunks for b in self.buffers}
        self.full = {(r, "input", c) for r in range(self.ranks) for c in range(2)}
        self.used_up = set()
        self.rows, self.numbers, self.lanes, self.last = [], [], {}, {}
        self.number = self.events = 0
        for _ in range(self.r.randint(3, 16)):
            self.step()

    def put(self, rows):
        for row in rows:
            row["step"] = self.lanes.get((row["rank"], row["stream"]), 0)
        for lane in {(row["rank"], row["stream"]) for row in rows}:
            self.lanes[lane] = self.lanes.get(lane, 0) + 1
        self.rows += rows
        self.numbers += [self.number] * len(rows)
        self.number += 1

    def follow(self, rank, stream):
        """Orders what comes on this stream of the rank after all that the rank did."""
        before = self.last.get(rank, stream)
        if before != stream:
            for op, s in (("record", before), ("wait", stream)):
                self.put([{"op": op, "rank": rank, "stream": s, "event": "e", "index": self.events}])
            self.events += 1
        self.last[rank] = stream

    def run(self, rank, buffer, count, wanted, taken):
        """A random run of chunks all of whose locations satisfy ``wanted``, or None."""
        size = self.chunks[buffer]
        starts = [c for c in range(size - count + 1)
                  if all(wanted((rank, buffer, c + j)) and (rank, buffer, c + j) not in taken for j in range(count))]
        return self.r.choice(starts) if starts else None

    def step(self):
        stream = self.r.choice("ab")
        alive = self.full - self.used_up
        written, drained, read, rows = set(), set(), set(), []
        for _ in range(self.r.randint(1, 4)):
            count, kind = self.r.choice([1, 1, 2]), self.r.choice(["copy", "sum"])
            hops = self.r.sample(range(self.ranks), self.r.choice([1, 2, 2, 3 if self.ranks > 2 else 2]))
            source = self.r.choice(["input", "tmp", "output"])
            busy = drained | (written & alive if kind == "sum" else set())
            chunk = self.run(hops[0], source, count, lambda x: x in alive, busy)
            if chunk is None or (kind == "sum" and any((hops[0], source, chunk + j) in read for j in range(count))):
                continue
            targets = []
            for p in hops[1:] or hops:
                target = self.r.choice(["tmp", "output"])
                if kind == "copy":
                    to = self.run(p, target, count, lambda x: x not in self.full, written)
                else:
                    to = self.run(p, target, count, lambda x: x in alive, drained | read | {
                        (hops[0], source, chunk + j) for j in range(count)})
                if to is None:
                    break
                targets.append((p, target, to))
            if len(targets) < len(hops[1:] or hops) or len({(p, b) for p, b, _ in targets}) < len(targets):
                continue
            if kind == "sum":
                targets = targets[:1]
            mine = {(hops[0], source, chunk + j) for j in range(count)}
            read |= mine
            drained |= mine if kind == "sum" else set()
            for p, b, c in targets:
                written |= {(p, b, c + j) for j in range(count)}
            rows += self.moves(kind, hops, source, chunk, targets, count, stream, len(rows))
        if rows:
            for rank in sorted({row["rank"] for row in rows}):
                self.follow(rank, stream)
            start = len(self.rows)
            for row in rows:
                if "of" in row:
                    row["of"] += start
            self.put(rows)
        self.full |= written
        self.used_up |= drained

    def moves(self, kind, hops, source, chunk, targets, count, stream, first):
        at = {"stream": stream, "count": count}
        if len(hops) == 1:
            ((p, b, c),) = targets
            return [{"op": "copy" if kind == "copy" else "reduce", "rank": p, "buffer": b, "chunk": c,
                     "from_buffer": source, "from_chunk": chunk, **at}]
        rows = [{"op": "send", "rank": hops[0], "peer": hops[1], "buffer": source, "chunk": chunk, **at}]
        for i, (p, b, c) in enumerate(targets):
            rows.append({"op": "recv" if kind == "copy" else "reduce_recv", "rank": p, "peer": hops[i], "buffer": b,
                         "chunk": c, **at})
            if i + 1 < len(targets):
                rows.append({"op": "send", "rank": p, "peer": targets[i + 1][0], "buffer": b, "chunk": c,
                             "of": first + len(rows) - 1, **at})
        return rows

    def table(self):
        """The schedule as a custom collective that ensures what some of its output happens to hold."""
        collective = Collective("custom", "sum", inplace=False)
        made = table_from_rows(self.rows, ranks=self.ranks, collective=collective, buffers=self.buffers)
        made = made.with_columns(number=np.array(self.numbers, np.int32) if self.r.random() < 0.7 else None)
        state, places = matrix(made), Locations(self.ranks, self.buffers)
        names = [b.name for b in self.buffers]
        ends = sorted(x for x in self.full - self.used_up if x[1] == "output" and self.r.random() < 0.8)
        targets, sources, starts = [], [], [0]
        for rank, name, chunk in ends:
            holds = state[places.at(names.index(name), rank, chunk)]
            for r in range(self.ranks):
                for c in range(2):
                    sources += [(0, r, c)] * int(holds[places.at(0, r, c)])
            targets.append((names.index(name), rank, chunk))
            starts.append(len(sources))
        columns = [np.array(x, np.int32).reshape(-1, 3).T for x in (targets, sources)]
        ensures = Ensures(*columns[0], np.array(starts), *columns[1])
        return made.with_columns(collective=Collective("custom", "sum", inplace=False, ensures=ensures))


@pytest.mark.parametrize("batch", range(8))
def test_random_schedules(batch):
    reversed_rows = 0
    for seed in range(batch * 60, batch * 60 + 60):
        made = Author(seed).table()
        assert legal.check(made) == []
        back = reverse(made)
        assert legal.check(back) == []
        wanted = matrix(made)[results(made)][:, initialised(made)]
        found = matrix(back)[np.ix_(initialised(made), results(made))]
        assert np.array_equal(found, wanted.T), seed
        reversed_rows += len(back)
    assert reversed_rows > 500
