"""The JSON form: there and back, and every way in which a text can be wrong."""

import json as plain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedlang.diagnostics import SchedError
from schedlang.ir import json, legal
from schedlang.ir.table import COLUMNS, Buffer, Collective, Ensures, OpTable
from schedlang.source import Place
from tests.strategies import arbitrary_tables, tables
from tests.tables import allreduce, ring

EXAMPLE = """{"format": "schedlang-ops", "version": 1, "schedule": "example", "ranks": 3, "params": {"channels": 1},
 "collective": {"name": "allreduce", "op": "sum", "root": null, "inplace": true, "counts": null, "ensures": null},
 "buffers": [{"name": "data", "chunks": 4, "place": "device"}, {"name": "in", "chunks": 2, "place": "host"}],
 "ops": [
  {"id": 0, "rank": 0, "stream": "0", "step": 0, "op": "send",   "buffer": "data", "chunk": 0, "count": 1, "peer": 1, "line": 10},
  {"id": 1, "rank": 1, "stream": "0", "step": 0, "op": "reduce_recv", "buffer": "data", "chunk": 0, "count": 1, "peer": 0, "line": 10},
  {"id": 2, "rank": 2, "stream": "0", "step": 0, "op": "copy",   "buffer": "data", "chunk": 1, "count": 1, "from_buffer": "in", "from_chunk": 0, "line": 12},
  {"id": 3, "rank": 2, "stream": "0", "step": 1, "op": "reduce", "buffer": "data", "chunk": 1, "count": 1, "from_buffer": "in", "from_chunk": 0, "line": 13},
  {"id": 4, "rank": 2, "stream": "a", "step": 0, "op": "record", "event": "staged", "index": 3, "line": 14},
  {"id": 5, "rank": 2, "stream": "b", "step": 0, "op": "wait",   "event": "staged", "index": 3, "line": 15, "file": "other.sched"},
  {"id": 6, "rank": 1, "stream": "0", "step": 1, "op": "recv", "buffer": null, "peer": 0, "chan": "c"},
  {"id": 7, "rank": 1, "stream": "0", "step": 1, "op": "send", "of": 6, "peer": 2}
 ]}
"""  # noqa: E501


def same(one: OpTable, other: OpTable) -> bool:
    """Whether two tables say the same; streams, events and buffers are compared by name."""
    def words(t):
        named = {"stream": t.streams, "chan": t.streams, "buffer": [b.name for b in t.buffers],
                 "from_buffer": [b.name for b in t.buffers], "event": list(zip(t.events, t.event_indices, strict=True))}
        columns = {c: getattr(t, c).tolist() for c in COLUMNS if c not in ("site", "turn", "number")}
        return {c: [named[c][v] if c in named and v >= 0 else v for v in values] for c, values in columns.items()}

    def about(c):
        ensures = None if c.ensures is None else [np.asarray(getattr(c.ensures, f)).tolist() for f in (
            "buffer", "rank", "chunk", "starts", "source_buffer", "source_rank", "source_chunk")]
        return c.name, c.op, c.root, c.inplace, None if c.counts is None else c.counts.tolist(), c.counts_read, ensures

    return (words(one) == words(other) and about(one.collective) == about(other.collective)
            and all(getattr(one, f) == getattr(other, f) for f in ("name", "ranks", "chunks", "params", "buffers")))


def test_the_example_reads_as_it_says():
    table = json.loads(EXAMPLE, "t.json")
    assert legal.form(table) == [] and table.chunks == 4
    assert table.streams == ("0", "a", "b", "c") and table.events == ("staged",) and table.event_indices == ((3,),)
    assert table.chan.tolist() == [0, 0, -1, -1, -1, -1, 3, 0]
    assert table.from_buffer.tolist()[1] == 0 and table.of.tolist()[7] == 6 and table.buffer.tolist()[6:] == [-1, -1]
    assert table.origin(2)[0] == Place("t.json", 12)
    assert table.origin(5)[0] == Place("other.sched", 15) and table.origin(6)[0] == Place("t.json", 11, 3)
    assert table.origin(3)[1] == {"row": 3}
    again = json.loads(json.dumps(table), "t.json")
    assert same(table, again) and json.dumps(again) == json.dumps(table)


@settings(max_examples=150, deadline=None)
@given(st.one_of(tables(), arbitrary_tables()))
def test_there_and_back(table):
    again = json.loads(json.dumps(table), "t.json")
    assert same(table, again)
    for row in range(len(table)):
        before, after = table.origin(row)[0], again.origin(row)[0]
        assert (after.file, after.line) == ((before.file, before.line) if before else ("t.json", after.line))


