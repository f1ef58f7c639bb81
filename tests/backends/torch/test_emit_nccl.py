"""Emitted files on NCCL's rules (tests/nccl_double.py): bit for bit what the NumPy back end computes."""

import random
from types import ModuleType

import pytest

from schedlang.backends.torch.emit import source
from tests import nccl_double
from tests.backends.torch.emission import NAMES, SCHEDULES, given, require_equal, some_runs, tables
from tests.backends.torch.emitted import function_name, to_numpy, to_torch


def compared(table, runs, **world):
    text = source(table)
    made = nccl_double.World(table.ranks, **world)
    module = ModuleType("emitted")
    exec(compile(text, "emitted.py", "exec"), module.__dict__)
    module.torch, module.dist = made.torch, made.dist

    def rank(rank):
        found = []
        for run in runs:
            arrays, named = given(table, run, rank)
            tensors = {n: None if a is None else nccl_double.device(to_torch(a)) for n, a in arrays.items()}
            getattr(module, function_name(text))(*tensors.values(), **named)
            found.append({n: None if t is None else to_numpy(nccl_double.host(t)) for n, t in tensors.items()})
        return found

    got = made.run(rank)
    for number, run in enumerate(runs):
        require_equal(table, run, [mine[number] for mine in got])


@pytest.mark.parametrize("path,schedule", SCHEDULES, ids=NAMES)
def test_every_shipped_schedule(path, schedule):
    rng = random.Random(schedule)
    for number, table in enumerate(tables(path, schedule, {2, 3, 4, 8})):
        compared(table, some_runs(table, rng), seed=number, haste=rng.choice([0, 0.5, 0.9]), serial=number % 2 == 1)
