"""`schedlang run --backend torch`: by processes of its own, and in a world that others started."""

import contextlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist

import schedlang
from schedlang import SchedError
from schedlang.backend import Distributed, find
from schedlang.backends.numpy import NumpyBackend
from schedlang.backends.torch import TorchBackend, share
from schedlang.backends.torch.job import Run
from schedlang.backends.torch.world import World, found
from schedlang.cli import executing
from schedlang.cli.main import main
from schedlang.diagnostics import error
from schedlang.running.binding import bind
from schedlang.running.dtypes import named
from tests.backends.torch.pool import Silent
from tests.backends.worlds import assert_same_bits, some_inputs, some_layout

ROOT = Path(__file__).parents[3]
RING = str(ROOT / "examples/allreduce/ring.sched")


# ---- one rank's share -----------------------------------------------------------------------------------------------


def of_pool():
    group = dist.group.WORLD
    cpu, timeout = torch.device("cpu"), timedelta(seconds=20)
    return World(dist.get_rank(), dist.get_world_size(), cpu, group, group, timeout, print)


def perform(run, inputs, everywhere):
    world = of_pool()
    seconds, mine = share.perform(world, run, inputs[world.rank])
    return share.slowest(world, seconds), seconds, share.gathered(world, run, mine, everywhere)


@pytest.mark.parametrize("path, dtype, op, accumulate", [
    ("allreduce/ring.sched", "float32", "avg", None),
    ("allreduce/all_pairs.sched", "bfloat16", "sum", "float32"),
    ("allreduce/halving_doubling.sched", "uint16", "prod", None),
    ("reduce_scatter/ring.sched", "bool", "bor", None),
    ("allgather/ring.sched", "int8", None, None),
    ("alltoall/direct.sched", "float64", None, None),
    ("alltoallv/pairwise.sched", "float16", None, None),
    ("broadcast/binomial.sched", "uint64", None, None),
    ("gather/direct.sched", "int64", None, None),
    ("scatter/binomial.sched", "float32", None, None),
    ("custom/scan.sched", "int32", "sum", None),
    ("barrier/dissemination.sched", "float32", None, None),
])
def test_a_share_is_what_numpy_does(world, path, dtype, op, accumulate):
    params = {"counts": [[1, 0, 3, 2], [0, 0, 5, 1], [2, 2, 0, 7], [1, 1, 1, 1]]} if "alltoallv" in path else {}
    table = schedlang.load(ROOT / "examples" / path, ranks=4, **params).table
    layout = some_layout(table, random.Random(path))
    inputs = some_inputs(table, layout, named(dtype).numpy)
    run = Run(table, bind(table, inputs).elements, dtype, op, accumulate, 2)
    wanted = NumpyBackend().run(table, inputs, op=op, accumulate=accumulate)
    for everywhere in (True, False):
        ranks = world(4).run(perform, run, inputs, everywhere)
        slowest = ranks[0][0]
        assert len(slowest) == 2 and all(longest == slowest for longest, _, _ in ranks)
        assert slowest == [max(turn) for turn in zip(*(seconds for _, seconds, _ in ranks))]
        for rank, (_, _, results) in enumerate(ranks):
            if everywhere or rank == 0:
                assert_same_bits(results, wanted)
            else:
                assert_same_bits([results[rank]], [wanted[rank]])
                assert not any(here for r, here in enumerate(results) if r != rank)


def go_on_or_away(run, inputs, who):
    if dist.get_rank() == who:
        os.kill(os.getpid(), signal.SIGKILL)
    return perform(run, inputs, False)


def test_a_rank_that_is_gone_before_the_execution(world):
    table = schedlang.load(RING, ranks=2).table
    inputs = [{"data": np.ones(4, np.float32)}] * 2
    run = Run(table, 4, "float32", "sum", None, 1)
    raised, gone = world(2).outcomes(go_on_or_away, [(run, inputs, 1)] * 2)
    assert gone == Silent(-signal.SIGKILL)
    (finding,) = raised.findings
    assert finding.code == "SL813" and finding.message == (
        "rank 0 waits in vain for rank 1: the header of call 0 of the group, allreduce with ring(channels=1), before "
        "step 0")
    assert finding.witness["end"] == 1 and finding.location is not None


