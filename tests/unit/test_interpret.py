"""The reference interpreter on tables whose meaning can be said by hand."""

import ml_dtypes
import numpy as np
import pytest

from schedlang.backend import Backend
from schedlang.diagnostics import SchedError
from schedlang.interpret import backend, interpret
from schedlang.interpret.sizes import Sizes
from schedlang.ir.build import table_from_rows
from schedlang.ir.table import Buffer, Collective
from schedlang.source import Place
from tests.tables import allreduce, ring


def send(rank, peer, chunk=0, buffer="data", **more):
    return {"op": "send", "rank": rank, "peer": peer, "buffer": buffer, "chunk": chunk, **more}


def recv(rank, peer, chunk=0, buffer="data", **more):
    return {"op": "recv", "rank": rank, "peer": peer, "buffer": buffer, "chunk": chunk, **more}


def add(rank, peer, chunk=0, buffer="data", **more):
    return {"op": "reduce_recv", "rank": rank, "peer": peer, "buffer": buffer, "chunk": chunk, **more}


def custom(rows, ranks, buffers, **kw):
    return table_from_rows(rows, ranks=ranks, collective=Collective("custom", "sum"), buffers=buffers, **kw)


DATA = [Buffer("data", 1, role="data")]
BROADCAST = {"collective": Collective("broadcast", root=0), "buffers": DATA}


def values(outcome, buffer=0):
    """What chunk 0 of a buffer holds at each rank."""
    ranks = sorted(r for r, b, c in outcome.memory if (b, c) == (buffer, 0))
    return [outcome.memory[r, buffer, 0].tolist() for r in ranks]


@pytest.mark.parametrize("sends", ["rendezvous", "buffered=1", "unlimited"])
@pytest.mark.parametrize("order", ["in-order", "random", "adversarial"])
@pytest.mark.parametrize("inputs", [7, "contributions"])
def test_the_ring_is_clean_whatever_happens_first(sends, order, inputs):
    assert all(interpret(ring(4, 2), inputs, sends=sends, order=order, seed=s).clean for s in range(5))


def test_a_step_reads_before_it_writes():
    swap = custom([send(0, 1), recv(0, 1), send(1, 0), recv(1, 0)], 2, DATA)
    given = [{"data": np.array([10])}, {"data": np.array([20])}]
    for seed in range(10):
        assert values(interpret(swap, given, order="adversarial", seed=seed)) == [[20], [10]]


def test_send_before_receive_all_round_is_a_circle_of_four():
    rows = [send(r, (r + 1) % 4) for r in range(4)] + [add(r, (r - 1) % 4, step=1) for r in range(4)]
    stuck = interpret(allreduce(rows, 4), sends="rendezvous")
    assert not stuck.finished
    assert [(b.row, b.waits_for) for b in stuck.blocked] == [(0, (5,)), (1, (6,)), (2, (7,)), (3, (4,))]
    assert "rank 1 has not posted the receive" in stuck.blocked[0].reason
    assert interpret(allreduce(rows, 4), sends="buffered=1").finished


def test_posted_together_the_same_circle_runs():
    rows = [x for r in range(4) for x in (send(r, (r + 1) % 4), add(r, (r - 1) % 4))]
    assert interpret(allreduce(rows, 4), sends="rendezvous").finished


def test_depth_counts_messages_of_one_connection():
    """Rank 1 receives only after the signal that follows three sends."""
    rows = [send(0, 1, step=s) for s in range(3)] + [send(0, 1, step=3, chan="signal"), recv(1, 0, chan="signal")]
    rows += [recv(1, 0, step=1 + s) for s in range(3)]
    table = table_from_rows(rows, ranks=2, **BROADCAST)
    finishes = [interpret(table, 0, sends=s).finished for s in ("rendezvous", "buffered=2", "buffered=3", "unlimited")]
    assert finishes == [False, False, True, True]


