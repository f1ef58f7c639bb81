"""Tables made directly, for tests of what stands behind the op table. No part of the language is used here."""

import numpy as np

from schedlang.ir.build import table_from_rows
from schedlang.ir.table import NONE, Buffer, Collective, OpTable, Site, constant
from schedlang.ops import Op


def allreduce(rows, ranks, chunks=1, scratch=(), **kw):
    """A sum all-reduce in ``data`` from JSON-like rows; ``scratch``: (name, chunks) pairs."""
    buffers = [Buffer("data", chunks, role="data"), *(Buffer(n, c) for n, c in scratch)]
    return table_from_rows(rows, ranks=ranks, chunks=chunks, collective=Collective("allreduce", "sum"),
                           buffers=buffers, **kw)


def ring(ranks: int, channels: int = 1) -> OpTable:
    """The ring all-reduce of the language document, columns made by NumPy: rows in source order, sends first."""
    c, half, s, r = (g.ravel() for g in np.indices((channels, 2, ranks - 1, ranks), dtype=np.int32))
    chunk = c * ranks + (r + half - s) % ranks
    peer = (r + 1) % ranks
    n = len(r)

    def pair(send, recv):
        return np.stack([send, recv], 1).ravel()

    stream = pair(c, c)
    step = (half * (ranks - 1) + s).astype(np.int32)
    number = (c * 2 * (ranks - 1) + step).astype(np.int32)
    data = constant(0, 2 * n)
    recv = np.where(half == 0, Op.REDUCE_RECV, Op.RECV)
    reduces = pair(np.zeros(n, bool), half == 0)
    turn = (s * ranks + r).astype(np.int32)
    sites = tuple(Site(None, ("c", "s", "r"), (k, s[(c == k) & (half == h)], r[(c == k) & (half == h)]))
                  for k in range(channels) for h in range(2))
    return OpTable(
        name="ring", ranks=ranks, params={"channels": channels}, collective=Collective("allreduce", "sum"),
        chunks=ranks * channels, buffers=(Buffer("data", ranks * channels, role="data"),),
        streams=tuple(str(k) for k in range(channels)), events=(), event_indices=(), sites=sites,
        op=pair(np.full(n, Op.SEND), recv).astype(np.int8), rank=pair(r, peer), stream=stream, step=pair(step, step),
        buffer=data, chunk=pair(chunk, chunk), count=constant(1, 2 * n), peer=pair(peer, r), chan=stream,
        from_buffer=np.where(reduces, 0, NONE).astype(np.int32),
        from_chunk=np.where(reduces, pair(chunk, chunk), NONE).astype(np.int32),
        of=constant(NONE, 2 * n), event=constant(NONE, 2 * n), site=pair(2 * c + half, 2 * c + half),
        turn=pair(turn, turn), number=pair(number, number))
