"""What a lane does as a table of instructions, for streams in which little is repeated (tabled.cuh reads it)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from schedlang.backends.cuda.normal import Normal
from schedlang.ir.table import NONE, Array
from schedlang.ops import Op

COLUMNS = 12
POST, SETTLE, GROUP, TAKE, TAKE_REDUCE, PASS, COPY, REDUCE, RECORD, WAIT = range(10)

_KINDS = {Op.RECV: TAKE, Op.REDUCE_RECV: TAKE_REDUCE, Op.COPY: COPY, Op.REDUCE: REDUCE, Op.RECORD: RECORD,
          Op.WAIT: WAIT}


def instructions(normal: Normal, flags: Array, stream: int) -> tuple[Array, Array]:
    """The instructions of all lanes of a stream, rank by rank (int64, shape (n, COLUMNS)), and where each rank's begin,
    followed by the end (shape (ranks + 1,)). ``flags``: of each row, that of its event."""
    table = normal.table
    rows = np.flatnonzero(table.stream == stream)
    rows = rows[np.lexsort((rows, table.step[rows], table.rank[rows]))]
    made = _rows(normal, flags, rows)
    phase = np.flatnonzero(np.append(True, (np.diff(table.step[rows]) != 0) | (np.diff(table.rank[rows]) != 0)))
    found: list[Array] = []
    starts = np.zeros(table.ranks + 1, np.int64)
    for first, last in zip(phase.tolist(), [*phase[1:].tolist(), len(rows)], strict=True):
        some = [*_phase(normal, made[first:last], rows[first:last])]
        starts[int(table.rank[rows[first]]) + 1] += len(some)
        found += some
    return np.array(found, np.int64).reshape(-1, COLUMNS), np.cumsum(starts)


def _rows(normal: Normal, flags: Array, rows: Array) -> Array:
    """One instruction for each row."""
    table = normal.table
    op, made = table.op[rows], np.zeros((len(rows), COLUMNS), np.int64)
    for kind, number in _KINDS.items():
        made[op == kind, 0] = number
    made[op == Op.SEND, 0] = np.where(table.of[rows[op == Op.SEND]] == NONE, POST, PASS)
    message, receives, local = op <= Op.REDUCE_RECV, (op == Op.RECV) | (op == Op.REDUCE_RECV), _local(op)
    for column, values, which in ((1, table.peer, message), (2, normal.tag, message), (3, normal.message, message),
                                  (4, normal.their_buffer, receives), (5, normal.their_chunk, receives),
                                  (4, table.from_buffer, local), (5, table.from_chunk, local),
                                  (6, table.buffer, receives | local), (7, table.chunk, receives | local),
                                  (8, table.from_buffer, op == Op.REDUCE_RECV),
                                  (9, table.from_chunk, op == Op.REDUCE_RECV),
                                  (10, table.count, message | local), (11, normal.like, receives | local),
                                  (1, flags, op >= Op.RECORD)):
        made[which, column] = values[rows[which]]
    return made


def _local(op: Array) -> Array:
    return np.asarray((op == Op.COPY) | (op == Op.REDUCE))


def _phase(normal: Normal, made: Array, rows: Array) -> Iterator[Array]:
    """The instructions of a phase, in the order in which a lane sees to them."""
    kind, first = made[:, 0], int(rows[0])
    yield from made[kind == POST]
    if normal.before[first] != NONE:
        yield _row(SETTLE, int(normal.before[first]))
    together = [*made[(kind == TAKE) | (kind == TAKE_REDUCE)], *made[kind == PASS]]
    if together:
        yield _row(GROUP, len(together), int(normal.rounds[first]))
        yield from together
    yield from made[kind >= COPY]
    if normal.after[first] != NONE:
        yield _row(SETTLE, int(normal.after[first]))


def _row(*values: int) -> Array:
    found = np.zeros(COLUMNS, np.int64)
    found[: len(values)] = values
    return found
