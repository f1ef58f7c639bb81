"""An op table written as a program of own views."""

from __future__ import annotations

import random
from collections import defaultdict

from schedlang.ir.table import NONE, OpTable
from schedlang.ops import Op


def written(rng: random.Random, table: OpTable) -> str | None:
    """A program of own views that expands to a table's rows, lane by lane; None where own views cannot say it."""
    lanes: dict[tuple[int, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i in range(len(table)):
        lanes[int(table.rank[i]), int(table.stream[i])][int(table.step[i])].append(i)
    forward = {int(of): i for i, of in enumerate(table.of) if of != NONE}
    where = table.collective
    if where.ensures is not None or where.counts is not None:
        return None
    lines = []
    order = list(lanes)
    rng.shuffle(order)
    for rank, stream in order:
        lines += [f"on {rank}:", f"    stream {table.streams[stream]}:"]
        for _, rows in sorted(lanes[rank, stream].items()):
            chans = {int(table.chan[i]) for i in rows} - {NONE}
            if len(chans) > 1:
                return None
            said = [_said(table, i, forward.get(i)) for i in rows if table.of[i] == NONE]
            if None in said:
                return None
            margin = "        "
            if chans:
                lines += [margin + "if true:", margin + f"    chan {table.streams[chans.pop()]}"]
                margin += "    "
            if len(rows) > 1 or (rng.random() < 0.3 and table.op[rows[0]] not in (Op.RECORD, Op.WAIT)):
                lines.append(margin + "step:")
                margin += "    "
            lines += [margin + str(x) for x in said]
    words = [w for w in (where.op, f"root={where.root}" if where.root is not None else None) if w]
    chunks = next((b.chunks for b in table.buffers if b.role in ("data", "input") and b.name == "data"), None)
    if chunks is None:
        return None
    scratch = "".join(f"    buffer {b.name}[{b.chunks}]\n" for b in table.buffers if b.role == "scratch")
    place = " inplace" if where.name in ("allgather", "reduce_scatter", "gather", "scatter") else ""
    return (f"schedule main(ranks):\n    collective {where.name}({', '.join(words)}){place}\n    chunks {chunks}\n"
            + scratch + "\n".join("    " + line for line in lines) + "\n")


def _said(table: OpTable, i: int, forward: int | None) -> str | None:
    def part(buffer: int, chunk: int) -> str:
        count = int(table.count[i])
        name = table.buffers[buffer].name
        return f"{name}[{chunk}]" if count == 1 else f"{name}[{chunk}:{chunk + count}]"

    op = Op(int(table.op[i]))
    if op in (Op.RECORD, Op.WAIT):
        e = int(table.event[i])
        return f"{op.name.lower()} {table.events[e]}[{', '.join(map(str, table.event_indices[e]))}]"
    buffer, chunk = int(table.buffer[i]), int(table.chunk[i])
    operand = int(table.from_buffer[i]), int(table.from_chunk[i])
    peer = int(table.peer[i])
    if op in (Op.COPY, Op.REDUCE):
        return f"{op.name.lower()} {part(*operand)} into {part(buffer, chunk)}"
    if op == Op.SEND:
        return f"send {part(buffer, chunk)} to {peer}"
    verb, only = ("recv", "") if op == Op.RECV else ("reduce", "")
    if buffer == NONE:
        if forward is None:
            return None
        only = " only"
        buffer, chunk = operand if op == Op.REDUCE_RECV else (0, 0)
    elif op == Op.REDUCE_RECV and operand != (buffer, chunk):
        return None
    then = "" if forward is None else f" then send to {int(table.peer[forward])}{only}"
    return f"{verb} {part(buffer, chunk)} from {peer}{then}"
