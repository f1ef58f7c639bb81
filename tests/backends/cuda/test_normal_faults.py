"""Mistakes put into normal forms: the executor finds each, so its silence says something. And what a form must not do
is refused."""

from dataclasses import replace

import numpy as np
import pytest

from schedlang.backends.cuda.normal import Normal, normal
from schedlang.diagnostics import SchedError
from schedlang.ir.build import table_from_rows
from schedlang.ir.layout import Layout
from schedlang.ir.table import COLUMNS, NONE, Buffer, Collective, OpTable
from schedlang.ops import Op
from tests.backends.cuda.test_normal import agree
from tests.backends.torch.shipped import shipped
from tests.tables import allreduce

PER_ROW = ("message", "tag", "their_buffer", "their_chunk", "like", "before", "after", "rounds")


def with_columns(form: Normal, **columns: np.ndarray) -> Normal:
    """A form with other values in some columns, its table's or its own."""
    own = {name: column for name, column in columns.items() if name in PER_ROW}
    table = form.table.with_columns(**{n: c.astype(np.int32) for n, c in columns.items() if n in COLUMNS})
    return replace(form, table=table, **own)


def reordered(form: Normal, rows: np.ndarray) -> Normal:
    """A form without fused rows, with its rows in another order."""
    assert (form.table.of == NONE).all()
    taken = replace(form, table=form.table.with_columns(**form.table.take(rows)))
    return with_columns(taken, **{name: getattr(form, name)[rows] for name in PER_ROW})


def found(table: OpTable, form: Normal, what: str, **how) -> None:
    """The form is right as it was made; with its mistake every run says what is wrong."""
    for seed in range(6):
        agree(table, Layout(table, 12), seed, **how)
        with pytest.raises(AssertionError, match=what):
            agree(table, Layout(table, 12), seed, form, **how)


DOUBLING = ("allreduce/recursive_doubling.sched", "recursive_doubling", 8)


def test_a_settle_that_is_left_out():
    table = shipped(*DOUBLING)
    form = normal(table)
    assert form.staging == 2 and set(form.before[form.table.op == Op.COPY].tolist()) == {1}
    found(table, with_columns(form, before=np.full(len(form.table), NONE)), "another block may")


def test_a_settle_that_waits_for_too_few():
    """The third step's snapshot overwrites the first one's, which another rank may still read."""
    table = shipped(*DOUBLING)
    form = normal(table)
    found(table, with_columns(form, before=np.where(form.before == NONE, NONE, form.before + 1)),
          "another block may")


def two_streams() -> OpTable:
    """Stream a sends data[0]; then stream b writes it."""
    return table_from_rows(
        [{"op": "send", "rank": 0, "stream": "a", "step": 0, "buffer": "data", "chunk": 0, "peer": 1},
         {"op": "recv", "rank": 1, "stream": "a", "step": 0, "buffer": "data", "chunk": 0, "peer": 0},
         {"op": "record", "rank": 0, "stream": "a", "step": 1, "event": "sent"},
         {"op": "wait", "rank": 0, "stream": "b", "step": 0, "event": "sent"},
         {"op": "copy", "rank": 0, "stream": "b", "step": 1, "buffer": "data", "chunk": 0, "from_buffer": "input",
          "from_chunk": 0}],
        ranks=2, collective=Collective("custom"),
        buffers=[Buffer("data", 1, role="data"), Buffer("input", 1, role="input")])


def test_a_send_whose_place_another_stream_writes():
    table = two_streams()
    form = normal(table)
    assert form.after.tolist() == [0, NONE, NONE, NONE, NONE]
    found(table, with_columns(form, after=np.full(5, NONE)), "another block may")


def test_a_send_whose_place_another_stream_writes_before_its_own_does():
    first = [{"op": "send", "rank": 0, "stream": "a", "step": 0, "buffer": "data", "chunk": 0, "peer": 1},
             {"op": "recv", "rank": 1, "stream": "a", "step": 0, "buffer": "data", "chunk": 0, "peer": 0}]
    for k, (one, other) in enumerate(("ab", "ba")):     # b writes after a has sent, then a after b has written
        first += [{"op": "record", "rank": 0, "stream": one, "step": 1 + k, "event": "e", "index": k},
                  {"op": "wait", "rank": 0, "stream": other, "step": 2 * k, "event": "e", "index": k},
                  {"op": "copy", "rank": 0, "stream": other, "step": 2 * k + 1, "buffer": "data", "chunk": 0,
                   "from_buffer": "input", "from_chunk": 0}]
    table = table_from_rows(first, ranks=2, collective=Collective("custom"),
                            buffers=[Buffer("data", 1, role="data"), Buffer("input", 1, role="input")])
    form = normal(table)
    assert form.after.max() == 0 == form.after[0] and (form.after[1:] == NONE).all()
    found(table, with_columns(form, after=np.full(len(form.table), NONE)), "another block may")


