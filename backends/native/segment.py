"""Memory that processes of one machine share: a file without a name, sized once.

It is gone when the last process that has it ends, however that happens: nothing of a run that was killed is left over.
It is no file of /dev/shm, which containers keep small.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from schedlang.ir.table import Array
from schedlang.memory import require

PAGE = 4096
"""Regions begin at multiples of that: each has the pages of its own."""


class Segment:
    """Regions of bytes by any keys, at first all 0. A process that inherits the file's number and gets the segment by
    pickle sees the same memory; another gets it by :meth:`of`."""

    def __init__(self, wanted: Iterable[tuple[Hashable, int]]) -> None:
        """``wanted``: keys and sizes in bytes. Raises MemoryError where there is less memory than that."""
        self._regions: dict[Hashable, tuple[int, int]] = {}
        at = 0
        for key, size in wanted:
            self._regions[key] = at, size
            at += -(-size // PAGE) * PAGE
        require(at)
        self._open(os.memfd_create("schedlang", os.MFD_CLOEXEC), max(at, PAGE))

    def _open(self, number: int, size: int | None = None) -> None:
        self._file = open(number, "r+b", buffering=0)  # noqa: SIM115  # open as long as the segment is there
        if size is not None:
            os.truncate(number, size)
        self._memory: mmap.mmap | None = None

    @property
    def number(self) -> int:
        """The file's, which a child must inherit."""
        return self._file.fileno()

    def array(self, key: Hashable, dtype: np.dtype[Any], length: int | None = None) -> Array:
        """A region as an array, which keeps the memory alive; with ``length``, its first elements."""
        if self._memory is None:
            self._memory = mmap.mmap(self.number, 0)
        at, size = self._regions[key]
        elements = size // dtype.itemsize if length is None else length
        return np.frombuffer(self._memory, dtype, elements, at)

    def regions(self) -> dict[Hashable, tuple[int, int]]:
        """Where each region begins, and its size."""
        return dict(self._regions)

    @classmethod
    def of(cls, process: int, number: int, regions: dict[Hashable, tuple[int, int]]) -> Segment:
        """The segment whose file has that number in another process of this user. Raises OSError."""
        return cls._known(os.open(f"/proc/{process}/fd/{number}", os.O_RDWR | os.O_CLOEXEC), regions)

    @classmethod
    def _known(cls, number: int, regions: dict[Hashable, tuple[int, int]]) -> Segment:
        self = cls.__new__(cls)
        self._regions = regions
        self._open(number)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Segment._known, (self.number, self._regions)