def test_pieces_of_many_rows_are_one_text():
    table = ring(100)
    text = "".join(json.pieces(table))
    assert plain.loads(text)["ops"][-1]["id"] == len(table) - 1
    assert same(table, json.loads(text, "t.json"))


def test_a_custom_collective_keeps_its_ensures():
    ensures = Ensures(*(np.array(x, np.int32) for x in ([1], [0], [0])), np.array([0, 2]),
                      *(np.array(x, np.int32) for x in ([0, 0], [0, 1], [0, 0])), (Place("c.sched", 4),))
    table = allreduce([], 2)
    table = table.with_columns(collective=Collective("custom", "sum", ensures=ensures),
                               buffers=(Buffer("input", 1, role="input"), Buffer("output", 1, role="output")))
    text = json.dumps(table)
    assert plain.loads(text)["collective"]["ensures"][0] == {
        "buffer": "output", "rank": 0, "chunk": 0, "line": 4, "file": "c.sched",
        "of": [{"buffer": "input", "rank": 0, "chunk": 0}, {"buffer": "input", "rank": 1, "chunk": 0}]}
    again = json.loads(text, "t.json")
    assert same(table, again) and again.collective.ensures.location == (Place("c.sched", 4),)


def complaint(text: str) -> tuple[str, int]:
    with pytest.raises(SchedError) as e:
        json.loads(text, "t.json")
    d = e.value.diagnostics[0]
    assert d.code == "SL107" and d.location.file == "t.json"
    return d.message, d.location.line


