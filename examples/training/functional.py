"""A layer whose weight is divided among the ranks: an all-gather in the model, its gradient by the reversed schedule.

    torchrun --nproc-per-node 2 examples/training/functional.py
"""

import torch
import torch.distributed as dist

from schedlang.torch import functional

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
whole = torch.randn(8, 4 * size, dtype=torch.float64)           # the same on all ranks, to compare with
part = whole.T.chunk(size)[rank].clone().requires_grad_()       # this rank's rows of it, transposed
x = torch.randn(16, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(rank))

weight = functional.all_gather_single(part, schedule="schedlang:allgather/ring.sched")
loss = (x @ weight.T).square().mean()
loss.backward()                                                 # a reduce-scatter: the ring, reversed

# The gradient of the sum of all ranks' losses, worked out on one rank alone.
together = whole.T.clone().requires_grad_()
for other in range(size):
    x = torch.randn(16, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(other))
    (x @ together.T).square().mean().backward()
error = (part.grad - together.grad.chunk(size)[rank]).abs().max().item()
print(f"rank {rank}: the gradient differs by {error:.1e}")
dist.destroy_process_group()
