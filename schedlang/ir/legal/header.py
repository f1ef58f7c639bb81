"""The form of a table without its rows: collective, buffers, counts, and what the columns are."""

from __future__ import annotations

import numpy as np

from schedlang.ir.buffers import STANDARD, standard_buffers
from schedlang.ir.legal.blocks import MANY, outside
from schedlang.ir.table import COLUMNS, DTYPES, Buffer, OpTable
from schedlang.ops import COLLECTIVES, REDUCE_OPS


def header(table: OpTable) -> str | None:
    """What is wrong with everything but the rows, or None."""
    c = table.collective
    if not 1 <= table.ranks <= MANY:
        return f"ranks is {table.ranks}; it is at least 1"
    if c.name not in COLLECTIVES:
        return f"there is no collective {c.name!r}"
    kind = COLLECTIVES[c.name]
    if c.op is not None and c.op not in REDUCE_OPS:
        return f"there is no reduction operator {c.op!r}"
    if c.op is None and kind.reduces and kind.family != "custom":
        return f"{c.name} needs an op: one of {', '.join(REDUCE_OPS)}"
    if kind.rooted and (c.root is None or not 0 <= c.root < table.ranks):
        return f"root is {c.root}; {c.name} needs one of the ranks 0 to {table.ranks - 1}"
    if not 0 <= table.chunks <= MANY:
        return f"chunks is {table.chunks}"
    if table.transport is not None and not 1 <= table.transport.depth <= MANY:
        return f"the transport holds {table.transport.depth} messages; it is at least 1"
    return _counts(table) or _buffers(table) or _ensures(table) or _columns(table)


def _counts(table: OpTable) -> str | None:
    name, counts = table.collective.name, table.collective.counts
    if "counts" not in COLLECTIVES[name].arguments:
        return None if counts is None else f"{name} has no counts"
    shape = (table.ranks,) * (2 if COLLECTIVES[name].long == "both" else 1)
    if counts is None or counts.shape != shape:
        given = "there are none" if counts is None else f"they have {counts.shape}"
        return f"{name} on {table.ranks} ranks needs counts of shape {shape}; {given}"
    if counts.size and counts.min() < 0:
        return f"counts holds {int(counts.min())}; no part has fewer than 0 elements"
    return None


def _buffers(table: OpTable) -> str | None:
    there: dict[str, Buffer] = {}
    for buffer in table.buffers:
        if buffer.name in there:
            return f"there are two buffers called {buffer.name}"
        there[buffer.name] = buffer
    if bad := next((b for b in table.buffers if not 0 <= b.chunks <= MANY), None):
        return f"buffer {bad.name} has {bad.chunks} chunks"
    if bad := next((b for b in table.buffers if b.place not in ("device", "host")), None):
        return f"buffer {bad.name} is on {bad.place}; it can be on device or host"
    try:
        wanted = standard_buffers(table.collective, table.ranks, table.chunks)
    except ValueError as e:
        return str(e)
    for buffer in wanted:
        given = there.get(buffer.name)
        if given is None or given.chunks != buffer.chunks:
            has = "is missing" if given is None else f"has {given.chunks} chunks"
            return f"buffer {buffer.name} of {table.collective.name} {has}; it needs {buffer.chunks} chunks here"
        if (given.role, given.only) != (buffer.role, buffer.only):
            return f"buffer {buffer.name} of {table.collective.name} has the role {given.role} and exists on " \
                   f"{'all ranks' if given.only is None else f'rank {given.only}'}"
    if table.collective.name == "custom":
        for buffer in table.buffers:
            if buffer.role != (buffer.name if buffer.name in STANDARD else "scratch"):
                return f"buffer {buffer.name} of custom has the role {buffer.role}"
    return None


def _ensures(table: OpTable) -> str | None:
    ensures = table.collective.ensures
    if ensures is None:
        return None
    if table.collective.name != "custom":
        return f"only custom has ensures, not {table.collective.name}"
    sizes = np.array([b.chunks for b in table.buffers], np.int64)
    for buffer, rank, chunk in ((ensures.buffer, ensures.rank, ensures.chunk),
                                (ensures.source_buffer, ensures.source_rank, ensures.source_chunk)):
        bad = outside(buffer, len(sizes)) | outside(rank, table.ranks)
        if not bad.any():
            bad = outside(chunk, sizes[buffer])
        if bad.any():
            i = int(np.argmax(bad))
            return f"an ensure speaks of chunk {chunk[i]} of buffer {buffer[i]} on rank {rank[i]}, which there is not"
    return None


def _columns(table: OpTable) -> str | None:
    for name in COLUMNS:
        column = getattr(table, name)
        if column is None and name == "number":
            continue
        if column.shape != (len(table),) or column.dtype != DTYPES[name]:
            return f"column {name} has shape {column.shape} and type {column.dtype}; " \
                   f"it needs {(len(table),)} and {np.dtype(DTYPES[name])}"
    if len(table.events) != len(table.event_indices):
        return f"there are {len(table.events)} events and {len(table.event_indices)} of their indices"
    return None
