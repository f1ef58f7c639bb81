"""Memory of a launch in one process: flags, scratch, and the watch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from schedlang.backends.cuda.arguments import FLAG_BYTES
from schedlang.backends.native.launching import Watch, watch_words
from schedlang.backends.native.program import Program
from schedlang.ir.layout import Layout
from schedlang.ir.table import Array
from schedlang.memory import require

ALIGNED = 64
"""Bytes: of a cache line, and of the widest vector."""


def aligned(length: int, dtype: np.dtype[Any], *, zero: bool = False) -> Array:
    """A new array that begins at a cache line."""
    raw = (np.zeros if zero else np.empty)(length * dtype.itemsize + ALIGNED, np.uint8)
    start = -raw.ctypes.data % ALIGNED
    found: Array = raw[start : start + length * dtype.itemsize].view(dtype)
    return found


class Own:
    """What belongs to a program in this process: flags that count on from launch to launch, and scratch for the last
    size. One launch at a time."""

    def __init__(self, program: Program, blocks: int) -> None:
        self.program, self.blocks = program, blocks
        self.lanes = [(int(rank), int(number)) for rank, number in program.kernel.lanes.tolist()]
        self.watch = Watch(aligned(watch_words(len(self.lanes), blocks), np.dtype(np.int32), zero=True))
        self._per_rank = program.flags * blocks * FLAG_BYTES
        self._flags = aligned(program.table.ranks * self._per_rank, np.dtype(np.uint8), zero=True)
        self._scratch: dict[tuple[int, int], Array] = {}
        self._size: tuple[int, int] | None = None

    @property
    def flags(self) -> Sequence[int]:
        """The addresses of the flags of each rank."""
        start = self._flags.ctypes.data
        return range(start, start + max(1, len(self._flags)), self._per_rank)[: self.program.table.ranks]

    def forget(self) -> None:
        """After a launch that did not come to its end."""
        self._flags[:] = 0

    def scratch(self, layout: Layout, dtype: np.dtype[Any]) -> dict[tuple[int, int], Array]:
        """The arrays of scratch buffers by rank and buffer, for a layout of the normal form. Raises MemoryError."""
        if self._size != (layout.elements, dtype.itemsize):
            self._scratch, self._size = {}, None
            wanted = {(rank, b): int(layout.count(b)[rank]) for b, buffer in enumerate(layout.table.buffers)
                      for rank in range(layout.table.ranks)
                      if buffer.role == "scratch" and buffer.only in (None, rank)}
            require(sum(wanted.values()) * dtype.itemsize)
            kind = np.dtype(f"u{dtype.itemsize}")
            self._scratch = {at: aligned(length, kind, zero=True) for at, length in wanted.items()}
            self._size = layout.elements, dtype.itemsize
        return self._scratch

    @property
    def kept(self) -> int:
        """The bytes of scratch."""
        return sum(array.nbytes for array in self._scratch.values())
