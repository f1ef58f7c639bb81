"""The rules of the op table, each with a table that breaks it; and clean tables against a slow, plain reading."""


import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedlang.expand import expand, load_text
from schedlang.ir import legal
from schedlang.ir.buffers import initialised, results, standard_buffers
from schedlang.ir.build import table_from_rows
from schedlang.ir.legal import lanes
from schedlang.ir.locations import Locations
from schedlang.ir.table import NONE, Buffer, Collective, Ensures, OpTable
from schedlang.source import Place
from tests.strategies import arbitrary_tables, tables
from tests.tables import allreduce, ring


def small() -> OpTable:
    """Each kind of row once: a fused forward 0 -> 1 -> 2, local operations and an event on rank 0."""
    rows = [
        {"op": "send", "rank": 0, "peer": 1, "step": 0, "buffer": "data", "chunk": 1},
        {"op": "recv", "rank": 1, "peer": 0, "step": 0, "buffer": "tmp", "chunk": 0},
        {"op": "send", "rank": 1, "peer": 2, "step": 0, "of": 1},
        {"op": "reduce_recv", "rank": 2, "peer": 1, "step": 0, "buffer": "data", "chunk": 1},
        {"op": "copy", "rank": 0, "step": 1, "buffer": "tmp", "chunk": 0, "from_buffer": "data", "from_chunk": 0},
        {"op": "reduce", "rank": 0, "step": 2, "buffer": "data", "chunk": 0, "from_buffer": "tmp", "from_chunk": 0},
        {"op": "record", "rank": 0, "step": 3, "event": "e", "index": [1, 2]},
        {"op": "wait", "rank": 0, "step": 0, "stream": "b", "event": "e", "index": [1, 2]}]
    return allreduce([{**row, "location": Place("t.sched", i)} for i, row in enumerate(rows, 1)], 3, 3, [("tmp", 1)])


def with_cell(column: str, row: int, value: int) -> OpTable:
    table = small()
    cells = np.array(getattr(table, column))
    cells[row] = value
    return table.with_columns(**{column: cells})


def test_small_is_clean():
    assert legal.check(small()) == []


@pytest.mark.parametrize("column, row, value, says", [
    ("op", 0, 7, "row 0: op is 7"),
    ("op", 0, 3, "row 0: peer is 1; only transfers have one"),
    ("stream", 3, 2, "row 3: stream is 2, of 2 streams"),
    ("step", 3, -1, "row 3: step is -1"),
    ("step", 5, 1, "rank 0 has no step 2 on stream main"),
    ("step", 6, 2, "row 6: a record is alone in its step, but row 5 stands in it too"),
    ("step", 3, 1, "row 3: step is 1, but rank 2 has no step 0"),
    ("buffer", 0, 2, "row 0: buffer is 2"),
    ("buffer", 4, NONE, "row 4: buffer is missing"),
    ("buffer", 6, 0, "row 6: buffer is 0, which this row cannot have"),
    ("buffer", 3, NONE, "row 3: chunk is 1, but there is no buffer"),
    ("count", 0, 0, "row 0: count is 0"),
    ("count", 7, 1, "row 7: count is 1"),
    ("chan", 0, NONE, "row 0: chan is -1"),
    ("chan", 4, 0, "row 4: chan is 0"),
    ("from_buffer", 4, NONE, "row 4: from_buffer is -1"),
    ("from_buffer", 1, 0, "row 1: from_buffer is 0"),
    ("of", 0, 9, "row 0: of is 9"),
    ("of", 3, 1, "row 3: of is 1; it stands on a send"),
    ("of", 2, 3, "row 2: of is 3, but rank is 1 here and 2 there"),
    ("of", 2, 0, "row 2: of is 0, but row 0 is a send, not a receive"),
    ("count", 1, 2, "row 2: of is 1, but count is 1 here and 2 there"),
    ("event", 6, 1, "row 6: event is 1, of 1 events"),
    ("event", 0, 0, "row 0: event is 0"),
    ("site", 0, 8, "row 0: site is 8"),
    ("turn", 0, -1, "row 0: turn is -1"),
])
def test_form(column, row, value, says):
    (d,) = legal.check(with_cell(column, row, value))
    assert d.code == "SL107" and says in d.message
    assert d.location is None or d.location.file == "t.sched"


def test_a_value_is_forwarded_once():
    rows = [{"op": "send", "rank": 0, "peer": 1, "buffer": "data", "chunk": 0},
            {"op": "recv", "rank": 1, "peer": 0, "buffer": "data", "chunk": 0},
            {"op": "send", "rank": 1, "peer": 2, "of": 1}, {"op": "send", "rank": 1, "peer": 3, "of": 1}]
    (d,) = legal.check(allreduce(rows, 4))
    assert "row 3: of is 1, but another send forwards" in d.message


