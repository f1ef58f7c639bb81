"""Messages of several chunks, sent chunk by chunk.

A transport may split a message of c chunks into pieces, as it must where the message is larger than a slot of the
connection; each piece then takes a slot. Of all ways to split, single chunks ask for most: where they come to their
end, so does every coarser way, whole messages included (docs/decisions/0008). So this is the one that deadlock is
judged by.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op
from schedlang.verify.timing.connections import Connections, Matching
from schedlang.verify.timing.graph import Graph, build
from schedlang.verify.timing.lanes import Lanes


@dataclass(frozen=True)
class Slots:
    """``table``: every transfer as one row for each of its chunks, in the same step; ``matching``: of these.
    ``row``: the row each of them is a piece of."""

    table: OpTable
    matching: Matching
    row: Array

    def graph(self, depth: int | None) -> Graph:
        """What must happen before what where connections hold ``depth`` chunks."""
        return build(self.table, self.matching, depth)


def slots(table: OpTable, matching: Matching) -> Slots | None:
    """The pieces of a table that is matched without a finding; None where a message is one piece anyway, or the table
    says nothing of a transport that might split it."""
    transfer = table.op <= Op.REDUCE_RECV
    if table.transport is None or int(table.count[transfer].max(initial=0)) < 2:
        return None
    pieces = np.where(transfer, table.count, 1)
    row = np.repeat(np.arange(len(table), dtype=np.int32), pieces)
    first = (np.cumsum(pieces) - pieces).astype(np.int32)
    which = np.arange(len(row), dtype=np.int32) - first[row]

    def piece(of: Array) -> Array:
        """The same piece of other rows; NONE for no row."""
        other = of[row]
        return np.where(other == NONE, NONE, first[other] + which).astype(np.int32)

    cells = table.take(row)
    split = transfer[row]
    cells["chunk"] = np.where(split & (cells["buffer"] != NONE), cells["chunk"] + which, cells["chunk"])
    cells["from_chunk"] = np.where(split & (cells["from_buffer"] != NONE), cells["from_chunk"] + which,
                                   cells["from_chunk"])
    cells["count"] = np.where(split, 1, cells["count"])
    cells["of"] = piece(table.of)
    made = table.with_columns(**cells)

    def end(rows: Array, of: Array, starts: Array) -> tuple[Array, Array, Array]:
        """One end of all connections: rows, connections, and where each begins."""
        many = pieces[rows]
        begins = np.concatenate([[0], np.cumsum(many)])
        within = np.arange(begins[-1]) - np.repeat(begins[:-1], many)
        return np.repeat(first[rows], many) + within, np.repeat(of, many), begins[starts]

    ends = matching.connections
    sends, of_send, first_send = end(ends.sends, ends.of_send, ends.first_send)
    receives, of_receive, first_receive = end(ends.receives, ends.of_receive, ends.first_receive)
    connections = Connections(sends, receives, of_send, of_receive, first_send, first_receive)
    return Slots(made, Matching(piece(matching.partner), (), False, Lanes(made), made, connections), row)
