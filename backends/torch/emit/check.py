"""What was written, read again: the steps of the emitted text must be the rows of the table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from schedlang.backends.torch.emit.body import Names
from schedlang.diagnostics import SchedError, error
from schedlang.ir.table import NONE, OpTable
from schedlang.ops import Op

MOST = 1 << 17
"""So many rows are compared at most; of larger tables those of some ranks, the first and the last among them."""


class _Buffer:
    def __init__(self, number: int) -> None:
        self.number = number

    def __getitem__(self, at: Any) -> tuple[int, int, int]:
        start, stop = (at.start, at.stop) if isinstance(at, slice) else (at, at + 1)
        return self.number, start, stop - start


def _vocabulary(groups: dict[str, int]) -> dict[str, Any]:
    """The words of a step, which here make tuples: (op, place, other place, peer, chan, event)."""
    def chan(group: str | None) -> int:
        return NONE if group is None else groups[group]

    return {
        "step": lambda *ops, turn=None: (ops, turn),
        "send": lambda place, dst, group=None: (Op.SEND, place, None, dst, chan(group), None),
        "recv": lambda place, src, group=None: (Op.RECV, place, None, src, chan(group), None),
        "recv_reduce": lambda place, src, group=None, operand=None: (
            Op.REDUCE_RECV, place, operand or place, src, chan(group), None),
        "copy": lambda source, into: (Op.COPY, into, source, NONE, NONE, None),
        "reduce": lambda source, into: (Op.REDUCE, into, source, NONE, NONE, None),
        "record": lambda *event: (Op.RECORD, None, None, NONE, NONE, event),
        "wait": lambda *event: (Op.WAIT, None, None, NONE, NONE, event),
    }


def compare(table: OpTable, names: Names, text: str, turns: bool) -> None:
    """Raises SchedError where the text of the streams does not do what the table says."""
    space = _vocabulary({name: number for number, name in names.groups.items()})
    exec(compile(text, "<steps>", "exec"), space)  # our own text, which was made a moment ago
    ranks = range(table.ranks)
    if len(table) > MOST:
        ranks = range(0, table.ranks, max(1, len(table) // MOST))
    for rank in [*ranks, table.ranks - 1]:
        wanted = _rows(table, rank)
        for stream, function in names.streams.items():
            written = [(stream, *step) for step in space[function](rank, *map(_Buffer, names.buffers))]
            expected = [step for step in wanted if step[0] == stream]
            if [_plain(step, turns) for step in written] != [_plain(step, turns) for step in expected]:
                raise SchedError(error("SL808", f"{table.name} cannot be written for PyTorch: what rank {rank} does on "
                                       f"stream {table.streams[stream]} does not read as it should", table.location,
                                       help="this should not happen: please report it, with the file"))


def _plain(step: tuple[Any, ...], turns: bool) -> tuple[Any, ...]:
    """A step to be compared; in it sends, then copies, then all others, each in their order."""
    stream, ops, turn = step
    place = {Op.SEND: 0, Op.COPY: 1}
    said = [(op, p, o, peer, stream if chan == NONE and peer != NONE else chan, event)
            for op, p, o, peer, chan, event in ops]
    return stream, sorted(said, key=lambda op: place.get(op[0], 2)), turn if turns else None


def _rows(table: OpTable, rank: int) -> Iterator[Any] | list[Any]:
    """The steps of a rank, as the text makes them."""
    mine = np.flatnonzero(table.rank == rank)
    mine = mine[np.lexsort((mine, table.step[mine], table.stream[mine]))]
    found: list[tuple[int, list[Any], int | None]] = []
    last = None
    for r in mine.tolist():
        op, stream = Op(int(table.op[r])), int(table.stream[r])
        if (stream, int(table.step[r])) != last:
            last = stream, int(table.step[r])
            found.append((stream, [], None if table.number is None else int(table.number[r])))
        place = (int(table.buffer[r]), int(table.chunk[r]), int(table.count[r])) if op < Op.RECORD else None
        other = None
        if Op.REDUCE_RECV <= op <= Op.REDUCE:
            other = int(table.from_buffer[r]), int(table.from_chunk[r]), int(table.count[r])
        event = None
        if op >= Op.RECORD:
            event = (table.events[int(table.event[r])], *table.event_indices[int(table.event[r])])
        found[-1][1].append((op, place, other, int(table.peer[r]), int(table.chan[r]), event))
    return found
