"""What each location holds before a schedule and must hold after it, as arrays.

A *location* is one chunk of one buffer on one rank; locations are numbered (:class:`schedlang.ir.locations.Locations`).
Which of them hold values at the start and results at the end is said in :mod:`schedlang.ir.buffers`; what values, here.
A *contribution* is the initial value of one location. Its number is ``class * ranks + rank``: the class is the chunk of
the collective's vector that it belongs to (in `custom`: the chunk of its own buffer, counted on through `input` and
`data`), the rank is the one it starts on. So a sum over all ranks mixes contributions of one class only.

A *length* is a number such that a smaller one is a part that is never shorter and, for some element count, longer
(language.md, Sizes: the first E mod chunks parts are one element longer). With :attr:`Conditions.unordered` two
different lengths say nothing about each other (`counts` that the source does not read).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from schedlang.ir.buffers import Extent, ends, starts
from schedlang.ir.locations import Locations
from schedlang.ir.table import NONE, Array, OpTable, constant
from schedlang.ops import COLLECTIVES


@dataclass(frozen=True)
class Conditions:
    """Pre- and postcondition of a table.

    * ``initial_at[i]`` starts with the contribution ``initial[i]``; every other location starts uninitialised.
    * ``results[i]`` must end with each of its expected contributions exactly once and nothing else. They are all ranks'
      contributions of class ``expected_class[i]``, or that of rank ``expected_rank[i]`` alone where this is not NONE;
      or, where ``starts`` is given (`custom`), ``sources[starts[i]:starts[i + 1]]``.
    * ``lengths``: per location, NONE for scratch, which holds values of any length; None where all lengths are equal.
    * ``empty``: locations that are known to have no elements. They are no results (they are always right), and there is
      nothing to read or write there.

    Locations and contributions are int32 where all their numbers fit. Two of the arrays may be one.
    """

    locations: Locations
    ranks: int
    classes: int
    initial_at: Array
    initial: Array
    results: Array
    expected_class: Array
    expected_rank: Array
    starts: Array | None = None
    sources: Array | None = None
    lengths: Array | None = None
    unordered: bool = False
    empty: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def contributions(self) -> int:
        """How many numbers there are for contributions."""
        return self.classes * self.ranks

    def expected(self, result: int) -> list[int]:
        """The contributions that ``results[result]`` must hold."""
        if self.starts is not None and self.sources is not None:
            return [int(c) for c in self.sources[self.starts[result] : self.starts[result + 1]]]
        first = int(self.expected_class[result]) * self.ranks
        rank = int(self.expected_rank[result])
        return [first + rank] if rank != NONE else list(range(first, first + self.ranks))

    def origin(self, contribution: int) -> int:
        """The location that starts with a contribution."""
        return int(self._origins[contribution])

    def origins(self, contributions: Sequence[int]) -> tuple[Array, Array, Array]:
        """Buffer, rank and chunk of the locations that start with contributions."""
        return self.locations.apart(self._origins[np.asarray(contributions, np.int64)])

    @cached_property
    def _origins(self) -> Array:
        origins = np.full(self.contributions, NONE, np.int64)
        origins[self.initial] = self.initial_at
        return origins


def conditions(table: OpTable) -> Conditions:
    """The pre- and postcondition of a table's collective. The table is legal (``ir.legal``)."""
    places = Locations(table.ranks, table.buffers)
    family = COLLECTIVES[table.collective.name].family
    if family == "custom":
        return _custom(table, places)
    before = starts(table)[0]
    if family == "barrier":
        none = np.zeros(0, np.int64)
        return Conditions(places, table.ranks, 1, places.at(before.buffer, np.arange(table.ranks), 0),
                          np.arange(table.ranks, dtype=np.int64), none, none, none)
    return (_whole if family == "whole" else _blocked)(table, places, before, ends(table)[0])


def _whole(table: OpTable, places: Locations, before: Extent, after: Extent) -> Conditions:
    """All-reduce, reduce, broadcast: E elements in ``chunks`` parts on every rank."""
    n = table.ranks
    width = _width(places, n * table.chunks)
    owners, owned, _ = before.cells()
    initial_at = places.at(before.buffer, owners, owned).astype(width)
    held = owned.astype(width)
    owned *= n
    owned += owners
    initial = owned.astype(width)
    del owners, owned
    results = initial_at
    if after != before:
        holders, parts, _ = after.cells()
        results, held = places.at(after.buffer, holders, parts).astype(width), parts.astype(width)
    lengths = None
    if table.chunks > 1:
        chunks = np.arange(table.chunks, dtype=np.int32)
        lengths = _lengths(places, {b: chunks for b in {before.buffer, after.buffer}})
    root = table.collective.root
    whose = root if table.collective.name == "broadcast" and root is not None else NONE
    return Conditions(places, n, table.chunks, initial_at, initial, results, held, constant(whose, len(held)),
                      lengths=lengths)


