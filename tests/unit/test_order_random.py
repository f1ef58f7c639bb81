"""Random tiny tables: what the proofs about order say is what all interleavings say."""

from collections import Counter
from importlib import import_module
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from schedlang.ir.table import NONE
from schedlang.ops import Op
from schedlang.verify import barrier, deadlock, races
from schedlang.verify.matching import match
from schedlang.verify.sends import Sends
from schedlang.verify.timing import rounds
from schedlang.verify.timing.graph import build
from schedlang.verify.timing.order import order
from tests.tables import allreduce
from tests.unit.order_oracle import Oracle, random_table

MODELS = {"rendezvous": 0, "buffered=1": 1, "buffered=2": 2, "unlimited": None}
TABLES = 200


def codes(diagnostics):
    return {d.code for d in diagnostics}


@pytest.mark.parametrize("model", MODELS)
def test_what_gets_stuck(model):
    random, outcomes = Random(model), Counter()
    sends = Sends.parse(model)
    for _ in range(TABLES):
        table = random_table(random, lost=0.1)
        finals, orders = Oracle(table, MODELS[model]).explore()
        assert len(finals) == 1 and all(len(seen) == 1 for seen in orders.values())  # confluent
        found = match(table, sends)
        assert "SL304" not in codes(found.diagnostics)
        done = order(table, found, sends)
        oracle = Oracle(table, MODELS[model])
        finished = oracle.finished(finals[0])
        assert done.deadlock_free == finished
        posted = [finals[0][0][oracle.step(i)[:2]] > oracle.rows[i]["step"] for i in range(len(table))]
        assert ((done.posted != NONE) == posted).all()
        findings = deadlock.check(table, found, done)
        alone = codes(found.diagnostics) & {"SL301", "SL302"} or _unrecorded(table)
        assert not (finished and findings)
        assert finished or findings or alone  # what is stuck is in a circle, or waits for what does not exist
        outcomes["finished" if finished else "circle" if findings else "alone"] += 1
    assert min(outcomes[k] for k in ("finished", "circle", "alone")) > 5, outcomes


def _unrecorded(table):
    made = {(int(r), int(e)) for r, e in zip(table.rank, table.event, strict=True) if e != NONE}
    return len(made) > int((table.op == Op.RECORD).sum())


@pytest.mark.parametrize("model", MODELS)
def test_a_circle_is_a_circle(model):
    random, seen, sends = Random(model), 0, Sends.parse(model)
    while seen < 40:
        table = random_table(random)
        found = match(table, sends)
        done = order(table, found, sends)
        for finding in deadlock.check(table, found, done):
            seen += 1
            graph = build(table, found, sends.deadlock_depth)
            edges = set(zip(graph.effect.tolist(), graph.cause.tolist(), strict=True))
            circle = finding.witness["circle"]
            assert len(circle) == finding.witness["length"]
            for here, following in zip(circle, [*circle[1:], circle[0]], strict=True):
                assert (here["row"], here["waits_for"]) in edges
                waited = here["waits_for"]
                assert table.rank[waited] == following["rank"]
                assert table.streams[table.stream[waited]] == following["stream"]
                assert table.step[waited] >= following["step"]


def test_more_room_never_harms():
    random, helped = Random(1), 0
    for _ in range(300):
        table = random_table(random)
        found = match(table)
        complete = [build(table, found, depth).complete for depth in (0, 1, 2, 3, 9, None)]
        assert complete == sorted(complete)
        least = deadlock.least_depth(table, found)
        expected = next((n for n in range(12) if build(table, found, n).complete), None)
        assert least == (expected if complete[-1] else None)
        helped += least is not None and least > 0
    assert helped > 5


@pytest.mark.parametrize("model", MODELS)
def test_races(model):
    random, outcomes, sends = Random(model), Counter(), Sends.parse(model)
    for _ in range(TABLES):
        table = random_table(random, statements=7, ranks=2, streams=3, chunks=9)
        found = match(table, sends)
        done = order(table, found, sends)
        oracle = Oracle(table, sends.depth)
        expected = oracle.races()
        findings = races.check(table, done)
        assert bool(findings) == bool(expected)
        for finding in findings:
            w = finding.witness
            i, j = sorted((w["first"], w["second"]))
            buffer = table.buffer_index(w["buffer"])
            # The row named stands for its step: some rows of the two steps race there.
            assert any({oracle.step(a), oracle.step(b)} == {oracle.step(i), oracle.step(j)}
                       and (buffer, w["chunk"]) == (p, c) for a, b, p, c in expected)
        outcomes[bool(findings)] += 1
    assert min(outcomes[False], outcomes[True]) > 20, outcomes


