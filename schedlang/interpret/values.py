"""What values are made of: the reduction operators on NumPy arrays, each result rounded to the arrays' dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from schedlang.ir.table import Array
from schedlang.ops import REDUCE_OPS

Combine = Callable[[Array, Array], Array]

COMBINE: dict[str, Any] = {
    "sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum,
    "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor,
}


def combiner(op: str) -> Combine:
    """``op`` on two arrays of one dtype; the result has that dtype (integers wrap round as the dtype does)."""
    function = COMBINE[op]

    def combine(old: Array, new: Array) -> Array:
        with np.errstate(all="ignore"):  # overflow to infinity is a value like any other
            result: Array = function(old, new)
        return result

    return combine


def finish(op: str, value: Array, terms: int) -> Array:
    """What is done once at the end to the reduction of ``terms`` values: `avg` divides, integers truncating toward
    zero."""
    if not REDUCE_OPS[op].divides:
        return value
    result: Array
    if value.dtype.kind == "u":
        result = value.astype(np.uint64) // np.uint64(terms)
    elif value.dtype.kind == "i":
        wide = value.astype(np.int64)
        result = wide // terms + ((wide < 0) & (wide % terms != 0))  # the floor, and up to zero where that is nearer
    else:
        result = np.divide(value, np.asarray(terms, value.dtype))
    return result.astype(value.dtype)