def test_what_another_stream_wrote_before_is_not_waited_for():
    rows = [{"op": "copy", "rank": 0, "stream": "b", "step": 0, "buffer": "data", "chunk": 0, "from_buffer": "input",
             "from_chunk": 0},
            {"op": "record", "rank": 0, "stream": "b", "step": 1, "event": "written"},
            {"op": "wait", "rank": 0, "stream": "a", "step": 0, "event": "written"},
            {"op": "send", "rank": 0, "stream": "a", "step": 1, "buffer": "data", "chunk": 0, "peer": 1},
            {"op": "recv", "rank": 1, "stream": "a", "step": 0, "buffer": "data", "chunk": 0, "peer": 0}]
    table = table_from_rows(rows, ranks=2, collective=Collective("custom"),
                            buffers=[Buffer("data", 1, role="data"), Buffer("input", 1, role="input")])
    assert (normal(table).after == NONE).all()


def test_a_snapshot_that_is_left_out():
    table = shipped(*DOUBLING)
    form = normal(table)
    sends, receives = form.table.op == Op.SEND, form.table.op == Op.REDUCE_RECV
    found(table, with_columns(
        form, buffer=np.where(sends, 0, form.table.buffer), chunk=np.where(sends, 0, form.table.chunk),
        their_buffer=np.where(receives, 0, form.their_buffer), their_chunk=np.where(receives, 0, form.their_chunk)),
        "another block may")


def there_and_back() -> OpTable:
    """One step: what rank 1 sends comes back to it by rank 0, and goes to rank 0 once more."""
    rows = [{"op": "send", "rank": 1, "buffer": "data", "chunk": 0, "peer": 0},
            {"op": "recv", "rank": 0, "buffer": "data", "chunk": 0, "peer": 1},
            {"op": "send", "rank": 0, "of": 1, "peer": 1},
            {"op": "recv", "rank": 1, "buffer": "data", "chunk": 1, "peer": 0},
            {"op": "send", "rank": 1, "of": 3, "peer": 0, "chan": "again"},
            {"op": "recv", "rank": 0, "buffer": "data", "chunk": 2, "peer": 1, "chan": "again"}]
    return table_from_rows(rows, ranks=2, collective=Collective("custom"), buffers=[Buffer("data", 3, role="data")])


def test_groups_of_a_step_in_another_order():
    """Rank 0 takes the message that comes back to it before the one that it is made of, or both side by side."""
    table = there_and_back()
    form = normal(table)
    assert form.table.step[form.table.rank == 0].tolist() == [0, 0, 1]
    zero = form.table.rank == 0
    for step in (1 - form.table.step, np.zeros(len(form.table))):
        found(table, with_columns(form, step=np.where(zero, step, form.table.step)), "wait for each other")


def test_messages_passed_on_side_by_side_have_tags_of_their_own():
    rows = [row for k in range(2) for row in (
        {"op": "send", "rank": 0, "buffer": "data", "chunk": k, "peer": 1},
        {"op": "recv", "rank": 1, "buffer": "data", "chunk": k, "peer": 0},
        {"op": "send", "rank": 1, "of": 3 * k + k + 1, "peer": 2},
        {"op": "recv", "rank": 2, "buffer": "data", "chunk": k, "peer": 1})]
    table = table_from_rows(rows, ranks=3, collective=Collective("custom"), buffers=[Buffer("data", 2, role="data")])
    form = normal(table)
    passed = (form.table.op == Op.SEND) & (form.table.rank == 1)
    assert form.tags == 2 and form.messages == 2
    assert form.tag[passed].tolist() == [0, 1] and form.message[passed].tolist() == [0, 0]
    first = (form.table.op == Op.SEND) & (form.table.rank == 0)
    assert form.tag[first].tolist() == [0, 0] and form.message[first].tolist() == [0, 1]
    second = passed | (form.table.rank == 2)
    found(table, replace(with_columns(form, tag=np.zeros(len(form.table), np.int64), message=np.where(
        second, form.table.chunk, form.message)), messages=2), "a flag falls", piece=1)


