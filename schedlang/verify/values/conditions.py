"""What each location holds before a schedule and must hold after it, as arrays.

A *location* is one chunk of one buffer on one rank; locations are numbered (:class:`Locations`). A *contribution* is
the initial value of one location. Its number is ``class * ranks + rank``: the class is the chunk of the collective's
vector that it belongs to (in `custom`: the chunk of its own buffer, counted on through `input` and `data`), the rank is
the one it starts on. So a sum over all ranks mixes contributions of one class only.

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

from schedlang.diagnostics import Diagnostic, error
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import COLLECTIVES


@dataclass(frozen=True)
class Locations:
    """Numbers 0..total for the locations of a table: ``base[buffer] + rank * stride[buffer] + chunk``.

    A buffer that one rank only has takes the room of one rank (stride 0).
    """

    table: OpTable
    base: Array
    stride: Array
    total: int

    @classmethod
    def of(cls, table: OpTable) -> Locations:
        sizes = [b.chunks * (1 if b.only is not None else table.ranks) for b in table.buffers]
        ends = np.cumsum([0, *sizes], dtype=np.int64)
        stride = np.array([0 if b.only is not None else b.chunks for b in table.buffers], np.int64)
        return cls(table, ends[:-1], stride, int(ends[-1]))

    def at(self, buffer: Any, rank: Any, chunk: Any) -> Array:
        """The numbers of locations; arguments broadcast."""
        if np.ndim(buffer) and len(self.base) == 1:
            buffer = 0
        stride = self.stride[buffer]
        place: Array = np.multiply(rank, stride, dtype=np.int64)
        place += chunk
        base = self.base[buffer]
        if np.any(base):
            place += base
        return place

    def where(self, location: int) -> tuple[int, int, int]:
        """(buffer, rank, chunk) of a location."""
        buffer = int(np.searchsorted(self.base, location, side="right")) - 1
        while self.table.buffers[buffer].chunks == 0:
            buffer -= 1
        described = self.table.buffers[buffer]
        rank, chunk = divmod(location - int(self.base[buffer]), described.chunks)
        return buffer, described.only if described.only is not None else rank, chunk

    def apart(self, locations: Array) -> tuple[Array, Array, Array]:
        """As :meth:`where`, for each of many locations."""
        buffer = np.searchsorted(self.base, locations, side="right") - 1
        chunks = np.array([max(b.chunks, 1) for b in self.table.buffers], np.int64)
        only = np.array([NONE if b.only is None else b.only for b in self.table.buffers], np.int64)
        rank, chunk = np.divmod(locations - self.base[buffer], chunks[buffer])
        return buffer, np.where(only[buffer] == NONE, rank, only[buffer]), chunk

    def ranks(self, locations: Array) -> Array:
        """The rank of each location."""
        return self.apart(locations)[1]

    def name(self, location: int) -> str:
        """``data[3] on rank 2``."""
        buffer, rank, chunk = self.where(location)
        return f"{self.table.buffers[buffer].name}[{chunk}] on rank {rank}"


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
    places = Locations.of(table)
    family = COLLECTIVES[table.collective.name].family
    if family == "custom":
        return _custom(table, places)
    if family == "barrier":
        token = places.at(_buffer(table, "data"), np.arange(table.ranks), 0)
        none = np.zeros(0, np.int64)
        return Conditions(places, table.ranks, 1, token, np.arange(table.ranks, dtype=np.int64), none, none, none)
    return _whole(table, places) if family == "whole" else _blocked(table, places)


def ensured(table: OpTable, conditions: Conditions) -> list[Diagnostic]:
    """What `ensure` statements say that cannot be meant (SL205): a value that starts uninitialised, one value twice,
    one location twice."""
    ensures = table.collective.ensures
    if ensures is None or conditions.starts is None or conditions.sources is None:
        return []
    owner = np.repeat(np.arange(len(conditions.results)), np.diff(conditions.starts))
    by_source = np.lexsort((conditions.sources, owner))
    same = np.zeros(len(owner), bool)
    same[by_source[1:]] = (np.diff(owner[by_source]) == 0) & (np.diff(conditions.sources[by_source]) == 0)
    by_result = np.argsort(conditions.results, kind="stable")
    again = np.zeros(len(conditions.results), bool)
    again[by_result[1:]] = np.diff(conditions.results[by_result]) == 0
    empty = np.diff(conditions.starts) == 0
    found = []
    for bad, says in (
        (owner[conditions.sources == NONE], "speaks of a value that is uninitialised at the start; only input and data "
                                            "have one"),
        (owner[same], "names one initial value twice"),
        (np.flatnonzero(again), "is the second for this place"),
        (np.flatnonzero(empty), "names no value at all"),
    ):
        if len(bad):
            first = int(bad[0])
            at = ensures.location[first] if first < len(ensures.location) else table.collective.location
            place = conditions.locations.name(int(conditions.results[first]))
            found.append(error("SL205", f"the `ensure` for {place} {says}", at, count=len(np.unique(bad))))
    return found


def _buffer(table: OpTable, role: str) -> int:
    return next(i for i, b in enumerate(table.buffers) if b.role == role)


def _ends(table: OpTable) -> tuple[int, int]:
    """The buffers with the role of input and output; in place both are `data`."""
    if any(b.role == "data" for b in table.buffers):
        return (_buffer(table, "data"),) * 2
    return _buffer(table, "input"), _buffer(table, "output")


def _grid(ranks: Array, chunks: Array) -> tuple[Array, Array]:
    """All pairs of a rank and a chunk."""
    return np.repeat(ranks, len(chunks)), np.tile(chunks, len(ranks))


def _whole(table: OpTable, places: Locations) -> Conditions:
    """All-reduce, reduce, broadcast: E elements in ``chunks`` parts on every rank."""
    name, n = table.collective.name, table.ranks
    before, after = _ends(table)
    everyone, root = np.arange(n, dtype=np.int64), np.array([table.collective.root or 0], np.int64)
    chunks = np.arange(table.chunks, dtype=np.int64)
    owners, owned = _grid(root if name == "broadcast" else everyone, chunks)
    holders, held = _grid(root if name == "reduce" else everyone, chunks)
    lengths = None
    if table.chunks > 1:
        lengths = _lengths(table, places, {b: chunks for b in {before, after}})
    return Conditions(
        places, n, table.chunks, places.at(before, owners, owned), owned * n + owners,
        places.at(after, holders, held), held, np.full(len(held), root[0] if name == "broadcast" else NONE),
        lengths=lengths)


def _blocked(table: OpTable, places: Locations) -> Conditions:
    """The long buffer is ``ranks`` blocks of ``chunks / ranks`` parts. A class is a chunk of the long buffer; with two
    long buffers (all-to-all) a chunk of the input."""
    collective, n = table.collective, table.ranks
    m = table.chunks // n
    before, after = _ends(table)
    inplace = before == after
    everyone, root = np.arange(n, dtype=np.int64), np.array([collective.root or 0], np.int64)
    block, chunks = np.arange(m, dtype=np.int64), np.arange(n * m, dtype=np.int64)
    shape = {"allgatherv": "allgather", "reduce_scatterv": "reduce_scatter", "alltoallv": "alltoall"}.get(
        collective.name, collective.name)

    # Before: (rank, chunk of the buffer, class).
    if shape in ("allgather", "gather"):
        owners, part = _grid(everyone, block)
        owned = owners * m + part
        at = owned if inplace else part
    else:
        owners, owned = _grid(root if shape == "scatter" else everyone, chunks)
        at = owned
    # After: (rank, chunk of the buffer), which class, and whose (NONE: all ranks').
    if shape in ("reduce_scatter", "scatter"):
        holders, part = _grid(everyone, block)
        held = holders * m + part
        kept = held if inplace else part
        whose = np.full(len(held), root[0] if shape == "scatter" else NONE)
    elif shape == "alltoall":
        holders, kept = _grid(everyone, chunks)
        held, whose = holders * m + kept % m, kept // m
    else:
        holders, kept = _grid(root if shape == "gather" else everyone, chunks)
        held, whose = kept, kept // m
    results = places.at(after, holders, kept)

    lengths, unordered = None, False
    if collective.name.endswith("v"):
        lengths, unordered = _counted(table, places, before, after)
    elif m > 1:
        lengths = _lengths(table, places, {b: np.arange(table.buffers[b].chunks) % m for b in {before, after}})
    empty = np.zeros(0, np.int64)
    if collective.counts is not None and collective.counts_read and lengths is not None:
        none = int(np.max(collective.counts, initial=0))
        # Scratch holds the longest part: it is empty where all parts are.
        empty = np.flatnonzero(lengths == none) if none else np.arange(places.total)
        some = lengths[results] != none
        results, held, whose = results[some], held[some], whose[some]
    return Conditions(places, n, n * m, places.at(before, owners, at), owned * n + owners, results, held, whose,
                      lengths=lengths, unordered=unordered, empty=empty)


def _lengths(table: OpTable, places: Locations, per_chunk: dict[int, Array]) -> Array:
    lengths = np.full(places.total, NONE, np.int32)
    for buffer, classes in per_chunk.items():
        end = int(places.base[buffer]) + (1 if places.stride[buffer] == 0 else table.ranks) * len(classes)
        lengths[int(places.base[buffer]) : end].reshape(-1, len(classes))[:] = classes
    return lengths


def _counted(table: OpTable, places: Locations, before: int, after: int) -> tuple[Array, bool]:
    """The lengths of a v-collective. Where the source reads ``counts`` they are known: by how much a part is shorter
    than the longest. Else each part has a length of its own, and no order among them."""
    n, collective = table.ranks, table.collective
    own = np.arange(n * n, dtype=np.int64).reshape(n, n)
    parts = np.arange(n, dtype=np.int64)
    lengths = np.full(places.total, NONE, np.int64)
    known = collective.counts_read and collective.counts is not None
    for buffer in {before, after}:
        if collective.name == "alltoallv":
            classes = own if buffer == before else own.T
        else:
            classes = np.tile(parts, (n, 1)) if table.buffers[buffer].chunks == n else parts[:, None]
        if known and collective.counts is not None:
            classes = (int(np.max(collective.counts, initial=0)) - collective.counts.ravel())[classes]
        lengths[int(places.base[buffer]) : int(places.base[buffer]) + classes.size] = classes.ravel()
    return lengths, not known


def _custom(table: OpTable, places: Locations) -> Conditions:
    """`input` and `data` start with the rank's own values; the `ensure` statements say the rest."""
    everyone = np.arange(table.ranks, dtype=np.int64)
    at, ids, classes = [], [], 0
    number = np.full(places.total, NONE, np.int64)
    for buffer, described in enumerate(table.buffers):
        if described.name not in ("input", "data"):
            continue
        ranks, chunks = _grid(everyone, np.arange(described.chunks, dtype=np.int64))
        at.append(places.at(buffer, ranks, chunks))
        ids.append((classes + chunks) * table.ranks + ranks)
        number[at[-1]] = ids[-1]
        classes += described.chunks
    none = np.zeros(0, np.int64)
    places_before, initial = np.concatenate([none, *at]), np.concatenate([none, *ids])
    ensures = table.collective.ensures
    if ensures is None:
        return Conditions(places, table.ranks, classes, places_before, initial, none, none, none)
    results = places.at(ensures.buffer, ensures.rank, ensures.chunk)
    sources = number[places.at(ensures.source_buffer, ensures.source_rank, ensures.source_chunk)]
    starts = np.asarray(ensures.starts, np.int64)
    first = np.append(sources, 0)[starts[:-1]]
    return Conditions(places, table.ranks, classes, places_before, initial, results, first // table.ranks,
                      first % table.ranks, starts=starts, sources=sources)
