"""The process group `schedlang`: what people do with torch.distributed works with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

import schedlang
import schedlang.torch as sched
from schedlang.fitting import DEFAULTS, default
from schedlang.torch import Options, Rule

RING = "schedlang:allreduce/ring.sched"


@contextmanager
def schedlang_world(options: Options | None = None) -> Iterator[Any]:
    """A group of all ranks over schedules, beside the one of the pool."""
    group = dist.new_group(backend="schedlang", pg_options=options, timeout=timedelta(seconds=60))
    yield group
    dist.barrier()                          # not where something was raised: the others would wait
    dist.destroy_process_group(group)


def everything() -> dict[str, Any]:
    """All kinds of calls, beside Gloo's own; what differs, by name."""
    wrong = {}

    def same(name: str, a: Any, b: Any) -> None:
        if not (torch.allclose(a, b) if isinstance(a, torch.Tensor) else a == b):
            wrong[name] = (a, b)

    rank, size = dist.get_rank(), dist.get_world_size()
    with schedlang_world() as ours:
        found: dict[Any, dict[str, Any]] = {}
        for group in (ours, dist.group.WORLD):
            kept = found[group] = {}
            x = torch.arange(7.0) + rank
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.AVG):
                kept[f"all_reduce {op}"] = y = x.clone()
                dist.all_reduce(y, op, group=group)
            kept["strided"] = y = (torch.arange(6.0).view(2, 3) + rank).t()
            dist.all_reduce(y, group=group)
            kept["few elements"] = y = torch.ones(1) * rank
            dist.all_reduce(y, group=group)
            kept["bfloat16"] = y = x.bfloat16()
            dist.all_reduce(y, group=group)
            kept["later"] = y = x.clone()
            work = dist.all_reduce(y, group=group, async_op=True)
            kept["future"] = work.get_future().then(lambda f: f.value()[0].sum()).wait()
            work.wait()
            kept["broadcast"] = y = x.clone()
            dist.broadcast(y, 1, group=group)
            y = x.clone()
            dist.reduce(y, 0, group=group)
            kept["reduce"] = y if rank == 0 else None
            kept["all_gather_single"] = y = torch.empty(7 * size)
            dist.all_gather_single(y, x, group=group)
            parts = [torch.empty(7) for _ in range(size)]
            dist.all_gather(parts, x, group=group)
            kept["all_gather"] = torch.cat(parts)
            kept["reduce_scatter_single"] = y = torch.empty(7)
            dist.reduce_scatter_single(y, torch.arange(7.0 * size) * rank, group=group)
            kept["reduce_scatter"] = y = torch.empty(7)
            dist.reduce_scatter(y, [x + r for r in range(size)], group=group)
            kept["all_to_all_single"] = y = torch.empty(2 * size)
            dist.all_to_all_single(y, torch.arange(2.0 * size) + 10 * rank, group=group)
            counts = [[s + d for d in range(size)] for s in range(size)]
            kept["uneven"] = y = torch.empty(sum(counts[rank]))
            dist.all_to_all_single(y, torch.arange(float(sum(counts[rank]))), counts[rank], counts[rank], group=group)
            parts = [torch.empty(1) for _ in range(size)]
            dist.all_to_all(parts, [torch.tensor([rank * 10.0 + r]) for r in range(size)], group=group)
            kept["all_to_all"] = torch.cat(parts)
            into = [torch.empty(7) for _ in range(size)] if rank == 1 else None
            dist.gather(x, into, 1, group=group)
            kept["gather"] = torch.cat(into) if into else None
            y = torch.empty(7)
            dist.scatter(y, [x + r for r in range(size)] if rank == 1 else None, 1, group=group)
            kept["scatter"] = y
            objects: list[Any] = [None] * size
            dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank}, group=group)
            kept["objects"] = objects
            one = [("from", rank)]
            dist.broadcast_object_list(one, 1, group=group)
            kept["one object"] = one
            y, z = torch.empty(3), torch.full((3,), float(rank))
            for work in dist.batch_isend_irecv([
                    dist.P2POp(dist.isend, z, (rank + 1) % size, group=group),
                    dist.P2POp(dist.irecv, y, (rank - 1) % size, group=group)]):
                work.wait()
            kept["messages"] = y
            three = [torch.ones(2) * rank, torch.ones(3), x.clone()]
            with dist._coalescing_manager(group=group) as manager:
                for one_of in three:
                    dist.all_reduce(one_of, group=group)
            kept["coalesced"] = torch.cat(three)
            kept["functional"] = functional(x, group)
            dist.barrier(group=group)
            dist.barrier(group=group, async_op=True).wait()
        for name, value in found[dist.group.WORLD].items():
            same(name, found[ours][name], value)
        same("backend", dist.get_backend(ours), "schedlang")
        passed = sorted(ours.passed)
        same("passed", passed, ["all_to_all", "gather", "recv", "scatter", "send"])
        same("routes", ours.routes()[-5:], [f"{n}: the inner backend, gloo, 1 time" for n in passed])
    del manager
    return wrong


