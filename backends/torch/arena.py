"""Arrays that several processes share: the inputs and the results of ranks that are processes of their own."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence

import numpy as np

from schedlang import memory
from schedlang.ir.table import Array
from schedlang.running.dtypes import DTYPES, Dtype

_ALIGNED = 64


class Arena:
    """For each rank arrays by name, all of one dtype, in memory that belongs to a file without a name.

    A process that inherits the file's number, and gets the arena by pickle, sees the same memory.
    """

    def __init__(self, dtype: Dtype, lengths: Sequence[Mapping[str, int]]) -> None:
        """Raises MemoryError where there is less memory than that."""
        self._dtype = dtype.name
        self._places: list[dict[str, tuple[int, int]]] = []
        at = 0
        for here in lengths:
            self._places.append({})
            for name, length in here.items():
                self._places[-1][name] = at, length
                at += -(-length * dtype.numpy.itemsize // _ALIGNED) * _ALIGNED
        size, left = max(at, 1), memory.available()
        if left is not None and size > left:
            raise MemoryError
        # Not in /dev/shm, which containers keep small.
        number = os.memfd_create("schedlang") if hasattr(os, "memfd_create") else _file()
        self._file = open(number, "r+b", buffering=0)  # noqa: SIM115  # open as long as the arena is there
        os.truncate(number, size)
        self._memory: mmap.mmap | None = None

    @property
    def number(self) -> int:
        """The file's, which a child must inherit."""
        return self._file.fileno()

    def arrays(self, rank: int) -> dict[str, Array]:
        """The arrays of a rank by name; they keep the memory alive."""
        if self._memory is None:
            self._memory = mmap.mmap(self.number, 0)
        dtype = DTYPES[self._dtype].numpy
        return {name: np.frombuffer(self._memory, dtype, length, at) if length else np.empty(0, dtype)
                for name, (at, length) in self._places[rank].items()}

    def __getstate__(self) -> tuple[int, str, list[dict[str, tuple[int, int]]]]:
        return self.number, self._dtype, self._places

    def __setstate__(self, state: tuple[int, str, list[dict[str, tuple[int, int]]]]) -> None:
        number, self._dtype, self._places = state
        self._file = open(number, "r+b", buffering=0)  # noqa: SIM115
        self._memory = None


def _file() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
