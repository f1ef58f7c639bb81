"""Schedules in PyTorch: its collectives, executed as a schedule says, over the process groups it has.

    import schedlang.torch as sched

    sched.all_reduce(tensor, schedule="schedlang:allreduce/ring.sched")

Importing this registers the backend "schedlang" of torch.distributed, whose collectives all go by schedules.

Needs torch; tested with 2.13.0. :mod:`schedlang.torch.collectives` says what the arguments mean.
"""

from schedlang.torch import functional
from schedlang.torch.collectives import (
    all_gather,
    all_gather_into_tensor,
    all_gather_single,
    all_reduce,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    reduce_scatter_single,
    reduce_scatter_tensor,
    scatter,
)
from schedlang.torch.ddp import ddp_hook
from schedlang.torch.group import Group, register
from schedlang.torch.lane import Work
from schedlang.torch.local import empty_shared, use_local
from schedlang.torch.select import Options, Rule

register()

__all__ = [
    "Group", "Options", "Rule", "Work", "all_gather", "all_gather_into_tensor", "all_gather_single", "all_reduce",
    "all_to_all_single", "barrier", "broadcast", "ddp_hook", "empty_shared", "functional", "gather", "reduce",
    "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor", "scatter", "use_local",
]
