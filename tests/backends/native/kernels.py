"""Kernels written by hand as the generator writes them, and worlds of ranks in one process to run them in.

What lanes do is tested on these alone, so that what the generator makes of a schedule has no part in it; for what they
compute see `expected`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from schedlang.backends.cuda.arguments import ArgsStruct, Arguments, Cut, ModeStruct, Sizes
from schedlang.backends.native.compiler import load

CUDA = Path(__file__).parents[3] / "backends" / "cuda"
THREADS, FIBERS = 0, 1
STOPS = ("go", "asked", "timeout", "deadlock", "unreadable")
WAITS = ("nothing", "message", "taken", "event", "barrier")


@dataclass(frozen=True)
class Written:
    """A kernel. ``streams``: the functions, one a program. ``chunks``: that a buffer has. ``configure``: the constants
    that are not those of World."""

    text: str
    streams: tuple[str, ...] = ("main_0",)
    buffers: int = 1
    chunks: Callable[[int], int] = field(default=lambda ranks: ranks)
    messages: Callable[[int], int] = field(default=lambda ranks: 2 * ranks)
    tags: int = 1
    events: int = 0
    queue: int = 64

    def source(self, ranks: int, dtype: str = "float", op: str = "Sum", per_rank: bool = False,
               faults: tuple[str, ...] = ()) -> str:
        """The whole file."""
        head = [f"#define SCHEDLANG_FAULT_{fault}" for fault in faults] + [
            f"#define SCHEDLANG_CALLS {self.text.count('lane.')}",
            f"using T = {dtype};", f"using Op = {op};",
            f"constexpr int RANKS = {ranks}, BUFFERS = {self.buffers}, TAGS = {self.tags}, EVENTS = {self.events};",
            f"constexpr int STREAMS = {len(self.streams)}, MESSAGES = {self.messages(ranks)}, QUEUE = {self.queue};",
            f"constexpr bool PER_RANK = {str(per_rank).lower()};"]
        cases = "".join(f"        case {k}: {name}(lane); break;\n" for k, name in enumerate(self.streams))
        kernel = ('extern "C" __global__ void __launch_bounds__(MOST_THREADS)\n'
                  "schedlang_kernel(const __grid_constant__ Args args) {\n    Lane lane(args);\n"
                  f"    switch (lane.program) {{\n{cases}    }}\n    lane.finish();\n}}\n")
        return "\n".join([(CUDA / "types.cuh").read_text(), *head, (CUDA / "lane.cuh").read_text(), self.text, kernel])


RING = Written("""
__device__ void main_0(Lane& lane) {
    const int rank = lane.rank, to = (rank + 1) % RANKS, from = (rank + RANKS - 1) % RANKS;
    for (int i = 0; i < RANKS - 1; ++i) {
        const int chunk = (rank + 2 * RANKS - i - 1) % RANKS;
        lane.post(to, 0, i);
        for (int p = 0; p < lane.slices(1); ++p)
            lane.take_reduce(from, 0, i, p, {0, chunk}, {0, chunk}, {0, chunk}, 1, chunk);
    }
    for (int i = 0; i < RANKS - 1; ++i) {
        const int chunk = (rank + RANKS - i) % RANKS;
        lane.post(to, 0, RANKS - 1 + i);
        for (int p = 0; p < lane.slices(1); ++p)
            lane.take(from, 0, RANKS - 1 + i, p, {0, chunk}, {0, chunk}, 1, chunk);
    }
}
""")
"""Ring all-reduce of buffer 0."""

ALL_PAIRS = Written("""
__device__ void main_0(Lane& lane) {
    const int rank = lane.rank;
    for (int i = 1; i < RANKS; ++i) lane.post((rank + i) % RANKS, 0, 0);
    for (int p = 0; p < lane.slices(1); ++p)
        for (int i = 0; i < RANKS; ++i)
            if (i != rank) lane.take_reduce(i, 0, 0, p, {0, rank}, {0, rank}, {0, rank}, 1, rank);
    lane.settle(0);
    for (int i = 1; i < RANKS; ++i) lane.post((rank + i) % RANKS, 0, 1);
    for (int p = 0; p < lane.slices(1); ++p)
        for (int i = 1; i < RANKS; ++i) {
            const int peer = (rank + i) % RANKS;
            lane.take(peer, 0, 1, p, {0, peer}, {0, peer}, 1, peer);
        }
}
""")
"""All-reduce of buffer 0 in two steps: each rank r adds up chunk r in the order of ranks after its own."""

ROTATE = Written("""
__device__ void main_0(Lane& lane) {
    const int rank = lane.rank, to = (rank + 1) % RANKS, from = (rank + RANKS - 1) % RANKS;
    for (int i = 0; i < 3; ++i) {
        lane.post(to, 0, i);
        for (int p = 0; p < lane.slices(RANKS); ++p) lane.take(from, 0, i, p, {0, 0}, {1, 0}, RANKS, 0);
        lane.settle(0);
        lane.copy({1, 0}, {0, 0}, RANKS, 0);
    }
}
""", buffers=2)
"""Buffer 0 moves on by three ranks. It is written while only a flag from the reader can tell that it has been read."""

CHAIN = Written("""
__device__ void main_0(Lane& lane) {
    const int rank = lane.rank;
    if (rank == RANKS - 1) lane.post(rank - 1, 0, 0);
    if (rank < RANKS - 1)
        for (int p = 0; p < lane.slices(2); ++p) {
            lane.take_reduce(rank + 1, 0, 0, p, {0, 0}, {0, 0}, {0, 0}, 2, 0);
            if (rank > 0) lane.pass(rank - 1, 0, 0, p, 2);
        }
    lane.settle(0);
    if (rank == 0) lane.post(1, 0, 1);
    if (rank > 0)
        for (int p = 0; p < lane.slices(2); ++p) {
            lane.take(rank - 1, 0, 1, p, {0, 0}, {0, 0}, 2, 0);
            if (rank < RANKS - 1) lane.pass(rank + 1, 0, 1, p, 2);
        }
}
""", chunks=lambda ranks: 2)
"""All-reduce of buffer 0 along a line to rank 0 and back, each slice passed on as soon as it is there."""

STREAMS = Written("""
__device__ void main_0(Lane& lane) {
    const int rank = lane.rank, to = (rank + 1) % RANKS, from = (rank + RANKS - 1) % RANKS;
    for (int i = 0; i < 2; ++i) {
        if (i) lane.wait(1);
        lane.post(to, 0, i);
        for (int p = 0; p < lane.slices(RANKS); ++p) lane.take(from, 0, i, p, {0, 0}, {1, 0}, RANKS, 0);
        lane.settle(0);
        lane.record(2 * i);
    }
}
__device__ void aux_0(Lane& lane) {
    for (int i = 0; i < 2; ++i) {
        lane.wait(2 * i);
        lane.reduce({0, 0}, {1, 0}, RANKS, 0);
        lane.copy({1, 0}, {0, 0}, RANKS, 0);
        lane.record(2 * i + 1);
    }
}
""", streams=("main_0", "aux_0"), buffers=2, events=4)
"""Twice: stream main fetches buffer 0 of the rank before into buffer 1, and stream aux adds that to buffer 0."""


def expected(kernel: Written, values: np.ndarray, add: Callable[..., np.ndarray] = np.add) -> np.ndarray:
    """What buffer 0 of all ranks holds in the end. ``values``: at first; shape (ranks, elements)."""
    ranks = len(values)
    if kernel is ROTATE:
        return np.roll(values, 3, axis=0)
    if kernel is STREAMS:
        for _ in range(2):
            values = add(np.roll(values, 1, axis=0), values)
        return values
    if kernel is CHAIN:
        total = values[-1]
        for rank in reversed(range(ranks - 1)):
            total = add(values[rank], total)
        return np.broadcast_to(total, values.shape)
    starts = Cut(None, values.shape[1], ranks, *divmod(values.shape[1], ranks))
    result = np.empty_like(values)
    for chunk in range(ranks):
        part = slice(starts.start(chunk), starts.start(chunk) + starts.length(chunk))
        if kernel is RING:      # begins behind the chunk's own rank
            total = values[(chunk + 1) % ranks, part]
            for i in range(2, ranks + 1):
                total = add(values[(chunk + i) % ranks, part], total)
        else:
            total = values[chunk, part]
            for peer in range(ranks):
                total = add(total, values[peer, part]) if peer != chunk else total
        result[:, part] = total
    return result


ALL = {"ring": RING, "all_pairs": ALL_PAIRS, "rotate": ROTATE, "chain": CHAIN, "streams": STREAMS}


def aligned(elements: int, dtype: Any, off: int = 0) -> np.ndarray:
    """Zeros that start at a cache line, or ``off`` bytes behind one."""
    size = elements * np.dtype(dtype).itemsize
    memory = np.zeros(size + 128 + off, np.uint8)
    start = -memory.ctypes.data % 128 + off
    return memory[start:start + size].view(dtype)


class World:
    """Ranks in this process: buffers, all alike and of ``elements``, and flags. ``slices``: of the longest chunk.

    ``off``: how many elements buffers lie behind an aligned address, by rank and buffer. Compiled quickly, unless
    ``flags`` are others. ``allocate``: memory for buffers and flags, as `aligned` does.
    """

    def __init__(self, kernel: Written, ranks: int, elements: int, dtype: Any = np.float32, *, blocks: int = 1,
                 slices: int = 1, name: str = "float", op: str = "Sum", faults: tuple[str, ...] = (),
                 flags: tuple[str, ...] = ("-O1",), off: Callable[[int, int], int] = lambda rank, buffer: 0,
                 allocate: Callable[..., np.ndarray] = aligned) -> None:
        self.library = load(kernel.source(ranks, name, op, faults=faults), flags=flags)
        size = np.dtype(dtype).itemsize
        self.buffers = [[allocate(elements, dtype, size * off(rank, b)) for b in range(kernel.buffers)]
                        for rank in range(ranks)]
        self.flags = [allocate(8 * self.library.schedlang_flags() * blocks, np.uint64) for _ in range(ranks)]
        chunks = kernel.chunks(ranks)
        cut = Cut(None, elements, chunks, *divmod(elements, chunks))
        self.lanes = [(rank, program) for rank in range(ranks) for program in range(len(kernel.streams))]
        self.watch = aligned(8 + 8 * len(self.lanes) * blocks, np.int32)
        longest = -(-elements // chunks)
        self.arguments = Arguments(
            Sizes((cut,) * kernel.buffers, cut, False, max(1, -(-longest // slices)), slices),
            buffers=[[b.ctypes.data for b in here] for here in self.buffers], flags=[f.ctypes.data for f in self.flags],
            blocks=blocks, lanes=self.lanes, watch=self.watch.ctypes.data)

    def fill(self, values: np.ndarray) -> None:
        """Buffer 0 of each rank."""
        for here, given in zip(self.buffers, values):
            here[0][:] = given

    def result(self) -> np.ndarray:
        """Buffer 0 of all ranks."""
        return np.stack([here[0] for here in self.buffers])

    def launch(self, kind: int = THREADS, threads: int = 1, *, looks: int = 600, yields: int = 400, delays: int = 0,
               delay: int = 0, seed: int = 0, timeout: float = 20, first: int = 0, lanes: int | None = None) -> int:
        """What schedlang_launch returns. ``first``, ``lanes``: only so many, from that one on."""
        mode = ModeStruct(kind, threads, looks, yields, delays, delay, seed, int(timeout * 1e9))
        struct = ArgsStruct.from_buffer_copy(self.arguments.struct)
        struct.lanes += 2 * ctypes.sizeof(ctypes.c_int) * first
        many = self.arguments.lanes - first if lanes is None else lanes
        return self.library.schedlang_launch(ctypes.byref(struct), many, ctypes.byref(mode))

    @property
    def stop(self) -> str:
        """Why all ended early."""
        return STOPS[self.watch[0]]

    def waits(self) -> list[tuple[str, int, int, int, int]]:
        """What each block says it waits for, lane by lane: kind, peer, tag, message, slice."""
        return [(WAITS[w[0]], *w[1:5]) for w in self.watch[8:].reshape(-1, 8).tolist()]
