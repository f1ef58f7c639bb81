"""Executing one rank's part of a schedule on its tensors."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch

from schedlang.backends.torch.bound import Bound, bind
from schedlang.backends.torch.faults import first_line, lost
from schedlang.backends.torch.lacks import Looks, require_fit
from schedlang.backends.torch.operators import combiner, divide, dtype_of, torch_dtype
from schedlang.backends.torch.plan import plan
from schedlang.backends.torch.program import Program, alias, pointers
from schedlang.backends.torch.tasks import STAGING
from schedlang.backends.torch.wire import Wire
from schedlang.ir.layout import Layout
from schedlang.ir.table import OpTable
from schedlang.ops import COLLECTIVES, REDUCE_OPS
from schedlang.running.dtypes import Dtype, accumulator

SIZES_KEPT = 32
"""For how many sizes an executor remembers what to do."""

PROGRAMS_KEPT = 32
"""For how many calls that differ in size, dtype, operator or place in memory."""


class Executor:
    """Executes the part of ``rank`` in a table, again and again, over a wire. Not for several threads at once.

    ``timeout``: how long to wait for a message; None: as long as the process group does.
    """

    def __init__(self, table: OpTable, rank: int, wire: Wire, *, timeout: timedelta | None = None) -> None:
        self.table, self.rank, self.wire, self.timeout = table, rank, wire, timeout
        self.plan = plan(table, rank)
        self.barrier = COLLECTIVES[table.collective.name].family == "barrier"
        self._bounds: OrderedDict[int | None, Bound] = OrderedDict()
        self._programs: OrderedDict[tuple[Any, ...], Program] = OrderedDict()
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
        ``input`` that is no result is not changed. ``elements``: as :class:`~schedlang.ir.layout.Layout` counts them.
        ``op``: in place of the table's own. ``accumulate``: see :meth:`schedlang.backend.Backend.run`.

        Raises SchedError: SL802 where the size does not fit the table, SL803 and SL814 for dtype and operator, SL815
        where a tensor is not as described here, SL813 where a rank is lost; the process group is of no use then.
        """
        bound = self.bound(elements)
        given = {} if self.barrier else self._given(buffers, bound)
        first = next(iter(given.values()), _NOTHING)
        dtype, device = dtype_of(first), first.device
        held = accumulator(accumulate, dtype)
        op = op or self.table.operator
        memory = self._memory(bound, given, torch.uint8 if self.barrier else torch_dtype(held), device)
        program = self._program(bound, memory, held, op, device)
        with torch.no_grad():
            for b, tensor in given.items():
                if memory[b] is not tensor:
                    memory[b].copy_(tensor)
            self._do(program)
            if op is not None and REDUCE_OPS[op].divides:
                for (b, start, stop), divisor in bound.results:
                    if divisor > 1 and stop > start:
                        divide(memory[b][start:stop], divisor, held)
            for (b, start, stop), _ in bound.results:
                if b in given and memory[b] is not given[b]:
                    given[b][start:stop].copy_(memory[b][start:stop])

    def _do(self, program: Program) -> None:
        """Raises SchedError (SL813) where a message does not come or is not taken."""
        watch = self.wire.watch
        if watch is not None:
            watch.begin(program)
        try:
            program.run(self.wire, self._wait)
        except RuntimeError as failure:
            waits = program.waits()
            if waits is None:
                raise
            found, answered = watch.chain(waits) if watch is not None else ({self.rank: waits}, False)
            raise lost(self.table, self.rank, found, first_line(failure), answered) from failure
        if watch is not None:
            watch.end()

    def _wait(self, work: Any) -> None:
        if self.timeout is None:
            work.wait()
        else:
            work.wait(self.timeout)

    def _given(self, buffers: Mapping[str, torch.Tensor], bound: Bound) -> dict[int, torch.Tensor]:
        """The caller's tensors by the buffer they are. Raises SchedError (SL815) where they do not fit."""
        found = {b: buffers[buffer.name] for b, buffer in enumerate(self.table.buffers) if buffer.name in buffers}
        looks = {b: Looks.of(tensor) for b, tensor in found.items()}
        for b, mine in looks.items():
            require_fit(f"{self.table.buffers[b].name} of rank {self.rank}", mine, bound.sizes[b],
                        next(iter(looks.values())))
        return found

    def _memory(self, bound: Bound, given: Mapping[int, torch.Tensor], dtype: torch.dtype,
                device: torch.device) -> dict[int, torch.Tensor]:
        """Where each buffer is during a call: in the caller's tensor, or in memory of the executor's own."""
        memory = {STAGING: self._room(STAGING, bound.staging, dtype, device)}
        results = {share.span.buffer for share in bound.results}
        for b, buffer in enumerate(self.table.buffers):
            tensor = given.get(b)
            spoilt = buffer.role == "input" and b in bound.written and b not in results
            if tensor is None or tensor.dtype != dtype or spoilt:
                tensor = self._room(b, bound.sizes[b], dtype, device)
            memory[b] = tensor
        return memory

    def _room(self, what: int, elements: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Memory of the executor's own, the same at each call."""
        key = (what, dtype, device)
        known = self._own.get(key)
        if known is None or known.numel() < elements:
            known = self._own[key] = torch.zeros(elements, dtype=dtype, device=device)
            self._programs.clear()              # some may lie where the old memory was
        return known[:elements]

    def _program(self, bound: Bound, memory: Mapping[int, torch.Tensor], held: Dtype, op: str | None,
                 device: torch.device) -> Program:
        combine = combiner(op, held, device) if op is not None and not self.barrier else None
        if device.type != "cpu":
            return Program(bound, memory, combine)
        key = (id(bound), held, op, pointers(list(memory.values())))
        found = self._programs.get(key)
        if found is None:
            # The caller's memory must not live on because it is remembered here.
            found = Program(bound, {b: alias(tensor) for b, tensor in memory.items()}, combine)
            self._programs[key] = found
            if len(self._programs) > PROGRAMS_KEPT:
                self._programs.popitem(last=False)
        return found


_NOTHING = torch.empty(0)
