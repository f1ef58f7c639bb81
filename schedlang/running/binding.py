"""Arrays bound to a table: which chunks each rank's arrays are, how many elements there are, and whether all that fits.

Here arrays are NumPy's, one-dimensional, by buffer name and rank, as :class:`schedlang.backend.Backend` describes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from schedlang.diagnostics import SchedError, error
from schedlang.ir import buffers
from schedlang.ir.buffers import Extent
from schedlang.ir.layout import Layout
from schedlang.ir.table import Array, OpTable
from schedlang.ops import COLLECTIVES
from schedlang.running.dtypes import Dtype, named, of_array

Ranges = list[dict[str, range]]
"""Per rank: chunks of a buffer, by its name."""


def starts(table: OpTable) -> Ranges:
    """The chunks that the precondition initialises."""
    return _ranges(table, buffers.starts(table))


def ends(table: OpTable) -> Ranges:
    """The chunks that the postcondition names; of `custom` the whole of each buffer an `ensure` names on that rank."""
    ensures = table.collective.ensures
    if ensures is None:
        return _ranges(table, buffers.ends(table))
    named = np.unique(np.stack([ensures.buffer, ensures.rank], 1), axis=0)
    return _ranges(table, [Extent(b, range(r, r + 1), table.buffers[b].chunks) for b, r in named.tolist()])


def _ranges(table: OpTable, extents: Iterable[Extent]) -> Ranges:
    found: Ranges = [{} for _ in range(table.ranks)]
    for extent in extents:
        if extent.chunks:
            for rank in extent.ranks:
                found[rank][table.buffers[extent.buffer].name] = extent.on(rank)
    return found


@dataclass(frozen=True)
class Bound:
    """What a table's inputs say: the dtype of all values, and the lengths of all parts."""

    dtype: Dtype
    layout: Layout

    @property
    def elements(self) -> int:
        """The element count of the collective, as `Layout` counts it."""
        return self.layout.elements

    def lengths(self, buffer: int, rank: int, chunks: range) -> Array:
        """The elements in each of some chunks of a buffer on a rank: int64."""
        return np.diff(self.layout.starts(buffer, rank)[chunks.start : chunks.stop + 1])

    def lengths_of(self, buffer: str, rank: int, chunks: range) -> Array:
        """As :meth:`lengths`, for a buffer by its name."""
        return self.lengths(index_of(self.layout.table, buffer), rank, chunks)


def bind(table: OpTable, inputs: Sequence[Mapping[str, Array]]) -> Bound:
    """Raises SchedError: SL801 where arrays are missing, superfluous or of different sizes, SL802 where their size
    does not fit the collective, SL803 where the dtypes differ or schedules do not run on them."""
    if len(inputs) != table.ranks:
        raise SchedError(error("SL801", f"the schedule has {table.ranks} ranks, but there are inputs for {len(inputs)}",
                               help="give one entry a rank"))
    wanted = starts(table)
    first: tuple[str, Dtype, int, int] | None = None        # where, dtype, the array's length, the elements that makes
    for rank, (given, ranges) in enumerate(zip(inputs, wanted, strict=True)):
        _same_names(rank, given, ranges)
        for name, array in given.items():
            here = f"{name} on rank {rank}"
            if array.ndim != 1:
                raise SchedError(error("SL801", f"{here} has {array.ndim} dimensions, not 1",
                                       help="flatten it: array.reshape(-1)"))
            mine = of_array(array)
            elements = _elements(table, here, len(array), len(ranges[name]))
            first = first or (here, mine, len(array), elements)
            if mine != first[1]:
                raise SchedError(error("SL803", f"{here} is {mine.name}, but {first[0]} is {first[1].name}",
                                       help="convert all inputs to one dtype"))
            if elements != first[3]:
                raise SchedError(error("SL801", f"{here} has {len(array)} elements, but {first[0]} has {first[2]}",
                                       help="all ranks bring arrays for one size of the collective"))
    _, dtype, _, elements = first or ("", named("float32"), 0, 0)
    bound = Bound(dtype, Layout(table, _total(table, elements)))
    for rank, (given, ranges) in enumerate(zip(inputs, wanted, strict=True)):
        for name, array in given.items():
            needed = int(bound.lengths(index_of(table, name), rank, ranges[name]).sum())
            if needed != len(array):
                raise SchedError(error(
                    "SL802", f"{name} on rank {rank} has {len(array)} elements, where {needed} belong",
                                       help=f"give it {needed} elements"))
    return bound


def _same_names(rank: int, given: Mapping[str, Array], wanted: Mapping[str, range]) -> None:
    missing, foreign = wanted.keys() - given.keys(), given.keys() - wanted.keys()
    if missing:
        raise SchedError(error("SL801", f"rank {rank} has no array for {', '.join(sorted(missing))}",
                               help="give every buffer that the collective starts from"))
    if foreign:
        takes = f"takes {', '.join(sorted(wanted))}" if wanted else "takes nothing"
        raise SchedError(error("SL801", f"rank {rank} has an array for {', '.join(sorted(foreign))}, but {takes}",
                               help="leave it out"))


def _elements(table: OpTable, here: str, length: int, chunks: int) -> int:
    """The elements of the collective that an array over ``chunks`` chunks makes; of `custom`, those of one chunk."""
    family = COLLECTIVES[table.collective.name].family
    if family == "barrier" and length:
        raise SchedError(error("SL802", f"{here} has {length} elements, but a barrier moves no data",
                               help="give an empty array"))
    if family == "custom":
        if length % chunks:
            near = [n for n in (length // chunks * chunks, (length // chunks + 1) * chunks) if n]
            raise SchedError(error("SL802", f"{here} has {length} elements, which {chunks} chunks do not divide",
                                   help=f"give it {' or '.join(map(str, near))} elements"))
        return length // chunks
    if family == "vector":
        return 0
    return length * (table.chunks // chunks) if family == "blocked" else length


def _total(table: OpTable, elements: int) -> int | None:
    """From `_elements` to the count that `Layout` takes."""
    family = COLLECTIVES[table.collective.name].family
    if family == "vector":
        return None
    if family == "custom":
        sizes = {b.name: b.chunks for b in reversed(table.buffers)}
        return elements * (sizes.get("input") or sizes.get("data") or next(iter(reversed(sizes.values())), 0))
    return elements


def index_of(table: OpTable, name: str) -> int:
    """The index of a buffer that the table has."""
    index = table.buffer_index(name)
    assert index is not None
    return index
