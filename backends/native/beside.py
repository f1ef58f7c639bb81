"""Schedules as kernels on memory that processes share, timed against the collectives of torch.distributed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from schedlang.backends.native.execute import LocalExecutor, met, tensor_of
from schedlang.backends.native.meeting import Meeting, Piece
from schedlang.backends.torch.contest import Side, contest, lengths, side
from schedlang.backends.torch.header import Header
from schedlang.backends.torch.job import Contest
from schedlang.backends.torch.world import World
from schedlang.ir.digest import digest
from schedlang.ir.table import NONE, OpTable

WAYS = ("shared", "ordinary")
"""Where tensors are: in memory that all ranks have mapped, or in their own."""


def contests(world: World, what: Sequence[Contest]) -> list[list[list[list[float]]]]:
    """As :func:`schedlang.backends.torch.contest.contests`, each table in the two WAYS. Raises SchedError: SL811 where
    ranks are on several machines."""
    meeting = met(world.group, world.rank, world.size, world.timeout)
    return [contest(world, one, _Ways(meeting)) for one in what]


class _Ways:
    """The sides of a table."""

    def __init__(self, meeting: Meeting) -> None:
        self._meeting = meeting

    def __call__(self, world: World, title: str, table: OpTable, elements: int, dtype: str) -> Iterator[Side]:
        kind = getattr(torch, dtype)
        executor = LocalExecutor(table, world.rank, self._meeting)
        executor.timeout = world.timeout
        c = table.collective
        header = Header(0, c.name, c.op or "", dtype, NONE, elements, digest(table), title)
        for way in WAYS:
            buffers = {name: tensor_of(Piece(length * kind.itemsize), kind, length) if way == "shared"
                       else torch.empty(length, dtype=kind)
                       for name, length in lengths(world, table, elements).items()}
            yield side(world, f"{title}, {way}", table, elements, buffers, self._call(executor, header, buffers, kind))

    @staticmethod
    def _call(executor: LocalExecutor, header: Header, buffers: dict[str, torch.Tensor],
              kind: torch.dtype) -> Callable[[], None]:
        return lambda: executor.call(header, buffers, header.elements, None, kind)
