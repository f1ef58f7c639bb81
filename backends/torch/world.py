"""The ranks that one works with: those of a world that torchrun (or whoever sets its variables) has started."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from schedlang.backend import Place
from schedlang.backends.torch.faults import first_line
from schedlang.diagnostics import SchedError, error

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

_ADDRESS = ("MASTER_ADDR", "MASTER_PORT")
_VARIABLES = ("RANK", "WORLD_SIZE", *_ADDRESS)


@dataclass(frozen=True)
class World:
    """A rank among others. ``group`` moves what is on ``device``; ``control`` is Gloo, for what is said besides.

    ``tell`` hands something to whoever started the ranks, while they work.
    """

    rank: int
    size: int
    device: torch.device
    group: dist.ProcessGroup
    control: dist.ProcessGroup
    timeout: timedelta
    tell: Callable[[Any], None]


def found(environment: Mapping[str, str] | None = None) -> Place | None:
    """The place that torchrun's variables give this process; None where they are not there.

    One of them alone says nothing of a world, nor does an address without a rank or a number of ranks, which scripts
    set for whatever they start. Raises SchedError (SL811) where others are there in part, they are not numbers, or
    there is no such rank or port.
    """
    given = os.environ if environment is None else environment
    there = [name for name in _VARIABLES if given.get(name)]
    if len(there) < 2 or set(there) <= set(_ADDRESS):
        return None
    if len(there) < len(_VARIABLES):
        missing = [name for name in _VARIABLES if name not in there]
        raise SchedError(error(
            "SL811", f"{_listed(there)} are set, as if this process were one of several, but {_listed(missing)} "
                     f"{'is' if len(missing) == 1 else 'are'} not",
            help="start it by torchrun, which sets all four, or set what is missing; where it is to start the ranks "
                 f"itself: unset {' '.join(name for name in there if name not in _ADDRESS)}"))
    try:
        rank, size, port = (int(given[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
        if not 0 <= rank < size:
            raise ValueError(f"there is no rank {rank} of {size}")
        if not 0 <= port < 1 << 16:
            raise ValueError(f"there is no port {port}")
        return Place(rank, size, int(given.get("LOCAL_RANK") or rank), int(given.get("LOCAL_WORLD_SIZE") or size))
    except ValueError as cause:
        raise SchedError(error("SL811", f"RANK, WORLD_SIZE, LOCAL_RANK and MASTER_PORT say where this process is, but "
                                        f"{cause}", help="start it by torchrun, or unset them")) from None


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def require_size(size: int, ranks: int, name: str) -> None:
    """Raises SchedError (SL811) where a world of ``size`` ranks is not what schedule ``name`` is for."""
    if size != ranks:
        raise SchedError(error(
            "SL811", f"{name} is for {ranks} rank{'s' * (ranks != 1)}, but this world has {size}",
            help=f"start as many processes as the schedule has ranks, or give --ranks {size}", ranks=ranks, world=size))


@contextmanager
def joined(place: Place | None, device: str | None, timeout: timedelta) -> Iterator[World]:
    """The world that torchrun's variables describe, left at the end; or, where this process is in one already, that.
    ``device``: ``cpu``, ``cuda``, or None: its GPU, where this process has one."""
    import torch
    import torch.distributed as dist

    if dist.is_initialized():
        yield _of_process(timeout)
        return
    assert place is not None
    gpus = torch.cuda.device_count() if dist.is_nccl_available() else 0
    try:
        if device == "cuda" or (device is None and gpus >= place.local_size):
            world = with_gpu(place, timeout, _unheard)
        else:
            dist.init_process_group("gloo", timeout=timeout)
            group = dist.group.WORLD
            world = World(place.rank, place.size, torch.device("cpu"), group, group, timeout, _unheard)
    except RuntimeError as cause:
        at = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        help = "see whether all processes are started, and reach that address"
        if place.local_size < place.size:
            help += ("; Gloo connects to where each machine's own name leads, which is often 127.0.0.1: set "
                     "GLOO_SOCKET_IFNAME to the network between them, as in GLOO_SOCKET_IFNAME=eth0")
        raise SchedError(error("SL811", f"rank {place.rank} cannot join the world at {at}: {first_line(cause)}",
                               help=help)) from cause
    try:
        yield world
    finally:
        dist.destroy_process_group()


def _of_process(timeout: timedelta) -> World:
    """The default group that somebody has initialised."""
    import torch
    import torch.distributed as dist

    nccl = dist.get_backend() == "nccl"
    control = dist.new_group(backend="gloo", timeout=timeout) if nccl else dist.group.WORLD
    device = torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")
    return World(dist.get_rank(), dist.get_world_size(), device, dist.group.WORLD, control, timeout, _unheard)


def _unheard(_: Any) -> None:
    """Nobody listens to a rank that somebody else started."""


def with_gpu(place: Place, timeout: timedelta, tell: Callable[[Any], None], store: dist.Store | None = None) -> World:
    """Join a world over NCCL, with the GPU of this process's place; ``store``: where ranks meet, by default what
    torchrun's variables say. Raises SchedError (SL811) where there is no such GPU."""
    import torch
    import torch.distributed as dist

    require_gpus(torch.cuda.device_count(), place.local_size)
    device = torch.device("cuda", place.local)
    torch.cuda.set_device(device)
    where: dict[str, Any] = {} if store is None else {"store": store, "rank": place.rank, "world_size": place.size}
    dist.init_process_group("nccl", timeout=timeout, device_id=device, **where)     # with a device it connects at once
    control = dist.new_group(backend="gloo", timeout=timeout)
    return World(place.rank, place.size, device, dist.group.WORLD, control, timeout, tell)


def require_gpus(have: int, needed: int) -> None:
    """Raises SchedError (SL811) where this machine has too few GPUs: NCCL refuses two ranks on one."""
    if have < needed:
        told = f"{have or 'no'} GPU{'s' * (have != 1)} that torch can use"
        raise SchedError(error(
            "SL811", f"{needed} rank{'s' * (needed != 1)} on this machine need a GPU each, and it has {told}",
            help="run it on the CPU with --device cpu (over Gloo), on more machines by torchrun, or with fewer ranks",
            gpus=have, ranks=needed))
