"""Who holds what: the symbolic walk and its pictures."""

from dataclasses import replace

import pytest

from schedlang.ir.build import table_from_rows
from schedlang.ir.table import Buffer, Collective
from schedlang.render.holdings import walk
from schedlang.render.picture import Picture, rank_lines
from schedlang.render.style import Style, width
from tests.tables import allreduce, ring


def last(table):
    *_, state = walk(table).states()
    return state


def picture(table, columns=100, color=False, wanted=None):
    return list(Picture(table, walk(table), columns=columns, style=Style(color)).lines(wanted))


@pytest.mark.parametrize(("ranks", "channels"), [(1, 1), (2, 1), (5, 1), (4, 3)])
def test_ring_ends_with_everything_once(ranks, channels):
    table = ring(ranks, channels)
    found = walk(table)
    assert len(found.rounds) == 2 * (ranks - 1) and not found.stuck
    assert sorted(row for step in found.rounds for row in step.rows) == list(range(len(table)))
    for (_, _, chunk), value in last(table).items():
        assert value == {(rank, 0, chunk): 1 for rank in range(ranks)}


def test_a_step_reads_before_it_writes():
    swap = [dict(op=op, rank=r, peer=1 - r, buffer="data", chunk=0, step=0) for r in (0, 1) for op in ("send", "recv")]
    assert last(allreduce(swap, 2)) == {(0, 0, 0): {(1, 0, 0): 1}, (0, 1, 0): {(0, 0, 0): 1}}


def test_reductions_of_one_step_add_up_and_repetition_shows():
    rows = [dict(op="send", rank=1, peer=0, buffer="data", chunk=0, step=0),
            dict(op="send", rank=1, peer=0, buffer="data", chunk=0, step=0),
            dict(op="reduce_recv", rank=0, peer=1, buffer="data", chunk=0, step=0),
            dict(op="reduce_recv", rank=0, peer=1, buffer="data", chunk=0, step=0)]
    table = allreduce(rows, 2)
    assert last(table)[0, 0, 0] == {(0, 0, 0): 1, (1, 0, 0): 2}
    assert any("0+2*1" in line for line in picture(table))


def test_fused_receive_passes_on_the_sum():
    rows = [dict(op="send", rank=0, peer=1, buffer="data", chunk=0, step=0),
            dict(op="reduce_recv", rank=1, peer=0, buffer=None, from_buffer="data", from_chunk=0, step=0),
            dict(op="send", rank=1, peer=2, buffer=None, of=1, step=0),
            dict(op="recv", rank=2, peer=1, buffer="data", chunk=0, step=0)]
    found = walk(allreduce(rows, 3))
    assert len(found.rounds) == 1
    state = last(allreduce(rows, 3))
    assert state[0, 2, 0] == {(0, 0, 0): 1, (1, 0, 0): 1}
    assert state[0, 1, 0] == {(1, 0, 0): 1}, "a fused receive with no buffer stores nothing"
    shown = "\n".join(picture(allreduce(rows, 3)))
    assert "0 -> 1: + data[0], not kept" in shown and "nothing +=" not in shown
    found = list(rank_lines(allreduce(rows, 3), 1, None, Style(False)))
    assert any("reduce data[0] from 0, not kept" in line for line in found)


def test_what_is_passed_on_alone_names_no_place():
    rows = [dict(op="send", rank=0, peer=1, buffer="data", chunk=0, step=0),
            dict(op="recv", rank=1, peer=0, buffer=None, step=0),
            dict(op="send", rank=1, peer=2, buffer=None, of=1, step=0),
            dict(op="recv", rank=2, peer=1, buffer="data", chunk=0, step=0)]
    assert "0 -> 1: not kept" in "\n".join(picture(allreduce(rows, 3)))
    assert any("recv from 0, not kept" in line for line in rank_lines(allreduce(rows, 3), 1, None, Style(False)))


def test_events_order_streams_and_take_no_round():
    rows = [dict(op="copy", rank=0, stream="b", step=1, from_buffer="tmp", from_chunk=0, buffer="data", chunk=0),
            dict(op="wait", rank=0, stream="b", step=0, event="e"),
            dict(op="copy", rank=0, stream="a", step=0, from_buffer="data", from_chunk=0, buffer="tmp", chunk=0),
            dict(op="record", rank=0, stream="a", step=1, event="e")]
    found = walk(allreduce(rows, 1, scratch=[("tmp", 1)]))
    assert [step.rows for step in found.rounds] == [(2,), (0,)]


