"""What is more in a file than a runtime has room for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from schedlang.diagnostics import Diagnostic, error
from schedlang.ir.table import NONE, Array
from schedlang.msccl.phrases import attribute
from schedlang.msccl.plan import Kind, Plan, Space
from schedlang.msccl.runtimes import CHILDREN, COUNT, DEPENDED, NODES, OFFSET, PEERS, Runtime
from schedlang.source import Span

# Whose places the runtimes compare with the sizes of the gpu's tag; those of an rrc they do not.
_READS = (Kind.S, Kind.CPY, Kind.RE, Kind.RRS, Kind.RRCS)
_STORES = (Kind.R, Kind.CPY, Kind.RE, Kind.RCS, Kind.RRCS)


def limits(plan: Plan, runtime: Runtime) -> Iterator[Diagnostic]:
    """Too many of something (SL701), kind by kind, each at its first place."""
    if plan.channels > runtime.channels:
        yield _over(runtime, f"nchannels is {plan.channels:,}", f"at most {runtime.channels}",
                    attribute(plan, "nchannels"), runtime.crowded)
    if plan.ranks > CHILDREN:
        yield _over(runtime, f"there are {plan.ranks:,} ranks", f"room for {CHILDREN:,}", attribute(plan, "ngpus"),
                    "it writes past its memory")
    yield from _blocks(plan, runtime)
    yield from _steps(plan, runtime)
    yield from _nodes(plan, runtime)


def _over(runtime: Runtime, what: str, limit: str, at: Span, effect: str | None = None, *, count: int = 1,
          help: str | None = None) -> Diagnostic:
    """``effect``: what the runtime does; None: it does not take the file."""
    return error("SL701", f"{what}, and {runtime.title} has {limit}: {effect or runtime.refuses}", at, count=count,
                 help=help, runtime=runtime.name, unloaded=effect is None)


def _blocks(plan: Plan, runtime: Runtime) -> Iterator[Diagnostic]:
    idle = np.flatnonzero(np.bincount(plan.block_rank, minlength=plan.ranks) == 0)
    if len(idle) and not runtime.idle:
        yield error("SL702", f"rank {int(idle[0])} has no block, and {runtime.title} starts as many: the call fails "
                    "there", plan.span(int(plan.gpu_at[idle[0]])), count=len(idle),
                    help='give it one: <tb id="0" send="-1" recv="-1" chan="0"> with no step', runtime=runtime.name,
                    unloaded=False)
    late = np.flatnonzero(plan.block_id >= runtime.blocks)
    if len(late):
        first = int(late[0])
        most = int(np.count_nonzero(plan.block_rank == plan.block_rank[first]))
        yield _over(runtime, f"rank {int(plan.block_rank[first])} has {most:,} blocks", f"at most {runtime.blocks:,}",
                    plan.span(int(plan.block_at[first])), count=len(np.unique(plan.block_rank[late])))
    unset = np.flatnonzero(plan.chan >= plan.channels)
    if len(unset):
        first = int(unset[0])
        yield error("SL701", f"a block uses channel {int(plan.chan[first]):,}, and nchannels is {plan.channels:,}: "
                    f"{runtime.title} reads on, and never connects that channel",
                    attribute(plan, "chan", int(plan.block_at[first])), count=len(unset),
                    help="nchannels is one more than the largest chan", runtime=runtime.name, unloaded=False)
    for column, verb in ((plan.send, "send"), (plan.recv, "receive")):
        yield from _crowd(plan, runtime, column, verb)


def _crowd(plan: Plan, runtime: Runtime, column: Array, verb: str) -> Iterator[Diagnostic]:
    """More blocks of a rank that send, or receive, on one channel than there is room for."""
    used = np.flatnonzero(column != NONE)
    place = plan.block_rank[used].astype(np.int64) * (int(plan.chan.max(initial=0)) + 1) + plan.chan[used]
    order = np.argsort(place, kind="stable")
    begins = np.flatnonzero(np.diff(place[order], prepend=-1))
    sizes = np.diff(begins, append=len(order))
    crowded = np.flatnonzero(sizes > PEERS)
    if len(crowded):
        first = int(used[order[begins[crowded] + PEERS]].min())
        rank, chan = int(plan.block_rank[first]), int(plan.chan[first])
        members = int(np.count_nonzero((plan.block_rank[used] == rank) & (plan.chan[used] == chan)))
        yield _over(runtime, f"{members:,} blocks of rank {rank} {verb} on channel {chan}", f"room for {PEERS}",
                    plan.span(int(plan.block_at[first])), count=len(crowded), help="spread them over more channels")


def _steps(plan: Plan, runtime: Runtime) -> Iterator[Diagnostic]:
    late = np.flatnonzero(plan.s >= runtime.steps)
    if len(late):
        block = int(plan.block[late[0]])
        length = int(np.count_nonzero(plan.block == block))
        more = "; a build with a larger MSCCL_MAX_NUM_STEPS takes more" if runtime.name == "azure" else ""
        name = f"block {int(plan.block_id[block])} of rank {int(plan.block_rank[block])}"
        yield _over(runtime, f"{name} has {length:,} steps", f"at most {runtime.steps}",
                    plan.span(int(plan.step_at[late[0]])), count=len(np.unique(plan.block[late])),
                    help=f"spread them over several blocks{more}")
    large = np.flatnonzero((plan.count > COUNT) & (plan.kind != Kind.NOP))
    if len(large):
        at = int(plan.step_at[large[0]])
        yield _over(runtime, f"a step moves {int(plan.count[large[0]]):,} chunks", f"at most {COUNT}",
                    attribute(plan, "cnt", at), count=len(large), help="split it into several")
    far = np.flatnonzero(plan.dep_block > DEPENDED)
    if len(far):
        at = int(plan.step_at[far[0]])
        yield _over(runtime, f"a step waits for block {int(plan.dep_block[far[0]]):,}",
                    f"8 bits for that, up to {DEPENDED}", attribute(plan, "depid", at),
                    "it waits for another one, or for none", count=len(far),
                    help="give the blocks that are waited for the smaller numbers")
    yield from _offsets(plan, runtime)


def _offsets(plan: Plan, runtime: Runtime) -> Iterator[Diagnostic]:
    """Offsets that do not fit into 16 bits; those that the tag of the gpu has no room for (SL707)."""
    rank = plan.block_rank[plan.block]
    sizes = np.stack([plan.i_chunks, plan.o_chunks, plan.s_chunks]).astype(np.int64)
    for name, space, offset, kinds in (("srcoff", plan.src_space, plan.src_offset, _READS),
                                       ("dstoff", plan.dst_space, plan.dst_offset, _STORES)):
        compared = np.isin(plan.kind, kinds)
        far = np.flatnonzero((compared | (plan.kind == Kind.RRC)) & (offset > OFFSET))
        if len(far):
            yield _over(runtime, f"{name} is {int(offset[far[0]]):,}", f"16 bits for it, up to {OFFSET:,}",
                        attribute(plan, name, int(plan.step_at[far[0]])), "it uses another place", count=len(far),
                        help="move more chunks at a time, or fewer in all")
        outside = np.flatnonzero(compared & (offset <= OFFSET) & (offset >= sizes[space, rank]))
        if len(outside):
            step = int(outside[0])
            where = int(space[step])
            said = f"{Space(where).name[0].lower()}_chunks"
            yield error("SL707", f"{name} is {int(offset[step]):,}, and {said} of rank {int(rank[step])} is "
                        f"{int(sizes[where, rank[step]]):,}, which {runtime.title} compares: {runtime.refuses}",
                        attribute(plan, name, int(plan.step_at[step])), count=len(outside),
                        help=f"say in {said} how many chunks the buffer has", runtime=runtime.name, unloaded=True)


def _nodes(plan: Plan, runtime: Runtime) -> Iterator[Diagnostic]:
    blocks = np.bincount(plan.block_rank, minlength=plan.ranks)
    steps = np.bincount(plan.block_rank[plan.block], minlength=plan.ranks)
    nodes = 1 + plan.ranks + blocks + steps
    many = np.flatnonzero(nodes > NODES)
    if len(many):
        rank = int(many[0])
        yield _over(runtime, f"rank {rank} reads {int(nodes[rank]):,} elements (the algorithm, {plan.ranks:,} gpus, "
                    f"its {int(blocks[rank]):,} blocks and {int(steps[rank]):,} steps)", f"room for {NODES:,}",
                    plan.span(int(plan.gpu_at[rank])), count=len(many))
