"""The torch back end: each rank a process of its own, over torch.distributed. README.md says how."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from schedlang.backend import OnOneRank, Place, Progress
from schedlang.backends.torch.arena import Arena
from schedlang.backends.torch.job import Run
from schedlang.backends.torch.leader import LEADER
from schedlang.backends.torch.world import found, joined, require_size
from schedlang.diagnostics import SchedError, error
from schedlang.ir.table import Array, OpTable
from schedlang.running.binding import Bound, bind, ends
from schedlang.running.dtypes import accumulator, require_defined
from schedlang.running.ranks import Job
from schedlang.running.ranks.launch import launch

TIMEOUT = 300.0
"""Seconds that a rank waits for another."""

LONGEST = 1e9
"""Seconds of the longest timeout: torch counts milliseconds, in 64 bits or fewer."""

_OF_ALL = ("SL812", "SL813")
"""What every rank sees when something is wrong with one."""


@dataclass(frozen=True)
class TorchBackend:
    """See :class:`schedlang.backend.Distributed`."""

    name = "torch"
    device: str | None = None
    timeout: float = TIMEOUT
    everywhere: bool = True

    def available(self) -> str | None:
        if find_spec("torch") is None:
            return "PyTorch is not installed (pip install 'schedlang[torch]')"
        return None if hasattr(os, "fork") else "processes cannot fork here"

    def on(self, *, device: str | None = None, timeout: float | None = None, everywhere: bool = True) -> TorchBackend:
        """See :meth:`schedlang.backend.Distributed.on`."""
        if device not in (None, "cpu", "cuda"):
            raise SchedError(error("SL806", f"there is no device {device}", help="choose cpu or cuda"))
        if timeout is not None and not 0 < timeout <= LONGEST:          # nor is it NaN
            raise SchedError(error("SL806", f"ranks cannot wait {timeout:g} seconds",
                                   help=f"give a timeout above 0 and up to {LONGEST:g} seconds"))
        return replace(self, device=device, timeout=self.timeout if timeout is None else timeout, everywhere=everywhere)

    def place(self) -> Place | None:
        """See :meth:`schedlang.backend.Distributed.place`."""
        return _place()

    def run(self, table: OpTable, inputs: Sequence[Mapping[str, Array]], *, op: str | None,
            accumulate: str | None = None, progress: Progress | None = None) -> list[dict[str, Array]]:
        """See :meth:`schedlang.backend.Backend.run`."""
        return self.timed(table, inputs, bind(table, inputs), op=op, accumulate=accumulate, progress=progress)[1]

    def timed(self, table: OpTable, inputs: Sequence[Mapping[str, Array]], bound: Bound, *, op: str | None,
              accumulate: str | None = None, repeat: int = 1,
              progress: Progress | None = None) -> tuple[list[float], list[dict[str, Array]]]:
        """See :meth:`schedlang.backend.Distributed.timed`."""
        op = op or table.operator
        if op is not None:
            require_defined(op, bound.dtype)
        accumulator(accumulate, bound.dtype)
        place = _place()
        if place is None:
            return self._started(table, inputs, bound, op, accumulate, repeat, progress)
        require_size(place.size, table.ranks, table.name)
        from schedlang.backends.torch import share

        run = Run(table, bound.elements, bound.dtype.name, op, accumulate, repeat)
        with joined(place, self.device, timedelta(seconds=self.timeout)) as world, own_reasons():
            seconds, mine = share.perform(world, run, inputs[place.rank])
            return share.slowest(world, seconds), share.gathered(world, run, mine, self.everywhere)

    def on_ranks(self, task: str, arguments: tuple[Any, ...], ranks: int, name: str,
                 progress: Progress | None = None) -> list[Any]:
        """What a task (see :class:`~schedlang.running.ranks.Job`) returns on the ranks that schedule ``name``
        needs: on all that this process starts, or on its own in a world that it finds."""
        place = _place()
        if place is None:
            return launch(Job(task, arguments, ranks, self.device, self.timeout, LEADER), (), _of_first(progress))
        require_size(place.size, ranks, name)
        module, _, function = task.partition(":")
        with joined(place, self.device, timedelta(seconds=self.timeout)) as world, own_reasons():
            return [getattr(import_module(module), function)(world, *arguments)]

    def _started(self, table: OpTable, inputs: Sequence[Mapping[str, Array]], bound: Bound, op: str | None,
                 accumulate: str | None, repeat: int,
                 progress: Progress | None) -> tuple[list[float], list[dict[str, Array]]]:
        """As :meth:`timed`, by processes of our own."""
        given = Arena(bound.dtype, [{name: len(array) for name, array in here.items()} for here in inputs])
        results = Arena(bound.dtype, [{name: int(bound.lengths_of(name, rank, chunks).sum())
                                       for name, chunks in here.items()} for rank, here in enumerate(ends(table))])
        for rank, here in enumerate(inputs):
            for name, array in given.arrays(rank).items():
                array[:] = here[name]
        run = Run(table, bound.elements, bound.dtype.name, op, accumulate, repeat)
        job = Job("schedlang.backends.torch.share:in_arena", (run, given, results), table.ranks, self.device,
                  self.timeout, LEADER)
        took = launch(job, (given.number, results.number), _of_first(progress))
        return [max(turn) for turn in zip(*took, strict=True)], [results.arrays(r) for r in range(table.ranks)]


@contextmanager
def own_reasons() -> Iterator[None]:
    """What a rank raises that others do not see, it raises as such."""
    try:
        yield
    except SchedError as failure:
        if all(d.code in _OF_ALL for d in failure.diagnostics):
            raise
        raise OnOneRank(failure.diagnostics) from failure


def _of_first(progress: Progress | None) -> Callable[[int, Any], None]:
    """Reports the progress of rank 0, as that of all."""
    def told(rank: int, part: float) -> None:
        if rank == 0 and progress is not None:
            progress(part)

    return told


def _place() -> Place | None:
    """This process's place in a world that somebody else started; None where there is none."""
    distributed = sys.modules.get("torch.distributed")      # who is in a world has imported that
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank, size = distributed.get_rank(), distributed.get_world_size()
        return Place(rank, size, rank, size)
    return found()


backend = TorchBackend()