def test_huge_steps_are_sorted():
    rows = [{"op": "copy", "rank": r, "step": s, "buffer": "data", "chunk": 0, "from_buffer": "data", "from_chunk": 1}
            for r in range(3) for s in (0, 1)]
    clean = allreduce(rows, 3, 2)
    cells = np.array(clean.step)
    cells[3] = 1 << 30
    (d,) = legal.check(clean.with_columns(step=cells))
    assert "row 3: step is 1073741824, but rank 1 has no step 1" in d.message
    crowd = [{"op": "record", "rank": 0, "step": 0, "event": "e"},
             {"op": "copy", "rank": 0, "step": 0, "buffer": "data", "chunk": 0, "from_buffer": "data", "from_chunk": 1}]
    table = allreduce(crowd, 1, 2)
    assert lanes.uneven_by_sorting(table, 0) == lanes.uneven(table) is not None


@settings(max_examples=60, deadline=None)
@given(st.one_of(tables(), arbitrary_tables()), st.data())
def test_gaps_both_ways(table, data):
    """The grid and the sorted way agree on tables with one step moved."""
    if len(table):
        cells = np.array(table.step)
        cells[data.draw(st.integers(0, len(table) - 1))] += data.draw(st.integers(0, 2))
        table = table.with_columns(step=cells)
    by_lane = {}
    for rank, stream, step in zip(table.rank.tolist(), table.stream.tolist(), table.step.tolist(), strict=True):
        by_lane.setdefault((rank, stream), set()).add(step)
    gaps = any(steps != set(range(len(steps))) for steps in by_lane.values())
    found = lanes.uneven(table)
    assert (found is None) == (lanes.uneven_by_sorting(table, int(table.rank.min(initial=0))) is None)
    assert not gaps or found is not None


@settings(max_examples=100, deadline=None)
@given(st.one_of(tables(), arbitrary_tables()))
def test_random_tables_are_of_good_form(table):
    assert legal.form(table) == []


@pytest.mark.parametrize("column, row, value, code, says", [
    ("rank", 3, 3, "SL222", "rank 3, but the world has 3 ranks (0 to 2)"),
    ("peer", 0, 3, "SL222", "rank 3"),
    ("peer", 0, -2, "SL222", "rank -2"),
    ("peer", 0, 0, "SL224", "rank 0 sends to itself"),
    ("chunk", 0, 3, "SL221", "chunk 3 of data, which has 3 chunks (0 to 2)"),
    ("chunk", 0, -1, "SL221", "chunk -1 of data"),
    ("count", 0, 3, "SL221", "chunks 1 to 3 of data"),
    ("from_chunk", 5, 1, "SL221", "chunk 1 of tmp, which has 1 chunk (0)"),
    ("rank", 7, 1, "SL306", "nothing records e[1, 2] on rank 1"),
])
def test_faults(column, row, value, code, says):
    (d,) = legal.check(with_cell(column, row, value))
    assert d.code == code and says in d.message and d.location == Place("t.sched", row + 1) and d.help


def test_an_event_twice():
    table = small().with_columns(op=np.array(small().op)[[0, 1, 2, 3, 4, 5, 6, 6]])
    (d,) = legal.check(table)
    assert d.code == "SL307" and d.message == "e[1, 2] on rank 0 is recorded a second time"
    assert d.location.line == 8 and d.notes[-1].location.line == 7


@pytest.mark.parametrize(("rows", "says"), [
    ([("record", 0, "sent", 0), ("record", 0, "sent", 0)], "give it an index, as in `record done[i]`"),
    ([("record", 0, "sent", 1), ("record", 0, "sent", 1)], "is this the right rank, and does the index differ"),
    ([("record", 1, "sent", 1), ("record", 1, "sent", 1), ("wait", 0, "sent", 1), ("wait", 0, "sent", 2)],
     "rank 0 waits for sent[1], which nothing records there: should this be `on` rank 0?"),
])
def test_what_the_author_of_a_second_record_may_have_meant(rows, says):
    table = allreduce([dict(op=op, rank=rank, event=event, index=index, stream=f"s{i}")
                       for i, (op, rank, event, index) in enumerate(rows)], 2)
    (d,) = [d for d in legal.check(table) if d.code == "SL307"]
    assert says in d.help


def test_never_recorded_hints():
    rows = [{"op": "record", "rank": 0, "event": "sent"}, {"op": "wait", "rank": 0, "stream": "b", "event": "arrived"},
            {"op": "wait", "rank": 1, "stream": "b", "event": "sent"}]
    one, other = legal.check(allreduce([{**r, "location": Place("t", i)} for i, r in enumerate(rows)], 2))
    assert "rank 0 (which records sent)" in one.help
    assert other.message == "nothing records sent on rank 1"
    (d,) = legal.check(allreduce([rows[0], rows[2]], 2))
    assert "sent is recorded on rank 0" in d.help


@pytest.mark.parametrize("written", ["got", "got[0]", "got[i]", "got[0, i]"])
def test_events_are_named_as_they_are_written(written):
    text = f"schedule s(ranks):\n    collective allreduce(sum)\n    for i in 0..1: wait {written} on 1\n"
    table, _ = expand(load_text(text), "s", ranks=2)
    (d,) = legal.check(table)
    assert d.message == f"nothing records {written.replace('i', '0')} on rank 1"


