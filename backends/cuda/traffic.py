"""How much memory a normal form reads and writes: with the bandwidth of copying, the least time that it can take."""

from __future__ import annotations

import numpy as np

from schedlang.backends.cuda.normal import Normal
from schedlang.ops import Op


def touched(normal: Normal, lengths: np.ndarray) -> int:
    """The elements that are read and written, each time they are, by all ranks together: two for each that is moved,
    three for each that is combined. ``lengths``: by length class (see :mod:`.classes`)."""
    table = normal.table
    moves = np.flatnonzero(np.isin(table.op, (Op.RECV, Op.REDUCE_RECV, Op.COPY, Op.REDUCE)))
    count = table.count[moves].astype(np.int64)
    row = np.repeat(np.arange(len(moves)), count)
    part = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    length = lengths[(normal.like[moves][row] + part) % len(lengths)]
    combined = np.isin(table.op[moves], (Op.REDUCE_RECV, Op.REDUCE))[row]
    return int((length * np.where(combined, 3, 2)).sum())