def functional(x: torch.Tensor, group: Any) -> torch.Tensor:
    from torch.distributed import _functional_collectives as funcol

    found = [funcol.all_reduce(x, "sum", group), funcol.all_gather_tensor(x, 0, group),
             funcol.reduce_scatter_tensor(x.repeat(dist.get_world_size()), "sum", 0, group),
             funcol.broadcast(x, 1, group)]
    return torch.cat([one + 0 for one in found])


def test_what_people_do_gives_what_gloo_gives(world):
    assert world(3).run(everything) == [{}] * 3


def sub_groups() -> list[Any]:
    """Groups within the group have its options; other rules decide by size and number of ranks."""
    table = (Rule("allreduce", RING, below=100), Rule("allreduce", None, least=1000),
             Rule("allreduce", "schedlang:allreduce/all_pairs.sched"), Rule("barrier", None, ranks=2))
    rank = dist.get_rank()
    with schedlang_world(Options(table=table, check="off")) as ours:
        x, y, z = torch.ones(5), torch.ones(50), torch.ones(500)
        for tensor in (x, y, z):
            dist.all_reduce(tensor, group=ours)
        routes = ours.routes()
        pair = dist.new_group([0, 2], backend="schedlang", pg_options=ours.options)
        part = torch.tensor([float(rank)])
        if rank != 1:
            dist.all_reduce(part, group=pair)
            dist.barrier(group=pair)
            dist.destroy_process_group(pair)
        return [x[0].item(), y[0].item(), z[0].item(), dict(ours.passed), part.item(),
                dict(pair.passed) if rank != 1 else {}, routes]


def test_the_table_decides_by_size_and_ranks(world):
    got = world(3).run(sub_groups)
    assert got[0][:6] == [3, 3, 3, {"all_reduce": 1}, 2, {"barrier": 1}] and got[1][4] == 1
    assert got[0][6] == [
        "allreduce, 0..100 bytes: schedlang:allreduce/ring.sched", "allreduce, 1000.. bytes: the inner backend",
        "allreduce: schedlang:allreduce/all_pairs.sched", "barrier, 2 ranks: the inner backend",
        "all_reduce: the inner backend, gloo, 1 time"]


@pytest.mark.parametrize("ranks, size, name", [(7, 4, "ring"), (8, 4, "halving_doubling"), (8, 1 << 18, "ring")])
def test_the_table_by_default_decides_as_calls_without_a_schedule(ranks, size, name):
    options = Options()
    assert options.choose("allreduce", size, ranks) == f"schedlang:allreduce/{name}.sched"
    for collective in DEFAULTS:
        assert options.choose(collective, size, ranks) == default(collective, ranks, size)


def test_rules_that_make_no_sense():
    with pytest.raises(ValueError, match="there is no collective all_reduce: choose one of allreduce, "):
        Rule("all_reduce", RING)
    with pytest.raises(ValueError, match="alltoallv has another size on each rank"):
        Rule("alltoallv", None, below=10)
    with pytest.raises(ValueError, match="inner must be one of gloo, nccl, not 'mpi'"):
        Options(inner="mpi")
    assert str(Rule("allreduce", (RING, {"channels": 2}), ranks=4)) == f"allreduce, 4 ranks: {RING} with channels=2"
    assert str(Rule("allreduce", RING, 8, least_ranks=4)) == f"allreduce, 8.. bytes, at least 4 ranks: {RING}"


