"""What a collective says of its buffers: which there are, where values start and where results must end.

Which values must end where: ``verify/values/conditions.py``, and, written by itself so that each is the other's test,
``interpret/conditions.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedlang.ir.locations import Locations
from schedlang.ir.table import Array, Buffer, Collective, OpTable
from schedlang.ops import COLLECTIVES

STANDARD = ("data", "input", "output")
"""The names of a collective's own buffers; so called, a buffer of `custom` has that role, too."""


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


@dataclass(frozen=True)
class Extent:
    """Chunks of one buffer on some ranks: all of them, or with ``own`` block r on rank r, where the buffer is one
    block of ``chunks / ranks`` chunks for each rank. ``ranks`` ascends.
    """

    buffer: int
    ranks: range
    chunks: int
    own: bool = False

    def on(self, rank: int) -> range:
        """The chunks on one of the ranks."""
        return range(rank * self.chunks, (rank + 1) * self.chunks) if self.own else range(self.chunks)

    def cells(self) -> tuple[Array, Array, Array]:
        """Rank, chunk, and chunk within what the rank has here, of each location, rank by rank: int64."""
        ranks = np.arange(self.ranks.start, self.ranks.stop, dtype=np.int64)
        rank, within = np.repeat(ranks, self.chunks), np.tile(np.arange(self.chunks, dtype=np.int64), len(ranks))
        return rank, rank * self.chunks + within if self.own else within, within


def starts(table: OpTable) -> tuple[Extent, ...]:
    """What the precondition initialises."""
    collective, kind = table.collective, COLLECTIVES[table.collective.name]
    own = kind.long == "output"
    return _extents(table, ("input", "data"), own, collective.root if kind.name in ("broadcast", "scatter") else None)


def ends(table: OpTable) -> tuple[Extent, ...]:
    """What the postcondition speaks of; nothing for a barrier, and of `custom` its ``ensures`` say it."""
    collective, kind = table.collective, COLLECTIVES[table.collective.name]
    if kind.family in ("custom", "barrier"):
        return ()
    own = kind.long == "input"
    return _extents(table, ("output", "data"), own, collective.root if kind.name in ("reduce", "gather") else None)


def _extents(table: OpTable, roles: tuple[str, ...], own: bool, root: int | None) -> tuple[Extent, ...]:
    """The buffers of some roles; ``own``: of `data` only the own blocks."""
    ranks = range(table.ranks) if root is None else range(root, root + 1)
    return tuple(Extent(i, ranks, b.chunks // table.ranks, True) if own and b.role == "data"
                 else Extent(i, ranks, b.chunks) for i, b in enumerate(table.buffers) if b.role in roles)


def initialised(table: OpTable) -> Array:
    """Which locations the precondition initialises: bool, one entry a location in the order of :class:`Locations`."""
    return _flags(table, starts(table))


def results(table: OpTable) -> Array:
    """Which locations the postcondition speaks of: bool, one entry a location in the order of :class:`Locations`."""
    flags = _flags(table, ends(table))
    ensures = table.collective.ensures
    if ensures is not None:
        flags[Locations(table.ranks, table.buffers).at(ensures.buffer, ensures.rank, ensures.chunk)] = True
    return flags


def _flags(table: OpTable, extents: tuple[Extent, ...]) -> Array:
    places = Locations(table.ranks, table.buffers)
    flags = np.zeros(places.total, bool)
    for extent in extents:
        part = places.of_buffer(flags, extent.buffer)
        if len(part) < table.ranks:     # only the root has it
            part[:] = True
        elif extent.own:
            own = np.arange(table.ranks)
            part.reshape(table.ranks, table.ranks, -1)[own, own] = True
        else:
            part[extent.ranks.start : extent.ranks.stop] = True
    return flags
