"""A small model trains to the same losses by schedules as by Gloo."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import schedlang.torch as sched


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 17), nn.Tanh(), nn.Linear(17, 8), nn.Tanh(), nn.Linear(8, 1))


def train(net: nn.Module, steps: int = 3) -> tuple[list[float], torch.Tensor]:
    """The losses of a few steps on data of this rank's own, and the parameters afterwards."""
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    data = torch.Generator().manual_seed(dist.get_rank())
    losses = []
    for _ in range(steps):
        x = torch.randn(5, 6, generator=data)
        loss = ((net(x) - x.sum(1, keepdim=True)) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in net.parameters()]
    return losses, torch.cat([p.detach().reshape(-1) for p in whole])


def ddp(group: Any, hook: Any = None) -> nn.Module:
    from torch.nn.parallel import DistributedDataParallel

    net = DistributedDataParallel(model(), process_group=group, bucket_cap_mb=0.001)
    if hook is not None:
        net.register_comm_hook(None, hook)
    return net


def fully_sharded(group: Any) -> nn.Module:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    mesh = DeviceMesh.from_group(group, "cpu")
    net = model()
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def compared(make: Callable[..., nn.Module], tolerance: float, *hooks: Any) -> list[Any]:
    ours = dist.new_group(backend="schedlang", timeout=timedelta(seconds=60))
    wanted, there = train(make(dist.group.WORLD))
    got, here = train(make(ours) if not hooks else make(dist.group.WORLD, *hooks))
    fine = torch.allclose(torch.tensor(wanted), torch.tensor(got), rtol=tolerance, atol=tolerance)
    routes = dict(ours.passed)
    dist.barrier()
    dist.destroy_process_group(ours)
    return [fine, (there - here).abs().max().item() <= tolerance, wanted[-1] < wanted[0] * 10, routes]


def by_ddp() -> list[Any]:
    return compared(ddp, 1e-6)


def by_ddp_and_a_hook() -> list[Any]:
    ring = sched.ddp_hook(("schedlang:allreduce/ring.sched", {"channels": 2}))
    half = sched.ddp_hook("schedlang:allreduce/ring.sched", wire_dtype=torch.float16)
    return [compared(ddp, 1e-6, ring), compared(ddp, 2e-3, half)]


def by_fsdp() -> list[Any]:
    return compared(fully_sharded, 1e-6)


def test_distributed_data_parallel(world):
    assert world(2).run(by_ddp) == [[True, True, True, {}]] * 2


def test_the_communication_hook(world):
    assert world(2).run(by_ddp_and_a_hook) == [[[True, True, True, {}]] * 2] * 2


def test_fully_sharded_data_parallel(world):
    assert world(2).run(by_fsdp) == [[True, True, True, {}]] * 2


def tensors_over_a_mesh() -> list[Any]:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    ours = dist.new_group(backend="schedlang", timeout=timedelta(seconds=60))
    mesh = DeviceMesh.from_group(ours, "cpu")
    whole = torch.arange(12.0).view(4, 3)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    fine = [torch.equal(rows.redistribute(mesh, [Replicate()]).to_local(), whole),
            torch.equal(columns.full_tensor(), whole), (rows + 1).sum().full_tensor().item() == 78.0]
    dist.barrier()
    dist.destroy_process_group(ours)
    return fine


def test_distributed_tensors(world):
    assert world(2).run(tensors_over_a_mesh) == [[True] * 3] * 2
