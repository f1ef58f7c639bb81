"""Messages of several chunks, sent chunk by chunk.

A transport may split a message of c chunks into pieces, as it must where the message is larger than a slot of the
connection; each piece then takes a slot. Of all ways to split, single chunks ask for most: where they come to their
end, so does every coarser way, whole messages included (docs/decisions/0008). So this is the one that deadlock is
judged by.

Where no end of a connection is fused, its messages stay whole and only say how many chunks they have: the chunks of one
are posted together, and a send then waits for nothing but posts. Where one is, chunks are rows of their own if they are
few, else they are counted (:mod:`schedlang.verify.timing.flow`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op
from schedlang.verify.timing.connections import Connections, Matching
from schedlang.verify.timing.flow import Flow, in_order
from schedlang.verify.timing.graph import Graph, build
from schedlang.verify.timing.lanes import Lanes, fused_sends

FEW = 1 << 17
"""Up to so many chunks of messages on connections with a fused end are rows of their own."""

MOST = 1 << 19
"""Up to so many are where counting does not do: several at one end of a connection are in one step, or of two lanes."""


@dataclass(frozen=True)
class Sized(Connections):
    """Connections with the same messages at both ends. ``chunks``: how many each message has, and so how many slots it
    takes, an entry for each of ``sends``."""

    chunks: Array

    @property
    def longest(self) -> int:
        """The most chunks that go over a connection: with so much room no send waits."""
        return int(np.add.reduceat(self.chunks, self.first_send[:-1], dtype=np.int64).max())

    def receive_before(self, depth: int) -> tuple[Array, Array]:
        """For room for ``depth`` chunks: sends and the receives they wait for, that of the same message perhaps among
        them."""
        end = np.cumsum(self.chunks, dtype=np.int64)
        start = end - self.chunks
        base = start[self.first_send[self.of_send]]
        late = np.flatnonzero(end - depth > base)
        first = np.searchsorted(start, np.maximum(start[late] - depth, base[late]), side="right") - 1
        many = np.searchsorted(start, end[late] - depth) - first
        turn = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
        return np.repeat(self.sends[late], many), self.receives[np.repeat(first, many) + turn]


@dataclass(frozen=True)
class Slots:
    """``table``: every transfer on connections with a fused end as one row for each of its chunks, in the same step;
    ``matching``: of these. ``row``: the row each of them is a piece of. ``longest``: with room for so many chunks no
    send waits. ``flow``: what counts the chunks, where these are too many to be rows; all rows are then whole."""

    table: OpTable
    matching: Matching
    row: Array
    longest: int
    flow: Flow | None = field(default=None, repr=False)

    @property
    def exhausted(self) -> bool:
        """Whether something was asked that would take too long to say."""
        return self.flow is not None and self.flow.exhausted

    def completes(self, depth: int) -> bool:
        """Whether all comes to its end where connections hold ``depth`` chunks. Raises Exhausted where that would take
        too long to say."""
        return self.graph(depth).complete if self.flow is None else self.flow.completes(depth)

    def graph(self, depth: int) -> Graph:
        """What must happen before what where connections hold ``depth`` chunks; where they are counted only what is
        stuck. Raises Exhausted as ``completes`` does."""
        return build(self.table, self.matching, depth) if self.flow is None else self.flow.graph(depth)


def slots(table: OpTable, matching: Matching) -> Slots | None:
    """The pieces of a table that is matched without a finding; None where a message is one piece anyway, or the table
    says nothing of a transport that might split it."""
    transfer = table.op <= Op.REDUCE_RECV
    if table.transport is None or int(table.count[transfer].max(initial=0)) < 2:
        return None
    ends = matching.connections
    fused = fused_sends(table)
    passing = ends.with_end(np.concatenate([fused, table.of[fused]]))
    split = np.zeros(len(table), bool)
    split[ends.sends[passing[ends.of_send]]] = split[ends.receives[passing[ends.of_receive]]] = True
    whole = Sized(ends.sends, ends.receives, ends.of_send, ends.of_receive, ends.first_send, ends.first_receive,
                  table.count[ends.sends])
    many = int(table.count[split].sum(dtype=np.int64))
    if many > (FEW if in_order(matching, passing) else MOST):
        return Slots(table, matching, np.arange(len(table), dtype=np.int32), whole.longest,
                     Flow(table, matching, whole.chunks, passing))
    pieces = np.where(split, table.count, 1)
    row = np.repeat(np.arange(len(table), dtype=np.int32), pieces)
    first = (np.cumsum(pieces) - pieces).astype(np.int32)
    which = np.arange(len(row), dtype=np.int32) - first[row]

    def piece(of: Array) -> Array:
        """The same piece of other rows; NONE for no row."""
        other = of[row]
        return np.where(other == NONE, NONE, first[other] + which).astype(np.int32)

    cells = table.take(row)
    cut = split[row]
    cells["chunk"] = np.where(cut & (cells["buffer"] != NONE), cells["chunk"] + which, cells["chunk"])
    cells["from_chunk"] = np.where(cut & (cells["from_buffer"] != NONE), cells["from_chunk"] + which,
                                   cells["from_chunk"])
    cells["count"] = np.where(cut, 1, cells["count"])
    cells["of"] = piece(table.of)
    made = table.with_columns(**cells)

    def end(rows: Array, of: Array, starts: Array) -> tuple[Array, Array, Array]:
        """One end of all connections: rows, connections, and where each begins."""
        many = pieces[rows]
        begins = np.concatenate([[0], np.cumsum(many)])
        within = np.arange(begins[-1]) - np.repeat(begins[:-1], many)
        return np.repeat(first[rows], many) + within, np.repeat(of, many), begins[starts]

    sends, of_send, first_send = end(ends.sends, ends.of_send, ends.first_send)
    receives, of_receive, first_receive = end(ends.receives, ends.of_receive, ends.first_receive)
    connections = Sized(sends, receives, of_send, of_receive, first_send, first_receive, made.count[sends])
    return Slots(made, Matching(piece(matching.partner), (), False, Lanes(made), made, connections), row, whole.longest)
