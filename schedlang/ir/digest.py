"""What a table does, in a few bytes, and how one calls it."""

from __future__ import annotations

import hashlib

import numpy as np

from schedlang.ir.table import OpTable
from schedlang.ir.words import shown

_COLUMNS = ("op", "rank", "stream", "step", "buffer", "chunk", "count", "peer", "chan", "from_buffer", "from_chunk",
            "of", "event")


def digest(table: OpTable) -> bytes:
    """Of all that a table does, for which collective; not of its operator and counts, which a call has, and not of
    names that change nothing."""
    c, hashed = table.collective, hashlib.blake2b(digest_size=16)
    buffers = [(b.chunks, b.role, b.only) for b in table.buffers]
    hashed.update(repr((c.name, c.root, c.inplace, table.ranks, table.chunks, buffers)).encode())
    for name in _COLUMNS:
        column = getattr(table, name)
        hashed.update(np.ascontiguousarray(column, column.dtype.newbyteorder("<")).data)
    if c.ensures is not None:
        for column in (c.ensures.buffer, c.ensures.rank, c.ensures.chunk, c.ensures.starts, c.ensures.source_buffer,
                       c.ensures.source_rank, c.ensures.source_chunk):
            hashed.update(np.ascontiguousarray(column, np.int64).data)
    return hashed.digest()


def title(table: OpTable) -> str:
    """A schedule in words: its name and parameters, without counts, which a call has."""
    given = [f"{key}={shown(value)}" for key, value in table.params.items() if key != "counts"]
    return f"{table.name}({', '.join(given)})"