def test_messages_of_two_streams_have_tags_of_their_own():
    """Stream a posts two messages at once; by the first one, rank 1 makes stream b send to rank 2 what follows the
    second one on its connection, and it may do so before stream a has come to that."""
    rows = [{"op": "send", "rank": 0, "stream": "a", "buffer": "data", "chunk": 0, "peer": 1},
            {"op": "recv", "rank": 1, "stream": "a", "buffer": "data", "chunk": 0, "peer": 0},
            {"op": "send", "rank": 0, "stream": "a", "buffer": "data", "chunk": 1, "peer": 2, "chan": "c"},
            {"op": "recv", "rank": 2, "stream": "a", "buffer": "data", "chunk": 1, "peer": 0, "chan": "c"},
            {"op": "send", "rank": 1, "stream": "a", "step": 1, "buffer": "data", "chunk": 0, "peer": 0, "chan": "d"},
            {"op": "recv", "rank": 0, "stream": "b", "buffer": "data", "chunk": 2, "peer": 1, "chan": "d"},
            {"op": "send", "rank": 0, "stream": "b", "step": 1, "buffer": "data", "chunk": 2, "peer": 2, "chan": "c"},
            {"op": "recv", "rank": 2, "stream": "a", "step": 1, "buffer": "data", "chunk": 2, "peer": 0, "chan": "c"}]
    table = table_from_rows(rows, ranks=3, collective=Collective("custom"), buffers=[Buffer("data", 3, role="data")])
    form = normal(table)
    to_two = (form.table.op == Op.SEND) & (form.table.peer == 2)
    assert len({*form.tag[to_two].tolist()}) == 2 and form.message[to_two].tolist() == [0, 0]
    both = to_two | (form.table.rank == 2)
    one = replace(with_columns(form, tag=np.where(both, 0, form.tag), message=np.where(
        both, form.table.chunk - 1, form.message)), messages=2)
    fell = 0
    for seed in range(40):
        agree(table, Layout(table, 12), seed)
        try:
            agree(table, Layout(table, 12), seed, one)
        except AssertionError as wrong:
            assert "a flag falls" in str(wrong)
            fell += 1
    assert fell


def test_sums_into_ranges_that_overlap():
    """Piece by piece, the second message would come to chunk 1 before the first one does."""
    rows = [row for k in range(2) for row in (
        {"op": "send", "rank": 1 + k, "buffer": "data", "chunk": k, "count": 2, "peer": 0},
        {"op": "reduce_recv", "rank": 0, "buffer": "data", "chunk": k, "count": 2, "peer": 1 + k})]
    table = table_from_rows(rows, ranks=3, collective=Collective("custom", "sum"),
                            buffers=[Buffer("data", 3, role="data")])
    form = normal(table)
    mine = form.table.rank == 0
    assert [(Op(int(o)).name, int(b)) for o, b in zip(form.table.op[mine], form.table.buffer[mine], strict=True)] == [
        ("REDUCE_RECV", 0), ("RECV", 1), ("REDUCE", 0)]
    for seed in range(4):
        agree(table, Layout(table, 12), seed)


def test_a_queue_that_is_too_short():
    table = shipped("allreduce/all_pairs.sched", "all_pairs", 4)
    found(table, replace(normal(table), queue=1), "wait for each other")


def test_sums_in_another_order():
    table = shipped("allreduce/all_pairs.sched", "all_pairs", 4)
    form = normal(table)
    found(table, reordered(form, np.arange(len(form.table))[::-1]), r"array\(")


def test_another_length_class():
    table = shipped("allreduce/ring.sched", "ring", 5)
    form = normal(table)
    with pytest.raises(AssertionError):
        for seed in range(4):
            agree(table, Layout(table, 12), seed, with_columns(form, like=form.like + 1))


def test_a_message_read_elsewhere():
    table = shipped("allreduce/ring.sched", "ring", 4)
    form = normal(table)
    found(table, with_columns(form, their_chunk=(form.their_chunk + 1) % 4), r"another block may|array\(")


