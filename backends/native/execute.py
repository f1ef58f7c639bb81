"""Calls among ranks of one machine, by the kernel of the native back end: receivers read messages where they stand."""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch

from schedlang.backends.cuda.arguments import FLAG_BYTES, SLICE_BYTES, Arguments, sizes
from schedlang.backends.native.launching import Mode, Watch, failure, launch, waiting, watch_words
from schedlang.backends.native.meeting import NOWHERE, Meeting, Piece, Where, broken, reached, shared_at, unpacked
from schedlang.backends.native.memory import aligned
from schedlang.backends.native.program import Program, carrier, program
from schedlang.backends.native.shares import ended
from schedlang.backends.torch.faults import store_of
from schedlang.backends.torch.header import MEANING, SIZE, Header, require_alike
from schedlang.backends.torch.lacks import Looks, require_fit
from schedlang.backends.torch.operators import divide, dtype_of
from schedlang.ir.layout import Layout
from schedlang.ir.table import OpTable
from schedlang.ops import REDUCE_OPS
from schedlang.running.binding import ends, index_of
from schedlang.running.dtypes import Dtype, require_defined
from schedlang.running.executable import divisors

KEPT = 32
"""So many sizes, and calls that differ in the places of buffers, an executor remembers."""

MODE = Mode()

TIMEOUT = 300.0
"""Seconds that a rank waits for another where its group does not say."""


def tensor_of(piece: Piece, dtype: torch.dtype, elements: int) -> torch.Tensor:
    """A tensor that keeps the memory of a piece."""
    if not elements:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(piece.memory, dtype=dtype, count=elements)


def met(group: Any, rank: int, size: int, timeout: timedelta) -> Meeting:
    """The ranks of a group, if they are on one machine. Raises SchedError (SL811) on all of them where not."""
    found = store_of(group)
    assert found is not None            # a process group has one
    store, name = found
    life = store.add(f"schedlang/{name}/local/lives/{rank}", 1)     # a name serves again
    count = iter(range(1 << 30))

    def exchange(text: str) -> list[str]:
        where = f"schedlang/{name}/local/{life}/{next(count)}"
        store.set(f"{where}/{rank}", text)
        keys = [f"{where}/{r}" for r in range(size)]
        store.wait(keys, timeout)  # type: ignore[attr-defined]
        return [store.get(key).decode() for key in keys]

    return Meeting(rank, size, exchange)


@dataclass(eq=False)
class _Ready:
    """A program, and this rank's memory for it."""

    program: Program
    flags: Piece
    watch: Watch
    lanes: list[tuple[int, int]]


@dataclass(eq=False)
class _Plan:
    """What a call does with buffers that are where they are. ``places``: of all buffers and the flags, packed.
    ``before`` and ``after``: of which buffers what is copied, to and from which memory, which part of it. ``divided``:
    parts of buffers and by what an average divides them. ``calls``: what is launched, by the places on all ranks; the
    last time it was ``call``, with these places one after the other ``known``."""

    ready: _Ready
    layout: Layout
    dtype: Dtype
    places: bytes
    before: list[tuple[str, torch.Tensor]]
    after: list[tuple[str, torch.Tensor, slice]]
    divided: list[tuple[str, slice, int]]
    calls: OrderedDict[tuple[bytes, ...], tuple[Arguments, Any]]
    known: bytes | None = None
    call: tuple[Arguments, Any] | None = None


