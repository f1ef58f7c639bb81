"""Whether all that a schedule moves stays among chunks of one length, whatever the element count."""

from __future__ import annotations

import numpy as np

from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import COLLECTIVES, Op
from schedlang.verify.matching import match


def mixed(table: OpTable) -> bool:
    """Whether some value moves between chunks that may differ in length: then both ends of a message know its length
    only where all chunks are given the room of the longest."""
    kind = COLLECTIVES[table.collective.name]
    if kind.family in ("custom", "barrier") or not len(table):
        return False
    parts = {"whole": table.chunks, "blocked": table.chunks // table.ranks}.get(kind.family, table.ranks)
    if parts == 1:
        return False
    partner = match(table).partner
    sends = np.flatnonzero(table.op == Op.SEND)
    local = np.flatnonzero((table.op >= Op.REDUCE_RECV) & (table.op <= Op.REDUCE))
    here, other = (table.buffer, table.chunk), (table.from_buffer, table.from_chunk)
    pairs = [(_length(table, sends, *here), _length(table, partner[sends], *here)),
             (_length(table, local, *here), _length(table, local, *other))]
    several = table.collective.name == "alltoallv" and bool((table.count > 1).any())
    return several or any(bool(((a != b) | (a == NONE)).any()) for a, b in pairs)


def _length(table: OpTable, rows: Array, buffers: Array, chunks: Array) -> Array:
    """A number for the length of the first chunk that each row names: equal numbers, equal lengths. NONE: scratch."""
    kind, n = COLLECTIVES[table.collective.name], table.ranks
    chunk, rank = chunks[rows].astype(np.int64), table.rank[rows].astype(np.int64)
    roles = np.array([b.role for b in table.buffers])[buffers[rows]]
    if kind.family == "blocked":
        found = chunk % (table.chunks // n)
    elif kind.family == "whole":
        found = chunk
    elif kind.long == "both":
        found = np.where(roles == "input", rank * n + chunk, chunk * n + rank)
    else:
        found = np.where((roles == "data") | (roles == kind.long), chunk, rank)
    return np.where(roles == "scratch", NONE, found)
