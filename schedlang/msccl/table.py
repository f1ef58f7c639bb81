"""The op table of an MSCCL file: what it implements, its buffers; its rows are made in ``rows``."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from schedlang.diagnostics import Diagnostic, SchedError, error, note, warning
from schedlang.ir.buffers import standard_buffers
from schedlang.ir.origin import at_row
from schedlang.ir.table import NONE, TRANSPORTS, Buffer, Collective, Ensures, OpTable
from schedlang.ir.words import chunks_text, standing
from schedlang.msccl.phrases import attribute, size_text
from schedlang.msccl.plan import Plan
from schedlang.msccl.rows import Places, rows
from schedlang.msccl.words import told
from schedlang.ops import COLLECTIVES, REDUCE_OPS

MOST_ENSURED = 1 << 24
"""Up to so many chunks, of all ranks, an all-to-all in place may have: what must be in each is written out."""

SHOWN = 10
"""So many operations that overlap with themselves are told one by one; the last counts those left out."""

COLLECTIVE = {"reducescatter": "reduce_scatter", **{name: name for name in (
    "allreduce", "allgather", "alltoall", "reduce", "broadcast", "reduce_scatter", "gather", "scatter")}}
"""Our name of a file's ``coll``. Of all others nothing is known that must hold at their end."""


def placements(plan: Plan) -> tuple[bool, ...]:
    """The ways in which the file says it may be used, True for in place, which comes first. Without ``outofplace`` it
    is for one of the two only. Raises SchedError SL108 where it is for neither."""
    outofplace = not plan.inplace if plan.outofplace is None else plan.outofplace
    ways = (True,) * plan.inplace + (False,) * outofplace
    if not ways:
        raise SchedError(error(
            "SL108", 'inplace="0" and outofplace="0": no runtime would ever use this file', plan.span(plan.at),
            help='write inplace="1" where input and output may be one buffer, outofplace="1" where they may be two'))
    return ways


def root_of(plan: Plan, root: int | None = None) -> int | None:
    """The root that a table of this plan has: the one asked for, else 0; None where the collective has none. No file
    names it, and runtimes do not ask: whoever calls says the root, and the file must be for that one.

    Raises SchedError SL206 for a root that there is not, or where there is none."""
    name = COLLECTIVE.get(plan.coll)
    if name is None or not COLLECTIVES[name].rooted:
        if root is not None:
            raise SchedError(error("SL206", f"{plan.coll} has no root", plan.span(plan.at), help="leave the root out"))
        return None
    root = 0 if root is None else root
    if not 0 <= root < plan.ranks:
        raise SchedError(error("SL206", f"the root is rank {root}, but there are {plan.ranks} ranks",
                               plan.span(plan.at), help=f"take one of 0 to {plan.ranks - 1}"))
    return root


def notes(plan: Plan, root: int | None = None) -> tuple[Diagnostic, ...]:
    """What a verdict on the plan's tables rests on, as notes: the plan's own remarks, a collective of which nothing is
    known (SL615), a root that nobody said (SL606). And a range without sizes (SL703), which no verdict would say.
    ``root``: the one asked for."""
    found = list(plan.remarks)
    at = plan.span(plan.at)
    if plan.coll not in COLLECTIVE:
        found.append(warning(
            "SL615", f'coll="{plan.coll}" does not say what must hold at the end, so no result is judged: only that '
            "transfers match, nothing waits for ever, nothing races and nothing unwritten is read", at,
            help="whole inputs are taken to be there at the beginning", coll=plan.coll))
    if plan.min_bytes is not None and plan.max_bytes and plan.min_bytes > plan.max_bytes:
        found.append(warning(
            "SL703", f"no size is from minBytes, {size_text(plan.min_bytes)}, up to maxBytes, "
            f"{size_text(plan.max_bytes)}, so no runtime ever takes the file", attribute(plan, "maxBytes"),
            help="let minBytes be the smaller of the two"))
    assumed = root_of(plan, root)
    if root is None and assumed is not None:
        found.append(note("SL606", f"the root is taken to be rank {assumed}: an MSCCL file does not name it, whoever "
                          "calls does", at, help="say another with -p root=R", root=assumed))
    return tuple(found)


def table(plan: Plan, inplace: bool, *, root: int | None = None) -> OpTable:
    """The op table of a plan used in place or out of place.

    ``root``: see :func:`root_of`. Raises SchedError: SL108 where the number of chunks does not fit the collective,
    SL206 for a root that there is not, SL208 where an all-to-all in place is too large, SL401 for operations that
    overlap with themselves.
    """
    root = root_of(plan, root)
    collective, chunks, buffers = _header(plan, inplace, root)
    where = Places.of(plan, collective, chunks, buffers, inplace)
    params: dict[str, Any] = {"inplace": inplace}
    if root is not None:
        params["root"] = root
    made = OpTable(
        name=plan.name, ranks=plan.ranks, params=params, collective=collective, chunks=chunks, buffers=buffers,
        **rows(plan, where), location=plan.span(plan.at), transport=TRANSPORTS[plan.proto],
        told=partial(told, plan))
    found = _overlaps(made)
    if found:
        raise SchedError(found)
    return made


