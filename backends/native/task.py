"""The arrays of one run in this process, on all ranks: from a caller's to a kernel's and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from schedlang.backends.cuda.arguments import Arguments, sizes
from schedlang.backends.native.memory import Own, aligned
from schedlang.ir.layout import Layout
from schedlang.ir.table import Array, OpTable
from schedlang.memory import require
from schedlang.ops import REDUCE_OPS
from schedlang.running.average import rounded
from schedlang.running.binding import Bound, ends, starts
from schedlang.running.dtypes import Dtype
from schedlang.running.executable import divisors


class Task:
    """One run. Arrays that no rank writes are read where the caller has them; the others are our own, and become the
    results where they can."""

    def __init__(self, own: Own, table: OpTable, bound: Bound, held: Dtype,
                 inputs: Sequence[Mapping[str, Array]], slice_bytes: int) -> None:
        """``held``: the dtype of values until the end. ``slice_bytes``: see ``Options``.

        Raises SchedError (SL802) where sizes do not fit, and MemoryError.
        """
        self._own, self._table, self._bound = own, table, bound
        own.program.values.require_fit(bound.layout)
        layout = Layout(own.program.table, bound.elements)
        self._sizes = sizes(layout, held.numpy.itemsize, slice_bytes)
        self._ends = ends(table)
        before = starts(table)
        self._arrays: dict[tuple[int, int], Array] = {}     # by rank and buffer
        self._borrowed: set[tuple[int, int]] = set()
        self._fed: list[tuple[Array, Array]] = []           # part of an array of our own, and what belongs there
        length = {}
        for b, buffer in enumerate(table.buffers):
            count = layout.count(b)
            for rank in range(table.ranks) if buffer.only is None else [buffer.only]:
                if buffer.role != "scratch" or buffer.name in before[rank] or buffer.name in self._ends[rank]:
                    length[rank, b] = int(count[rank])
        require(sum(length.values()) * held.numpy.itemsize)
        for (rank, b), elements in length.items():
            name = table.buffers[b].name
            given, chunks = inputs[rank].get(name), before[rank].get(name, range(0))
            whole = given is not None and len(chunks) == table.buffers[b].chunks
            if given is not None and whole and not own.program.written[b] and _readable(given, held.numpy):
                self._arrays[rank, b] = given
                self._borrowed.add((rank, b))
                continue
            array = self._arrays[rank, b] = aligned(elements, held.numpy, zero=not whole)
            if given is not None:
                self._fed.append((array[self._part(rank, b, chunks)], given))
        self._arrays = {**own.scratch(layout, held.numpy), **self._arrays}

    def _part(self, rank: int, buffer: int, chunks: range) -> slice:
        at = self._bound.layout.starts(buffer, rank)
        return slice(int(at[chunks.start]), int(at[chunks.stop]))

    def fill(self) -> None:
        """The inputs into their places, before every launch."""
        for target, given in self._fed:
            target[...] = given

    def arguments(self) -> Arguments:
        """Of a launch; the arrays must stay alive, and so this task."""
        buffers = [[self._address(rank, b) for b in range(len(self._own.program.table.buffers))]
                   for rank in range(self._table.ranks)]
        return Arguments(self._sizes, buffers=buffers, flags=self._own.flags, blocks=self._own.blocks,
                         lanes=self._own.lanes, watch=self._own.watch.address)

    def _address(self, rank: int, buffer: int) -> int:
        array = self._arrays.get((rank, buffer))
        return 0 if array is None else int(array.ctypes.data)

    def results(self, op: str | None) -> list[dict[str, Array]]:
        """What the collective leaves, in arrays that nobody else has."""
        found: list[dict[str, Array]] = [{} for _ in range(self._table.ranks)]
        for (rank, b), array in self._arrays.items():
            if b >= len(self._table.buffers):
                continue
            name = self._table.buffers[b].name
            chunks = self._ends[rank].get(name)
            if chunks is None:
                continue
            part = array[self._part(rank, b, chunks)]
            result = finished(self._table, part, self._bound.dtype.numpy, op, b, rank, chunks)
            whole = len(part) == len(array) and (rank, b) not in self._borrowed
            found[rank][name] = result.copy() if result is part and not whole else result
        return found


def finished(table: OpTable, values: Array, dtype: np.dtype[Any], op: str | None, buffer: int, rank: int,
             chunks: range) -> Array:
    """Some chunks of a result, divided where an average is wanted and rounded to ``dtype``; the same array where there
    is nothing to do."""
    if op is None or not REDUCE_OPS[op].divides:
        return rounded(values, dtype)
    divisor = divisors(table, buffer, rank, chunks)
    return rounded(values, dtype, divisor[:1] if len(np.unique(divisor)) == 1 else divisor)


def _readable(array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether a kernel can read an array where it stands."""
    return array.dtype == dtype and bool(array.flags.c_contiguous) and bool(array.flags.aligned)
