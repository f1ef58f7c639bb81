"""Schedules timed against the collectives of torch.distributed, in turn, on the ranks of a world."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from schedlang.backends.torch.execute import Executor
from schedlang.backends.torch.job import BUILT_IN, Contest
from schedlang.backends.torch.share import extents, now, together
from schedlang.backends.torch.wire import wire_of
from schedlang.backends.torch.world import World
from schedlang.diagnostics import SchedError, error
from schedlang.ir.layout import Layout
from schedlang.ir.table import OpTable
from schedlang.ops import COLLECTIVES
from schedlang.running.binding import ends

LEAST = 7
"""So many rounds are timed, however long they take."""


@dataclass(frozen=True)
class _Side:
    """One that is timed: ``run`` it on its ``tensors``; ``result`` is where what it gives here is then."""

    title: str
    run: Callable[[], object]
    tensors: Sequence[torch.Tensor]
    result: torch.Tensor


def contests(world: World, what: Sequence[Contest]) -> list[list[list[list[float]]]]:
    """Several, one after the other."""
    return [contest(world, one) for one in what]


def contest(world: World, what: Contest) -> list[list[list[float]]]:
    """For each size the seconds of each round, on the rank that took longest: of the built-in, then of each table."""
    wire, found = wire_of(world.group), []
    for turn, elements in enumerate(what.sizes):
        sides = [_built_in(world, what.tables[0][1], elements, what.dtype)]
        for title, table in what.tables:
            executor = Executor(table, world.rank, wire, timeout=world.timeout)
            sides.append(_of_table(world, title, executor, elements, what.dtype))
        _require_equal(world, sides)
        found.append(_times(world, sides, what))
        world.tell((turn + 1) / len(what.sizes))
    return found


def _times(world: World, sides: Sequence[_Side], what: Contest) -> list[list[float]]:
    """Rounds in which each side runs once; each round begins with another."""
    def one(side: _Side) -> float:
        with together(world, "before an execution"):
            dist.barrier(world.control)
        begun = now(world)
        side.run()
        return now(world) - begun

    begun = time.perf_counter()
    for side in sides:
        one(side)
    with together(world, "before a round"):
        slow = torch.tensor([time.perf_counter() - begun])
        dist.all_reduce(slow, dist.ReduceOp.MAX, world.control)
    rounds = min(what.rounds, max(LEAST, int(what.seconds / float(slow))))
    times = torch.zeros(len(sides), rounds, dtype=torch.float64)
    for turn in range(rounds):
        for k in range(len(sides)):
            which = (turn + k) % len(sides)
            times[which, turn] = one(sides[which])
    with together(world, "after the last round"):
        dist.all_reduce(times, dist.ReduceOp.MAX, world.control)
    found: list[list[float]] = times.tolist()
    return found


def _require_equal(world: World, sides: Sequence[_Side]) -> None:
    """Raises SchedError (SL805) where a side does not give what the first gives; then all tensors hold zeros, which no
    number of rounds makes too large."""
    for side in sides:
        for tensor in side.tensors:
            tensor.fill_(world.rank % 2 + 1)
        with together(world, "before the first execution"):
            dist.barrier(world.control)
        side.run()
        if not torch.equal(side.result, sides[0].result):
            raise SchedError(error("SL805", f"{side.title} on rank {world.rank} does not give what {sides[0].title} "
                                            "gives", help="see what `schedlang run --check` says of it"))
    for side in sides:
        for tensor in side.tensors:
            tensor.zero_()


def _of_table(world: World, title: str, executor: Executor, elements: int, dtype: str) -> _Side:
    table, rank, layout = executor.table, world.rank, Layout(executor.table, elements)
    buffers = {b.name: torch.empty(int(layout.count(i)[rank]), dtype=getattr(torch, dtype), device=world.device)
               for i, b in enumerate(table.buffers) if b.role != "scratch" and b.only in (None, rank)}
    executor.bound(elements)
    wanted = [buffers[name][first:last] for name, (first, last) in extents(layout, rank, ends(table)[rank]).items()]
    result = wanted[0] if wanted else torch.empty(0, dtype=getattr(torch, dtype), device=world.device)
    return _Side(title, lambda: executor.run(buffers, elements), [*buffers.values()], result)


def _built_in(world: World, table: OpTable, elements: int, dtype: str) -> _Side:
    """The built-in for a table's collective, with its operator and root."""
    c, group = table.collective, world.group
    kind, root, n = COLLECTIVES[c.name], c.root or 0, world.size
    title = f"torch.distributed.{BUILT_IN[c.name]}"
    call = getattr(dist, BUILT_IN[c.name])
    op = None if c.op is None else getattr(dist.ReduceOp, c.op.upper())
    long = torch.empty(elements, dtype=getattr(torch, dtype), device=world.device)
    if c.name in ("allreduce", "broadcast", "reduce"):
        run: dict[str, Callable[[], object]] = {
            "allreduce": lambda: call(long, op, group), "broadcast": lambda: call(long, root, group),
            "reduce": lambda: call(long, root, op, group)}
        return _Side(title, run[c.name], [long], long if c.name != "reduce" or world.rank == root else long[:0])
    other = torch.empty_like(long if kind.long == "both" else long[: elements // n])
    if c.name == "allgather":
        return _Side(title, lambda: call(long, other, group), [long, other], long)
    if c.name == "alltoall":
        return _Side(title, lambda: call(other, long, group=group), [long, other], other)
    return _Side(title, lambda: call(other, long, op, group), [long, other], other)