def test_findings_of_one_statement_are_one():
    table = ring(4)
    (d,) = legal.check(table.with_columns(chunk=table.chunk + np.int32(4)))
    assert d.code == "SL221" and d.count == len(table) and "c=0, s=0, r=0" in d.notes[0].message


def test_a_buffer_of_the_root_alone():
    collective = Collective("gather", root=1, inplace=False)
    rows = [{"op": "copy", "rank": r, "buffer": "output", "chunk": r, "from_buffer": "input", "from_chunk": 0}
            for r in (0, 1)]
    table = table_from_rows(rows, ranks=2, chunks=2, collective=collective, buffers=standard_buffers(collective, 2, 2))
    (d,) = legal.check(table)
    assert d.code == "SL221" and d.message == "output on rank 0; it exists only on the root, rank 1" and d.count == 1


def test_an_enormous_world():
    table = table_from_rows([], ranks=1 << 20, chunks=1 << 20, collective=Collective("allreduce", "sum"),
                            buffers=[Buffer("data", 1 << 20, role="data")])
    assert [d.code for d in legal.check(table)] == ["SL208"]


@pytest.mark.parametrize("fields, says", [
    ({"ranks": 0}, "ranks is 0"),
    ({"chunks": 5}, "it needs 5 chunks"),
    ({"collective": Collective("allreducer")}, "no collective 'allreducer'"),
    ({"collective": Collective("allreduce")}, "allreduce needs an op"),
    ({"collective": Collective("allreduce", "plus")}, "no reduction operator 'plus'"),
    ({"collective": Collective("broadcast")}, "root is None"),
    ({"collective": Collective("broadcast", root=3)}, "root is 3"),
    ({"collective": Collective("allgatherv", counts=np.array([1, 2]))}, "needs counts of shape (3,)"),
    ({"collective": Collective("allgatherv", counts=np.array([1, 2, -1]))}, "counts holds -1"),
    ({"collective": Collective("barrier", counts=np.array([1]))}, "barrier has no counts"),
    ({"collective": Collective("alltoall")}, "cannot work in place"),
    ({"collective": Collective("allgather", inplace=False)}, "buffer input of allgather is missing"),
    ({"buffers": (Buffer("data", 3, role="data"), Buffer("data", 1))}, "two buffers called data"),
    ({"buffers": (Buffer("data", 3, role="data"), Buffer("tmp", 1, place="disk"))}, "buffer tmp is on disk"),
    ({"buffers": (Buffer("data", 3), Buffer("tmp", 1))}, "has the role scratch"),
    ({"event_indices": ()}, "1 events and 0"),
    ({"step": np.zeros(8, np.int64)}, "column step has shape (8,) and type int64"),
    ({"count": np.zeros(7, np.int32)}, "column count has shape (7,)"),
])
def test_the_table_as_a_whole(fields, says):
    (d,) = legal.check(small().with_columns(**fields))
    assert d.code == "SL107" and says in d.message


def test_ensures_stay_inside():
    def table(*location):
        target = [np.array([x]) for x in location]
        ensures = Ensures(*target, np.array([0, 1]), *(np.array([0]) for _ in range(3)))
        return table_from_rows([], ranks=2, collective=Collective("custom", ensures=ensures),
                               buffers=[Buffer("input", 1, role="input"), Buffer("output", 2, role="output")])
    assert legal.check(table(1, 1, 1)) == []
    for outside in ((2, 0, 0), (1, 2, 0), (1, 0, 2), (1, 0, -1)):
        (d,) = legal.check(table(*outside))
        assert d.code == "SL107" and "which there is not" in d.message


def test_what_collectives_bring_and_promise():
    def shape(name, **about):
        c = Collective(name, **about)
        chunks = 1 if name in ("reduce", "broadcast") else 4
        table = table_from_rows([], ranks=2, chunks=chunks, collective=c, buffers=standard_buffers(c, 2, chunks))
        places = Locations(2, table.buffers)
        given, promised = initialised(table), results(table)
        assert len(given) == places.total
        return [(b.name, b.chunks, places.of_buffer(given, i).astype(int).tolist(),
                 places.of_buffer(promised, i).astype(int).tolist()) for i, b in enumerate(table.buffers)]

    none, all_ = [0] * 4, [1] * 4
    assert shape("reduce", op="sum", root=1) == [("data", 1, [[1], [1]], [[0], [1]])]
    assert shape("broadcast", root=1) == [("data", 1, [[0], [1]], [[1], [1]])]
    assert shape("allgather", inplace=False) == [
        ("input", 2, [[1, 1]] * 2, [[0, 0]] * 2), ("output", 4, [none] * 2, [all_] * 2)]
    own = [[1, 1, 0, 0], [0, 0, 1, 1]]
    assert shape("allgather") == [("data", 4, own, [all_] * 2)]
    assert shape("reduce_scatter", op="sum") == [("data", 4, [all_] * 2, own)]
    assert shape("scatter", root=0) == [("data", 4, [all_, none], own)]
    assert shape("gather", root=0) == [("data", 4, own, [all_, none])]
    assert shape("alltoall", inplace=False)[1] == ("output", 4, [none] * 2, [all_] * 2)


def test_a_large_table_is_legal():
    assert legal.check(ring(256)) == []
