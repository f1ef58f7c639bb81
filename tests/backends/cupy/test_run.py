"""The host's part of the CuPy back end, both modes, on GPUs in ordinary memory: results are those of the NumPy back
end, bit for bit, in whatever order CUDA lets things happen."""

import random

import numpy as np
import pytest

from schedlang.backends.cupy import CupyBackend, Options
from schedlang.backends.numpy import backend as plain
from schedlang.diagnostics import SchedError
from schedlang.interpret import backend as interpreter
from schedlang.interpret import interpret
from schedlang.ir.layout import Layout
from schedlang.ops import COLLECTIVES
from schedlang.running import calls
from schedlang.running.dtypes import DTYPES
from schedlang.verify import verify
from tests import cupy_double, strategies, tables
from tests.backends.native.test_native import case_of, defined
from tests.backends.torch.shipped import EXAMPLES, SCHEDULES, shipped, sizes
from tests.backends.worlds import assert_same_bits, some_inputs, some_layout
from tests.benchmarks import gpu

MODES = ("kernel", "streams")


def some_world(rng, **more):
    return cupy_double.World(rng.choice([1, 2, 3, 8]), seed=rng.randrange(1000), **more)


def options(mode, rng):
    return Options(mode, blocks=rng.choice([None, 2]), slice_bytes=16) if mode == "kernel" else Options(mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path,name", SCHEDULES, ids=[f"{p}::{n}" for p, n in SCHEDULES])
def test_every_schedule(path, name, mode):
    table = case_of(path, name)
    rng = random.Random(name)
    with cupy_double.installed(some_world(rng, peers=mode == "kernel" or rng.random() < 0.5)):
        backend = CupyBackend(options=options(mode, rng))
        for seed, layout in enumerate(sizes(table, rng)):
            inputs = some_inputs(table, layout, np.float32, seed)
            wanted = plain.run(table, inputs, op=None)
            for _ in range(2):                              # the second time streams are a graph
                assert_same_bits(backend.run(table, inputs, op=None), wanted)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype(name, mode):
    table = tables.ring(3, 2)
    with cupy_double.installed(cupy_double.World(2)):
        backend = CupyBackend(options=Options(mode))
        for op in ("sum", "avg", "bor"):
            if (op == "bor") == (name == "bool") and defined(op, name):
                inputs = some_inputs(table, Layout(table, 27), DTYPES[name].numpy)
                assert_same_bits(backend.run(table, inputs, op=op), plain.run(table, inputs, op=op))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name,wide", [("float16", "float32"), ("bfloat16", "float32"), ("float32", "float64")])
def test_accumulated(name, wide, mode):
    table = tables.ring(3)
    inputs = some_inputs(table, Layout(table, 103), DTYPES[name].numpy)
    with cupy_double.installed(cupy_double.World(3)):
        got = CupyBackend(options=Options(mode)).run(table, inputs, op="avg", accumulate=wide)
    assert_same_bits(got, plain.run(table, inputs, op="avg", accumulate=wide))


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_random_schedules_as_streams(collective):
    """Streams, events, scratch, fused chains, counts above 1, sums in one step: whatever the strategy makes."""
    rng = random.Random(f"cupy {collective}")
    clean = 0
    while clean < 6:
        table = strategies.working_table(rng, collective, True)
        if not interpret(table, "contributions").clean or not verify(table).ok:
            continue
        clean += 1
        with cupy_double.installed(some_world(rng, peers=rng.random() < 0.5)):
            backend = CupyBackend(options=Options("streams"))
            for seed in range(3):
                inputs = some_inputs(table, some_layout(table, rng), np.float16, seed)
                wanted = interpreter.run(table, inputs, op=None)
                assert_same_bits(backend.run(table, inputs, op=None), wanted)


def test_random_schedules_as_a_kernel():
    rng = random.Random("cupy kernel")
    clean = 0
    while clean < 4:
        table = strategies.working_table(rng, rng.choice(list(COLLECTIVES)), True)
        if not interpret(table, "contributions").clean or not verify(table).ok:
            continue
        clean += 1
        with cupy_double.installed(some_world(rng)):
            backend = CupyBackend(options=options("kernel", rng))
            inputs = some_inputs(table, some_layout(table, rng), np.float16)
            assert_same_bits(backend.run(table, inputs, op=None), interpreter.run(table, inputs, op=None))


@pytest.mark.parametrize("mode", MODES)
def test_run_again_and_again(mode):
    """Flags count on; memory is kept for a size, and comes anew for another."""
    table = tables.ring(4)
    with cupy_double.installed(cupy_double.World(2)) as world:
        backend = CupyBackend(options=Options(mode))
        for turn in range(40):
            inputs = some_inputs(table, Layout(table, 1 + turn // 10 * 50), np.int32, turn)
            assert_same_bits(backend.run(table, inputs, op=None), plain.run(table, inputs, op=None))
        if mode == "kernel":
            assert world.launches == 40 * 2 and not world.graph_launches
        else:                                               # of each size the first time is no graph
            assert world.graph_launches == 36 and not world.launches
        assert len(world.compiled) <= 1


def test_repeated_in_one_call():
    table = tables.ring(3)
    inputs = some_inputs(table, Layout(table, 100), np.float32)
    told = []
    with cupy_double.installed(cupy_double.World(1)):
        from schedlang.running.binding import bind

        backend = CupyBackend()
        seconds, got = backend.timed(table, inputs, bind(table, inputs), op=None, repeat=4, progress=told.append)
        assert len(seconds) == 4 and min(seconds) > 0 and told == [0.25, 0.5, 0.75, 1]
        assert_same_bits(got, plain.run(table, inputs, op=None))


def test_streams_that_cannot_be_a_graph():
    table = tables.ring(3)
    with cupy_double.installed(cupy_double.World(2, graphs=False)) as world:
        backend = CupyBackend(options=Options("streams"))
        for seed in range(3):
            inputs = some_inputs(table, Layout(table, 30), np.float32, seed)
            assert_same_bits(backend.run(table, inputs, op=None), plain.run(table, inputs, op=None))
        assert not world.graph_launches


def test_host_buffers_are_on_the_host():
    """`staged_chain` goes from GPU to GPU through pinned memory, by copies alone."""
    table = shipped("broadcast/staged_chain.sched", "staged_chain", 3)
    places = {b.place for b in table.buffers}
    assert places == {"device", "host"}
    with cupy_double.installed(cupy_double.World(3, peers=False)) as world:
        backend = CupyBackend(options=Options("streams"))
        inputs = some_inputs(table, Layout(table, 64), np.float32)
        assert_same_bits(backend.run(table, inputs, op=None), plain.run(table, inputs, op=None))
        assert any(device == -1 for device, _, _ in world.blocks.values())


@pytest.mark.parametrize("devices,of", [(None, (0, 0, 1, 1)), ((1,), (1, 1, 1, 1)), ((1, 0), (1, 1, 0, 0)),
                                        ((1, 0, 0, 1), (1, 0, 0, 1))])
def test_where_ranks_are(devices, of):
    from schedlang.backends.cupy.machine import arranged

    with cupy_double.installed(cupy_double.World(2)) as world:
        assert arranged(4, devices).of == of
        assert world.opened == ({(0, 1), (1, 0)} if len(set(of)) == 2 else set())


def test_more_gpus_than_ranks():
    from schedlang.backends.cupy.machine import arranged

    with cupy_double.installed(cupy_double.World(8)):
        assert arranged(3).of == (0, 1, 2)


def refused(call, *arguments, **more):
    with pytest.raises(SchedError) as caught:
        call(*arguments, **more)
    [finding] = caught.value.diagnostics
    return finding


def run(world, *, size=40, **more):
    table = tables.ring(4)
    with cupy_double.installed(world):
        return CupyBackend(**more).run(table, some_inputs(table, Layout(table, size), np.float32), op=None)


def test_lanes_that_do_not_fit():
    """They are an error before anything is launched: they would wait for each other for ever."""
    found = refused(run, world := cupy_double.World(2, resident=1))
    assert found.code == "SL811"
    assert "2 lanes on GPU 0, which wait for each other, but only 1 blocks fit" in found.message
    assert "--mode streams" in found.help and not world.launches
    found = refused(run, cupy_double.World(1, resident=20), options=Options(blocks=6))
    assert "4 lanes on GPU 0, each of 6 blocks" in found.message and found.help == "take at most --blocks 5"


def test_gpus_that_do_not_reach_each_other():
    found = refused(run, cupy_double.World(2, peers=False))
    assert found.code == "SL804" and "GPU 0 of rank 0 does not reach the memory of GPU 1 of rank 3" in found.message
    assert "--mode streams" in found.help
    run(cupy_double.World(2, peers=False), options=Options(devices=(1,)))


def test_a_kernel_that_does_not_come_to_its_end():
    """The watchdog ends it, and says who waited for whom, where; the back end can be used again."""
    table = shipped("allreduce/ring.sched", "ring", 4)
    inputs = some_inputs(table, Layout(table, 40), np.float32)
    with cupy_double.installed(cupy_double.World(2, lost=[1])) as world:
        backend = CupyBackend(timeout=0.5)
        found = refused(backend.run, table, inputs, op=None)
        assert found.code == "SL813" and found.message.startswith(("rank 0 waits in vain for rank 3 for 0.5 seconds",
                                                                   "rank 1 waits in vain for rank 2 for 0.5 seconds"))
        assert found.location is not None and found.location.file.endswith("ring.sched")
        assert "--timeout" in found.help
        world.lost.clear()
        assert_same_bits(backend.run(table, inputs, op=None), plain.run(table, inputs, op=None))


def test_a_kernel_that_somebody_interrupts(monkeypatch):
    """It ends, and the next run is as good as the first."""
    table = tables.ring(4)
    inputs = some_inputs(table, Layout(table, 40), np.float32)

    def interrupt(seconds):
        monkeypatch.undo()
        raise KeyboardInterrupt

    with cupy_double.installed(cupy_double.World(2, lost=[1])) as world:
        backend = CupyBackend()
        monkeypatch.setattr("schedlang.backends.cupy.kernels.time.sleep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            backend.run(table, inputs, op=None)
        assert not world.pending
        world.lost.clear()
        for _ in range(3):
            assert_same_bits(backend.run(table, inputs, op=None), plain.run(table, inputs, op=None))


def test_memory_that_does_not_suffice():
    found = refused(run, cupy_double.World(2, memory=1 << 20), size=1 << 20)
    assert found.code == "SL802" and "on GPU 0" in found.message and "--devices" in found.help


@pytest.mark.parametrize("devices,told", [((2,), "there is no GPU 2: this machine has GPUs 0 to 1"),
                                          ((0, -1), "there is no GPU -1"), ((), "no GPU is named")])
def test_gpus_that_are_not_there(devices, told):
    found = refused(run, cupy_double.World(2), options=Options(devices=devices))
    assert found.code == "SL806" and told in found.message


@pytest.mark.parametrize("choice,told", [
    ({"mode": "fast"}, "there is no mode fast"), ({"mode": "streams", "blocks": 2}, "of mode kernel"),
    ({"blocks": 0}, "--blocks is 0"), ({"slice": -1}, "--slice is -1"), ({"timeout": float("nan")}, "cannot take nan")])
def test_choices_that_are_none(choice, told):
    found = refused(CupyBackend().chosen, **choice)
    assert found.code == "SL806" and told in found.message


def test_what_is_missing(monkeypatch):
    with cupy_double.installed(cupy_double.World(0)):
        assert CupyBackend().available() == "there is no GPU that can be used (cudaErrorNoDevice)"
    with cupy_double.installed(cupy_double.World(1)) as world:
        assert CupyBackend().available() is None
        from cupy.cuda import nvrtc, runtime

        def no_driver():
            raise runtime.CUDARuntimeError("cudaErrorInsufficientDriver: CUDA driver version is insufficient")

        def no_nvrtc():
            raise RuntimeError("DynamicLibNotFoundError")

        monkeypatch.setattr(nvrtc, "getVersion", no_nvrtc)
        assert "NVRTC, which compiles kernels, cannot be loaded" in CupyBackend().available()
        monkeypatch.setattr(runtime, "getDeviceCount", no_driver)
        assert CupyBackend().available().startswith("there is no NVIDIA driver, or one too old for CUDA 13")
        assert not world.compiled


def test_without_cupy(monkeypatch):
    monkeypatch.setattr("schedlang.backends.cupy.machine.find_spec", lambda name: None)
    assert CupyBackend().available().startswith("CuPy is not installed (pip install 'schedlang[cuda13]'")


@pytest.mark.parametrize("capability,option", [(75, "sm_75"), (90, "sm_90"), (89, "sm_86"), (120, "compute_100")])
def test_what_is_compiled_for(capability, option, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    world = cupy_double.World(1, capability=capability)
    for _ in range(2):
        run(world)
    [options] = world.compiled                              # the second time it was on disk
    assert options[-1] == f"--gpu-architecture={option}" and "--ftz=false" in options
    assert len(list((tmp_path / "schedlang" / "cupy").iterdir())) == 1


def test_a_gpu_that_the_compiler_does_not_know():
    found = refused(run, cupy_double.World(1, capability=70))
    assert found.code == "SL804" and "NVRTC 13.0 does not know this GPU, which is sm_70; the oldest" in found.message
    assert "schedlang[cuda12]" in found.help


def test_the_command(call):
    """Options reach the back end, and those of another are refused."""
    ring = str(EXAMPLES / "allreduce" / "ring.sched")
    for more in ([], ["--mode", "streams"], ["--blocks", "3", "--slice", "4KiB", "--devices", "1,0"]):
        with cupy_double.installed(cupy_double.World(2)) as world:
            status, out, err = call("run", ring, "--ranks", "4", "--backend", "cupy", "--elements", "1000", "--repeat",
                                    "3", "--check", "--timeout", "60", *more)
            assert (status, err) == (0, "") and "right: 4,000 elements" in out and "the shortest of 3" in out
            assert (world.launches, world.graph_launches) == ((0, 2) if "streams" in more else (6, 0))
    for more, told in [(["--mode", "x", "--backend", "cupy"], "there is no mode x"),
                       (["--devices", "0", "--backend", "native"], "--devices is not for the back end native"),
                       (["--blocks", "2"], "--blocks is not for the back end numpy"),
                       (["--device", "cpu", "--backend", "cupy"], "--device and --timeout are not for"),
                       (["--devices", "0,x", "--backend", "cupy"], "these are no numbers")]:
        with cupy_double.installed(cupy_double.World(2)):
            status, _, err = call("run", ring, "--ranks", "4", *more)
            assert status == 2 and told in err and "help:" in err


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name,op", [("float16", "avg"), ("bfloat16", "avg"), ("float32", "avg"), ("float64", "avg"),
                                     ("int8", "avg"), ("uint64", "avg"), ("int64", "sum"), ("bool", "bor")])
def test_arrays_on_gpus_stay_there(name, op, mode):
    """Each on the GPU of its rank in the end; and averages are divided there as everywhere."""
    table = tables.ring(3)
    inputs = [here["data"] for here in some_inputs(table, Layout(table, 35), DTYPES[name].numpy)]
    wanted = [here["data"] for here in plain.run(table, [{"data": a} for a in inputs], op=op)]
    with cupy_double.installed(cupy_double.World(2)) as world:
        import cupy

        given = []
        for rank, array in enumerate(inputs):
            with cupy.cuda.Device(rank % 2):
                given.append(cupy.asarray(array.reshape(5, 7)))
        backend = CupyBackend(options=Options(mode))
        for _ in range(2):
            got = calls.call(table, given, backend, op=op)
            assert [a.device.id for a in got] == [0, 0, 1] and {type(a) for a in got} == {cupy.ndarray}
            for mine, other in zip(got, wanted):
                assert mine.dtype == other.dtype and mine.shape == (5, 7)
                assert mine.get().tobytes() == other.tobytes()
        assert [a.get().tobytes() for a in given] == [a.tobytes() for a in inputs]
        assert len({a.data.ptr for a in [*got, *given]}) == 6
        assert all(world.where(a.data.ptr, 1) in (0, 1) for a in got)


def test_arrays_on_gpus_that_are_accumulated():
    table = tables.ring(3)
    inputs = [here["data"] for here in some_inputs(table, Layout(table, 35), np.float16)]
    wanted = plain.run(table, [{"data": a} for a in inputs], op="avg", accumulate="float32")
    with cupy_double.installed(cupy_double.World(1)):
        import cupy

        got = calls.call(table, [cupy.asarray(a) for a in inputs], CupyBackend(), op="avg", accumulate="float32")
        assert all(isinstance(a, cupy.ndarray) for a in got)
        assert_same_bits([{"data": a.get()} for a in got], wanted)


def test_the_benchmark(capsys):
    """What `gpu.sh` measures with works; what it prints here means nothing."""
    with cupy_double.installed(cupy_double.World(2)):
        gpu.main(["--ranks", "3", "--sizes", "100"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(gpu.SCHEDULES) and all(line.count("|") == 7 for line in lines)
    assert lines[2].startswith("| ring | 100 | ")