def chain(closed):
    """Fused forwards 0 -> 1 -> 2, from 2 to 0 as well where closed."""
    rows = [{**recv(r, (r - 1) % 3), "step": 0} for r in range(3)]
    rows += [{"op": "send", "rank": r, "peer": (r + 1) % 3, "of": r} for r in range(3)]
    if closed:
        return table_from_rows(rows, ranks=3, **BROADCAST)
    return table_from_rows([send(0, 1), *rows[1:3], {**rows[4], "of": 1}], ranks=3, **BROADCAST)


@pytest.mark.parametrize("sends", ["rendezvous", "buffered=1", "unlimited"])
def test_an_open_chain_of_forwards_goes_through_and_a_closed_one_never_starts(sends):
    assert interpret(chain(closed=False), 0, sends=sends).clean
    stuck = interpret(chain(closed=True), 0, sends=sends)
    assert not stuck.finished and len(stuck.blocked) == 3


def test_a_wait_for_what_is_never_recorded():
    rows = [send(0, 1), recv(1, 0), {"op": "wait", "rank": 1, "event": "e", "step": 1}]
    stuck = interpret(table_from_rows(rows, ranks=2, **BROADCAST))
    assert stuck.never_recorded == (2,) and stuck.blocked[0].reason == "wait e: the event is never recorded"


def test_a_second_record_is_told():
    rows = [{"op": "record", "rank": 0, "event": "e", "step": s} for s in range(2)]
    assert interpret(allreduce(rows, 1)).recorded_twice == (1,)


def test_what_has_no_partner():
    assert interpret(allreduce([send(0, 1), recv(1, 2)], 3)).unmatched == (0, 1)


def test_sizes_that_differ():
    table = allreduce([send(0, 1, count=2), recv(1, 0)], 2, chunks=2)
    assert interpret(table).mismatched == ((0, 1),)


def test_reductions_of_one_step_are_a_left_fold_in_row_order():
    rows = [send(1, 0), add(0, 1), send(2, 0), add(0, 2)]
    given = [{"data": np.array([x], np.float32)} for x in (1.0, 1e8, -1e8)]
    for seed in range(20):
        outcome = interpret(allreduce(rows, 3), given, order="random", seed=seed)
        assert values(outcome)[0] == [0.0]  # (1 + 1e8) - 1e8 in float32; 1 + (1e8 - 1e8) would be 1


def test_every_addition_rounds_to_the_dtype_unless_told_otherwise():
    rows = [send(r, 0) for r in range(1, 4)] + [add(0, r, step=r - 1) for r in range(1, 4)]
    given = [{"data": np.array([x], ml_dtypes.bfloat16)} for x in (256, 1, 1, 1)]
    assert values(interpret(allreduce(rows, 4), given))[0] == [256]  # 257 lies between bfloat16s
    assert interpret(allreduce(rows, 4), given, accumulate="float32").outputs[0]["data"].tolist() == [260]


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "float16", "float64", ml_dtypes.bfloat16])
def test_avg_divides_once_at_the_end_and_integers_truncate(dtype):
    signs = (1, -1) if np.dtype(dtype).kind != "u" else (1, 1)
    given = [{"data": np.array([3, 3 * signs[1]]).astype(dtype)}, {"data": np.array([4, 4 * signs[1]]).astype(dtype)}]
    table = allreduce([send(0, 1), add(1, 0), send(1, 0, step=1), recv(0, 1, step=1)], 2)
    out = interpret(table, given, op="avg").outputs[0]["data"].astype(float).tolist()
    expected = 3.5 if np.dtype(dtype).kind not in "iu" else 3
    assert out == [expected, expected * signs[1]]


def test_two_streams_on_one_location_race():
    rows = [send(0, 1, stream="a"), recv(1, 0, stream="a"), send(0, 1, stream="b"), recv(1, 0, stream="b")]
    outcome = interpret(table_from_rows(rows, ranks=2, **BROADCAST))
    assert [(r.first, r.second, r.location) for r in outcome.races] == [(1, 3, (1, 0, 0))]
    rows = [*rows[:3], {**rows[3], "step": 1}, {"op": "record", "rank": 1, "event": "e", "stream": "a", "step": 1},
            {"op": "wait", "rank": 1, "event": "e", "stream": "b", "step": 0}]
    assert interpret(table_from_rows(rows, ranks=2, **BROADCAST)).clean


