"""Would a runtime take a file: every reason why not, at its place.

:func:`faults`: those of the file itself, whatever it is used for. :func:`reasons`: why it is not taken for one call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm

import numpy as np

from schedlang.diagnostics import Diagnostic, error
from schedlang.msccl.limits import limits
from schedlang.msccl.misread import misread
from schedlang.msccl.phrases import attribute, listed, range_text, size_text
from schedlang.msccl.plan import Kind, Plan
from schedlang.msccl.runtimes import FUSED, MULTIPLIED, OPERATORS, Runtime
from schedlang.msccl.tags import quirks


@dataclass(frozen=True)
class Request:
    """A call, as far as it is known: ``size`` in bytes as the runtimes count them, None: not said; elements of
    ``dtype``, of ``itemsize`` bytes; ``channels`` of the communicator and its number of ``ranks``, None: what the file
    wants; the operator ``op``, which no file says to the runtimes."""

    size: int | None = None
    dtype: str = "float32"
    itemsize: int = 4
    channels: int | None = None
    ranks: int | None = None
    op: str = "sum"


def faults(plan: Plan, runtime: Runtime) -> list[Diagnostic]:
    """Why the runtime cannot use the file for anything, or misreads it; in the order of the text."""
    found = [*_text(plan, runtime), *_head(plan, runtime), *_range(plan, runtime), *_sizes(plan, runtime),
             *limits(plan, runtime), *_operations(plan, runtime), *misread(plan, runtime)]
    return sorted(found, key=lambda d: (d.location.line, d.location.column) if d.location is not None else (0, 0))


def unloaded(fault: Diagnostic) -> bool:
    """Whether a fault keeps the runtime from having the file at all."""
    return bool(fault.witness.get("unloaded"))


def ends(fault: Diagnostic) -> bool:
    """Whether the runtime stops at this fault to read files, so that those after it are not used either."""
    return bool(fault.witness.get("ends"))


def _text(plan: Plan, runtime: Runtime) -> Iterator[Diagnostic]:
    """What its reader of tags stumbles over. The beginning is read first, of all files."""
    beginning = plan.span(plan.at).end
    for quirk in quirks(plan.source):
        first = quirk.span.start < beginning
        effect = runtime.unreadable if first else runtime.refuses
        yield error("SL707", f"{runtime.title} cannot read {quirk.what}: {effect}" if quirk.fatal else
                    f"{runtime.title} misreads {quirk.what}", quirk.span, count=quirk.count, help=quirk.mend,
                    runtime=runtime.name, unloaded=quirk.fatal, ends=quirk.fatal and first and runtime.folder)


def _head(plan: Plan, runtime: Runtime) -> Iterator[Diagnostic]:
    lacking = [name for name in runtime.required if name not in plan.attributes]
    if lacking:
        yield error("SL707", f"{runtime.title} demands {listed(lacking)} of an algorithm: {runtime.unreadable}",
                    plan.span(plan.at), help=f"add {listed([f'{name}=...' for name in lacking])}",
                    runtime=runtime.name, missing=lacking, unloaded=True,
                    ends=runtime.folder)
    if plan.coll not in runtime.collectives:
        near = {"reduce_scatter": "reducescatter", "reducescatter": "reduce_scatter"}.get(plan.coll)
        yield error("SL702", f"{runtime.title} knows no collective {plan.coll}: {runtime.unreadable}",
                    attribute(plan, "coll"), help=f'here it is called coll="{near}"' if near in runtime.collectives else
                    f"it knows {listed(runtime.collectives)}", runtime=runtime.name, unloaded=True,
                    ends=runtime.folder)
    if not any(usable(plan, runtime, inplace) for inplace in (True, False)):
        yield error("SL706", f"{runtime.title} takes the file neither in place nor out of place",
                    attribute(plan, "inplace"), help="say 1 of the way that it is made for", runtime=runtime.name,
                    unloaded=False)
    threads = plan.attributes.get("nthreads", "")
    if runtime.warp is not None and re.fullmatch(r"[0-9]{1,18}", threads) and int(threads) % runtime.warp:
        yield error("SL701", f"nthreads is {threads}, and {runtime.title} has multiples of {runtime.warp}: "
                    f"{runtime.refuses}", attribute(plan, "nthreads"), help="leave it out, or take a multiple",
                    runtime=runtime.name, unloaded=True)


def _range(plan: Plan, runtime: Runtime) -> Iterator[Diagnostic]:
    """A range of sizes in which no call lies."""
    sizes = size_range(plan, runtime)
    if sizes is None:
        return
    (low, end), unit = sizes, lcm(plan.chunks, factor(plan))
    if end is None or -(-max(low, 1) // unit) * unit < end:
        return
    if end > low:
        why = (f"of {range_text(low, end)} none is a multiple of {unit:,} bytes, and the {plan.chunks:,} chunks divide "
               "nothing else")
    else:
        why = "no size is " + (f"from {size_text(low)} and " if low else "") + (
            f"up to {size_text(end - 1)}" if runtime.last and end else f"below {size_text(end)}")
    yield error("SL703", f"{runtime.title} never takes the file: {why}", attribute(plan, "maxBytes"),
                help="widen the range of minBytes and maxBytes" + (
                    "" if runtime.last else "; here maxBytes itself does not belong to it, and 0 is nothing"),
                runtime=runtime.name, unloaded=False)


def _sizes(plan: Plan, runtime: Runtime) -> Iterator[Diagnostic]:
    """i_chunks and o_chunks against nchunksperloop."""
    if not runtime.chunks_agree or plan.coll not in runtime.collectives:
        return
    for name, column, block in (("i_chunks", plan.i_chunks, plan.coll == "allgather"),
                                ("o_chunks", plan.o_chunks, plan.coll == "reduce_scatter")):
        times = plan.ranks if block else 1
        wrong = np.flatnonzero((column > 0) & (column.astype(np.int64) * times != plan.chunks))
        if len(wrong):
            rank = int(wrong[0])
            product = f"{int(column[rank]):,}" + (f" for each of {times:,} ranks" if block else "")
            yield error("SL707", f"{name} of rank {rank} is {product}, and nchunksperloop {plan.chunks:,}, which "
                        f"{runtime.title} compares: {runtime.refuses}",
                        attribute(plan, name, int(plan.gpu_at[rank])), count=len(wrong),
                        help="make them agree; 0 says nothing of the buffer", runtime=runtime.name, unloaded=True)


def _operations(plan: Plan, runtime: Runtime) -> Iterator[Diagnostic]:
    fused = np.flatnonzero(np.isin(plan.kind, FUSED))
    if len(fused) and not runtime.fused:
        kinds = [Kind(k).name.lower() for k in np.unique(plan.kind[fused]).tolist()]
        yield error("SL702", f"{runtime.title} is built without {listed(kinds)}: the call that takes the file fails",
                    attribute(plan, "type", int(plan.step_at[fused[0]])), count=len(fused),
                    help="write `r` and `s`, and to add `r` into scratch and `re`, as steps of their own",
                    runtime=runtime.name, unloaded=False)


# ---- one call --------------------------------------------------------------------------------------------------


def reasons(plan: Plan, runtime: Runtime, request: Request, inplace: bool) -> list[Diagnostic]:
    """Why the runtime does not take the file for a call whose buffers are in place, or are not."""
    found = []
    if request.ranks is not None and request.ranks != plan.ranks:
        found.append(error("SL705", f"the file is for {plan.ranks:,} ranks, and the communicator has "
                           f"{request.ranks:,}: {runtime.title} {runtime.wrong_world}", attribute(plan, "ngpus"),
                           runtime=runtime.name, ranks=plan.ranks, asked=request.ranks))
    if not usable(plan, runtime, inplace):
        found.append(_placement(plan, runtime, inplace))
    if request.op not in OPERATORS and "reduce" in plan.coll:
        found.append(error("SL702", f"{runtime.title} runs no file for {request.op}, and {runtime.passes}",
                           attribute(plan, "coll"), help=f"it does for {listed(OPERATORS)}", runtime=runtime.name,
                           op=request.op))
    if request.channels is not None and plan.channels > request.channels:
        found.append(error("SL701", f"the file wants {plan.channels:,} channels, and the communicator has "
                           f"{request.channels:,}: {runtime.crowded}", attribute(plan, "nchannels"),
                           help="set NCCL_MIN_NCHANNELS or NCCL_MAX_NCHANNELS, if they are what bounds it",

                           runtime=runtime.name, channels=plan.channels, asked=request.channels))
    return [*found, *(_size(plan, runtime, request, request.size) if request.size is not None else ())]


def _placement(plan: Plan, runtime: Runtime, inplace: bool) -> Diagnostic:
    if inplace and not runtime.both and plan.coll == "alltoall":
        return error("SL706", f"{runtime.title} has no all-to-all in place: the call fails", attribute(plan, "coll"),
                     runtime=runtime.name, inplace=inplace)
    word = "inplace" if inplace or not runtime.both else "outofplace"
    said = f"{word} is {plan.attributes[word]}" if word in plan.attributes else f"{word} is missing"
    return error("SL706", f"the file is not for calls {'in place' if inplace else 'out of place'}, as {said}: "
                 f"{runtime.title} {runtime.passes}", attribute(plan, word), runtime=runtime.name, inplace=inplace,
                 help="where it is right that way, which `verify` proves for files that say so, let it say so")


def _size(plan: Plan, runtime: Runtime, request: Request, size: int) -> Iterator[Diagnostic]:
    sizes = size_range(plan, runtime)
    if sizes is not None and not within(size, sizes):
        name = "minBytes" if size < sizes[0] else "maxBytes"
        yield error("SL703", f"a call of {size_text(size)} is not in the file's range, "
                    + (range_text(*sizes) if sizes[1] is None or sizes[1] > sizes[0] else "which is empty")
                    + f": {runtime.title} {runtime.passes}",
                    attribute(plan, name), runtime=runtime.name, size=size, low=sizes[0], end=sizes[1])
    unit, whole = request.itemsize * factor(plan), request.itemsize * lcm(plan.chunks, factor(plan))
    if size and not size % whole:
        return
    near = [size_text(n) for n in (size // whole * whole, -(-(size + 1) // whole) * whole) if n]
    if not size:
        what = "of 0 bytes nothing is scheduled"
    elif size % unit:
        share = f" on each of {plan.ranks:,} ranks" if factor(plan) > 1 else ""
        what = f"{size_text(size)} are no whole number of elements of {request.dtype}{share}"
    else:
        what = (f"the {plan.chunks:,} chunks do not divide {size // request.itemsize:,} elements of {request.dtype}: "
                f"{runtime.title} {runtime.passes}")
    yield error("SL704", what, attribute(plan, "nchunksperloop"),
                help=f"the nearest that they divide: {' and '.join(near)}", runtime=runtime.name, size=size, unit=whole)


# ---- what a file says ------------------------------------------------------------------------------------------


def usable(plan: Plan, runtime: Runtime, inplace: bool) -> bool:
    """Whether the file says that it is for calls in place, or out of place. microsoft/msccl has no all-to-all in place,
    whatever the file says."""
    if runtime.both:
        return plan.inplace if inplace else bool(plan.outofplace)
    return plan.inplace == inplace and not (inplace and plan.coll == "alltoall")


def size_range(plan: Plan, runtime: Runtime) -> tuple[int, int | None] | None:
    """The sizes in bytes that the file is for: the first, and the first that is too large (None: no limit). None: the
    file does not say it, and the runtime demands that it does."""
    low, high = plan.min_bytes, plan.max_bytes
    if runtime.range is not None:
        low, high = (runtime.range[0] if low is None else low), (runtime.range[1] if high is None else high)
    if low is None or high is None:
        return None
    return low, None if high == 0 and runtime.endless else high + runtime.last


def within(size: int, sizes: tuple[int, int | None]) -> bool:
    """Whether a size lies in a range as :func:`size_range` gives it."""
    return sizes[0] <= size and (sizes[1] is None or size < sizes[1])


def factor(plan: Plan) -> int:
    """What the runtimes multiply the count of a call by."""
    return plan.ranks if plan.coll in MULTIPLIED else 1
