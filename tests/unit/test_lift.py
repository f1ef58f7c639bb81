"""Source from tables: it says the same, and regular things are said in few lines."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from schedlang import lift
from schedlang.cli.main import main
from schedlang.diagnostics import SchedError
from schedlang.expand import expand, load_program, load_text
from schedlang.ir.build import table_from_rows
from schedlang.ir.json import dumps
from schedlang.ir.table import Buffer, Collective, Transport
from schedlang.lift.check import Renamed, same
from schedlang.lift.names import identifier
from schedlang.source import Place
from schedlang.verify import verify
from schedlang.verify.sends import Sends
from tests.campaign import EXAMPLES, shipped_tables
from tests.lifted import body, comes_back, written
from tests.renaming import in_other_words
from tests.tables import allreduce, ring

FOLDER = Path(__file__).parents[3] / "shared" / "cases" / "msccl"
files = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs ../shared/cases/msccl, which is not there")


def example(path, ranks, **params):
    program = load_program(str(EXAMPLES / path))
    table, found = expand(program, program.main(None), ranks=ranks, params=params)
    assert table is not None, found
    return table


def table_of(text):
    program = load_text(text)
    table, found = expand(program, program.main(None))
    assert table is not None, found
    return table


def lifted(table, seed=1):
    """The statements of a table's source, its streams and connections renamed on each rank first."""
    return body(comes_back(in_other_words(table, random.Random(seed))))


# ---- regular schedules ----------------------------------------------------------------------------------------------


def test_a_ring_comes_back_as_it_is_written():
    assert lifted(example("allreduce/ring.sched", 8)) == [
        "for s in 0..ranks - 1:",
        "    step:",
        "        for r in 0..ranks:",
        "            reduce data[(r - s) % ranks] from r to (r + 1) % ranks",
        "for s in 0..ranks - 1:",
        "    step:",
        "        for r in 0..ranks:",
        "            send data[(r + 1 - s) % ranks] from r to (r + 1) % ranks"]


def test_a_ring_of_several_channels():
    text = lifted(example("allreduce/ring.sched", 8, channels=4))
    assert text[:2] == ["for c in 0..4:", "    stream c:"] and len(text) == 10


def test_all_pairs_come_back():
    assert lifted(example("allreduce/all_pairs.sched", 8)) == [
        "step:",
        "    for r in 0..ranks:",
        "        for t in 1..ranks:",
        "            reduce data[(r + t) % ranks] from r to (r + t) % ranks",
        "step:",
        "    for r in 0..ranks:",
        "        for t in 1..ranks:",
        "            send data[r] from r to (r + t) % ranks"]


def test_an_all_to_all_comes_back():
    assert lifted(example("alltoall/pairwise.sched", 6)) == [
        "step:",
        "    for r in 0..ranks:",
        "        copy input[r] into output[r] on r",
        "for s in 1..ranks:",
        "    step:",
        "        for r in 0..ranks:",
        "            send input[(r + s) % ranks] from r to (r + s) % ranks into output[r]"]


FUSED_RING = """
schedule fused():
    ranks 6
    collective allreduce(sum) outofplace
    chunks ranks * 3
    let ring = [[0, 1, 2, 3, 4, 5], [0, 3, 1, 4, 2, 5], [0, 5, 4, 3, 2, 1]]
    for c in 0..3:
        stream c:
            for k in 0..ranks:
                on ring[c][k]:
                    send input[c * ranks + ring[c][k]] to ring[c][(k + 1) % ranks]
                    for s in 1..ranks - 1:
                        reduce input[c * ranks + ring[c][(k - s) % ranks]] from ring[c][(k - 1) % ranks]@
                    reduce input[c * ranks + ring[c][(k + 1) % ranks]] from ring[c][(k - 1) % ranks] into &
"""
FUSED_RING = FUSED_RING.replace("@", " then send to ring[c][(k + 1) % ranks] only").replace(
    "&", "output[c * ranks + ring[c][(k + 1) % ranks]]")


def test_rings_of_ranks_in_any_order_are_found():
    text = lifted(table_of(FUSED_RING))
    assert [line for line in text if line.startswith(("let", "    ["))] == [
        "let ring = [[0, 1, 2, 3, 4, 5], [0, 3, 1, 4, 2, 5], [0, 5, 4, 3, 2, 1]]"]
    assert text[1:] == [
        "for c in 0..3:",
        "    stream c:",
        "        for place in 0..ranks:",
        "            let here = ring[c][place]",
        "            let before = ring[c][(place - 1) % ranks]",
        "            let after = ring[c][(place + 1) % ranks]",
        "            on here:",
        "                send input[6 * c + here] to after",
        "                for s in 1..ranks - 1:",
        "                    reduce input[6 * c + ring[c][(place - s) % ranks]] from before then send to after only",
        "                reduce input[6 * c + after] from before into output[6 * c + after]"]


