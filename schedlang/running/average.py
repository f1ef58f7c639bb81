"""Averages: sums, divided once at the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from schedlang.ir.table import Array

AT_A_TIME = 1 << 16
"""Elements of a temporary array."""


def divide(values: Array, divisor: int | Array) -> None:
    """Divide in place by a positive number (or one a row): floats round once, integers truncate toward zero."""
    by: Any = divisor if isinstance(divisor, int) else divisor[:, None]
    if values.dtype.kind == "f":
        np.divide(values, by, out=values)
        return
    wide = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64, copy=False)
    by = np.asarray(by).astype(wide.dtype)
    quotient = wide // by
    if values.dtype.kind == "i":
        quotient += (wide < 0) & (quotient * by != wide)
    values[...] = quotient


def rounded(values: Array, dtype: np.dtype[Any], divisor: Array | None = None) -> Array:
    """``values`` (one-dimensional) in ``dtype``, which holds no more than theirs; first divided by ``divisor`` (int64,
    one for each of as many equal parts as it has entries; None: by nothing). The array itself where that is all.

    Of float16 and bfloat16 the quotient is computed in float32, and rounded once.
    """
    if divisor is None:
        if values.dtype == dtype:
            return values
        with np.errstate(all="ignore"):                     # overflow is a value too
            return values.astype(dtype)
    result = np.empty(values.shape, dtype)
    wide = np.dtype(np.float32) if values.dtype.name in ("float16", "bfloat16") else values.dtype
    each = len(values) // max(1, len(divisor))
    with np.errstate(all="ignore"):
        for k, by in enumerate(divisor.tolist()):
            for start in range(k * each, (k + 1) * each, AT_A_TIME):
                here = slice(start, min(start + AT_A_TIME, (k + 1) * each))
                part = values[here].astype(wide)
                divide(part, by)
                result[here] = part
    return result
