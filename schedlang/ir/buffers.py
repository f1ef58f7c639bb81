"""What a collective says of its buffers: which there are, where values start and where results must end.

A *location* is one chunk of one buffer on one rank. Locations are numbered flat: see :class:`Locations`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from schedlang.ir.table import Array, Buffer, Collective, OpTable
from schedlang.ops import COLLECTIVES


def standard_buffers(collective: Collective, ranks: int, chunks: int) -> tuple[Buffer, ...]:
    """The buffers that a collective brings with it; none for `custom`, which declares its own.

    Raises ValueError, with a sentence for people, where ``chunks`` or ``inplace`` does not fit the collective.
    """
    kind = COLLECTIVES[collective.name]
    if kind.family == "custom":
        return ()
    if kind.family in ("whole", "barrier"):
        if collective.inplace:
            return (Buffer("data", chunks, role="data"),)
        if kind.family == "barrier":
            raise ValueError("a barrier has no input and output, only its token data[0]")
        return (Buffer("input", chunks, role="input"), Buffer("output", chunks, role="output"))
    if kind.family == "vector" and chunks != ranks:
        raise ValueError(f"{kind.name} has one chunk a rank, so chunks is {ranks} here, not {chunks}")
    if chunks % ranks:
        raise ValueError(f"{kind.name} has as many chunks for each of {ranks} ranks, so chunks cannot be {chunks}")
    if collective.inplace:
        if kind.long == "both":
            raise ValueError(f"{kind.name} cannot work in place: every block of the input leaves for another rank")
        return (Buffer("data", chunks, role="data"),)
    size = {"input": chunks, "output": chunks}
    only: dict[str, int | None] = {"input": None, "output": None}
    if kind.long != "both":
        short = "input" if kind.long == "output" else "output"
        size[short] = chunks // ranks
        if kind.rooted and kind.long is not None:
            only[kind.long] = collective.root
    return tuple(Buffer(n, size[n], role=n, only=only[n]) for n in ("input", "output"))


class Locations:
    """A flat numbering of all locations: buffer by buffer, within it rank by rank, within it chunk by chunk.

    ``total``: how many there are. Memory is counted as if every rank had every buffer.
    """

    def __init__(self, ranks: int, buffers: Sequence[Buffer]) -> None:
        self.ranks = ranks
        self.size = np.array([b.chunks for b in buffers], np.int64)
        self.base = np.concatenate(([0], np.cumsum(self.size * ranks)))[: len(buffers)]
        self.total = int(self.size.sum()) * ranks

    def at(self, buffer: Array, rank: Array, chunk: Array) -> Array:
        """The numbers (int64) of locations; arguments broadcast. Nothing is checked."""
        numbers: Array = self.base[buffer] + np.asarray(rank, np.int64) * self.size[buffer] + chunk
        return numbers

    def of_buffer(self, flags: Array, buffer: int) -> Array:
        """The part of a flat array that belongs to one buffer, as a view of shape (ranks, chunks)."""
        start, size = int(self.base[buffer]), int(self.size[buffer])
        return flags[start : start + self.ranks * size].reshape(self.ranks, size)


def initialised(table: OpTable) -> Array:
    """Which locations the precondition initialises: bool, one entry a location in the order of :class:`Locations`."""
    kind = COLLECTIVES[table.collective.name]
    flags = _none(table)
    for index, buffer in _of(table, "input", "data"):
        part = Locations(table.ranks, table.buffers).of_buffer(flags, index)
        if kind.name in ("broadcast", "scatter"):
            part[table.collective.root] = True
        elif kind.long == "output" and buffer.role == "data":
            _own_blocks(part, table.ranks)
        else:
            part[:] = True
    return flags


def results(table: OpTable) -> Array:
    """Which locations the postcondition speaks of: bool, one entry a location in the order of :class:`Locations`."""
    kind = COLLECTIVES[table.collective.name]
    flags, places = _none(table), Locations(table.ranks, table.buffers)
    ensures = table.collective.ensures
    if kind.family == "custom":
        if ensures is not None:
            flags[places.at(ensures.buffer, ensures.rank, ensures.chunk)] = True
        return flags
    if kind.family == "barrier":
        return flags
    for index, buffer in _of(table, "output", "data"):
        part = places.of_buffer(flags, index)
        if kind.name in ("reduce", "gather"):
            part[table.collective.root] = True
        elif kind.long == "input" and buffer.role == "data":
            _own_blocks(part, table.ranks)
        else:
            part[:] = True
    return flags


def _none(table: OpTable) -> Array:
    return np.zeros(Locations(table.ranks, table.buffers).total, bool)


def _of(table: OpTable, *roles: str) -> list[tuple[int, Buffer]]:
    return [(i, b) for i, b in enumerate(table.buffers) if b.role in roles]


def _own_blocks(part: Array, ranks: int) -> None:
    """Sets block r of rank r; ``part`` has shape (ranks, chunks)."""
    own = np.arange(ranks)
    part.reshape(ranks, ranks, -1)[own, own] = True
