"""The normal form: it means what the table means, nothing in it races, and no lane waits for ever."""

import random
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from schedlang.backends.cuda.classes import classes
from schedlang.backends.cuda.normal import Making, Normal, normal
from schedlang.backends.cuda.split import Split
from schedlang.interpret import interpret
from schedlang.ir import json, legal
from schedlang.ir.layout import Layout
from schedlang.ir.loops import Lanes, lanes
from schedlang.ir.loops.nests import statements as in_body
from schedlang.ir.table import NONE, OpTable
from schedlang.msccl import read
from schedlang.msccl import table as msccl_table
from schedlang.ops import Op
from schedlang.running.executable import legal_order
from schedlang.running.values import follow
from schedlang.verify import verify
from schedlang.verify.sends import DEFAULT, Sends
from tests.backends.cuda.crowded import crowded_table
from tests.backends.cuda.executor import Executor
from tests.backends.torch.shipped import SCHEDULES, shipped, sizes
from tests.backends.worlds import some_inputs, some_layout
from tests.strategies import arbitrary_tables, tables, working_table
from tests.test_msccl_files import KNOWN, files, path

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
SEED = st.integers(0, 1 << 20)
UNLIMITED = Sends.parse("unlimited")


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


@pytest.mark.parametrize("file,name", SCHEDULES)
@pytest.mark.parametrize("ranks", range(1, 9))
def test_shipped_schedules(file, name, ranks):
    table = shipped(file, name, ranks)
    if table is None:
        pytest.skip("not for this size")
    rng = random.Random(f"{name} {ranks}")
    form = normal(table)
    assert legal.check(form.table) == []
    for layout in sizes(table, rng)[: 2 if ranks < 6 else 1]:
        agree(table, layout, rng.randrange(1 << 20), form)


@pytest.mark.parametrize("file,name", SCHEDULES)
def test_loops_survive(file, name):
    """What a regular table's nests are, those of its normal form are, too, but for snapshots, and rows that are split
    as their chunks have unequal lengths."""
    table = shipped(file, name, 8)
    if table is None:
        pytest.skip("not for this size")
    form = normal(table)
    wanted, got = statements(lanes(table)), statements(nests(form))
    if form.staging:
        wanted = {"recursive_doubling": 3, "swing_latency": 3, "scan": 29}[name]
    elif name == "bruck_all_to_all_v":
        wanted = 13
    assert got == wanted


def nests(form: Normal) -> Lanes:
    more = {name: getattr(form, name) for name in ("tag", "message", "their_chunk", "like", "before", "after",
                                                   "rounds")}
    return lanes(form.table, more, fixed=[form.their_buffer], place=np.zeros(len(form.table), np.int64))


def statements(found: Lanes) -> int:
    return sum(1 for program in found.programs for _ in in_body(program.body))


def test_a_large_schedule_takes_little_time():
    table = shipped("allreduce/all_pairs.sched", "all_pairs", 64)
    began = time.process_time()
    form = normal(table)
    assert len(form.table) == 16128 and time.process_time() - began < 1


@settings(max_examples=150, **QUIET)
@given(tables(flawless=True), SEED)
def test_random_schedules(table, seed):
    note(json.dumps(table))
    form = normal(table)
    assert legal.check(form.table) == []
    agree(table, some_layout(table, random.Random(seed)), seed, form, blocks=random.Random(seed).choice([1, 1, 2]))


CROWDED = st.builds(crowded_table, st.randoms(use_true_random=False), st.sampled_from([0.0, 0.0, 0.5, 1.0]))


@settings(max_examples=200, **QUIET)
@given(st.one_of(CROWDED, arbitrary_tables()), SEED)
def test_full_steps(table, seed):
    """Of tables thrown together, those whose values are settled, whatever these are, be it where connections hold
    messages."""
    note(json.dumps(table))
    assume(settled(table, UNLIMITED))
    form = normal(table)
    assert legal.check(form.table) == []
    agree(table, some_layout(table, random.Random(seed)), seed, form)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(20))
def test_many_random_tables(seed):
    for k in range(300):
        rng = random.Random(f"{seed} {k}")
        table = crowded_table(rng, rng.choice([0.0, 0.0, 0.5, 1.0])) if k % 2 else working_table(rng)
        if settled(table, UNLIMITED):
            agree(table, some_layout(table, rng), k, blocks=rng.choice([1, 1, 2]))


@files
@pytest.mark.parametrize("name", [n for n in KNOWN if n != "all-reduce-ring-ll"])
def test_what_runtimes_ship_runs_whatever_their_connections_hold(name):
    table = msccl_table(read(path(name)), KNOWN[name][0][0])
    agree(table, Layout(table, 2 * table.chunks), 0)


@settings(max_examples=100, **QUIET)
@given(st.one_of(tables(flawless=True), CROWDED))
def test_without_buffering_no_copy_is_sent_to_avoid_waiting(table):
    """The argument why nothing waits too early holds of all tables that need no buffering."""
    note(json.dumps(table))
    assume(settled(table, DEFAULT))
    pairs, when = legal_order(table)
    assert when.deadlock_free
    values = follow(table, pairs.partner, when.posted, when.ready, when.done)
    assert not len(Making(Split(table, pairs, when, classes(table, values)), {}).unsettled())


def test_chans_between_other_ranks_share_a_tag():
    torus = normal(shipped("allreduce/torus.sched", "torus", 8))
    assert (torus.tags, len(torus.table.streams)) == (2, 4)
    assert normal(shipped("allreduce/bidirectional_ring.sched", "bidirectional_ring", 8)).tags == 2


def settled(table: OpTable, sends: Sends = DEFAULT) -> bool:
    """Whether a table comes to its end, without races or reads of what nothing has written."""
    proofs = {proof.name: proof.state for proof in verify(table, sends=sends).proofs}
    return (all(proofs[name] == "proved" for name in ("form", "steps", "matching", "deadlock", "races"))
            and not interpret(table).uninitialised)


def test_random_steps_are_as_full_as_they_should_be():
    """What the normal form has rules for is met: sums that wait for others, values passed on that are not what their
    place ends as, messages that overtake others."""
    met: Counter[str] = Counter()
    for seed in range(80):
        table = crowded_table(random.Random(seed))
        if not settled(table):
            continue
        form = normal(table)
        t = form.table
        met["tables"] += 1
        ends = {*zip(t.rank.tolist(), t.peer.tolist(), t.chan.tolist(), strict=True)}
        met["tags"] += len({*zip(t.rank.tolist(), t.peer.tolist(), t.chan.tolist(), form.tag.tolist(), strict=True)}) \
            > len(ends)
        met["unfused"] += int((t.of != NONE).sum()) < int((table.of != NONE).sum())
        late = (t.op == Op.REDUCE) & (t.from_buffer == len(table.buffers))
        met["late"] += bool((late & (t.buffer != len(table.buffers))).any())
        met["snapshots"] += bool(((t.op == Op.COPY) & (t.buffer == len(table.buffers))).any())
        met["quiet"] += bool(((table.buffer == NONE) & (table.op == Op.RECV)).any())
        met["groups"] += len({*zip(t.rank, t.stream, t.step)}) > 2 * len({*zip(table.rank, table.stream, table.step)})
    assert all(met[what] >= 3 for what in ("tags", "unfused", "late", "snapshots", "quiet", "groups")), met
