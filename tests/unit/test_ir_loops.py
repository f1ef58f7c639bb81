"""Loop nests: the exact inverse, and the shapes that code generators count on."""


import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedlang.ir import legal
from schedlang.ir.loops import Affine, Lookup, Loop, Modular, Step, lanes, unroll
from schedlang.ir.loops.fold import Leaf, Repeat, fold
from schedlang.ir.loops.formulas import fit
from schedlang.ir.table import COLUMNS, OpTable
from tests.strategies import arbitrary_tables, tables
from tests.tables import allreduce, ring


def same(one: OpTable, other: OpTable) -> bool:
    columns = [(getattr(one, c), getattr(other, c)) for c in COLUMNS]
    return all((a is None and b is None) or (a.dtype == b.dtype and np.array_equal(a, b)) for a, b in columns)


def test_a_ring_is_one_program_of_two_loops():
    nests = lanes(ring(64))
    (program,) = nests.programs
    assert program.ranks.tolist() == list(range(64))
    assert [(loop.count, [type(s) for s in loop.body]) for loop in program.body] == [(63, [Step])] * 2
    assert str(nests).splitlines() == [
        "stream 0 on ranks 0..64:",
        "    for i in 0..63:",
        "        step:",
        "            send data[(rank - i) % 64] to (rank + 1) % 64",
        "            reduce data[(rank - i - 1) % 64] from (rank - 1) % 64",
        "    for i in 0..63:",
        "        step:",
        "            send data[(rank - i + 1) % 64] to (rank + 1) % 64",
        "            recv data[(rank - i) % 64] from (rank - 1) % 64"]
    assert same(unroll(nests), ring(64))


@pytest.mark.parametrize("ranks, channels", [(2, 1), (3, 2), (5, 3), (8, 2)])
def test_rings_come_back(ranks, channels):
    table = ring(ranks, channels)
    assert same(unroll(lanes(table)), table)
    assert len(lanes(table).programs) == channels


def test_an_empty_table():
    table = allreduce([], 2)
    assert lanes(table).programs == () and len(unroll(lanes(table))) == 0


def test_sends_to_all_are_a_loop_within_the_step():
    n = 6
    rows = []
    for r in range(n):
        for p in range(n):
            if p != r:
                rows.append({"op": "send", "rank": r, "peer": p, "buffer": "data", "chunk": p})
                rows.append({"op": "reduce_recv", "rank": p, "peer": r, "buffer": "data", "chunk": p})
    table = allreduce(rows, n, n)
    (program,) = lanes(table).programs
    (step,) = program.body
    assert [(loop.count, loop.body[0].op.name) for loop in step.body] == [(5, "SEND"), (5, "REDUCE_RECV")]
    assert step.body[1].body[0].formulas["chunk"] == Affine(0, (1, 0))
    assert same(unroll(lanes(table)), table)


def test_events_scratch_and_nested_loops():
    """Chunk 10 * i + j copied by slots: one loop of 12 steps is none, two of 3 and 4 are."""
    rows = []
    for i in range(3):
        for j in range(4):
            at = 3 * (4 * i + j)
            rows += [{"op": "copy", "rank": 0, "stream": "a", "step": at, "buffer": "tmp", "chunk": j % 2,
                      "from_buffer": "data", "from_chunk": 10 * i + j},
                     {"op": "record", "rank": 0, "stream": "a", "step": at + 1, "event": "done", "index": [i, j]},
                     {"op": "wait", "rank": 0, "stream": "b", "step": 4 * i + j, "event": "done", "index": [i, j]},
                     {"op": "reduce", "rank": 0, "stream": "a", "step": at + 2, "buffer": "tmp", "chunk": 0,
                      "from_buffer": "tmp", "from_chunk": 1}]
    table = allreduce(rows, 1, 30, scratch=[("tmp", 2)])
    assert legal.check(table) == []
    nests = lanes(table)
    assert same(unroll(nests), table)
    outer = nests.programs[0].body[0]
    inner = outer.body[0]
    assert (outer.count, inner.count) == (3, 4)
    assert inner.body[0].body[0].formulas["from_chunk"] == Affine(0, (0, 10, 1))
    assert inner.body[1].body[0].formulas["index1"] == Affine(0, (0, 0, 1))
    assert "copy data[10 * i + j] into tmp[j % 2]" in str(nests)


def test_fused_rows_come_back():
    rows = []
    for k in range(4):
        rows += [{"op": "send", "rank": 0, "peer": 1, "buffer": "data", "chunk": k, "step": k},
                 {"op": "recv", "rank": 1, "peer": 0, "buffer": "data", "chunk": k, "step": k},
                 {"op": "send", "rank": 1, "peer": 2, "of": 4 * k + 1, "step": k},
                 {"op": "recv", "rank": 2, "peer": 1, "buffer": "data", "chunk": k, "step": k}]
    table = allreduce(rows, 3, 4)
    assert legal.check(table) == []
    nests = lanes(table)
    assert same(unroll(nests), table)
    assert all(isinstance(p.body[0], Loop) for p in nests.programs)
    assert "send what row 1 of the step receives to 2" in str(nests)


