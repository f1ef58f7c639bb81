"""Numbers for connections, so that `chan` need be said seldom and follows from where a lane stands.

Connections are told apart by their ends already; a number only has to differ among those of one source and target, and
be the same where a message is passed on, since a fused receive and send are written as one statement on one channel.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from schedlang.ir.table import NONE, Array
from schedlang.lift.statements import Statements, cannot


class _Sets:
    """Disjoint sets of the numbers from 0."""

    def __init__(self, size: int) -> None:
        self._up = list(range(size))

    def find(self, i: int) -> int:
        while self._up[i] != i:
            self._up[i] = self._up[self._up[i]]
            i = self._up[i]
        return i

    def join(self, i: int, j: int) -> None:
        self._up[self.find(i)] = self.find(j)

    def all(self) -> Array:
        """The set of each, as dense numbers in the order of their first members."""
        roots = [self.find(i) for i in range(len(self._up))]
        numbers: dict[int, int] = {}
        return np.array([numbers.setdefault(r, len(numbers)) for r in roots], np.int64)


def linked(s: Statements) -> Array:
    """For each connection: the group of lanes that exchange messages, directly or through others, which it is in."""
    rows = np.flatnonzero(s.connection != NONE)
    lane = _lanes(s)[rows]
    pairs = np.unique(np.stack([lane, s.connection[rows]], 1), axis=0)
    return _joined(len(s.sources), pairs)


def fused(s: Statements) -> Array:
    """For each connection: the group of those that must have one number. Raises SchedError SL808 where two of them
    have the same ends, so need two."""
    at = np.flatnonzero(s.forward != NONE)
    sets = _Sets(len(s.sources))
    for one, other in zip(s.connection[s.row[at]].tolist(), s.connection[s.forward[at]].tolist(), strict=True):
        sets.join(one, other)
    group = sets.all()
    clash = clashing(s, group)
    if clash is not None:
        one = int(np.argmax((s.connection[s.row[at]] == clash) | (s.connection[s.forward[at]] == clash)))
        raise cannot(s.table, int(s.row[at[one]]), "a fused receive and send are one statement, so on one channel; "
                     "but then two connections of the same ranks would be on one channel",
                     "pass messages on by a connection of the same name")
    return group


def clashing(s: Statements, group: Array) -> int | None:
    """A connection whose group has another one of the same ends; None: there is none."""
    ends = np.stack([s.sources, s.targets, group], 1)
    _, first, count = np.unique(ends, axis=0, return_index=True, return_counts=True)
    return int(first[count > 1][0]) if (count > 1).any() else None


def coloured(s: Statements, group: Array, order: Iterable[int]) -> Array:
    """For each connection a number, equal in a group, different for the same ends; the least that is free, group by
    group in ``order``."""
    members: dict[int, list[int]] = {}
    for c, g in enumerate(group.tolist()):
        members.setdefault(g, []).append(c)
    taken: dict[tuple[int, int], set[int]] = {}
    number = np.zeros(len(group), np.int64)
    for g in order:
        ends = [(int(s.sources[c]), int(s.targets[c])) for c in members[g]]
        used = set().union(*(taken.get(e, ()) for e in ends))
        free = next(k for k in range(len(used) + 1) if k not in used)
        for c, e in zip(members[g], ends, strict=True):
            number[c] = free
            taken.setdefault(e, set()).add(free)
    return number


def _lanes(s: Statements) -> Array:
    lane = np.full(len(s.table) + 1, NONE, np.int64)
    lane[s.row] = s.lane
    lane[s.forward[s.forward != NONE]] = s.lane[s.forward != NONE]
    return lane[:-1]


def _joined(size: int, pairs: Array) -> Array:
    """Groups of connections that occur with the same lane; ``pairs``: (lane, connection), sorted by lane."""
    sets = _Sets(size)
    for one, other in zip(pairs[:-1].tolist(), pairs[1:].tolist(), strict=True):
        if one[0] == other[0]:
            sets.join(one[1], other[1])
    return sets.all()