def test_what_is_stuck_is_told():
    rows = [dict(op="recv", rank=0, peer=1, buffer="data", chunk=0, step=0),
            dict(op="wait", rank=1, event="e", step=0),
            dict(op="send", rank=1, peer=0, buffer="data", chunk=0, step=1)]
    table = allreduce(rows, 2)
    assert walk(table).stuck == (0, 1)
    drawn = "\n".join(picture(table))
    assert "wait e" in drawn and "recv data[0] from 1" in drawn


def test_uninitialised_memory_gives_no_value():
    rows = [dict(op="reduce", rank=0, step=0, from_buffer="tmp", from_chunk=0, buffer="data", chunk=0)]
    table = allreduce(rows, 1, scratch=[("tmp", 1)])
    assert last(table)[0, 0, 0] is None
    assert any(line.startswith("rank 0") and "?*" in line for line in picture(table))
    assert any("? from unwritten memory" in line for line in picture(table))
    assert "?" not in "".join(picture(allreduce([], 1)))


@pytest.mark.parametrize(("name", "inplace", "held"), [
    ("broadcast", True, {(0, 1)}), ("allgather", True, {(0, 0), (1, 1), (2, 2)}), ("reduce_scatter", True, None),
])
def test_the_beginning(name, inplace, held):
    table = table_from_rows([], ranks=3, chunks=3, collective=Collective(name, root=1, inplace=inplace),
                            buffers=[Buffer("data", 1 if name == "broadcast" else 3, role="data")])
    expected = {(c, r) for r in range(3) for c in range(3)} if held is None else held
    assert {(c, r) for _, r, c in walk(table).start} == expected


def test_root_only_input():
    table = table_from_rows([], ranks=2, chunks=2, collective=Collective("scatter", root=1, inplace=False),
                            buffers=[Buffer("input", 2, role="input", only=1), Buffer("output", 1, role="output")])
    assert set(walk(table).start) == {(0, 1, 0), (0, 1, 1)}


def test_picture_of_a_ring():
    found = picture(ring(3), wanted=range(1))
    assert found[0] == "ring: allreduce on 3 ranks, 4 steps"
    assert found[found.index("at the start"):] == [
        "at the start",
        "        data[0]  data[1]  data[2]",
        "rank 0  0        0        0",
        "rank 1  1        1        1",
        "rank 2  2        2        2",
        "",
        "step 0  c=0, s=0",
        "  0 -> 1: data[0] +=   1 -> 2: data[1] +=   2 -> 0: data[2] +=",
        "        data[0]  data[1]  data[2]",
        "rank 0  0        0        0+2*",
        "rank 1  0+1*     1        1",
        "rank 2  2        1+2*     2",
    ]


def test_chosen_steps_begin_with_the_state_before_them():
    found = picture(ring(3), wanted=range(2, 3))
    assert "before step 2" in found and "step 2  c=0, s=0" in found
    assert not any(line.startswith(("step 1", "step 3", "at the start")) for line in found)
    assert not any(line.startswith("step") for line in picture(ring(3), wanted=range(90, 91)))


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_pictures_fit_the_terminal(columns):
    for line in picture(ring(6), columns=columns)[3:]:
        assert width(line) <= columns
    many = picture(ring(40), columns=columns, wanted=range(50, 51))
    assert len(many) < 150 and any(line.startswith("  and ") for line in many)


def test_colour_marks_what_changed():
    assert any("\x1b[1;32m0+2\x1b[0m" in line for line in picture(ring(3), color=True))


def test_barrier_shows_who_has_heard_of_whom():
    rows = [row for k in range(2) for r in range(3) for row in (
        dict(op="send", rank=r, peer=(r + (1 << k)) % 3, buffer="data", chunk=0, step=k),
        dict(op="recv", rank=r, peer=(r - (1 << k)) % 3, buffer="data", chunk=0, step=k))]
    table = replace(allreduce(rows, 3), collective=Collective("barrier"))
    assert {frozenset(r for r, _, _ in value) for value in last(table).values()} == {frozenset(range(3))}


def test_one_ranks_own_operations():
    found = list(rank_lines(ring(3), 1, None, Style(False)))
    assert found[0] == "ring: rank 1 of 3, 8 operations"
    assert found[2:6] == [
        "stream 0",
        "  step 0    reduce data[0] from 0                    id 1, c=0, s=0, r=0",
        "            send data[1] to 2                        id 2, c=0, s=0, r=1",
        "  step 1    reduce data[2] from 0                    id 7, c=0, s=1, r=0",
    ]
    assert len(list(rank_lines(ring(3), 1, range(1, 2), Style(False)))) == 5
    assert list(rank_lines(ring(1), 0, None, Style(False))) == ["ring: rank 0 of 1, 0 operations"]


def test_large_tables_are_refused():
    with pytest.raises(ValueError, match="too many to draw"):
        walk(ring(256))
