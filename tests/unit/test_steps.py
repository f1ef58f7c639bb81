"""What a step may not do, and what it makes a back end do: on random steps against a plain account."""

from collections import Counter, defaultdict
from importlib import import_module
from random import Random

import numpy as np
import pytest

from schedlang.ir.build import table_from_rows
from schedlang.ir.table import NONE, Buffer, Collective, Ensures, Site
from schedlang.ops import Op
from schedlang.source import Place
from schedlang.verify import verify
from schedlang.verify.steps import SHOWN, steps
from schedlang.verify.timing.lanes import Lanes
from schedlang.verify.values.conditions import conditions
from tests.tables import allreduce
from tests.unit.test_values import build, the

BUFFERS = (Buffer("tmp", 5), Buffer("data", 6, role="data"))


def crowded(random):
    """A table of steps of up to five operations, some of several chunks, each of a statement of its own."""
    rows = []
    for rank in range(2):
        for stream in "ab":
            for step in range(random.randint(0, 3)):
                if random.random() < 0.2:
                    rows.append(dict(op="record", rank=rank, stream=stream, step=step, event="e", index=len(rows)))
                    continue
                for _ in range(random.choice([1, 1, 2, 2, 5])):
                    count = random.choice([1, 1, 2, 3])
                    row = dict(op=random.choice(["send", "recv", "reduce_recv", "reduce_recv", "copy", "reduce"]),
                               rank=rank, stream=stream, step=step, count=count, peer=1 - rank)
                    for buffer, chunk in (("buffer", "chunk"), ("from_buffer", "from_chunk")):
                        place = random.choice(BUFFERS)
                        row |= {buffer: place.name, chunk: random.randint(0, place.chunks - count)}
                    if row["op"] == "reduce_recv" and random.random() < 0.6:
                        del row["from_buffer"], row["from_chunk"]
                    if row["op"] == "recv" and random.random() < 0.5:
                        # Passed on at once; what is read is what comes, not what is there.
                        rows += [row, dict(op="send", rank=rank, stream=stream, step=step, count=count, peer=1 - rank,
                                           of=len(rows))]
                        if random.random() < 0.3:
                            row["buffer"] = None
                        continue
                    rows.append(row)
    table = table_from_rows(rows, ranks=2, chunks=6, collective=Collective("allreduce", "sum"), buffers=BUFFERS)
    return table.with_columns(sites=(Site(None),) * len(rows), site=np.arange(len(rows), dtype=np.int32))


def accesses(table):
    """Of each step the writes, (row, part, whether it adds) by place, and which rows read a place."""
    writes, reads = defaultdict(lambda: defaultdict(list)), defaultdict(lambda: defaultdict(list))
    for row in range(len(table)):
        op, lane = Op(table.op[row]), (table.rank[row], table.stream[row], table.step[row])
        if op >= Op.RECORD:
            continue
        here, there = ((int(b[row]), int(c[row])) for b, c in (
            (table.buffer, table.chunk), (table.from_buffer, table.from_chunk)))
        own = op is Op.REDUCE_RECV and here == there
        source = here if op is Op.SEND and table.of[row] == NONE else there
        if source[0] != NONE and not own and op is not Op.RECV and not (op is Op.SEND and table.of[row] != NONE):
            for part in range(table.count[row]):
                reads[lane][source[0], source[1] + part].append(row)
        if op is not Op.SEND and here[0] != NONE:
            for part in range(table.count[row]):
                writes[lane][here[0], here[1] + part].append((row, part, own or op is Op.REDUCE))
    return writes, reads


def ordered(table):
    """The steps in the order of lanes."""
    lanes = Lanes(table)
    return {(table.rank[r], table.stream[r], table.step[r]): int(lanes.node[r]) for r in range(len(table))}


