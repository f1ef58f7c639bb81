"""Train with DistributedDataParallel, gradients averaged as a schedule says.

    torchrun --nproc-per-node 2 examples/training/ddp.py
    torchrun --nproc-per-node 2 examples/training/ddp.py my_ring.sched
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import schedlang.torch as sched

schedule = sys.argv[1] if len(sys.argv) > 1 else "schedlang:allreduce/ring.sched"

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)))
model.register_comm_hook(None, sched.ddp_hook(schedule))

optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
data = torch.Generator().manual_seed(dist.get_rank())
for step in range(20):
    x = torch.randn(64, 32, generator=data)
    loss = ((model(x) - x.mean(1, keepdim=True)) ** 2).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    sched.all_reduce(mean := loss.detach().clone(), dist.ReduceOp.AVG)
    if dist.get_rank() == 0 and step % 5 in (0, 4):
        print(f"step {step:2}  loss {mean.item():.4f}")
dist.destroy_process_group()
