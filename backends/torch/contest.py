"""Schedules timed against the collectives of torch.distributed, in turn, on the ranks of a world."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
class Side:
    """One that is timed: ``run`` it on its ``tensors``; ``result`` is where what it gives here is then."""

    title: str
    run: Callable[[], object]
    tensors: Sequence[torch.Tensor]
    result: torch.Tensor


def contests(world: World, what: Sequence[Contest]) -> list[list[list[list[float]]]]:
    """Several, one after the other."""
    return [contest(world, one) for one in what]


def contest(world: World, what: Contest, ways: Callable[..., Iterable[Side]] | None = None) -> list[list[list[float]]]:
    """For each size the seconds of each round, on the rank that took longest: of the built-in, then of each table.
    ``ways``: gives the sides of a table, from the arguments of :func:`by_messages`; None: that."""
    found = []
    for turn, elements in enumerate(what.sizes):
        sides = [_built_in(world, what.tables[0][1], elements, what.dtype)]
        for title, table in what.tables:
            sides += (ways or by_messages)(world, title, table, elements, what.dtype)
        _require_equal(world, sides)
        found.append(_times(world, sides, what))
        world.tell((turn + 1) / len(what.sizes))
    return found


def _times(world: World, sides: Sequence[Side], what: Contest) -> list[list[float]]:
    """Rounds in which each side runs once; each round begins with another."""
    def one(side: Side) -> float:
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


def _require_equal(world: World, sides: Sequence[Side]) -> None:
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


def by_messages(world: World, title: str, table: OpTable, elements: int, dtype: str) -> Iterator[Side]:
    """A table executed by messages."""
    executor = Executor(table, world.rank, wire_of(world.group), timeout=world.timeout)
    executor.bound(elements)
    buffers = {name: torch.empty(length, dtype=getattr(torch, dtype), device=world.device)
               for name, length in lengths(world, table, elements).items()}
    yield side(world, title, table, elements, buffers, lambda: executor.run(buffers, elements))


def lengths(world: World, table: OpTable, elements: int) -> dict[str, int]:
    """The elements of the buffers that a caller of a table has on this rank, by name."""
    layout = Layout(table, elements)
    return {b.name: int(layout.count(i)[world.rank]) for i, b in enumerate(table.buffers)
            if b.role != "scratch" and b.only in (None, world.rank)}


def side(world: World, title: str, table: OpTable, elements: int, buffers: Mapping[str, torch.Tensor],
         run: Callable[[], object]) -> Side:
    """A table that ``run`` executes on ``buffers``."""
    parts = extents(Layout(table, elements), world.rank, ends(table)[world.rank])
    wanted = [buffers[name][first:last] for name, (first, last) in parts.items()]
    nothing = next(iter(buffers.values()))[:0] if buffers else torch.empty(0)
    return Side(title, run, [*buffers.values()], wanted[0] if wanted else nothing)


def _built_in(world: World, table: OpTable, elements: int, dtype: str) -> Side:
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
        return Side(title, run[c.name], [long], long if c.name != "reduce" or world.rank == root else long[:0])
    other = torch.empty_like(long if kind.long == "both" else long[: elements // n])
    if c.name == "allgather":
        return Side(title, lambda: call(long, other, group), [long, other], long)
    if c.name == "alltoall":
        return Side(title, lambda: call(other, long, group=group), [long, other], other)
    return Side(title, lambda: call(other, long, op, group), [long, other], other)