def test_recursive_doubling_keeps_its_tables_small():
    n = 16
    rows = [row for k in range(4) for r in range(n) for row in (
        {"op": "send", "rank": r, "peer": r ^ (1 << k), "buffer": "data", "chunk": 0, "step": k},
        {"op": "reduce_recv", "rank": r, "peer": r ^ (1 << k), "buffer": "data", "chunk": 0, "step": k})]
    (program,) = lanes(allreduce(rows, n)).programs
    peer = program.body[0].body[0].body[0].formulas["peer"]
    assert isinstance(peer, Lookup) and peer.values.shape == (16, 4)
    bruck = [{**row, "peer": (row["rank"] + (1 if row["op"] == "send" else -1) * (1 << row["step"])) % n}
             for row in rows]
    (program,) = lanes(allreduce(bruck, n)).programs
    peer = program.body[0].body[0].body[0].formulas["peer"]
    assert isinstance(peer, Modular) and peer.inside.values.ravel().tolist() == [1, 2, 4, 8]


@settings(max_examples=150, deadline=None)
@given(st.one_of(tables(), arbitrary_tables()))
def test_random_tables_come_back(table):
    assert same(unroll(lanes(table)), table)


def test_an_irregular_loop_is_given_up():
    """Splitting it into ever more nested loops would take minutes."""
    chunks = np.random.default_rng(0).permutation(1 << 12).tolist()
    rows = [{"op": "copy", "rank": 0, "step": s, "buffer": "tmp", "chunk": 0, "from_buffer": "data", "from_chunk": c}
            for s, c in enumerate(chunks)]
    table = allreduce(rows, 1, 1 << 12, scratch=[("tmp", 1)])
    nests = lanes(table)
    assert same(unroll(nests), table)


FORMULAS = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 5), st.integers(-9, 9), st.integers(-3, 3),
                     st.integers(-3, 3), st.integers(-3, 3), st.integers(2, 12), st.booleans())


@given(FORMULAS, st.integers(0, 3))
def test_what_fits_is_true_everywhere(given_formula, noise):
    ranks, m, n, offset, a, b, c, modulus, wraps = given_formula
    where = np.ogrid[0:ranks, 0:m, 0:n]
    values = offset + a * where[0] + b * where[1] + c * where[2] + np.zeros((ranks, m, n), np.int64)
    if wraps:
        values = values % modulus + 2
    rng = np.random.default_rng(noise)
    for _ in range(noise):
        values[tuple(rng.integers(0, s) for s in values.shape)] += 1
    formula = fit(values, np.arange(ranks))
    assert np.array_equal(np.broadcast_to(formula(where), values.shape), values)
    if not noise and not wraps:
        assert isinstance(formula, Affine)


def test_modular_formulas_are_found():
    where = np.ogrid[0:7, 0:6, 0:5]
    values = 7 * where[1] + (where[0] - 3 * where[2]) % 7
    assert fit(values, np.arange(7)) == Modular(Affine(0, (0, 7, 0)), Affine(0, (1, 0, -3)), 7)
    assert fit(np.array([3, 1, 4, 1, 5]), np.arange(5)).text(["rank"]) == "[3, 1, 4, 1, 5][rank]"
    assert fit(np.array([3, 1, 4]), np.array([0, 2, 5])).text(["rank"]) == "{0: 3, 2: 1, 5: 4}[rank]"
    evens = fit((np.array([0, 2, 4, 6]) + 2) % 8, np.array([0, 2, 4, 6]))
    assert evens == Modular(Affine(0, (0,)), Affine(2, (1,)), 8)


def unfold(nodes):
    """The positions whose tokens a folded sequence stands for; a repeat's body is that of its first time."""
    out = []
    for node in nodes:
        if isinstance(node, Leaf):
            out.append(node.at)
        elif isinstance(node, Repeat):
            body = unfold(node.body)
            assert len(body) == node.length
            out += body * node.count
    return out


@given(st.lists(st.integers(0, 2), max_size=40))
def test_folding_keeps_the_sequence(tokens):
    assert [tokens[i] for i in unfold(fold(tokens))] == tokens


def test_folding_finds_nested_loops():
    (outer, last) = fold([0, 0, 0, 1, 2, 1, 2] * 5 + [3])
    assert outer.count == 5 and [b.count for b in outer.body] == [3, 2] and last == Leaf(35)
