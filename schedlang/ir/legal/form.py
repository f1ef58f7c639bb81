"""The form of a table: the header, each row by itself, fused pairs, and the steps of each lane."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from schedlang.diagnostics import Diagnostic, error
from schedlang.ir.legal.blocks import Block, blocks, outside, turns
from schedlang.ir.legal.header import header
from schedlang.ir.legal.lanes import uneven
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op


def form(table: OpTable) -> list[Diagnostic]:
    """Breaches of the format: SL107, naming the first row. Without any, all indices but ranks and chunks are in
    range."""
    problem = header(table)
    if problem is not None:
        return [error("SL107", problem, table.location)]
    for block in blocks(table):
        for broken, says in _FORM:
            rows = broken(block)
            if rows.any():
                row = block.start + int(np.argmax(rows))
                return [_bad_row(table, row, says(table, row))]
    return _fusion(table) or _steps(table)


def _bad_buffer(b: Block) -> Array:
    optional = b.is_event | (b.op == Op.RECV) | (b.op == Op.REDUCE_RECV) | ((b.op == Op.SEND) & (b.of != NONE))
    lacking = b.buffer == NONE
    return outside(b.buffer, len(b.table.buffers), NONE) | (lacking & ~optional) | (~lacking & b.is_event)


def _bad_operand(b: Block) -> Array:
    given = (b.from_buffer != NONE) | (b.from_chunk != NONE)
    return np.where(b.has_from, outside(b.from_buffer, len(b.table.buffers)), given)


def _bad_turn(b: Block) -> Array:
    if int(b.turn.min()) >= 0 and int(b.turn.max()) < b.least_turns:    # nearly always, and quick to see
        return np.zeros(1, bool)
    return np.logical_or(b.turn < 0, b.turn >= b.limits[b.site])


_FORM: tuple[tuple[Callable[[Block], Array], Callable[[OpTable, int], str]], ...] = (
    (lambda b: outside(b.site, len(b.table.sites)), lambda t, r: f"site is {t.site[r]}, of {len(t.sites)} sites"),
    (_bad_turn,
     lambda t, r: f"turn is {t.turn[r]}, more than its site has"),
    (lambda b: outside(b.op, len(Op)), lambda t, r: f"op is {t.op[r]}, which is no operation"),
    (lambda b: outside(b.stream, len(b.table.streams)),
     lambda t, r: f"stream is {t.stream[r]}, of {len(t.streams)} streams"),
    (lambda b: b.step < 0, lambda t, r: f"step is {t.step[r]}; steps count from 0"),
    (lambda b: np.where(b.is_event, b.count != 0, b.count < 1),
     lambda t, r: f"count is {t.count[r]}; it is at least 1, and 0 for record and wait"),
    (_bad_buffer, lambda t, r: "buffer is missing; only a receive may store nothing" if t.buffer[r] == NONE
     else f"buffer is {t.buffer[r]}, which this row cannot have"),
    (lambda b: (b.buffer == NONE) & (b.chunk != 0), lambda t, r: f"chunk is {t.chunk[r]}, but there is no buffer"),
    (lambda b: ~b.is_transfer & (b.peer != NONE), lambda t, r: f"peer is {t.peer[r]}; only transfers have one"),
    (lambda b: np.where(b.is_transfer, outside(b.chan, len(b.table.streams)), b.chan != NONE),
     lambda t, r: f"chan is {t.chan[r]}, of {len(t.streams)} streams; transfers have one, others none"),
    (_bad_operand, lambda t, r: f"from_buffer is {t.from_buffer[r]} and from_chunk {t.from_chunk[r]}, which this row "
     "cannot have"),
    (lambda b: outside(b.of, len(b.table), NONE) | ((b.of != NONE) & (b.op != Op.SEND)),
     lambda t, r: f"of is {t.of[r]}; it stands on a send and is the id of a receive"),
    (lambda b: np.where(b.is_event, outside(b.event, len(b.table.events)), b.event != NONE),
     lambda t, r: f"event is {t.event[r]}, of {len(t.events)} events; record and wait have one, others none"),
)
"""Which rows break a rule of form, and what to say of the first. Each may rely on those before it."""


def _fusion(table: OpTable) -> list[Diagnostic]:
    """A fused send and its receive: of one step, alike, and each receive fused once."""
    if (table.of == NONE).all():
        return []
    sends = np.flatnonzero(table.of != NONE)
    receives = table.of[sends]

    def first(bad: Array, says: Callable[[int, int], str]) -> list[Diagnostic]:
        at = int(np.argmax(bad))
        row = int(sends[at])
        return [_bad_row(table, row, says(row, int(receives[at])))] if bad.any() else []

    op = table.op[receives]
    if found := first((op != Op.RECV) & (op != Op.REDUCE_RECV),
                      lambda s, r: f"of is {r}, but row {r} is a {Op(int(table.op[r])).name.lower()}, not a receive"):
        return found
    for name in ("rank", "stream", "step", "count", "buffer", "chunk"):
        column = getattr(table, name)

        def differs(send: int, receive: int, name: str = name, column: Array = column) -> str:
            return f"of is {receive}, but {name} is {column[send]} here and {column[receive]} there"

        if found := first(column[sends] != column[receives], differs):
            return found
    order = np.argsort(receives, kind="stable")
    again = np.zeros(len(sends), bool)
    again[order[1:]] = receives[order[1:]] == receives[order[:-1]]
    return first(again, lambda s, r: f"of is {r}, but another send forwards the value of row {r} already")


def _steps(table: OpTable) -> list[Diagnostic]:
    bad = uneven(table)
    return [_bad_row(table, *bad)] if bad is not None else []


def _bad_row(table: OpTable, row: int, says: str) -> Diagnostic:
    site, turn = int(table.site[row]), int(table.turn[row])
    known = 0 <= site < len(table.sites) and 0 <= turn < turns(table.sites[site])
    return error("SL107", f"row {row}: {says}", table.origin(row)[0] if known else table.location, row=row)
