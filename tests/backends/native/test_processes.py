"""Ranks as processes on shared memory: the same results; who is lost is told, and nobody waits for long."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from schedlang.backends.native import NativeBackend, Options
from schedlang.backends.native.launching import Mode
from schedlang.backends.native.segment import Segment
from schedlang.backends.native.shares import LEADER, Run, Share, put, regions
from schedlang.backends.numpy import backend as plain
from schedlang.diagnostics import SchedError
from schedlang.ir.layout import Layout
from schedlang.running.ranks import Job
from schedlang.running.ranks.launch import launch
from tests import tables
from tests.backends.torch.shipped import shipped
from tests.backends.worlds import assert_same_bits, some_inputs

HERE = "tests.backends.native.test_processes"
ROOT = Path(__file__).parents[3]
OPTIONS = Options(flags=("-O0",))
backend = NativeBackend(processes=True, options=OPTIONS, timeout=20)


@pytest.mark.parametrize("path,name,ranks,elements", [
    ("allreduce/ring.sched", "ring", 4, 1003), ("allreduce/double_tree.sched", "double_tree", 3, 41),
    ("allreduce/ring.sched", "ring", 1, 5), ("allreduce/ring.sched", "ring", 2, 0),
    ("alltoall/direct.sched", "direct_all_to_all", 3, 9), ("alltoallv/pairwise.sched", "pairwise_v", 3, None),
    ("broadcast/staged_chain.sched", "staged_chain", 3, 100),
    ("reduce_scatter/ring.sched", "ring_reduce_scatter", 2, 8), ("barrier/dissemination.sched", "dissemination", 3, 0),
])
def test_results(path, name, ranks, elements):
    table = shipped(path, name, ranks)
    inputs = some_inputs(table, Layout(table, elements), np.float32)
    assert_same_bits(backend.run(table, inputs, op=None), plain.run(table, inputs, op=None))


@pytest.mark.parametrize("op,accumulate", [("avg", None), ("avg", "float32"), ("sum", "float32"), ("max", None)])
def test_averages_and_wider_sums(op, accumulate):
    table = tables.ring(3)
    inputs = some_inputs(table, Layout(table, 1000), np.float16)
    assert_same_bits(backend.run(table, inputs, op=op, accumulate=accumulate),
                     plain.run(table, inputs, op=op, accumulate=accumulate))


def test_many_blocks_and_slices():
    several = NativeBackend(processes=True, options=Options(blocks=3, slice_bytes=128, flags=("-O0",)), timeout=20)
    table = shipped("allreduce/double_tree.sched", "double_tree", 4)
    inputs = some_inputs(table, Layout(table, 2000), np.float32)
    assert_same_bits(several.run(table, inputs, op=None), plain.run(table, inputs, op=None))


def test_again_and_again():
    """Every turn begins with the inputs."""
    table, told = tables.ring(3), []
    inputs = some_inputs(table, Layout(table, 100), np.int32)
    from schedlang.running.binding import bind

    seconds, results = backend.timed(table, inputs, bind(table, inputs), op="sum", repeat=20, progress=told.append)
    assert_same_bits(results, plain.run(table, inputs, op=None))
    assert len(seconds) == 20 and min(seconds) > 0 and told[-1] == 1.0


def a_run(ranks=3, timeout=2.0, elements=100, repeat=3):
    """A run, its program and its memory, to be had by tasks of our own."""
    table = tables.ring(ranks)
    run = Run(table, elements, "float32", "float32", "sum", repeat, 1, 1 << 16, Mode(), timeout)
    made = backend._program(run)
    segment = Segment(regions(run, made))
    for rank, here in enumerate(some_inputs(table, Layout(table, elements), np.float32)):
        put(segment, run, rank, here)
    return run, made, segment


def on_ranks(task, run, made, segment, *more):
    job = Job(f"{HERE}:{task.__name__}", (run, made, segment, *more), run.table.ranks, None, run.timeout, LEADER)
    begun = time.monotonic()
    try:
        return launch(job, (segment.number,))
    finally:
        assert time.monotonic() - begun < 15


def end_in_turn(place, run, made, segment, number):
    """Rank 1 gets a signal between two turns, when others may be in the midst of the next."""
    share = Share(segment, run, made, place.rank)

    def tell(part):
        if place.rank == 1:
            os.kill(os.getpid(), number)

    return share.perform(tell, lambda: None)


def test_a_rank_that_is_killed():
    with pytest.raises(SchedError, match="the process of rank 1 was ended by SIGKILL") as caught:
        on_ranks(end_in_turn, *a_run(timeout=60.0), signal.SIGKILL)
    assert caught.value.diagnostics[0].code == "SL813"


def test_a_rank_that_is_stopped_between_turns():
    with pytest.raises(SchedError, match="waits in vain for rank 1") as caught:
        on_ranks(end_in_turn, *a_run(), signal.SIGSTOP)
    assert caught.value.diagnostics[0].code == "SL813"


def leave_one_out(place, run, made, segment):
    """Rank 1 never begins its lanes."""
    share = Share(segment, run, made, place.rank)
    if place.rank == 1:
        share._turns[1][0] = 1
        time.sleep(60)
    return share.perform(lambda part: None, lambda: None)


def test_a_rank_that_does_not_come():
    """The message names who waits, for whom, and the line; not those who wait for the one that waits."""
    with pytest.raises(SchedError) as caught:
        on_ranks(leave_one_out, *a_run(ranks=4))
    [finding] = caught.value.diagnostics
    assert finding.code == "SL813" and finding.witness["peer"] == 1
    assert finding.message.startswith("rank 2 waits in vain for rank 1 for 2 seconds: reduce-receive data[1] on rank 2")
    assert any("rank 3 waits for rank 2" in note.message for note in finding.notes)


# ---- ranks that somebody else has started ---------------------------------------------------------------------------


def port():
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return some.getsockname()[1]


def started(ranks, *command, **more):
    at = port()
    return [subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
             "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(at), **more})
        for rank in range(ranks)]


def outcome(processes, within=60):
    """Exit status, output and errors of each."""
    try:
        said = [process.communicate(timeout=within) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *texts) for process, texts in zip(processes, said, strict=True)]


def test_a_world_that_is_there():
    pytest.importorskip("torch")
    first, *others = outcome(started(3, "-m", "schedlang", "run", "examples/allreduce/ring.sched", "--ranks", "3",
                                     "--backend", "native", "--size", "10000", "--check", "--repeat", "2"))
    assert first[0] == 0 and "check   right: 7,500 elements" in first[1] and first[2] == ""
    assert others == [(0, "", "")] * 2


PROGRAM = f"""
import os, signal, sys
import numpy as np
sys.path[:0] = [{str(ROOT)!r}]
from schedlang.backends.native import shares, backend
from schedlang.diagnostics import SchedError
from schedlang.ir.layout import Layout
from tests import tables
from tests.backends.worlds import some_inputs
real = shares.launch
turns = 0
def launch(*arguments):
    global turns
    turns += 1
    if os.environ["RANK"] == "1" and turns == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)
