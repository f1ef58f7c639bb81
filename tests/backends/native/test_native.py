"""The native back end, ranks as threads: results are those of the NumPy back end, bit for bit."""

import errno
import itertools
import random
import threading

import numpy as np
import pytest

from schedlang.backends.native import NativeBackend, Options, backend, compiler
from schedlang.backends.native.launching import Kind, Mode, Stop, failure
from schedlang.backends.native.program import program
from schedlang.backends.numpy import backend as plain
from schedlang.diagnostics import SchedError
from schedlang.interpret import backend as interpreter
from schedlang.interpret import interpret
from schedlang.ir.layout import Layout
from schedlang.ops import COLLECTIVES, REDUCE_OPS, Op
from schedlang.running.dtypes import DTYPES, require_defined
from schedlang.verify import verify
from tests import strategies, tables
from tests.backends.torch.shipped import SCHEDULES, shipped, sizes
from tests.backends.worlds import assert_same_bits, some_inputs, some_layout

QUICK = ("-O0",)
"""Flags that compile sooner."""

FIBERS = Options(mode=Mode(kind=Kind.FIBERS, threads=3, delays=3, seed=1), blocks=2, slice_bytes=16, flags=QUICK)
"""Many threads in a random order, many slices, and who waits for nobody's flag is told at once."""


def defined(op: str, name: str) -> bool:
    try:
        require_defined(op, DTYPES[name])
    except SchedError:
        return False
    return True


def case_of(path, name):
    """A schedule for an odd number of ranks, or as many as it needs."""
    return next(table for ranks in (3, 4, 5, 2, 6, 8, 1) if (table := shipped(path, name, ranks)) is not None)


@pytest.mark.parametrize("path,name", SCHEDULES, ids=[f"{p}::{n}" for p, n in SCHEDULES])
def test_every_schedule(path, name):
    table = case_of(path, name)
    rng = random.Random(name)
    threads, many = NativeBackend(options=Options(flags=QUICK)), NativeBackend(options=FIBERS)
    for seed, layout in enumerate(sizes(table, rng)):
        inputs = some_inputs(table, layout, np.float32, seed)
        wanted = plain.run(table, inputs, op=None)
        assert_same_bits(threads.run(table, inputs, op=None), wanted)
        assert_same_bits(many.run(table, inputs, op=None), wanted)


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype(name):
    table = tables.ring(3, 2)
    for op in REDUCE_OPS if name in ("float16", "int8") else ["sum", "min"]:
        if defined(op, name):
            inputs = some_inputs(table, Layout(table, 27), DTYPES[name].numpy)
            assert_same_bits(backend.run(table, inputs, op=op), plain.run(table, inputs, op=op))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_values_of_all_kinds(name):
    """Every pair of: NaN, infinities, zeros of both signs, numbers below the normal range, the largest, ties."""
    dtype = DTYPES[name].numpy
    tiny = float(np.finfo(np.float32).tiny) if name == "bfloat16" else float(np.finfo(dtype).tiny)
    largest = DTYPES[name].largest
    some = np.array([np.nan, np.inf, -np.inf, 0, -0.0, tiny / 2, -tiny, largest, -largest, 1, 1 + 1 / 256, 1 / 3, 2049])
    a, b = (np.array(x, dtype) for x in zip(*itertools.product(some.astype(dtype), repeat=2), strict=True))
    table = tables.ring(2)
    inputs = [{"data": a}, {"data": b}]
    for op in ("sum", "prod", "min", "max", "avg"):
        got, wanted = backend.run(table, inputs, op=op), plain.run(table, inputs, op=op)
        for mine, other in zip(got, wanted, strict=True):
            x, y = mine["data"], other["data"]
            nan = y != y
            assert ((x != x) == nan).all()
            assert x[~nan].tobytes() == y[~nan].tobytes(), (op, a[~nan & (x != y)], b[~nan & (x != y)])


@pytest.mark.parametrize("name,wide", [("float16", "float32"), ("bfloat16", "float32"), ("float32", "float64")])
@pytest.mark.parametrize("op", ["sum", "avg"])
def test_accumulated(name, wide, op):
    table = tables.ring(5)
    inputs = some_inputs(table, Layout(table, 1003), DTYPES[name].numpy)
    assert_same_bits(backend.run(table, inputs, op=op, accumulate=wide),
                     plain.run(table, inputs, op=op, accumulate=wide))


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_random_schedules(collective):
    """Streams, events, scratch, fused chains, counts above 1, sums in one step: whatever the strategy makes."""
    rng = random.Random(f"native {collective}")
    threads, many = NativeBackend(options=Options(flags=QUICK)), NativeBackend(options=FIBERS)
    clean = 0
    while clean < 3:
        table = strategies.working_table(rng, collective, True)
        if not interpret(table, "contributions").clean or not verify(table).ok:
            continue
        clean += 1
        for seed in range(3):
            inputs = some_inputs(table, some_layout(table, rng), np.float16, seed)
            wanted = interpreter.run(table, inputs, op=None)
            assert_same_bits(threads.run(table, inputs, op=None), wanted)
            assert_same_bits(many.run(table, inputs, op=None), wanted)