@pytest.mark.parametrize("sends", ["rendezvous", "buffered=1", "unlimited"])
def test_order_through_another_rank_counts(sends):
    """Rank 0 sends `data` on stream a and overwrites it on stream b, when word has come back from rank 1. Word of the
    send itself proves that it was posted, not that it is complete; word that was sent after it does."""
    def table(word):
        rows = [send(0, 1, stream="a"), recv(1, 0, stream="a"),
                send(0, 1, 1, stream="a", step=1), recv(1, 0, 1, stream="a", step=1),
                send(1, 0, stream="a", step=1 + word, chan="b"), recv(0, 1, 2, stream="b", chan="b"),
                {"op": "copy", "rank": 0, "stream": "b", "step": 1, "buffer": "data", "chunk": 0,
                 "from_buffer": "data", "from_chunk": 2}]
        if not word:
            rows[3]["step"] = 2
        return custom(rows, 2, [Buffer("data", 3, role="data")])

    assert [(r.first, r.second) for r in interpret(table(word=0), sends=sends).races] == [(0, 6)]
    assert not interpret(table(word=1), sends=sends).races


def test_a_race_shows_in_the_values_of_some_interleaving():
    rows = [send(0, 1), recv(1, 0), {"op": "copy", "rank": 0, "stream": "b", "buffer": "data", "chunk": 0,
                                     "from_buffer": "s", "from_chunk": 0, "step": 1},
            {"op": "copy", "rank": 0, "stream": "b", "buffer": "s", "chunk": 0, "from_buffer": "data", "from_chunk": 1}]
    table = custom(rows, 2, [Buffer("data", 2, role="data"), Buffer("s", 1)])
    given = [{"data": np.array([1, 2])}, {"data": np.array([3, 4])}]
    seen = {values(interpret(table, given, order="adversarial", seed=s))[1][0] for s in range(40)}
    assert seen == {1, 2}


def test_two_lanes_at_one_end_of_a_connection():
    rows = [send(0, 1, stream="a", chan="x"), send(0, 1, stream="b", chan="x"), recv(1, 0, stream="a", chan="x"),
            recv(1, 0, stream="a", chan="x", step=1)]
    assert interpret(table_from_rows(rows, ranks=2, **BROADCAST)).ambiguous == ((0, 1),)


def test_a_step_that_writes_a_location_twice():
    rows = [send(0, 1), recv(1, 0), send(0, 1), add(1, 0)]
    assert interpret(allreduce(rows, 2)).conflicts == ((1, 3, (1, 0, 0)),)
    rows = [send(0, 1), add(1, 0), send(0, 1), add(1, 0)]
    assert interpret(allreduce(rows, 2)).conflicts == ()


def test_uninitialised_reads_name_row_and_location():
    rows = [{"op": "copy", "rank": 0, "buffer": "data", "chunk": 0, "from_buffer": "s", "from_chunk": 0}]
    outcome = interpret(allreduce(rows, 1, scratch=[("s", 1)]))
    assert outcome.uninitialised == ((0, (0, 1, 0)),)


def test_contributions_count_once_whatever_the_operator():
    rows = [send(0, 1), add(1, 0), send(1, 0, step=1), add(0, 1, step=1)]  # rank 0 ends with its own value twice
    table = allreduce(rows, 2)
    assert interpret(table, 3, op="max").clean
    wrong = interpret(table, "contributions").wrong
    assert [(w.location, w.holds) for w in wrong] == [((0, 0, 0), {(0, 0, 0): 2, (1, 0, 0): 1})]


