"""How many elements each part of each buffer has. Written out plainly, apart from ``ir/layout.py``: each is the
other's test."""

from __future__ import annotations

import numpy as np

from schedlang.diagnostics import SchedError, error
from schedlang.interpret.conditions import Location
from schedlang.ir.table import OpTable
from schedlang.ops import COLLECTIVES


def divide(elements: int, parts: int) -> list[int]:
    """``elements`` in ``parts`` parts, the first ``elements mod parts`` of them one longer."""
    return [elements // parts + (1 if i < elements % parts else 0) for i in range(parts)]


def always_empty(table: OpTable) -> set[Location]:
    """The locations that have no elements in any run that a proof speaks of: the tokens of a barrier, and parts whose
    count is zero where the schedule depends on the counts (where it does not, a proof holds for all counts)."""
    if table.collective.counts is not None and not table.collective.counts_read:
        return set()
    return Sizes.nominal(table).without_elements()


class Sizes:
    """The lengths of all parts when the collective is one of ``elements`` elements.

    ``elements``: of ``data`` (allreduce, reduce, broadcast), of the long buffer (blocked collectives), of one chunk
    (custom); of no account for v-collectives, whose counts say all, and for a barrier. A scratch part can hold the
    longest part there is.

    Raises SchedError (SL802) where a long buffer does not divide by ``ranks``.
    """

    def __init__(self, table: OpTable, elements: int) -> None:
        self._table = table
        collective, ranks, chunks = table.collective, table.ranks, table.chunks
        family = COLLECTIVES[collective.name].family
        self._long: list[int] = []
        self._block: list[int] = []
        if family == "whole":
            self._long = divide(elements, chunks)
        elif family == "blocked":
            if elements % ranks:
                raise SchedError(error(
                    "SL802", f"{elements} elements do not divide into {ranks} equal blocks, one a rank",
                    collective.location or table.location,
                    help=f"use {elements // ranks * ranks} or {(elements // ranks + 1) * ranks} elements"))
            self._block = divide(elements // ranks, chunks // ranks)
            self._long = self._block * ranks
        elif family == "custom":
            self._block = [elements]
        counts = collective.counts
        self._counts = None if counts is None else np.asarray(counts)
        listed = [] if self._counts is None else self._counts.ravel().tolist()
        self.longest = max([0, *self._long, *self._block, *listed])

    @classmethod
    def nominal(cls, table: OpTable) -> Sizes:
        """One element a chunk, or as many as the counts say; none in a barrier."""
        return cls(table, 1 if table.collective.name == "custom" else table.chunks)

    def without_elements(self) -> set[Location]:
        """The locations where there is nothing to read or write."""
        return {(r, b, c) for r in range(self._table.ranks) for b in range(len(self._table.buffers))
                for c, length in enumerate(self.of(b, r)) if not length}

    def of(self, buffer: int, rank: int) -> list[int]:
        """The lengths of the parts of a buffer at a rank: all of them, in chunk order."""
        at, name = self._table.buffers[buffer], self._table.collective.name
        if at.only is not None and at.only != rank:
            return []
        if at.role == "scratch" and name != "custom":
            return [self.longest] * at.chunks
        family = COLLECTIVES[name].family
        if family == "barrier":
            return [0] * at.chunks
        if family == "custom":
            return self._block * at.chunks
        if self._counts is not None:
            return self._by_counts(at.role, at.chunks, rank)
        return list(self._long if at.chunks == len(self._long) else self._block)

    def _by_counts(self, role: str, chunks: int, rank: int) -> list[int]:
        assert self._counts is not None
        if self._counts.ndim == 2:
            parts = self._counts[rank] if role == "input" else self._counts[:, rank]
        else:
            parts = self._counts if chunks == self._table.ranks else self._counts[rank : rank + 1]
        return [int(n) for n in parts]
