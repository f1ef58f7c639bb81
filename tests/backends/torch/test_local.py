"""Calls among ranks of one machine by the native kernel, on memory that they share."""

from __future__ import annotations

import gc
import os
import signal
import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

import schedlang.torch as sched
from schedlang.backends.native import meeting
from schedlang.backends.native.compiler import find
from schedlang.backends.native.execute import LocalExecutor
from schedlang.diagnostics import SchedError
from schedlang.torch.state import state_of
from tests.backends.torch.pool import Raised, Silent
from tests.backends.torch.test_api import both

try:
    find()
except SchedError:
    pytest.skip("there is no C++ compiler", allow_module_level=True)

RING = "schedlang:allreduce/ring.sched"


def locally(call: Any, *arguments: Any, reads: bool = True) -> Any:
    """A call with the group of all ranks on shared memory."""
    sched.use_local("native")
    here = state_of(dist.group.WORLD, torch.device("cpu"))._local
    before, here.reads = here.reads, here.reads and reads
    try:
        return call(*arguments)
    finally:
        here.reads = before
        sched.use_local(None)


def pairs(kind: str, n: int, dtype: torch.dtype, op: Any, reads: bool) -> list[bool]:
    found = locally(both, kind, {}, n, dtype, op, 1, reads=reads)
    return [torch.equal(a, b) if dtype != torch.bfloat16 else torch.allclose(a, b, 0.02, 0.02) for a, b in found]


@pytest.mark.parametrize("reads", [True, False], ids=["read", "copied"])
@pytest.mark.parametrize("kind", ["allreduce", "reduce", "broadcast", "allgather", "reduce_scatter", "gather",
                                  "scatter", "alltoall", "alltoallv", "barrier"])
def test_collectives(world, kind, reads):
    for n, dtype in [(7, torch.int32), (1000, torch.int32), (0, torch.int32), (65, torch.bfloat16)]:
        op = dist.ReduceOp.MAX if dtype == torch.bfloat16 else dist.ReduceOp.SUM
        assert all(ok for here in world(3).run(pairs, kind, n, dtype, op, reads) for ok in here), (n, dtype)


def shared_and_not() -> list[bool]:
    """Tensors of one kind on some ranks, and of the other on others; they change from call to call."""
    rank, size, good = dist.get_rank(), dist.get_world_size(), []

    def call() -> None:
        for turn in range(12):
            shared = (rank + turn) % 3 == 0
            x = sched.empty_shared(50, 3) if shared else torch.empty(50, 3)
            x.fill_(rank + turn)
            sched.all_reduce(x if turn % 2 else x[10:40], schedule=RING)
            total = sum(range(size)) + turn * size
            good.append(bool((x if turn % 2 else x[10:40]).eq(total).all()))
            good.append(turn % 2 == 1 or bool(x[:10].eq(rank + turn).all()))
        mean = torch.full((5,), float(rank), dtype=torch.float16)
        sched.all_reduce(mean, dist.ReduceOp.AVG)
        good.append(mean.tolist() == [(size - 1) / 2] * 5)
        works = [sched.all_reduce(torch.ones(9), async_op=True) for _ in range(4)]
        good.append(all(work.wait() for work in works) and len(works) == 4)
        good.append(works[-1].get_future().value()[0].tolist() == [float(size)] * 9)

    locally(call)
    return good


def test_memory_of_all_kinds(world):
    for here in world(3).run(shared_and_not):
        assert len(here) == 27 and all(here)


def test_shared_tensors():
    gc.collect()
    before = len(meeting._known._starts)
    x = sched.empty_shared(3, 4, dtype=torch.int16)
    assert x.shape == (3, 4) and x.dtype == torch.int16 and not x.any()
    view = x.view(-1)[5:]
    assert meeting.shared_at(view.data_ptr(), view.nbytes)[2] == 10
    assert meeting.shared_at(view.data_ptr(), view.nbytes + 5000) is None       # it goes on behind the end
    del x
    gc.collect()
    view.fill_(1)
    assert len(meeting._known._starts) == before + 1
    del view
    gc.collect()
    assert len(meeting._known._starts) == before
    assert sched.empty_shared((2, 0)).shape == (2, 0) and sched.empty_shared(torch.Size([2])).dtype == torch.float32


def new_ones(turns: int, lasting: bool) -> int:
    """New tensors at each call: the bytes of memory that is shared, on this rank, in the end. ``lasting``: as if a call
    had gone wrong before."""
    def call() -> int:
        meeting._known.lasting = lasting
        for turn in range(turns):
            x = sched.empty_shared(1 << 18)
            x.fill_(turn)
            sched.all_reduce(x, schedule=RING)
            assert x.eq(turn * dist.get_world_size()).all()
        del x
        gc.collect()
        dist.barrier()                      # all have given theirs back
        meeting._known.lasting = False
        with open("/proc/self/smaps_rollup") as rollup:
            return next(int(line.split()[1]) << 10 for line in rollup if line.startswith("Pss_Shmem"))

    return locally(call)


def test_memory_is_given_back(world):
    """A rank that has mapped what another had keeps none of it."""
    first = world(3).run(new_ones, 5, False)
    later = world(3).run(new_ones, 40, False)
    kept = world(3).run(new_ones, 40, True)
    assert all(after < before + (4 << 20) for before, after in zip(first, later)), (first, later)
    assert all(after > before + (10 << 20) for before, after in zip(later, kept)), (later, kept)


