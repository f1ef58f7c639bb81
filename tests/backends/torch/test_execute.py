"""One rank's part over Gloo, in processes: the bits of the NumPy back end, for every operator and dtype."""

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from schedlang.backends.numpy import backend
from schedlang.backends.torch.execute import Executor
from schedlang.backends.torch.operators import combiner, dtype_of
from schedlang.diagnostics import SchedError
from schedlang.ir.layout import Layout
from schedlang.ops import REDUCE_OPS
from schedlang.running import dtypes
from tests.backends.torch.memory_wire import MemoryWire, World
from tests.backends.torch.ranks import in_memory, late, over_group, repeatedly
from tests.backends.torch.shipped import SCHEDULES, shipped, sizes
from tests.backends.worlds import assert_same_bits, some_inputs

DTYPES = list(dtypes.DTYPES.values())


def operators(dtype: dtypes.Dtype) -> list[str]:
    found = []
    for op in REDUCE_OPS:
        try:
            dtypes.require_defined(op, dtype)
        except SchedError:
            continue
        found.append(op)
    return found


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_shipped_schedules(world, ranks):
    """All in one go: a pool answers a call in some ten milliseconds."""
    ran = 0
    for path, name in SCHEDULES:
        table = shipped(path, name, ranks)
        if table is None:
            continue
        rng = random.Random(name)
        layout = rng.choice(sizes(table, rng))
        inputs = some_inputs(table, layout, np.float32, ranks)
        got = world(ranks).run(over_group, table, layout.elements, inputs)
        assert_same_bits(got, backend.run(table, inputs, op=None))
        ran += 1
    assert ran >= 20


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_every_operator(dtype):
    """Every dtype and operator, as NumPy computes it; chunks of two lengths."""
    table = shipped("allreduce/ring.sched", "ring", 3)
    for op in operators(dtype):
        for elements in (0, 2, 37):
            inputs = some_inputs(table, Layout(table, elements), dtype.numpy, elements)
            got = in_memory(table, Layout(table, elements), inputs, elements, op=op)
            assert_same_bits(got, backend.run(table, inputs, op=op))


@pytest.mark.parametrize("name,wide", [("float16", "float32"), ("bfloat16", "float32"), ("float32", "float64")])
@pytest.mark.parametrize("op", ["sum", "avg"])
def test_accumulating_in_a_wider_dtype(name, wide, op):
    table = shipped("reduce_scatter/ring.sched", "ring_reduce_scatter", 4)
    layout = Layout(table, 52)
    inputs = some_inputs(table, layout, dtypes.named(name).numpy, 3)
    got = in_memory(table, layout, inputs, 5, op=op, accumulate=wide)
    assert_same_bits(got, backend.run(table, inputs, op=op, accumulate=wide))


def test_dtypes_over_gloo(world):
    """Also those that Gloo itself cannot add."""
    table = shipped("allreduce/halving_doubling.sched", "halving_doubling", 4)
    for dtype in DTYPES:
        op = "max" if dtype.kind == "b" else "sum"
        inputs = some_inputs(table, Layout(table, 11), dtype.numpy, 1)
        assert_same_bits(world(4).run(over_group, table, 11, inputs, op=op), backend.run(table, inputs, op=op))


@pytest.mark.parametrize("op", ["sum", "avg"])
def test_an_executor_serves_many_calls(world, op):
    table = shipped("allreduce/ring.sched", "ring", 4)
    for got in world(4).run(repeatedly, table, [5, 1000, 5, 0, 100_000, 7, 5], op):
        assert got == [True] * 7


def test_a_barrier_waits_for_the_last(world):
    table = shipped("barrier/dissemination.sched", "dissemination", 3)
    came, left = zip(*world(3).run(late, table, 1))
    assert max(came) <= min(left)


def refused(call: Callable, code: str) -> str:
    with pytest.raises(SchedError) as raised:
        call()
    assert [d.code for d in raised.value.diagnostics] == [code]
    return str(raised.value)


def test_tensors_that_do_not_fit():
    table = shipped("allreduce/ring.sched", "ring", 2)
    executor = Executor(table, 0, MemoryWire(World(2, 0), 0))

    def with_tensor(tensor: torch.Tensor, **how: str) -> Callable[[], None]:
        return lambda: executor.run({"data": tensor}, 4, **how)

    assert "5 elements, not 4" in refused(with_tensor(torch.zeros(5)), "SL815")
    assert "contiguous" in refused(with_tensor(torch.zeros(8)[::2]), "SL815")
    assert "dimension" in refused(with_tensor(torch.zeros(2, 2)), "SL815")
    assert "complex64" in refused(with_tensor(torch.zeros(4, dtype=torch.complex64)), "SL803")
    assert "bits" in refused(with_tensor(torch.zeros(4), op="band"), "SL803")


def test_what_cannot_be_computed_on_a_gpu():
    message = refused(lambda: combiner("sum", dtypes.named("uint16"), torch.device("cuda")), "SL814")
    assert "torch has no sum of uint16 on cuda" in message


def test_names_of_dtypes():
    for dtype in DTYPES:
        assert dtype_of(torch.zeros(1, dtype=getattr(torch, dtype.name))) == dtype
