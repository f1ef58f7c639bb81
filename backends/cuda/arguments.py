"""What a kernel is told when it is launched, as lane.cuh reads it: where memory is, and how elements divide."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schedlang.diagnostics import SchedError, error
from schedlang.ir.layout import LIMIT, Layout
from schedlang.ir.table import Array, OpTable
from schedlang.ops import COLLECTIVES

FLAG_BYTES = 64
"""A flag has a cache line of its own."""

SLICE_BYTES = 256 << 10
"""How much of a chunk is passed on at a time: what is summed stays in the cache."""

MOST_SLICES = (1 << 20) - 2
"""Of a message: flags count them in 20 bits."""


class CutStruct(ctypes.Structure):
    """``Cut``: chunk c of a buffer starts at ``table[c]``; or, where that is null, it is a part of block c / parts: a
    block has ``block`` elements in ``parts`` parts of ``each``, the first ``longer`` of them one longer."""

    _fields_ = (("table", ctypes.c_void_p), ("block", ctypes.c_longlong), ("parts", ctypes.c_longlong),
                ("each", ctypes.c_longlong), ("longer", ctypes.c_longlong))


class ArgsStruct(ctypes.Structure):
    """``Args``; all pointers are addresses in this process."""

    _fields_ = (("buffers", ctypes.c_void_p), ("flags", ctypes.c_void_p), ("cuts", ctypes.c_void_p),
                ("values", CutStruct), ("slice", ctypes.c_longlong), ("slices", ctypes.c_int), ("blocks", ctypes.c_int),
                ("lanes", ctypes.c_void_p), ("watch", ctypes.c_void_p), ("reach", ctypes.c_void_p))


class ModeStruct(ctypes.Structure):
    """``Mode``: how a CPU runs a kernel."""

    _fields_ = (("kind", ctypes.c_int), ("threads", ctypes.c_int), ("looks", ctypes.c_int), ("yields", ctypes.c_int),
                ("delays", ctypes.c_int), ("delay", ctypes.c_int), ("seed", ctypes.c_ulonglong),
                ("timeout", ctypes.c_longlong))


@dataclass(frozen=True)
class Cut:
    """How a buffer, or what values there are, divides: by ``table`` (int64, one entry more than there are chunks), or
    by the formula (see :class:`CutStruct`)."""

    table: Array | None = None
    block: int = 0
    parts: int = 1
    each: int = 0
    longer: int = 0

    def struct(self) -> CutStruct:
        """The same for a kernel; the table must stay alive."""
        at = None if self.table is None else self.table.ctypes.data
        return CutStruct(at, self.block, self.parts, self.each, self.longer)

    def start(self, chunk: int) -> int:
        """Where a chunk starts."""
        if self.table is not None:
            return int(self.table[chunk])
        block, part = divmod(chunk, self.parts)
        return block * self.block + part * self.each + min(part, self.longer)

    def length(self, chunk: int) -> int:
        """How many elements a chunk has."""
        if self.table is not None:
            return int(self.table[chunk + 1] - self.table[chunk])
        return self.each + (chunk % self.parts < self.longer)


def _evenly(elements: int, parts: int) -> Cut:
    """Blocks of so many elements, each in so many parts, the first of which are one longer."""
    parts = max(1, parts)
    return Cut(None, elements, parts, elements // parts, elements % parts)


@dataclass(frozen=True)
class Sizes:
    """How many elements everything has. ``cuts``: of each buffer, or of each on every rank, rank by rank, where
    ``per_rank``. ``values``: by the length class of a value (see backends/cuda/normal.py). ``slice`` and ``slices``: as
    in ``Args``."""

    cuts: tuple[Cut, ...]
    values: Cut
    per_rank: bool
    slice: int
    slices: int


def sizes(layout: Layout, itemsize: int, slice_bytes: int = SLICE_BYTES) -> Sizes:
    """Of the table of a normal form, for a layout of it. Raises SchedError (SL802) where a row moves more chunks than
    flags can count slices."""
    table = layout.table
    ranks = range(table.ranks) if layout.per_rank else range(1)
    cuts = tuple(_cut(layout, b, rank) for rank in ranks for b in range(len(table.buffers)))
    values = _values(layout)
    longest = layout.part
    most = max(1, int(table.count.max(initial=1)))
    if most > MOST_SLICES:
        raise SchedError(error("SL802", f"{table.name} moves {most:,} chunks at once, and a kernel at most "
                                        f"{MOST_SLICES:,}", help="move fewer chunks in a line, or have fewer of them"))
    least = -(-longest // (MOST_SLICES // most))        # elements, so that no message has too many slices
    each = max(1, slice_bytes // itemsize, least)
    slices = max(1, -(-longest // min(each, LIMIT)))
    even = max(1, -(-longest // slices))                    # blocks part a slice: a short one would leave some idle
    return Sizes(cuts, values, layout.per_rank, even, slices)


def _cut(layout: Layout, buffer: int, rank: int) -> Cut:
    table, b = layout.table, layout.table.buffers[buffer]
    family = COLLECTIVES[table.collective.name].family
    if b.role == "scratch" or family in ("custom", "barrier"):
        return Cut(None, layout.part, 1, layout.part, 0)
    if family == "whole":
        return _evenly(layout.elements, b.chunks)
    if family == "blocked":
        return _evenly(layout.elements // table.ranks, table.chunks // table.ranks)
    return Cut(np.ascontiguousarray(layout.starts(buffer, rank)))


def _values(layout: Layout) -> Cut:
    table, collective = layout.table, layout.table.collective
    kind = COLLECTIVES[collective.name]
    if kind.family == "whole":
        return _evenly(layout.elements, _of_collective(table))
    if kind.family == "blocked":
        return _evenly(layout.elements // table.ranks, table.chunks // table.ranks)
    if kind.family == "vector":
        assert collective.counts is not None
        return Cut(np.concatenate([[0], np.cumsum(collective.counts.ravel())]).astype(np.int64))
    return Cut(None, layout.part, 1, layout.part, 0)


def _of_collective(table: OpTable) -> int:
    """The chunks of a buffer of a collective whose buffers are all alike."""
    return next((b.chunks for b in table.buffers if b.role != "scratch"), 1)


class Arguments:
    """The arguments of one launch, and all memory that they point to but for buffers, flags and the watch.

    ``buffers``: addresses by rank, then buffer; 0 where a rank lacks it. ``flags``: addresses by rank. ``lanes``: rank
    and program of each lane that is run here. ``reach``: how memory that is not mapped is read, or 0.
    """

    def __init__(self, sizes: Sizes, *, buffers: Sequence[Sequence[int]], flags: Sequence[int], blocks: int,
                 lanes: Sequence[tuple[int, int]], watch: int, reach: int = 0) -> None:
        self._sizes = sizes                                 # its tables are read by the kernel
        self._buffers = np.array([address for here in buffers for address in here], np.uintp)
        self._flags = np.array(flags, np.uintp)
        self._lanes = np.array([number for lane in lanes for number in lane], np.intc)
        self._cuts = (CutStruct * max(1, len(sizes.cuts)))(*(cut.struct() for cut in sizes.cuts))
        self.lanes = len(lanes)
        self.struct = ArgsStruct(
            self._buffers.ctypes.data, self._flags.ctypes.data, ctypes.addressof(self._cuts), sizes.values.struct(),
            sizes.slice, sizes.slices, blocks, self._lanes.ctypes.data, watch, reach or None)