# ---- processes of its own -------------------------------------------------------------------------------------------


def test_a_run(call, tmp_path):
    arrays = [np.full(11, r + 1, np.int16) for r in range(3)]
    np.savez(tmp_path / "in.npz", **{f"rank{r}": array for r, array in enumerate(arrays)})
    begun = time.perf_counter()
    status, out, err = call("run", RING, "--ranks", "3", "--backend", "torch", "--input", str(tmp_path / "in.npz"),
                            "--check", "--json", "--repeat", "3", "-o", str(tmp_path / "out.npz"), "--device", "cpu")
    taken = time.perf_counter() - begun
    told = json.loads(out)
    assert (status, err) == (0, "")
    assert (told["backend"], told["dtype"], told["elements"], told["check"]["ok"]) == ("torch", "int16", 11, True)
    assert len(told["seconds"]) == 3 and sum(told["seconds"]) < taken / 2, "starting the ranks does not count"
    with np.load(tmp_path / "out.npz") as results:
        assert all((results[f"rank{r}"] == 6).all() and results[f"rank{r}"].dtype == np.int16 for r in range(3))


def test_the_same_from_python():
    ring = schedlang.load(RING, ranks=2)
    seen = []
    results = ring([np.arange(5.0), np.ones(5)], backend="torch", progress=seen.append)
    assert [array.tolist() for array in results] == [[1, 2, 3, 4, 5]] * 2 and seen == [1.0]


def test_a_rank_that_stalls(call):
    status, _, err = call("run", RING, "--ranks", "2", "--backend", "torch", "--timeout", "1e-6")
    assert status == 2 and "error[SL8" in err and err.count("error[") == 1


@pytest.mark.parametrize("arguments, words", [
    (["--backend", "torch", "--device", "tpu"], "there is no device tpu"),
    (["--backend", "torch", "--timeout", "0"], "0.0 is not in the range"),
    (["--device", "cpu"], "not for the back end numpy"),
    (["--timeout", "3"], "not for the back end numpy"),
])
def test_options_that_cannot_be_used(call, arguments, words):
    status, _, err = call("run", RING, "--ranks", "2", *arguments)
    assert status == 2 and "SL806" in err and words in err


def test_what_is_refused_before_a_rank_starts(call):
    status, _, err = call("run", RING, "--ranks", "2", "--backend", "torch", "--dtype", "bool")
    assert status == 2 and "SL803" in err
    with pytest.raises(SchedError, match="SL803"):
        schedlang.load(RING, ranks=2)([np.ones(2, np.float32)] * 2, backend="torch", accumulate="float16")


# ---- a world that others started ------------------------------------------------------------------------------------


def command(arguments, port, variables, waits=None):
    """The command line in a process that torchrun might have started: status, standard output and error."""
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    world = {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size),
             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    os.environ.update(world | variables)
    out, err = io.StringIO(), io.StringIO()
    # Nobody ends these processes while they leave others the word.
    executing.time = SimpleNamespace(sleep=[].append if waits is None else waits.append)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["run", *arguments[min(rank, len(arguments) - 1)], "--backend", "torch"])
    return status, out.getvalue(), err.getvalue(), dist.is_initialized()


def by_torchrun(world, size, *arguments, **variables):
    pool = world(size)
    outcomes = pool.run(command, arguments, pool.port, variables)
    pool.fit = False                                        # its process group is gone
    return outcomes


def test_the_world_that_torchrun_started(world, tmp_path):
    output = tmp_path / "out.npz"
    first, *others = by_torchrun(world, 3, [RING, "--ranks", "3", "--check", "--elements", "7", "-o", str(output)])
    assert first[0] == 0 and "on 3 ranks, float32, 7 elements" in first[1] and "right: 21 elements" in first[1]
    assert others == [(0, "", "", False)] * 2 and not first[3]
    with np.load(output) as results:
        assert sorted(results.files) == ["rank0", "rank1", "rank2"]


def test_a_world_of_another_size(world):
    first, *others = by_torchrun(world, 2, [RING, "--ranks", "4"])
    assert first[0] == 2 and "SL811" in first[2] and "ring is for 4 ranks, but this world has 2" in first[2]
    assert others == [first], "whoever is still there says it, too"