def other_options() -> list[str]:
    """Groups are not made where ranks have other options."""
    told = []
    for options in (Options(check="off" if dist.get_rank() else "every"),
                    Options(table=(Rule("allreduce", RING),) * (1 + dist.get_rank()))):
        with pytest.raises(schedlang.SchedError) as failure:
            dist.new_group(backend="schedlang", pg_options=options)
        told.append(failure.value.diagnostics[0].message)
    return told


def test_options_that_differ_between_ranks(world):
    pool = world(2)
    pool.fit = False                        # torch counts its groups, also those that were not made
    first, second = pool.run(other_options)
    assert first == second == [
        "the ranks do not agree on the options of the group: rank 0 has check=every; rank 1 has check=off",
        f"the ranks do not agree on the options of the group: rank 0 has no more rules; rank 1 has allreduce: {RING}"]


def failing() -> list[Any]:
    """What goes wrong in the background is told to all who wait, in C++ as in Python."""
    with schedlang_world() as ours:
        work = dist.all_reduce(torch.ones(2 + dist.get_rank()), group=ours, async_op=True)
        told = []
        with pytest.raises(schedlang.SchedError, match="SL812"):
            work.wait()
        with pytest.raises(RuntimeError, match="SL812"):
            work.get_future().wait()
        told.append(work.is_completed())
        x = torch.ones(2)
        dist.all_reduce(x, group=ours)
        return [*told, x.tolist()]


def test_errors_in_the_background(world):
    assert world(2).run(failing) == [[True, [2.0, 2.0]]] * 2


def profiled() -> list[str]:
    from torch.profiler import ProfilerActivity, profile

    with schedlang_world() as ours, profile(activities=[ProfilerActivity.CPU]) as seen:
        dist.all_reduce(torch.ones(8), group=ours)
        dist.all_reduce(torch.ones(16), group=ours, async_op=True).wait()
        for n in (4, 65535):                # each way to the shipped schedule for the size
            sched.all_gather_single(torch.zeros(2 * n), torch.ones(n))
        dist.all_gather_single(torch.zeros(131072), torch.ones(65536), group=ours)
        sched.broadcast(torch.ones(4, dtype=torch.float64), 0, schedule="schedlang:broadcast/chain.sched")
    return sorted({event.name for event in seen.events() if event.name.startswith("schedlang::")})


def test_the_profiler_shows_calls_with_schedule_and_size(world):
    for names in world(2).run(profiled):
        gather = "schedlang::all_gather_single {}_all_gather(inplace=false) {} float32 {} bytes 2 ranks"
        assert names == [gather.format("bruck", 131070, 524280), gather.format("bruck", 8, 32),
                         gather.format("ring", 131072, 524288),
                         "schedlang::all_reduce ring(channels=1) 16 float32 64 bytes 2 ranks",
                         "schedlang::all_reduce ring(channels=1) 8 float32 32 bytes 2 ranks",
                         "schedlang::broadcast chain_broadcast(k=8, root=0) 4 float64 32 bytes 2 ranks"]


def as_the_world(port: int) -> list[Any]:
    """init_process_group("schedlang"), from the first to the last: in processes of their own."""
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    dist.init_process_group("schedlang", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size,
                            pg_options=Options(table=(Rule("allreduce", RING),)), timeout=timedelta(seconds=60))
    x = torch.ones(3)
    dist.all_reduce(x)
    inner = dist.new_group([0, 1])
    dist.all_reduce(x, group=inner)
    found = [x.tolist(), dist.get_backend(), dist.get_backend(inner), len(inner.options.table)]
    with pytest.raises(TypeError, match=r"pg_options must be schedlang.torch.Options"):
        dist.new_group(backend="schedlang", pg_options=3)
    dist.destroy_process_group()
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        sched.all_reduce(x)
    return found


def test_as_the_default_group(world):
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pool = world(2)
    pool.fit = False                        # its own group is gone afterwards
    assert pool.run(as_the_world, port) == [[[4.0] * 3, "schedlang", "schedlang", 1]] * 2