def test_blocks_whose_shares_depend_on_the_length_of_a_value():
    """Chunks of 7 and 6 elements come to one place one after the other: the second block's share of the second one was
    the first one's before, which its peer may still read."""
    rows = []
    for k in range(2):
        rows += [{"op": "send", "rank": 0, "step": k, "buffer": "data", "chunk": k, "peer": 1},
                 {"op": "recv", "rank": 1, "step": 2 * k, "buffer": "s", "chunk": 0, "peer": 0},
                 {"op": "send", "rank": 1, "step": 2 * k + 1, "buffer": "s", "chunk": 0, "peer": 2},
                 {"op": "recv", "rank": 2, "step": k, "buffer": "data", "chunk": k, "peer": 1}]
    table = allreduce(rows, ranks=3, chunks=2, scratch=[("s", 1)])
    layout = Layout(table, 13)
    for seed in range(6):
        agree(table, layout, seed, blocks=2)
        with pytest.raises(AssertionError, match="another block may"):
            agree(table, layout, seed, blocks=2, shares=lambda at, length, most, blocks: at * blocks // length)


# ---- exact values, and what is refused


def test_a_ring_settles_only_what_comes_round_again():
    form = normal(shipped("allreduce/ring.sched", "ring", 5))
    mine = form.table.rank == 2
    phases = {int(s): int(b) for s, b in zip(form.table.step[mine], form.before[mine], strict=True)}
    assert phases == {0: NONE, 1: NONE, 2: NONE, 3: NONE, 4: 4, 5: 4, 6: 4, 7: 4}
    assert (form.tags, form.messages, form.queue, form.staging) == (1, 8, 17, 0)
    assert (form.after == NONE).all() and (form.rounds == 1).all()
    receives = form.table.op != Op.SEND
    assert (form.their_chunk[receives] == form.table.chunk[receives]).all()
    assert (form.their_buffer[~receives] == NONE).all()
    assert (form.like == form.table.chunk).all()


def test_a_sum_that_is_passed_on_while_others_add_to_its_place():
    """Rank 0's message is passed on as a sum of its own; the place takes rank 2's first, as the rows say."""
    rows = [{"op": "send", "rank": 2, "buffer": "data", "chunk": 0, "peer": 1},
            {"op": "reduce_recv", "rank": 1, "buffer": "data", "chunk": 0, "peer": 2},
            {"op": "send", "rank": 0, "buffer": "data", "chunk": 0, "peer": 1},
            {"op": "reduce_recv", "rank": 1, "buffer": "data", "chunk": 0, "peer": 0},
            {"op": "send", "rank": 1, "of": 3, "peer": 3},
            {"op": "recv", "rank": 3, "buffer": "data", "chunk": 0, "peer": 1}]
    table = table_from_rows(rows, ranks=4, collective=Collective("custom", "sum"),
                            buffers=[Buffer("data", 1, role="data")])
    t = normal(table).table
    mine = t.rank == 1
    place = [(Op(int(o)).name, int(s), int(b), int(c)) for o, s, b, c in zip(
        t.op[mine], t.step[mine], t.buffer[mine], t.chunk[mine], strict=True)]
    assert place == [("COPY", 0, 1, 0),             # data[0] as it was
                     ("REDUCE_RECV", 1, 0, 0),      # rank 2's message, right into its place
                     ("RECV", 1, 1, 1),             # rank 0's
                     ("COPY", 1, 1, 2), ("REDUCE", 1, 1, 2),
                     ("SEND", 2, 1, 2),             # what that makes of the old value
                     ("REDUCE", 2, 0, 0)]
    assert (t.of == NONE).all()
    for seed in range(6):
        agree(table, Layout(table, 5), seed)


@pytest.mark.parametrize("counts", [[[0, 3, 1], [2, 0, 4], [1, 5, 0]], [[0, 0, 0], [7, 0, 1], [0, 2, 3]]])
def test_rows_of_chunks_that_are_unequally_long_are_split(counts):
    """Rank 2 sends on what came from both others: chunks of one message, of which each has a class of its own."""
    rows = [{"op": "copy", "rank": r, "step": 0, "buffer": "output", "chunk": r, "from_buffer": "input",
             "from_chunk": r} for r in range(3)]
    rows += [row for s in range(2) for row in (
        {"op": "send", "rank": s, "step": 1, "buffer": "input", "chunk": 1 - s, "peer": 2},
        {"op": "recv", "rank": 2, "step": 1 + s, "buffer": "s", "chunk": s, "peer": s})]
    rows += [{"op": "send", "rank": 2, "step": 3, "buffer": "s", "chunk": 0, "count": 2, "peer": 0},
             {"op": "recv", "rank": 0, "step": 2, "buffer": "s", "chunk": 0, "count": 2, "peer": 2}]
    table = table_from_rows(rows, ranks=3, collective=Collective("alltoallv", counts=np.array(counts), inplace=False),
                            chunks=3, buffers=[Buffer("input", 3, role="input"), Buffer("output", 3, role="output"),
                                               Buffer("s", 2)])
    form = normal(table)
    last = form.table.step == form.table.step[form.table.rank == 2].max()
    back = last & (form.table.rank == 2)
    assert form.table.count.max() == 1 and form.like[back].tolist() == [1, 3]
    assert form.message[back].tolist() == [0, 1] and len(form.table) == len(table) + 2
    agree(table, Layout(table, None), 0, form)


def sent_first() -> OpTable:
    """Two ranks send data[0] and then receive into it: right only where connections hold messages."""
    rows = [row for r in range(2) for row in (
        {"op": "send", "rank": r, "step": 0, "buffer": "data", "chunk": 0, "peer": 1 - r},
        {"op": "reduce_recv", "rank": r, "step": 1, "buffer": "data", "chunk": 0, "peer": 1 - r})]
    return allreduce(rows, ranks=2)


def test_a_copy_is_sent_of_what_nobody_may_wait_for():
    table = sent_first()
    form = normal(table)
    mine = form.table.rank == 0
    assert [(Op(int(o)).name, int(b)) for o, b in zip(form.table.op[mine], form.table.buffer[mine], strict=True)] == [
        ("COPY", 1), ("SEND", 1), ("REDUCE_RECV", 0)]
    assert form.staging == 1 and (form.before == NONE).all()
    agree(table, Layout(table, 12), 0)


def test_a_copy_is_sent_of_what_another_stream_writes_before_anybody_takes_it():
    """Rank 1 takes stream a's message only after one that stream b sends when it has written a's place."""
    rows = [{"op": "send", "rank": 0, "stream": "a", "step": 0, "buffer": "data", "chunk": 0, "peer": 1},
            {"op": "record", "rank": 0, "stream": "a", "step": 1, "event": "sent"},
            {"op": "wait", "rank": 0, "stream": "b", "step": 0, "event": "sent"},
            {"op": "copy", "rank": 0, "stream": "b", "step": 1, "buffer": "data", "chunk": 0, "from_buffer": "input",
             "from_chunk": 0},
            {"op": "send", "rank": 0, "stream": "b", "step": 2, "buffer": "data", "chunk": 0, "peer": 1},
            {"op": "recv", "rank": 1, "stream": "a", "step": 0, "buffer": "data", "chunk": 0, "peer": 0, "chan": "b"},
            {"op": "recv", "rank": 1, "stream": "a", "step": 1, "buffer": "input", "chunk": 0, "peer": 0, "chan": "a"}]
    table = table_from_rows(rows, ranks=2, collective=Collective("custom"),
                            buffers=[Buffer("data", 1, role="data"), Buffer("input", 1, role="input")])
    form = normal(table)
    assert form.staging == 1 and (form.after == NONE).all()
    for seed in range(4):
        agree(table, Layout(table, 12), seed)


def test_to_wait_for_it_would_be_to_wait_for_ever():
    table = sent_first()
    form = normal(table)
    sends = form.table.op == Op.SEND
    found(table, with_columns(form, before=np.where(form.table.op == Op.REDUCE_RECV, 0, NONE)), "wait for each other")
    found(table, with_columns(
        form, buffer=np.where(sends, 0, form.table.buffer), their_buffer=np.where(sends, NONE, 0)), "another block may")


def test_what_has_no_partner_is_refused():
    with pytest.raises(SchedError) as refused:
        normal(allreduce([{"op": "send", "rank": 0, "buffer": "data", "chunk": 0, "peer": 1}], ranks=2))
    assert [d.code for d in refused.value.diagnostics] == ["SL301"]


def test_an_empty_table_and_one_without_messages():
    empty = normal(allreduce([], ranks=2))
    assert len(empty.table) == 0 and (empty.tags, empty.messages, empty.queue) == (1, 1, 16)
    local = allreduce([{"op": "copy", "rank": 0, "buffer": "data", "chunk": 0, "from_buffer": "data",
                        "from_chunk": 1}], ranks=1, chunks=2)
    assert normal(local).like.tolist() == [1]        # of the value that moves
