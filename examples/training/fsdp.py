"""Train with FSDP2 (``fully_shard``): all-gathers of parameters and reduce-scatters of gradients go by schedules.

    torchrun --nproc-per-node 2 examples/training/fsdp.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from schedlang.torch import Options, Rule

# Small all-gathers by Bruck, large ones round the ring; reduce-scatters pairwise. All else goes to Gloo itself.
table = [
    Rule("allgather", "schedlang:allgather/bruck.sched", below=1 << 16),
    Rule("allgather", "schedlang:allgather/ring.sched"),
    Rule("reduce_scatter", "schedlang:reduce_scatter/pairwise.sched"),
]
dist.init_process_group("schedlang", pg_options=Options(inner="gloo", table=table))
torch.manual_seed(0)
mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)

optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
data = torch.Generator().manual_seed(dist.get_rank())
for step in range(20):
    x = torch.randn(64, 32, generator=data)
    loss = ((model(x) - x.mean(1, keepdim=True)) ** 2).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    if dist.get_rank() == 0 and step % 5 in (0, 4):
        print(f"step {step:2}  loss of rank 0 {loss.item():.4f}")
if dist.get_rank() == 0:
    print(*dist.group.WORLD.routes(), sep="\n")
dist.destroy_process_group()
