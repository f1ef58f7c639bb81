"""What ranks stand on that we start ourselves on this machine: a world of torch.distributed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from schedlang.backend import Place
from schedlang.backends.torch.world import World, require_gpus, with_gpu
from schedlang.diagnostics import SchedError, error
from schedlang.running.ranks import Job
from schedlang.running.ranks.lead import lead

LEADER = "schedlang.backends.torch.leader:main"


def main(number: int) -> None:
    """The life of the process that starts the ranks; ``number``: see :func:`schedlang.running.ranks.lead.lead`."""
    lead(number, _Torch())


class _Torch:
    """See :class:`schedlang.running.ranks.lead.Ground`."""

    def __init__(self) -> None:
        self._device = "cpu"
        self._store: Any = None

    def prepare(self, job: Job) -> None:
        self._device = _device(job)

    def meet(self) -> int:
        import torch.distributed as dist

        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        port: int = self._store.port
        return port

    def place(self, rank: int, job: Job, told: int, tell: Callable[[Any], None]) -> World:
        return _world(rank, job, self._device, told, tell)


def _device(job: Job) -> str:
    """Where the ranks' tensors are. Torch does not initialise CUDA for that, which would not survive a fork."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    import torch
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        raise SchedError(error("SL804", f"the back end torch cannot run here: torch {torch.__version__} has no Gloo",
                               help="install a build of torch that has torch.distributed with Gloo"))
    have = torch.cuda.device_count() if dist.is_nccl_available() else 0
    if job.device == "cuda":
        require_gpus(have, job.ranks)
    return "cuda" if job.device != "cpu" and have >= job.ranks else "cpu"


def _world(rank: int, job: Job, device: str, port: int, tell: Any) -> World:
    import torch
    import torch.distributed as dist

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)                            # as torchrun does: the ranks share the cores
    timeout = timedelta(seconds=job.timeout)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timeout)
    if device == "cuda":
        return with_gpu(Place(rank, job.ranks, rank, job.ranks), timeout, tell, store)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=job.ranks, timeout=timeout)
    group = dist.group.WORLD
    return World(rank, job.ranks, torch.device("cpu"), group, group, timeout, tell)