def test_pairs_of_lanes_and_events_on_one_rank():
    """Each pair of ranks on lanes of its own that wait for each other's events: a dozen lines for 8 ranks."""
    text = lifted(table_of("""
schedule all_pairs():
    ranks 8
    collective allreduce(sum)
    chunks ranks
    buffer landing[ranks - 1]
    for r in 0..ranks:
        for d in 1..ranks:
            stream peer[d]:
                chan 0
                on r:
                    send data[(r + d) % ranks] to (r + d) % ranks
                    recv landing[d - 1] from (r + d) % ranks
                    record landed[d]
        stream sums:
            on r:
                for d in 1..ranks:
                    wait landed[d]
                    reduce landing[d - 1] into data[r]
"""))
    assert len(text) <= 18
    assert not any(line.startswith("let") for line in text)


def test_partners_by_exclusive_or():
    text = lifted(table_of("""
schedule partners():
    ranks 8
    collective custom
    buffer data[2]
    for r in 0..ranks:
        stream s:
            on r:
                send data[0] to r ^ 5
                recv data[1] from r ^ 5
"""))
    assert any("r ^ 5" in line for line in text) and len(text) <= 6


def test_what_two_turns_only_speak_for_is_no_loop():
    table = allreduce([
        {"op": "send", "rank": 0, "peer": 1, "step": 0, "buffer": "data", "chunk": 3},
        {"op": "recv", "rank": 1, "peer": 0, "step": 0, "buffer": "data", "chunk": 3},
        {"op": "send", "rank": 1, "peer": 0, "step": 1, "buffer": "data", "chunk": 17},
        {"op": "recv", "rank": 0, "peer": 1, "step": 1, "buffer": "data", "chunk": 17}], 2, 20)
    assert body(comes_back(table)) == ["send data[3] from 0 to 1", "send data[17] from 1 to 0"]


@pytest.mark.parametrize("ranks, channels", [(2, 1), (3, 1), (16, 8), (64, 1)])
def test_lines_do_not_grow_with_the_world(ranks, channels):
    text, again = written(ring(ranks, channels))
    assert len(body(text)) <= 10 and len(again) == len(ring(ranks, channels))


# ---- what ships -----------------------------------------------------------------------------------------------------


def first_of_each():
    """One case of each shipped schedule: the largest of at most 6 ranks."""
    found = {}
    for what, table in shipped_tables(6):
        found[what.split(" ", 1)[0]] = what, table
    return list(found.values())


@pytest.mark.parametrize("what, table", first_of_each(), ids=lambda v: v if isinstance(v, str) else "")
def test_what_ships_comes_back(what, table):
    text = comes_back(in_other_words(table, random.Random(what)))
    assert len(text.splitlines()) <= 12 + 1.5 * len(table)
    assert verdict(table) == verdict(written(table)[1])


def verdict(table, sends="default"):
    found = verify(table, sends=Sends.parse(sends))
    return found.ok, {d.code for d in found.diagnostics}, {p.name: p.state for p in found.proofs}


@pytest.mark.nightly
def test_all_that_ships_comes_back():
    for what, table in shipped_tables(9):
        comes_back(in_other_words(table, random.Random(what)))


def test_every_shipped_schedule_is_there():
    assert len(first_of_each()) >= 45


# ---- real files -----------------------------------------------------------------------------------------------------

LINES = {"a2a2ll": 22, "ag-1m": 16, "ag-32m-1g": 18, "ap-1pass": 49, "ap2ll": 37, "r48ll": 41, "ag_hier_4_LL": 31,
         "ag_hier_4_Simple": 31, "ar_hier_12_Simple": 49, "ar_tree_12_LL": 46, "alltoall-8n-0-9kb": 18,
         "alltoall-8n-7mb-43mb": 23, "allreduce-allpairs-8n-ll-32tb": 37, "all-reduce-ring-ll": 39}
"""How many lines the source of a file has at most."""


@files
@pytest.mark.parametrize("name", LINES)
def test_a_real_file_comes_back(name):
    from schedlang.msccl import placements, read, table

    plan = read(str(FOLDER / f"{name}.xml.gz"))
    for inplace in placements(plan):
        text = comes_back(table(plan, inplace))
        assert len(text.splitlines()) <= LINES[name]


