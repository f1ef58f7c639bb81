"""The value proofs against an oracle: plain Python multisets and trees, walked source step by source step."""

import warnings
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schedlang.diagnostics import Severity
from schedlang.ir import legal
from schedlang.ir.build import table_from_rows
from schedlang.ir.table import Buffer, Collective, Ensures
from schedlang.verify import dataflow, matching, verify
from schedlang.verify.sends import DEFAULT, Sends
from schedlang.verify.steps import steps
from schedlang.verify.timing.order import order
from schedlang.verify.values.carriers import carriers
from schedlang.verify.values.conditions import conditions
from schedlang.verify.values.walk import Program

SPOILT = Counter(["spoilt"]), ()
"""What comes from something uninitialised: it is reported where it was read, and nothing more is said of it."""

VALUE_CODES = {"SL403", "SL501", "SL502", "SL503", "SL504"}


@dataclass
class World:
    """A random schedule: source steps of paired operations, and what they do, worked out naively."""

    ranks: int
    buffers: list
    collective: Collective
    chunks: int
    rows: list = field(default_factory=list)
    clash: bool = False
    unset: bool = False
    cells: dict = field(default_factory=dict)
    steps: dict = field(default_factory=dict)

    def step(self, actions):
        """One source step: a list of actions, each a list of hops; the first hop reads, later ones pass on."""
        before, writes, rows = dict(self.cells), [], []
        used = set()

        def read(rank, buffer, chunk):
            value = before.get((buffer, rank, chunk))
            if value is None:
                self.unset = True
                return SPOILT
            return value

        def emit(**row):
            used.add(row["rank"])
            rows.append(row | {"step": self.steps.get(row["rank"], 0)})
            return len(self.rows) + len(rows) - 1

        for kind, *what in actions:
            if kind in ("copy", "reduce"):
                rank, (source, a), (target, b), count = what
                emit(op=kind, rank=rank, buffer=target, chunk=b, count=count, from_buffer=source, from_chunk=a)
                values = [read(rank, source, a + k) for k in range(count)]
                writes.append((kind == "reduce", rank, target, b, values))
                continue
            path, (source, a), hops, count = what
            values = [read(path[0], source, a + k) for k in range(count)]
            sent = dict(op="send", rank=path[0], peer=path[1], buffer=source, chunk=a, count=count)
            for at, (adds, place, operand) in enumerate(hops):
                emit(**sent)
                here = path[at + 1]
                row = dict(op="reduce_recv" if adds else "recv", rank=here, peer=path[at], count=count,
                           buffer=None if place is None else place[0], chunk=0 if place is None else place[1])
                if adds:
                    row |= {"from_buffer": operand[0], "from_chunk": operand[1]}
                receive = emit(**row)
                arrived = values
                if adds and (operand != place or at + 1 < len(hops)):
                    values = [plus(read(here, operand[0], operand[1] + k), v) for k, v in enumerate(values)]
                if place is not None:
                    folds = adds and operand == place
                    writes.append((folds, here, *place, arrived if folds else values))
                if at + 1 < len(hops):
                    sent = dict(op="send", rank=here, peer=path[at + 2], of=receive, count=count)
        written = Counter()
        plain = set()
        for adds, rank, buffer, chunk, values in writes:
            for k in range(len(values)):
                written[buffer, rank, chunk + k] += 1
                if not adds:
                    plain.add((buffer, rank, chunk + k))
        self.clash |= any(written[place] > 1 for place in plain)
        for adds, rank, buffer, chunk, values in writes:
            for k, value in enumerate(values):
                place = buffer, rank, chunk + k
                if adds:
                    if self.cells.get(place) is None:
                        self.unset = True
                    value = plus(self.cells.get(place) or SPOILT, value)
                self.cells[place] = value
        self.rows += rows
        for rank in used:
            self.steps[rank] = self.steps.get(rank, 0) + 1

    def table(self):
        return table_from_rows(self.rows, ranks=self.ranks, chunks=self.chunks, collective=self.collective,
                               buffers=self.buffers)


def plus(a, b):
    return a[0] + b[0], tuple(sorted((a[1], b[1]), key=repr))


