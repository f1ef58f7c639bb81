"""The CuPy back end on GPUs. Without any, these are skipped; `tests/benchmarks/gpu.sh` runs them and measures."""

import random

import numpy as np
import pytest

from schedlang.backends.cupy import CupyBackend, Options, arranged
from schedlang.backends.numpy import backend as plain
from schedlang.interpret import interpret
from schedlang.ir.layout import Layout
from schedlang.ops import COLLECTIVES, REDUCE_OPS
from schedlang.running import calls
from schedlang.running.binding import bind
from schedlang.running.dtypes import DTYPES
from schedlang.verify import verify
from tests import strategies, tables
from tests.backends.native.test_native import case_of, defined
from tests.backends.torch.shipped import SCHEDULES, shipped, sizes
from tests.backends.worlds import assert_same_bits, some_inputs, some_layout

MISSING = CupyBackend().available()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]
MODES = ("kernel", "streams")


def backend(mode, **more):
    """For a mode that this machine's GPUs know."""
    if mode == "kernel" and arranged(8).apart:
        pytest.skip("the GPUs do not reach each other's memory")
    return CupyBackend(options=Options(mode, **more))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path,name", SCHEDULES, ids=[f"{p}::{n}" for p, n in SCHEDULES])
def test_every_schedule(path, name, mode):
    table = case_of(path, name)
    rng = random.Random(name)
    several = {"blocks": 3, "slice_bytes": 4096} if mode == "kernel" else {}
    for runner in (backend(mode), backend(mode, **several)):
        for seed, layout in enumerate(sizes(table, rng)):
            inputs = some_inputs(table, layout, np.float32, seed)
            wanted = plain.run(table, inputs, op=None)
            for _ in range(2):
                assert_same_bits(runner.run(table, inputs, op=None), wanted)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype(name, mode):
    table, runner = tables.ring(4, 2), backend(mode)
    for op in REDUCE_OPS:
        if defined(op, name):
            for elements in (27, 100_003):
                inputs = some_inputs(table, Layout(table, elements), DTYPES[name].numpy)
                assert_same_bits(runner.run(table, inputs, op=op), plain.run(table, inputs, op=op))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_numbers_below_the_normal_range(name):
    """They are added as they are, and not taken for 0."""
    tiny = np.finfo(np.float32).tiny if name == "bfloat16" else np.finfo(DTYPES[name].numpy).tiny
    a = np.array([tiny / 2, -tiny, tiny, tiny / 4], DTYPES[name].numpy)
    table = tables.ring(2)
    for mode in MODES:
        for op in ("sum", "prod", "min", "max"):
            inputs = [{"data": a}, {"data": a[::-1].copy()}]
            assert_same_bits(backend(mode).run(table, inputs, op=op), plain.run(table, inputs, op=op))


@pytest.mark.parametrize("mode", MODES)
def test_random_schedules(mode):
    rng, clean, runner = random.Random("gpu"), 0, backend(mode)
    while clean < 30:
        table = strategies.working_table(rng, rng.choice(list(COLLECTIVES)), True)
        if interpret(table, "contributions").clean and verify(table).ok:
            clean += 1
            inputs = some_inputs(table, some_layout(table, rng), np.float16, clean)
            assert_same_bits(runner.run(table, inputs, op=None), plain.run(table, inputs, op=None))


def test_launched_ten_thousand_times():
    table = shipped("allreduce/ring.sched", "ring", 4)
    inputs = some_inputs(table, Layout(table, 1003), np.int32)
    seconds, got = backend("kernel").timed(table, inputs, bind(table, inputs), op=None, repeat=10_000)
    assert len(seconds) == 10_000
    assert_same_bits(got, plain.run(table, inputs, op=None))


def test_a_kernel_in_a_graph():
    """Flags count on, so a captured launch can be launched again and again: of a broadcast, whose result stays."""
    table = shipped("broadcast/chain.sched", "chain_broadcast", 4)
    runner = backend("kernel", devices=(0,))
    inputs = some_inputs(table, Layout(table, 100_003), np.float32)
    wanted = plain.run(table, inputs, op=None)
    assert_same_bits(runner.run(table, inputs, op=None), wanted)
    [kept] = runner._kept
    buffers, prepared = kept.ready(table, bind(table, inputs), DTYPES["float32"])
    stream = kept.streams[0]
    stream.begin_capture()
    kept.runner.start(prepared)
    graph = stream.end_capture()
    for _ in range(100):
        graph.launch(stream)
    stream.synchronize()
    assert_same_bits(buffers.results(None), wanted)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("library", ["cupy", "torch"])
@pytest.mark.parametrize("op", ["sum", "avg"])
def test_arrays_on_gpus(library, mode, op):
    lib = pytest.importorskip(library)
    if library == "torch" and not lib.cuda.is_available():
        pytest.skip("this build of torch has no CUDA")
    table, runner = tables.ring(4), backend(mode)
    inputs = some_inputs(table, Layout(table, 1000), np.float32)
    wanted = plain.run(table, inputs, op=op)
    put = lib.asarray if library == "cupy" else lambda a: lib.from_numpy(a).cuda()
    got = calls.call(table, [put(here["data"]) for here in inputs], runner, op=op)
    back = [a.get() if library == "cupy" else a.cpu().numpy() for a in got]
    assert_same_bits([{"data": a} for a in back], wanted)