def different(change: str) -> tuple[str, str, float]:
    """Ranks 0 and 2 mean the same, rank 1 something else; then all of them the same again."""
    def call() -> tuple[str, str, float]:
        odd = dist.get_rank() == 1
        x = torch.ones(6 if odd and change == "elements" else 5,
                       dtype=torch.float64 if odd and change == "dtype" else torch.float32)
        op = dist.ReduceOp.MAX if odd and change == "op" else dist.ReduceOp.SUM
        schedule = "schedlang:allreduce/all_pairs.sched" if odd and change == "schedule" else RING
        with pytest.raises(SchedError) as refused:
            sched.all_reduce(x, op, schedule=schedule)
        y = torch.ones(4)
        sched.all_reduce(y, schedule=RING)
        finding = refused.value.diagnostics[0]
        return finding.code, finding.message, y.sum().item()

    return locally(call)


@pytest.mark.parametrize("change,told", [("elements", "6 elements"), ("dtype", "float64"), ("op", "max"),
                                         ("schedule", "all_pairs")])
def test_ranks_that_do_not_agree(world, change, told):
    found = world(3).run(different, change)
    assert all(code == "SL812" and told in message and y == 12 for code, message, y in found), found
    assert len({message for _, message, _ in found}) == 1


def killed(when: str) -> tuple[str, float]:
    sched.use_local("native")
    x = torch.ones(1000)
    for _ in range(3):
        sched.all_reduce(x, schedule=RING)
    if when == "in a kernel" and dist.get_rank() == 1:
        from schedlang.backends.native import execute

        execute.launch = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    begun = time.monotonic()
    try:
        if when == "between calls" and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        sched.all_reduce(x, schedule=RING)
    except SchedError as failure:
        took = time.monotonic() - begun
        with pytest.raises(SchedError, match="this one, after it, has not begun"):
            sched.all_reduce(x, schedule=RING)
        return failure.diagnostics[0].message, took
    return "", 0.0


@pytest.mark.parametrize("when", ["between calls", "in a kernel"])
def test_a_rank_that_is_killed(world, when):
    pool = world(3)
    first, gone, last = pool.outcomes(killed, [(when,)] * 3)
    pool.fit = False
    assert isinstance(gone, Silent) and gone.exitcode == -signal.SIGKILL
    for got in (first, last):
        assert not isinstance(got, Raised), got
        assert got[0] == "the process of rank 1 has ended" and got[1] < 5


def come_and_go() -> bool:
    """Groups, with ranks that only send and are through before the others; nothing of them stays open."""
    rank, before = dist.get_rank(), 0
    for turn in range(20):
        if turn == 5:
            gc.collect()
            before = len(os.listdir("/proc/self/fd"))
        ours = dist.new_group(backend="schedlang", pg_options=sched.Options(local="native"))
        x = torch.full((20000,), float(turn if rank == 0 else 0))
        dist.broadcast(x, 0, group=ours)
        if not x.eq(turn).all():
            return False
        dist.destroy_process_group(ours)
    gc.collect()
    return len(os.listdir("/proc/self/fd")) < before + 15


def of_options() -> tuple[list[str], list[str], bool]:
    ours = dist.new_group(backend="schedlang", pg_options=sched.Options(local="native"),
                          timeout=timedelta(seconds=60))
    x = torch.arange(10.0) + dist.get_rank()
    dist.all_reduce(x, group=ours)
    parts = [torch.zeros(2) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, torch.full((2,), float(dist.get_rank())), group=ours)
    entries = [entry for state in [state_of(ours)] for entry in state._files.values()]
    good = x.tolist() == [3 * k + 3.0 for k in range(10)] and torch.cat(parts).tolist() == [0, 0, 1, 1, 2, 2]
    routes = ours.routes()
    dist.barrier()
    dist.destroy_process_group(ours)
    return routes, [type(entry.executor).__name__ for entry in entries], good


def test_a_process_group_with_that_option(world):
    for routes, executors, good in world(3).run(of_options):
        assert good and "on one machine: native" in routes
        assert executors and set(executors) == {LocalExecutor.__name__}


def test_groups_come_and_go(world):
    assert world(3).run(come_and_go) == [True] * 3


def apart() -> tuple[list[str], list[str], bool]:
    """Rank 2 is on another machine, as far as one can see."""
    real = meeting._machine
    meeting._machine = lambda: f"{real()} of rank 2" if dist.get_rank() == 2 else real()
    try:
        with pytest.raises(SchedError) as refused:
            sub = dist.new_group(backend="gloo")
            sched.use_local("native", sub)
        assert refused.value.diagnostics[0].code == "SL811"
        return of_options()
    finally:
        meeting._machine = real


def test_ranks_on_several_machines_send_messages(world):
    for routes, executors, good in world(3).run(apart):
        assert good and set(executors) == {"Executor"}
        assert any("cannot reach the memory of rank" in line for line in routes), routes


@pytest.mark.parametrize("local,inner", [("shared", "gloo"), ("native", "nccl")])
def test_options_that_are_none(local, inner):
    with pytest.raises(ValueError, match="local"):
        sched.Options(local=local, inner=inner)
    with pytest.raises(ValueError, match='"native" or None'):
        sched.use_local("shared")
