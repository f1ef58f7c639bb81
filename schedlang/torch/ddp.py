"""Gradients of DistributedDataParallel, averaged as a schedule says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from schedlang.fitting import Given
from schedlang.torch import collectives


def ddp_hook(schedule: Given | None = None, *, wire_dtype: torch.dtype | None = None, group: Any = None,
             check: str = "every", verify: bool = True) -> Callable[[Any, Any], Any]:
    """A communication hook: ``model.register_comm_hook(None, ddp_hook("ring.sched"))``.

    ``wire_dtype``: send, and add, gradients in this dtype, as ``torch.float16`` or ``torch.bfloat16``. ``group``: as
    for the model, of any backend that schedules run over. The others: as for :func:`schedlang.torch.all_reduce`.
    """
    def hook(_: Any, bucket: Any) -> Any:
        own: torch.Tensor = bucket.buffer()
        size = dist.get_world_size(group)
        wire = own.to(wire_dtype) if wire_dtype is not None else own
        wire.div_(size)                     # before they are added, so that sums stay in the range of small dtypes
        work = collectives.all_reduce(wire, group=group, async_op=True, schedule=schedule, check=check, verify=verify)
        assert work is not None

        def done(future: Any) -> torch.Tensor:
            result: torch.Tensor = future.value()[0]
            return result if result is own else own.copy_(result)

        return work.get_future().then(done)

    # DDP looks at these, as types.
    hook.__annotations__ = {"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]}
    return hook