def start(world):
    """The precondition, in words of its own; gives the postcondition: place -> the contributions it must hold."""
    n, name, chunks = world.ranks, world.collective.name, world.chunks
    m = chunks // n if chunks % n == 0 else 0
    must = {}

    def begins(place, tag):
        world.cells[place] = Counter([tag]), tag

    for r in range(n):
        if name == "allreduce":
            for c in range(chunks):
                begins(("data", r, c), (r, c))
                must["data", r, c] = Counter([(q, c) for q in range(n)])
        elif name == "reduce_scatter":
            for c in range(chunks):
                begins(("input", r, c), (r, c))
            for k in range(m):
                must["output", r, k] = Counter([(q, r * m + k) for q in range(n)])
        elif name == "allgather":
            for k in range(m):
                begins(("input", r, k), (r, k))
                for q in range(n):
                    must["output", q, r * m + k] = Counter([(r, k)])
        elif name == "alltoall":
            for d in range(n):
                for k in range(m):
                    begins(("input", r, d * m + k), (r, d * m + k))
                    must["output", d, r * m + k] = Counter([(r, d * m + k)])
        elif name == "custom":
            for c in range(chunks):
                begins(("input", r, c), (r, c))
    return must


@st.composite
def worlds(draw):
    n = draw(st.integers(2, 4))
    name = draw(st.sampled_from(["allreduce", "allreduce", "reduce_scatter", "allgather", "alltoall", "custom"]))
    m = draw(st.integers(1, 2))
    chunks = draw(st.integers(1, 3)) if name in ("allreduce", "custom") else n * m
    if name == "allreduce":
        buffers = [Buffer("data", chunks, role="data")]
    elif name == "custom":
        buffers = [Buffer("input", chunks, role="input"), Buffer("output", chunks, role="output")]
    else:
        sizes = {"reduce_scatter": (chunks, m), "allgather": (m, chunks), "alltoall": (chunks, chunks)}[name]
        buffers = [Buffer("input", sizes[0], role="input"), Buffer("output", sizes[1], role="output")]
    buffers.append(Buffer("tmp", draw(st.integers(1, 3))))
    op = "sum" if name in ("allreduce", "reduce_scatter", "custom") else None
    world = World(n, buffers, Collective(name, op, inplace=name == "allreduce"), chunks)
    must = start(world)
    size = {b.name: b.chunks for b in buffers}
    reduces = op is not None and draw(st.booleans())
    scratch = draw(st.booleans())

    def place(count):
        fitting = [b for b in size if size[b] >= count and (scratch or b != "tmp")]
        buffer = draw(st.sampled_from(fitting))
        return buffer, draw(st.integers(0, size[buffer] - count))

    for _ in range(draw(st.integers(0, 6))):
        actions = []
        for _ in range(draw(st.integers(1, 4))):
            count = draw(st.integers(1, min(2, chunks, max(size.values()))))
            if not [b for b in size if size[b] >= count and (scratch or b != "tmp")]:
                count = 1
            if draw(st.integers(0, 3)) == 0:
                kind = draw(st.sampled_from(["copy", "reduce"])) if reduces else "copy"
                actions.append((kind, draw(st.integers(0, n - 1)), place(count), place(count), count))
                continue
            path = [draw(st.integers(0, n - 1))]
            hops = []
            for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
                path.append(draw(st.integers(0, n - 2)))
                path[-1] += path[-1] >= path[-2]
                adds = reduces and draw(st.booleans())
                to = place(count)
                operand = to if draw(st.booleans()) else place(count)
                last = draw(st.integers(0, 4)) == 0
                hops.append((adds, None if last else to, operand if adds else None))
            actions.append(("send", path, place(count), hops, count))
        world.step(actions)
    if name == "custom":
        for r in range(n):
            if draw(st.booleans()):
                source = st.tuples(st.integers(0, n - 1), st.integers(0, chunks - 1))
                picked = draw(st.sets(source, min_size=1, max_size=3))
                must["output", r, 0] = Counter(sorted(picked))
            elif (held := world.cells.get(("output", r, 0), SPOILT)[0]) and "spoilt" not in held:
                must["output", r, 0] = Counter(set(held))
        results = sorted(must)
        sources = [sorted(must[p]) for p in results]
        flat = [s for each in sources for s in each]
        index = {b.name: i for i, b in enumerate(buffers)}
        world.collective = Collective("custom", "sum", ensures=Ensures(
            np.array([index[b] for b, _, _ in results], np.int64), np.array([r for _, r, _ in results], np.int64),
            np.array([c for _, _, c in results], np.int64), np.cumsum([0, *map(len, sources)]),
            np.zeros(len(flat), np.int64), np.array([r for r, _ in flat], np.int64),
            np.array([c for _, c in flat], np.int64)))
    return world, must


def judged(table, method, seed=1, sends=DEFAULT):
    matched = matching.match(table, sends)
    found = order(table, matched, sends)
    before_after = conditions(table)
    c = carriers(table, matched, found, before_after.locations, steps(table, matched.lanes, before_after))
    agree = table.collective.name == "allreduce"
    return dataflow.judge(table, Program.of(c), before_after, agree=agree, method=method, seed=seed)