@files
@pytest.mark.parametrize("name", ["a2a2ll", "ag-32m-1g", "ar_hier_12_Simple"])
def test_the_source_of_a_real_file_has_its_verdict(name):
    from schedlang.msccl import placements, read, table

    plan = read(str(FOLDER / f"{name}.xml.gz"))
    made = table(plan, placements(plan)[0])
    for sends in ("buffered=1", "buffered=2"):
        ok, codes, proofs = verdict(made, sends)
        assert (ok, proofs) == verdict(written(made)[1], sends)[::2], codes


# ---- corners --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_no_operations(ranks):
    assert body(comes_back(allreduce([], ranks))) == []


def test_names_that_are_none():
    rows = [{"op": "copy", "rank": 0, "buffer": "tmp#1", "chunk": 0, "from_buffer": "copy", "from_chunk": 1}]
    table = allreduce(rows, 1, 1, [("copy", 3), ("tmp#1", 4), ("9 x", 2), ("tmp 1", 1), ("", 1)], name="8 ranks/ring")
    text = comes_back(table)
    assert text.startswith("schedule schedule_8_ranks_ring():")
    assert [line for line in text.splitlines() if "buffer" in line] == [
        "    buffer copy_[3]", "    buffer tmp_1[4]", "    buffer scratch_9_x[2]", "    buffer tmp_12[1]",
        "    buffer scratch[1]"]


@pytest.mark.parametrize("name, made", [
    ("ring", "ring"), ("for", "for_"), ("2d", "schedule_2d"), ("", "schedule_"), ("é", "schedule_"),
    ("naïve-é", "na_ve"),
    ('a"""b', "a_b"), ("x" * 99, "x" * 60), ("data", "data_"), ("7", "schedule7")])
def test_identifiers(name, made):
    assert identifier(name, "schedule") == made
    assert comes_back(allreduce([], 1, 1, name=name)).startswith(f"schedule {made}():")


def test_the_name_of_a_file_is_written_as_far_as_it_can_be():
    table = replace(allreduce([], 1, 1), location=Place('a"""\n\x1b\udcff.xml', 1))
    assert '    """table of a\'\'\'???.xml, as it is for 1 rank.' in written(table)[0]


def test_waits_for_what_nothing_records_stay():
    rows = [{"op": "wait", "rank": 0, "step": k, "event": "e", "index": i} for k, i in enumerate((3, 4, 3))]
    text, again = written(allreduce(rows, 2))
    assert sorted(np.unique(again.event, return_counts=True)[1].tolist()) == [1, 2]
    assert "never" in text


def test_what_is_passed_on_without_being_stored_needs_a_place_to_name():
    rows = [{"op": "recv", "rank": 1, "peer": 0, "buffer": None, "chunk": 0, "count": 2},
            {"op": "send", "rank": 1, "peer": 2, "of": 0, "count": 2}]
    text = comes_back(allreduce(rows, 3))
    assert "buffer passing[2]" in text and "recv passing[0:2] from 0 then send to 2 only" in text
    assert "passing" not in comes_back(allreduce(rows, 3, 2))


def test_a_transport_is_told_with_how_to_verify_for_it():
    text = comes_back(replace(ring(4), transport=Transport("LL", 8), params={"inplace": True}))
    assert "in place" in text and "LL, which has 8 messages in flight" in text
    assert "`schedlang verify --sends LL`" in text
    text = comes_back(replace(ring(4), transport=Transport("wire", 3)))
    assert "wire, which has 3 messages" in text and "that go whole `schedlang verify --sends buffered=3`" in text


def test_counts_host_buffers_and_roots():
    counts = np.array([[0, 2], [3, 1]], np.int64)
    buffers = (Buffer("input", 2, role="input"), Buffer("output", 2, role="output"), Buffer("h", 2, place="host"))
    rows = [{"op": "copy", "rank": 0, "buffer": "h", "chunk": 0, "from_buffer": "input", "from_chunk": 0}]
    table = table_from_rows(rows, name="v", ranks=2, chunks=2, buffers=buffers,
                            collective=Collective("alltoallv", inplace=False, counts=counts))
    text = comes_back(table)
    assert "buffer h[2] on host" in text and "[[0, 2], [3, 1]]" in text
    assert "collective broadcast(3)" in comes_back(example("broadcast/binomial.sched", 5, root=3))


def test_ensures_come_back():
    table = example("custom/scan.sched", 5)
    comes_back(table)
    assert verify(written(table)[1]).ok
    e = table.collective.ensures
    chan = [-1 if k == -1 else table.streams[k] for k in table.chan]
    names = Renamed([table.streams[k] for k in table.stream], chan, [-1] * len(table), [b.name for b in table.buffers])
    assert same(table, names, table)
    for column in ("rank", "source_rank"):
        other = getattr(e, column).copy()
        other[0] = (other[0] + 1) % 5
        changed = replace(e, **{column: other})
        assert not same(table, names, replace(table, collective=replace(table.collective, ensures=changed)))


