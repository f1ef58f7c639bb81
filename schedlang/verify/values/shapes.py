"""How values were combined, without regard to what: where all contributions are the same number, a value depends on
this alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from schedlang.ir.table import Array


class Shapes:
    """The part of a walk's record that holds a value's *shape*, by number: 0 is a single contribution, all others are
    two shapes combined, ``left[n]`` and ``right[n]``, whose numbers are smaller. Which is left is not told apart;
    copies are transparent.

    ``terms[n]``: how many contributions a value of shape n holds.
    """

    width = 1

    def __init__(self) -> None:
        self.left, self.right, self.terms = [0], [0], [1]
        self._known: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.terms)

    def initial(self, contributions: Array) -> Array:
        return np.zeros((len(contributions), 1), np.uint64)

    def combine(self, into: Array, other: Array) -> None:
        mine, theirs = into[:, 0], other[:, 0]
        pair = np.minimum(mine, theirs) << np.uint64(32) | np.maximum(mine, theirs)
        if not len(pair) or (pair == pair[0]).all():
            into[:, 0] = [self._number(p) for p in pair[:1].tolist()]
            return
        distinct, which = np.unique(pair, return_inverse=True)
        into[:, 0] = np.array([self._number(p) for p in distinct.tolist()], np.uint64)[which]

    def _number(self, pair: int) -> int:
        if pair not in self._known:
            a, b = pair >> 32, pair & 0xFFFFFFFF
            self._known[pair] = len(self.terms)
            self.left.append(a)
            self.right.append(b)
            self.terms.append(self.terms[a] + self.terms[b])
        return self._known[pair]

    def values(self, inputs: Array, combine: Callable[[Array, Array], Array]) -> Array:
        """The value of every shape (a row each) for each of some inputs (a column each), all contributions being that
        input. ``combine`` works on arrays of the dtype of ``inputs``, and rounds to it."""
        depth = [0] * len(self)
        for n in range(1, len(self)):
            depth[n] = 1 + max(depth[self.left[n]], depth[self.right[n]])
        left, right, at = (np.array(x, np.int64) for x in (self.left, self.right, depth))
        found = np.empty((len(self), len(inputs)), inputs.dtype)
        found[0] = inputs
        by_depth = np.argsort(at, kind="stable")
        bounds = np.searchsorted(at[by_depth], np.arange(1, int(at.max()) + 2))
        with np.errstate(all="ignore"):         # overflow to infinity is a value like any other
            for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
                these = by_depth[start:end]
                found[these] = combine(found[left[these]], found[right[these]])
        return found
