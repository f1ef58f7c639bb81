"""Emitted files on NCCL's rules (tests/nccl_double.py): bit for bit what the NumPy back end computes."""

import random
from types import ModuleType

import numpy as np
import pytest

import schedlang
from schedlang.backends.numpy import backend
from schedlang.backends.torch.emit import source
from schedlang.diagnostics import SchedError
from schedlang.expand import load_program
from tests import nccl_double
from tests.backends.torch.emission import EXAMPLES, NAMES, SCHEDULES, given, require_equal, some_runs, tables
from tests.backends.torch.emitted import function_name, to_numpy, to_torch
from tests.backends.worlds import some_inputs, some_layout

CASES = EXAMPLES.parent / "tests" / "cases"


def performed(text, table, runs, world):
    """The arrays of all ranks after each of some calls."""
    module = ModuleType("emitted")
    exec(compile(text, "emitted.py", "exec"), module.__dict__)
    module.torch, module.dist = world.torch, world.dist

    def rank(rank):
        found = []
        for run in runs:
            arrays, named = given(table, run, rank)
            tensors = {n: None if a is None else nccl_double.device(to_torch(a)) for n, a in arrays.items()}
            getattr(module, function_name(text))(*tensors.values(), **named)
            found.append({n: None if t is None else to_numpy(nccl_double.host(t)) for n, t in tensors.items()})
        return found

    return world.run(rank)


def compared(table, runs, **how):
    got = performed(source(table), table, runs, nccl_double.World(table.ranks, **how))
    for number, run in enumerate(runs):
        require_equal(table, run, [mine[number] for mine in got])


@pytest.mark.parametrize("path,schedule", SCHEDULES, ids=NAMES)
def test_every_shipped_schedule(path, schedule):
    """Also where the device has room for one communicator at a time: the host issues in an order that fits."""
    rng = random.Random(schedule)
    found = tables(path, schedule, {2, 3, 4})
    for number, table in enumerate(rng.sample(found, min(2, len(found)))):
        haste = rng.choice([0, 0.5, 0.9])
        compared(table, some_runs(table, rng, count=2), seed=number, haste=haste, serial=number == 1)


@pytest.mark.nightly
@pytest.mark.parametrize("path,schedule", SCHEDULES, ids=NAMES)
def test_every_shipped_schedule_at_every_size(path, schedule):
    rng = random.Random(schedule)
    for number, table in enumerate(tables(path, schedule, {2, 3, 4, 8})):
        compared(table, some_runs(table, rng), seed=number, haste=rng.choice([0, 0.5, 0.9]), serial=number % 2 == 1)


def fitting(table, rng):
    """A run whose sizes the NumPy back end takes."""
    while True:
        layout = some_layout(table, rng)
        inputs = some_inputs(table, layout, np.float32, rng.randrange(100))
        try:
            backend.run(table, inputs, op=None)
        except SchedError as error:
            assert error.diagnostics[0].code == "SL802"
            continue
        return inputs, layout, None


def small_cases():
    """The schedules that tests are made of, as far as they are right on up to four ranks."""
    for path in sorted(CASES.glob("*.sched")):
        try:
            names = load_program(str(path)).names
        except SchedError:
            continue
        for name in names:
            yield path, name


WORDS = ["fused", "forward", "stream", "swap", "messages", "sums", "posted", "reversed", "order", "declared"]


@pytest.mark.parametrize("word", WORDS)
def test_schedules_of_the_cases(word):
    """Fused operations, swaps, several streams on one connection, sums into one place."""
    rng, ran = random.Random(word), 0
    for path, name in small_cases():
        if word not in path.stem:
            continue
        for ranks in (2, 3, 4):
            try:
                schedule = schedlang.load(f"{path}::{name}", ranks=ranks)
            except SchedError:
                continue
            if schedule.verify().ok:
                compared(schedule.table, [fitting(schedule.table, rng)], seed=ran, serial=ran % 2 == 1)
                ran += 1
    assert ran


def test_it_hangs_where_communicators_are_not_set_up():
    """The double finds out what the first collective of each group is for."""
    table = schedlang.load(str(EXAMPLES / "broadcast/staged_chain.sched"), ranks=3).table
    text = source(table)
    spoilt = text.replace("dist.all_reduce(torch.zeros(1, device=device), group=one)", "pass")
    assert spoilt != text
    runs = some_runs(table, random.Random(1), count=1)
    with pytest.raises(nccl_double.Hang, match="sets up communicator"):
        performed(spoilt, table, runs, nccl_double.World(3))
    performed(spoilt, table, runs, nccl_double.World(3, eager=True))


def test_it_finds_out_streams_that_do_not_wait():
    """Without CUDA's events the streams of the staged chain overtake each other."""
    table = schedlang.load(str(EXAMPLES / "broadcast/staged_chain.sched"), ranks=3).table
    text = source(table)
    spoilt = text.replace("torch.cuda.current_stream().wait_event(self.events[op.event])", "pass")
    assert spoilt != text
    (run,) = some_runs(table, random.Random(5), count=1)
    wrong = 0
    for seed in range(10):
        got = performed(spoilt, table, [run], nccl_double.World(3, seed=seed))
        try:
            require_equal(table, run, [mine[0] for mine in got])
        except AssertionError:
            wrong += 1
    assert wrong
