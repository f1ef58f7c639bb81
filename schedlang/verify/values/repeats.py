"""Values that come to a place which holds them already."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from schedlang.ir.table import Array
from schedlang.verify.values.conditions import Conditions
from schedlang.verify.values.records import Trees
from schedlang.verify.values.walk import Part, Program, Walk


class Watched(Walk):
    """A walk that notices plain writes of what is there already: the same contributions, combined in the same order.

    Where the order of combination is not part of the record, only values of one contribution count, whose bits are the
    same whatever the order. The answer is as certain as the record (fingerprints: with their error probability).
    """

    def __init__(self, program: Program, parts: Sequence[Part], conditions: Conditions) -> None:
        super().__init__(program, parts, conditions)
        self._ordered = any(isinstance(part, Trees) for part in parts)
        self._empty = conditions.empty
        self._repeats: list[Array] = []

    def landing(self, who: Array, where: Array, brought: Array, stored: Array) -> None:
        if stored is not brought:           # combined with what is there
            return
        brings = stored.view(np.float64)[:, 0]
        same = self.count[where] == brings
        if not self._ordered:
            same &= brings == 1
        if not same.any():
            return
        hit = np.flatnonzero(same)
        hit = hit[(self.state[where[hit]] == stored[hit]).all(1)]
        if len(self._empty):
            hit = hit[~np.isin(where[hit], self._empty)]
        if len(hit):
            self._repeats.append(who[hit])

    @property
    def repeats(self) -> Array:
        """The carriers that brought what was there."""
        return np.concatenate(self._repeats) if self._repeats else np.zeros(0, np.int32)