@pytest.mark.parametrize("arguments, words", [(["--ranks", "4"], "ring is for 4 ranks, but this world has 2"),
                                              (["--ranks", "2", "--repeat", "0"], "0 is not in the range")])
def test_the_first_of_a_machine_says_it_before_torchrun_ends_it(tmp_path, arguments, words):
    script = tmp_path / "late.py"
    script.write_text("import os, time\n"
                      "time.sleep(1.5 * (os.environ['LOCAL_RANK'] == '0'))\n"
                      "from schedlang.cli.main import run\n"
                      "run()\n")
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                           str(script), "run", RING, *arguments, "--backend", "torch"],
                          capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"})
    assert done.returncode and done.stderr.count(words) == 1, done.stderr


def refused(arguments, port, who, code):
    def perform(world, *_):
        if world.rank == who:
            raise SchedError(error(code, "this is the reason"))
        dist.barrier()
        raise AssertionError("nobody comes")

    share.perform = perform
    waited = []
    try:
        return command(arguments, port, {}, waited), waited
    except RuntimeError:
        return None


@pytest.mark.parametrize("code, at_once", [("SL802", True), ("SL812", False)])
def test_what_only_one_rank_knows_it_says_at_once(world, code, at_once):
    pool = world(2)
    _, second = pool.run(refused, [[RING, "--ranks", "2"]], pool.port, 1, code)
    pool.fit = False
    (status, _, err, _), waited = second
    assert status == 2 and "this is the reason" in err
    assert waited == ([] if at_once else [executing.GRACE])


@pytest.mark.parametrize("here", [2, 1])
def test_a_world_that_cannot_be_joined(world, here):
    first, second = by_torchrun(world, 2, [RING, "--ranks", "2", "--timeout", "1"], LOCAL_WORLD_SIZE=str(here),
                                TORCHELASTIC_RESTART_COUNT="0", GLOO_SOCKET_IFNAME="nothing0")
    assert ("GLOO_SOCKET_IFNAME=eth0" in first[2]) == (here == 1), "between machines"
    assert first[0] == 2 and "SL811" in first[2] and "rank 0 cannot join the world at 127.0.0.1:" in first[2]
    assert second[0] == 2 and "rank 1 cannot join the world at 127.0.0.1:" in second[2]


def test_ranks_with_different_schedules(world):
    first, second = by_torchrun(world, 2, [RING, "--ranks", "2"], [RING, "--ranks", "2", "-p", "channels=2"])
    assert first[0] == 2 and "SL812" in first[2] and "ring(channels=2)" in first[2]
    assert second[0] == 2 and "SL812" in second[2]


def in_python(inputs):
    return schedlang.load(RING, ranks=2)(inputs, backend="torch")


def test_a_process_group_that_is_there_is_used(world):
    inputs = [np.arange(3.0), np.ones(3)]
    for results in world(2).run(in_python, inputs):
        assert [array.tolist() for array in results] == [[1, 2, 3]] * 2, "every process has all results"


