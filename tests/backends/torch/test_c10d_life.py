"""The process group `schedlang` from its beginning to its end: timeouts, groups within it, its destruction."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

import schedlang
import schedlang.torch as sched
from schedlang.torch import Options, Rule
from tests.backends.torch.pool import free_port

RING = "schedlang:allreduce/ring.sched"
SHORT = timedelta(seconds=3)


def ours(**how: Any) -> Any:
    return dist.new_group(backend="schedlang", **{"timeout": timedelta(seconds=60), **how})


def under_way() -> list[Any]:
    """A group is destroyed while ranks are still at calls of it: they are made to their end, as by Gloo's groups."""
    group = ours()
    tensors = [torch.full((1000,), float(turn)) for turn in range(4)]
    if dist.get_rank():
        time.sleep(0.5)
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
    before = works[-1].is_completed()
    dist.destroy_process_group(group)
    over = [work.is_completed() and work.is_success() for work in works]
    with pytest.raises(ValueError, match="Invalid process group specified"):
        dist.destroy_process_group(group)
    return [before or dist.get_rank() > 0, over, [tensor[0].item() for tensor in tensors]]


def test_a_group_that_is_destroyed_with_work_under_way(world):
    got = world(2).run(under_way)
    assert got[0] == [False, [True] * 4, [0, 2, 4, 6]] and got[1][1:] == got[0][1:]


def again(port: int) -> list[Any]:
    """The default group made anew, over the same store, with other options each time; `sched` over Gloo besides."""
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    store = dist.TCPStore("127.0.0.1", port, size, rank == 0)
    found: list[Any] = []
    for turn in range(3):
        table = (Rule("allreduce", RING),) * (1 + turn)
        dist.init_process_group("schedlang", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=60),
                                pg_options=Options(table=table))
        x = torch.ones(2) * (turn + 1)
        dist.all_reduce(x)
        found.append([x[0].item(), len(dist.group.WORLD.options.table)])
        dist.barrier()
        dist.destroy_process_group()
        with pytest.raises(AssertionError, match="Process group cannot be None"):
            dist.destroy_process_group()
    with pytest.raises(schedlang.SchedError, match="rank 0 has check=every; rank 1 has check=off"):
        dist.init_process_group("schedlang", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=60),
                                pg_options=Options(check="off" if rank else "every"))
    store = dist.PrefixStore("Gloo finds where it listened before", store)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=60))
    y = torch.ones(2)
    sched.all_reduce(y)
    return [*found, y[0].item()]


def test_the_default_group_made_anew(world):
    pool = world(2)
    pool.fit = False                        # its own group is gone afterwards
    assert pool.run(again, free_port()) == [[[2, 1], [4, 2], [6, 3], 2]] * 2


def missing(make: Callable[[], Any], call: Callable[[Any], Any]) -> tuple[str, float] | None:
    """What rank 0 is told of a call that rank 1 does not make, and after how many seconds."""
    group = make()
    x = torch.ones(4)
    dist.all_reduce(x, group=group)
    if dist.get_rank():
        dist.barrier()                      # until rank 0 has given up
        return None
    begun = time.monotonic()
    with pytest.raises(schedlang.SchedError) as failure:
        call(group)
    seconds = time.monotonic() - begun
    for _ in range(2):                      # the group is of no use any more, and says so at once
        with pytest.raises(schedlang.SchedError, match="this one, after it, has not begun"):
            dist.all_reduce(x, group=group)
    assert time.monotonic() - begun < seconds + 1
    dist.barrier()
    return str(failure.value.diagnostics[0]), seconds


def given() -> Any:
    return missing(lambda: ours(timeout=SHORT), lambda group: dist.all_reduce(torch.ones(4), group=group))


def set_later() -> Any:
    def make() -> Any:
        group = ours()
        dist.distributed_c10d._set_pg_timeout(SHORT, group)
        return group

    return missing(make, lambda group: dist.all_gather_single(torch.ones(8), torch.ones(4), group=group, async_op=True)
                   .wait())


@pytest.mark.parametrize("how", [given, set_later])
def test_timeouts(world, how):
    pool = world(2)
    pool.fit = False                        # a group that has lost a rank closes connections late
    told, seconds = pool.run(how)[0]
    assert "SL813] rank-lost: rank 0 waits in vain for rank 1: the header of call 2 of the group, all" in told
    assert "rank 1 waits for nobody" in told and "Timed out waiting 3000ms" in told, told
    assert SHORT.total_seconds() * 0.9 < seconds < SHORT.total_seconds() + 6


def patient() -> list[Any]:
    """Work that is waited for with a timeout goes on when that is over."""
    group = ours()
    x = torch.ones(4)
    if dist.get_rank():
        dist.barrier()                      # once rank 0 has waited in vain
    work = dist.all_reduce(x, group=group, async_op=True)
    told = ""
    if dist.get_rank() == 0:
        with pytest.raises(RuntimeError, match="Timed out waiting 200ms for all_reduce operation to complete"):
            work.wait(timedelta(milliseconds=200))
        told = f"{work.is_completed()} {work.exception()}"
        dist.barrier()
    work.wait(timedelta(seconds=60))
    dist.barrier()
    dist.destroy_process_group(group)
    return [told, x.tolist()]


def test_waiting_with_a_timeout(world):
    assert world(2).run(patient) == [["False None", [2.0] * 4], ["", [2.0] * 4]]


def parts() -> list[Any]:
    """Groups within the world, all at once, and what torch cannot split."""
    mine, groups = dist.new_subgroups(2, backend="schedlang", timeout=timedelta(seconds=60))
    x = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(x, group=mine)
    other, _ = dist.new_subgroups_by_enumeration([[0, 3], [1, 2]], backend="schedlang", timeout=timedelta(seconds=60))
    y = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(y, dist.ReduceOp.MAX, group=other)
    said = []
    for group in (mine, dist.group.WORLD):              # the one and Gloo's, in the same words
        with pytest.raises(RuntimeError) as failure:
            dist.split_group(group, [[0, 1]])
        said.append(str(failure.value))
    found = [x.item(), y.item(), dist.get_backend(mine), len(groups), said[0] == said[1]]
    dist.barrier()
    for group in (mine, other):
        dist.destroy_process_group(group)
    return found


def test_groups_within_the_world(world):
    assert world(4).run(parts) == [[a, b, "schedlang", 2, True] for a, b in ((1, 3), (1, 2), (5, 2), (5, 3))]


ENDING = """
import torch, torch.distributed as dist
import schedlang.torch as sched
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
works = [sched.all_reduce(torch.ones(1000), async_op=True) for _ in range(5)]
dist.destroy_process_group()
{}
"""


@pytest.mark.parametrize("last", ["works[-1].wait()", "pass"])
def test_a_program_that_ends_while_calls_are_under_way(last):
    """The thread that makes them has the last reference to the group: its end must come before the interpreter's."""
    for _ in range(3):                      # what went wrong did so in most runs
        done = subprocess.run([sys.executable, "-c", ENDING.format(last)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
