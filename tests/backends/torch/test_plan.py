"""What each rank does: the right bits, and no rank hangs, whatever the timing. All in one process (memory_wire.py)."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from schedlang.backends.numpy import backend
from schedlang.backends.torch import causes
from schedlang.backends.torch import plan as plans
from schedlang.backends.torch.bound import bind
from schedlang.backends.torch.plan import plan
from schedlang.backends.torch.tasks import STAGING, Kind, Place, Tasks
from schedlang.diagnostics import SchedError
from schedlang.expand import expand, load_program
from schedlang.ir import json
from schedlang.ir.layout import Layout
from schedlang.ir.table import NONE, OpTable
from schedlang.ops import Op
from schedlang.running.executable import legal_order
from schedlang.verify import verify
from schedlang.verify.matching import match
from schedlang.verify.sends import Sends
from schedlang.verify.timing.order import order
from tests.backends.torch.happens_before import require_order
from tests.backends.torch.memory_wire import Stuck, World
from tests.backends.torch.ranks import in_memory
from tests.backends.torch.shipped import SCHEDULES, shipped, sizes
from tests.backends.worlds import assert_same_bits, some_inputs, some_layout
from tests.strategies import arbitrary_tables, tables

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
SEED = st.integers(0, 1 << 20)


def expanded(text: str, ranks: int, tmp_path, **params: int) -> OpTable:
    (tmp_path / "x.sched").write_text(text)
    program = load_program(str(tmp_path / "x.sched"))
    table, findings = expand(program, program.names[0], ranks=ranks, params=params)
    assert table is not None, findings
    return table


def agree(table: OpTable, layout: Layout, seed: int, eager: float = 0.0, dtype=np.float32) -> None:
    inputs = some_inputs(table, layout, dtype, seed)
    assert_same_bits(in_memory(table, layout, inputs, seed, eager), backend.run(table, inputs, op=None))


@pytest.mark.parametrize("path,name", SCHEDULES)
@pytest.mark.parametrize("ranks", [2, 3, 4, pytest.param(5, marks=pytest.mark.nightly), 8])
def test_shipped_schedules(path, name, ranks):
    table = shipped(path, name, ranks)
    if table is None:
        pytest.skip("not for this size")
    rng = random.Random(f"{name} {ranks}")
    for layout in sizes(table, rng)[: 2 if ranks == 8 else 3]:
        agree(table, layout, rng.randrange(1 << 20), rng.choice([0.0, 0.3]))


@settings(max_examples=60, **QUIET)
@given(tables(flawless=True), SEED, st.sampled_from([0.0, 0.3, 1.0]))
def test_random_schedules_give_the_same_bits(table, seed, eager):
    note(json.dumps(table))
    layout = some_layout(table, random.Random(seed))
    agree_or_refuse(table, layout, seed, eager)


@settings(max_examples=60, **QUIET)
@given(st.one_of(tables(), arbitrary_tables()), SEED, st.sampled_from([0.0, 0.5]))
def test_whatever_can_be_executed_never_hangs(table, seed, eager):
    """Also what is right only where connections buffer: here it runs where they do not. Races may give other bits."""
    note(json.dumps(table))
    pairs = match(table)
    assume(not any(d.severity.name == "ERROR" for d in pairs.diagnostics) and order(table, pairs).complete)
    layout = some_layout(table, random.Random(seed))
    right = verify(table, sends=Sends.parse("unlimited")).ok
    agree_or_refuse(table, layout, seed, eager, same=right)


@settings(max_examples=60, **QUIET)
@given(tables(flawless=True), st.sampled_from([1, 3, plans.AHEAD]))
def test_whatever_the_timing_places_are_touched_in_the_order_of_the_schedule(table, ahead):
    note(json.dumps(table))
    require_order(table, ahead=ahead)


def test_that_receives_of_a_ring_come_late_enough_is_known_from_what_other_ranks_do():
    table = shipped("allreduce/ring.sched", "ring", 5)
    assert require_order(table) and not require_order(table, early=False)


def agree_or_refuse(table: OpTable, layout: Layout, seed: int, eager: float, same: bool = True) -> None:
    """As :func:`agree`; sizes that one refuses, the other refuses in the same words."""
    inputs = some_inputs(table, layout, np.float32, seed)
    try:
        wanted = backend.run(table, inputs, op=None)
    except SchedError as refused:
        assume(refused.diagnostics[0].code == "SL802")
        with pytest.raises(SchedError) as mine:
            in_memory(table, layout, inputs, seed, eager)
        assert mine.value.diagnostics[0].code == "SL802"
        return
    got = in_memory(table, layout, inputs, seed, eager)
    if same:
        assert_same_bits(got, wanted)


def kinds(table: OpTable, rank: int, **how: int) -> Counter:
    return Counter(x.kind for x in plan(table, rank, **how).instructions)


def test_a_ring_makes_one_reduction_a_step_and_no_copy():
    table = shipped("allreduce/ring.sched", "ring", 4)
    for rank in range(4):
        assert kinds(table, rank) == {Kind.POST_SEND: 6, Kind.WAIT_SEND: 6, Kind.POST_RECV: 6, Kind.WAIT_RECV: 6,
                                      Kind.REDUCE: 3}


def test_receives_are_posted_ahead_but_not_too_far():
    table = shipped("allreduce/ring.sched", "ring", 8)

    def under_way(ahead: int) -> int:
        now = most = 0
        for x in plan(table, 0, ahead=ahead).instructions:
            now += (x.kind == Kind.POST_RECV) - (x.kind == Kind.WAIT_RECV)
            most = max(most, now)
        return most

    assert [under_way(ahead) for ahead in (1, 3, 5)] == [1, 3, 5]
    assert len(plan(table, 0, ahead=1).slots) == 1 and len(plan(table, 0, ahead=3).slots) == 3


def test_slots_are_used_again():
    """What many messages need one after another is the memory of a few."""
    table = shipped("allreduce/ring.sched", "ring", 8)
    assert len(plan(table, 0).slots) <= plans.AHEAD
    bound = bind(plan(table, 0), Layout(table, 8000))
    assert bound.staging <= plans.AHEAD * 1000


def test_what_is_not_for_another_size_is_bound_once_more():
    table = shipped("allreduce/ring.sched", "ring", 4)
    small, large = (bind(plan(table, 1), Layout(table, n)) for n in (3, 8))
    assert len(small.steps) < len(large.steps)          # one of four chunks is empty: neither sent nor received
    assert {s.target.stop - s.target.start for s in large.steps if s.kind == Kind.POST_RECV} == {2}


def test_wide_rows_are_one_message_where_chunks_lie_side_by_side(tmp_path):
    table = expanded("""schedule wide(ranks):
        collective broadcast(0)
        chunks 4
        send data[0:4] from 0 to 1
    """, 2, tmp_path)
    for elements, messages in ((8, 1), (7, 1), (2, 1)):
        assert bind(plan(table, 1), Layout(table, elements)).messages == messages


def test_a_deadlock_is_refused(tmp_path):
    rows = """{"format": "schedlang-ops", "version": 1, "schedule": "stuck", "ranks": 2, "chunks": 1, "params": {},
     "collective": {"name": "custom", "op": null, "root": null, "inplace": true, "counts": null, "ensures": []},
     "buffers": [{"name": "data", "chunks": 2, "place": "device"}],
     "ops": [
      {"id": 0, "rank": 0, "stream": "0", "step": 0, "op": "recv", "buffer": "data", "chunk": 0, "count": 1, "peer": 1},
      {"id": 1, "rank": 0, "stream": "0", "step": 1, "op": "send", "buffer": "data", "chunk": 1, "count": 1, "peer": 1},
      {"id": 2, "rank": 1, "stream": "0", "step": 0, "op": "recv", "buffer": "data", "chunk": 0, "count": 1, "peer": 0},
      {"id": 3, "rank": 1, "stream": "0", "step": 1, "op": "send", "buffer": "data", "chunk": 1, "count": 1, "peer": 0}
     ]}"""
    table = json.loads(rows, "stuck.json")
    with pytest.raises(SchedError) as refused:
        plan(table, 0)
    assert [d.code for d in refused.value.diagnostics] == ["SL305"]


def test_the_world_in_memory_notices_a_hang():
    def both_wait(wire):
        import torch

        wire.receive(torch.zeros(1), 1 - wire.rank, 0).wait()

    with pytest.raises(Stuck, match="receive from 1"):
        World(2, 0).run(both_wait)


def test_a_swap_lands_in_staging_memory(tmp_path):
    table = expanded("""schedule swap(ranks):
        collective custom
        buffer data[1]
        step:
            send data[0] from 0 to 1
            send data[0] from 1 to 0
        ensure data[0] on 0 == data[0] on 1
        ensure data[0] on 1 == data[0] on 0
    """, 2, tmp_path)
    steps = plan(table, 0).instructions
    assert [x.kind for x in steps] == [Kind.POST_RECV, Kind.POST_SEND, Kind.WAIT_RECV, Kind.WAIT_SEND, Kind.COPY]
    assert next(x.target for x in steps if x.kind == Kind.POST_RECV).buffer == STAGING


@pytest.mark.parametrize("path,name", [("allreduce/ring.sched", "ring"), ("allreduce/all_pairs.sched", "all_pairs"),
                                       ("allreduce/bidirectional_ring.sched", "bidirectional_ring")])
def test_receives_stand_ready_before_anything_is_sent(path, name):
    """What comes back contains what was sent from there, so it cannot come too early."""
    kinds = [x.kind for x in plan(shipped(path, name, 5), 2).instructions]
    assert Kind.POST_RECV not in kinds[kinds.index(Kind.POST_SEND):]


def first(steps, kind: Kind, row: int) -> int:
    return next(i for i, x in enumerate(steps) if (x.kind, x.row) == (kind, row))


REUSED = """schedule s(ranks):
    collective custom
    buffer data[2]
    step:
        send data[0] from 0 to 1 into data[1]
    step:
        {reply} from {who} to 0 into data[0]
    ensure data[0] on 0 == {value}
