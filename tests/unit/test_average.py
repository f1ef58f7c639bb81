"""Sums divided once, and rounded once."""

import numpy as np
import pytest
from ml_dtypes import bfloat16

from schedlang.running.average import AT_A_TIME, rounded


def test_nothing_to_do_is_no_copy():
    values = np.arange(5.0)
    assert rounded(values, values.dtype) is values


@pytest.mark.parametrize("dtype", [np.float16, bfloat16])
@pytest.mark.parametrize("held", [None, np.float32, np.float64])
def test_halves_round_once(dtype, held):
    values = np.random.default_rng(0).standard_normal(AT_A_TIME + 3).astype(held or dtype)
    wanted = (values.astype(held or np.float32) / 3).astype(dtype)
    found = rounded(values, np.dtype(dtype), np.array([3]))
    assert found.dtype == dtype and found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype,given,wanted", [
    (np.int8, [-7, 7, -128, 127], [-2, 2, -42, 42]), (np.uint8, [7, 255], [2, 85]),
    (np.int64, [-(2**63), 2**63 - 1], [-(2**63) // 3 + 1, (2**63 - 1) // 3]),
    (np.uint64, [2**64 - 1], [(2**64 - 1) // 3]),
])
def test_integers_truncate(dtype, given, wanted):
    assert rounded(np.array(given, dtype), np.dtype(dtype), np.array([3])).tolist() == wanted


def test_a_divisor_for_each_part():
    assert rounded(np.full(6, 12.0), np.dtype(float), np.array([1, 2, 3])).tolist() == [12, 12, 6, 6, 4, 4]