@pytest.mark.parametrize("block", [1 << 16, 3])
def test_random_steps(block, monkeypatch):
    monkeypatch.setattr(import_module("schedlang.verify.steps"), "BLOCK", block)    # not the function
    random, seen = Random(7), Counter()
    for _ in range(60):
        table = crowded(random)
        if not len(table):
            continue
        writes, reads = accesses(table)
        found = steps(table, Lanes(table), conditions(table))
        turns, clashes, examples, staged = set(), Counter(), {}, defaultdict(set)
        for lane, _ in sorted(ordered(table).items(), key=lambda at: at[1]):
            for place, brought in sorted(writes[lane].items()):
                if len(brought) > 1 and not all(adds for *_, adds in brought):
                    clashes[brought[1][0], brought[0][0]] += 1
                    examples.setdefault((brought[1][0], brought[0][0]), (lane, place, [*brought]))
                else:
                    turns |= {(row, part, turn) for turn, (row, part, _) in enumerate(brought) if turn}
                for row, *_ in brought if reads[lane][place] else ():
                    staged[row] |= {*reads[lane][place]}
        assert {*zip(found.row.tolist(), found.part.tolist(), found.turn.tolist())} == turns
        assert len(found.row) == len(turns)
        told = [d for d in found.diagnostics if d.code == "SL402"]
        assert sum(d.count for d in told) == sum(clashes.values())
        assert [d.count for d in told][:SHOWN - 1] == [*clashes.values()][:SHOWN - 1]
        for d, (lane, (buffer, chunk), brought) in zip(told, examples.values()):
            first = next(k for k, (*_, adds) in enumerate(brought) if not adds)
            assert d.witness == dict(rows=sorted([brought[first][0], brought[0 if first else 1][0]]), rank=lane[0],
                                     stream=table.streams[lane[1]], step=lane[2])
            times = "twice" if len(brought) == 2 else f"{len(brought)} times"
            assert d.message == (f"one step writes {BUFFERS[buffer].name}[{chunk}] on rank {lane[0]} {times}, and not "
                                 "only by reductions: which value stays is not settled")
        kept = [d for d in found.diagnostics if d.code == "SL603"]
        assert sum(d.count for d in kept) == len(staged)
        assert [d.witness["rows"][0] for d in kept] == sorted(staged)[:SHOWN]
        assert all(r in staged[w] for w, r in (d.witness["rows"] for d in kept))
        seen.update(clashes=len(clashes) > 0, turns=len(turns) > 0, staged=len(staged) > 0)
    assert min(seen.values()) > 10 and len(seen) == 3, seen


def noted(table, code):
    return [d for d in steps(table, Lanes(table), conditions(table)).diagnostics if d.code == code]


def test_places_without_elements_are_not_written():
    """Two writes of one step meet in a place that is known to be empty, or in one that is not."""
    def clashes(counts, *chunks):
        copies = [("copy", "tmp", 0, 0, "data", chunk, 2) for chunk in chunks]
        return len(noted(build("allgatherv", 3, [copies], chunks=3, counts=counts, counts_read=True,
                               scratch=[("tmp", 2)]), "SL402"))

    assert (clashes([2, 0, 3], 0, 1), clashes([2, 4, 3], 0, 1), clashes([0, 2, 3], 0, 0)) == (0, 1, 1)
    assert clashes([0, 0, 3], 0, 0) == 0


def test_what_different_statements_read_is_told_apart():
    rows = [dict(op=op, rank=0, peer=1, buffer="data", chunk=chunk, location=Place("x.sched", line))
            for op, chunk, line in (("recv", 0, 1), ("recv", 1, 1), ("send", 0, 2), ("send", 1, 3), ("send", 1, 3))]
    found = noted(allreduce(rows, 2, chunks=2), "SL603")
    assert [(d.count, d.witness["rows"]) for d in found] == [(1, [0, 2]), (1, [1, 3])]