@pytest.mark.nightly
@pytest.mark.parametrize("path,name", SCHEDULES, ids=[f"{p}::{n}" for p, n in SCHEDULES])
def test_product(path, name):
    """Every schedule for 1 to 8 ranks, with several dtypes, operators and sizes, in threads that are disturbed, in
    fibers, and again and again."""
    rng = random.Random(f"product {name}")
    disturbed = NativeBackend(options=Options(mode=Mode(delays=20, delay=50, seed=2), slice_bytes=64, flags=QUICK))
    many = NativeBackend(options=FIBERS)
    ran = 0
    for ranks in range(1, 9):
        table = shipped(path, name, ranks)
        if table is None:
            continue
        for dtype in rng.sample(sorted(DTYPES), 1):
            op = rng.choice([op for op in REDUCE_OPS if defined(op, dtype)])
            op = op if COLLECTIVES[table.collective.name].reduces and table.collective.op else None
            for seed, layout in enumerate(sizes(table, rng)):
                inputs = some_inputs(table, layout, DTYPES[dtype].numpy, seed)
                wanted = plain.run(table, inputs, op=op)
                for runner in (backend, disturbed, many, disturbed):
                    assert_same_bits(runner.run(table, inputs, op=op), wanted)
        ran += 1
    assert ran


def test_launched_again_and_again():
    """Flags count on: no launch sees those of the one before, and sizes may change between them."""
    table = tables.ring(4)
    for turn in range(300):
        inputs = some_inputs(table, Layout(table, 1 + turn % 7 * 5), np.int32, turn)
        assert_same_bits(backend.run(table, inputs, op=None), plain.run(table, inputs, op=None))


def test_large_arrays_in_many_slices():
    table = tables.ring(3, 2)
    inputs = some_inputs(table, Layout(table, 3_000_001), np.float32)
    for options in (Options(), Options(blocks=3, slice_bytes=4096)):
        got = NativeBackend(options=options).run(table, inputs, op=None)
        assert_same_bits(got, plain.run(table, inputs, op=None))


