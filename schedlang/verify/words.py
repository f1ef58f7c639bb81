"""Operations in words, for messages: what a row does, where it stands."""

from __future__ import annotations

from schedlang.ir.origin import origin_text
from schedlang.ir.table import NONE, OpTable
from schedlang.ir.words import event_text
from schedlang.ops import Op
from schedlang.source import Location


def place(table: OpTable, buffer: int, chunk: int, count: int = 1) -> str:
    """``data[3]`` or ``data[3:5]``; ``nothing`` where a receive stores nothing."""
    if buffer == NONE:
        return "nothing"
    return f"{table.buffers[buffer].name}[{chunk}{f':{chunk + count}' if count != 1 else ''}]"


def operation(table: OpTable, row: int) -> str:
    """What a row does, in the language's words: ``send data[3] to rank 1``, ``wait staged[2]`` ..."""
    op, peer, count = Op(int(table.op[row])), int(table.peer[row]), int(table.count[row])
    where = place(table, int(table.buffer[row]), int(table.chunk[row]), count)
    if op is Op.SEND:
        if table.of[row] != NONE:
            return f"pass on to rank {peer} what the fused receive yields"
        return f"send {where} to rank {peer}"
    if op is Op.RECV:
        return f"recv from rank {peer}, storing nothing" if where == "nothing" else f"recv {where} from rank {peer}"
    if op in (Op.REDUCE_RECV, Op.COPY, Op.REDUCE):
        source = place(table, int(table.from_buffer[row]), int(table.from_chunk[row]), count)
        if op is Op.REDUCE_RECV:
            into = "" if where in ("nothing", source) else f" into {where}"
            return f"reduce {source} from rank {peer}{into}"
        return f"{op.name.lower()} {source} into {where}"
    return f"{op.name.lower()} {event_text(table, row)}"


def standing(table: OpTable, row: int) -> str:
    """Where a row stands: ``rank 2, stream wire, step 3``; the stream is left out where there is only one."""
    stream = f", stream {table.streams[int(table.stream[row])]}" if len(table.streams) > 1 else ""
    return f"rank {int(table.rank[row])}{stream}, step {int(table.step[row])}"


def origin(table: OpTable, row: int) -> tuple[Location | None, str]:
    """The source place of a row, and where it comes from in words: `` (line 12, s=3, r=17)``, empty where nothing is
    known: see :func:`schedlang.ir.origin.origin_text`."""
    text = origin_text(table, [row])
    return table.origin(row)[0], f" ({text})" if text else ""


def sentence(table: OpTable, row: int) -> str:
    """``rank 2, step 3: send data[1] to rank 0 (line 12, s=3)``."""
    return f"{standing(table, row)}: {operation(table, row)}{origin(table, row)[1]}"


def count(number: int, thing: str) -> str:
    """``1 chunk``, ``3 chunks``."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
