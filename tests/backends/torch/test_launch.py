"""Ranks as processes on this machine: what they return, what becomes of failures, and that none is left behind."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
import torch.distributed as dist

from schedlang.backends.torch.arena import Arena
from schedlang.backends.torch.leader import LEADER
from schedlang.diagnostics import SchedError, error
from schedlang.running.dtypes import named
from schedlang.running.ranks import Job
from schedlang.running.ranks.launch import launch

HERE = "tests.backends.torch.test_launch"


def job(task, *arguments, ranks=3, device="cpu", timeout=20.0):
    return Job(f"{HERE}:{task.__name__}", arguments, ranks, device, timeout, LEADER)


def gone(pids, within=10.0):
    """Whether processes have ended, at least soon."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:             # of a zombie nothing is left but its status
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# ---- what ranks do --------------------------------------------------------------------------------------------------


def add_up(world, given, results):
    print("nobody reads this")
    world.tell(os.getpid())
    mine = torch.from_numpy(given.arrays(world.rank)["data"]).clone()
    dist.all_reduce(mine, group=world.group)
    results.arrays(world.rank)["data"][:] = mine
    return world.rank, world.size, str(world.device), torch.get_num_threads()


def wait(world, last):
    world.tell([os.getpid(), os.getppid()])
    dist.barrier(world.control)                             # so that all have told
    last(world)
    time.sleep(60)


def kill_rank_1(world):
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier(world.control)


def abort_rank_2(world):
    if world.rank == 2:
        os.write(2, b"first\nterminate called: no reason\n")
        os.abort()


def kill_leader(world):
    if world.rank == 0:
        time.sleep(0.5)                                     # what ranks tell goes through it
        os.kill(os.getppid(), signal.SIGKILL)


def refuse_on_rank_1(world):
    if world.rank == 1:
        time.sleep(0.5)                                     # others say first that they miss it
        raise SchedError(error("SL802", "rank 1 has a reason"))
    raise SchedError(error("SL813", "rank 1 does not come"))


def stumble(world):
    raise ValueError(f"rank {world.rank} is lost")


# ---- what comes of it -----------------------------------------------------------------------------------------------


def test_results_and_what_ranks_tell():
    given = Arena(named("float32"), [{"data": 3}, {"data": 3}])
    results = Arena(named("float32"), [{"data": 3}, {"data": 3}])
    for rank in range(2):
        given.arrays(rank)["data"][:] = rank + 1
    told = {}
    done = launch(job(add_up, given, results, ranks=2), (given.number, results.number), told.__setitem__)
    threads = int(os.environ.get("OMP_NUM_THREADS", 1))
    assert done == [(0, 2, "cpu", threads), (1, 2, "cpu", threads)]
    assert all(results.arrays(rank)["data"].tolist() == [3, 3, 3] for rank in range(2))
    assert sorted(told) == [0, 1] and gone(told.values())


@pytest.mark.parametrize("last, code, words", [
    (kill_rank_1, "SL813", r"the process of rank 1 was ended by SIGKILL(?s:.)*memory runs out"),
    (abort_rank_2, "SL813", r"rank 2 was ended by SIGABRT\n  note: the last it said: terminate called: no reason"),
    (kill_leader, "SL811", r"the process that starts the ranks was ended by SIGKILL"),
    (refuse_on_rank_1, "SL802", r"rank 1 has a reason$"),
    (stumble, "SL811", r"rank 0 failed: ValueError: rank 0 is lost$"),
])
def test_one_failure_is_told_and_nobody_is_left(last, code, words):
    told = {}
    with pytest.raises(SchedError, match=words) as failure:
        launch(job(wait, last), told=told.__setitem__)
    assert [d.code for d in failure.value.diagnostics] == [code]
    assert len(told) == 3 or (told and last is kill_leader)
    assert gone({pid for here in told.values() for pid in here})


def go_on(world):
    """Nothing that would end it."""


PROGRAM = f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)    # who runs the tests in the background ignores it
from {HERE} import go_on
from schedlang.running.ranks import Job
from schedlang.running.ranks.launch import launch
launch(Job("{HERE}:wait", (go_on,), 2, "cpu", 60.0, "{LEADER}"), told=lambda rank, pids: print(*pids, flush=True))
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_ranks_end_with_the_process_that_wanted_them(sent):
    root = os.path.abspath(__file__).removesuffix(HERE.replace(".", os.sep) + ".py")
    with subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=root, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as process:
        pids = {int(pid) for _ in range(2) for pid in process.stdout.readline().split()}
        assert len(pids) == 3 and all(alive(pid) for pid in pids)
        process.send_signal(sent)
        assert process.wait(20) == -sent
    assert gone(pids)


def test_fewer_gpus_than_ranks():
    have = torch.cuda.device_count()
    with pytest.raises(SchedError, match=rf"error\[SL811\].*{have + 1} rank.*need a GPU each(?s:.)*--device cpu"):
        launch(job(stumble, ranks=have + 1, device="cuda"))


def test_arenas_of_nothing_and_of_too_much():
    empty = Arena(named("bfloat16"), [{}, {"data": 0}])
    assert empty.arrays(0) == {} and empty.arrays(1)["data"].shape == (0,)
    with pytest.raises(MemoryError):
        Arena(named("float64"), [{"data": 1 << 50}])
    kept = Arena(named("uint8"), [{"a": 3, "b": 70}]).arrays(0)
    kept["a"][:], kept["b"][:] = 1, 2
    assert kept["a"].sum() == 3 and np.array_equal(kept["b"], np.full(70, 2)), "arrays outlive their arena"
