"""What a block of a GPU moves, thread by thread: by 16 bytes where addresses allow, and no element too many or too few.

The part of `lane.cuh` that is for GPUs is compiled for this processor; its threads, which do not meet in it, come one
after another.
"""

import ctypes
import itertools

import numpy as np
import pytest

from schedlang.backends.cuda.head import TYPES
from schedlang.backends.native.compiler import load
from schedlang.running.dtypes import DTYPES
from tests.backends.native.kernels import CUDA

BLOCK = """
template <class Operation>
static void block(T* into, const T* own, const T* from, long long n, int threads) {
    Here state = {};
    ::here = &state;
    state.threads.x = threads;
    for (int thread = 0; thread < threads; ++thread) {
        state.thread.x = thread;
        move<Operation>(into, own, from, n);
    }
}
extern "C" void copy(T* into, const T* own, const T* from, long long n, int threads) {
    block<Copy>(into, own, from, n, threads);
}
extern "C" void add(T* into, const T* own, const T* from, long long n, int threads) {
    block<Sum>(into, own, from, n, threads);
}
"""


def library(name: str) -> ctypes.CDLL:
    lane = (CUDA / "lane.cuh").read_text()
    copy = lane[lane.index("struct Copy {"):lane.index("#ifdef SCHEDLANG_CPU\n#include \"lane.h\"")]
    packs = lane[lane.index("struct alignas(16) Pack {"):]
    packs = packs[:packs.index("#endif")]
    own = "#define __isGlobal(address) true\n#define __builtin_assume(what) ((void)(what))\n"
    return load("\n".join([own, (CUDA / "types.cuh").read_text(), f"using T = {TYPES[name]};", copy, packs, BLOCK]))


@pytest.mark.parametrize("name", ["float32", "float16", "int8", "float64"])
def test_every_alignment(name):
    dtype, made = DTYPES[name].numpy, library(name)
    size, most = dtype.itemsize, 16 // dtype.itemsize
    rng = np.random.default_rng(0)
    lengths = [*range(2 * most + 2), 5 * most + 1, 16 * 3 * most + 2 * most + 1]     # with and without all at once
    offsets = [(0, 0, 0), (1, 1, 1), (most - 1,) * 3, (0, 1, 0), (1, 0, 0), (0, 0, 1)]
    for n, (a, b, c), threads in itertools.product(lengths, offsets, (1, 3)):
        memory = [np.zeros(size * (n + 48), np.uint8) for _ in range(3)]
        starts = [-m.ctypes.data % 16 + 16 + size * off for m, off in zip(memory, (a, b, c))]
        into, own, given = (m[start:start + size * n].view(dtype) for m, start in zip(memory, starts))
        own[:], given[:] = rng.integers(1, 50, n), rng.integers(1, 50, n)
        for function, wanted in (("copy", given.copy()), ("add", own + given)):
            made[function](*(ctypes.c_void_p(x.ctypes.data) for x in (into, own, given)), ctypes.c_longlong(n), threads)
            assert np.array_equal(into, wanted), (n, a, b, c, threads)
        in_place = own + given
        made.add(*(ctypes.c_void_p(x.ctypes.data) for x in (own, own, given)), ctypes.c_longlong(n), threads)
        assert np.array_equal(own, in_place)
        for array, start, whole in zip((into, own, given), starts, memory):
            array[:] = 0
            assert not whole.any(), (n, a, b, c, threads, start)
