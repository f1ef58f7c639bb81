"""What a rank does for one size, on memory that is known: everything but the doing is done once."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from schedlang.backends.torch.bound import Bound, Span
from schedlang.backends.torch.faults import Wait
from schedlang.backends.torch.operators import Combine
from schedlang.backends.torch.tasks import Kind
from schedlang.backends.torch.wire import Message, NcclWire, Wire, Work
from schedlang.ir.table import NONE

_Step = tuple[int, int, Any, Any, Any]

_RECEIVE, _SEND, _COPY, _REDUCE = map(int, (Kind.POST_RECV, Kind.POST_SEND, Kind.COPY, Kind.REDUCE))


class Program:
    """The steps of a bound plan on the memory of a call. ``at``: which step it waits at, or has failed at."""

    def __init__(self, bound: Bound, memory: Mapping[int, torch.Tensor], combine: Combine | None) -> None:
        self.bound, self.at = bound, 0
        self._steps = list(_on(bound, memory, combine))

    def run_together(self, wire: NcclWire) -> None:
        """Do it once: posts that stand side by side in one batch each. Of a plan of :mod:`.together`."""
        batch: list[Message] = []
        for kind, _, a, b, c in self._steps:
            if kind in (_RECEIVE, _SEND):
                batch.append((kind == _SEND, a, b))
                continue
            if batch:
                wire.exchange(batch)            # the current stream waits, so that the waits behind it are nothing
                batch = []
            if kind == _REDUCE:
                a(b, c[0], c[1])
            elif kind == _COPY:
                a.copy_(b)

    def run(self, wire: Wire, wait: Callable[[Work], object]) -> None:
        """Do it once. Raises what ``wait`` raises."""
        works: list[Any] = [None] * self.bound.messages
        receive, send = wire.receive, wire.send
        at = self.at = 0
        try:
            for at, (kind, message, a, b, c) in enumerate(self._steps):
                if kind == _RECEIVE:
                    works[message] = receive(a, b, c)
                elif kind == _SEND:
                    works[message] = send(a, b, c)
                elif kind == _REDUCE:
                    a(b, c[0], c[1])
                elif kind == _COPY:
                    a.copy_(b)
                else:
                    self.at = at
                    wait(works[message])
                    works[message] = None       # what Gloo keeps for a message goes with it
        except RuntimeError:
            self.at = at
            raise

    def waits(self) -> Wait | None:
        """Whom the rank waits for; None where it is not at a message."""
        step = self.bound.steps[self.at] if self.bound.steps else None
        return None if step is None or step.message == NONE else Wait(step.peer, step.row)


def _on(bound: Bound, memory: Mapping[int, torch.Tensor], combine: Combine | None) -> Iterator[_Step]:
    def view(span: Span) -> torch.Tensor:
        return memory[span.buffer][span.start : span.stop]

    for kind, _, target, source, operand, peer, tag, message in bound.steps:
        if kind == Kind.REDUCE:
            assert combine is not None
            yield int(kind), message, combine, view(operand), (view(source), view(target))
        elif kind == Kind.COPY:
            yield int(kind), message, view(target), view(source), None
        elif kind in (Kind.POST_RECV, Kind.POST_SEND):
            yield int(kind), message, view(target if kind == Kind.POST_RECV else source).view(torch.uint8), peer, tag
        else:
            yield int(kind), message, None, None, None


def alias(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory of the CPU, without keeping it: for use only while somebody else does."""
    size = tensor.numel() * tensor.element_size()
    if not size:
        return torch.empty(0, dtype=tensor.dtype)
    array = (ctypes.c_byte * size).from_address(tensor.data_ptr())
    return torch.frombuffer(array, dtype=tensor.dtype)

