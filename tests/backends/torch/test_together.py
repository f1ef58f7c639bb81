"""The executor on NCCL's rules (tests/nccl_double.py): bit for bit what the NumPy back end computes, and no hang."""

import random
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from schedlang.backends.numpy import backend
from schedlang.backends.torch.execute import Executor
from schedlang.backends.torch.tasks import Kind
from schedlang.backends.torch.together import plan_together
from schedlang.backends.torch.wire import NcclWire
from schedlang.diagnostics import SchedError
from schedlang.ir import json
from schedlang.ir.layout import Layout
from schedlang.ir.table import OpTable
from schedlang.running.binding import ends, index_of, starts
from tests import nccl_double
from tests.backends.torch.shipped import SCHEDULES, shipped, sizes
from tests.backends.worlds import assert_same_bits, some_inputs, some_layout
from tests.strategies import tables


def on_double(table: OpTable, layout: Layout, inputs: list[dict], seed: int) -> list[dict]:
    """The results of all ranks, of the second of two calls."""
    chance = random.Random(seed)
    world = nccl_double.World(table.ranks, seed=seed, haste=chance.choice([0, 0.5, 0.9]), serial=chance.random() < 0.5)

    def of(rank: int, name: str, chunks: range) -> slice:
        at = layout.starts(index_of(table, name), rank)
        return slice(int(at[chunks.start]), int(at[chunks.stop]))

    def share(rank: int) -> dict:
        given, wanted = starts(table)[rank], ends(table)[rank]
        executor = Executor(table, rank, NcclWire(None, world.dist))
        for _ in range(2):
            buffers = {}
            for b, buffer in enumerate(table.buffers):
                if buffer.only in (None, rank) and (buffer.role != "scratch" or buffer.name in given or
                                                    buffer.name in wanted):
                    array = np.zeros(int(layout.count(b)[rank]), np.float32)
                    if buffer.name in inputs[rank]:
                        array[of(rank, buffer.name, given[buffer.name])] = inputs[rank][buffer.name]
                    buffers[buffer.name] = nccl_double.device(torch.from_numpy(array))
            executor.run(buffers, layout.elements)
        return {name: nccl_double.host(buffers[name]).numpy()[of(rank, name, chunks)]
                for name, chunks in wanted.items()}

    return world.run(share)


@pytest.mark.parametrize("ranks", [2, 3, pytest.param(4, marks=pytest.mark.nightly),
                                   pytest.param(8, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("path,name", SCHEDULES)
def test_shipped_schedules(path, name, ranks):
    table = shipped(path, name, ranks)
    if table is None:
        pytest.skip("not for this size")
    rng = random.Random(f"{name} {ranks}")
    layout = rng.choice(sizes(table, rng))
    inputs = some_inputs(table, layout, np.float32, ranks)
    got = on_double(table, layout, inputs, rng.randrange(1 << 20))
    assert_same_bits(got, backend.run(table, inputs, op=None))


def test_streams_share_their_batches():
    """Both ways round a ring at once: two messages each way a batch."""
    table = shipped("allreduce/bidirectional_ring.sched", "bidirectional_ring", 4)
    moves = [x.kind for x in plan_together(table, 0).instructions if x.kind in (Kind.POST_RECV, Kind.POST_SEND,
                                                                               Kind.WAIT_RECV, Kind.WAIT_SEND)]
    posts = [kind in (Kind.POST_RECV, Kind.POST_SEND) for kind in moves]
    assert posts == 6 * [*4 * [True], *4 * [False]]


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(tables(flawless=True), st.integers(0, 1 << 20))
def test_random_schedules(table, seed):
    note(json.dumps(table))
    layout = some_layout(table, random.Random(seed))
    inputs = some_inputs(table, layout, np.float32, seed)
    try:
        wanted = backend.run(table, inputs, op=None)
    except SchedError as refused:
        assume(refused.diagnostics[0].code == "SL802")      # tests/backends/torch/test_plan.py sees to these
        return
    assert_same_bits(on_double(table, layout, inputs, seed), wanted)


def test_both_ends_of_a_message_are_in_batches_of_one_moment():
    """Chains of fused messages and several streams, in the double tree."""
    table = shipped("allreduce/double_tree.sched", "double_tree", 8)
    plans = [plan_together(table, rank) for rank in range(8)]
    for plan in plans:
        kinds = [x.kind for x in plan.instructions]
        for before, after in pairwise(kinds):
            if before in (Kind.POST_RECV, Kind.POST_SEND):      # nothing but the batch, then its waits
                assert after in (Kind.POST_RECV, Kind.POST_SEND, Kind.WAIT_RECV, Kind.WAIT_SEND)
    between: dict[tuple[int, int], list[list[int]]] = {}
    for plan in plans:
        for x in plan.instructions:
            if x.kind == Kind.POST_SEND:
                between.setdefault((plan.rank, x.peer), [[], []])[0].append(int(plan.execution.partner[x.row]))
            elif x.kind == Kind.POST_RECV:
                between.setdefault((x.peer, plan.rank), [[], []])[1].append(x.row)
    assert all(sent == received for sent, received in between.values())
