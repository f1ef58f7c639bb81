"""Where a runtime makes something else of a block's steps than what is written: nops, and reductions into one place.

A nop is no operation to a runtime. Its dependency becomes one of the operation after it; and steps are counted as they
are executed: a dependency more is a step more. Several `re` after one another that add to one place from one buffer
become one operation.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from schedlang.diagnostics import Diagnostic, error
from schedlang.ir.table import NONE, Array
from schedlang.msccl.phrases import attribute
from schedlang.msccl.plan import Kind, Plan
from schedlang.msccl.runtimes import JOINED, Runtime


def misread(plan: Plan, runtime: Runtime) -> Iterator[Diagnostic]:
    """What is misread, or refused, of a file's nops and reductions (SL707), each kind at its first place."""
    if not len(plan.kind):
        return
    before = _before(plan)
    joined = _joined(plan, before)
    nop = plan.kind == Kind.NOP
    if nop.any():
        after = _after(plan)
        waiting = np.flatnonzero(nop & (plan.dep_block >= 0) & (after != NONE))
        yield from _late(plan, runtime, waiting[joined[after[waiting]]])
        then = np.unique(after[waiting[~joined[after[waiting]]]])
        yield from _without(plan, runtime, then[plan.dep_block[then] < 0])
        yield from _uncounted(plan, runtime, np.flatnonzero(nop & (plan.dep_block < 0)))
    unequal = np.flatnonzero(joined & (plan.count != plan.count[before]))
    if len(unequal):
        step = int(unequal[0])
        yield error("SL707", f"{runtime.title} joins this `re` to the one before it, as both add to one place, and "
                    f"adds {int(plan.count[step])} chunks for each", attribute(plan, "cnt", int(plan.step_at[step])),
                    count=len(unequal), help='give both the same cnt, or the one before it hasdep="1"',
                    runtime=runtime.name, unloaded=False)


def _late(plan: Plan, runtime: Runtime, nops: Array) -> Iterator[Diagnostic]:
    if len(nops):
        yield error("SL707", f"{runtime.title} joins the `re` after this nop to the one before it, and waits only at "
                    "the operation after them", plan.span(int(plan.step_at[nops[0]])), count=len(nops),
                    help="give the `re` the dependency itself, and take the nop out", runtime=runtime.name,
                    unloaded=False)


def _without(plan: Plan, runtime: Runtime, steps: Array) -> Iterator[Diagnostic]:
    if len(steps):
        yield error("SL707", f"the nops before this step wait, and the step itself does not, which {runtime.title} "
                    f"demands: {runtime.refuses}", attribute(plan, "depid", int(plan.step_at[steps[0]])),
                    count=len(steps), help="give the step the dependency of the last nop, and take that nop out",
                    runtime=runtime.name, unloaded=True)


def _uncounted(plan: Plan, runtime: Runtime, nops: Array) -> Iterator[Diagnostic]:
    """nops without a dependency before steps that somebody waits for."""
    if not len(nops):
        return
    # The last step of each block that is waited for, by rank and id of the block.
    waits = np.flatnonzero(plan.dep_block >= 0)
    width = int(max(plan.block_id.max(), plan.dep_block.max())) + 1
    last = np.full(plan.ranks * width, NONE, np.int64)
    np.maximum.at(last, plan.block_rank[plan.block[waits]].astype(np.int64) * width + plan.dep_block[waits],
                  plan.dep_step[waits])
    mine = plan.block_rank[plan.block[nops]].astype(np.int64) * width + plan.block_id[plan.block[nops]]
    early = nops[last[mine] > plan.s[nops]]
    if len(early):
        yield error("SL707", f"{runtime.title} does not count a nop without a dependency, so what waits for later "
                    "steps of this block waits too long, or forever", plan.span(int(plan.step_at[early[0]])),
                    count=len(early), help="take the nop out, and number the steps anew", runtime=runtime.name,
                    unloaded=False)


def _joined(plan: Plan, before: Array) -> Array:
    """Which `re` become part of the operation before them; ``before``: see :func:`_before`."""
    reduces = plan.kind == Kind.RE
    alike = before != NONE
    for column in (plan.kind, plan.dst_space, plan.dst_offset, plan.src_space):
        alike &= column == column[before]
    # A chain ends with the block's 16th `re`: how many there are up to the one before.
    total = np.cumsum(reduces)
    first = np.searchsorted(plan.block, plan.block)
    done = total[before] - total[first] + reduces[first]
    return reduces & alike & (plan.dep_block < 0) & ~plan.has_dep[before] & (done != JOINED)


def _before(plan: Plan) -> Array:
    """For each step the last operation before it in its block; NONE: there is none."""
    last = np.maximum.accumulate(np.where(plan.kind != Kind.NOP, np.arange(len(plan.kind)), NONE))
    before = np.r_[NONE, last[:-1]]
    return np.where(plan.block[before] == plan.block, before, NONE)


def _after(plan: Plan) -> Array:
    """For each step the first operation from it on in its block; NONE: there is none."""
    size = len(plan.kind)
    first = np.minimum.accumulate(np.where(plan.kind != Kind.NOP, np.arange(size), size)[::-1])[::-1]
    there = np.minimum(first, size - 1)
    return np.where((first < size) & (plan.block[there] == plan.block), there, NONE)
