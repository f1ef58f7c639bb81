"""The NumPy back end against the reference and, bit for bit, against the interpreter."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedlang.backends import numpy as numpy_backend
from schedlang.backends.numpy import backend, tiles
from schedlang.backends.numpy.moves import plan
from schedlang.backends.numpy.temporaries import colour
from schedlang.diagnostics import SchedError
from schedlang.interpret import backend as interpreter
from schedlang.interpret import interpret
from schedlang.ir.build import table_from_rows
from schedlang.ir.layout import Layout
from schedlang.ir.table import Buffer, Collective, Ensures
from schedlang.ops import COLLECTIVES, REDUCE_OPS
from schedlang.running import reference
from schedlang.running.dtypes import DTYPES, require_defined
from tests import strategies, tables
from tests.backends.worlds import assert_same_bits, some_inputs, some_layout

DATA = Buffer("data", 1, role="data")
MODES = ("views", "gather", "tiny tiles", "tiny tiles, gathered")


def in_mode(mode: str, monkeypatch) -> None:
    monkeypatch.setattr(tiles, "VIEWED_BYTES", 1 << 60 if "gather" in mode else 0)
    if "tiny" in mode:
        for name in ("TILE_BYTES", "ROW_BYTES", "FEW_BYTES"):
            monkeypatch.setattr(tiles, name, 12)


def defined(op: str, name: str) -> bool:
    try:
        require_defined(op, DTYPES[name])
    except SchedError:
        return False
    return True


@pytest.mark.parametrize("op,name", [pair for pair in itertools.product(REDUCE_OPS, DTYPES) if defined(*pair)])
def test_every_dtype_and_operator(op, name):
    table = tables.ring(4, 2)
    inputs = some_inputs(table, Layout(table, 27), DTYPES[name].numpy)
    outputs = backend.run(table, inputs, op=op)
    assert reference.compare(table, inputs, outputs, op).ok
    assert_same_bits(outputs, interpreter.run(table, inputs, op=op))


@pytest.mark.parametrize("op,name", [("band", "float32"), ("bxor", "bfloat16"), ("sum", "bool"), ("avg", "bool")])
def test_operators_without_meaning_are_refused(op, name):
    table = tables.ring(2)
    with pytest.raises(SchedError) as refused:
        backend.run(table, some_inputs(table, Layout(table, 2), DTYPES[name].numpy), op=op)
    assert refused.value.diagnostics[0].code == "SL803"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_random_schedules(collective, mode, monkeypatch):
    """Streams, events, scratch, fused chains, counts above 1, sums in one step: whatever the strategy makes."""
    in_mode(mode, monkeypatch)
    rng = random.Random(f"{collective} {mode}")
    clean = 0
    for k in range(40):
        table = strategies.working_table(rng, collective, True)
        dtype = rng.choice([np.float32, np.float16, np.int8, np.uint64])
        inputs = some_inputs(table, some_layout(table, rng), dtype, k)
        if not interpret(table, "contributions").clean:
            continue
        clean += 1
        outputs = backend.run(table, inputs, op=None)
        assert_same_bits(outputs, interpreter.run(table, inputs, op=None))
        assert reference.compare(table, inputs, outputs).ok
    assert clean > 30


@settings(max_examples=60, deadline=None)
@given(ranks=st.integers(1, 6), channels=st.integers(1, 3), elements=st.integers(0, 70),
       op=st.sampled_from(["sum", "avg", "min"]), dtype=st.sampled_from(["float32", "bfloat16", "int16"]))
def test_every_size(ranks, channels, elements, op, dtype):
    table = tables.ring(ranks, channels)
    inputs = some_inputs(table, Layout(table, elements), DTYPES[dtype].numpy, elements)
    outputs = backend.run(table, inputs, op=op)
    assert_same_bits(outputs, interpreter.run(table, inputs, op=op))
    assert reference.compare(table, inputs, outputs, op).ok


@pytest.mark.parametrize("mode", MODES)
def test_a_swap_reads_before_it_writes(mode, monkeypatch):
    in_mode(mode, monkeypatch)
    rows = [{"op": op, "rank": r, "peer": 1 - r, "buffer": "data", "chunk": 0}
            for r in (0, 1) for op in ("send", "recv")]
    ensures = Ensures(*(np.array(x) for x in ([0, 0], [0, 1], [0, 0], [0, 1, 2], [0, 0], [1, 0], [0, 0])))
    table = table_from_rows(rows, ranks=2, collective=Collective("custom", "sum", ensures=ensures), buffers=[DATA])
    first, second = np.arange(5.0), np.arange(5.0) + 10
    outputs = backend.run(table, [{"data": first}, {"data": second}], op=None)
    assert np.array_equal(outputs[0]["data"], second) and np.array_equal(outputs[1]["data"], first)
    assert first[0] == 0 and second[0] == 10, "inputs are only read"


@pytest.mark.parametrize("mode", MODES)
def test_sums_in_one_step_fold_in_row_order(mode, monkeypatch):
    """((old + first) + second): with these values any other order gives another float."""
    in_mode(mode, monkeypatch)
    rows = [{"op": "send", "rank": r, "peer": 0, "buffer": "data", "chunk": 0} for r in (1, 2)]
    rows += [{"op": "reduce_recv", "rank": 0, "peer": r, "buffer": "data", "chunk": 0} for r in (2, 1)]
    table = table_from_rows(rows, ranks=3, collective=Collective("reduce", "sum", 0), buffers=[DATA])
    inputs = [{"data": np.array([x], np.float32)} for x in (1.0, 2.0**-24, -1.0)]
    outputs = backend.run(table, inputs, op=None)
    assert outputs[0]["data"][0] == np.float32(2.0**-24) and outputs[1] == {}


def test_results_share_no_memory_with_inputs():
    table = tables.ring(1)
    inputs = [{"data": np.arange(4)}]
    outputs = backend.run(table, inputs, op=None)
    assert np.array_equal(outputs[0]["data"], inputs[0]["data"])
    assert not np.shares_memory(outputs[0]["data"], inputs[0]["data"])


def test_accumulating_in_float32_rounds_once():
    table = tables.ring(8)
    inputs = some_inputs(table, Layout(table, 4096), np.float16)
    plain = backend.run(table, inputs, op=None)
    wide = backend.run(table, inputs, op=None, accumulate="float32")
    exact = sum(i["data"].astype(np.float64) for i in inputs)
    assert np.array_equal(wide[3]["data"], sum(i["data"].astype(np.float32) for i in inputs).astype(np.float16)) or (
        np.abs(wide[3]["data"] - exact).max() < np.abs(plain[3]["data"] - exact).max())
    assert reference.compare(table, inputs, wide, accumulate="float32").ok
    assert_same_bits(wide, interpreter.run(table, inputs, op=None, accumulate="float32"))


@pytest.mark.parametrize("dtype,wide", [("int32", "float32"), ("float32", "float32x"), ("float64", "float32"),
                                        ("float16", "bfloat16")])
def test_accumulators_that_do_not_hold_all_values_are_refused(dtype, wide):
    table = tables.ring(2)
    with pytest.raises(SchedError) as refused:
        backend.run(table, some_inputs(table, Layout(table, 2), DTYPES[dtype].numpy), op=None, accumulate=wide)
    assert refused.value.diagnostics[0].code == "SL803"


def test_a_value_in_a_shorter_part_is_refused():
    """Chunk 0 of 3 elements moves through chunk 1 of 2; with even sizes it fits."""
    rows = [{"op": "copy", "rank": 0, "buffer": "data", "chunk": 1, "from_buffer": "data", "from_chunk": 0}]
    ensures = None
    table = table_from_rows(rows, ranks=1, chunks=2, collective=Collective("allreduce", "sum", ensures=ensures),
                            buffers=[Buffer("data", 2, role="data")])
    backend.run(table, [{"data": np.arange(4)}], op=None)
    with pytest.raises(SchedError) as refused:
        backend.run(table, [{"data": np.arange(5)}], op=None)
    finding = refused.value.diagnostics[0]
    assert finding.code == "SL802" and "3 elements" in finding.message and "4 or 6 elements" in finding.help


def test_scratch_holds_parts_of_any_length():
    """Through scratch, uneven parts keep their length: chunk 1 of 2 comes back as it went."""
    rows = [{"op": "copy", "rank": 0, "step": 0, "buffer": "s", "chunk": 0, "from_buffer": "data", "from_chunk": 1},
            {"op": "copy", "rank": 0, "step": 1, "buffer": "data", "chunk": 1, "from_buffer": "s", "from_chunk": 0}]
    table = table_from_rows(rows, ranks=1, chunks=2, collective=Collective("allreduce", "sum"),
                            buffers=[Buffer("data", 2, role="data"), Buffer("s", 1)])
    assert backend.run(table, [{"data": np.arange(5)}], op=None)[0]["data"].tolist() == [0, 1, 2, 3, 4]


def test_what_cannot_end_is_refused():
    rows = [{"op": "recv", "rank": r, "step": 0, "peer": 1 - r, "buffer": "data", "chunk": 0} for r in (0, 1)]
    rows += [{"op": "send", "rank": r, "step": 1, "peer": 1 - r, "buffer": "data", "chunk": 0} for r in (0, 1)]
    stuck = tables.allreduce(rows, 2)
    lonely = tables.allreduce(rows[:1], 2)
    for table, code in ((stuck, "SL305"), (lonely, "SL302")):
        with pytest.raises(SchedError) as refused:
            backend.run(table, some_inputs(table, Layout(table, 2), np.float32), op=None)
        assert refused.value.diagnostics[0].code == code


def test_progress_rises_to_one(monkeypatch):
    in_mode("tiny tiles", monkeypatch)
    table, seen = tables.ring(4), []
    backend.run(table, some_inputs(table, Layout(table, 400), np.float32), op=None, progress=seen.append)
    assert seen == sorted(seen) and len(seen) > 10 and seen[-1] == 1


def test_averages_of_integers_truncate():
    values = np.array([[-7], [5], [-128], [127]], np.int8)
    tiles.divide(values, 2)
    assert values[:, 0].tolist() == [-3, 2, -64, 63]
    big = np.array([[255], [7]], np.uint8)
    tiles.divide(big, 300)
    assert big[:, 0].tolist() == [0, 0]
    rows = np.array([[9, 9], [9, 9]], np.int32)
    tiles.divide(rows, np.array([2, 4]))
    assert rows.tolist() == [[4, 4], [2, 2]]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)), max_size=40))
def test_temporary_places_never_overlap_and_are_as_few_as_can_be(intervals):
    start = np.array([a for a, _ in intervals], np.int64)
    end = np.array([a + n for a, n in intervals], np.int64)
    slots, used = colour(start, end)
    alive = [[k for k in range(len(start)) if start[k] <= t <= end[k]] for t in range(30)]
    assert used == max(map(len, alive))
    for here in alive:
        assert len({int(slots[k]) for k in here}) == len(here)


def test_plans_are_kept_while_their_tables_live(monkeypatch):
    made = []
    monkeypatch.setattr(numpy_backend, "plan", lambda table, *rest: made.append(len(table)) or plan(table, *rest))
    backend = numpy_backend.NumpyBackend()

    def run(table):
        return backend.run(table, some_inputs(table, Layout(table, 7), np.int64), op=None)

    first, second = tables.ring(3), tables.ring(4)
    for _ in range(3):
        assert len(run(first)) == 3 and len(run(second)) == 4
    assert len(made) == 2
    del second
    run(tables.ring(5))
    assert [owner() is None for owner, _ in backend._plans] == [True, False], "only of tables that live"
    monkeypatch.setattr(numpy_backend, "MOVES_KEPT", 1)
    run(third := tables.ring(2))
    run(third)
    run(first)
    assert len(made) == 5 and len(backend._plans) == 1


def test_wide_worlds_are_gathered():
    table = tables.ring(64)
    inputs = some_inputs(table, Layout(table, 64 * 5 + 7), np.int64)
    outputs = backend.run(table, inputs, op=None)
    expected = sum(i["data"] for i in inputs)
    assert all(np.array_equal(here["data"], expected) for here in outputs)
