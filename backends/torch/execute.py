"""Executing one rank's part of a schedule on its tensors."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import torch

from schedlang.backends.torch.bound import Bound, bind
from schedlang.backends.torch.faults import first_line, lost
from schedlang.backends.torch.lacks import Looks, require_fit
from schedlang.backends.torch.operators import combiner, divide, dtype_of, torch_dtype
from schedlang.backends.torch.plan import plan
from schedlang.backends.torch.program import Program, alias
from schedlang.backends.torch.room import zeros
from schedlang.backends.torch.tasks import STAGING
from schedlang.backends.torch.together import plan_together
from schedlang.backends.torch.wire import AnyWire, NcclWire
from schedlang.ir.layout import Layout
from schedlang.ir.table import OpTable
from schedlang.ops import COLLECTIVES, REDUCE_OPS
from schedlang.running.dtypes import Dtype, accumulator

SIZES_KEPT = 32
"""For how many sizes an executor remembers what to do."""

CALLS_KEPT = 32
"""For how many calls that differ in size, dtype, operator or place in memory."""


class _Call(NamedTuple):
    """What a call does: copies ``before`` (to, from), the program, parts of the result ``divided`` by a number, copies
    ``after``. ``lasting``: it may be done again as long as the tensors lie where they do."""

    program: Program
    held: Dtype
    lasting: bool
    before: list[tuple[torch.Tensor, torch.Tensor]]
    divided: list[tuple[torch.Tensor, int]]
    after: list[tuple[torch.Tensor, torch.Tensor]]


class Executor:
    """Executes the part of ``rank`` in a table, again and again, over a wire. Not for several threads at once.

    ``timeout``: how long to wait for a message; None: as long as the process group does (which over NCCL it always
    does).
    """

    def __init__(self, table: OpTable, rank: int, wire: AnyWire, *, timeout: timedelta | None = None) -> None:
        self.table, self.rank, self.wire, self.timeout = table, rank, wire, timeout
        self.barrier = COLLECTIVES[table.collective.name].family == "barrier"
        self._bounds: OrderedDict[int | None, Bound] = OrderedDict()
        self._calls: OrderedDict[tuple[Any, ...], _Call] = OrderedDict()
        self._own: dict[tuple[Any, ...], torch.Tensor] = {}

    def bound(self, elements: int | None) -> Bound:
        """What is done for a size. Raises SchedError (SL802) where it does not fit the table."""
        found = self._bounds.get(elements)
        if found is None:
            found = self._bounds[elements] = self.bind(Layout(self.table, elements))
            if len(self._bounds) > SIZES_KEPT:
                self._bounds.popitem(last=False)
        return found

    def bind(self, layout: Layout) -> Bound:
        """As :meth:`bound`, and not remembered."""
        if isinstance(self.wire, NcclWire):
            return bind(plan_together(self.table, self.rank), layout)
        return bind(plan(self.table, self.rank, early=not layout.sparse), layout)

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
        looks = [(name, Looks.of(tensor), tensor.data_ptr()) for name, tensor in buffers.items()]
        key = (id(bound), op, accumulate, *looks)
        call = self._calls.get(key)
        if call is None:
            call = self._call(bound, buffers, op or self.table.operator, accumulate)
            if call.lasting:
                self._calls[key] = call
                if len(self._calls) > CALLS_KEPT:
                    self._calls.popitem(last=False)
        with torch.no_grad():
            for to, what in call.before:
                to.copy_(what)
            self._do(call.program)
            for part, divisor in call.divided:
                divide(part, divisor, call.held)
            for to, what in call.after:
                to.copy_(what)

    def _call(self, bound: Bound, buffers: Mapping[str, torch.Tensor], op: str | None, accumulate: str | None) -> _Call:
        """What is done in a call with these tensors, or with others of which the same is true."""
        given = {} if self.barrier else self._given(buffers, bound)
        first = next(iter(given.values()), _NOTHING)
        dtype = dtype_of(first)
        held = accumulator(accumulate, dtype)
        if isinstance(self.wire, NcclWire):
            if not given and torch.cuda.is_available():     # a barrier: its tokens must be where NCCL can send them
                first = torch.empty(0, device=torch.cuda.current_device())
            self.wire.begin(first)
        combine = combiner(op, held, first.device) if op is not None and not self.barrier else None
        memory = self._memory(bound, given, torch.uint8 if self.barrier else torch_dtype(held), first)
        lasting = first.device.type == "cpu" and not isinstance(self.wire, NcclWire)
        if lasting:                     # the caller's memory must not live on because it is remembered here
            there = {b for b in given if memory[b] is given[b]}
            given = {b: alias(tensor) for b, tensor in given.items()}
            memory = {b: given[b] if b in there else alias(tensor) for b, tensor in memory.items()}
        parts = [(b, start, stop, divisor) for (b, start, stop), divisor in bound.results if stop > start]
        divides = op is not None and REDUCE_OPS[op].divides
        return _Call(
            Program(bound, memory, combine), held, lasting,
            [(memory[b], tensor) for b, tensor in given.items() if memory[b] is not tensor],
            [(memory[b][start:stop], divisor) for b, start, stop, divisor in parts if divides and divisor > 1],
            [(given[b][start:stop], memory[b][start:stop]) for b, start, stop, _ in parts
             if b in given and memory[b] is not given[b]])

    def _do(self, program: Program) -> None:
        """Raises SchedError (SL813) where a message does not come or is not taken."""
        if isinstance(self.wire, NcclWire):
            program.run_together(self.wire)
            return
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
                like: torch.Tensor) -> dict[int, torch.Tensor]:
        """Where each buffer is during a call: in the caller's tensor, or in memory of the executor's own, on the
        device of ``like``."""
        memory = {STAGING: self._room(STAGING, bound.staging, dtype, like)}
        results = {share.span.buffer for share in bound.results}
        for b, buffer in enumerate(self.table.buffers):
            tensor = given.get(b)
            spoilt = buffer.role == "input" and b in bound.written and b not in results
            if tensor is None or tensor.dtype != dtype or spoilt:
                tensor = self._room(b, bound.sizes[b], dtype, like)
            memory[b] = tensor
        return memory

    def _room(self, what: int, elements: int, dtype: torch.dtype, like: torch.Tensor) -> torch.Tensor:
        """Memory of the executor's own, the same at each call."""
        key = (what, dtype, like.device)
        known = self._own.get(key)
        if known is None or known.numel() < elements:
            on_host = like.device.type == "cpu" and not isinstance(self.wire, NcclWire)
            known = self._own[key] = zeros(elements, dtype) if on_host else like.new_zeros(elements, dtype=dtype)
            self._calls.clear()                 # some may lie where the old memory was
        return known[:elements]


_NOTHING = torch.empty(0)
