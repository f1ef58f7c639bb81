"""What back ends have in common before anything moves: an order to execute a table in, and values that do not fit."""

from __future__ import annotations

import numpy as np

from schedlang.diagnostics import SchedError, error
from schedlang.ir.layout import Layout
from schedlang.ir.table import Array, OpTable
from schedlang.ops import COLLECTIVES
from schedlang.verify.matching import match
from schedlang.verify.timing.connections import Matching
from schedlang.verify.timing.order import Order, order


def legal_order(table: OpTable) -> tuple[Matching, Order]:
    """The pairs of sends and receives, and an execution that comes to its end.

    Raises SchedError where transfers have no partner, and SL305 where operations wait for each other.
    """
    pairs = match(table)
    faults = [d for d in pairs.diagnostics if d.severity.name == "ERROR"]
    if faults:
        raise SchedError(faults)
    when = order(table, pairs)
    if not when.complete:
        raise SchedError(error("SL305", f"{table.name} cannot be executed to its end: operations wait for each other",
                               help="see what `schedlang verify` says"))
    return pairs, when


def divisors(table: OpTable, buffer: int, rank: int, chunks: range) -> Array:
    """By how many values each of some chunks of a result is the reduction of, which an average divides by: int64, a
    number a chunk; 1 where the collective reduces nothing."""
    if not COLLECTIVES[table.collective.name].reduces:
        return np.ones(len(chunks), np.int64)
    ensures = table.collective.ensures
    if ensures is None:
        return np.full(len(chunks), table.ranks, np.int64)
    divisor = np.ones(len(chunks), np.int64)
    mine = np.flatnonzero((ensures.buffer == buffer) & (ensures.rank == rank))
    divisor[np.asarray(ensures.chunk)[mine] - chunks.start] = np.diff(ensures.starts)[mine]
    return divisor


def misfit(layout: Layout, row: int, length: int, other: int, reduced: bool) -> SchedError:
    """SL802: in ``row`` a value of ``length`` elements moves into a part of ``other``, or is ``reduced`` with one."""
    table = layout.table
    location, values = table.origin(row)
    turn = ", ".join(f"{n}={v}" for n, v in values.items())
    what = (f"a value of {length} elements is reduced with one of {other}" if reduced
            else f"a value of {length} elements moves into a part of {other}")
    even = layout.elements // table.chunks * table.chunks
    near = [] if table.collective.counts is not None else [n for n in (even, even + table.chunks) if n]
    return SchedError(error(
        "SL802", f"{what}: {layout.elements} elements do not divide evenly into the chunks of {table.name}"
                 + (f" ({turn})" if turn else ""), location,
        help=f"use {' or '.join(map(str, near))} elements" if near else "make all counts equal", row=row))
