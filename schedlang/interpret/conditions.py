"""What each location holds before a collective, and what it must hold after it."""

from __future__ import annotations

from dataclasses import dataclass

from schedlang.ir.table import OpTable
from schedlang.ops import COLLECTIVES

Location = tuple[int, int, int]
"""(rank, buffer, chunk)"""


@dataclass(frozen=True)
class Conditions:
    """``initial``: the locations that hold a value before, in the order (rank, buffer, chunk): each starts with a
    value of its own. ``results``: for each location of the result, the initial values that it must be the reduction
    of (one: be that value).
    """

    initial: tuple[Location, ...]
    results: dict[Location, tuple[Location, ...]]


def conditions(table: OpTable) -> Conditions:
    """The pre- and postcondition of the table's collective."""
    collective, ranks, chunks = table.collective, range(table.ranks), table.chunks
    kind = COLLECTIVES[collective.name]
    role = {b.role: i for i, b in enumerate(table.buffers) if b.role != "scratch"}
    before = role.get("input", role.get("data", 0))
    after = role.get("output", role.get("data", 0))
    initial: list[Location] = []
    results: dict[Location, tuple[Location, ...]] = {}

    if kind.family == "custom":
        initial = [(r, b, c) for r in ranks for b, at in enumerate(table.buffers) if at.role in ("input", "data")
                   for c in range(at.chunks) if at.only in (None, r)]
        return Conditions(tuple(initial), _ensured(table))
    if kind.family == "barrier":
        return Conditions(tuple((r, before, 0) for r in ranks), {})

    holders = ranks if collective.name not in ("broadcast", "scatter") else [_root(table)]
    takers = ranks if collective.name not in ("reduce", "gather") else [_root(table)]
    if kind.family == "whole":
        initial = [(r, before, c) for r in holders for c in range(chunks)]
        for r in takers:
            for c in range(chunks):
                results[r, after, c] = tuple((p, before, c) for p in holders)
        return Conditions(tuple(initial), results)

    block = chunks // table.ranks  # chunks in one rank's block
    own = [0 if before != after else r * block for r in ranks]  # where a rank's block lies in its short buffer
    if kind.long == "output":  # allgather, gather, allgatherv
        initial = [(r, before, own[r] + j) for r in ranks for j in range(block)]
        for r in takers:
            for p in ranks:
                for j in range(block):
                    results[r, after, p * block + j] = ((p, before, own[p] + j),)
    elif kind.long == "input":  # reduce_scatter, scatter, reduce_scatterv
        initial = [(r, before, c) for r in holders for c in range(chunks)]
        for r in ranks:
            for j in range(block):
                results[r, after, own[r] + j] = tuple((p, before, r * block + j) for p in holders)
    else:  # alltoall, alltoallv
        initial = [(r, before, c) for r in ranks for c in range(chunks)]
        for d in ranks:
            for s in ranks:
                for j in range(block):
                    results[d, after, s * block + j] = ((s, before, d * block + j),)
    return Conditions(tuple(initial), results)


def _root(table: OpTable) -> int:
    assert table.collective.root is not None
    return table.collective.root


def _ensured(table: OpTable) -> dict[Location, tuple[Location, ...]]:
    e = table.collective.ensures
    if e is None:
        return {}
    return {
        (int(e.rank[i]), int(e.buffer[i]), int(e.chunk[i])): tuple(
            (int(e.source_rank[k]), int(e.source_buffer[k]), int(e.source_chunk[k]))
            for k in range(int(e.starts[i]), int(e.starts[i + 1])))
        for i in range(len(e.rank))}