shares.launch = launch
table = tables.ring(3)
from schedlang.running.binding import bind
inputs = some_inputs(table, Layout(table, 100), np.float32)
try:
    backend.timed(table, inputs, bind(table, inputs), op="sum", repeat=5)
except SchedError as failure:
    print(failure)
    os._exit(3)
"""


def test_a_rank_of_it_that_is_killed():
    """The others wait in a kernel, and learn of it at once, though the timeout is long."""
    pytest.importorskip("torch")
    begun = time.monotonic()
    found = outcome(started(3, "-c", PROGRAM))
    assert time.monotonic() - begun < 40
    assert [status for status, _, _ in found] == [3, -signal.SIGKILL, 3], found
    assert all("the process of rank 1 has ended" in out for status, out, _ in found if status == 3), found


def test_a_world_of_several_machines(monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port())}.items():
        monkeypatch.setenv(name, value)
    table = tables.ring(2)
    with pytest.raises(SchedError, match="of the 2 ranks of this world 1 are on this machine"):
        backend.run(table, some_inputs(table, Layout(table, 4), np.float32), op=None)


# ---- options --------------------------------------------------------------------------------------------------------


def test_options(call, shipped):
    for arguments, told in [(("--backend", "numpy", "--processes"), "--processes is not for the back end numpy"),
                            (("--backend", "native", "--device", "cuda"), "does not run on cuda")]:
        status, _, err = call("run", str(shipped), "--ranks", "2", *arguments)
        assert status == 2 and told in err
    status, out, _ = call("run", str(shipped), "--ranks", "2", "--backend", "native", "--processes", "--size", "1KiB",
                          "--check")
    assert status == 0 and "check   right" in out


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan"), 1e300])
def test_timeouts_that_are_none(timeout):
    with pytest.raises(SchedError) as refused:
        backend.on(timeout=timeout)
    assert refused.value.diagnostics[0].code == "SL806"
