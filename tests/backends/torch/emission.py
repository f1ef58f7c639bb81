"""Shipped schedules and what their emitted files are given and must yield, in the form that back ends take."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from schedlang.backends.numpy import backend
from schedlang.expand import cases, expand, load_program
from schedlang.ir.layout import Layout
from schedlang.ir.table import OpTable
from schedlang.ops import COLLECTIVES
from schedlang.running.binding import ends, starts
from tests.backends.worlds import assert_same_bits, some_inputs, some_layout

EXAMPLES = Path(__file__).parents[3] / "examples"
SCHEDULES = [(path, name) for path in sorted(EXAMPLES.rglob("*.sched")) for name in load_program(str(path)).names]
NAMES = [f"{path.relative_to(EXAMPLES)}::{name}" for path, name in SCHEDULES]
JUNK = 77

Run = tuple[list[dict[str, np.ndarray]], Layout, "str | None"]
"""The inputs of all ranks, their sizes, and the operator (None: the schedule's)."""


def tables(path: Path, name: str, sizes: set[int]) -> list[OpTable]:
    """A shipped schedule for all its cases that have one of these numbers of ranks."""
    program = load_program(str(path))
    found = []
    for case in cases(program, name, ranks=None, params={}):
        params = dict(case)
        table, _ = expand(program, name, ranks=params.pop("ranks", None), params=params)
        if table is not None and table.ranks in sizes:
            found.append(table)
    return found


def some_runs(table: OpTable, rng: random.Random, dtype: Any = np.float32, count: int = 3) -> list[Run]:
    """Runs of random sizes, some of them uneven."""
    layouts = [some_layout(table, rng) for _ in range(count)]
    return [(some_inputs(table, layout, dtype, seed), layout, None) for seed, layout in enumerate(layouts)]


def given(table: OpTable, run: Run, rank: int) -> tuple[dict[str, np.ndarray | None], dict[str, Any]]:
    """What a rank gives to the function: arrays in order, results before inputs as torch has them; and by name."""
    inputs, layout, op = run
    dtype = next((array.dtype for here in inputs for array in here.values()), np.dtype(np.float32))
    ensures = table.collective.ensures
    spoken = set() if ensures is None else set(ensures.buffer.tolist())
    own = [i for i, b in enumerate(table.buffers) if b.chunks and (b.role != "scratch" or i in spoken)]
    found: dict[str, np.ndarray | None] = {}
    for i in sorted(own, key=lambda i: table.buffers[i].role == "input"):
        name = table.buffers[i].name
        found[name] = None
        if table.buffers[i].only in (None, rank):
            array = found[name] = np.full(int(layout.count(i)[rank]), JUNK, dtype)
            if name in inputs[rank]:
                chunks, cuts = starts(table)[rank][name], layout.starts(i, rank)
                array[int(cuts[chunks.start]) : int(cuts[chunks.stop])] = inputs[rank][name]
    barrier = COLLECTIVES[table.collective.name].family == "barrier"
    return {} if barrier else found, {} if op is None else {"op": op}


def require_equal(table: OpTable, run: Run, arrays: list[Mapping[str, np.ndarray | None]]) -> None:
    """The arrays of all ranks after a call are what the NumPy back end says, bit for bit."""
    inputs, layout, op = run
    if COLLECTIVES[table.collective.name].family == "barrier":
        return
    outputs: list[dict[str, Any]] = []
    wanted = backend.run(table, inputs, op=op)
    for rank, here in enumerate(ends(table)):
        outputs.append({})
        for name, chunks in here.items():
            index = table.buffer_index(name)
            array, cuts = arrays[rank][name], layout.starts(index, rank)
            assert array is not None and index is not None
            outputs[rank][name] = array[int(cuts[chunks.start]) : int(cuts[chunks.stop])]
            for chunk in _left_open(table, index, rank):
                span = slice(int(cuts[chunk]), int(cuts[chunk + 1]))
                wanted[rank][name][span] = array[span]
    assert_same_bits(outputs, wanted)


def _left_open(table: OpTable, buffer: int, rank: int) -> set[int]:
    """Chunks of a buffer on a rank that no `ensure` of a custom collective names, though it names others there."""
    ensures = table.collective.ensures
    if ensures is None:
        return set()
    named = ensures.chunk[(ensures.buffer == buffer) & (ensures.rank == rank)].tolist()
    return {*range(table.buffers[buffer].chunks)} - {*named}
