"""Executing one rank's part of a schedule on its tensors."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import torch

from schedlang.backends.torch.bound import Bound, Span, bind
from schedlang.backends.torch.operators import combiner, divide, dtype_of, held_in, torch_dtype
from schedlang.backends.torch.plan import plan
from schedlang.backends.torch.tasks import STAGING, Kind
from schedlang.backends.torch.wire import Wire, Work
from schedlang.diagnostics import SchedError, error
from schedlang.ir.layout import Layout
from schedlang.ir.table import OpTable
from schedlang.ops import COLLECTIVES, REDUCE_OPS

SIZES_KEPT = 32
"""For how many sizes an executor remembers what to do."""


class Executor:
    """Executes the part of ``rank`` in a table, again and again, over a wire. Not for several threads at once.

    ``timeout``: how long to wait for a message; None: as long as the process group does.
    """

    def __init__(self, table: OpTable, rank: int, wire: Wire, *, timeout: timedelta | None = None) -> None:
        self.table, self.rank, self.wire, self.timeout = table, rank, wire, timeout
        self.plan = plan(table, rank)
        self.barrier = COLLECTIVES[table.collective.name].family == "barrier"
        self._bounds: OrderedDict[int | None, Bound] = OrderedDict()
        self._own: dict[tuple[Any, ...], torch.Tensor] = {}

    def bound(self, elements: int | None) -> Bound:
        """What is done for a size. Raises SchedError (SL802) where it does not fit the table."""
        found = self._bounds.get(elements)
        if found is None:
            found = self._bounds[elements] = bind(self.plan, Layout(self.table, elements))
            if len(self._bounds) > SIZES_KEPT:
                self._bounds.popitem(last=False)
        return found

    def run(self, buffers: Mapping[str, torch.Tensor], elements: int | None, *, op: str | None = None,
            accumulate: str | None = None) -> None:
        """Execute once; results are in ``buffers`` afterwards.

        ``buffers``: this rank's buffers of the collective by name, one-dimensional, contiguous, of one dtype and
        device, each of its full length; those left out (scratch, always) are the executor's own. A buffer of role
        ``input`` is not changed. ``elements``: as :class:`~schedlang.ir.layout.Layout` counts them. ``op``: in place of
        the table's own. ``accumulate``: see :meth:`schedlang.backend.Backend.run`.
        """
        bound = self.bound(elements)
        first = next(iter(buffers.values()), torch.empty(0))
        dtype, device = dtype_of(first), first.device
        held = held_in(accumulate, dtype)
        op = op or self.table.operator
        kind = torch.uint8 if self.barrier else torch_dtype(held)
        memory: dict[int, torch.Tensor] = {STAGING: self._memory(STAGING, bound.staging, kind, device)}
        for b, buffer in enumerate(self.table.buffers):
            given = None if self.barrier else buffers.get(buffer.name)
            if given is None:
                memory[b] = self._memory(b, bound.sizes[b], kind, device)
                continue
            if given.numel() != bound.sizes[b]:
                raise SchedError(error(
                    "SL815", f"{buffer.name} of rank {self.rank} has {given.numel()} elements, not {bound.sizes[b]}",
                    help=f"give a tensor of {bound.sizes[b]} elements"))
            memory[b] = given
            if held != dtype or (buffer.role == "input" and b in bound.written):
                memory[b] = self._memory(b, bound.sizes[b], kind, device)
                memory[b].copy_(given)
        combine = combiner(op, held, device) if op is not None and not self.barrier else None
        self._execute(bound, memory, combine)
        if op is not None and REDUCE_OPS[op].divides:
            for span, divisor in bound.results:
                if divisor > 1:
                    divide(memory[span.buffer][span.start : span.stop], divisor, held)
        if held != dtype:
            for (b, start, stop), _ in bound.results:
                name = self.table.buffers[b].name
                if name in buffers:
                    buffers[name][start:stop].copy_(memory[b][start:stop])

    def _memory(self, what: int, elements: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Memory of the executor's own, the same at each call."""
        key = (what, dtype, device)
        known = self._own.get(key)
        if known is None or known.numel() < elements:
            known = self._own[key] = torch.zeros(elements, dtype=dtype, device=device)
        return known[:elements]

    def _execute(self, bound: Bound, memory: Mapping[int, torch.Tensor], combine: Callable[..., object] | None) -> None:
        works: list[Work | None] = [None] * bound.messages

        def view(span: Span) -> torch.Tensor:
            return memory[span.buffer][span.start : span.stop]

        for kind, _, target, source, operand, peer, tag, message in bound.steps:
            if kind == Kind.POST_RECV:
                works[message] = self.wire.receive(view(target), peer, tag)
            elif kind == Kind.POST_SEND:
                works[message] = self.wire.send(view(source), peer, tag)
            elif kind == Kind.COPY:
                view(target).copy_(view(source))
            elif kind == Kind.REDUCE:
                assert combine is not None
                combine(view(operand), view(source), view(target))
            else:
                work = works[message]
                assert work is not None
                if self.timeout is None:
                    work.wait()
                else:
                    work.wait(self.timeout)
                works[message] = None
