"""The reference: expected results by hand, and bounds that are neither exceeded nor idle."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedlang.backends.numpy import backend
from schedlang.ir.buffers import standard_buffers
from schedlang.ir.build import table_from_rows
from schedlang.ir.layout import Layout
from schedlang.ir.table import Collective
from schedlang.running import reference
from schedlang.running.binding import bind
from schedlang.running.dtypes import DTYPES
from tests import tables
from tests.backends.worlds import some_inputs


def of(name: str, ranks: int = 3, inplace: bool = True, **arguments):
    """A table without rows: the reference asks only what the collective is."""
    chunks = 1 if name in ("allreduce", "reduce", "broadcast") else ranks
    collective = Collective(name, inplace=inplace, **arguments)
    return table_from_rows([], ranks=ranks, chunks=chunks, collective=collective,
                           buffers=standard_buffers(collective, ranks, chunks))


A, B, C = np.array([1, 2, 3]), np.array([10, 20, 30]), np.array([100, 200, 300])


@pytest.mark.parametrize("table,inputs,outputs", [
    (of("allreduce", op="sum"), 3 * [{"data": A}], 3 * [{"data": 3 * A}]),
    (of("allreduce", op="sum", inplace=False), 3 * [{"input": A}], 3 * [{"output": 3 * A}]),
    (of("reduce", op="max", root=1), [{"data": A}, {"data": C}, {"data": B}], [{}, {"data": C}, {}]),
    (of("broadcast", root=2), [{}, {}, {"data": B}], 3 * [{"data": B}]),
    (of("allgather", inplace=False), [{"input": A}, {"input": B}, {"input": C}], 3 * [{"output": np.r_[A, B, C]}]),
    (of("allgather"), [{"data": A}, {"data": B}, {"data": C}], 3 * [{"data": np.r_[A, B, C]}]),
    (of("reduce_scatter", op="sum"), 3 * [{"data": A}], [{"data": 3 * A[[r]]} for r in range(3)]),
    (of("scatter", root=1, inplace=False), [{}, {"input": B}, {}], [{"output": B[[r]]} for r in range(3)]),
    (of("gather", root=2, inplace=False), [{"input": A}, {"input": B}, {"input": C}],
     [{}, {}, {"output": np.r_[A, B, C]}]),
    (of("alltoall", inplace=False), [{"input": A}, {"input": B}, {"input": C}],
     [{"output": np.array([A[r], B[r], C[r]])} for r in range(3)]),
    (of("alltoallv", ranks=2, inplace=False, counts=np.array([[1, 2], [0, 3]])), [{"input": A}, {"input": B}],
     [{"output": A[:1]}, {"output": np.r_[A[1:], B]}]),
    (of("allgatherv", ranks=2, inplace=False, counts=np.array([2, 1])), [{"input": A[:2]}, {"input": B[:1]}],
     2 * [{"output": np.r_[A[:2], B[:1]]}]),
    (of("reduce_scatterv", ranks=2, op="sum", inplace=False, counts=np.array([2, 1])), [{"input": A}, {"input": B}],
     [{"output": (A + B)[:2]}, {"output": (A + B)[2:]}]),
], ids=lambda value: value.collective.name if hasattr(value, "collective") else "")
def test_expected(table, inputs, outputs):
    found = reference.expected(table, inputs)
    assert [set(here) for here in found] == [set(here) for here in outputs]
    for here, wanted in zip(found, outputs, strict=True):
        for name, array in wanted.items():
            assert here[name].tolist() == array.tolist()
    assert reference.compare(table, inputs, found).ok


def test_integers_wrap_round_and_averages_truncate():
    table = of("allreduce", ranks=2, op="sum")
    inputs = [{"data": np.array([100, -7], np.int8)}, {"data": np.array([100, 2], np.int8)}]
    assert reference.expected(table, inputs)[0]["data"].tolist() == [-56, -5]
    assert reference.expected(table, inputs, "avg")[0]["data"].tolist() == [-28, -2]


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("op", ["sum", "avg", "prod"])
def test_bounds_hold_and_are_not_idle(name, op):
    """A ring's results stay within the bound and come near it; the same results off by the bound's double do not."""
    table = tables.ring(8)
    inputs = some_inputs(table, Layout(table, 5000), DTYPES[name].numpy, 3)
    outputs = backend.run(table, inputs, op=op)
    found = reference.compare(table, inputs, outputs, op)
    assert found.ok and 0.1 < found.share <= 1 and found.compared == 8 * 5000
    spoilt = [{"data": here["data"].copy()} for here in outputs]
    spoilt[5]["data"][1234] *= 1 + 40 * DTYPES[name].roundoff
    spoilt[5]["data"][1234] += 1
    found = reference.compare(table, inputs, spoilt, op)
    assert found.wrong == 1 and not found.ok and found.worst is not None
    assert (found.worst[0].rank, found.worst[0].buffer, found.worst[0].start) == (5, "data", 1234)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(width=16, allow_nan=False), min_size=4, max_size=4))
def test_bounds_hold_for_any_halves(values):
    """Cancellation, subnormal numbers, infinities, sums beyond the range."""
    table = tables.ring(4)
    inputs = [{"data": np.array([v], np.float16)} for v in values]
    for op in ("sum", "prod", "avg", "min", "max"):
        assert reference.compare(table, inputs, backend.run(table, inputs, op=op), op).ok


def test_nan_and_infinity_are_results_like_any_other():
    table = tables.ring(2)
    inputs = [{"data": np.array([np.nan, np.inf, np.inf, 1.0])}, {"data": np.array([1.0, 1.0, -np.inf, 1.0])}]
    outputs = backend.run(table, inputs, op=None)
    assert reference.compare(table, inputs, outputs).ok
    outputs[1]["data"][1] = 5.0
    assert reference.compare(table, inputs, outputs).wrong == 1


def test_large_integers_are_compared_exactly():
    table = tables.ring(2)
    inputs = [{"data": np.array([1 << 62, 5])}, {"data": np.array([1, 6])}]
    outputs = backend.run(table, inputs, op=None)
    outputs[0]["data"][0] += 1
    found = reference.compare(table, inputs, outputs)
    assert found.wrong == 1 and found.largest == 1


def test_bind_counts_elements_beyond_32_bits():
    """Sizes are only numbers until arrays are touched: zero-stride arrays take no memory."""
    table = tables.ring(3)
    huge = np.broadcast_to(np.int8(1), (3 * 10**9 + 1,))
    bound = bind(table, 3 * [{"data": huge}])
    assert bound.elements == 3 * 10**9 + 1
    assert bound.lengths(0, 0, range(3)).tolist() == [10**9 + 1, 10**9, 10**9]