@pytest.mark.parametrize("old, new, says, line", [
    ('"peer": 1,', '"peer": true,', "row 0: peer should be an integer, not true", 5),
    ('"peer": 1,', '"peer": 1.0,', "row 0: peer should be an integer, not 1.0", 5),
    ('"peer": 1,', '"peer": "1",', 'row 0: peer should be an integer, not "1"', 5),
    ('"peer": 1,', '"peer": -1,', "row 0: peer is -1", 5),
    ('"peer": 1,', '"peer": 1180591620717411303424,', "row 0: peer is 1180591620717411303424", 5),
    ('"peer": 1,', '"peer": ' + "9" * 5000 + ",", "", 5),
    ('"peer": 1,', '"peer": NaN,', "NaN is not a number", 5),
    ('"peer": 1,', "", "row 0: peer is missing", 5),
    ('"peer": 1,', '"peer": 1, "peer": 2,', "'peer' stands there twice", 5),
    ('"peer": 1,', '"peer": 1, "from_chunk": 0,', "row 0: a send has no from_chunk", 5),
    ('"peer": 1,', '"peer": 1, "chanl": "x",', 'row 0: there is no field "chanl"; did you mean chan?', 5),
    ('"id": 1,', '"id": 2,', "row 1: id is 2", 6),
    ('"op": "copy"', '"op": "move"', 'row 2: there is no op "move"', 7),
    ('"op": "copy"', '"op": ["copy"]', "row 2: there is no op a list", 7),
    ('"buffer": "data", "chunk": 1', '"buffer": "dato", "chunk": 1', 'row 2: buffer is "dato"', 7),
    ('"buffer": "data", "chunk": 1', '"buffer": null, "chunk": 1', "row 2: buffer is null", 7),
    ('"count": 1, "from_buffer"', '"count": 0, "from_buffer"', "row 2: count is 0", 7),
    ('"step": 1, "op": "reduce"', '"step": 2, "op": "reduce"', "row 3: step is 2, but rank 2 has no step 1", 8),
    ('"event": "staged"', '"event": ""', "row 4: event should be a name", 9),
    ('"event": "staged"', '"event": "a\\nb"', "row 4: event should be a name", 9),
    ('"event": "staged"', '"event": "\\ud800"', "row 4: event should be a name", 9),
    ('"index": 3', '"index": [3, "x"]', "row 4: index should be an integer", 9),
    ('"line": 14', '"line": 0', "row 4: line is 0", 9),
    ('"line": 14', '"file": "x"', "row 4: file is given without a line", 9),
    ('"op": "recv", "buffer": null', '"op": "reduce_recv", "buffer": null', "row 6: from_buffer is missing", 11),
    ('"of": 6', '"of": 1', "row 7: of is 1, but step is 1 here and 0 there", 12),
    ('"of": 6', '"of": 9', "row 7: of is 9", 12),
    ('"of": 6', '"of": 6, "buffer": "data", "chunk": 0', "row 7: of is 6, but buffer is 0 here and -1 there", 12),
    ('{"id": 7', '[7], {"id": 7', "row 7: a row should be an object, not a list", 12),
    ('"ops": [', '"ops": 5, "x": [', "ops should be a list", 4),
    ('"ops": [', '"rows": [', "ops is missing", 1),
    ('"version": 1', '"version": 2', "version is 2; this program reads version 1", 1),
    ('"version": 1', '"version": true', "version should be an integer", 1),
    ('"format": "schedlang-ops"', '"format": "ops"', "format should be", 1),
    ('"ranks": 3', '"ranks": 0', "ranks is 0", 1),
    ('"schedule": "example", ', "", "schedule is missing", 1),
    ('"params": {"channels": 1}', '"params": {"channels": 1.5}', "the parameter channels should be an integer", 1),
    ('"params": {"channels": 1}', '"params": {"\\ud800": 1}', "a parameter should be a name", 1),
    ('"params": {"channels": 1}', '"params": {"f": ["\\u001b[2J"]}', "the parameter f should be a name", 1),
    ('"params": {"channels": 1}', '"params": [1]', "params should be an object", 1),
    ('"name": "allreduce"', '"name": "allred"', 'there is no collective "allred"', 1),
    ('"name": "allreduce"', '"name": {}', "there is no collective an object", 1),
    ('"name": "allreduce"', '"name": "broadcast"', "root is None", 1),
    ('"name": "allreduce"', '"name": "allgather"', "chunks cannot be 4", 1),
    ('"name": "allreduce"', '"name": "alltoallv"', "", 1),
    ('"op": "sum"', '"op": "plus"', 'there is no reduction operator "plus"', 1),
    ('"op": "sum"', '"op": null', "allreduce needs an op", 1),
    ('"inplace": true', '"inplace": 1', "inplace should be true or false", 1),
    ('"counts": null', '"counts": [1, -1]', "an element of counts is -1", 1),
    ('"counts": null', '"counts": [1, 1, 1]', "allreduce has no counts", 1),
    ('"counts": null', '"counts": [[1], 1]', "counts should be a list of integers", 1),
    ('"counts": null', '"counts": [9223372036854775807, 1]', "more than 64 bits", 1),
    ('"ensures": null', '"ensures": [{"buffer": "data", "rank": 0, "chunk": 0, "of": []}]', "empty", 1),
    ('"ensures": null', '"ensures": [{"buffer": "x", "rank": 0, "chunk": 0, "of": []}]', "which there is not", 1),
    ('"chunks": 4', '"chunks": -4', "chunks of buffer data is -4", 1),
    ('"name": "in"', '"name": "data"', "two buffers called data", 1),
    ('"name": "data", ', '"name": "out", ', "buffer data of allreduce is missing", 1),
    ('"place": "host"', '"place": "disk"', "the place of buffer in", 1),
    (' ]}', ' ]} x', "after the end of the table", 13),
    (' ]}', ' ]', "',' or '}' should stand here", 14),
    (' ]}', "", "',' or ']' should stand here", 14),
    ('"ranks": 3,', '"ranks": 3, "ranks": 3,', "'ranks' stands there twice", 1),
    ('"ranks": 3,', '"ranks": 3, "x": ' + "[" * 100000 + ",", "nests too deep", 1),
    ('"ranks": 3,', '"ranks": 3,, ', "double quotes should stand here", 1),
    ('{"format"', '[{"format"', "not an op table", 1),
])
def test_complaints(old, new, says, line):
    assert old in EXAMPLE
    message, at = complaint(EXAMPLE.replace(old, new, 1))
    assert says in message and at == line, message


@pytest.mark.parametrize("text", ["", " ", "{}", "[]", "null", "{", '{"a"', '{"a":', '{"a": 1', "\ufeff{}", "0", '"x"'])
def test_what_is_no_table(text):
    complaint(text)


def test_unknown_fields_are_ignored():
    text = EXAMPLE.replace('"id": 0,', '"id": 0, "seconds": [1.5, {"deep": null}],', 1)
    text = text.replace('"ranks"', '"author": "me", "ranks"', 1)
    assert same(json.loads(text, "t.json"), json.loads(EXAMPLE, "t.json"))


def test_faults_of_the_schedule_are_no_complaints():
    table = json.loads(EXAMPLE.replace('"peer": 1,', '"peer": 7,', 1), "t.json")
    assert [d.code for d in legal.check(table)] == ["SL222"]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_texts_give_findings_or_tables(data):
    text = EXAMPLE
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        until = data.draw(st.integers(at, min(len(text), at + 8)))
        patch = data.draw(st.sampled_from(["", "0", '"', "{", "]", ",", ":", "null", "-1", "1e9", "true", "\\"]))
        text = text[:at] + patch + text[until:]
    try:
        table = json.loads(text, "t.json")
    except SchedError as e:
        assert all(d.code == "SL107" for d in e.diagnostics)
    else:
        assert legal.form(table) == []