def expectation(world, must):
    codes = set()
    for place, want in must.items():
        value = world.cells.get(place)
        if value is None:
            codes.add("SL504")
        elif value[0] != want and "spoilt" not in value[0]:
            held = value[0]
            codes.add("SL503" if set(held) - set(want) else "SL502" if max(held.values()) > 1 else "SL501")
    return codes


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(worlds(), st.booleans(), st.sampled_from(["default", "rendezvous", "buffered=1", "unlimited"]))
def test_like_multisets(drawn, numbered, model):
    world, must = drawn
    table = world.table()
    assert legal.check(table) == []
    if numbered and len(table):
        table = table.with_columns(number=_numbers(table, world))
    sends = Sends.parse(model)
    matched = matching.match(table, sends)
    if matched.diagnostics or not order(table, matched, sends).complete:
        return
    verdict = verify(table, sends=sends)
    assert ("SL402" in {d.code for d in verdict.diagnostics}) == world.clash
    if world.clash or any(d.code == "SL401" for d in verdict.diagnostics):
        return
    want = expectation(world, must)
    single = all(op not in ("reduce", "reduce_recv") for op in (row["op"] for row in world.rows))
    for method in (None, "sets", "fingerprints", *(["names"] if single else [])):
        values = judged(table, method, sends=sends)
        assert bool(values.uninitialised) == world.unset, method
        codes = {d.code for d in values.wrong}
        # Fingerprints do not say what is wrong with each result, so of equal lines in the source one is explained.
        assert codes == want or (values.method == "fingerprints" and codes and codes < want), method
        assert (values.doubt > 0) == (values.method == "fingerprints" and len(must) > 0)
    if not world.unset and not want and table.collective.name == "allreduce":
        trees = [{world.cells["data", r, c][1] for r in range(world.ranks)} for c in range(world.chunks)]
        assert (judged(table, None).agreement.diagnostic is None) == all(len(t) == 1 for t in trees)
    if not world.unset and not want:
        assert {d.code for d in verdict.diagnostics if d.severity == Severity.ERROR} <= {"SL305"}
    else:
        assert not verdict.ok
        assert VALUE_CODES & {d.code for d in verdict.diagnostics}


def _numbers(table, world):
    """The source steps: rows were made source step by source step, and each starts where a rank's step does."""
    numbers, number, seen = [], 0, {}
    for rank, step in zip(table.rank.tolist(), table.step.tolist(), strict=True):
        if rank in seen and seen[rank] != step:
            number, seen = number + 1, {}
        seen[rank] = step
        numbers.append(number)
    return np.array(numbers, np.int32)


@pytest.mark.parametrize("method", [None, "sets", "fingerprints"])
def test_random_elements_differ_from_run_to_run(method):
    from tests.tables import ring

    assert judged(ring(4), method, seed=None).wrong == ()


def row(op, rank, step, **more):
    return {"op": op, "rank": rank, "stream": "main", "step": step, "buffer": "data", "chunk": 0, "count": 1, **more}


@pytest.mark.parametrize("method", ["sets", "fingerprints"])
@pytest.mark.parametrize("doublings", [1, 61, 62, 64, 122, 1100])
def test_counts_saturate(doublings, method):
    """What is doubled 61 times is what it was modulo 2^61 - 1, after 64 times a 64-bit count is 0 again, after 1,024
    times a float is infinite: none of these may pass, or say anything else than that."""
    rows = [row("send", 0, 0, peer=1), row("reduce_recv", 1, 0, peer=0),
            *(row("reduce", 1, step, from_buffer="data", from_chunk=0) for step in range(1, doublings + 1)),
            row("send", 1, doublings + 1, peer=0), row("recv", 0, 1, peer=1)]
    table = table_from_rows(rows, ranks=2, chunks=1, collective=Collective("allreduce", "sum"),
                            buffers=[Buffer("data", 1, role="data")])
    assert not legal.check(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = judged(table, method)
    assert [d.code for d in found.wrong] == ["SL502"] and not found.uninitialised
    assert found.wrong[0].witness["twice_count"] == 2


@pytest.mark.parametrize("method", ["sets", "fingerprints"])
def test_a_witness_lists_so_many_contributions(method):
    ranks = 200
    rows = [one for r in range(1, ranks - 1)    # the last rank's is missing
            for one in (row("send", r, 0, peer=0), row("reduce_recv", 0, r - 1, peer=r))]
    table = table_from_rows(rows, ranks=ranks, chunks=1, collective=Collective("reduce", "sum", root=0),
                            buffers=[Buffer("data", 1, role="data")])
    found, = judged(table, method).wrong
    assert found.code == "SL501" and len(found.witness["should"]) == len(found.witness["holds"]) == 64
    assert (found.witness["should_count"], found.witness["holds_count"], found.witness["twice_count"]) == (200, 199, 0)
