"""Whether there is memory enough to verify a table, asked before it is taken."""

from __future__ import annotations

import numpy as np

from schedlang.diagnostics import Diagnostic, error
from schedlang.ir.locations import Locations
from schedlang.ir.table import OpTable
from schedlang.memory import available, gigabytes

MANY_ROWS = 1 << 22
"""Smaller tables are not asked about."""

ROW, LOCATION, PIECE = 24, 24, 40
"""Bytes that the proofs take at least, besides the table: for a row (its partner and node, what it carries, where that
lies in the walk), for a location (what it holds and must hold), and for a chunk of a message (what it carries)."""


def check(table: OpTable) -> list[Diagnostic]:
    """SL208 where the proofs of a legal table cannot fit into what memory is left."""
    places = Locations(table.ranks, table.buffers).total
    pieces = int(table.count.sum(dtype=np.int64)) if table.transport is not None else 0
    if max(len(table), places, pieces) < MANY_ROWS:
        return []
    needed, there = len(table) * ROW + places * LOCATION + pieces * PIECE, available()
    if there is None or needed <= there:
        return []
    return [error("SL208", f"to verify {len(table):,} operations on {places:,} chunks takes more than "
                  f"{gigabytes(needed)} of memory; {gigabytes(there)} are available", table.location,
                  help="verify a smaller world, take fewer chunks, or a machine with more memory")]
