"""What ``verify`` calls useless (SL607, SL608), against what removing it does: all at once, everything is still proved
and the interpreter still ends with the same values; one by one, nothing else could go."""

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schedlang.interpret import interpret
from schedlang.ir.table import NONE, OpTable
from schedlang.ops import COLLECTIVES, Op
from schedlang.verify import matching, verify
from schedlang.verify.dataflow import judge
from schedlang.verify.removal import without
from schedlang.verify.sends import Sends
from schedlang.verify.steps import steps
from schedlang.verify.timing.order import order
from schedlang.verify.useless import Useless, useless
from schedlang.verify.values.carriers import carriers
from schedlang.verify.values.conditions import conditions
from schedlang.verify.values.walk import Program
from tests.campaign import shipped_tables
from tests.strategies import working_table

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
CODES = {"SL607", "SL608"}


def search(table: OpTable, sends: Sends) -> Useless:
    """What is useless in a table that is proved right."""
    matched = matching.match(table, sends)
    before_after = conditions(table)
    ill = steps(table, matched.lanes, before_after)
    c = carriers(table, matched, order(table, matched, sends), before_after.locations, ill)
    program = Program.of(c)
    repeats = judge(table, program, before_after, agree=COLLECTIVES[table.collective.name].shared).repeats
    alone = int(matched.lanes.per_rank(table.ranks).max()) < 2
    none = np.zeros(len(table), bool)
    return useless(table, program, before_after, repeats, sends, alone=alone) or Useless(none, none, none)


def results(table: OpTable, sends: str) -> tuple[object, ...]:
    """The final values, and the trees they come from, as the interpreter has them."""
    run = interpret(table, "contributions", sends="unlimited" if sends == "default" else sends, order="adversarial")
    assert run.finished and not run.wrong and not run.uninitialised and not run.races
    places = {(int(r), b, c) for r in range(table.ranks) for b, about in enumerate(table.buffers)
              if about.role in ("data", "output") for c in range(about.chunks)}
    wanted = conditions(table)
    needed = {tuple(wanted.locations.where(int(at))[i] for i in (1, 0, 2)) for at in wanted.results}
    return tuple((at, tuple(run.memory[at].tolist())) for at in sorted(places | needed) if at in needed)


def smaller(table: OpTable, rng: random.Random) -> OpTable:
    """The table with a transfer that it does not need: to scratch, or again."""
    rows = {name: list(cells) for name, cells in table.take(np.arange(len(table))).items()}
    moves = np.flatnonzero((table.op == Op.SEND) & (table.of == NONE))
    if not len(moves):
        return table
    send = int(rng.choice(moves.tolist()))
    matched = matching.match(table).partner
    receive = int(matched[send])
    if receive == NONE or (table.of == receive).any():
        return table
    spare = next(i for i, b in enumerate(table.buffers) if b.role == "scratch") if rng.random() < 0.5 else None
    for row in (send, receive):
        lane = (table.rank == table.rank[row]) & (table.stream == table.stream[row])
        later = [i for i in range(len(rows["op"])) if i < len(lane) and lane[i] and table.step[i] > table.step[row]]
        for i in later:
            rows["step"][i] += 1
        for name in rows:
            rows[name].append(rows[name][row])
        rows["step"][-1] = int(table.step[row]) + 1
    if spare is not None:
        rows["op"][-1], rows["buffer"][-1], rows["chunk"][-1] = Op.RECV, spare, 0
        rows["from_buffer"][-1], rows["from_chunk"][-1] = NONE, NONE
    columns = {name: np.array(cells, getattr(table, name).dtype) for name, cells in rows.items()}
    return table.with_columns(**(columns | {"number": None}))


def check(table: OpTable, sends: str, counter: dict[str, int] | None = None, singly: bool = True) -> None:
    model = Sends.parse(sends)
    verdict = verify(table, sends=model)
    said = [d for d in verdict.diagnostics if d.code in CODES]
    if not verdict.ok:
        assert not said
        return
    if table.collective.name == "barrier":
        assert not said
        return
    found = search(table, model)
    # All at once.
    less = without(table, found.gone, found.unstored)
    again = verify(less, sends=model)
    assert again.ok and again.facts["agreement"] == verdict.facts["agreement"], again.diagnostics
    assert results(less, sends) == results(table, sends)
    assert not [d for d in again.diagnostics if d.code == "SL607"]
    if counter is not None and said:
        counter["found"] = counter.get("found", 0) + 1
    if singly and len(less) < 40:
        _one_by_one(less, sends)


def _one_by_one(table: OpTable, sends: str) -> None:
    """Nothing can go from a table without what was found. Where ranks have several streams, of messages that are not
    all needed for their order some may be left; of rows of several chunks some chunks may be useless; what is empty for
    the counts at hand is left alone."""
    model = Sends.parse(sends)
    matched = matching.match(table, model)
    if int(matched.lanes.per_rank(table.ranks).max(initial=0)) > 1 or table.ranks == 1:
        return
    if len(conditions(table).empty):
        return
    before = results(table, sends)
    for row in np.flatnonzero((table.op >= Op.RECV) & (table.op <= Op.REDUCE) & (table.buffer != NONE)).tolist():
        sender = int(matched.partner[row])
        if (table.of == row).any() or table.count[row] > 1 or (sender != NONE and table.of[sender] != NONE):
            continue
        gone = np.zeros(len(table), bool)
        gone[[row] if sender == NONE else [row, sender]] = True
        one = without(table, gone, np.zeros(len(table), bool))
        assert not (verify(one, sends=model).ok and results(one, sends) == before), row


@settings(max_examples=80, **QUIET)
@given(st.randoms(use_true_random=False), st.sampled_from(["default", "rendezvous", "buffered=1"]), st.booleans())
def test_on_schedules_that_are_right(rng, sends, more):
    table = working_table(rng, flawless=True)
    for _ in range(2 if more else 0):
        table = smaller(table, rng)
    check(table, sends)


@pytest.mark.parametrize("seed", range(4))
def test_there_is_something_to_find(seed):
    counter: dict[str, int] = {}
    rng = random.Random(seed)
    for _ in range(25):
        check(smaller(working_table(rng, flawless=True), rng), "default", counter)
    assert counter["found"] > 3


def test_shipped_schedules_need_what_they_do():
    for _, table in shipped_tables(4):
        check(table, "default", singly=False)
