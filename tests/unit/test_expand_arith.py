"""Arithmetic over many turns equals Python's, and what is beyond 64 bits is found, in exactly the turns where it is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedlang.expand import arith
from schedlang.expand.values import INT64, Col, column
from schedlang.syntax import tree as t
from tests.scalar_expand import Bad as ScalarBad
from tests.scalar_expand import binary, call

EDGES = [
    0,
    1,
    -1,
    2,
    3,
    7,
    31,
    32,
    62,
    63,
    64,
    65,
    2**31 - 1,
    2**31,
    -(2**31),
    -(2**31) - 1,
    2**32,
    3037000499,
    3037000500,
    2**62,
    -(2**62),
    2**63 - 1,
    -(2**63),
    -(2**63) + 1,
]
numbers = st.one_of(st.sampled_from(EDGES), st.integers(-10, 10), st.integers(*INT64))
columns = st.lists(numbers, min_size=2, max_size=6)


def as_column(values, data):
    """A column of the values, with bounds that are exact or wider, in the dtype the bounds ask for."""
    lo, hi = min(values), max(values)
    if data.draw(st.booleans()):
        lo, hi = (
            max(INT64[0], lo - data.draw(st.integers(0, 2**63))),
            min(INT64[1], hi + data.draw(st.integers(0, 2**63))),
        )
    dtype = np.int32 if lo >= -(2**31) and hi < 2**31 else np.int64
    return Col(np.array(values, dtype), lo, hi)


def expected(scalar, rows):
    """The result of each turn, and whether it has none."""
    found = []
    for row in rows:
        try:
            found.append(scalar(*row))
        except ScalarBad:
            found.append(None)
    return found


def agrees(compute, scalar, operands, rows):
    wanted = expected(scalar, rows)
    bad = [w is None for w in wanted]
    if any(bad):
        with pytest.raises(arith.Bad) as why:
            compute(*operands)
        turns = why.value.turns
        # several reasons are looked for one after the other: what is found is wrong, but need not be all that is
        assert turns is None or (turns.any() and not (turns & ~np.array(bad)).any())
        if turns is None:
            assert all(bad) or all(isinstance(o, int) for o in operands[1:])
        return
    got = compute(*operands)
    if isinstance(got, Col):
        assert got.data.tolist() == wanted
        if got.data.dtype != bool:
            assert got.lo <= min(wanted) and max(wanted) <= got.hi
    else:
        assert all(w == got for w in wanted)


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(sorted(arith.BINARY)), columns, st.data())
def test_operators(op, left, data):
    shape = data.draw(st.sampled_from(["both", "left", "right"]))
    right = data.draw(st.lists(numbers, min_size=len(left), max_size=len(left)))
    if shape == "left":
        right = right[:1] * len(left)
    if shape == "right":
        left = left[:1] * len(right)
    a = left[0] if shape == "right" else as_column(left, data)
    b = right[0] if shape == "left" else as_column(right, data)
    agrees(arith.BINARY[op], lambda x, y: binary(op, x, y), (a, b), list(zip(left, right)))


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), columns, st.data())
def test_comparisons(op, left, data):
    right = data.draw(st.lists(numbers, min_size=len(left), max_size=len(left)))
    python = {"==": int.__eq__, "!=": int.__ne__, "<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__}[
        op
    ]
    agrees(
        lambda a, b: arith.compare(op, a, b),
        python,
        (as_column(left, data), as_column(right, data)),
        list(zip(left, right)),
    )
    agrees(
        lambda a, b: arith.compare(op, a, b), python, (as_column(left, data), right[0]), [(x, right[0]) for x in left]
    )


FUNCTIONS = {"abs": arith.absolute, "log2": arith.log2, "ceil_log2": arith.ceil_log2, "is_pow2": arith.is_pow2,
             "ceil_div": arith.ceil_div, "gcd": arith.gcd, "min": arith.least, "max": arith.greatest}


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(sorted(FUNCTIONS)), columns, st.data())
def test_functions(name, left, data):
    right = data.draw(st.lists(numbers, min_size=len(left), max_size=len(left)))
    two = name in ("ceil_div", "gcd", "min", "max")
    rows = list(zip(left, right)) if two else [(x,) for x in left]
    operands = (as_column(left, data), as_column(right, data)) if two else (as_column(left, data),)

    def scalar(*row):
        return call(t.Call(None, name, row), list(row), None)

    agrees(FUNCTIONS[name], scalar, operands, rows)


@pytest.mark.parametrize("op", sorted(arith.BINARY))
def test_uniform_operators_at_the_edges(op):
    for a in EDGES:
        for b in EDGES:
            agrees(arith.BINARY[op], lambda x, y: binary(op, x, y), (a, b), [(a, b)])


def test_overflow_names_the_turn():
    with pytest.raises(arith.Bad) as why:
        arith.mul(column(np.array([1, 2**40, 3])), column(np.array([5, 2**40, 7])))
    assert why.value.turns.tolist() == [False, True, False]