def _width(places: Locations, contributions: int) -> type[np.signedinteger[Any]]:
    """The dtype that holds the numbers of all locations and contributions."""
    return np.int32 if max(places.total, contributions) < 1 << 31 else np.int64


def _blocked(table: OpTable, places: Locations, before: Extent, after: Extent) -> Conditions:
    """The long buffer is ``ranks`` blocks of ``chunks / ranks`` parts. A class is a chunk of the long buffer; with two
    long buffers (all-to-all) a chunk of the input."""
    collective, n = table.collective, table.ranks
    long, m = COLLECTIVES[collective.name].long, table.chunks // n
    owners, at, part = before.cells()
    owned = owners * m + part if long == "output" else at       # the class
    holders, kept, part = after.cells()
    if long == "input":
        held = holders * m + part
        root = collective.root
        whose = constant(root if collective.name == "scatter" and root is not None else NONE, len(held))
    else:
        held = holders * m + kept % m if long == "both" else kept
        whose = kept // m
    results = places.at(after.buffer, holders, kept)

    lengths, unordered = None, False
    if collective.counts is not None:
        lengths, unordered = _counted(table, places, before.buffer, after.buffer, collective.counts)
    elif m > 1:
        lengths = _lengths(places, {b: np.arange(table.buffers[b].chunks) % m for b in {before.buffer, after.buffer}})
    empty = np.zeros(0, np.int64)
    if collective.counts is not None and collective.counts_read and lengths is not None:
        none = int(collective.counts.max())
        # Scratch holds the longest part: it is empty where all parts are.
        empty = np.flatnonzero(lengths == none) if none else np.arange(places.total)
        some = lengths[results] != none
        results, held, whose = results[some], held[some], whose[some]
    starts_at, initial = places.at(before.buffer, owners, at), owned * n + owners
    width = _width(places, n * n * m)
    starts_at, initial, results, held = (x.astype(width) for x in (starts_at, initial, results, held))
    return Conditions(places, n, n * m, starts_at, initial, results, held, whose if whose.strides == (0,)
                      else whose.astype(width), lengths=lengths, unordered=unordered, empty=empty)


def _lengths(places: Locations, per_chunk: dict[int, Array]) -> Array:
    lengths = np.full(places.total, NONE, np.int32)
    for buffer, classes in per_chunk.items():
        places.of_buffer(lengths, buffer)[:] = classes
    return lengths


def _counted(table: OpTable, places: Locations, before: int, after: int, counts: Array) -> tuple[Array, bool]:
    """The lengths of a v-collective. Where the source reads ``counts`` they are known: by how much a part is shorter
    than the longest. Else each part has a length of its own, and no order among them."""
    n, collective = table.ranks, table.collective
    own = np.arange(n * n, dtype=np.int64).reshape(n, n)
    parts = np.arange(n, dtype=np.int64)
    lengths = np.full(places.total, NONE, np.int64)
    for buffer in {before, after}:
        if collective.name == "alltoallv":
            classes = own if buffer == before else own.T
        else:
            classes = np.tile(parts, (n, 1)) if table.buffers[buffer].chunks == n else parts[:, None]
        if collective.counts_read:
            classes = (int(counts.max()) - counts.ravel())[classes]
        places.of_buffer(lengths, buffer)[:] = classes
    return lengths, not collective.counts_read


def _custom(table: OpTable, places: Locations) -> Conditions:
    """`input` and `data` start with the rank's own values; the `ensure` statements say the rest."""
    at, ids, classes = [], [], 0
    number = np.full(places.total, NONE, np.int64)
    for extent in starts(table):
        ranks, chunks, _ = extent.cells()
        at.append(places.at(extent.buffer, ranks, chunks))
        ids.append((classes + chunks) * table.ranks + ranks)
        number[at[-1]] = ids[-1]
        classes += extent.chunks
    none = np.zeros(0, np.int64)
    places_before, initial = np.concatenate([none, *at]), np.concatenate([none, *ids])
    ensures = table.collective.ensures
    if ensures is None:
        return Conditions(places, table.ranks, classes, places_before, initial, none, none, none)
    results = places.at(ensures.buffer, ensures.rank, ensures.chunk)
    sources = number[places.at(ensures.source_buffer, ensures.source_rank, ensures.source_chunk)]
    bounds = np.asarray(ensures.starts, np.int64)
    first = np.append(sources, 0)[bounds[:-1]]
    return Conditions(places, table.ranks, classes, places_before, initial, results, first // table.ranks,
                      first % table.ranks, starts=bounds, sources=sources)
