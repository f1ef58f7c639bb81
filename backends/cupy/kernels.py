"""Mode ``kernel``: one launch on each GPU, whose lanes wait for each other by flags."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from schedlang.backends.cuda import Kernel, kernel
from schedlang.backends.cuda.arguments import FLAG_BYTES, ArgsStruct, Cut, CutStruct, Sizes, sizes
from schedlang.backends.cupy.loaded import Function, load
from schedlang.backends.cupy.machine import HOST, Machine, Memory, clear, copy, trouble
from schedlang.backends.native.launching import Stop, Wait, Watch, failure, waiting, watch_words
from schedlang.diagnostics import SchedError, error
from schedlang.ir.layout import Layout
from schedlang.ir.table import OpTable
from schedlang.running.dtypes import Dtype

SHARE_BYTES = 16 << 10
"""What a block should have of a chunk, at least: with less, blocks only cost time."""

SLICE_SHARE_BYTES = 64 << 10
"""What a block takes of a chunk at a time."""

MOST_BLOCKS = 32
"""Of a lane, unless somebody says otherwise."""

GRACE = 10.0
"""Seconds in which a kernel that is told to stop does so."""

_ONE_AT_A_TIME = threading.Lock()
"""Two kernels at once could each have some of the GPUs, and wait for the others."""

_SPIN = 2e-3
"""Seconds in which the host looks for the end without a pause."""


@dataclass(frozen=True)
class Program:
    """What is known of lanes that wait, to those who tell it (``launching.waiting``)."""

    kernel: Kernel

    @property
    def table(self) -> OpTable:
        """What the kernel executes: the normal form."""
        table: OpTable = self.kernel.normal.table
        return table


class Kernels:
    """A schedule's kernel on all GPUs of a machine, with its flags and watches. One launch at a time."""

    def __init__(self, machine: Machine, table: OpTable, dtype: Dtype, op: str | None, blocks: int | None,
                 streams: Mapping[int, Any]) -> None:
        """``blocks`` of each lane; None: by the size. ``streams``: of each GPU, the one that kernels are launched on.

        Raises SchedError: what the generator raises, SL804 where GPUs do not reach each other's memory, SL811 where
        lanes cannot all be there at once."""
        self.program = Program(kernel(table, dtype=dtype, op=op))
        self.normal = self.program.kernel.normal
        self._machine, self._streams, self._blocks = machine, streams, blocks
        _require_reach(machine, self.normal.table)
        self._lanes: dict[int, list[tuple[int, int]]] = {device: [] for device in machine.devices}
        for rank, number in self.program.kernel.lanes.tolist():
            self._lanes[machine.of[rank]].append((rank, number))
        self._lanes = {device: lanes for device, lanes in self._lanes.items() if lanes}
        self._functions = load(self.program.kernel.text, "schedlang_kernel", self._lanes)
        self._most = _most_blocks(self._functions, self._lanes, blocks, table.name)
        size = self.program.kernel.cells * self._most * FLAG_BYTES
        self._flags = [Memory(device, size) for device in machine.of]
        self._watches = {device: Memory(HOST, 4 * watch_words(len(lanes), self._most))
                         for device, lanes in self._lanes.items()}
        self.forget()

    def forget(self) -> None:
        """All flags as at first: before the first launch, and after one that did not come to its end."""
        for flags in self._flags:
            clear(flags, self._streams[flags.device])
        for stream in self._streams.values():
            stream.synchronize()

    def arguments(self, layout: Layout, addresses: Sequence[Sequence[int]], itemsize: int,
                  slice_bytes: int | None) -> Launch:
        """What the kernel is told on each GPU. ``layout``: of the normal form; ``addresses``: of buffers by rank."""
        blocks = self._blocks or max(1, min(self._most, -(-layout.part * itemsize // SHARE_BYTES)))
        return Launch(self, sizes(layout, itemsize, slice_bytes or blocks * SLICE_SHARE_BYTES), addresses, blocks)

    def start(self, prepared: Launch) -> None:
        """Launch it on all GPUs, later than what was launched before. Whoever calls this looks for the end himself."""
        for device, argument in prepared.arguments.items():
            blocks = len(self._lanes[device]) * prepared.blocks
            self._functions[device].launch(blocks, argument, self._streams[device], together=True)

    def launch(self, prepared: Launch, timeout: float) -> float:
        """Run it once; the seconds that it took. Raises SchedError: SL813."""
        from cupy.cuda import driver, runtime

        watches = {device: Watch(memory.array().view(np.int32)) for device, memory in self._watches.items()}
        with _ONE_AT_A_TIME:
            for watch in watches.values():
                watch.clear()
            begun, ended, stopped = time.perf_counter(), False, False
            try:
                self.start(prepared)
                ended = self._over(begun + timeout, begun)
            except (driver.CUDADriverError, runtime.CUDARuntimeError) as cause:
                raise trouble(cause, "running a schedule") from None
            finally:                                        # also where somebody interrupts
                if not ended:
                    for watch in watches.values():
                        watch.stop()
                    stopped = self._stopped()
        if ended:
            return time.perf_counter() - begun
        if not stopped:
            raise SchedError(error("SL813", f"the kernel of {self.normal.table.name} does not end, though it was told "
                                            "to", help="end this process; the GPU is free after that"))
        waits: list[Wait] = []
        for device, watch in watches.items():
            waits += waiting(self.program, self._lanes[device], watch, prepared.blocks)
        raise failure(self.program, waits, Stop.TIMEOUT, 1, timeout)

    def _stopped(self) -> bool:
        """Waits for the end of what was told to stop, and sets flags back; False where it does not end, or a GPU has
        given up altogether."""
        from cupy.cuda import runtime

        try:
            now = time.perf_counter()
            if not self._over(now + GRACE, now):
                return False
            self.forget()
        except runtime.CUDARuntimeError:                    # what it says was said before
            return False
        return True

    def _over(self, deadline: float, begun: float) -> bool:
        """Waits for the end on all GPUs; False where there is none by then."""
        left = [self._streams[device] for device in self._lanes]
        while left:
            left = [stream for stream in left if not stream.done]
            now = time.perf_counter()
            if left and now > deadline:
                return False
            if left and now - begun > _SPIN:
                time.sleep(50e-6)
        return True


class Launch:
    """What a launch is told on each GPU, and the memory that this points to. ``blocks``: of each lane."""

    def __init__(self, kernels: Kernels, sizes: Sizes, addresses: Sequence[Sequence[int]], blocks: int) -> None:
        self.blocks = blocks
        self.arguments: dict[int, ArgsStruct] = {}
        self._memory = []                                   # the kernels read it
        for device, lanes in kernels._lanes.items():
            table = _Table()
            buffers = table.add(np.array([a for here in addresses for a in here], np.uintp))
            flags = table.add(np.array([memory.address for memory in kernels._flags], np.uintp))
            numbers = table.add(np.array(lanes, np.intc))
            tables = [table.add(cut.table) for cut in (*sizes.cuts, sizes.values) if cut.table is not None]
            memory = Memory(device, table.size + len(sizes.cuts) * ctypes.sizeof(CutStruct) + 8)
            where = iter([memory.address + at for at in tables])
            cuts = [_struct(cut, where) for cut in sizes.cuts]
            values = _struct(sizes.values, where)
            first = table.add(np.frombuffer(b"".join(map(bytes, cuts)), np.uint8))
            data = table.data()
            copy(memory.address, data.ctypes.data, len(data), kernels._streams[device])
            kernels._streams[device].synchronize()
            self._memory.append(memory)
            self.arguments[device] = ArgsStruct(
                memory.address + buffers, memory.address + flags, memory.address + first, values, sizes.slice,
                sizes.slices, blocks, memory.address + numbers, kernels._watches[device].address, None)


class _Table:
    """Arrays one after the other, each at a multiple of 8 bytes."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0

    def add(self, array: Any) -> int:
        """Where it is."""
        at, part = self.size, np.ascontiguousarray(array).tobytes()
        self._parts.append(part + bytes(-len(part) % 8))
        self.size += len(self._parts[-1])
        return at

    def data(self) -> Any:
        return np.frombuffer(b"".join(self._parts), np.uint8)


def _struct(cut: Cut, where: Any) -> CutStruct:
    return CutStruct(None if cut.table is None else next(where), cut.block, cut.parts, cut.each, cut.longer)


def _require_reach(machine: Machine, table: OpTable) -> None:
    """Lanes read what other ranks hold, and set flags there."""
    there = table.peer >= 0
    for rank, peer in sorted(set(zip(table.rank[there].tolist(), table.peer[there].tolist(), strict=True))):
        a, b = machine.of[rank], machine.of[peer]
        if not machine.reaches(a, b):
            raise SchedError(error("SL804", f"the back end cupy cannot run here in mode kernel: GPU {a} of rank {rank} "
                                            f"does not reach the memory of GPU {b} of rank {peer}",
                                   help="--mode streams copies through the host there; or name GPUs that reach each "
                                        "other with --devices (`nvidia-smi topo -p2p r` shows which do)"))


def _most_blocks(functions: Mapping[int, Function], lanes: Mapping[int, list[Any]], wanted: int | None,
                 name: str) -> int:
    """How many blocks each lane may have, so that all are on their GPUs at once: lanes wait for each other."""
    most = min((functions[d].resident // len(here) for d, here in lanes.items()), default=1)
    if most < (wanted or 1):
        device = min(lanes, key=lambda d: functions[d].resident // len(lanes[d]))
        there, fits = len(lanes[device]), functions[device].resident
        each = f", each of {wanted} blocks" if (wanted or 1) > 1 else ""
        remedy = (f"take at most --blocks {most}" if most else
                  "use more GPUs (--devices), fewer ranks, or --mode streams")
        raise SchedError(error("SL811", f"{name} has {there} lanes on GPU {device}{each}, which wait for each other, "
                                        f"but only {fits} blocks fit there at once", help=remedy))
    return wanted or min(most, MOST_BLOCKS)
