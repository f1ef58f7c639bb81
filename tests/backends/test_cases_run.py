"""Every case that is right, executed: as the reference has it, and bit for bit as the interpreter does it."""

import random

import numpy as np
import pytest

from schedlang.backends.numpy import backend
from schedlang.interpret import backend as interpreter
from schedlang.running import reference
from tests.backends.worlds import assert_same_bits, some_inputs, some_layout
from tests.test_cases import CASES, expanded, judge, read_case

RIGHT = [path for path in CASES if not read_case(path).findings]


@pytest.mark.parametrize("path", RIGHT, ids=lambda p: p.stem)
def test_case(path):
    case, rng = read_case(path), random.Random(path.stem)
    assert not [d for d in judge(path, case)[0] if d.code == "SL602"]
    table, _ = expanded(path, case)
    for seed, dtype in enumerate((np.float32, np.int32, np.float32)):
        inputs = some_inputs(table, some_layout(table, rng), dtype, seed)
        outputs = backend.run(table, inputs, op=None)
        assert_same_bits(outputs, interpreter.run(table, inputs, op=None))
        assert reference.compare(table, inputs, outputs).ok
