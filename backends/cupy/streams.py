"""Mode ``streams``: copies and small kernels on a stream for each lane, events between them; then as a CUDA graph."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from schedlang.backends.cuda.arguments import Cut, Sizes, sizes
from schedlang.backends.cuda.head import OPERATORS, TYPES, copied
from schedlang.backends.cuda.normal import normal
from schedlang.backends.cupy.loaded import load
from schedlang.backends.cupy.machine import HOST, Machine, Memory, copy, trouble
from schedlang.backends.cupy.order import Item, Kind, Place, order
from schedlang.diagnostics import SchedError, error
from schedlang.ir.layout import Layout
from schedlang.ir.table import OpTable
from schedlang.running.dtypes import Dtype

SHARE_BYTES = 16 << 10
"""What a block combines, at least."""

_GRAIN = 128
"""Bytes: blocks part what they combine at multiples of that, as lane.cuh does."""

Call = Callable[[], Any]


def shared_out(count: int, itemsize: int, most: int) -> tuple[int, int]:
    """How many blocks, ``most`` at most, take how many elements each of ``count``."""
    blocks = max(1, min(most, count * itemsize // SHARE_BYTES))
    grain = _GRAIN // itemsize
    share = max(1, -(-count // (blocks * grain))) * grain
    return max(1, -(-count // share)), share


class AverageStruct(ctypes.Structure):
    """``Average`` of combine.cuh."""

    _fields_ = (("into", ctypes.c_void_p), ("from_", ctypes.c_void_p), ("count", ctypes.c_longlong),
                ("share", ctypes.c_longlong), ("by", ctypes.c_longlong))


class CombineStruct(ctypes.Structure):
    """``Combine`` of combine.cuh."""

    _fields_ = (("into", ctypes.c_void_p), ("own", ctypes.c_void_p), ("from_", ctypes.c_void_p),
                ("count", ctypes.c_longlong), ("share", ctypes.c_longlong))


@cache
def combining(dtype: str, op: str) -> str:
    """The source of the kernels that combine values, and divide them."""
    constants = ("RANKS = 1", "BUFFERS = 1", "TAGS = 1", "EVENTS = 0", "STREAMS = 1", "MESSAGES = 1", "QUEUE = 1")
    return "\n".join([
        f"// schedlang: {op} of {dtype}.", "", *copied("types.cuh"), "", f"using T = {TYPES[dtype]};",
        f"using Op = {OPERATORS[op]};", *(f"constexpr int {constant};" for constant in constants),
        "constexpr bool PER_RANK = false;", "", *copied("lane.cuh"), "",
        (Path(__file__).parent / "combine.cuh").read_text("utf-8")])


class Streams:
    """A schedule as streams on the GPUs of a machine. One launch at a time."""

    def __init__(self, machine: Machine, table: OpTable, dtype: Dtype, op: str | None) -> None:
        """Raises SchedError: what :func:`~schedlang.backends.cuda.normal.normal` raises, SL804 where the kernel that
        combines cannot be compiled."""
        from cupy.cuda import Device, Event, Stream

        self.normal = normal(table)
        self._machine, self._itemsize = machine, dtype.numpy.itemsize
        self._given = order(self.normal, lambda rank, peer: machine.reaches(machine.of[rank], machine.of[peer]))
        combining_on = {machine.of[self._given.lanes[item.lane][0]] for item in self._given.items if item.own}
        self._functions = load(combining(dtype.name, op or "sum"), "schedlang_combine", sorted(combining_on))
        self._devices = [machine.of[rank] for rank, _ in self._given.lanes]
        self._streams, self._ends = [], []
        for device in self._devices:
            with Device(device):
                self._streams.append(Stream(non_blocking=True))
                self._ends.append(Event(disable_timing=True))
        self._events = []
        for lane in self._given.events:
            with Device(self._devices[lane]):
                self._events.append(Event(disable_timing=True))

    def arguments(self, layout: Layout, addresses: Sequence[Sequence[int]]) -> Launch:
        """All that streams are given. ``layout``: of the normal form; ``addresses``: of buffers by rank."""
        found, longest = sizes(layout, self._itemsize), layout.part
        landing = [Memory(device, chunks * longest * self._itemsize)
                   for device, chunks in zip(self._devices, self._given.landing, strict=True)]
        calls: list[Call] = []
        for item in self._given.items:
            stream = self._streams[item.lane]
            if item.kind == Kind.RECORD:
                calls.append(partial(stream.record, self._events[item.event]))
            elif item.kind == Kind.WAIT:
                calls.append(partial(stream.wait_event, self._events[item.event]))
            else:
                calls += self._moves(item, found, addresses, [memory.address for memory in landing], longest)
        return Launch(calls, landing)

    def _moves(self, item: Item, parts: Sizes, addresses: Sequence[Sequence[int]], landing: Sequence[int],
               longest: int) -> list[Call]:
        """The calls that move the chunks of an item, those together that stand together everywhere."""
        places = [place for place in (item.into, item.from_, item.own) if place is not None]
        found: list[tuple[list[int], int]] = []             # addresses in the order of places, and bytes
        for k in range(item.count):
            length = parts.values.length(item.like + k) * self._itemsize
            at = [self._address(place, k, parts, addresses, landing, longest) for place in places]
            if found and [a + found[-1][1] for a in found[-1][0]] == at:
                found[-1] = found[-1][0], found[-1][1] + length
            elif length:
                found.append((at, length))
        return [self._move(item, at, length) for at, length in found]

    def _address(self, place: Place, k: int, parts: Sizes, addresses: Sequence[Sequence[int]], landing: Sequence[int],
                 longest: int) -> int:
        buffers = len(self.normal.table.buffers)
        if place.buffer >= buffers:
            return landing[place.buffer - buffers] + k * longest * self._itemsize
        cut: Cut = parts.cuts[place.buffer + (place.rank * buffers if parts.per_rank else 0)]
        return addresses[place.rank][place.buffer] + cut.start(place.chunk + k) * self._itemsize

    def _move(self, item: Item, at: Sequence[int], length: int) -> Call:
        from cupy.cuda import runtime

        stream, device = self._streams[item.lane], self._devices[item.lane]
        assert item.into is not None and item.from_ is not None
        if item.own is not None:
            function, count = self._functions[device], length // self._itemsize
            blocks, share = shared_out(count, self._itemsize, function.resident)
            return partial(function.launch, blocks, CombineStruct(at[0], at[2], at[1], count, share), stream)
        into, from_ = self._device(item.into), self._device(item.from_)
        if HOST in (into, from_) or into == from_:
            return partial(copy, at[0], at[1], length, stream)
        return partial(runtime.memcpyPeerAsync, at[0], into, at[1], from_, length, stream.ptr)

    def _device(self, place: Place) -> int:
        buffers = self.normal.table.buffers
        on_host = place.buffer < len(buffers) and buffers[place.buffer].place == "host"
        return HOST if on_host else self._machine.of[place.rank]

    def launch(self, prepared: Launch, timeout: float) -> float:
        """Run it once; the seconds that it took. Raises SchedError: SL813."""
        from cupy.cuda import driver, runtime

        begun = time.perf_counter()
        if not self._streams:
            return time.perf_counter() - begun
        try:
            if prepared.launched and prepared.graph is None and not prepared.refused:
                self._capture(prepared)
                begun = time.perf_counter()
            if prepared.graph is not None:
                prepared.graph.launch(self._streams[0])
            else:
                self._give(prepared)
            while not self._streams[0].done:
                if time.perf_counter() - begun > timeout:
                    raise SchedError(error("SL813", f"{self.normal.table.name} did not come to its end in "
                                                    f"{timeout:g} seconds", help="give it more time: --timeout"))
                time.sleep(0 if time.perf_counter() - begun < 2e-3 else 50e-6)
        except (driver.CUDADriverError, runtime.CUDARuntimeError) as cause:
            raise trouble(cause, "running a schedule") from None
        prepared.launched = True
        return time.perf_counter() - begun

    def _give(self, prepared: Launch) -> None:
        """All streams begin after the first one's beginning, which ends after all of them."""
        first = self._streams[0]
        first.record(self._ends[0])
        for stream in self._streams[1:]:
            stream.wait_event(self._ends[0])
        for call in prepared.calls:
            call()
        for stream, end in zip(self._streams[1:], self._ends[1:], strict=True):
            stream.record(end)
            first.wait_event(end)

    def _capture(self, prepared: Launch) -> None:
        """Once what streams are given has proved itself, it becomes a graph; where the driver refuses that, it stays as
        it is."""
        from cupy.cuda import driver, runtime

        first = self._streams[0]
        try:
            first.begin_capture()
            try:
                self._give(prepared)
            finally:
                prepared.graph = first.end_capture()
        except (driver.CUDADriverError, runtime.CUDARuntimeError):
            prepared.graph, prepared.refused = None, True


class Launch:
    """What streams are given for some memory: ``calls``. ``graph``: the same as a CUDA graph; ``refused``: there can be
    none. ``launched``: whether it has come to its end once. ``landing`` is kept alive."""

    def __init__(self, calls: list[Call], landing: Sequence[Memory]) -> None:
        self.calls, self.landing = calls, landing
        self.graph: Any = None
        self.launched = self.refused = False