def test_the_place_that_variables_give():
    world = {"RANK": "5", "WORLD_SIZE": "8", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    place = found(world)
    assert (place.rank, place.size, place.local, place.local_size) == (5, 8, 5, 8)
    place = found({**world, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"})
    assert (place.local, place.local_size) == (1, 4)
    with pytest.raises(SchedError, match=r"SL811.*'five'"):
        found({**world, "RANK": "five"})


@pytest.mark.parametrize("there, missing, remedy", [
    ("RANK and WORLD_SIZE are set", "MASTER_ADDR and MASTER_PORT are not", "unset RANK WORLD_SIZE"),
    ("RANK, WORLD_SIZE and MASTER_ADDR are set", "MASTER_PORT is not", "unset RANK WORLD_SIZE"),
    ("WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set", "RANK is not", "unset WORLD_SIZE"),     # as for srun
    ("RANK and MASTER_PORT are set", "WORLD_SIZE and MASTER_ADDR are not", "unset RANK"),
])
def test_variables_that_are_there_in_part(there, missing, remedy):
    world = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    environment = {**{name: "" for name in world}, **{name: value for name, value in world.items() if name in there}}
    with pytest.raises(SchedError) as raised:
        found(environment)
    (finding,) = raised.value.diagnostics
    assert finding.code == "SL811"
    assert finding.message == f"{there}, as if this process were one of several, but {missing}"
    assert "start it by torchrun" in finding.help and finding.help.endswith(remedy)


@pytest.mark.parametrize("names", ["", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "MASTER_ADDR MASTER_PORT"])
def test_variables_that_say_nothing_of_a_world(names):
    assert found({name: "1" for name in names.split()}) is None


def test_a_world_without_an_address(call, monkeypatch):
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "", "MASTER_PORT": ""}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(executing.time, "sleep", (waited := []).append)
    for arguments in (["run", RING, "--backend", "torch", "--ranks", "2"], ["bench", "torch", RING, "--ranks", "2"]):
        status, _, err = call(*arguments)
        assert status == 2 and err.count("error[SL811]") == 1 and "MASTER_ADDR and MASTER_PORT are not" in err
    assert waited == [executing.GRACE] * 2
    assert call("run", RING, "--ranks", "2")[0] == 0, "ranks in one process have no use for them"


@pytest.mark.parametrize("arguments, words", [
    (["run", RING, "--backend", "torch", "--size", "1", "--elements", "2"], "give one of them"),
    (["run", RING, "--backend=torch", "--repeat", "0"], "is not in the range"),
    (["run", RING, "--dtype", "float31", "--backend", "torch"], "float31"),
    (["run", RING, "--backend", "torch", "--sends", "never"], "never"),
    (["run", RING, "--backend", "torch", "--device", "tpu"], "there is no device tpu"),
    (["run", RING, "--backend", "torch", "--no-such"], "no option --no-such"),
    (["bench", "torch", RING, "--pairs", "1"], "is not in the range"),
    (["bench", "torch", RING, "--sizes", "many"], "many"),
    (["bench", "torch", RING, "--timeout", "inf"], "cannot wait inf seconds"),
])
@pytest.mark.parametrize("variables, waits", [
    ({"RANK": "5", "LOCAL_RANK": "1"}, True), ({"RANK": "4", "LOCAL_RANK": "0"}, False), ({"RANK": "3"}, True),
    ({"RANK": "x", "LOCAL_RANK": ""}, False),
])
def test_options_that_cannot_be_used_one_rank_of_a_machine_says(call, monkeypatch, arguments, words, variables, waits):
    world = {"WORLD_SIZE": "8", "MASTER_ADDR": "a", "MASTER_PORT": "1", "LOCAL_RANK": ""}
    for name, value in {**world, **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(executing.time, "sleep", (waited := []).append)
    status, out, err = call(*arguments)
    assert (status, out) == (2, "") and words in err
    assert waited == [executing.GRACE] * waits, "the others leave it the word"


@pytest.mark.parametrize("arguments", [["run", RING, "--repeat", "0"], ["run", RING, "--backend", "interpret", "-p"],
                                       ["run", RING, "--backend"], ["verify", RING, "--ranks", "0"]])
def test_what_runs_in_one_process_leaves_nobody_the_word(call, monkeypatch, arguments):
    for name, value in {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "a", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(executing.time, "sleep", lambda _: pytest.fail("it waits"))
    assert call(*arguments)[0] == 2


@pytest.mark.parametrize("name, value, words", [("RANK", "8", "no rank 8 of 8"), ("RANK", "-1", "no rank -1 of 8"),
                                                ("MASTER_PORT", "abc", "'abc'"),
                                                ("MASTER_PORT", "65536", "no port 65536")])
def test_variables_that_give_no_place(name, value, words):
    with pytest.raises(SchedError, match=f"SL811.*{words}"):
        found({"RANK": "5", "WORLD_SIZE": "8", "MASTER_ADDR": "a", "MASTER_PORT": "1", name: value})


def test_the_back_end():
    backend = find("torch")
    assert isinstance(backend, TorchBackend) and isinstance(backend, Distributed) and backend.place() is None
    other = backend.on(device="cpu", timeout=2.0, everywhere=False)
    assert (other.device, other.timeout, other.everywhere) == ("cpu", 2.0, False)
    assert other.on().timeout == 2.0 and backend.everywhere
