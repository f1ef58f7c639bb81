"""The normal form: it means what the table means, nothing in it races, and no lane waits for ever."""

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from schedlang.backends.cuda.normal import Normal, normal
from schedlang.interpret import interpret
from schedlang.ir import json, legal
from schedlang.ir.layout import Layout
from schedlang.ir.table import OpTable
from schedlang.verify import verify
from tests.backends.cuda.executor import Executor
from tests.backends.torch.shipped import SCHEDULES, shipped, sizes
from tests.backends.worlds import some_inputs, some_layout
from tests.strategies import tables

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
SEED = st.integers(0, 1 << 20)


def agree(table: OpTable, layout: Layout, seed: int, form: Normal | None = None, **how) -> None:
    """A run of the normal form leaves in every buffer what the interpreter leaves there, to the bit; sizes that do not
    fit the schedule are left out."""
    rng = random.Random(seed)
    inputs = some_inputs(table, layout, np.float32, seed)
    wanted = interpret(table, inputs, clocks=False)
    if wanted.misfits:
        return
    assert wanted.finished and not wanted.uninitialised
    made = form or normal(table)
    run = Executor(made, layout, inputs, seed, **{"piece": rng.choice([1, 2, 3, 100]), **how})
    run.run()
    for (rank, buffer, chunk), value in wanted.memory.items():
        cuts = run.layout.starts(buffer, rank)
        held = run.memory[rank, buffer].values[cuts[chunk] : cuts[chunk] + len(value)]
        assert held.tobytes() == value.tobytes(), (rank, buffer, chunk, held, value)


@pytest.mark.parametrize("path,name", SCHEDULES)
@pytest.mark.parametrize("ranks", range(1, 9))
def test_shipped_schedules(path, name, ranks):
    table = shipped(path, name, ranks)
    if table is None:
        pytest.skip("not for this size")
    rng = random.Random(f"{name} {ranks}")
    form = normal(table)
    assert legal.check(form.table) == []
    for layout in sizes(table, rng)[: 2 if ranks < 6 else 1]:
        agree(table, layout, rng.randrange(1 << 20), form)


@settings(max_examples=150, **QUIET)
@given(tables(flawless=True), SEED)
def test_random_schedules(table, seed):
    note(json.dumps(table))
    assume(verify(table).ok)
    form = normal(table)
    assert legal.check(form.table) == []
    agree(table, some_layout(table, random.Random(seed)), seed, form)
