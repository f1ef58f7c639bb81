"""The arrays of a run on the GPUs: from a caller's to buffers and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from schedlang.backends.cupy.machine import HOST, Machine, Memory, clear, copy
from schedlang.backends.native.task import finished
from schedlang.ir.layout import Layout
from schedlang.ir.table import Array, OpTable
from schedlang.running.binding import Bound, ends, starts
from schedlang.running.dtypes import Dtype


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

    def fill(self, inputs: Sequence[Mapping[str, Array]]) -> None:
        """The inputs into their places; 0 where results may have parts that nothing writes."""
        kept = []                                           # until they have been copied
        for rank, (before, after) in enumerate(zip(self._starts, self._ends, strict=True)):
            for name, chunks in {**after, **before}.items():
                b = self._index(name)
                memory = self._memory[rank, b]
                if name not in before or len(chunks) < self._table.buffers[b].chunks:
                    clear(memory, self._streams[self._of[rank]])
                if name in before:
                    array = np.ascontiguousarray(inputs[rank][name], self._held)
                    kept.append(array)
                    copy(memory.address + self._part(rank, b, chunks).start * self._held.itemsize, array.ctypes.data,
                         array.nbytes, self._streams[self._of[rank]])
        self._wait()

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
