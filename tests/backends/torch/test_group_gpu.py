"""The process group `schedlang` over NCCL itself: a rank a GPU."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import schedlang.torch as sched
from schedlang.torch import Options

pytestmark = pytest.mark.gpu


def on_gpus(rank: int, ranks: int, port: int, answers: Any) -> None:
    """What one rank sees, from the first to the last."""
    torch.cuda.set_device(rank)
    dist.init_process_group("schedlang", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks,
                            timeout=timedelta(seconds=60), pg_options=Options(inner="nccl"))
    x = torch.full((1000,), rank + 1.0, device="cuda")
    dist.all_reduce(x)
    works = [dist.all_reduce(x, async_op=True) for _ in range(3)]
    works[-1].wait()
    y = works[-1].get_future().then(lambda future: future.value()[0] / ranks ** 3).wait()
    parts = torch.empty(ranks, device="cuda")
    sched.all_gather_single(parts, torch.tensor([float(rank)], device="cuda"))
    uneven = [torch.empty(r + 1, device="cuda") for r in range(ranks)]
    dist.all_gather(uneven, torch.full((rank + 1,), float(rank), device="cuda"))
    net = nn.parallel.DistributedDataParallel(nn.Linear(3, 2).cuda(), device_ids=[rank])
    net(torch.full((1, 3), rank + 1.0, device="cuda")).sum().backward()
    dist.barrier()
    answers.put((rank, [y.unique().tolist(), parts.tolist(), [one.tolist() for one in uneven],
                        net.module.weight.grad.unique().tolist()]))             # type: ignore[union-attr]
    dist.destroy_process_group()


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_over_nccl(ranks):
    from tests.backends.torch.pool import free_port

    if not torch.cuda.is_available() or torch.cuda.device_count() < ranks:
        pytest.skip(f"needs {ranks} GPUs")
    context = torch.multiprocessing.get_context("spawn")
    answers, port = context.Queue(), free_port()
    processes = [context.Process(target=on_gpus, args=(rank, ranks, port, answers)) for rank in range(ranks)]
    for process in processes:
        process.start()
    found = dict(answers.get(timeout=300) for _ in processes)
    for process in processes:
        process.join()
    total = sum(range(1, ranks + 1))
    assert [found[rank] for rank in range(ranks)] == [
        [[float(total)], [*map(float, range(ranks))], [[float(r)] * (r + 1) for r in range(ranks)], [total / ranks]]
    ] * ranks