class LocalExecutor:
    """Executes the part of ``rank`` in a table, again and again. Not for several threads at once.

    ``timeout``: how long to wait for another rank; None: TIMEOUT seconds.
    """

    def __init__(self, table: OpTable, rank: int, meeting: Meeting) -> None:
        self.table, self.rank, self.meeting = table, rank, meeting
        self.timeout: timedelta | None = None
        self._ready: dict[tuple[Dtype, str | None], _Ready] = {}
        self._plans: OrderedDict[Any, _Plan] = OrderedDict()
        self._own: dict[tuple[str, int], Piece] = {}

    def call(self, header: Header, buffers: Mapping[str, torch.Tensor], elements: int | None, op: str | None,
             dtype: torch.dtype) -> None:
        """Execute once, if all ranks mean the same; results are in ``buffers`` afterwards: see
        :class:`schedlang.backends.torch.execute.Executor`.

        Raises SchedError: SL802, SL803 and SL804, SL812 where ranks do not mean the same, SL813 where one is lost; the
        process group is of no use then.
        """
        seconds = TIMEOUT if self.timeout is None else self.timeout.total_seconds()
        key = (elements, op, dtype, *((name, tensor.numel(), shared_at(tensor.data_ptr(), tensor.nbytes),
                                       tensor.data_ptr()) for name, tensor in buffers.items()))
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._plan(buffers, elements, op or self.table.operator, dtype, seconds)
            if len(self._plans) > KEPT:
                self._plans.popitem(last=False)
        meeting = self.meeting
        with torch.no_grad():
            for name, memory in plan.before:
                memory.copy_(buffers[name])
            if not meeting.meet(header.pack(self.rank) + plan.places, MEANING, SIZE, plan.known, seconds):
                said = meeting.said()
                require_alike([record[:SIZE] for record in said])
                self._find(plan, tuple(record[SIZE:] for record in said))
            self._launch(plan, seconds)
            for name, memory, part in plan.after:
                buffers[name][part].copy_(memory[part])
            for name, part, divisor in plan.divided:
                divide(buffers[name][part], divisor, plan.dtype)

    def _made(self, dtype: Dtype, op: str | None, seconds: float) -> _Ready:
        """The program. The first rank compiles it, the others find what it has made."""
        key = carrier(self.table, dtype, op)
        if key not in self._ready:
            if self.rank and self.meeting.size > 1:
                self.meeting.follow(0, seconds)
            made = program(self.table, *key)
            lanes = [(int(r), int(number)) for r, number in made.kernel.lanes.tolist() if r == self.rank]
            self._ready[key] = _Ready(made, Piece(made.flags * FLAG_BYTES, lasting=True),
                                      Watch(aligned(watch_words(len(lanes), 1), np.dtype(np.int32), zero=True)), lanes)
        return self._ready[key]

    def _plan(self, buffers: Mapping[str, torch.Tensor], elements: int | None, op: str | None, dtype: torch.dtype,
              seconds: float) -> _Plan:
        """Raises SchedError: SL802, SL803, SL804, SL815 where a tensor is not as the table needs it."""
        rank, kind = self.rank, dtype_of(torch.empty(0, dtype=dtype))
        if op is not None:
            require_defined(op, kind)
        ready, whole = self._made(kind, op, seconds), Layout(self.table, elements)
        ready.program.values.require_fit(whole)
        table = ready.program.table
        layout, results = Layout(table, elements), ends(self.table)[rank]
        parts = {}
        for name, chunks in results.items():
            at = whole.starts(index_of(self.table, name), rank)
            parts[name] = slice(int(at[chunks.start]), int(at[chunks.stop]))
        places: list[Where] = []
        plan = _Plan(ready, layout, kind, b"", [], [], [], OrderedDict())
        like = next((Looks.of(tensor) for tensor in buffers.values()), Looks.of(torch.empty(0)))
        for b, buffer in enumerate(table.buffers):
            if buffer.only not in (None, rank):
                places.append(NOWHERE)
                continue
            size, tensor = int(layout.count(b)[rank]), buffers.get(buffer.name)
            if tensor is not None:
                require_fit(f"{buffer.name} of rank {rank}", Looks.of(tensor), size, like)
            if not size:
                places.append(NOWHERE)
                continue
            spoilt = buffer.role == "input" and ready.program.written[b] and buffer.name not in results
            if tensor is not None and not spoilt and (
                    self.meeting.reads or shared_at(tensor.data_ptr(), tensor.nbytes) is not None):
                places.append(Where.of(tensor.data_ptr(), tensor.nbytes))
                continue
            memory = self._room(buffer.name, size, kind)
            places.append(Where.of(memory.data_ptr(), memory.nbytes))
            if tensor is not None:
                plan.before.append((buffer.name, memory))
                if buffer.name in parts:
                    plan.after.append((buffer.name, memory, parts[buffer.name]))
        if op is not None and REDUCE_OPS[op].divides:
            for name, part in parts.items():
                by = divisors(self.table, index_of(self.table, name), rank, results[name])
                assert (by == by[0]).all()                  # of collectives that torch knows
                plan.divided.append((name, part, int(by[0])))
        places.append(Where.of(ready.flags.address, ready.flags.size))
        plan.places = b"".join(where.pack() for where in places)
        return plan

    def _room(self, name: str, elements: int, dtype: Dtype) -> torch.Tensor:
        """Memory of our own that others can map, the same at each call."""
        size = elements * dtype.numpy.itemsize
        key = name, dtype.numpy.itemsize
        if key not in self._own or self._own[key].size < size:
            self._own[key] = Piece(size)
            self._plans.clear()                             # some may mean what was there before
        return tensor_of(self._own[key], getattr(torch, dtype.name), elements)

    def _find(self, plan: _Plan, places: tuple[bytes, ...]) -> None:
        """What is launched for these places on all ranks, from here on until they change."""
        found = plan.calls.get(places)
        if found is None:
            found = plan.calls[places] = self._arguments(plan, places)
            if len(plan.calls) > KEPT:
                plan.calls.popitem(last=False)
        plan.known, plan.call = b"".join(places), found

    def _launch(self, plan: _Plan, seconds: float) -> None:
        assert plan.call is not None
        ready, meeting = plan.ready, self.meeting
        meeting.begin(ready.watch)
        status = launch(ready.program, plan.call[0], ready.watch, MODE, seconds)
        gone = None
        if status:
            broken()
            gone = meeting.gone()
        meeting.end()
        if gone is not None:
            raise ended(gone)
        if status:
            raise failure(ready.program, waiting(ready.program, ready.lanes, ready.watch, 1), ready.watch.why, status,
                          seconds, error_number=int(ready.watch.words[1]), by=int(ready.watch.words[2]))

    def _arguments(self, plan: _Plan, records: tuple[bytes, ...]) -> tuple[Arguments, Any]:
        """The arguments of a launch, and what they need to be kept."""
        ready, kept = plan.ready, []
        buffers, flags, through = [], [], []
        raw = np.zeros((self.meeting.size, len(ready.program.table.buffers)), np.uintp)
        for peer, record in enumerate(records):
            *places, flag = unpacked(record)
            known = [self.meeting.address(peer, where) for where in places]
            raw[peer] = [where.address for where in places]
            buffers.append([address for address, _ in known])
            through.append(any(where.address and not at for where, (at, _) in zip(places, known, strict=True)))
            at, keep = self.meeting.address(peer, flag)
            flags.append(at)
            kept += [keep, *(keep for _, keep in known)]
        reach = reached(self.meeting.processes, through, raw)
        arguments = Arguments(
            sizes(plan.layout, plan.dtype.numpy.itemsize, SLICE_BYTES), buffers=buffers, flags=flags, blocks=1,
            lanes=ready.lanes, watch=ready.watch.address, reach=ctypes.addressof(reach) if any(through) else 0)
        return arguments, (kept, reach, raw)
