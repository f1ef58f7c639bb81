"""A schedule executed rank by rank, in one process or in a pool of them, on inputs as a back end takes them.

Workers of a pool import this: it brings in nothing that takes long.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from schedlang.backends.torch.execute import Executor
from schedlang.backends.torch.share import as_array, as_tensor
from schedlang.backends.torch.wire import AnyWire, wire_of
from schedlang.ir.layout import Layout
from schedlang.ir.table import Array, OpTable
from schedlang.running.binding import ends, index_of, starts
from tests.backends.torch.memory_wire import World


def share(table: OpTable, layout: Layout, wire: AnyWire, inputs: Mapping[str, Array], dtype: np.dtype[Any],
          executor: Executor | None = None, **how: Any) -> dict[str, Array]:
    """What one rank does, and its results."""
    rank, buffers = wire.rank, {}
    given, wanted = starts(table)[rank], ends(table)[rank]
    for b, buffer in enumerate(table.buffers):
        if buffer.only in (None, rank) and (buffer.role != "scratch" or buffer.name in given or buffer.name in wanted):
            array = np.zeros(int(layout.count(b)[rank]), dtype)
            if buffer.name in inputs:
                array[_slice(layout, rank, buffer.name, given[buffer.name])] = inputs[buffer.name]
            buffers[buffer.name] = as_tensor(array)
    before = {b.name: buffers[b.name].clone() for b in table.buffers
              if b.role == "input" and b.name in buffers and b.name not in wanted}
    (executor or Executor(table, rank, wire)).run(buffers, layout.elements, **how)
    for name, kept in before.items():
        assert as_array(kept).tobytes() == as_array(buffers[name]).tobytes(), f"{name} has changed"
    return {name: as_array(buffers[name])[_slice(layout, rank, name, chunks)].copy() for name, chunks in wanted.items()}


def in_memory(table: OpTable, layout: Layout, inputs: Sequence[Mapping[str, Array]], seed: int, eager: float = 0.0,
              **how: Any) -> list[dict[str, Array]]:
    """The results of all ranks, in one process, with the timing that ``seed`` gives."""
    dtype = dtype_of(inputs)
    return World(table.ranks, seed, eager).run(
        lambda wire: share(table, layout, wire, inputs[wire.rank], dtype, **how))


def over_group(table: OpTable, elements: int | None, inputs: Sequence[Mapping[str, Array]],
               **how: Any) -> dict[str, Array]:
    """For workers of a pool: this rank's results. A smaller table runs on the first ranks only."""
    group = _first_ranks(table.ranks)
    if group is None:
        return {}
    wire = wire_of(group)
    return share(table, Layout(table, elements), wire, inputs[wire.rank], dtype_of(inputs), **how)


@cache
def _first_ranks(ranks: int) -> dist.ProcessGroup | None:
    if ranks == dist.get_world_size():
        return dist.group.WORLD
    group = dist.new_group(list(range(ranks)))
    return group if dist.get_rank() < ranks else None


def repeatedly(table, sizes, op: str) -> list[bool]:
    """One executor, many sizes and tensors; the sums of whole numbers, known beforehand."""
    executor = Executor(table, dist.get_rank(), wire_of(dist.group.WORLD))
    right = []
    for turn, elements in enumerate(sizes):
        mine = torch.full((elements,), float(dist.get_rank() + turn))
        executor.run({"data": mine}, elements, op=op)
        wanted = sum(r + turn for r in range(table.ranks)) / (table.ranks if op == "avg" else 1)
        right.append(bool((mine == wanted).all()))
    return right


def late(table: OpTable, who: int) -> tuple[float, float]:
    """When this rank came to a barrier and when it left, by the machine's clock; one rank comes late."""
    executor = Executor(table, dist.get_rank(), wire_of(dist.group.WORLD))
    if dist.get_rank() == who:
        time.sleep(0.3)
    came = time.monotonic()
    executor.run({}, None)
    return came, time.monotonic()


def dtype_of(inputs: Sequence[Mapping[str, Array]]) -> np.dtype[Any]:
    """The dtype of all values."""
    return next((array.dtype for here in inputs for array in here.values()), np.dtype(np.float32))


def _slice(layout: Layout, rank: int, name: str, chunks: range) -> slice:
    at = layout.starts(index_of(layout.table, name), rank)
    return slice(int(at[chunks.start]), int(at[chunks.stop]))
