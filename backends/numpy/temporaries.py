"""Temporary locations: where a value must be kept between being read and being used, and which place it gets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedlang.ir.table import NONE, Array


class Writes:
    """When each location is written."""

    def __init__(self, target: Array, level: Array, count: Array, levels: int) -> None:
        self.levels = levels
        locations, owner = spread(target, count)
        self.keys = np.sort(locations * levels + level[owner])

    def between(self, first: Array, start: Array, stop: Array, count: Array) -> Array:
        """Per range of ``count`` locations from ``first``: is any written at a level in ``start..stop``?"""
        return self._reach(first, start, stop, count, 0)

    def shared(self, first: Array, level: Array, count: Array) -> Array:
        """Per range: is any of its locations written more than once at ``level``?"""
        return self._reach(first, level, level + 1, count, 1)

    def _reach(self, first: Array, start: Array, stop: Array, count: Array, others: int) -> Array:
        """Per range: is any of its locations written more than ``others`` times at a level in ``start..stop``?"""
        if not len(self.keys) or (stop <= start).all():
            return np.zeros(len(first), bool)
        locations, owner = spread(first, count)
        at = locations * self.levels
        next_ = np.searchsorted(self.keys, at + start[owner]) + others
        found = (next_ < len(self.keys)) & (self.keys[next_.clip(max=len(self.keys) - 1)] < at + stop[owner])
        if len(owner) == len(first):
            return found
        return np.logical_or.reduceat(found, np.cumsum(count) - count) if len(first) else found


class Keeper:
    """Gives temporary places. Until :meth:`finish` they are numbered downwards from -2, one number a value.

    ``writes``: when the locations of buffers are written; temporary ones come behind those ``locations``.
    """

    def __init__(self, writes: Writes, locations: int) -> None:
        self.writes, self.locations = writes, locations
        self._starts: list[Array] = []
        self._ends: list[Array] = []
        self._counts: list[Array] = []
        self._given = 0
        self._copies: list[tuple[Array, Array, Array, Array]] = []

    def keep(self, start: Array, end: Array, count: Array) -> Array:
        """Places for values of ``count`` locations that live from level ``start`` to level ``end``."""
        number = -2 - np.arange(self._given, self._given + len(start), dtype=np.int64)
        self._given += len(start)
        self._starts.append(start)
        self._ends.append(end)
        self._counts.append(count)
        return number

    def unchanged(self, source: Array, read_at: Array, used_at: Array, count: Array, *, writes_follow: bool) -> Array:
        """Sources from which to read at level ``used_at`` what memory held at ``read_at``.

        The source itself where nothing writes it in between, else a temporary copy of it. ``writes_follow``: the use
        comes before the writes of its level.
        """
        changed = self.writes.between(source, read_at, used_at, count)
        clash = False if writes_follow else self.writes.between(source, used_at, used_at + 1, count)
        copied = np.flatnonzero(changed | clash)
        at = np.where(changed, read_at, used_at)[copied]
        kept = self.keep(at, used_at[copied], count[copied])
        self._copies.append((kept, source[copied], at, count[copied]))
        result = source.copy()
        result[copied] = kept
        return result

    def copies(self) -> tuple[Array, Array, Array, Array]:
        """The copies to be made: target, source, level, count."""
        target, source, level, count = (np.concatenate(x) for x in zip(*self._copies, strict=True))
        return target, source, level, count

    def finish(self) -> Resolve:
        """Settle where everything is kept."""
        start, end, count = (np.concatenate(x) for x in (self._starts, self._ends, self._counts))
        place = np.zeros(len(start), np.int64)
        total = 0
        for size in np.unique(count):
            same = np.flatnonzero(count == size)
            slots, used = colour(start[same], end[same])
            place[same] = total + slots * size
            total += used * int(size)
        return Resolve(self.locations + place, total)


@dataclass(frozen=True)
class Resolve:
    """Turns the numbers of a :class:`Keeper` into locations, of which there are ``total``."""

    place: Array
    total: int

    def __call__(self, numbers: Array) -> Array:
        temporary = numbers < NONE
        if not temporary.any():
            return numbers
        out = numbers.copy()
        out[temporary] = self.place[-2 - numbers[temporary]]
        return out


def colour(start: Array, end: Array) -> tuple[Array, int]:
    """Slots for closed intervals of levels so that none overlap, as few as there are; the slots and their number.

    In order of their starts, an interval takes the slot that has been free for longest, or a new one. How many have
    been freed before each start is a search, so which interval each one follows is known without a loop.
    """
    n = len(start)
    by_start = np.argsort(start, kind="stable")
    by_end = np.argsort(end, kind="stable")
    freed = np.searchsorted(end[by_end], start[by_start])
    fresh = np.maximum.accumulate(np.concatenate([[0], np.arange(1, n + 1) - freed]))
    is_new = np.diff(fresh) > 0
    before = np.arange(n)
    before[by_start[~is_new]] = by_end[np.arange(n)[~is_new] - fresh[1:][~is_new]]
    before[by_start[is_new]] = by_start[is_new]
    while True:
        further = before[before]
        if np.array_equal(further, before):
            break
        before = further
    slot = np.empty(n, np.int64)
    slot[by_start[is_new]] = np.arange(int(is_new.sum()))
    return slot[before], int(fresh[-1])


def spread(first: Array, count: Array) -> tuple[Array, Array]:
    """All locations of ranges of ``count`` from ``first``, and for each the index of its range."""
    owner = np.arange(len(first))
    if (count == 1).all():
        return first, owner
    owner = np.repeat(owner, count)
    return first[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count), owner
