"""The attributes of all elements of one kind, as columns of numbers for the words that are written there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter

import numpy as np

from schedlang.ir.table import Array

_BATCH = 1 << 13
"""Elements of which words are held before they become numbers: memory stays small, and the work is done in bulk."""

_NAMES = 100

Word = str | None


class Strange:
    """Names that nothing is known of: of the first ``_NAMES`` of them how often each occurred (``count``), and where
    first (``at``, as the caller gives it); of all ``others`` how often they did."""

    def __init__(self) -> None:
        self.count: dict[str, int] = {}
        self.at: dict[str, int] = {}
        self.others = 0

    def add(self, name: str, at: int) -> None:
        """A name, once more."""
        if name in self.count:
            self.count[name] += 1
        elif len(self.count) < _NAMES:
            self.count[name], self.at[name] = 1, at
        else:
            self.others += 1


class Column:
    """One attribute of all elements: ``codes`` are indices into ``words``, the distinct values (None: it lacks)."""

    def __init__(self) -> None:
        self._index: dict[Word, int] = {}
        self._parts: list[Array] = []

    def extend(self, values: list[Word]) -> None:
        """More elements."""
        index = self._index
        for value in set(values) - index.keys():
            index[value] = len(index)
        self._parts.append(np.fromiter(map(index.__getitem__, values), np.int32, len(values)))

    @property
    def words(self) -> list[Word]:
        return list(self._index)

    @property
    def codes(self) -> Array:
        return np.concatenate(self._parts) if self._parts else np.empty(0, np.int32)


class Tally:
    """All elements of one kind, told one after the other by :meth:`add`.

    ``names``: the attributes that there are to be; ``others``: those that there may be besides, without being looked
    at. ``at``: the place of each element, as the caller gives it. ``strange``: the attributes of any other name.
    """

    def __init__(self, names: Iterable[str], others: Iterable[str] = ()) -> None:
        self.names, self._others = list(names), frozenset(others)
        self.at: list[int] = []
        self.strange = Strange()
        self.columns = {name: Column() for name in self.names}
        self._values: list[Word] = []
        self._last = self.names
        self._pick: Callable[[list[Word]], Iterable[Word]] | None = None
        self._unknown: list[str] = []

    def add(self, attributes: list[str], at: int) -> None:
        """An element: its attributes as name, value, name, value ..., and where it is."""
        names = attributes[::2]
        if names != self._last:
            self._learn(names)
        if self._pick is None:
            self._values += attributes[1::2]
        else:
            self._values += self._pick([*attributes, None])
        for name in self._unknown:
            self.strange.add(name, at)
        self.at.append(at)
        if len(self._values) >= _BATCH * len(self.names):
            self.flush()

    def _learn(self, names: list[str]) -> None:
        """Where in a list of these attributes the expected ones stand; missing ones are the None at its end."""
        self._last = names
        place = {name: 2 * i + 1 for i, name in enumerate(names)}
        self._pick = None if names == self.names else itemgetter(
            *(place.get(name, 2 * len(names)) for name in self.names))
        self._unknown = [name for name in names if name not in self.columns and name not in self._others]

    def flush(self) -> None:
        """Makes numbers of what was told since the last time."""
        width = len(self.names)
        for i, name in enumerate(self.names):
            self.columns[name].extend(self._values[i::width])
        self._values = []
