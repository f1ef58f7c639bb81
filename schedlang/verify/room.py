"""Whether there is memory enough to verify a table, asked before it is taken."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from schedlang.diagnostics import Diagnostic, error
from schedlang.ir.locations import Locations
from schedlang.ir.table import Array, OpTable
from schedlang.memory import available, gigabytes
from schedlang.ops import Op

MANY_ROWS = 1 << 22
"""Smaller tables are not asked about."""

ROW, LOCATION, PIECE = 24, 24, 40
"""Bytes that the proofs take at least, besides the table: for a row (its partner and node, what it carries, where that
lies in the walk), for a location (what it holds and must hold), and for each chunk that a row brings besides its first
(what carries it; measured: 45)."""


def check(table: OpTable) -> list[Diagnostic]:
    """SL208 where the proofs of a legal table cannot fit into what memory is left."""
    places = Locations(table.ranks, table.buffers).total
    pieces = sum(int((c[(op != Op.SEND) & (c > 1)] - 1).sum(dtype=np.int64)) for op, c in _blocks(table))
    if max(len(table), places, pieces) < MANY_ROWS:
        return []
    needed, there = len(table) * ROW + places * LOCATION + pieces * PIECE, available()
    if there is None or needed <= there:
        return []
    return [error("SL208", f"to verify {len(table):,} operations on {places:,} chunks takes more than "
                  f"{gigabytes(needed)} of memory; {gigabytes(there)} are available", table.location,
                  help="verify a smaller world, take fewer chunks, or a machine with more memory")]


def _blocks(table: OpTable) -> Iterator[tuple[Array, Array]]:
    """Operations and counts, so many at a time that asking takes little memory itself."""
    for start in range(0, len(table), MANY_ROWS):
        yield table.op[start : start + MANY_ROWS], table.count[start : start + MANY_ROWS]
