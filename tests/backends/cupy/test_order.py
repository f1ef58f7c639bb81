"""What streams are given is enough; and the GPUs in ordinary memory notice if it is not: mistakes are put in."""

import random
from dataclasses import replace

import numpy as np
import pytest

from schedlang.backends.cuda.normal import normal
from schedlang.backends.cupy import CupyBackend, Options, streams
from schedlang.backends.cupy.order import Kind, order
from schedlang.backends.numpy import backend as plain
from schedlang.ir.layout import Layout
from schedlang.ops import COLLECTIVES, Op
from schedlang.verify import verify
from tests import cupy_double, strategies, tables
from tests.backends.native.test_native import case_of
from tests.backends.torch.shipped import SCHEDULES, shipped
from tests.backends.worlds import some_inputs

CASES = [("allreduce/ring.sched", "ring"), ("allreduce/halving_doubling.sched", "halving_doubling"),
         ("broadcast/chain.sched", "chain_broadcast"), ("alltoall/bruck.sched", "bruck_all_to_all"),
         ("broadcast/staged_chain.sched", "staged_chain")]


@pytest.mark.parametrize("reach", [True, False])
@pytest.mark.parametrize("path,name", SCHEDULES, ids=[f"{p}::{n}" for p, n in SCHEDULES])
def test_what_is_waited_for_was_recorded(path, name, reach):
    """Every operation that moves something is given once; events are recorded once, before anybody waits for them, and
    by the stream that they belong to; a stream does not wait for itself."""
    form = normal(case_of(path, name))
    given = order(form, lambda rank, peer: reach)
    recorded, moved = set(), []
    for item in given.items:
        if item.kind == Kind.RECORD:
            assert item.event not in recorded and given.events[item.event] == item.lane
            recorded.add(item.event)
        elif item.kind == Kind.WAIT:
            assert item.event in recorded and given.events[item.event] != item.lane
        else:
            moved.append(item.row)
    table = form.table
    wanted = np.flatnonzero((table.op != Op.SEND) & (table.op < Op.RECORD))
    assert set(moved) == set(wanted.tolist())
    assert len(moved) == len(wanted) + (0 if reach else int((table.op == Op.REDUCE_RECV).sum()))


def is_right(table, given, seed):
    """Whether streams that are given that do what they should, in the order of a seed."""
    with pytest.MonkeyPatch.context() as patch, cupy_double.installed(cupy_double.World(3, seed=seed)):
        patch.setattr(streams, "order", lambda *arguments: given)
        inputs = some_inputs(table, Layout(table, 4 * table.chunks * table.ranks), np.int32, seed)
        wanted = plain.run(table, inputs, op=None)
        got = CupyBackend(options=Options("streams")).run(table, inputs, op=None)
        return all((a[n] == b[n]).all() for a, b in zip(got, wanted) for n in b)


def races(given, without=None):
    """Pairs of moves that touch one place, one of them writing there, and are not ordered by streams and events; item
    ``without`` left out."""
    before = []                                             # of each item, a bit for each that comes before it
    last, at, touched, found = {}, {}, {}, []
    for i, item in enumerate(given.items):
        ahead = [last[item.lane]] if item.lane in last else []
        if item.kind == Kind.WAIT and i != without:
            ahead.append(at[item.event])
        mine = 0
        for j in ahead:
            mine |= before[j] | 1 << j
        before.append(mine)
        last[item.lane] = i
        if item.kind == Kind.RECORD:
            at[item.event] = i
        elif item.kind == Kind.MOVE:
            for place, writes in [(item.into, True), (item.from_, False), (item.own, False)]:
                for k in range(item.count if place else 0):
                    here = touched.setdefault((place.rank, place.buffer, place.chunk + k), [])
                    found += [(j, i) for j, other in here if (writes or other) and j != i and not mine >> j & 1]
                    here.append((i, writes))
    return found


@pytest.mark.parametrize("reach", [True, False])
@pytest.mark.parametrize("path,name", SCHEDULES, ids=[f"{p}::{n}" for p, n in SCHEDULES])
def test_streams_have_no_races(path, name, reach):
    table = case_of(path, name)
    if table.collective.name != "barrier":                  # nothing to read or write
        assert not races(order(normal(table), lambda rank, peer: reach))


def test_random_schedules_have_no_races():
    rng = random.Random("races")
    clean = 0
    while clean < 150:
        table = strategies.working_table(rng, rng.choice([c for c in COLLECTIVES if c != "barrier"]), True)
        if verify(table).ok:
            clean += 1
            modulus = rng.choice([1, 2])                    # of which some reach each other
            assert not races(order(normal(table), lambda rank, peer, by=modulus: (rank + peer) % by == 0))


@pytest.mark.parametrize("path,name", CASES)
def test_a_missing_wait_is_noticed(path, name):
    """Waits are left out one at a time, of those without which there is a race: nearly all of these make a result wrong
    in one of some orders."""
    table = shipped(path, name, 4)
    given = order(normal(table))
    assert all(is_right(table, given, seed) for seed in range(8))
    waits = [k for k, item in enumerate(given.items) if item.kind == Kind.WAIT and races(given, k)]
    picked = random.Random(name).sample(waits, min(12, len(waits)))
    found = [not all(is_right(table, replace(given, items=given.items[:k] + given.items[k + 1:]), seed)
                     for seed in range(40)) for k in picked]
    assert picked and sum(found) >= 0.75 * len(found), (found, len(waits))


def test_a_missing_record_is_noticed():
    table = tables.ring(3)
    given = order(normal(table))
    first = next(k for k, item in enumerate(given.items) if item.kind == Kind.RECORD)
    with pytest.raises(AssertionError, match="not recorded"):
        is_right(table, replace(given, items=given.items[:first] + given.items[first + 1:]), 0)
