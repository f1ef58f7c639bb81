"""Rows in blocks, and what the rules ask about them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from schedlang.ir.table import COLUMNS, Array, OpTable, Site, Unlooped
from schedlang.ops import Op

BLOCK = 1 << 16
"""Rows looked at together: few enough for the caches, so that temporaries cost next to nothing."""

MANY = int(np.iinfo(np.int32).max)
"""More of something than there can be."""


class Block:
    """Some consecutive rows: their columns as views, and what the rules ask about them.

    A column that holds one value in all rows of the block has length 1 here, and so has what a rule makes of such
    columns alone: it stands for them all.

    ``limits``: by site, how many turns it has. ``sizes``: by buffer, its chunks; the last entry serves rows without.
    """

    op: Array
    rank: Array
    stream: Array
    step: Array
    buffer: Array
    chunk: Array
    count: Array
    peer: Array
    chan: Array
    from_buffer: Array
    from_chunk: Array
    of: Array
    event: Array
    site: Array
    turn: Array

    def __init__(self, table: OpTable, start: int, limits: Array) -> None:
        self.table, self.start, self.limits = table, start, limits
        self.rows = min(BLOCK, len(table) - start)
        for name in COLUMNS:
            if name != "number":
                column = getattr(table, name)
                setattr(self, name, column[:1] if column.strides == (0,) else _short(column[start : start + BLOCK]))
        self.is_event = _short(self.op >= Op.RECORD)
        self.is_transfer = _short(self.op <= Op.REDUCE_RECV)
        self.has_from = _short((self.op >= Op.REDUCE_RECV) & (self.op <= Op.REDUCE))
        self.least_turns = int(limits.min(initial=MANY))
        self.sizes = np.array([*(b.chunks for b in table.buffers), np.iinfo(np.int64).max])


def _short(cells: Array) -> Array:
    """The first cell alone, where all are like it."""
    first = cells[0]
    return cells[:1] if cells[-1] == first and (cells == first).all() else cells


def blocks(table: OpTable) -> Iterator[Block]:
    """All rows of a table, block by block."""
    limits = (np.full(len(table.sites), MANY, np.int64) if isinstance(table.sites, Unlooped) else
              np.array([turns(site) for site in table.sites], np.int64))
    return (Block(table, start, limits) for start in range(0, len(table), BLOCK))


def turns(site: Site) -> int:
    """How many turns a site has; many where its loop values are the same in all."""
    return min((len(v) for v in site.values if isinstance(v, np.ndarray)), default=MANY)


def outside(values: Array, size: int | Array, low: int = 0) -> Array:
    """Which values are not in ``low..size``: bool, of their shape."""
    return np.logical_or(values < low, values >= size)