@pytest.mark.parametrize("model", MODELS)
def test_shared_connections(model):
    random, outcomes, sends = Random(model), Counter(), Sends.parse(model)
    for _ in range(TABLES):
        table = random_table(random, statements=random.choice([2, 3, 4]), ranks=2, streams=3, shared_chan=True)
        oracle = Oracle(table, sends.depth)
        finals, orders = oracle.explore()
        found = match(table, sends)
        ambiguous = any(len({seen[:k] for seen in group}) > 1 for group in orders.values() for k in range(1, 9))
        assert ("SL304" in codes(found.diagnostics)) == ambiguous
        if not ambiguous:
            for rows in (next(iter(group)) for group in orders.values()):
                assert [int(found.message[row]) for row in rows] == list(range(len(rows)))
            assert order(table, found, Sends(sends.depth, sends.depth)).complete == oracle.finished(finals[0])
        outcomes[ambiguous] += 1
    assert min(outcomes[False], outcomes[True]) > 20, outcomes


@pytest.mark.parametrize("model", MODELS)
def test_levels_are_a_legal_execution(model):
    random, complete, sends = Random(model), 0, Sends.parse(model)
    for _ in range(TABLES):
        table = random_table(random)
        found = match(table, sends)
        done = order(table, found, sends)
        complete += done.complete
        _is_execution(table, found, done)
    assert complete > 20


def _is_execution(table, found, done):
    rows = np.flatnonzero(done.done != NONE)
    assert (done.posted[rows] <= done.ready[rows]).all() and (done.ready[rows] <= done.done[rows]).all()
    assert (done.done < done.levels).all()
    node = found.lanes.node
    for i in range(len(table)):
        for j in range(len(table)):
            if node[i] == node[j]:
                assert done.posted[i] == done.posted[j] and done.done[i] == done.done[j]
            elif found.lanes.lane[i] == found.lanes.lane[j] and node[i] < node[j] and done.posted[j] != NONE:
                assert done.done[i] < done.posted[j]
    for row in rows.tolist():
        came = found.partner[row]
        if table.op[row] in (Op.RECV, Op.REDUCE_RECV):
            assert done.ready[came] <= done.done[row]
        if table.of[row] != NONE:
            came = found.partner[table.of[row]]
            assert done.ready[came] + (table.of[came] != NONE) <= done.ready[row]
        if table.op[row] == Op.WAIT:
            made = (table.op == Op.RECORD) & (table.event == table.event[row]) & (table.rank == table.rank[row])
            assert done.done[made].max() <= done.done[row]
    assert done.complete == ((done.done != NONE).all())


def test_longest_chain():
    """Against the definition, evaluated by recursion."""
    random, seen = Random(3), 0
    for _ in range(300):
        table = random_table(random)
        found = match(table)
        done = order(table, found)
        got = rounds.critical_path(table, found, done)
        if not build(table, found, None).complete:
            assert got is None
            continue
        seen += 1
        assert got == _rounds(table, found)
    assert seen > 100


def _rounds(table, found):
    oracle = Oracle(table, None)

    def start(step):
        return 0 if step[2] == 0 else end((*step[:2], step[2] - 1))

    def there(send):
        feeding = oracle.rows[send]["of"]
        return start(oracle.step(send)) if feeding < 0 else 1 + max(
            start(oracle.step(send)), there(int(found.partner[feeding])))

    def end(step):
        when = [start(step)]
        for i in oracle.steps[step]:
            row = oracle.rows[i]
            if row["op"] in (Op.RECV, Op.REDUCE_RECV):
                when.append(there(int(found.partner[i])))
            elif row["op"] == Op.WAIT:
                when.append(end(oracle.step(oracle.records[row["rank"], row["event"]])))
        return max(when) + any(oracle.transfer(i) for i in oracle.steps[step])

    return max((end(step) for step in list(oracle.steps)), default=0)