"""


@pytest.mark.parametrize("reply,who,value,early", [
    ("send data[1]", 1, "data[0] on 0", True),            # comes after what it answers
    ("send data[1]", 2, "data[1] on 2", False),           # may come at any time
    ("send data[0]", 1, "data[0] on 1", False),           # from where that went, but it does not contain it
])
def test_a_place_that_is_sent_from_is_free_only_when_that_has_gone(reply, who, value, early, tmp_path):
    table = expanded(REUSED.format(reply=reply, who=who, value=value), 3, tmp_path)
    steps = plan(table, 0).instructions
    send, receive = (next(r for r in range(len(table)) if table.rank[r] == 0 and table.op[r] == op) for op in (0, 1))
    assert (first(steps, Kind.POST_RECV, receive) < first(steps, Kind.WAIT_SEND, send)) is early
    for seed in range(20):
        agree(table, Layout(table, 6), seed)


ADDED_IN_ITS_STEP = """schedule s(ranks):
    collective custom(sum)
    buffer data[1]
    on 0: send data[0] to 1
    on 2: send data[0] to 1
    on 1:
        step:
            reduce data[0] from 0
            reduce data[0] from 2 then send to 0
    on 0: recv data[0] from 1
    ensure data[0] on 0 == sum(data[0] on [1, 2])
    ensure data[0] on 1 == sum(data[0] on [0, 1, 2])
