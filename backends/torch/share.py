"""One rank's share of a run: its inputs into buffers, the timed execution, and the results out of them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
import torch.distributed as dist

from schedlang.backends.torch.arena import Arena
from schedlang.backends.torch.execute import Executor
from schedlang.backends.torch.faults import first_line
from schedlang.backends.torch.handshake import Handshake
from schedlang.backends.torch.header import Header
from schedlang.backends.torch.job import Run
from schedlang.backends.torch.wire import AnyWire, wire_of
from schedlang.backends.torch.world import World
from schedlang.diagnostics import SchedError, error
from schedlang.ir.digest import digest, title
from schedlang.ir.layout import Layout
from schedlang.ir.table import NONE, Array
from schedlang.running.binding import ends, index_of, starts
from schedlang.running.dtypes import named


def as_tensor(array: Array) -> torch.Tensor:
    """A tensor that shares an array's memory, where that may be written."""
    if not array.flags.writeable:                           # torch has no such tensors, and warns
        array = array.copy()
    if array.dtype.name == "bfloat16":                      # which NumPy knows by ml_dtypes only
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array)


def as_array(tensor: torch.Tensor) -> Array:
    """An array of a tensor's elements."""
    here = tensor.cpu()
    if here.dtype == torch.bfloat16:
        return here.view(torch.int16).numpy().view(named("bfloat16").numpy)
    array: Array = here.numpy()
    return array


def perform(world: World, run: Run, inputs: Mapping[str, Array]) -> tuple[list[float], dict[str, Array]]:
    """This rank's part of a run: the seconds that each turn took here, and the results.

    Raises SchedError: SL812 where the ranks do not mean the same, SL813 where one of them is lost.
    """
    table, rank, layout = run.table, world.rank, Layout(run.table, run.elements)
    given, wanted = extents(layout, rank, starts(table)[rank]), extents(layout, rank, ends(table)[rank])
    buffers = {b.name: torch.zeros(int(layout.count(i)[rank]), dtype=getattr(torch, run.dtype), device=world.device)
               for i, b in enumerate(table.buffers)
               if (b.role != "scratch" or b.name in given or b.name in wanted) and b.only in (None, rank)}
    wire = agree(world, run)
    executor = Executor(table, rank, wire, timeout=world.timeout)
    executor.bound(run.elements)                            # so that no turn has to work that out
    seconds = []
    for turn in range(run.repeat):
        for name, (first, last) in given.items():
            buffers[name][first:last].copy_(as_tensor(inputs[name]))
        with together(world, "before an execution"):
            dist.barrier(world.control)
        begun = now(world)
        executor.run(buffers, run.elements, op=run.op, accumulate=run.accumulate)
        seconds.append(now(world) - begun)
        world.tell((turn + 1) / run.repeat)
    return seconds, {name: as_array(buffers[name][first:last]) for name, (first, last) in wanted.items()}


def agree(world: World, run: Run) -> AnyWire:
    """Compare with all ranks what they mean to do. Raises SchedError: SL812, SL813."""
    wire = wire_of(world.group)
    Handshake(wire, timeout=world.timeout, device=world.device).agree(_header(run), run.table)
    return wire


def _header(run: Run) -> Header:
    """What a rank means to do, so that machines with different files do not."""
    c = run.table.collective
    how = hashlib.blake2b(digest(run.table), digest_size=16)
    how.update(repr((run.accumulate, run.repeat, None if c.counts is None else c.counts.tolist())).encode())
    return Header(0, c.name, run.op or "", run.dtype, NONE if c.root is None else c.root, run.elements, how.digest(),
                  title(run.table))


def in_arena(world: World, run: Run, inputs: Arena, results: Arena) -> list[float]:
    """As :func:`perform`, between arenas."""
    seconds, mine = perform(world, run, inputs.arrays(world.rank))
    for name, array in results.arrays(world.rank).items():
        array[:] = mine[name]
    return seconds


def gathered(world: World, run: Run, mine: Mapping[str, Array], everywhere: bool) -> list[dict[str, Array]]:
    """The results of all ranks: on each of them, or on rank 0 only, and others then have their own alone."""
    layout, dtype = Layout(run.table, run.elements), named(run.dtype).numpy
    found = [dict(mine) if rank == world.rank else {} for rank in range(world.size)]
    for rank, here in enumerate(ends(run.table)):
        for name, (first, last) in extents(layout, rank, here).items():
            own = rank == world.rank
            if not everywhere and (rank == 0 or not (own or world.rank == 0)):
                continue
            array = mine[name] if own else np.empty(last - first, dtype)
            moved = torch.from_numpy(array.view(np.uint8))  # Gloo does not know all dtypes
            with together(world, "while results were collected"):
                if everywhere:
                    dist.broadcast(moved, rank, world.control)
                elif own:
                    dist.send(moved, 0, world.control)
                else:
                    dist.recv(moved, rank, world.control)
            found[rank][name] = array
    return found


def slowest(world: World, seconds: list[float]) -> list[float]:
    """Of each turn the seconds on the rank that took longest."""
    most = torch.tensor(seconds, dtype=torch.float64)
    with together(world, "after the last execution"):
        dist.all_reduce(most, dist.ReduceOp.MAX, world.control)
    longest: list[float] = most.tolist()
    return longest


@contextmanager
def together(world: World, when: str) -> Iterator[None]:
    """What ranks do together outside of an execution; that fails where one of them is gone or stalls."""
    try:
        yield
    except RuntimeError as cause:
        raise SchedError(error("SL813", f"rank {world.rank} misses another {when}: {first_line(cause)}")) from cause


def extents(layout: Layout, rank: int, chunks: Mapping[str, range]) -> dict[str, tuple[int, int]]:
    """The elements, first and last, of some chunks on a rank."""
    found = {}
    for name, some in chunks.items():
        at = layout.starts(index_of(layout.table, name), rank)
        found[name] = int(at[some.start]), int(at[some.stop])
    return found


def _bytes(run: Run, elements: int) -> torch.Tensor:
    return torch.empty(elements * named(run.dtype).numpy.itemsize, dtype=torch.uint8)


def now(world: World) -> float:
    """The time, once all that the GPU was to do is done."""
    if world.device.type == "cuda":
        torch.cuda.synchronize(world.device)
    return time.perf_counter()
