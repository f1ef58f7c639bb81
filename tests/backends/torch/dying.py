"""For workers of a pool: ranks that die or stop in the middle of a call."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from schedlang.backends.torch.execute import Executor
from schedlang.backends.torch.wire import GlooWire, Work
from schedlang.diagnostics import Diagnostic, SchedError
from schedlang.ir.table import OpTable
from schedlang.torch.state import state_of


class Fatal(GlooWire):
    """A wire whose process gets a signal before it posts its message number ``after``."""

    def arm(self, after: int, signal: int) -> None:
        self._left, self._signal = after, signal

    def send(self, data: torch.Tensor, peer: int, tag: int) -> Work:
        self._count()
        return super().send(data, peer, tag)

    def receive(self, data: torch.Tensor, peer: int, tag: int) -> Work:
        self._count()
        return super().receive(data, peer, tag)

    def _count(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), self._signal)
        self._left -= 1


def fatal(group: Any) -> Fatal:
    """The wire that the calls of a group go over, made one that can be armed."""
    wire = state_of(group).wire
    assert isinstance(wire, GlooWire)
    wire.__class__ = Fatal
    assert isinstance(wire, Fatal)
    wire.arm(-1, 0)
    return wire


def die(table: OpTable, who: int, after: int, signal: int, timeout: float) -> tuple[Diagnostic | None, float]:
    """One all-reduce that goes well, and one in which rank ``who`` gets a signal: what the others raise (None: nothing,
    and the result is right), and after how many seconds."""
    wire = Fatal(dist.group.WORLD)
    wire.arm(-1, signal)
    executor = Executor(table, dist.get_rank(), wire, timeout=timedelta(seconds=timeout))
    data = torch.ones(100_000)
    executor.run({"data": data}, data.numel())
    if dist.get_rank() == who:
        wire.arm(after, signal)
    begun = time.monotonic()
    try:
        executor.run({"data": data}, data.numel())
    except SchedError as raised:
        return raised.diagnostics[0], time.monotonic() - begun
    assert (data == dist.get_world_size() ** 2).all()
    return None, time.monotonic() - begun
