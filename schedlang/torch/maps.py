"""Collectives as linear maps over all ranks, and their transposes: what a gradient takes on its way back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch

from schedlang.diagnostics import SchedError
from schedlang.fitting import DEFAULTS, Chosen, Given
from schedlang.ir.reverse import reverse
from schedlang.ir.table import OpTable
from schedlang.ops import COLLECTIVES
from schedlang.schedule import Schedule
from schedlang.torch.buffers import Scattered, gathered, whole
from schedlang.torch.state import Request, state_of

TRANSPOSE = {"allreduce": "allreduce", "reduce": "broadcast", "broadcast": "reduce", "reduce_scatter": "allgather",
             "allgather": "reduce_scatter", "alltoall": "alltoall", "alltoallv": "alltoallv", "gather": "scatter",
             "scatter": "gather"}
"""Which collective the gradient of each needs."""

LINEAR = ("sum", "avg")
"""The operators that are linear."""

_reversed: WeakKeyDictionary[Chosen, Schedule] = WeakKeyDictionary()


@dataclass
class Map:
    """A collective of one group, from this rank's tensor to another.

    ``op``: of the collectives that reduce. ``average``: the map is that of the sum, divided by the number of ranks.
    ``root``: in the group. ``sends``, ``receives``: elements, of `alltoallv`. ``back``: the schedule of the transpose;
    None: the reverse of the schedule itself. ``used``: the schedule, once it has run.
    """

    collective: str
    group: Any
    schedule: Given | None
    back: Given | None = None
    op: str = "sum"
    average: bool = False
    root: int | None = None
    sends: list[int] | None = None
    receives: list[int] | None = None
    check: str = "every"
    verify: bool = True
    used: Chosen | None = field(default=None, repr=False)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The result of all ranks' calls with theirs, in memory of its own."""
        source = x.contiguous()
        if self.average and self.collective in ("broadcast", "allgather"):
            source = source / self.group.size()
        result = torch.empty(self._shape(x.shape), dtype=x.dtype, device=x.device)
        rank, flat, target = self.group.rank(), source.view(-1), result.view(-1)
        scatters = self.collective in ("reduce_scatter", "scatter")
        there = flat if self.collective == "reduce_scatter" or rank == self.root else None
        blocks = Scattered(rank, self.group.size(), there, target)

        def buffers(chosen: Chosen) -> Mapping[str, torch.Tensor]:
            self.used = chosen
            if self.collective in ("allreduce", "reduce", "broadcast"):
                return self._whole(chosen, flat, target)
            if self.collective == "allgather":
                return gathered(chosen, rank, flat, target)
            if self.collective == "gather":
                return gathered(chosen, rank, flat, self._here(target))
            if scatters:
                return blocks.buffers(chosen)
            return {"input": flat, "output": target}

        finish = blocks.finish if scatters else None
        state_of(self.group, x.device).run(self._request(flat, target), buffers, finish, [], False)
        return result

    def _whole(self, chosen: Chosen, source: torch.Tensor, target: torch.Tensor) -> Mapping[str, torch.Tensor]:
        if self.collective == "broadcast" and self.group.rank() != self.root:
            return whole(chosen, None, target)
        if self.collective == "reduce" and self._here(target) is None:
            return whole(chosen, source, None)
        target.copy_(source)
        return whole(chosen, target, target)

    def _here(self, target: torch.Tensor) -> torch.Tensor | None:
        """The result of a collective that has one on the root only: elsewhere it is zeros, and no schedule's."""
        if self.group.rank() == self.root:
            return target
        target.zero_()
        return None

    def transpose(self) -> Map:
        """The map that takes gradients back. Raises SchedError (SL211) where the schedule has no reverse."""
        back, transposed = self.back, TRANSPOSE[self.collective]
        if back is None and self.collective == "allreduce":
            back = self.schedule
        elif back is None:
            assert self.used is not None
            if self.used not in _reversed:
                _reversed[self.used] = Schedule(_reverse(self.used.table, transposed))
            back = _reversed[self.used]
        return replace(self, collective=transposed, schedule=back, back=self.schedule,
                       sends=self.receives, receives=self.sends, used=None)

    def _shape(self, shape: Sequence[int]) -> Sequence[int]:
        """The shape of the result."""
        ranks = self.group.size()
        first, *rest = shape or (1,)
        if self.collective in ("allgather", "gather"):
            return (first * ranks, *rest)
        if self.collective in ("reduce_scatter", "scatter"):
            return (first // ranks, *rest)
        if self.receives is not None:
            return (sum(self.receives) // max(math.prod(rest), 1), *rest)
        return shape

    def _request(self, source: torch.Tensor, target: torch.Tensor) -> Request:
        reduces = COLLECTIVES[self.collective].reduces
        op = ("avg" if self.average else self.op) if reduces else None
        elements = None if self.sends is not None else max(source.numel(), target.numel())
        return Request(self.collective, self.collective, source.dtype, op, self.root, elements, self.sends,
                       self.receives, self.schedule, self.check, self.verify)


def _reverse(table: OpTable, transposed: str) -> OpTable:
    """The schedule of the way back. Raises SchedError (SL211) where there is none, with what to do."""
    try:
        return reverse(table)
    except SchedError as failure:
        found = failure.diagnostics[0]
        raise SchedError(replace(
            found, message=f"no gradient goes back through {table.name}: {found.message}",
            help=f'name a schedule for the way back, such as backward="schedlang:{DEFAULTS[transposed][-1].file}", '
                 "or give it a tensor that needs no gradient: x.detach()")) from None
