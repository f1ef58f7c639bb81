"""Every shipped schedule, executed for every size its `verify` line names, bit for bit as the interpreter does it."""

import random
from pathlib import Path

import numpy as np
import pytest

from schedlang.backends.numpy import backend
from schedlang.diagnostics import SchedError
from schedlang.expand import cases, expand, load_program
from schedlang.interpret import backend as interpreter
from schedlang.ir.layout import Layout
from schedlang.ops import COLLECTIVES, REDUCE_OPS
from schedlang.running import dtypes, reference
from tests.backends.worlds import assert_same_bits, some_inputs, some_layout

EXAMPLES = Path(__file__).parents[2] / "examples"
SCHEDULES = [(path, name) for path in sorted(EXAMPLES.rglob("*.sched")) for name in load_program(str(path)).names]


@pytest.mark.parametrize("path,name", SCHEDULES, ids=[f"{p.relative_to(EXAMPLES)}::{n}" for p, n in SCHEDULES])
def test_example(path, name):
    program, rng = load_program(str(path)), random.Random(name)
    ran = 0
    wanted = cases(program, name, ranks=None, params={})
    for case in rng.sample(wanted, min(12, len(wanted))):
        params = dict(case)
        table, findings = expand(program, name, ranks=params.pop("ranks", None), params=params)
        if table is None:
            assert {d.code for d in findings} == {"SL207"}, findings    # a `require` that does not hold for this size
            continue
        for seed in range(3):
            inputs = some_inputs(table, some_layout(table, rng), np.float32, seed)
            outputs = backend.run(table, inputs, op=None)
            assert_same_bits(outputs, interpreter.run(table, inputs, op=None))
            assert reference.compare(table, inputs, outputs).ok
        ran += 1
    assert ran


def operators(collective: str, dtype: dtypes.Dtype) -> list[str | None]:
    """The operators to try with a dtype: every one that is defined for it, or none where nothing is reduced."""
    if not COLLECTIVES[collective].reduces:
        return [None]
    return [op for op in REDUCE_OPS if defined(op, dtype)]


def defined(op: str, dtype: dtypes.Dtype) -> bool:
    try:
        dtypes.require_defined(op, dtype)
    except SchedError:
        return False
    return True


@pytest.mark.parametrize("dtype", dtypes.DTYPES.values(), ids=list(dtypes.DTYPES))
def test_every_dtype(dtype):
    """One schedule, pipelined on two streams, with every dtype and operator."""
    program = load_program(str(EXAMPLES / "allreduce/double_tree.sched"))
    for ranks, k, elements in [(1, 2, 5), (2, 1, 1), (5, 3, 0), (7, 2, 37), (12, 3, 41)]:
        table, findings = expand(program, "double_tree", ranks=ranks, params={"k": k})
        assert table is not None, findings
        for op in operators("allreduce", dtype):
            inputs = some_inputs(table, Layout(table, elements), dtype.numpy, ranks)
            outputs = backend.run(table, inputs, op=op)
            assert_same_bits(outputs, interpreter.run(table, inputs, op=op))
            assert reference.compare(table, inputs, outputs, op=op).ok, (ranks, op)


@pytest.mark.nightly
@pytest.mark.parametrize("path,name", SCHEDULES, ids=[f"{p.relative_to(EXAMPLES)}::{n}" for p, n in SCHEDULES])
def test_product(path, name, capsys):
    """Every size of the `verify` line with every dtype and every operator."""
    program, rng = load_program(str(path)), random.Random(name)
    ran = 0
    for case in cases(program, name, ranks=None, params={}):
        params = dict(case)
        table, _ = expand(program, name, ranks=params.pop("ranks", None), params=params)
        if table is None:
            continue
        for dtype in dtypes.DTYPES.values():
            for op in operators(table.collective.name, dtype):
                inputs = some_inputs(table, some_layout(table, rng), dtype.numpy, ran)
                outputs = backend.run(table, inputs, op=op)
                assert_same_bits(outputs, interpreter.run(table, inputs, op=op))
                assert reference.compare(table, inputs, outputs, op=op).ok, (case, dtype, op)
                ran += 1
    assert ran
    with capsys.disabled():
        print(f" {name}: {ran} runs equal to the interpreter's, bit for bit")
