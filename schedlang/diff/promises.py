"""What two tables must have in common for their results to be held against each other, and parts that both have."""

from __future__ import annotations

from dataclasses import replace
from math import lcm

import numpy as np

from schedlang.diagnostics import SchedError, error
from schedlang.diff.colours import own_buffers
from schedlang.ir.layout import measured
from schedlang.ir.table import NONE, OpTable
from schedlang.ir.words import counted

MOST_PARTS = 1 << 27
"""How many parts all operations of a table may move together where two tables divide the buffer differently."""


def unlike(a: OpTable, b: OpTable) -> list[tuple[str, str]]:
    """What the tables promise, where that differs so that their results cannot be compared: words for A and for B.

    In place or not makes no difference: `data` is held against `input` and `output`.
    """
    one, other = a.collective, b.collective
    pairs = [(one.name, other.name), (counted(a.ranks, "rank"), counted(b.ranks, "rank"))]
    if one.name == other.name:
        pairs += [(f"the operator {one.op or 'none'}", f"the operator {other.op or 'none'}"),
                  (f"root {one.root}", f"root {other.root}")]
    found = [(x, y) for x, y in pairs if x != y]
    if found:
        return found
    if one.counts is not None and other.counts is not None and not np.array_equal(one.counts, other.counts):
        return [("counts of its own", "other counts")]
    if one.name == "custom":
        found = _custom(a, b)
    return found


def _custom(a: OpTable, b: OpTable) -> list[tuple[str, str]]:
    """Buffers that a caller knows, which must divide alike."""
    parts = common_parts(a, b)
    found = []
    sizes = [{t.buffers[i].name: (t.buffers[i].chunks * (parts // _chunks(t)), t.buffers[i])
              for i in sorted(own_buffers(t))} for t in (a, b)]
    for name in sorted({*sizes[0], *sizes[1]}):
        here, there = (side.get(name) for side in sizes)
        if here is None or there is None:
            found.append(("a buffer " + name, f"no buffer {name}") if there is None else
                         (f"no buffer {name}", "a buffer " + name))
        elif here[0] != there[0]:
            found.append((f"{name} of {counted(here[1].chunks, 'chunk')} where {_unit(a)}",
                          f"{name} of {counted(there[1].chunks, 'chunk')} where {_unit(b)}"))
    return found


def _unit(table: OpTable) -> str:
    buffer = measured(table)
    return f"{buffer.name} has {buffer.chunks}" if buffer is not None else "there are no others"


def _chunks(table: OpTable) -> int:
    """Into how many chunks the buffer that the element count measures divides."""
    if table.collective.name != "custom":
        return max(table.chunks, 1)
    buffer = measured(table)
    return max(buffer.chunks, 1) if buffer is not None else 1


def common_parts(a: OpTable, b: OpTable) -> int:
    """Into how many parts the buffer must divide for both tables to move whole ones."""
    return lcm(_chunks(a), _chunks(b))


def factors(a: OpTable, b: OpTable) -> tuple[int, int]:
    """How many common parts a chunk of A and a chunk of B has. Raises SchedError (SL208) where these are too many."""
    parts = common_parts(a, b)
    found = parts // _chunks(a), parts // _chunks(b)
    for table, factor in zip((a, b), found, strict=True):
        moved = int(table.count.sum(dtype=np.int64)) * factor
        if factor > 1 and (moved > MOST_PARTS or factor * sum(x.chunks for x in table.buffers) >= 1 << 31):
            raise SchedError(error(
                "SL208", f"{_chunks(a):,} and {_chunks(b):,} chunks have {parts:,} parts in common, too many to follow "
                         f"({moved:,} in the operations of {table.name}; at most {MOST_PARTS:,})", table.location,
                help="compare them with numbers of chunks one of which divides the other"))
    return found


def refined(table: OpTable, factor: int) -> OpTable:
    """The table with each chunk divided into ``factor`` parts: the same for element counts that divide so."""
    if factor == 1:
        return table
    ensures = table.collective.ensures
    if ensures is not None:
        def finer(chunk: np.ndarray, part: np.ndarray) -> np.ndarray:
            return chunk * factor + part

        each = np.diff(ensures.starts)
        turn, part = np.divmod(np.arange(len(each) * factor), factor)
        size = each[turn]
        owner = np.repeat(np.arange(len(size)), size)
        source = np.arange(len(owner)) - (np.cumsum(size) - size)[owner] + np.asarray(ensures.starts)[turn[owner]]
        ensures = replace(
            ensures, buffer=ensures.buffer[turn], rank=ensures.rank[turn], chunk=finer(ensures.chunk[turn], part),
            starts=np.concatenate([[0], np.cumsum(size)]), source_buffer=ensures.source_buffer[source],
            source_rank=ensures.source_rank[source], source_chunk=finer(ensures.source_chunk[source], part[owner]),
            location=tuple(ensures.location[t] for t in turn.tolist()) if ensures.location else ())
    return table.with_columns(
        chunks=table.chunks * factor, buffers=tuple(replace(b, chunks=b.chunks * factor) for b in table.buffers),
        collective=replace(table.collective, ensures=ensures), chunk=table.chunk * np.int32(factor),
        count=table.count * np.int32(factor),
        from_chunk=np.where(table.from_buffer == NONE, table.from_chunk, table.from_chunk * np.int32(factor)))