def test_called_from_several_threads():
    table = tables.ring(3)
    inputs = [some_inputs(table, Layout(table, 1000), np.float32, seed) for seed in range(8)]
    found = {}

    def call(k):
        found[k] = [backend.run(table, inputs[k], op=None) for _ in range(20)]

    threads = [threading.Thread(target=call, args=(k,)) for k in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, given in enumerate(inputs):
        wanted = plain.run(table, given, op=None)
        assert len(found[k]) == 20
        for got in found[k]:
            assert_same_bits(got, wanted)


@pytest.mark.parametrize("path,name", [("allgather/ring.sched", "ring_all_gather"),
                                       ("broadcast/binomial.sched", "binomial_broadcast"),
                                       ("reduce_scatter/ring.sched", "ring_reduce_scatter")])
def test_results_are_nobody_elses(path, name):
    """They share no memory with inputs, which are only read, nor with results of later runs."""
    table = shipped(path, name, 4)
    inputs = some_inputs(table, Layout(table, 8), np.float32)
    for here in inputs:
        for array in here.values():
            array.flags.writeable = False
    first = backend.run(table, inputs, op=None)
    kept = [{n: a.copy() for n, a in here.items()} for here in first]
    again = backend.run(table, some_inputs(table, Layout(table, 8), np.float32, 1), op=None)
    assert_same_bits(first, kept)
    arrays = [a for some in (first, again, inputs) for here in some for a in here.values()]
    assert not any(np.may_share_memory(a, b) for a, b in itertools.combinations(arrays, 2))


def test_arrays_as_they_come():
    """Parts of larger arrays, backwards, and not aligned: read as they are, or copied."""
    table = shipped("allgather/ring.sched", "ring_all_gather", 2)
    strided, backwards = np.arange(12, dtype=np.int32)[::2], np.arange(6, dtype=np.int32)[::-1]
    odd = np.zeros(6 * 4 + 1, np.uint8)[1:].view(np.int32)
    for a, b in [(strided, backwards), (odd, strided)]:
        name = next(iter(some_inputs(table, Layout(table, 12), np.int32)[0]))
        inputs = [{name: a}, {name: b}]
        assert_same_bits(backend.run(table, inputs, op=None), plain.run(table, inputs, op=None))


@pytest.mark.parametrize("kind,told", [(Kind.THREADS, " for 0.3 seconds"), (Kind.FIBERS, ": no lane can go on")])
def test_who_waits_in_vain_is_told(kind, told):
    """Where a lane does not run, which no schedule does to us; and the next launch is as good as any."""
    mine = NativeBackend(timeout=0.3, options=Options(mode=Mode(kind=kind), flags=QUICK))
    table = shipped("allreduce/ring.sched", "ring", 4)
    inputs = some_inputs(table, Layout(table, 40), np.float32)
    mine.run(table, inputs, op=None)
    [kept] = mine.programs.kept
    lanes = kept.own.lanes
    kept.own.lanes = lanes[1:]                              # rank 0 stays away
    with pytest.raises(SchedError) as caught:
        mine.run(table, inputs, op=None)
    [finding] = caught.value.diagnostics
    assert finding.code == "SL813" and (finding.witness["rank"], finding.witness["peer"]) == (1, 0)
    assert finding.message.startswith(f"rank 1 waits in vain for rank 0{told}: reduce-receive data[0] on rank 1")
    assert finding.location.line == 15 and len(finding.notes) == 2
    kept.own.lanes = lanes
    assert_same_bits(mine.run(table, inputs, op=None), plain.run(table, inputs, op=None))


def test_an_event_that_does_not_come():
    mine = NativeBackend(options=Options(mode=Mode(kind=Kind.FIBERS), flags=QUICK))
    table, rng = tables.ring(2), random.Random(5)
    while not (table.op == Op.WAIT).any() or not verify(table).ok:
        table = strategies.working_table(rng, "allreduce", True)
    waits = np.flatnonzero(table.op == Op.WAIT)
    rank, event = int(table.rank[waits[0]]), int(table.event[waits[0]])
    record = np.flatnonzero((table.op == Op.RECORD) & (table.rank == rank) & (table.event == event))[0]
    inputs = some_inputs(table, some_layout(table, rng), np.float32)
    mine.run(table, inputs, op=None)
    [kept] = mine.programs.kept
    stream = kept.own.program.kernel.programs.index(int(table.stream[record]))
    kept.own.lanes.remove((rank, stream))
    with pytest.raises(SchedError) as caught:
        mine.run(table, inputs, op=None)
    told = [caught.value.diagnostics[0].message, *(note.message for note in caught.value.diagnostics[0].notes)]
    assert any("wait " in text and f"on rank {rank}" in text for text in told), told


@pytest.mark.parametrize("status,why,code,told", [
    (3, Stop.GO, "SL811", "ring has 2 lanes, and the system does not give as many threads"),
    (1, Stop.UNREADABLE, "SL813", "the memory of rank 1 cannot be read any more: No such process"),
    (1, Stop.TIMEOUT, "SL813", "ring did not come to its end for 2 seconds, though no rank waits for another"),
])
def test_other_ends(status, why, code, told):
    made = program(tables.ring(2), DTYPES["float32"], "sum", flags=QUICK)
    [finding] = failure(made, [], why, status, 2.0, error_number=errno.ESRCH, by=1).diagnostics
    assert (finding.code, finding.message) == (code, told) and finding.help


def test_what_does_not_fit_is_refused():
    table = tables.ring(2)
    for inputs, op, code in [([{"data": np.zeros(4, np.float32)}], None, "SL801"),
                             (some_inputs(table, Layout(table, 4), np.float32), "band", "SL803")]:
        with pytest.raises(SchedError) as refused:
            backend.run(table, inputs, op=op)
        assert refused.value.diagnostics[0].code == code


def test_more_than_there_is(monkeypatch):
    monkeypatch.setattr("schedlang.memory.available", lambda: 1000)
    table = tables.ring(2)
    with pytest.raises(MemoryError):
        backend.run(table, some_inputs(table, Layout(table, 400), np.float32), op=None)


def test_programs_of_tables_that_are_gone_are_forgotten():
    mine = NativeBackend(options=Options(flags=QUICK))
    for _ in range(3):
        table = tables.ring(2)
        mine.run(table, some_inputs(table, Layout(table, 4), np.float32), op=None)
    assert len(mine.programs.kept) == 1


def test_without_a_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert backend.available() == "no-such-compiler, which CXX names, is not there or does not run"
    with pytest.raises(SchedError, match="no-such-compiler"):
        compiler.find()
