"""Emitted files over Gloo: bit for bit what the NumPy back end computes."""

import random

import pytest

from schedlang.backends.torch.emit import source
from tests.backends.torch.emission import NAMES, SCHEDULES, given, require_equal, some_runs, tables
from tests.backends.torch.emitted import perform


def compared(world, table, runs):
    """Run an emitted file on all ranks, and compare with the NumPy back end."""
    text = source(table)
    got = world(table.ranks).each(perform, [(text, [given(table, run, rank) for run in runs])
                                            for rank in range(table.ranks)])
    for number, run in enumerate(runs):
        require_equal(table, run, [mine[number] for mine in got])


@pytest.mark.parametrize("path,schedule", SCHEDULES, ids=NAMES)
def test_every_shipped_schedule(path, schedule, world):
    rng = random.Random(schedule)
    for table in tables(path, schedule, {2, 3, 4, 8}):
        compared(world, table, some_runs(table, rng))
