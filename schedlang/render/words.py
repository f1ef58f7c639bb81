"""Rows of an op table in words, as the language spells them."""

from __future__ import annotations

from schedlang.ir.table import NONE, OpTable
from schedlang.ir.words import chunks_text, event_text
from schedlang.ops import Op


def operation(table: OpTable, row: int) -> str:
    """What a row does, as its own rank sees it: ``send data[3] to 1``, ``wait lifted[2]``."""
    op = int(table.op[row])
    if op in (Op.RECORD, Op.WAIT):
        return f"{Op(op).name.lower()} {event_text(table, row)}"
    if op in (Op.COPY, Op.REDUCE):
        return f"{Op(op).name.lower()} {source(table, row)} into {target(table, row)}"
    chan = f" on channel {table.streams[int(table.chan[row])]}" if table.chan[row] != table.stream[row] else ""
    if op == Op.SEND:
        what = f"what id {int(table.of[row])} receives" if table.of[row] != NONE else target(table, row)
        return f"send {what} to {table.peer[row]}{chan}"
    if table.buffer[row] == NONE:
        what = f"reduce {source(table, row)}" if op == Op.REDUCE_RECV else "recv"
        return f"{what} from {table.peer[row]}{chan}, not kept"
    if op == Op.RECV:
        return f"recv {target(table, row)} from {table.peer[row]}{chan}"
    elsewhere = (table.from_buffer[row], table.from_chunk[row]) != (table.buffer[row], table.chunk[row])
    added = f" with {source(table, row)}" if elsewhere and table.from_buffer[row] != NONE else ""
    return f"reduce {target(table, row)} from {table.peer[row]}{chan}{added}"


def transfer(table: OpTable, row: int) -> str:
    """What a row changes: ``0 -> 1: data[3] +=``, ``on 1: tmp[0] = data[3]``, or of a receive that only passes on what
    it does with that: ``0 -> 1: + data[3], not kept``; empty where it changes nothing."""
    sign = "+=" if table.op[row] in (Op.REDUCE_RECV, Op.REDUCE) else "="
    if table.op[row] in (Op.RECV, Op.REDUCE_RECV):
        if table.buffer[row] == NONE:
            added = f"+ {source(table, row)}, " if table.op[row] == Op.REDUCE_RECV else ""
            return f"{table.peer[row]} -> {table.rank[row]}: {added}not kept"
        return f"{table.peer[row]} -> {table.rank[row]}: {target(table, row)} {sign}"
    if table.op[row] in (Op.COPY, Op.REDUCE):
        return f"on {table.rank[row]}: {target(table, row)} {sign} {source(table, row)}"
    return ""


def target(table: OpTable, row: int) -> str:
    """The location a row writes, or a send reads."""
    return chunks_text(table, int(table.buffer[row]), int(table.chunk[row]), int(table.count[row]))


def source(table: OpTable, row: int) -> str:
    """The location a copy or reduce reads, and the local operand of a reducing receive."""
    return chunks_text(table, int(table.from_buffer[row]), int(table.from_chunk[row]), int(table.count[row]))


def stream(table: OpTable, row: int) -> str:
    """The name of the stream a row runs on."""
    return table.streams[int(table.stream[row])]