def test_of_many_reads_of_a_place_the_first_is_told():
    rows = [dict(op="send", rank=0, peer=1, buffer="data", chunk=k % 2) for k in range(300)]
    rows += [dict(op="recv", rank=0, peer=1, buffer="data", chunk=chunk) for chunk in (1, 0)]
    table = allreduce(rows, 2, chunks=2)
    table = table.with_columns(sites=(Site(None),) * 302, site=np.arange(302, dtype=np.int32))
    assert [d.witness["rows"] for d in noted(table, "SL603")] == [[300, 1], [301, 0]]


def test_statements_beyond_the_limit_count_with_the_last():
    copies = [[("copy", "data", k, 0, "data", k), ("copy", "data", 20, 0, "data", k)] for k in range(SHOWN + 4)]
    table = build("allreduce", 1, copies, chunks=21, op="sum")
    for code, of_one in (("SL402", 1), ("SL603", 2)):
        found = noted(table, code)
        assert [d.count for d in found] == [of_one] * (SHOWN - 1) + [5 * of_one]
        assert [d.location.line for d in found] == [*range(1, SHOWN + 1)]


def test_an_input_that_is_written_is_noted_wherever_it_stands():
    """Behind another buffer; every write of it counts, a read does not."""
    moves = [[("copy", "data", 0, 0, "tmp", 0)], [("copy", "tmp", 0, 1, "input", 0), ("copy", "input", 1, 1, "tmp", 1)],
             [("send", "input", 0, 0, 1, "input", 1)]]
    (found,) = noted(build("custom", 2, moves, scratch=[("tmp", 2), ("data", 1), ("input", 2)], op="sum"), "SL604")
    assert found.message == ("the schedule writes its input, so back ends work on a copy of it: copy tmp[0] into "
                             "input[0] (line 2)")
    assert (found.count, found.witness, found.location) == (2, dict(buffer="input", rows=[1]), Place("x.sched", 2))


def stating(places, sources, known=True):
    """A table that says with an `ensure` of each place, in lines 10, 11 ..., which values it must hold; line 3 is the
    collective's."""
    columns = [np.array(x) for x in zip(*places)]
    every = [np.array(x) for x in zip(*(s for some in sources for s in some))]
    where = tuple(Place("x.sched", k + 10) for k in range(len(places))) if known else ()
    ensures = Ensures(*columns, np.cumsum([0, *map(len, sources)]), *every, location=where)
    table = build("custom", 3, [], op="sum", ensures=ensures, scratch=[("input", 1), ("output", 1)])
    return table.with_columns(collective=Collective("custom", "sum", ensures=ensures, location=Place("x.sched", 3)))


@pytest.mark.parametrize(("places", "sources", "says", "first", "count"), [
    ([(1, 1, 0), (1, 0, 0)], [[(0, 0, 0)], [(1, 0, 0), (1, 1, 0)]],
     "output[0] on rank 0 speaks of a value that is uninitialised at the start; only input and data have one", 1, 1),
    ([(1, 1, 0), (1, 0, 0), (1, 2, 0)], [[(0, 0, 0)], [(0, 1, 0), (0, 0, 0), (0, 1, 0), (0, 1, 0)], [(0, 2, 0)] * 2],
     "output[0] on rank 0 names one initial value twice", 1, 2),
    ([(1, r % 2, 0) for r in range(1_000)], [[(0, 0, 0)]] * 1_000, "output[0] on rank 0 is the second for this place",
     2, 998),
    ([(1, 1, 0), (1, 2, 0), (1, 0, 0)], [[(0, 0, 0)], [], []], "output[0] on rank 2 names no value at all", 1, 2),
])
@pytest.mark.parametrize("known", [True, False])
def test_ensures_that_cannot_be_meant(places, sources, says, first, count, known):
    """The first that is wrong so is told, at its own place where that is known, else at the collective's."""
    found = the(verify(stating(places, sources, known)), "SL205")
    assert (found.message, found.count) == (f"the `ensure` for {says}", count)
    assert found.location == Place("x.sched", 10 + first if known else 3)
