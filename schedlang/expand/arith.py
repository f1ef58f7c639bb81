"""Integer arithmetic over many turns, checked before it is computed: NumPy wraps silently, the language never does.

Every function takes ints (uniform) and Cols. Bounds are worked out with Python's integers first; where they show that a
result might leave 64 bits, the turns in which it does are found exactly and raised as :class:`Bad`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from schedlang.expand.values import INT64, Array, Col, bounds, column, fitting

Int = int | Col


class Bad(Exception):
    """The operation has no value: why, and in which turns (None: in all)."""

    def __init__(self, why: str, turns: Array | None = None) -> None:
        super().__init__(why)
        self.why, self.turns = why, turns


OVERFLOW = "the value is beyond signed 64-bit integers"


def _check(value: int) -> int:
    if not INT64[0] <= value <= INT64[1]:
        raise Bad(OVERFLOW)
    return value


def _fits(lo: int, hi: int) -> bool:
    return INT64[0] <= lo and hi <= INT64[1]


def _exact(v: Int) -> Int:
    return column(v.data) if isinstance(v, Col) else v


def _operands(a: Int, b: Int, lo: int, hi: int) -> tuple[Any, Any]:
    """Both operands in a dtype that holds them and every value in lo..hi."""
    (a0, a1), (b0, b1) = bounds(a), bounds(b)
    dtype = fitting(min(lo, a0, b0), max(hi, a1, b1))
    return (a.data.astype(dtype, copy=False) if isinstance(a, Col) else dtype(a),
            b.data.astype(dtype, copy=False) if isinstance(b, Col) else dtype(b))


def _wide(v: Int) -> Any:
    return v.data.astype(np.int64, copy=False) if isinstance(v, Col) else np.int64(v)


Range = Callable[[int, int, int, int], tuple[int, int]]


def _linear(a: Int, b: Int, compute: Callable[[Any, Any], Any], reach: Range,
            overflows: Callable[[Any, Any, Any], Array]) -> Int:
    """add, sub, mul: ``reach`` gives the bounds of the result from those of the operands."""
    if isinstance(a, int) and isinstance(b, int):
        return _check(compute(a, b))
    lo, hi = reach(*bounds(a), *bounds(b))
    if not _fits(lo, hi):
        a, b = _exact(a), _exact(b)
        lo, hi = reach(*bounds(a), *bounds(b))
    x, y = _operands(a, b, lo, hi) if _fits(lo, hi) else (_wide(a), _wide(b))
    with np.errstate(over="ignore"):
        result = compute(x, y)
        if not _fits(lo, hi):
            bad = overflows(x, y, result)
            if bad.any():
                raise Bad(OVERFLOW, bad)
            return column(result)
    return Col(result, lo, hi)


def add(a: Int, b: Int) -> Int:
    return _linear(
        a, b, operator.add, lambda a0, a1, b0, b1: (a0 + b0, a1 + b1), lambda x, y, r: ((x ^ r) & (y ^ r)) < 0
    )


def sub(a: Int, b: Int) -> Int:
    return _linear(
        a, b, operator.sub, lambda a0, a1, b0, b1: (a0 - b1, a1 - b0), lambda x, y, r: ((x ^ y) & (x ^ r)) < 0
    )


def _products(a0: int, a1: int, b0: int, b1: int) -> tuple[int, int]:
    all_ = (a0 * b0, a0 * b1, a1 * b0, a1 * b1)
    return min(all_), max(all_)


def _product_overflows(x: Any, y: Any, _: Any) -> Array:
    near = np.abs(np.asarray(x, np.float64) * np.asarray(y, np.float64))
    bad = np.asarray(near > 2.0**63 * (1 + 1e-9))
    x, y = np.broadcast_to(x, bad.shape), np.broadcast_to(y, bad.shape)
    for i in np.flatnonzero(~bad & (near > 2.0**63 * (1 - 1e-9))):
        bad[i] = not _fits(*(int(x[i]) * int(y[i]),) * 2)
    return bad


def mul(a: Int, b: Int) -> Int:
    return _linear(a, b, operator.mul, _products, _product_overflows)


def neg(a: Int) -> Int:
    return sub(0, a)


def invert(a: Int) -> Int:
    return ~a if isinstance(a, int) else Col(~a.data, ~a.hi, ~a.lo)


def absolute(a: Int) -> Int:
    if isinstance(a, int):
        return _check(abs(a))
    if a.lo >= 0:
        return a
    a = column(a.data) if a.lo == INT64[0] else a
    if a.lo == INT64[0]:
        raise Bad(OVERFLOW, a.data == INT64[0])
    top = max(abs(a.lo), abs(a.hi))
    return Col(np.abs(a.data.astype(fitting(-top, top), copy=False)), 0, top)


def _nonzero(b: Int) -> None:
    lo, hi = bounds(b)
    if lo <= 0 <= hi:
        zero = b.data == 0 if isinstance(b, Col) else None
        if zero is None or zero.any():
            raise Bad("division by zero", zero)


def floordiv(a: Int, b: Int) -> Int:
    _nonzero(b)
    if isinstance(a, int) and isinstance(b, int):
        return _check(a // b)
    (a0, a1), (b0, b1) = bounds(a), bounds(b)
    if a0 == INT64[0] and b0 <= -1 <= b1:
        bad = np.asarray((_wide(a) == INT64[0]) & (_wide(b) == -1))
        if bad.any():
            raise Bad(OVERFLOW, bad)
    if b0 > 0 or b1 < 0:
        quotients = [p // q for p in (a0, a1) for q in (b0, b1)]
        lo, hi = min(quotients), max(quotients)
    else:
        top = max(abs(a0), abs(a1))
        lo, hi = -top, top
    lo, hi = max(lo, INT64[0]), min(hi, INT64[1])
    if b0 == b1 and b0 > 0 and b0 & (b0 - 1) == 0 and isinstance(a, Col):
        return Col(a.data >> (b0.bit_length() - 1), lo, hi)
    x, y = _operands(a, b, lo, hi)
    return Col(x // y, lo, hi)


def mod(a: Int, b: Int) -> Int:
    _nonzero(b)
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    (a0, a1), (b0, b1) = bounds(a), bounds(b)
    if a0 >= 0 and a1 < b0:
        return a
    lo, hi = (0 if b0 > 0 else b0 + 1), (b1 - 1 if b1 > 0 else 0)
    if a0 >= 0 and b0 > 0:
        hi = min(hi, a1)
    if b0 == b1 and b0 > 0 and b0 & (b0 - 1) == 0 and isinstance(a, Col):
        dtype = a.data.dtype if b0 - 1 <= np.iinfo(a.data.dtype).max else np.dtype(np.int64)
        return Col(a.data.astype(dtype, copy=False) & dtype.type(b0 - 1), lo, hi)
    x, y = _operands(a, b, lo, hi)
    if isinstance(b, int) and b > 0 and _fits(a0 - b, a1):
        # faster than NumPy's remainder, and exact: the quotient times b lies between a - b + 1 and a
        x, y = _operands(a, b, a0 - b, hi)
        return Col(x - x // y * y, lo, hi)
    return Col(x % y, lo, hi)


def lshift(a: Int, b: Int) -> Int:
    _not_negative(b)
    if isinstance(a, int) and isinstance(b, int):
        return _check(a << b) if a == 0 or b < 64 else _check(1 << 64)
    (a0, a1), (b0, b1) = bounds(a), bounds(b)
    b0 = max(b0, 0)
    if b1 <= 62:
        lo, hi = min(a0 << b0, a0 << b1), max(a1 << b0, a1 << b1)
        if _fits(lo, hi):
            x, y = _operands(a, b, lo, hi)
            return Col(x << y, lo, hi)
    x, y = _wide(a), _wide(b)
    near = np.minimum(y, 63)
    result = np.asarray(x << near)
    bad = np.asarray(((result >> near) != x) | ((y > 63) & (x != 0)))
    if bad.any():
        raise Bad(OVERFLOW, bad)
    return column(result)


def rshift(a: Int, b: Int) -> Int:
    _not_negative(b)
    if isinstance(a, int) and isinstance(b, int):
        return a >> min(b, 64)
    (a0, a1), (b0, b1) = bounds(a), bounds(b)
    b0, b1 = min(max(b0, 0), 64), min(b1, 64)
    lo, hi = min(a0 >> b0, a0 >> b1), max(a1 >> b0, a1 >> b1)
    x, y = _operands(a, b, lo, hi)
    return Col(x >> np.minimum(y, 31 if x.dtype == np.int32 else 63), lo, hi)


def _not_negative(b: Int) -> None:
    if bounds(b)[0] < 0:
        negative = b.data < 0 if isinstance(b, Col) else None
        if negative is None or negative.any():
            raise Bad("a negative shift", negative)


def power(a: Int, b: Int) -> Int:
    if bounds(b)[0] < 0:
        negative = b.data < 0 if isinstance(b, Col) else None
        if negative is None or negative.any():
            raise Bad("a negative exponent", negative)
    if isinstance(a, int) and isinstance(b, int):
        if abs(a) <= 1:
            return a ** (b if b < 2 else 2 + b % 2)
        return _check(a**b) if b < 64 else _check(1 << 64)
    if isinstance(a, int) and isinstance(b, Col):
        reach = range(min(b.hi, 64) + 1)
        known = [_fits(*(a**k,) * 2) for k in reach]
        known[64:] = [abs(a) <= 1] * len(known[64:])
        exponent = np.minimum(b.data, 64 - (b.data & 1))  # keeps the sign of (-1) ** b
        if not all(known):
            bad = ~np.array(known)[exponent]
            if bad.any():
                raise Bad(OVERFLOW, bad)
        return column(np.array([a**k if known[k] else 0 for k in reach], np.int64)[exponent])
    # few pairs differ in practice: each is worked out once, with Python's integers
    pairs = np.stack(np.broadcast_arrays(_wide(a), _wide(b)), 1)
    unique, inverse = np.unique(pairs, axis=0, return_inverse=True)
    table = np.zeros(len(unique), np.int64)
    bad = np.zeros(len(unique), bool)
    for i, (x, y) in enumerate(unique.tolist()):
        try:
            value = power(x, y)
            assert isinstance(value, int)
            table[i] = value
        except Bad:
            bad[i] = True
    inverse = inverse.ravel()
    if bad.any():
        raise Bad(OVERFLOW, bad[inverse])
    return column(table[inverse])


def _bits(a: Int, b: Int) -> tuple[int, int]:
    (a0, a1), (b0, b1) = bounds(a), bounds(b)
    top = (1 << max(x.bit_length() for x in (a0, a1, b0, b1))) - 1
    return (0 if a0 >= 0 and b0 >= 0 else ~top), top


def bit_and(a: Int, b: Int) -> Int:
    if isinstance(a, int) and isinstance(b, int):
        return a & b
    lo, hi = _bits(a, b)
    if bounds(a)[0] >= 0 or bounds(b)[0] >= 0:
        lo, hi = 0, min(x[1] for x in (bounds(a), bounds(b)) if x[0] >= 0)
    x, y = _operands(a, b, lo, hi)
    return Col(x & y, lo, hi)


def bit_or(a: Int, b: Int) -> Int:
    if isinstance(a, int) and isinstance(b, int):
        return a | b
    lo, hi = _bits(a, b)
    x, y = _operands(a, b, lo, hi)
    return Col(x | y, lo, hi)


def bit_xor(a: Int, b: Int) -> Int:
    if isinstance(a, int) and isinstance(b, int):
        return a ^ b
    lo, hi = _bits(a, b)
    x, y = _operands(a, b, lo, hi)
    return Col(x ^ y, lo, hi)


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def compare(op: str, a: Int, b: Int) -> bool | Col:
    """A comparison of integers; uniform where the bounds decide it."""
    if isinstance(a, int) and isinstance(b, int):
        return bool(_COMPARISONS[op](a, b))
    (a0, a1), (b0, b1) = bounds(a), bounds(b)
    if a1 < b0:
        return op in ("<", "<=", "!=")
    if a0 > b1:
        return op in (">", ">=", "!=")
    if (op == "<=" and a1 <= b0) or (op == ">=" and a0 >= b1):
        return True
    if (op == "<" and a0 >= b1) or (op == ">" and a1 <= b0):
        return False
    x, y = _operands(a, b, 0, 0)
    return Col(_COMPARISONS[op](x, y))


BINARY: dict[str, Callable[[Int, Int], Int]] = {
    "+": add, "-": sub, "*": mul, "//": floordiv, "%": mod, "**": power, "<<": lshift, ">>": rshift,
    "&": bit_and, "|": bit_or, "^": bit_xor}


# ---- built-in functions --------------------------------------------------------------------------------------------


def _positive(a: Int, name: str) -> None:
    if bounds(a)[0] < 1:
        low = a.data < 1 if isinstance(a, Col) else None
        if low is None or low.any():
            raise Bad(f"{name} needs an argument of at least 1", low)


def log2(a: Int) -> Int:
    _positive(a, "log2")
    if isinstance(a, int):
        return a.bit_length() - 1
    result = np.minimum(np.frexp(a.data.astype(np.float64))[1] - 1, 62).astype(np.int64)
    result -= (np.int64(1) << result) > a.data  # rounding to float64 may have carried into the next power
    return Col(result.astype(np.int32), 0, 62)


def ceil_log2(a: Int) -> Int:
    _positive(a, "ceil_log2")
    if isinstance(a, int):
        return (a - 1).bit_length()
    floor = log2(a)
    assert isinstance(floor, Col)
    return Col(floor.data + ((a.data & (a.data - 1)) != 0), 0, 63)


def ceil_div(a: Int, b: Int) -> Int:
    quotient, rest = floordiv(a, b), mod(a, b)
    if isinstance(quotient, int) and isinstance(rest, int):
        return _check(quotient + (rest != 0))
    up = Col((rest.data != 0).astype(np.int32), 0, 1) if isinstance(rest, Col) else int(rest != 0)
    return add(quotient, up)


def gcd(a: Int, b: Int) -> Int:
    if isinstance(a, int) and isinstance(b, int):
        return math.gcd(_check(abs(a)), _check(abs(b)))
    x, y = absolute(a), absolute(b)
    p, q = _operands(x, y, 0, 0)
    return Col(np.gcd(p, q), 0, max(bounds(x)[1], bounds(y)[1]))


def is_pow2(a: Int) -> bool | Col:
    if isinstance(a, int):
        return a > 0 and a & (a - 1) == 0
    return Col((a.data > 0) & ((a.data & (a.data - (a.data > 0))) == 0))


def least(a: Int, b: Int) -> Int:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    (a0, a1), (b0, b1) = bounds(a), bounds(b)
    x, y = _operands(a, b, 0, 0)
    return Col(np.minimum(x, y), min(a0, b0), min(a1, b1))


def greatest(a: Int, b: Int) -> Int:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    (a0, a1), (b0, b1) = bounds(a), bounds(b)
    x, y = _operands(a, b, 0, 0)
    return Col(np.maximum(x, y), max(a0, b0), max(a1, b1))