# ---- what the language does not say ---------------------------------------------------------------------------------

RECV = {"op": "recv", "rank": 1, "peer": 0, "buffer": "data"}
TO = {"op": "send", "rank": 1, "peer": 2}


@pytest.mark.parametrize("rows, why", [
    ([{**RECV, "buffer": None, "chunk": 0}], "neither stored nor passed on"),
    ([{**RECV, "chunk": 0}, {**RECV, "chunk": 1}, {**TO, "of": 1}, {**TO, "of": 0}],
     "in another order than they arrive"),
    ([{**RECV, "chunk": 0, "chan": "a", "step": 0}, {**TO, "of": 0, "step": 0, "chan": "x"},
      {**RECV, "chunk": 1, "chan": "b", "step": 1}, {**TO, "of": 2, "step": 1, "chan": "x"}], "on one channel"),
    ([{"op": "record", "rank": 0, "step": k, "event": "e"} for k in range(2)], "recorded more than once"),
])
def test_what_cannot_be_said_is_said(rows, why):
    with pytest.raises(SchedError) as caught:
        lift.source(allreduce(rows, 3, 2))
    (found,) = caught.value.diagnostics
    assert found.code == "SL808" and why in found.message and "rank" in found.message


def test_nothing_is_combined_where_there_is_no_operator():
    rows = [{"op": "reduce", "rank": 1, "buffer": "data", "chunk": 0, "from_buffer": "data", "from_chunk": 1}]
    table = replace(allreduce(rows, 2, 2), collective=Collective("broadcast", root=0))
    with pytest.raises(SchedError) as caught:
        lift.source(table)
    (found,) = caught.value.diagnostics
    assert found.code == "SL808" and found.message.endswith("of the collective, and broadcast has none")


def test_messages_passed_on_among_others_keep_their_order():
    """The fused send goes out before the plain one on the same connection, so it must be written first."""
    comes_back(allreduce([
        {**RECV, "chunk": 0}, {**TO, "of": 0}, {**TO, "buffer": "data", "chunk": 1},
        {"op": "send", "rank": 0, "peer": 1, "buffer": "data", "chunk": 0},
        {"op": "recv", "rank": 2, "peer": 1, "step": 0, "buffer": "data", "chunk": 0},
        {"op": "recv", "rank": 2, "peer": 1, "step": 1, "buffer": "data", "chunk": 1}], 3, 2))


# ---- the check ------------------------------------------------------------------------------------------------------


def test_the_check_sees_every_change():
    """The check of the text that is given out: any changed number, and names that do not tell things apart, are
    seen."""
    table = example("allreduce/ring.sched", 4, channels=2)
    names = Renamed([table.streams[k] for k in table.stream], [table.streams[k] for k in table.chan],
                    [-1] * len(table), [b.name for b in table.buffers])
    assert same(table, names, table)
    for column in ("rank", "peer", "chunk", "step", "op"):
        changed = getattr(table, column).copy()
        changed[5] = (changed[5] + 1) % 3
        assert not same(table, names, table.with_columns(**{column: changed})), column
    assert not same(table, replace(names, stream=["0"] * len(table)), table)
    swapped = np.arange(len(table))
    swapped[[0, 9]] = 9, 0
    assert same(table, names, table.with_columns(**table.take(swapped))) == (
        [names.stream[k] for k in swapped] == list(names.stream))
    assert not same(table, names, replace(table, ranks=5))
    assert not same(table, names, replace(table, collective=replace(table.collective, op="max")))


# ---- the command ----------------------------------------------------------------------------------------------------


def test_compile_writes_source(tmp_path, capsys):
    (tmp_path / "t.json").write_text(dumps(ring(4)))
    out = tmp_path / "ring.sched"
    assert main(["compile", str(tmp_path / "t.json"), "--target", "sched", "-o", str(out)]) == 0
    assert main(["fmt", "--check", str(out)]) == 0
    assert main(["diff", str(tmp_path / "t.json"), str(out)]) == 0
    assert main(["verify", str(out)]) == 0
    capsys.readouterr()
    (tmp_path / "d.json").write_text(dumps(allreduce([{**RECV, "buffer": None, "chunk": 0}], 2)))
    assert main(["compile", str(tmp_path / "d.json"), "--target", "sched"]) == 2
    assert "SL808" in capsys.readouterr().err
