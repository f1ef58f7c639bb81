"""The table as values on their way: one *carrier* is one chunk-sized value from where it is read to where it lands.

A pair of send and receive is one carrier for each of its chunks, and so is a copy or a local reduction. The value
proofs walk over carriers in a legal order; nothing here knows what a value is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedlang.ir.legal.blocks import BLOCK
from schedlang.ir.locations import Locations
from schedlang.ir.table import NONE, Array, OpTable, chosen, spaced
from schedlang.ops import Op
from schedlang.verify.steps import Steps
from schedlang.verify.timing.connections import Matching
from schedlang.verify.timing.order import Order


@dataclass(frozen=True)
class Carriers:
    """Columns of one length, one entry a carrier.

    * ``source``: the location read; NONE where the value is what a receive yields (a fused send).
    * ``parent``: the carrier of that receive, else NONE; None where no send is fused.
    * ``operand``: the location combined with what arrives, before it lands elsewhere or is passed on; NONE where there
      is no such operand; None where no carrier has one.
    * ``target``: the location written, NONE where nothing is stored. ``adds``: it is combined with what is there.
    * ``turn``: among several reductions of one step into one location the position in row order; None: all are 0.
    * ``sender, receiver``: the rows; the same row for local operations.
    * ``reads, operates, passes, lands``: the levels at which source and operand are read, a fused value is passed on,
      and the target is written. ``instant``: they are one array, which rises, and there are neither operands nor fused
      sends.

    Otherwise carriers stand in the order of their receiving rows.
    """

    source: Array
    parent: Array | None
    operand: Array | None
    target: Array
    adds: Array
    turn: Array | None
    sender: Array
    receiver: Array
    reads: Array
    operates: Array
    passes: Array
    lands: Array
    instant: bool

    def __len__(self) -> int:
        return len(self.source)


def carriers(table: OpTable, matching: Matching, order: Order, places: Locations, steps: Steps) -> Carriers:
    """The carriers of a table whose transfers are matched and whose order is complete."""
    op, of = table.op, table.of
    sender, receiver = _rows(table, matching)
    sending, receiving = spaced(sender), spaced(receiver)
    fused = of[sending] != NONE if len(of) and int(of.max()) != NONE else None
    kind = op[receiving]
    summed = (kind == Op.REDUCE_RECV) | (kind == Op.REDUCE)

    # Which chunk of its row a carrier is.
    count = table.count[receiving]
    part: Array | int = 0
    first = None
    if len(count) and int(count.max()) > 1:
        first = np.cumsum(count, dtype=np.int64) - count
        which = np.repeat(np.arange(len(count), dtype=np.int64), count)
        part = np.arange(len(which), dtype=np.int64) - first[which]
        sender, receiver, kind, summed = sender[which], receiver[which], kind[which], summed[which]
        fused = fused[which] if fused is not None else None
        sending, receiving = sender, receiver

    local = kind == Op.COPY
    local |= kind == Op.REDUCE
    source = _at(table, places, table.buffer, table.chunk, sender, part)
    if local.any():
        inside = np.flatnonzero(local)
        source[inside] = _at(table, places, table.from_buffer, table.from_chunk, receiver[inside], _pick(part, inside))
    target = _at(table, places, table.buffer, table.chunk, receiver, part)

    # A reduce_recv whose operand is not its destination writes plainly. One that is passed on reads its operand early.
    operand, adds = None, summed
    elsewhere, passed = _elsewhere(table, receiver, kind), _passed_on(table)
    needs = elsewhere if passed is None else elsewhere | ((kind == Op.REDUCE_RECV) & passed[receiver])
    if needs.any():
        adds = summed & ~elsewhere
        operand = np.full(len(source), NONE, source.dtype)
        with_one = np.flatnonzero(needs)
        operand[with_one] = _at(table, places, table.from_buffer, table.from_chunk, receiver[with_one],
                                _pick(part, with_one))
    parent = None
    if fused is not None:
        source[fused] = NONE
        parent = np.full(len(source), NONE, np.int64)
        carrier_of = np.full(len(table), NONE, np.int64)
        starts = np.flatnonzero(np.asarray(part) == 0) if first is not None else np.arange(len(receiver))
        carrier_of[receiver[starts]] = starts
        parent[fused] = carrier_of[of[sender[fused]]] + _pick(part, fused)

    reads = order.posted[sending]
    instant = operand is None and parent is None and bool(np.array_equal(reads, order.done[receiving]))
    if instant:
        operates = passes = lands = reads
    else:
        operates = order.posted[receiving]
        lands = order.done[receiving]
        passes = reads if parent is None else order.ready[sending]
    turn = steps.turns(receiver, part)
    if instant and np.any(reads[1:] < reads[:-1]):
        by_level = np.argsort(reads, kind="stable")
        source, target, adds, sender, receiver, reads = (
            x[by_level] for x in (source, target, adds, sender, receiver, reads))
        turn = turn[by_level] if turn is not None else None
        operates = passes = lands = reads
    return Carriers(source, parent, operand, target, adds, turn, sender, receiver, reads, operates, passes, lands,
                    instant)


def _rows(table: OpTable, matching: Matching) -> tuple[Array, Array]:
    """The rows that send and receive, ordered by the receiving row; local rows stand for themselves."""
    op = table.op
    writes = (op == Op.RECV) | (op == Op.REDUCE_RECV)
    local = (op == Op.COPY) | (op == Op.REDUCE)
    some = bool(local.any())
    which = chosen(writes | local if some else writes)
    partner = matching.partner[which]
    rows = np.arange(which.start, which.stop, which.step) if isinstance(which, slice) else which
    receiver = rows.astype(np.int32 if len(op) < 1 << 31 else np.int64, copy=False)
    sender = np.where(partner == NONE, receiver, partner) if some else partner.copy()   # not a view of the matching
    return sender, receiver


def _pick(part: Array | int, chosen: Array | slice) -> Array | int:
    return part if isinstance(part, int) else part[chosen]


def _at(table: OpTable, places: Locations, buffer: Array, chunk: Array, rows: Array, part: Array | int) -> Array:
    """Location numbers of the given rows' chunks, NONE where the row stores nothing; narrow where they fit."""
    found = np.empty(len(rows), np.int32 if places.total < 1 << 31 else np.int64)
    for start in range(0, len(rows), BLOCK):
        block = slice(start, start + BLOCK)
        these = spaced(rows[block])
        buffers = buffer[these]
        at = places.at(buffers, table.rank[these], chunk[these])
        at += _pick(part, block)
        if int(buffers.min()) == NONE:
            at[buffers == NONE] = NONE
        found[block] = at
    return found


def _elsewhere(table: OpTable, receiver: Array, kind: Array) -> Array:
    """Which carriers come to a reduce_recv whose operand is not its destination."""
    found = kind == Op.REDUCE_RECV
    for start in range(0, len(receiver), BLOCK):
        block = slice(start, start + BLOCK)
        if found[block].any():
            rows = spaced(receiver[block])
            differs = table.from_buffer[rows] != table.buffer[rows]
            differs |= table.from_chunk[rows] != table.chunk[rows]
            found[block] &= differs
    return found


def _passed_on(table: OpTable) -> Array | None:
    """Which rows are receives whose value a fused send passes on; None where there are none."""
    of = table.of
    if len(of) == 0 or int(of.max()) == NONE:
        return None
    passed = np.zeros(len(table), bool)
    passed[of[of != NONE]] = True
    return passed
