"""The process group `schedlang` over NCCL's rules (tests/nccl_double.py): streams, futures and batches.

What computes on tensors, and what moves them, is done by streams, later and at random times: who does not wait where
there is something to wait for is found out by the results.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import schedlang
import schedlang.torch as sched
from schedlang.backends.torch import execute, handshake
from schedlang.torch import Options, Rule, lane, state
from schedlang.torch import group as group_module
from schedlang.torch.group import Group
from tests import cuda_double, nccl_double
from tests.nccl_double import device, host

RING = "schedlang:allreduce/ring.sched"


class OnDevice(cuda_double.Torch):
    """Memory that is made here is the device's."""

    def zeros(self, *shape: Any, device: Any = None, **how: Any) -> torch.Tensor:
        return nccl_double.device(torch.zeros(*shape, **how))

    def empty(self, *shape: Any, device: Any = None, **how: Any) -> torch.Tensor:
        return nccl_double.device(torch.empty(*shape, **how))


class Doubled(Group):
    """A group whose inner backend is the double's."""

    def _register_backend(self, *_: Any) -> None:
        pass

    def _set_default_backend(self, *_: Any) -> None:
        pass

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device("cpu")]            # where the double's memory is


Ranks = Callable[[Callable[[Any], Any]], list[Any]]


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Ranks:
    """``ranks(function)``: what ``function(group)`` returns on each of 3 ranks, where what can happen happens at random
    times, others for each parameter."""
    for module in (execute, handshake, lane, state):
        monkeypatch.setattr(module, "torch", OnDevice())
    seed = getattr(request, "param", 0)
    chance = random.Random(seed)
    world = nccl_double.World(3, seed=seed, haste=chance.choice([0, 0.5, 0.9]), serial=chance.random() < 0.5)
    monkeypatch.setattr(group_module, "_inner", lambda made, options: (
        "cuda", dist.ProcessGroup.BackendType.NCCL, nccl_double.Backend(world)))
    store = dist.HashStore()

    def run(function: Callable[[Any], Any], table: Any = None) -> list[Any]:
        options = Options(inner="nccl") if table is None else Options(inner="nccl", table=table)

        def rank(me: int) -> Any:
            group = Doubled(SimpleNamespace(store=store, group_rank=me, group_size=3, timeout=timedelta(seconds=60)),
                            options)
            monkeypatch.setitem(c10d._world.pg_map, group, ("schedlang", None))
            return function(group)

        return world.run(rank)

    return run


timings = pytest.mark.parametrize("ranks", range(6), indirect=True)


def opts(kind: Any, *, later: bool = True, **values: Any) -> Any:
    made = kind()
    made.asyncOp = later
    for name, value in values.items():
        setattr(made, name, value)
    return made


def filled(value: float, size: int = 5) -> torch.Tensor:
    """A tensor that the current stream fills, later."""
    made = device(torch.full((size,), float("nan")))
    made.fill_(value)
    return made


@timings
def test_calls_take_their_turn_among_what_the_caller_computes(ranks):
    def function(group: Any) -> list[Any]:
        me = group.rank()
        x = filled(me + 1)
        sched.all_reduce(x, group=group, schedule=RING)             # 6
        x.add_(me)                                                  # 6 + me
        group.allreduce([x], opts(dist.AllreduceOptions, later=False)).wait()       # 21
        x.mul_(2)
        works = []
        tensors = [x, filled(me), filled(10 * me)]
        for tensor in tensors:
            works.append(group.allreduce([tensor], opts(dist.AllreduceOptions)))
        y = filled(me, 15)
        gathered = sched.all_gather_single(y, tensors[1], group, async_op=True)     # after the sum of that
        for work in [*works, gathered]:
            assert work.wait()
        for tensor in [*tensors, y]:
            tensor.add_(1)
        return [host(tensor).unique().tolist() for tensor in [*tensors, y]]

    assert ranks(function) == [[[127], [4], [31], [4]]] * 3


@timings
def test_a_call_waits_for_what_its_caller_computes(ranks):
    def function(group: Any) -> list[Any]:
        x = filled(0)
        sched.all_reduce(x, group=group, schedule=RING, check="off")
        for value in range(200):
            x.fill_(value)
        for _ in range(2):
            sched.all_reduce(x, group=group, schedule=RING, check="off")
        for _ in range(200):
            x.add_(1)
        sched.all_reduce(x, group=group, schedule=RING, check="off", async_op=True).wait()
        return host(x).unique().tolist()

    assert ranks(function) == [[3.0 * (9 * 199 + 200)]] * 3


@timings
def test_a_barrier_holds_the_host(ranks):
    came: list[int] = []

    def function(group: Any) -> list[bool]:
        found = []
        for turn, call in enumerate((lambda: sched.barrier(group), lambda: sched.barrier(group, check="off"),
                                     lambda: sched.barrier(group, check="off", async_op=True).wait())):
            if turn == group.rank():
                time.sleep(0.05)
            came.append(turn)
            call()
            found.append(came.count(turn) == 3)
        return found

    assert ranks(function) == [[True] * 3] * 3