def test_a_barrier_needs_word_from_everyone():
    token = {"collective": Collective("barrier"), "buffers": DATA}
    ring_once = [x for r in range(3) for x in (send(r, (r + 1) % 3), recv(r, (r - 1) % 3))]
    assert interpret(table_from_rows(ring_once, ranks=3, **token)).unordered == ((0, 1), (1, 2), (2, 0))
    twice = ring_once + [{**x, "step": 1} for x in ring_once]
    assert interpret(table_from_rows(twice, ranks=3, **token)).clean
    assert interpret(table_from_rows([], ranks=1, **token)).clean
    assert not interpret(table_from_rows([send(0, 1), recv(1, 0)], ranks=2, **token)).clean


def test_values_keep_their_length_on_the_way():
    """Five elements in two chunks: a scratch part holds the longer one and then the shorter one."""
    rows = [send(0, 1, 0), recv(1, 0, 0, "s"), send(0, 1, 1, step=1), recv(1, 0, 1, "s")]
    rows[3] = recv(1, 0, 0, "s", step=2)
    rows += [{"op": "copy", "rank": 1, "buffer": "data", "chunk": c, "from_buffer": "s", "from_chunk": 0,
              "step": 1 + 2 * c} for c in range(2)]
    table = table_from_rows(rows, ranks=2, chunks=2, collective=Collective("broadcast", root=0),
                            buffers=[Buffer("data", 2, role="data"), Buffer("s", 1)])
    outcome = interpret(table, [{"data": np.arange(5)}, {}])
    assert outcome.clean and outcome.outputs[1]["data"].tolist() == [0, 1, 2, 3, 4]


def test_a_shorter_part_does_not_take_a_longer_value():
    table = allreduce([send(0, 1, 0), recv(1, 0, 1)], 2, chunks=2)
    assert interpret(table, [{"data": np.arange(5)}] * 2).misfits == ((1, (1, 0, 1)),)
    assert not interpret(table, [{"data": np.arange(4)}] * 2).misfits


@pytest.mark.parametrize("elements", [0, 1, 3, 4, 10])
def test_the_back_end_sums(elements):
    given = [{"data": np.arange(elements, dtype=np.float32) + r} for r in range(4)]
    kept = [g["data"].copy() for g in given]
    out = backend.run(ring(4), given, op="sum")
    assert all(np.array_equal(o["data"], 4 * np.arange(elements) + 6) and o["data"].dtype == np.float32 for o in out)
    assert all(np.array_equal(g["data"], k) for g, k in zip(given, kept, strict=True))
    assert isinstance(backend, Backend) and backend.available() is None


def test_bad_input_is_told_not_raised_through():
    for call, code in (
        (lambda: interpret(ring(2), sends="buffered=0"), "SL806"),
        (lambda: interpret(ring(2), order="sideways"), "SL806"),
        (lambda: interpret(ring(2), [{"data": np.ones(2)}]), "SL801"),
        (lambda: interpret(ring(2), [{"data": np.ones(2)}, {"data": np.ones(3)}]), "SL801"),
        (lambda: interpret(ring(2), [{"data": np.ones((2, 2))}] * 2), "SL801"),
        (lambda: interpret(ring(2), [{"data": np.ones(2)}] * 2, op="bxor"), "SL803"),
        (lambda: backend.run(chain(closed=True), [{"data": np.ones(2)}, {}, {}], op=None), "SL305"),
    ):
        with pytest.raises(SchedError) as raised:
            call()
        assert raised.value.diagnostics[0].code == code


@pytest.mark.parametrize("name, buffers, elements", [
    ("allgather", [Buffer("input", 1, role="input"), Buffer("output", 2, role="output")], None),
    ("custom", [Buffer("data", 2, role="data")], 3)])
def test_elements_that_do_not_divide_are_refused_at_the_collective(name, buffers, elements):
    place = Place("x.sched", 2)
    collective = Collective(name, inplace=False, location=place)
    table = table_from_rows([], ranks=2, chunks=2, collective=collective, buffers=buffers)
    with pytest.raises(SchedError) as refused:
        if elements is None:
            Sizes(table, 5)
        else:
            backend.run(table, [{"data": np.zeros(elements)}] * 2, op=None)
    found, = refused.value.diagnostics
    assert found.code == "SL802" and found.location is place