"""

STOOD_WHERE_THE_SUM_GOES = """schedule s(ranks):
    collective custom(sum)
    buffer data[3]
    on 0: send data[0] to 1
    on 2: send data[0] to 1
    on 1: recv data[1] from 0
    on 1:
        step:
            copy data[1] into data[2]
            reduce data[0] from 2 into data[1] then send to 0
    on 0: recv data[0] from 1
    ensure data[0] on 0 == sum(data[0] on [1, 2])
    ensure data[1] on 1 == sum(data[0] on [1, 2])
    ensure data[2] on 1 == data[0] on 0
"""


@pytest.mark.parametrize("text", [ADDED_IN_ITS_STEP, STOOD_WHERE_THE_SUM_GOES])
def test_a_sum_that_is_passed_on_is_made_of_its_own_operand_and_message_only(text, tmp_path):
    """Nothing of what rank 0 sends is in what comes back to its place, so it may come before that has gone."""
    table = expanded(text, 3, tmp_path)
    assert verify(table).ok
    require_order(table)
    steps = plan(table, 0).instructions
    send, receive = (next(r for r in range(len(table)) if table.rank[r] == 0 and table.op[r] == op) for op in (0, 1))
    assert first(steps, Kind.WAIT_SEND, send) < first(steps, Kind.POST_RECV, receive)
    for seed in range(40):
        agree(table, Layout(table, table.buffers[0].chunks), seed)


@pytest.mark.parametrize("sent,arrived,free", [(True, {5}, True), (True, {4}, False), (False, {5}, False)])
def test_what_reads_a_place_is_over_where_something_made_of_it_has_arrived(sent, arrived, free):
    """Row 0 copies a place, row 1 sends the copy, which row 5 receives; row 2 receives into the place."""
    tasks, place = Tasks([NONE, 5]), Place(0, 0, 1)
    slot = tasks.slot(1)
    tasks.copy(0, slot, place)
    if sent:
        tasks.send(1, slot, 1, 0)
    tasks.receive(2, place, 1, 0, arrived)
    assert tasks.after[-1] == (set() if free else {0})


def test_messages_that_are_left_out_cause_nothing(tmp_path):
    """What comes to rank 0 is known to be late by chunk 1, which is not sent where it has no elements. (It is no
    all-reduce, but does the same everywhere.)"""
    table = expanded("""schedule s(ranks):
        collective allreduce(sum)
        chunks 2
        step:
            send data[0:2] from 0 to 2
        step:
            send data[1] from 2 to 1
        step:
            send data[0:2] from 1 to 0
    """, 3, tmp_path)
    for elements, early in ((2, True), (1, False)):
        layout = Layout(table, elements)
        assert layout.sparse is not early
        steps = plan(table, 0, early=early).instructions
        assert (next(x.kind for x in steps) == Kind.POST_RECV) is early
        for seed in range(30):
            agree(table, layout, seed)


def test_no_more_is_looked_at_than_may_be(monkeypatch):
    """What has arrived is known of the first messages only: their receives stand ready, others later."""
    table = shipped("allreduce/ring.sched", "ring", 5)
    pairs, when = legal_order(table)
    sends = np.flatnonzero(table.op == Op.SEND)[-3:].tolist()

    def known(looks: int) -> list[int]:
        monkeypatch.setattr(causes, "ALL_LOOKS", looks)
        found = causes.Causes(table, pairs.partner, when.posted, when.ready, when.done)
        return [len(found.arrived(send)) for send in sends]

    everything = known(1 << 20)
    assert all(everything) and known(0) == [0, 0, 0]
    some = known(8)
    assert 0 < some[0] <= everything[0] and some[-1] == 0
