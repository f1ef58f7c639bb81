"""Tables with every message cut into single chunks: what a transport may do with messages of several."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from schedlang.ir.table import COLUMNS, DTYPES, NONE, OpTable
from schedlang.ops import Op


def in_pieces(table: OpTable) -> OpTable:
    """The table with each transfer of c chunks as c rows of one chunk in its step, in the order of the chunks. Plainly,
    row by row, apart from ``verify/timing/slots.py``: that one is tested by this. Both ends of every message must be of
    one size."""
    names = [c for c in COLUMNS if getattr(table, c) is not None]
    rows = [dict(zip(names, cells)) for cells in zip(*(getattr(table, c).tolist() for c in names))]
    pieces: dict[int, list[int]] = defaultdict(list)
    made: list[dict[str, int]] = []
    for number, row in enumerate(rows):
        cut = row["count"] if row["op"] in (Op.SEND, Op.RECV, Op.REDUCE_RECV) else 1
        for k in range(cut):
            pieces[number].append(len(made))
            piece = dict(row)
            if cut > 1:
                piece["count"] = 1
                if row["buffer"] != NONE:
                    piece["chunk"] += k
                if row["from_buffer"] != NONE:
                    piece["from_chunk"] += k
            made.append(piece)
    for number, row in enumerate(rows):
        for k, piece in enumerate(pieces[number]):
            if row["of"] != NONE:
                made[piece]["of"] = pieces[row["of"]][k]
    return table.with_columns(**{c: np.array([row[c] for row in made], DTYPES[c]) for c in names})