def numbered_table(random, ranks=3, streams=2):
    """A table whose source steps are numbered: pairs and fused chains within a step, each lane's steps in rising
    order."""
    rows, steps = [], Counter()

    def at(rank, stream, number):
        lane = rank, stream
        if latest.get(lane) != number:
            latest[lane], steps[lane] = number, steps[lane] + 1
        return {"rank": rank, "stream": stream, "step": steps[lane] - 1}

    numbers, latest, recorded = [], {}, []
    for number in range(random.randrange(1, 6)):
        if random.random() < 0.3:
            if recorded and random.random() < 0.6:
                rank, event = random.choice(recorded)
                rows.append({"op": "wait", "event": event, **at(rank, random.choice("ab"[:streams]), number)})
            else:
                recorded.append((random.randrange(ranks), f"e{number}"))
                rank, event = recorded[-1]
                rows.append({"op": "record", "event": event, **at(rank, random.choice("ab"[:streams]), number)})
            numbers.append(number)
            continue
        for _ in range(random.randrange(1, 4)):
            where, stream = random.sample(range(ranks), random.randrange(2, ranks + 1)), random.choice("ab"[:streams])
            data, feeding = {"buffer": "data", "chunk": random.randrange(3)}, None
            for r, p in pairwise(where):
                send = {"op": "send", "peer": p, **data, **at(r, stream, number)}
                rows.append(send if feeding is None else {**send, "of": feeding})
                rows.append({"op": random.choice(["recv", "reduce_recv"]), "peer": r, **data, **at(p, stream, number)})
                feeding = len(rows) - 1
                numbers += [number] * 2
    return allreduce(rows, ranks, 3), np.array(numbers, np.int32)


def test_numbers_prove_what_the_graph_finds(monkeypatch):
    """Also where they are wrong: numbers that prove something are never taken on trust."""
    random, outcomes = Random(11), Counter()
    module = import_module("schedlang.verify.timing.order")
    for k in range(600):
        bare, number = numbered_table(random) if k % 2 else (random_table(random), None)
        if number is None:
            number = np.array([random.randrange(6) for _ in range(len(bare))], np.int32)
        elif random.random() < 0.3:
            number[random.randrange(len(number))] += random.choice([-1, 1, 2])
        elif random.random() < 0.2:
            lane = (bare.rank == bare.rank[0]) & (bare.stream == bare.stream[0])
            step = np.where(lane, bare.step[lane].max() - bare.step, bare.step)
            bare = bare.with_columns(step=step)
        table = bare.with_columns(number=number)
        found, plain = match(table), match(bare)
        assert (found.partner == plain.partner).all()
        assert (found.message == plain.message).all()
        done = order(table, found)
        assert done.deadlock_free == build(bare, plain, 0).complete
        assert done.complete == build(bare, plain, None).complete
        outcomes[found.numbered, done.numbered] += 1
        if done.complete:
            _is_execution(table, found, done)
            assert rounds.critical_path(table, found, done) == rounds.critical_path(bare, plain, order(bare, plain))
        assert bool(races.check(table, done)) == bool(races.check(bare, order(bare, plain)))
        monkeypatch.setattr(module, "FEW", 0)
        monkeypatch.setattr(module, "WIDE", 10**6)  # numbers prove, the graph gives the levels
        again = order(table, found)
        assert not again.numbered and again.deadlock_free == done.deadlock_free and again.complete == done.complete
        if again.complete:
            _is_execution(table, found, again)
        monkeypatch.undo()
    assert outcomes[True, True] > 100 and outcomes[False, False] > 100, outcomes


@pytest.mark.parametrize("model", MODELS)
def test_barriers(model):
    random, outcomes, sends = Random(model), Counter(), Sends.parse(model)
    while sum(outcomes.values()) < 150:
        table = random_table(random, statements=7, ranks=2, streams=random.choice([1, 1, 2]), swaps=1, fused=False)
        found = match(table, sends)
        done = order(table, found, sends)
        if not done.complete:
            continue
        oracle = Oracle(table, sends.depth)
        streams = [[s for q, s in oracle.lanes if q == r] for r in range(2)]
        early = 0
        for p in range(2):
            without = [oracle.run((p, y, -1)) for y in streams[p]]
            ended = [[oracle.ended(state, (r, x)) for x in streams[r]] for state in without for r in range(2)]
            early += sum(all(any(ended[2 * y + r][x] for y in range(len(streams[p]))) for x in range(len(streams[r])))
                         for r in range(2))
        findings = barrier.check(table, done)
        if not all(streams):
            assert findings
            continue
        assert sum(f.count for f in findings) == early
        outcomes[bool(findings)] += 1
    assert min(outcomes.values()) > 10, outcomes
