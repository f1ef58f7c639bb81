"""Whose length each value has: a value keeps its length as it moves, from the place where it was at the start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from schedlang.ir.buffers import initialised
from schedlang.ir.layout import Layout
from schedlang.ir.locations import Locations
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import COLLECTIVES, Op
from schedlang.running.executable import misfit


@dataclass(frozen=True, eq=False)
class Values:
    """For every chunk of every row the location whose length its value has.

    ``first[row]`` is where the chunks of a row start in ``origin`` (numbers of ``places``; NONE for what nothing has
    initialised, which has no elements). Pairs of locations whose
    lengths must fit, each once with a row that demands it: ``moved``, (origin, target, row), where the target must have
    room for the origin; ``reduced``, (origin, operand, row), where both must be equally long.
    """

    places: Locations
    first: Array
    origin: Array
    moved: Array
    reduced: Array

    def lengths(self, layout: Layout, row: int, count: int) -> list[int]:
        """How many elements each chunk of a row moves."""
        first = int(self.first[row])
        found: list[int] = self.sizes(layout, self.origin[first : first + count]).tolist()
        return found

    def sizes(self, layout: Layout, locations: Array) -> Array:
        """The lengths of locations in a layout."""
        buffer, rank, chunk = self.places.apart(np.maximum(locations, 0))
        return np.where(locations == NONE, 0, layout.length(buffer, chunk, rank))

    def require_fit(self, layout: Layout) -> None:
        """Raises SchedError (SL802) where, with these sizes, a value moves into a shorter part, or two values of
        different lengths are reduced."""
        for pairs, reduced in ((self.moved, False), (self.reduced, True)):
            if not len(pairs):
                continue
            length, other = self.sizes(layout, pairs[:, 0]), self.sizes(layout, pairs[:, 1])
            wrong = np.flatnonzero(length != other if reduced else length > other)
            if len(wrong):
                k = wrong[np.argmin(pairs[wrong, 2])]
                raise misfit(layout, int(pairs[k, 2]), int(length[k]), int(other[k]), reduced)


def follow(table: OpTable, partner: Array, posted: Array, ready: Array, done: Array) -> Values:
    """Walk through an execution, level after level, with names of lengths in place of values."""
    places = Locations(table.ranks, table.buffers)
    own = _alike(table, places)
    held = np.where(initialised(table), own, NONE)
    scratch = np.repeat([b.role == "scratch" for b in table.buffers],
                        [b.chunks * (1 if b.only is not None else table.ranks) for b in table.buffers])
    count = table.count.astype(np.int64)
    first = np.cumsum(count) - count
    origin = np.full(int(count.sum()), NONE, np.int64)
    moved: list[Array] = []
    reduced: list[Array] = []

    def spread(rows: Array, start: Array) -> tuple[Array, Array]:
        """The numbers from ``start`` on for all chunks of rows, and the row of each."""
        n = count[rows]
        owner = np.repeat(np.arange(len(rows)), n)
        return start[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(n) - n, n), rows[owner]

    def at(rows: Array, buffer: Array, chunk: Array) -> tuple[Array, Array]:
        return spread(rows, places.at(buffer[rows], table.rank[rows], chunk[rows]))

    def chunks(rows: Array) -> Array:
        return spread(rows, first[rows])[0]

    op, sending = table.op, table.op == Op.SEND
    receiving = (op == Op.RECV) | (op == Op.REDUCE_RECV)
    local = (op == Op.COPY) | (op == Op.REDUCE)
    apart = (op == Op.REDUCE_RECV) & ((table.from_buffer != table.buffer) | (table.from_chunk != table.chunk))
    # What is read when a step is posted, what is passed on, what lands.
    levels = int(done.max(initial=-1)) + 1
    events = zip(_by_level(np.flatnonzero((sending & (table.of == NONE)) | local | apart), posted, levels),
                 _by_level(np.flatnonzero(sending & (table.of != NONE)), ready, levels),
                 _by_level(np.flatnonzero((receiving | local) & (table.buffer != NONE)), done, levels), strict=True)
    operand = np.full(len(origin), NONE, np.int64) if apart.any() else origin
    for reads, passes, lands in events:
        plain = reads[sending[reads]]
        origin[chunks(plain)] = held[at(plain, table.buffer, table.chunk)[0]]
        copies = reads[local[reads]]
        origin[chunks(copies)] = held[at(copies, table.from_buffer, table.from_chunk)[0]]
        others = reads[apart[reads]]
        if len(others):
            operand[chunks(others)] = held[at(others, table.from_buffer, table.from_chunk)[0]]
        if len(passes):
            origin[chunks(passes)] = origin[chunks(partner[table.of[passes]])]
        if not len(lands):
            continue
        came = lands[receiving[lands]]
        origin[chunks(came)] = origin[chunks(partner[came])]
        where, row = at(lands, table.buffer, table.chunk)
        value = origin[chunks(lands)]
        combines = (op[row] == Op.REDUCE) | (op[row] == Op.REDUCE_RECV)
        other = np.where(apart[row], operand[chunks(lands)], held[where])
        known = value != NONE
        _note(reduced, value, other, row, combines & known & (other != NONE) & (value != other))
        _note(moved, value, own[where], row, known & ~scratch[where] & (value != own[where]))
        held[where] = value
    quiet = np.flatnonzero(receiving & (table.buffer == NONE))       # they store nothing: what arrived, passed on
    origin[chunks(quiet)] = origin[chunks(partner[quiet])]
    return Values(places, first, origin, _each_once(moved), _each_once(reduced))


def _alike(table: OpTable, places: Locations) -> Array:
    """Per location, the first one that always has its length: lengths differ between ranks only in v-collectives that
    have input and output."""
    number = np.arange(places.total, dtype=np.int64)
    if COLLECTIVES[table.collective.name].family == "vector" and not table.collective.inplace:
        return number
    for b in range(len(table.buffers)):
        part = places.of_buffer(number, b)
        part[:] = part[:1]
    return number


def _by_level(rows: Array, level: Array, levels: int) -> Iterator[Array]:
    """The rows of each level, in row order."""
    order = np.argsort(level[rows], kind="stable")
    bounds = np.searchsorted(level[rows][order], np.arange(levels + 1))
    for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        yield rows[order[a:b]]


def _note(into: list[Array], value: Array, other: Array, row: Array, which: Array) -> None:
    if which.any():
        into.append(np.stack([value[which], other[which], row[which]], 1))


def _each_once(pairs: list[Array]) -> Array:
    if not pairs:
        return np.zeros((0, 3), np.int64)
    joined = np.concatenate(pairs)
    _, first = np.unique(joined[:, :2], axis=0, return_index=True)
    return joined[np.sort(first)]
