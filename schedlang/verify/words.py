"""Operations in words, as findings of proofs tell them; how rows and places are called everywhere: ``ir/words.py``."""

from __future__ import annotations

from schedlang.ir.origin import came_from
from schedlang.ir.table import NONE, OpTable
from schedlang.ir.words import chunks_text, event_text, standing
from schedlang.ops import Op


def operation(table: OpTable, row: int) -> str:
    """What a row does, in the language's words: ``send data[3] to rank 1``, ``wait staged[2]`` ..."""
    op, peer, count = Op(int(table.op[row])), int(table.peer[row]), int(table.count[row])
    where = chunks_text(table, int(table.buffer[row]), int(table.chunk[row]), count)
    if op is Op.SEND:
        if table.of[row] != NONE:
            return f"pass on to rank {peer} what the fused receive yields"
        return f"send {where} to rank {peer}"
    if op is Op.RECV:
        return f"recv from rank {peer}, storing nothing" if where == "nothing" else f"recv {where} from rank {peer}"
    if op in (Op.REDUCE_RECV, Op.COPY, Op.REDUCE):
        source = chunks_text(table, int(table.from_buffer[row]), int(table.from_chunk[row]), count)
        if op is Op.REDUCE_RECV:
            into = "" if where in ("nothing", source) else f" into {where}"
            return f"reduce {source} from rank {peer}{into}"
        return f"{op.name.lower()} {source} into {where}"
    return f"{op.name.lower()} {event_text(table, row)}"


def sentence(table: OpTable, row: int) -> str:
    """``rank 2, step 3: send data[1] to rank 0 (line 12, s=3)``."""
    return f"{standing(table, row)}: {operation(table, row)}{came_from(table, row)}"
