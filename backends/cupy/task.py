"""The arrays of a run on the GPUs: from a caller's to buffers and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from schedlang.backends.cupy.loaded import Function
from schedlang.backends.cupy.machine import HOST, Machine, Memory, clear, copy
from schedlang.backends.cupy.streams import AverageStruct, shared_out
from schedlang.backends.native.task import finished
from schedlang.ir.layout import Layout
from schedlang.ir.table import Array, OpTable
from schedlang.ops import REDUCE_OPS
from schedlang.running.arrays import OnGpu
from schedlang.running.binding import Bound, ends, starts
from schedlang.running.dtypes import Dtype
from schedlang.running.executable import divisors


class Buffers:
    """All buffers of a normal form for one size. ``streams``: of each GPU, one to copy by."""

    def __init__(self, machine: Machine, table: OpTable, normal: OpTable, bound: Bound, held: Dtype,
                 streams: Mapping[int, Any]) -> None:
        """``table``: of which the normal form was made; ``held``: the dtype of values. Raises SchedError (SL802) where
        memory does not hold them."""
        self._table, self._bound, self._held, self._streams = table, bound, held.numpy, streams
        self._starts, self._ends = starts(table), ends(table)
        layout = Layout(normal, bound.elements)
        self._memory: dict[tuple[int, int], Memory] = {}
        for b, buffer in enumerate(normal.buffers):
            count = layout.count(b)
            for rank in range(table.ranks) if buffer.only is None else [buffer.only]:
                device = HOST if buffer.place == "host" else machine.of[rank]
                self._memory[rank, b] = Memory(device, int(count[rank]) * held.numpy.itemsize)
        self._of = machine.of
        self.addresses = [[self._memory[rank, b].address if (rank, b) in self._memory else 0
                           for b in range(len(normal.buffers))] for rank in range(table.ranks)]

    def fill(self, inputs: Sequence[Mapping[str, Any]]) -> None:
        """The inputs (on the host or on a GPU) into their places; 0 where results may have parts that nothing
        writes."""
        kept = []                                           # until they have been copied
        for rank, (before, after) in enumerate(zip(self._starts, self._ends, strict=True)):
            for name, chunks in {**after, **before}.items():
                b = self._index(name)
                memory = self._memory[rank, b]
                if name not in before or len(chunks) < self._table.buffers[b].chunks:
                    clear(memory, self._streams[self._of[rank]])
                if name in before:
                    array = self._source(inputs[rank][name], self._streams[self._of[rank]])
                    kept.append(array)
                    address = array.address if isinstance(array, OnGpu) else array.ctypes.data
                    copy(memory.address + self._part(rank, b, chunks).start * self._held.itemsize, address,
                         array.size * self._held.itemsize, self._streams[self._of[rank]])
        self._wait()

    def _source(self, given: Any, stream: Any) -> Any:
        """An input in the dtype of values; from a GPU to the host where that is another one."""
        if isinstance(given, OnGpu) and given.dtype == self._held:
            return given
        if isinstance(given, OnGpu):
            there, given = given, np.empty(given.size, given.dtype)
            copy(given.ctypes.data, there.address, given.nbytes, stream)
            stream.synchronize()
        return np.ascontiguousarray(given, self._held)

    def on_gpus(self, op: str | None, averages: Mapping[int, Function]) -> list[dict[str, OnGpu]]:
        """As :meth:`results`, on the GPU of each rank. ``averages``: what divides there."""
        found: list[dict[str, OnGpu]] = []
        divides = op is not None and REDUCE_OPS[op].divides
        for rank, after in enumerate(self._ends):
            found.append({})
            device, stream = self._of[rank], self._streams[self._of[rank]]
            for name, chunks in after.items():
                b = self._index(name)
                part = self._part(rank, b, chunks)
                count, size = part.stop - part.start, self._held.itemsize
                result = Memory(device, count * size)
                from_ = self._memory[rank, b].address + part.start * size
                by = divisors(self._table, b, rank, chunks) if divides else np.ones(1, np.int64)
                if not divides or (by == 1).all():
                    copy(result.address, from_, count * size, stream)
                for k, chunk in enumerate(chunks if divides and not (by == 1).all() else ()):
                    here = self._part(rank, b, range(chunk, chunk + 1))
                    length, at = here.stop - here.start, here.start * size
                    if length:
                        blocks, share = shared_out(length, size, averages[device].resident)
                        argument = AverageStruct(result.address + at - part.start * size,
                                                 self._memory[rank, b].address + at, length, share, int(by[k]))
                        averages[device].launch(blocks, argument, stream)
                found[rank][name] = OnGpu(result.address, device, self._bound.dtype.numpy, (count,), result)
        self._wait()
        return found

    def results(self, op: str | None) -> list[dict[str, Array]]:
        """What the collective leaves, in arrays that nobody else has."""
        found: list[dict[str, Array]] = []
        for rank, after in enumerate(self._ends):
            found.append({})
            for name, chunks in after.items():
                b = self._index(name)
                part = self._part(rank, b, chunks)
                array = found[rank][name] = np.empty(part.stop - part.start, self._held)
                copy(array.ctypes.data, self._memory[rank, b].address + part.start * self._held.itemsize, array.nbytes,
                     self._streams[self._of[rank]])
        self._wait()
        for rank, after in enumerate(self._ends):
            for name, chunks in after.items():
                found[rank][name] = finished(self._table, found[rank][name], self._bound.dtype.numpy, op,
                                             self._index(name), rank, chunks)
        return found

    def _index(self, name: str) -> int:
        return next(b for b, buffer in enumerate(self._table.buffers) if buffer.name == name)

    def _part(self, rank: int, buffer: int, chunks: range) -> slice:
        at = self._bound.layout.starts(buffer, rank)
        return slice(int(at[chunks.start]), int(at[chunks.stop]))

    def _wait(self) -> None:
        for stream in self._streams.values():
            stream.synchronize()
