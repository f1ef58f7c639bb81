"""What must have happened before a message is sent, whatever the timing: by the values that it carries.

A rank sends a value only after it has been written there, which is after the messages have arrived that it is made of.
So a receive may be posted long before its step, where whoever still has to do with its place must be done before the
message can come: in a ring, a chunk that comes back as a sum contains what was sent from its place.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op

ROWS = 1 << 16
"""Of larger tables nothing is known: it would take seconds."""

LOOKS = 1 << 12
"""So many rows are looked at for one message."""

ALL_LOOKS = 1 << 22
"""So many for all messages together: some two seconds."""

_BEGIN, _END = range(2)

_Cell = tuple[int, int, int]


class Causes:
    """Of one table, executed as ``posted, ready, done`` say (a level each row); ``partner``: the other end of
    transfers."""

    def __init__(self, table: OpTable, partner: Array, posted: Array, ready: Array, done: Array) -> None:
        self.partner: list[int] = partner.tolist()
        self._left = ALL_LOOKS
        self._op = table.op.tolist()
        self._of = table.of.tolist()
        self._parents: list[set[int]] = [set() for _ in self._op]       # the rows that wrote what a row reads
        self._operand: list[set[int]] = [set() for _ in self._op]       # of receives: what is passed on is made of that
        if len(table) <= ROWS and int(table.count.sum()) <= 2 * ROWS:
            self._follow(table, posted, ready, done)

    def arrived(self, send: int) -> set[int]:
        """Receives whose message has arrived wherever the send is posted; not always all of them."""
        found: set[int] = set()
        seen, left = {send}, [send]
        while left and len(seen) < min(LOOKS, self._left):
            row = left.pop()
            parents = set(self._parents[row])
            if self._op[row] == Op.SEND and self._of[row] != NONE:      # it passes on what has arrived
                receive = self._of[row]
                found.add(receive)
                parents |= {self.partner[receive], *self._operand[receive]}
            elif self._op[row] in (Op.RECV, Op.REDUCE_RECV):
                found.add(row)
                parents.add(self.partner[row])
            left += parents - seen
            seen |= parents
        self._left -= len(seen)
        return found

    def _follow(self, table: OpTable, posted: Array, ready: Array, done: Array) -> None:
        writer: dict[_Cell, int] = {}
        in_place = set(np.flatnonzero((table.buffer == table.from_buffer) & (table.chunk == table.from_chunk)).tolist())
        columns = [c.tolist() for c in (table.rank, table.buffer, table.chunk, table.from_buffer, table.from_chunk,
                                        table.count)]

        def cells(row: int, source: bool) -> Iterator[_Cell]:
            rank, buffer, chunk, from_buffer, from_chunk, count = (c[row] for c in columns)
            if source:
                buffer, chunk = from_buffer, from_chunk
            for k in range(count if buffer != NONE else 0):
                yield rank, buffer, chunk + k

        def writers(row: int, source: bool) -> set[int]:
            return {writer[cell] for cell in cells(row, source) if cell in writer}

        for _, turn, row in _events(table, posted, ready, done):
            op = self._op[row]
            if turn == _BEGIN:
                self._parents[row] |= writers(row, source=op != Op.SEND)
                self._operand[row] = set(self._parents[row])    # not what others of its step add to the place
            elif turn == _END and op != Op.SEND:
                if op == Op.REDUCE or (op == Op.REDUCE_RECV and row in in_place):       # what is added to
                    self._parents[row] |= writers(row, source=False)
                writer.update((cell, row) for cell in cells(row, source=False))


def _events(table: OpTable, posted: Array, ready: Array, done: Array) -> list[tuple[int, int, int]]:
    """(level, turn, row), in order: steps read what they read when they are posted, and write when they are done."""
    found = []
    for row, (op, of, begin, end) in enumerate(zip(table.op.tolist(), table.of.tolist(), posted.tolist(), done.tolist(),
                                                   strict=True)):
        if op < Op.RECORD:
            if op != Op.SEND or of == NONE:
                found.append((begin, _BEGIN, row))
            found.append((end, _END, row))
    return sorted(found)
