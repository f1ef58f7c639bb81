"""Values, rows and places in words, for messages."""

from __future__ import annotations

import re
from typing import Any

from schedlang.ir.table import NONE, OpTable
from schedlang.ops import Op
from schedlang.source import Span


def shown(value: Any) -> str:
    """A value as one writes it in the language, long lists shortened; counts go by their shape."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        items = [shown(v) for v in value[:8]] + (["..."] if len(value) > 8 else [])
        return "[" + ", ".join(items) + "]"
    shape = getattr(value, "shape", None)
    return f"({' x '.join(map(str, shape))})" if shape else str(value)


def number_text(number: int | float) -> str:
    """``1,024``, ``63.97``, ``3.4e+38``, ``inf``: floats that are whole numbers as such, as far as they are exact."""
    whole = isinstance(number, int) or (abs(number) < 1e15 and number == int(number))
    return f"{int(number):,}" if whole else str(number)


def counted(number: int, thing: str) -> str:
    """``1 chunk``, ``3 chunks``."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def numbered(number: int, thing: str) -> str:
    """How many there are, and how they are numbered: ``8 chunks (0 to 7)``, ``1 chunk (0)``, ``no chunks``."""
    if number < 1:
        return f"no {thing}s"
    return f"{counted(number, thing)} (0{f' to {number - 1}' if number > 1 else ''})"


def chunks_text(table: OpTable, buffer: int, chunk: int, count: int = 1) -> str:
    """``data[3]``, ``data[3:5]``; ``nothing`` for no buffer."""
    if not 0 <= buffer < len(table.buffers):
        return "nothing" if buffer == NONE else f"buffer {buffer}"
    span = f"{chunk}" if count == 1 else f"{chunk}:{chunk + count}"
    return f"{table.buffers[buffer].name}[{span}]"


def event_text(table: OpTable, row: int) -> str:
    """The event of a row: ``staged[3]``, ``staged[3, 0]``. The one with index 0 goes by its bare name unless the source
    writes the index, or has names of its own for what a row does."""
    event = int(table.event[row])
    name, indices = table.events[event], table.event_indices[event]
    if indices == (0,) and not table.sites[int(table.site[row])].called:
        at = table.origin(row)[0]
        indices = indices if isinstance(at, Span) and _INDEXED.match(at.text) else ()
    return name + (f"[{', '.join(map(str, indices))}]" if indices else "")


_INDEXED = re.compile(r"(record|wait)\s+\w+\s*\[")


def row_text(table: OpTable, row: int) -> str:
    """What a row does, for example ``send data[3] from rank 0 to rank 1``."""
    op, rank, peer = Op(int(table.op[row])), int(table.rank[row]), int(table.peer[row])
    if op in (Op.RECORD, Op.WAIT):
        return f"{op.name.lower()} {event_text(table, row)} on rank {rank}"
    what = chunks_text(table, int(table.buffer[row]), int(table.chunk[row]), int(table.count[row]))
    if op is Op.SEND:
        return f"send {what} from rank {rank} to rank {peer}"
    if op in (Op.RECV, Op.REDUCE_RECV):
        verb = "receive" if op is Op.RECV else "reduce-receive"
        return f"{verb} {what} on rank {rank} from rank {peer}"
    source = chunks_text(table, int(table.from_buffer[row]), int(table.from_chunk[row]), int(table.count[row]))
    return f"{op.name.lower()} {source} into {what} on rank {rank}"


def lane_text(table: OpTable, row: int) -> str:
    """``rank 2, stream wire, step 4``."""
    return f"rank {int(table.rank[row])}, stream {table.streams[int(table.stream[row])]}, step {int(table.step[row])}"


def standing(table: OpTable, row: int) -> str:
    """Where a row stands: ``rank 2, stream wire, step 3``; the stream is left out where there is only one. As the
    source calls it, where that has names of its own: ``rank 2, block 0, step 3``."""
    called = table.sites[int(table.site[row])].called
    stream = f"stream {table.streams[int(table.stream[row])]}, " if len(table.streams) > 1 and not called else ""
    return f"rank {int(table.rank[row])}, {stream}{step_text(table, row)}"


def step_text(table: OpTable, row: int) -> str:
    """``step 3``, or as the source calls it: ``block 0, step 3``."""
    return table.sites[int(table.site[row])].called or f"step {int(table.step[row])}"


def turn_text(table: OpTable, row: int) -> str:
    """The values of the loop variables round a row: ``s=3, r=17``; empty where there are none."""
    return ", ".join(f"{name}={value}" for name, value in table.origin(row)[1].items())
