"""The process group `schedlang` where TORCH_DISTRIBUTED_DEBUG is set, as the default group of a program."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import schedlang
import schedlang.torch as sched
from schedlang.torch import Options
from tests.backends.torch.pool import free_port


def refusal(call: Any) -> str:
    with pytest.raises(schedlang.SchedError) as failure:
        call()
    return failure.value.diagnostics[0].message


def debugged(level: str, port: int) -> dict[str, Any]:
    """What people do with a group, from the first to the last."""
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = level
    dist.set_debug_level_from_env()
    found: dict[str, Any] = {"level": dist.get_debug_level().name}
    # "off": where torch debugs, ranks compare every call nevertheless.
    dist.init_process_group("schedlang", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size,
                            timeout=timedelta(seconds=60), pg_options=Options(check="off"))

    def summed(group: Any = None, **how: Any) -> list[float]:
        x = torch.ones(3) * (rank + 1)
        work = dist.all_reduce(x, group=group, **how)
        if work is not None:
            work.wait()
        return x.tolist()

    found["sum"], found["later"] = summed(), summed(async_op=True)
    found["pair"] = summed(dist.new_group([0, 1]))
    found["gloo"] = summed(dist.new_group(backend="gloo"))
    x = torch.ones(3) * (rank + 1)
    sched.all_reduce(x, group=dist.new_group(backend="gloo"))       # over what torch wraps for its own checks
    found["over gloo"] = x.tolist()
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, rank)
    found["objects"] = objects
    net = nn.parallel.DistributedDataParallel(nn.Linear(3, 2))
    net(torch.ones(2, 3) * (rank + 1)).sum().backward()
    found["gradients"] = net.module.weight.grad[0].tolist()         # type: ignore[union-attr]
    mine, other = torch.tensor([rank]), torch.tensor([-1])
    both = [dist.P2POp(dist.isend, mine, 1 - rank), dist.P2POp(dist.irecv, other, 1 - rank)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    found["message"] = other.item() == 1 - rank
    if level == "DETAIL":
        parts = [torch.empty(3) for _ in range(size)]
        found["sizes"] = refusal(lambda: dist.all_reduce(torch.ones(3 + rank)))
        found["calls"] = refusal(lambda: dist.barrier() if rank else dist.all_reduce(torch.ones(3)))
        found["inner"] = refusal(lambda: dist.all_to_all(parts, [x, x]) if rank else dist.gather(x, parts, 0))
        plain = dist.new_group(backend="schedlang", pg_options=Options(table=()))
        op = dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM
        found["op"] = refusal(lambda: dist.all_reduce(torch.ones(3), op, group=plain))
        found["mixed"] = refusal(lambda: dist.gather(x, None, 0) if rank else dist.all_reduce(torch.ones(3)))
    found["after"] = summed()
    dist.barrier()
    dist.destroy_process_group()
    found["over"] = dist.is_initialized()
    return found


@pytest.mark.parametrize("level", ["INFO", "DETAIL"])
def test_as_users_know_it(world, level):
    pool = world(2)
    pool.fit = False                        # its own group is gone afterwards, and torch debugs
    first, second = pool.run(debugged, level, free_port())
    told = {key: first.pop(key) for key in ("sizes", "calls", "inner", "op", "mixed") if key in first}
    assert told == {key: second.pop(key) for key in told}
    sums = [3.0] * 3
    assert first == second == {
        "level": level, "sum": sums, "later": sums, "pair": sums, "gloo": sums, "over gloo": sums, "objects": [0, 1],
        "gradients": sums, "message": True, "after": sums, "over": False}
    if level == "DETAIL":
        assert "allreduce: rank 0 has 3 elements; rank 1 has 4 elements" in told["sizes"]
        assert "rank 0 has collective allreduce; rank 1 has collective barrier" in told["calls"]
        assert "rank 0 has collective gather; rank 1 has collective all_to_all" in told["inner"]
        assert "all_reduce: rank 0 has op sum; rank 1 has op max" in told["op"]
        assert "rank 0 has collective allreduce; rank 1 has collective gather" in told["mixed"]
