"""How many elements each chunk has and where it starts: the language document's "Sizes", in 64-bit arithmetic."""

from __future__ import annotations

import numpy as np

from schedlang.diagnostics import Diagnostic, SchedError, error
from schedlang.ir.table import Array, Buffer, OpTable
from schedlang.ops import COLLECTIVES

LIMIT = (1 << 63) - 1
"""The largest size or offset."""


def divide(elements: int, parts: int) -> Array:
    """The lengths (int64) of ``parts`` parts of ``elements``: the first ``elements % parts`` are one element longer."""
    if not parts:
        return np.zeros(0, np.int64)
    short, longer = divmod(elements, parts)
    return np.full(parts, short, np.int64) + (np.arange(parts) < longer)


class Layout:
    """Sizes and offsets, in elements, of a table's buffers for one element count.

    ``elements``: for all-reduce, reduce and broadcast the length of the buffer; for blocked collectives the length of
    the long buffer (``ranks`` blocks); for v-collectives the sum of all counts, or None; for `custom` the length of
    `input` (or else `data`, or else the first buffer); a barrier takes any number and has zero elements.

    ``part``: the length of the longest part of the collective, which is what a chunk of scratch holds at most.
    ``sparse``: whether some chunks of the collective have no elements.
    ``per_rank``: whether lengths differ from rank to rank (v-collectives with input and output).
    ``inputs``, ``outputs``: int64 arrays over ranks: how many elements a caller brings to and takes from each rank, 0
    where the collective reads or leaves nothing there. Working in place or not makes no difference to these.

    A value keeps its length as it moves, so chunk ``i`` of a scratch buffer starts at ``i * part`` even where it holds
    fewer elements: several chunks move one by one unless all their lengths are ``part``.

    Raises SchedError (SL802) where the count does not fit: negative, beyond 64 bits, or not divisible as it must be.
    """

    def __init__(self, table: OpTable, elements: int | None) -> None:
        self.table = table
        self.elements = _fitting(table, elements)
        kind = COLLECTIVES[table.collective.name]
        self.per_rank = kind.family == "vector" and not table.collective.inplace
        lengths = [self._lengths(b) for b in table.buffers]
        self.part = max((int(v.max()) for v in lengths if v is not None and v.size), default=0)
        self.sparse = any(v is not None and bool((v == 0).any()) for v in lengths)
        self._base = np.cumsum([0, *(b.chunks + 1 for b in table.buffers)])
        self._starts = np.zeros((table.ranks if self.per_rank else 1, int(self._base[-1])), np.int64)
        for b, base, known in zip(table.buffers, self._base.tolist(), lengths, strict=False):
            alike = known is None or kind.family == "custom"        # others add up to the element count at most
            if alike and b.chunks * self.part > LIMIT:
                raise SchedError(_bad(table, f"{b.chunks} chunks of {'scratch ' * (b.role == 'scratch')}{b.name} with "
                                             f"{self.part} elements each are more than 64 bits can count",
                                      "take fewer elements"))
            length = np.full(b.chunks, self.part, np.int64) if known is None else known
            np.cumsum(np.broadcast_to(length, (len(self._starts), b.chunks)), axis=1,
                      out=self._starts[:, base + 1 : base + 1 + b.chunks])
        self.inputs, self.outputs = self._ends()

    def starts(self, buffer: int, rank: int = 0) -> Array:
        """Where the chunks of a buffer start, followed by its end: int64, shape (chunks + 1,)."""
        base = int(self._base[buffer])
        return self._starts[rank if self.per_rank else 0, base : base + self.table.buffers[buffer].chunks + 1]

    def count(self, buffer: int) -> Array:
        """How many elements the buffer has on each rank: int64, shape (ranks,); 0 on ranks that do not have it."""
        b = self.table.buffers[buffer]
        ends = self._starts[:, int(self._base[buffer]) + b.chunks]
        counts = np.array(np.broadcast_to(ends, (self.table.ranks,)))
        if b.only is not None:
            counts[np.arange(self.table.ranks) != b.only] = 0
        return counts

    def offset(self, buffer: Array | int, chunk: Array | int, rank: Array | int | None = None) -> Array:
        """Where chunks start in their buffers (int64). Arguments broadcast; ``rank`` is needed where ``per_rank``."""
        starts: Array = self._starts[self._row(rank), self._base[buffer] + chunk]
        return starts

    def length(self, buffer: Array | int, chunk: Array | int, rank: Array | int | None = None,
               count: Array | int = 1) -> Array:
        """How many elements ``count`` chunks from ``chunk`` on have (int64); see :meth:`offset`."""
        at = self._base[buffer] + chunk
        row = self._row(rank)
        lengths: Array = self._starts[row, at + count] - self._starts[row, at]
        return lengths

    def _row(self, rank: Array | int | None) -> Array | int:
        if not self.per_rank:
            return 0
        if rank is None:
            raise ValueError(f"sizes of {self.table.collective.name} differ from rank to rank: say which rank")
        return rank

    def _lengths(self, buffer: Buffer) -> Array | None:
        """The lengths of a buffer's chunks, shape (chunks,) or (ranks, chunks); None: scratch."""
        t = self.table
        kind, counts = COLLECTIVES[t.collective.name], t.collective.counts
        if kind.family == "custom":
            measure = measured(t)
            part = self.elements // measure.chunks if measure and measure.chunks else 0
            return np.full(buffer.chunks, part, np.int64)
        if buffer.role == "scratch":
            return None
        if kind.family == "barrier":
            return np.zeros(buffer.chunks, np.int64)
        if kind.family == "whole":
            return divide(self.elements, buffer.chunks)
        if kind.family == "blocked":
            block = divide(self.elements // t.ranks, t.chunks // t.ranks)
            return np.tile(block, buffer.chunks // len(block)) if len(block) else block
        assert counts is not None
        if kind.long == "both":
            return counts if buffer.role == "input" else counts.T
        return counts if buffer.role in ("data", kind.long) else counts[:, None]

    def _ends(self) -> tuple[Array, Array]:
        """``inputs`` and ``outputs``."""
        t, c = self.table, self.table.collective
        kind = COLLECTIVES[c.name]
        whole = np.full(t.ranks, self.elements, np.int64)
        ends = {"input": whole, "output": whole}
        if kind.family == "barrier":
            return whole * 0, whole * 0
        if kind.family == "custom":
            sizes = {b.role: self.count(i) for i, b in enumerate(t.buffers)}
            return (sizes.get("input", sizes.get("data", whole * 0)), sizes.get("output", sizes.get("data", whole * 0)))
        if kind.family == "blocked" and kind.long != "both":
            ends["input" if kind.long == "output" else "output"] = whole // t.ranks
        elif c.counts is not None:
            if kind.long == "both":
                ends = {"input": c.counts.sum(1), "output": c.counts.sum(0)}
            else:
                ends["input" if kind.long == "output" else "output"] = c.counts
        if c.name in ("broadcast", "scatter"):
            ends["input"] = np.where(np.arange(t.ranks) == c.root, ends["input"], 0)
        if c.name in ("reduce", "gather"):
            ends["output"] = np.where(np.arange(t.ranks) == c.root, ends["output"], 0)
        return ends["input"], ends["output"]


def measured(table: OpTable) -> Buffer | None:
    """The buffer whose length the element count is: the long one of a blocked collective; of `custom` `input`, or else
    `data`, or else the first; None where there is none."""
    by_name = {b.name: b for b in table.buffers}
    long = by_name.get("output") if COLLECTIVES[table.collective.name].long == "output" else None
    return long or by_name.get("input") or by_name.get("data") or next(iter(table.buffers), None)


def _fitting(table: OpTable, elements: int | None) -> int:
    """The element count, checked."""
    c, kind = table.collective, COLLECTIVES[table.collective.name]
    if kind.family == "barrier":
        return 0
    if kind.family == "vector":
        assert c.counts is not None
        total = sum(map(int, c.counts.ravel()))
        if total > LIMIT:
            raise SchedError(_bad(table, f"the counts add up to {total}, more than 64 bits can count",
                                  "take smaller counts"))
        if elements not in (None, total):
            raise SchedError(_bad(table, f"{elements} elements, but the counts of {c.name} add up to {total}",
                                  "leave the element count to the counts"))
        return total
    if elements is None:
        raise SchedError(_bad(table, f"{c.name} needs an element count", "say how many elements the buffer has"))
    if not 0 <= elements <= LIMIT:
        raise SchedError(_bad(table, f"{elements} elements; sizes are 0 to 2^63 - 1", None))
    if kind.family == "blocked" and elements % table.ranks:
        what = "input and output" if kind.long == "both" else str(kind.long)
        raise SchedError(_bad(table, f"{elements} elements do not divide into {table.ranks} equal blocks, as {what} of "
                                     f"{c.name} must", _nearest(elements, table.ranks)))
    if kind.family == "custom":
        measure = measured(table)
        if measure is None or not measure.chunks:
            if elements:
                raise SchedError(_bad(table, f"{elements} elements, but the schedule has no chunk to hold them",
                                      "take 0 elements"))
        elif elements % measure.chunks:
            raise SchedError(_bad(table, f"{elements} elements do not divide into {measure.chunks} equal chunks of "
                                         f"{measure.name}; in a custom collective all chunks have one length",
                                  _nearest(elements, measure.chunks)))
    return elements


def _nearest(elements: int, unit: int) -> str:
    below = elements // unit * unit
    return f"the nearest that do are {below} and {below + unit}"


def _bad(table: OpTable, message: str, help: str | None) -> Diagnostic:
    return error("SL802", message, table.collective.location or table.location, help=help)


