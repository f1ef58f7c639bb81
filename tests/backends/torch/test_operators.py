"""Operators on tensors that no schedule of a few ranks shows."""

import numpy as np
import pytest
import torch

from schedlang.backends.torch.operators import divide
from schedlang.running.dtypes import named


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("ranks", [1, 3, 127, 128, 200, 255, 256, 70_000])
def test_integers_are_divided_by_more_ranks_than_they_count_to(name, ranks):
    """A divisor beyond the dtype must not wrap round: quotients truncate toward zero as in exact arithmetic."""
    dtype = named(name)
    limits = np.iinfo(dtype.numpy)
    values = [limits.min, limits.max, 0, 1, min(100, limits.max), max(-100, limits.min)]
    array = np.array(values, dtype.numpy)
    divide(torch.from_numpy(array), ranks, dtype)
    assert array.tolist() == [abs(v) // ranks * (1 if v >= 0 else -1) for v in values]