@timings
def test_futures(ranks):
    def function(group: Any) -> list[Any]:
        me = group.rank()
        x = filled(me + 1)
        later = group.allreduce([x], opts(dist.AllreduceOptions))

        def halved(future: Any) -> torch.Tensor:
            return future.value()[0].mul_(0.5)                      # in a stream of the callback's own

        def again(future: Any) -> torch.Tensor:
            y = future.value().clone()
            sched.all_reduce(y, group=group)                        # in the lane's thread
            return y

        chain = later.get_future().then(halved).then(again)
        z = chain.wait()
        z.add_(1)
        failing = group.allreduce([filled(1, 4 + me)], opts(dist.AllreduceOptions))
        with pytest.raises(schedlang.SchedError, match="rank 0 has 4 elements; rank 1 has 5 elements"):
            failing.get_future().wait()
        assert failing.exception() is not None and not failing.is_success()
        return [host(x)[0].item(), host(z)[0].item(), later.is_success()]

    assert ranks(function) == [[3, 10, True]] * 3


@timings
def test_every_collective(ranks):
    def function(group: Any) -> list[Any]:
        me, found = group.rank(), []
        x = filled(me)
        sched.broadcast(x, group_src=1, group=group)
        found.append(host(x)[0].item())
        y = filled(-1, 2)
        sched.reduce_scatter_single(y, filled(me + 1, 6), group=group, async_op=True).wait()
        found.append(host(y).tolist())
        counts = [[1, 2, 0], [0, 1, 1], [3, 0, 1]]
        receives = [row[me] for row in counts]
        z = filled(-1, sum(receives))
        sched.all_to_all_single(z, filled(me, sum(counts[me])), receives, counts[me], group=group)
        found.append(host(z).tolist() == [float(r) for r in range(3) for _ in range(receives[r])])
        parts = [filled(-1, n) for n in (1, 0, 3)]
        sched.all_gather(parts, filled(me, (1, 0, 3)[me]), group=group)
        found.append([host(part).tolist() for part in parts])
        into = [filled(-1, 2) for _ in range(3)] if me == 2 else None
        sched.gather(filled(me, 2), into, group_dst=2, group=group, async_op=True).wait()
        found.append([host(part)[0].item() for part in into or []])
        own = filled(-1, 2)
        sched.scatter(own, [filled(10 * r, 2) for r in range(3)] if me == 0 else None, group_src=0, group=group)
        found.append(host(own).tolist())
        two = [filled(me, 3), filled(me + 1, 4)]
        group.allreduce_coalesced(two, opts(dist.AllreduceCoalescedOptions)).wait()
        found.append([host(one)[0].item() for one in two])
        group.barrier(opts(dist.BarrierOptions)).wait()
        sched.barrier(group)
        group.send([filled(me)], (me + 1) % 3, 0) if me == 0 else None
        if me == 1:
            got = filled(-1)
            group.recv([got], 0, 0).wait()
            found.append(host(got)[0].item())
        found.append(dict(group.passed))
        return found

    same = [1, [6, 6], True, [[0], [], [2, 2, 2]]]
    sums = [3, 6]
    assert ranks(function) == [[*same, [], [0, 0], sums, {"send": 1}],
                               [*same, [], [10, 10], sums, 0, {"recv": 1}],
                               [*same, [0, 1, 2], [20, 20], sums, {}]]


def test_what_goes_to_the_backend_below_goes_in_its_turn(ranks):
    def function(group: Any) -> list[Any]:
        x = filled(group.rank())
        works = [sched.all_reduce(x, group=group, async_op=True),                   # 3
                 group.allreduce([x], opts(dist.AllreduceOptions))]                 # 9, by NCCL itself
        for work in works:
            work.wait()
        return [host(x)[0].item(), dict(group.passed)]

    assert ranks(function, [Rule("allreduce", RING, ranks=7)]) == [[9, {"all_reduce": 1}]] * 3


def test_memory_of_calls_that_run_later_is_not_given_away(ranks):
    def function(group: Any) -> bool:
        x, y = filled(1), filled(0, 15)
        sched.all_gather_single(y, x, group, async_op=True).wait()
        own = state.state_of(group).lane._stream
        return own is not cuda_double.current_stream() and {x.data_ptr(), y.data_ptr()} <= own.recorded

    assert ranks(function) == [True] * 3


def test_an_event_says_when_work_is_over(ranks):
    """The host is done with a call before the device is."""
    def function(group: Any) -> list[bool]:
        x = filled(1)
        work = group.allreduce([x], opts(dist.AllreduceOptions))
        work.wait()
        host(x)
        return [work.is_completed(), work.is_success()]

    assert ranks(function) == [[True, True]] * 3
