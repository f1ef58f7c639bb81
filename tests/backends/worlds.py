"""Inputs for tables, for the tests of back ends."""

import random

import numpy as np

from schedlang.ir.layout import Layout
from schedlang.ir.table import OpTable
from schedlang.ops import COLLECTIVES
from schedlang.running.binding import starts


def some_layout(table: OpTable, rng: random.Random, most: int = 40) -> Layout:
    """Sizes that fit the collective: often uneven, sometimes zero."""
    family = COLLECTIVES[table.collective.name].family
    if family == "whole":
        return Layout(table, rng.choice([0, 1, table.chunks, 3 * table.chunks, rng.randrange(most)]))
    if family == "blocked":
        return Layout(table, table.ranks * rng.randrange(most // 3))
    if family == "custom":
        sizes = {b.name: b.chunks for b in table.buffers}
        measure = sizes.get("input") or sizes.get("data") or table.buffers[0].chunks
        return Layout(table, measure * rng.randrange(6))
    return Layout(table, None)


def some_inputs(table: OpTable, layout: Layout, dtype, seed: int = 0) -> list[dict]:
    """Random inputs in the form a back end takes them: normal floats, small integers."""
    generator = np.random.default_rng(seed)
    inputs = []
    for rank, here in enumerate(starts(table)):
        given = {}
        for name, chunks in here.items():
            cuts = layout.starts(table.buffer_index(name), rank)
            length = int(cuts[chunks.stop] - cuts[chunks.start])
            given[name] = (generator.integers(-100, 100, length).astype(dtype) if np.dtype(dtype).kind in "iub"
                           else generator.standard_normal(length).astype(dtype))
        inputs.append(given)
    return inputs


def assert_same_bits(got: list[dict], wanted: list[dict]) -> None:
    assert [set(here) for here in got] == [set(here) for here in wanted]
    for rank, (mine, other) in enumerate(zip(got, wanted, strict=True)):
        for name, array in mine.items():
            assert array.dtype == other[name].dtype and array.shape == other[name].shape, (rank, name)
            assert array.tobytes() == other[name].tobytes(), (rank, name, array, other[name])