def _overlaps(made: OpTable) -> list[Diagnostic]:
    """SL401 for operations on several chunks that write what they have yet to read, or the other way round: a table's
    operation reads everything before it writes, but a block's threads go over the chunks together, in no order."""
    apart = np.abs(made.chunk - made.from_chunk)
    same = (made.buffer == made.from_buffer) & (made.buffer != NONE)
    rows = np.flatnonzero(same & (apart > 0) & (apart < made.count)).tolist()
    found = []
    for k, row in enumerate(rows[:SHOWN]):
        count = int(made.count[row])
        reads, writes = (chunks_text(made, int(made.buffer[row]), int(column[row]), count)
                         for column in (made.from_chunk, made.chunk))
        found.append(at_row(error(
            "SL401", f"{standing(made, row)} reads {reads} and writes {writes} at once, so whether it reads what it "
            "has written depends on timing",
            help="let the two not overlap, or move the chunks one by one, in steps of their own",
            count=len(rows) - k if k == SHOWN - 1 else 1, row=row), made, row))
    return found


# The header ---------------------------------------------------------------------------------------------------------


def _header(plan: Plan, inplace: bool, root: int | None) -> tuple[Collective, int, tuple[Buffer, ...]]:
    """The collective, its chunks, and the buffers."""
    name, at = COLLECTIVE.get(plan.coll, "custom"), plan.span(plan.at)
    size = int(plan.s_chunks.max(initial=0))
    scratch = (Buffer("scratch", size),) if size else ()
    operator = plan.redop if plan.redop in REDUCE_OPS else None
    if name == "custom":
        sizes = {"input": int(plan.i_chunks.max(initial=0)) or plan.chunks,
                 "output": int(plan.o_chunks.max(initial=0)) or plan.chunks}
        if inplace:
            sizes = {"data": max(*sizes.values(), plan.chunks)}
        own = tuple(Buffer(n, chunks, role=n) for n, chunks in sizes.items())
        return Collective("custom", operator, None, inplace, location=at), 1, own + scratch
    operator = (operator or "sum") if COLLECTIVES[name].reduces else None
    chunks = _chunks(plan, name)
    if name == "alltoall" and inplace and chunks % plan.ranks == 0:     # the language has none in place
        if chunks * plan.ranks > MOST_ENSURED:
            raise SchedError(error(
                "SL208", f"an all-to-all in place on {plan.ranks} ranks with {chunks} chunks each is more than can be "
                "followed", at, help="verify it with fewer chunks, or on fewer ranks"))
        ensures = _exchanged(plan.ranks, chunks)
        return (Collective("custom", None, None, True, ensures=ensures, location=at), 1,
                (Buffer("data", chunks, role="data"), *scratch))
    collective = Collective(name, operator, root, inplace and name != "alltoall", location=at)
    try:
        return collective, chunks, standard_buffers(collective, plan.ranks, chunks) + scratch
    except ValueError:
        raise SchedError(error(
            "SL108", f'nchunksperloop="{plan.chunks}" does not divide into equal blocks for {plan.ranks} ranks, as '
            f"{plan.coll} needs them", at,
            help=f"nchunksperloop counts the chunks of the whole buffer: a multiple of {plan.ranks} here")) from None


def _chunks(plan: Plan, name: str) -> int:
    """How many chunks the collective's buffer has, the long one of two.

    Of gather and scatter runtimes count the bytes of the short buffer, writers of files perhaps those of the long one:
    what the file declares decides.
    """
    if name in ("gather", "scatter"):
        long, short = (plan.o_chunks, plan.i_chunks) if name == "gather" else (plan.i_chunks, plan.o_chunks)
        most = plan.chunks * plan.ranks
        if int(long.max(initial=0)) == most or (not long.any() and int(short.max(initial=0)) == plan.chunks):
            return most
    return plan.chunks


def _exchanged(ranks: int, chunks: int) -> Ensures:
    """What an all-to-all leaves in its one buffer: block s of rank d is what was block d of rank s."""
    block = chunks // ranks
    d, s, k = (axis.ravel().astype(np.int32) for axis in np.indices((ranks, ranks, block), np.int32))
    none = np.zeros(len(d), np.int32)
    return Ensures(none, d, s * block + k, np.arange(len(d) + 1, dtype=np.int64), none, s, d * block + k)
