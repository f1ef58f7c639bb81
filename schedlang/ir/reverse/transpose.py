"""The collective that a schedule of another one implements when it is reversed: as linear maps, the transpose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from schedlang.diagnostics import SchedError, error
from schedlang.ir.table import Array, Buffer, Collective, Ensures, OpTable
from schedlang.ops import COLLECTIVES

_TRANSPOSE = {
    "allreduce": "allreduce", "reduce": "broadcast", "broadcast": "reduce", "reduce_scatter": "allgather",
    "allgather": "reduce_scatter", "scatter": "gather", "gather": "scatter", "alltoall": "alltoall",
    "alltoallv": "alltoallv", "allgatherv": "reduce_scatterv", "reduce_scatterv": "allgatherv", "custom": "custom",
}


def transposed(table: OpTable) -> tuple[Collective, tuple[Buffer, ...]]:
    """The collective and the buffers of a reversed table. Buffers keep their index; `input` and `output` swap names.

    Raises SchedError (SL211) where the collective has no transpose.
    """
    c = table.collective
    if c.name not in _TRANSPOSE:
        raise SchedError(error("SL211", f"a {c.name} moves no data, so it has no reverse",
                               c.location or table.location))
    kind = COLLECTIVES[_TRANSPOSE[c.name]]
    swap = {"input": "output", "output": "input"}
    buffers = tuple(replace(b, name=swap.get(b.role, b.name), role=swap.get(b.role, b.role)) for b in table.buffers)
    counts = c.counts.T if c.counts is not None and c.counts.ndim == 2 else c.counts
    ensures = None if c.ensures is None else _ensures(table, c.ensures)
    op = (c.op or "sum") if kind.reduces else None
    return replace(c, name=kind.name, op=op, counts=counts, ensures=ensures), buffers


def _ensures(table: OpTable, ensures: Ensures) -> Ensures:
    """Location y, from now on a result, holds the sum of all x in whose sum y was."""
    roles = np.array([b.role in ("output", "data") for b in table.buffers])
    if not roles[ensures.buffer].all():
        at = int(np.argmin(roles[ensures.buffer]))
        name = table.buffers[int(ensures.buffer[at])].name
        where = ensures.location[at] if ensures.location else table.location
        raise SchedError(error("SL211", f"{table.name} has no reverse: a result stands in {name}, where no value of "
                               "the reverse could start", where, help="`ensure` what `output` or `data` holds"))
    lengths = np.diff(ensures.starts)
    target = np.repeat(np.arange(len(lengths)), lengths)
    order = np.lexsort((target, ensures.source_chunk, ensures.source_rank, ensures.source_buffer))

    def sorted_by_source(*columns: Array) -> list[Array]:
        return [c[order] for c in columns]

    b, r, k, t = sorted_by_source(ensures.source_buffer, ensures.source_rank, ensures.source_chunk, target)
    new = np.concatenate(([True], (b[1:] != b[:-1]) | (r[1:] != r[:-1]) | (k[1:] != k[:-1])))[: len(b)]
    first = np.flatnonzero(new)
    places = tuple(ensures.location[int(i)] for i in t[first]) if ensures.location else ()
    return Ensures(b[first], r[first], k[first], np.append(first, len(b)), ensures.buffer[t], ensures.rank[t],
                   ensures.chunk[t], places)
