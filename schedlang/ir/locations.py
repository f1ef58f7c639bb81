"""Locations: each chunk of each buffer on each rank, numbered through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from schedlang.ir.table import NONE, Array, Buffer


class Locations:
    """The numbers 0..total for all locations: ``base[buffer] + rank * stride[buffer] + chunk``, int64.

    A buffer that one rank only has takes the room of one rank (stride 0).
    """

    def __init__(self, ranks: int, buffers: Sequence[Buffer]) -> None:
        self.ranks, self.buffers = ranks, tuple(buffers)
        sizes = [b.chunks * (1 if b.only is not None else ranks) for b in buffers]
        ends = np.cumsum([0, *sizes], dtype=np.int64)
        self.base: Array = ends[:-1]
        self.stride: Array = np.array([0 if b.only is not None else b.chunks for b in buffers], np.int64)
        self.total = int(ends[-1])

    def at(self, buffer: Any, rank: Any, chunk: Any) -> Array:
        """The numbers of locations; arguments broadcast. Nothing is checked."""
        if np.ndim(buffer) and len(self.base) == 1:
            buffer = 0
        stride = self.stride[buffer]
        place: Array = np.multiply(rank, stride, dtype=np.int64)
        if np.shape(chunk) in ((), np.shape(place)):
            place += chunk      # in place: tables have millions of rows
        else:
            place = place + chunk
        base = self.base[buffer]
        if np.any(base):
            place += base
        return place

    def of_buffer(self, per_location: Array, buffer: int) -> Array:
        """The part of an array over all locations that belongs to one buffer, as a view of shape (ranks, chunks), or
        (1, chunks) where one rank only has it."""
        start, described = int(self.base[buffer]), self.buffers[buffer]
        rows = 1 if described.only is not None else self.ranks
        return per_location[start : start + rows * described.chunks].reshape(rows, described.chunks)

    def where(self, location: int) -> tuple[int, int, int]:
        """(buffer, rank, chunk) of a location."""
        buffer = int(np.searchsorted(self.base, location, side="right")) - 1
        while self.buffers[buffer].chunks == 0:
            buffer -= 1
        described = self.buffers[buffer]
        rank, chunk = divmod(location - int(self.base[buffer]), described.chunks)
        return buffer, described.only if described.only is not None else rank, chunk

    def apart(self, locations: Array) -> tuple[Array, Array, Array]:
        """As :meth:`where`, for each of many locations."""
        buffer = np.searchsorted(self.base, locations, side="right") - 1
        chunks = np.array([max(b.chunks, 1) for b in self.buffers], np.int64)
        only = np.array([NONE if b.only is None else b.only for b in self.buffers], np.int64)
        rank, chunk = np.divmod(locations - self.base[buffer], chunks[buffer])
        return buffer, np.where(only[buffer] == NONE, rank, only[buffer]), chunk

    def ranks_of(self, locations: Array) -> Array:
        """The rank of each location."""
        return self.apart(locations)[1]

    def name(self, location: int) -> str:
        """``data[3] on rank 2``."""
        buffer, rank, chunk = self.where(location)
        return f"{self.buffers[buffer].name}[{chunk}] on rank {rank}"
