"""Every operator on every type does what NumPy and ml_dtypes do, bit for bit, also where a processor has no halves."""

import ctypes

import numpy as np
import pytest
from ml_dtypes import finfo

from schedlang.backends.cuda.head import TYPES
from schedlang.backends.native.compiler import load
from schedlang.running.dtypes import DTYPES
from tests.backends.native.kernels import Written

NOTHING = Written("__device__ void main_0(Lane& lane) {}")

COMBINE = """
extern "C" void combine_OP(T* into, const T* own, const T* from, long n) { combine<OP>(into, own, from, n); }
"""

CONVERT = """
extern "C" void widen(const unsigned short* from, float* to, long n) {
    for (long i = 0; i < n; ++i) {
        T value;
        value.bits = from[i];
        to[i] = value;
    }
}
extern "C" void narrow(const float* from, unsigned short* to, long n) {
    for (long i = 0; i < n; ++i) to[i] = T(from[i]).bits;
}
"""

PLAIN = ("-U__F16C__",)
"""As on a processor that converts no halves."""

FLOATS = ("sum", "prod", "min", "max")
BITS = ("band", "bor", "bxor")
FUNCTIONS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum, "band": np.bitwise_and,
             "bor": np.bitwise_or, "bxor": np.bitwise_xor}
HALVES = ("float16", "bfloat16")
BUILDS = [*((name, flags) for name in HALVES for flags in ((), PLAIN)), *((n, ()) for n in DTYPES if n not in HALVES)]
OPS = {d.name: FLOATS if d.kind == "f" else ("min", "max", *BITS) if d.kind == "b" else (*FLOATS, *BITS)
       for d in DTYPES.values()}


def operands(dtype) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of what is special among the values of a dtype, all with all, and of any bits."""
    if dtype.kind == "f":
        tiny, top = float(finfo(dtype.numpy).smallest_subnormal), dtype.largest
        special = [0, -0.0, 1, -1, 1.5, tiny, -tiny, 3 * tiny, top, -top, np.inf, -np.inf, np.nan, 2.0 ** -12, 2049]
    elif dtype.kind == "b":
        special = [False, True]
    else:
        info = np.iinfo(dtype.numpy)
        special = [0, 1, 2, 3, info.min, info.max, info.max // 2 + 1, info.max // 3]
    pairs = np.array([(a, b) for a in special for b in special], dtype.numpy)
    bits = np.random.default_rng(0).integers(0, 256, 2 * 5003 * dtype.numpy.itemsize, np.uint8)
    rest = (bits & 1).view(np.bool_) if dtype.kind == "b" else bits.view(dtype.numpy)
    return np.concatenate([pairs[:, 0], rest[:5003]]), np.concatenate([pairs[:, 1], rest[5003:]])


def wanted(op: str, dtype, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """As the NumPy back end has it, which holds halves in float32."""
    with np.errstate(all="ignore"):
        if dtype.name == "float16":
            return FUNCTIONS[op](a.astype(np.float32), b.astype(np.float32)).astype(np.float16)
        return FUNCTIONS[op](a, b)


def library(name: str, flags: tuple[str, ...]) -> ctypes.CDLL:
    """What combines values of a dtype and, of halves, converts them; on a CPU, lanes do it with the same functions."""
    text = NOTHING.source(1, TYPES[name])
    text += "".join(COMBINE.replace("OP", op.capitalize()) for op in OPS[name])
    return load(text + CONVERT * (name in HALVES), flags=flags)


def call(function, *arrays: np.ndarray) -> None:
    function(*(ctypes.c_void_p(array.ctypes.data) for array in arrays), ctypes.c_long(len(arrays[0])))


def not_numbers(values: np.ndarray) -> np.ndarray:
    """Where there is NaN (whose bits are the processor's affair)."""
    with np.errstate(invalid="ignore"):
        wide = values.astype(np.float64)
    return wide != wide


def bits(values: np.ndarray) -> np.ndarray:
    return values.view(f"u{values.itemsize}")


@pytest.mark.parametrize("name, flags", BUILDS)
def test_operators(name, flags):
    dtype, made = DTYPES[name], library(name, flags)
    a, b = operands(dtype)
    for op in OPS[name]:
        elsewhere, in_place, right = np.empty_like(a), a.copy(), wanted(op, dtype, a, b)
        call(made[f"combine_{op.capitalize()}"], elsewhere, a, b)
        call(made[f"combine_{op.capitalize()}"], in_place, in_place, b)
        nan = not_numbers(right)
        for got in (elsewhere, in_place):
            assert np.array_equal(not_numbers(got), nan), op
            wrong = np.flatnonzero((bits(got) != bits(right)) & ~nan)[:3]
            assert not len(wrong), (op, a[wrong], b[wrong], got[wrong], right[wrong])


@pytest.mark.parametrize("name, flags", BUILDS[:4])
def test_conversions(name, flags):
    """All halves to float; to halves all floats that lie on, near and between them."""
    dtype = DTYPES[name].numpy
    made = library(name, flags)
    every = np.arange(1 << 16, dtype=np.uint16)
    wide = np.empty(1 << 16, np.float32)
    call(made.widen, every, wide)
    right = every.view(dtype).astype(np.float32)
    number = ~np.isnan(right)
    assert np.array_equal(np.isnan(wide), ~number)
    assert np.array_equal(wide.view(np.uint32)[number], right.view(np.uint32)[number])
    base = np.sort(right[number].view(np.uint32).astype(np.int64))
    step = 1 << (13 if name == "float16" else 16)
    near = (base[:, None] + np.array([-1, 0, 1, step // 2 - 1, step // 2, step // 2 + 1, step - 1])).ravel()
    some = np.random.default_rng(1).integers(0, 1 << 32, 100_000)
    floats = (np.concatenate([near, some]) & 0xffffffff).astype(np.uint32).view(np.float32)
    halves = np.empty(len(floats), np.uint16)
    call(made.narrow, floats, halves)
    with np.errstate(all="ignore"):
        right = floats.astype(dtype)
    number = ~np.isnan(right)
    assert np.array_equal(np.isnan(halves.view(dtype)), ~number)
    assert np.array_equal(halves[number], right.view(np.uint16)[number])
