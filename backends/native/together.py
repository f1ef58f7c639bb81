"""Ranks that torchrun, or whoever, has started on one machine: they meet by torch.distributed, and run on memory that
they share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from schedlang.backend import Place
from schedlang.backends.native.program import Program
from schedlang.backends.native.segment import Segment
from schedlang.backends.native.shares import Run, Share, put, regions, taken, watched
from schedlang.backends.torch.world import found as found_place
from schedlang.backends.torch.world import joined, require_size
from schedlang.diagnostics import SchedError, error
from schedlang.ir.table import Array

if TYPE_CHECKING:
    from schedlang.backends.torch.world import World


def place() -> Place | None:
    """This process's place in a world that somebody else started; None where there is none."""
    distributed = sys.modules.get("torch.distributed")      # who is in a world has imported that
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank, size = distributed.get_rank(), distributed.get_world_size()
        return Place(rank, size, rank, size)
    return found_place()


def found(place: Place, run: Run, inputs: Mapping[str, Array], program: Callable[[Run], Program],
          everywhere: bool) -> tuple[list[float], list[dict[str, Array]]]:
    """A run in a world that is there: the seconds of the slowest rank, and the results; of all ranks ``everywhere``,
    else on rank 0, and others then have their own alone.

    Raises SchedError: SL811 where the world is not that of the schedule, or on several machines, SL812 where ranks do
    not mean the same, SL813 where one is lost; OnOneRank for what others do not see.
    """
    require_size(place.size, run.table.ranks, run.table.name)
    if place.local_size != place.size:
        raise SchedError(error("SL811", f"of the {place.size} ranks of this world {place.local_size} are on this "
                                        "machine, and the back end native is for one machine",
                               help="take --backend torch"))
    if find_spec("torch") is None:
        raise SchedError(error("SL804", "processes that somebody else has started meet by PyTorch, which is not "
                                        "installed (pip install 'schedlang[torch]')",
                               help="or let schedlang start them: --processes, without torchrun"))
    from schedlang.backends.torch import own_reasons, share
    from schedlang.backends.torch.job import Run as Meant

    held = run.held if run.held != run.dtype else None
    meant = Meant(run.table, run.elements, run.dtype, run.op, held, run.repeat)
    with joined(place, "cpu", timedelta(seconds=run.timeout)) as world, own_reasons():
        share.agree(world, meant)
        made = _made(world, run, program)
        segment, processes = _met(world, run, made)
        put(segment, run, world.rank, inputs)
        mine = Share(segment, run, made, world.rank)
        with watched(processes, mine.watches[world.rank]) as lost:
            seconds = mine.perform(world.tell, lost)
        results = taken(segment, run, made, world.rank)
        return share.slowest(world, seconds), share.gathered(world, meant, results, everywhere)


def _made(world: World, run: Run, program: Callable[[Run], Program]) -> Program:
    """The program: compiled by the first rank, found in the cache by the others, or made again where they have none."""
    import torch.distributed as dist

    from schedlang.backends.torch.share import together

    made = None
    try:
        if world.rank == 0:
            made = program(run)
    finally:
        with together(world, "while the schedule is compiled"):
            dist.barrier(world.control)
    return made or program(run)


def _met(world: World, run: Run, program: Program) -> tuple[Segment, dict[int, int]]:
    """The memory that all share, made by the first rank; and the numbers of the other ranks' processes."""
    import torch.distributed as dist

    from schedlang.backends.torch.share import together

    segment = Segment(regions(run, program)) if world.rank == 0 else None
    mine = os.getpid(), None if segment is None else (segment.number, segment.regions())
    heard: list[Any] = [None] * world.size
    with together(world, "before its first execution"):
        dist.all_gather_object(heard, mine, world.control)
    first, (number, places) = heard[0]
    try:
        shared = segment or Segment.of(first, number, places)
    except OSError as cause:
        raise SchedError(error("SL811", f"rank {world.rank} cannot reach the memory of rank 0 (process {first}): "
                                        f"{cause.strerror}",
                               help="start the ranks as one user, in one container, or take --backend torch")) from None
    with together(world, "before its first execution"):
        dist.barrier(world.control)                         # until all have it, it must stay
    return shared, {rank: process for rank, (process, _) in enumerate(heard) if rank != world.rank}
