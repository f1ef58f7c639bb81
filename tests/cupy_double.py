"""A stand-in for the part of CuPy that the back end uses: several GPUs in ordinary memory, for machines without one.

What streams are given happens later, in a random order that CUDA would allow, and kernels are compiled by the native
back end's compiler and run as threads. What CUDA refuses is refused; what it leaves undefined is an AssertionError.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import random
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from schedlang.backends.cuda.arguments import ArgsStruct, ModeStruct
from schedlang.backends.native.compiler import load

COMBINE = """
extern "C" void schedlang_kernel(const Args) {}
extern "C" int double_itemsize() { return sizeof(T); }
template <class Argument>
static void run(void (*kernel)(Argument), const Argument* argument, int blocks) {
    Watch watch = {};
    Args args = {};
    args.watch = &watch;
    Mode mode = {};
    mode.threads = 1;
    for (int b = 0; b < blocks; ++b) {
        Block shared;
        Here state = place(&args, &mode, b, 0, &shared, 0);
        here = &state;
        kernel(*argument);
        here = nullptr;
    }
}
extern "C" void double_schedlang_combine(const Combine* c, int blocks) { run(schedlang_combine, c, blocks); }
extern "C" void double_schedlang_average(const Average* a, int blocks) { run(schedlang_average, a, blocks); }
"""
"""What lets the small kernels run on a CPU."""


Act = Callable[[], Any] | None


class CUDARuntimeError(RuntimeError):
    pass


class CUDADriverError(RuntimeError):
    pass


class NVRTCError(RuntimeError):
    pass


class Item:
    """Something to do, once all in ``after`` are over; a thread is what goes on. ``captured``: it is part of a graph,
    and only its copies happen."""

    def __init__(self, stream: Stream, act: Act, after: Sequence[Item], captured: bool) -> None:
        self.stream, self.act, self.after, self.captured = stream, act, list(after), captured
        self.over = False
        self.thread: threading.Thread | None = None

    def ready(self) -> bool:
        self.after = [item for item in self.after if not item.over]
        return not self.after


class World:
    """GPUs, all alike. ``peers``: whether they reach each other's memory. ``lost``: GPUs whose kernels never begin.
    ``graphs``: whether streams can be captured."""

    def __init__(self, gpus: int, *, seed: int = 0, peers: bool = True, resident: int = 64, capability: int = 90,
                 archs: Sequence[int] = (75, 80, 86, 90, 100), version: tuple[int, int] = (13, 0),
                 memory: int = 1 << 34, cooperative: bool = True, lost: Sequence[int] = (),
                 graphs: bool = True) -> None:
        self.gpus, self.peers, self.resident, self.capability = gpus, peers, resident, capability
        self.archs, self.version, self.memory, self.cooperative = archs, version, memory, cooperative
        self.lost, self.graphs = set(lost), graphs
        self.rng = random.Random(seed)
        self.current = 0
        self.haste: dict[int, float] = {}                       # of each stream; some get far ahead of others
        self.pending: list[Item] = []
        self.streams: dict[int, Stream] = {}
        self.opened: set[tuple[int, int]] = set()
        self.blocks: dict[int, tuple[int, int, Any]] = {}       # address: device (-1: the host), size, memory
        self.functions: dict[int, tuple[int, Any, str]] = {}
        self.captured: set[Stream] | None = None
        self.compiled: list[tuple[str, ...]] = []
        _worlds.add(self)
        self.launches = self.graph_launches = self.copies = self.combines = 0

    # Memory.

    def allocate(self, device: int, size: int) -> int:
        used = sum(n for d, n, _ in self.blocks.values() if d == device)
        if device >= 0 and used + size > self.memory:
            raise CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")
        raw = np.full(size + 512, 0xA5, np.uint8)
        address = raw.ctypes.data + -raw.ctypes.data % 256
        self.blocks[address] = device, size, raw
        return address

    def free(self, address: int) -> None:
        self.until(lambda: not self.pending)                # as cudaFree does
        del self.blocks[address]

    def where(self, address: int, size: int) -> int | None:
        """The device that memory belongs to, -1 for the host's; None: it is unknown, and so ordinary memory."""
        for start, (device, length, _) in self.blocks.items():
            if start <= address < start + length:
                assert address + size <= start + length, "beyond the end of an allocation"
                return device
        return None

    def require(self, device: int, address: int, size: int, *, ordinary: bool = False) -> None:
        there = self.where(address, size)
        assert there is not None or ordinary, f"GPU {device} uses memory that is not allocated"
        if there is not None and there not in (-1, device):
            assert (device, there) in self.opened, f"GPU {device} does not reach the memory of GPU {there}"

    # What happens.

    def give(self, stream: Stream, act: Act, after: Sequence[Item] = ()) -> Item:
        capturing = self.captured is not None and (stream in self.captured or any(i.captured for i in after))
        if capturing:
            assert self.captured is not None
            for item in after:
                if not item.captured and not item.over:
                    raise CUDARuntimeError("cudaErrorStreamCaptureIsolation")
            if stream not in self.captured:
                self.captured.add(stream)
                stream.last = None
        elif any(item.captured for item in after):
            raise CUDARuntimeError("cudaErrorCapturedEvent")
        item = Item(stream, act, [*after, *([stream.last] if stream.last is not None else [])], capturing)
        stream.last = item
        if capturing:
            self.graph.append(item)
        else:
            self.pending.append(item)
        return item

    def step(self) -> bool:
        """Lets one thing happen; False where none can."""
        ended = [item for item in self.pending if item.thread is not None and not item.thread.is_alive()]
        for item in ended:
            self.pending.remove(item)
            item.over = True
        ready = [item for item in self.pending if item.thread is None and item.ready()]
        if not ready:
            return bool(ended) or any(item.thread is not None for item in self.pending)
        if self.rng.random() < 0.1:
            self.haste.clear()
        item = max(ready, key=lambda item: self.haste.setdefault(item.stream.ptr, self.rng.random()))
        try:
            item.thread = item.act() if item.act is not None else None
        except AssertionError:
            for other in self.pending:                      # it is told once
                other.over = True
            self.pending.clear()
            raise
        if item.thread is None:
            self.pending.remove(item)
            item.over = True
        return True

    def until(self, true: Callable[[], bool]) -> None:
        while not true():
            if not self.step():
                raise AssertionError("streams wait for what nobody does")
            for item in self.pending:
                if item.thread is not None:
                    item.thread.join(1e-3)
                    break


_worlds: weakref.WeakSet[World] = weakref.WeakSet()


class Stream:
    def __init__(self, *, non_blocking: bool = False) -> None:
        assert non_blocking, "streams would wait for the default stream"
        self.world, self.device, self.last = world(), world().current, None
        self.last: Item | None
        self.ptr = 1 + len(self.world.streams)
        self.world.streams[self.ptr] = self

    @property
    def done(self) -> bool:
        for _ in range(self.world.rng.randrange(8)):
            self.world.step()
        return self.last is None or self.last.over

    def synchronize(self) -> None:
        last = self.last
        self.world.until(lambda: last is None or last.over)

    def record(self, event: Event) -> None:
        assert event.device == self.device, "an event of another GPU"
        event.item = self.world.give(self, None)

    def wait_event(self, event: Event) -> None:
        assert event.item is not None, "an event that was not recorded"
        self.world.give(self, None, [event.item])

    def begin_capture(self) -> None:
        if not self.world.graphs:
            raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported")
        self.world.captured, self.world.graph = {self}, []
        self.last = None

    def end_capture(self) -> Graph:
        here, seen = self.world, set()
        streams, here.captured = here.captured or set(), None
        walk = [self.last]
        while walk:
            item = walk.pop()
            if item is not None and id(item) not in seen:
                seen.add(id(item))
                walk += item.after
        joined = all(s.last is None or id(s.last) in seen for s in streams)
        for stream in streams:
            stream.last = None
        if not joined:
            raise CUDARuntimeError("cudaErrorStreamCaptureUnjoined")
        return Graph(here, here.graph)


class Graph:
    def __init__(self, here: World, items: list[Item]) -> None:
        self.world, self.items = here, items

    def launch(self, stream: Stream) -> None:
        self.world.graph_launches += 1
        begin = self.world.give(stream, None)
        copies: dict[int, Item] = {}
        for item in self.items:
            after = [begin, *(copies[id(a)] for a in item.after if id(a) in copies)]
            copies[id(item)] = Item(item.stream, item.act, after, False)
        self.world.pending += copies.values()
        self.world.give(stream, None, list(copies.values()))


class Event:
    def __init__(self, *, disable_timing: bool = False) -> None:
        self.device = world().current
        self.item: Item | None = None


class Device:
    def __init__(self, number: int) -> None:
        assert 0 <= number < world().gpus
        self.id = number
        self._before: list[int] = []

    def __enter__(self) -> Device:
        self._before.append(world().current)
        world().current = self.id
        return self

    def __exit__(self, *_: object) -> None:
        world().current = self._before.pop()

    @property
    def compute_capability(self) -> str:
        return str(world().capability)


class Memory:
    def __init__(self, size: int) -> None:
        self._world = world()
        self.ptr = self._world.allocate(self._world.current, size)

    def __del__(self) -> None:
        if hasattr(self, "ptr"):
            self._world.free(self.ptr)


class Function:
    def __init__(self, library: Any, name: str) -> None:
        self.ptr = 1 + len(world().functions)
        world().functions[self.ptr] = world().current, library, name


class Module:
    def load(self, image: bytes) -> None:
        source = image.decode()
        self.library = load(source + (COMBINE if "schedlang_combine" in source else ""), flags=("-O0",))

    def get_function(self, name: str) -> Function:
        return Function(self.library, name)


class ndarray:
    """An array on a GPU: made of a NumPy array on the current one, or of what has the CUDA array interface."""

    def __init__(self, values: Any, dtype: Any = None) -> None:
        self.device = Device(world().current)
        if isinstance(values, np.ndarray):
            self.owner: Any = Memory(max(1, values.nbytes))
            self.shape, self.dtype, pointer = values.shape, values.dtype, self.owner.ptr
            ctypes.memmove(pointer, np.ascontiguousarray(values).ctypes.data, values.nbytes)
        else:
            told = values.__cuda_array_interface__
            assert told["strides"] is None and told["stream"] is None
            self.owner, self.shape, pointer = values, told["shape"], told["data"][0]
            self.dtype = np.dtype(told["typestr"] if dtype is None else dtype)
        self.size = int(np.prod(self.shape))
        self.data = types.SimpleNamespace(ptr=pointer)

    def view(self, dtype: Any) -> ndarray:
        assert np.dtype(dtype).itemsize == self.dtype.itemsize
        with self.device:
            return ndarray(self.owner, dtype)

    def get(self) -> np.ndarray:
        world().until(lambda: not world().pending)
        raw = ctypes.string_at(self.data.ptr, self.size * self.dtype.itemsize) if self.size else b""
        return np.frombuffer(raw, self.dtype).reshape(self.shape)

    def __dlpack__(self) -> None:
        raise AssertionError("CuPy's arrays are taken as they are")


_current: list[World] = []


def world() -> World:
    return _current[-1]


def _copy(to: int, from_: int, size: int, stream: int) -> None:
    here, given = world(), world().streams[stream]
    here.copies += 1

    def act() -> None:
        for address in (to, from_):
            here.require(given.device, address, size, ordinary=True)
        ctypes.memmove(to, from_, size)

    here.give(given, act)


def _copy_between(to: int, to_device: int, from_: int, from_device: int, size: int, stream: int) -> None:
    here = world()
    assert here.streams[stream].device == from_device, "copies are given to the sender's stream"
    here.copies += 1

    def act() -> None:                                      # whether or not they reach each other
        assert (here.where(to, size), here.where(from_, size)) == (to_device, from_device)
        ctypes.memmove(to, from_, size)

    here.give(here.streams[stream], act)


def _set(to: int, value: int, size: int, stream: int) -> None:
    here, given = world(), world().streams[stream]

    def act() -> None:
        here.require(given.device, to, size)
        ctypes.memset(to, value, size)

    here.give(given, act)


def _launch(function: int, grid: int, stream: int, params: int) -> None:
    here = world()
    device, library, name = here.functions[function]
    given = here.streams[stream]
    assert device == given.device == here.current, "a kernel of another GPU"
    argument = ctypes.cast(params, ctypes.POINTER(ctypes.c_void_p))[0]
    assert argument is not None
    if name == "nothing":                                   # an empty kernel, to measure with
        here.give(given, None)
        return
    if name != "schedlang_kernel":
        raw = ctypes.create_string_buffer(ctypes.string_at(argument, 40), 40)
        *addresses, count = np.frombuffer(raw, np.int64)[: 4 if name == "schedlang_combine" else 3].tolist()
        here.combines += 1

        def combine() -> None:
            for address in addresses:
                here.require(device, address, count * library.double_itemsize())
            getattr(library, f"double_{name}")(ctypes.byref(raw), grid)

        here.give(given, combine)
        return
    args = ArgsStruct.from_buffer_copy(ctypes.string_at(argument, ctypes.sizeof(ArgsStruct)))
    here.launches += 1

    def run() -> threading.Thread:
        mode = ModeStruct(0, 1, 600, 400, 0, 0, here.rng.randrange(1 << 30), 0)
        thread = threading.Thread(target=lambda: library.schedlang_launch(
            ctypes.byref(args), ctypes.c_int(grid // args.blocks), ctypes.byref(mode)))
        thread.start()
        return thread

    def never() -> threading.Thread:
        stop = (ctypes.c_int * 1).from_address(args.watch)

        def wait() -> None:
            while not stop[0]:
                threading.Event().wait(1e-3)

        thread = threading.Thread(target=wait)
        thread.start()
        return thread

    here.give(given, never if device in here.lost else run)


def _launch_kernel(function: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int,
                   params: int, extra: int = 0) -> None:
    assert (gy, gz, by, bz, shared, extra) == (1, 1, 1, 1, 0, 0) and 0 < bx <= 1024
    _launch(function, gx, stream, params)


def _launch_together(function: int, gx: int, *rest: int) -> None:
    if gx > world().resident:
        raise CUDADriverError("CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE: too many blocks in cooperative launch")
    _launch_kernel(function, gx, *rest)


def _enable(peer: int) -> None:
    here = world()
    if (here.current, peer) in here.opened:
        raise CUDARuntimeError("cudaErrorPeerAccessAlreadyEnabled: peer access is already enabled")
    here.opened.add((here.current, peer))


def _count() -> int:
    if not world().gpus:
        raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
    return world().gpus


def _free_host(address: int) -> None:
    for here in list(_worlds):
        if address in here.blocks:                          # else the whole world is gone
            here.free(address)


class _Program:
    def __init__(self, source: str) -> None:
        self.source = source


_programs: dict[int, _Program] = {}


def _create(source: str, name: str, headers: Sequence[str], names: Sequence[str]) -> int:
    assert not headers and not names
    program = _Program(source)
    _programs[id(program)] = program
    return id(program)


def _module(name: str, **contents: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.__path__ = []  # type: ignore[attr-defined]
    vars(module).update(contents)
    return module


def _modules() -> dict[str, types.ModuleType]:
    attributes = {1: lambda: world().resident, 2: lambda: int(world().cooperative)}
    runtime = _module(
        "cupy.cuda.runtime", CUDARuntimeError=CUDARuntimeError, is_hip=False, getDeviceCount=_count,
        runtimeGetVersion=lambda: world().version[0] * 1000,
        driverGetVersion=lambda: world().version[0] * 1000,
        getDeviceProperties=lambda device: {"name": b"GPU in ordinary memory"}, memcpyDefault=4, hostAllocPortable=1,
        hostAllocMapped=2,
        cudaDevAttrMultiProcessorCount=1, cudaDevAttrCooperativeLaunch=2,
        deviceGetAttribute=lambda attribute, device: attributes[attribute](),
        deviceCanAccessPeer=lambda a, b: int(world().peers), deviceEnablePeerAccess=_enable,
        hostAlloc=lambda size, flags: world().allocate(-1, size), freeHost=_free_host,
        memcpyAsync=lambda to, from_, size, kind, stream: _copy(to, from_, size, stream),
        memcpyPeerAsync=_copy_between, memsetAsync=_set)
    driver = _module(
        "cupy.cuda.driver", CUDADriverError=CUDADriverError, launchKernel=_launch_kernel,
        launchCooperativeKernel=_launch_together,
        occupancyMaxActiveBlocksPerMultiprocessor=lambda function, threads, shared: 1)
    nvrtc = _module(
        "cupy.cuda.nvrtc", NVRTCError=NVRTCError, getVersion=lambda: world().version,
        getSupportedArchs=lambda: tuple(world().archs), createProgram=_create,
        compileProgram=lambda program, options: world().compiled.append(tuple(options)),
        getProgramLog=lambda program: "", getCUBIN=lambda program: _programs[program].source.encode(),
        getPTX=lambda program: _programs[program].source.encode(),
        destroyProgram=lambda program: _programs.pop(program))
    function = _module("cupy.cuda.function", Module=Module)
    cuda = _module("cupy.cuda", runtime=runtime, driver=driver, nvrtc=nvrtc, function=function, Device=Device,
                   Memory=Memory, Stream=Stream, Event=Event,
                   get_current_stream=lambda: types.SimpleNamespace(synchronize=lambda: None))
    cupy = _module("cupy", cuda=cuda, ndarray=ndarray, ascontiguousarray=lambda array: array,
                   asarray=lambda values: ndarray(values))
    return {module.__name__: module for module in (cupy, cuda, runtime, driver, nvrtc, function)}


@contextmanager
def installed(here: World) -> Iterator[World]:
    """``import cupy`` finds this, with the GPUs of a world."""
    with pytest.MonkeyPatch.context() as patch:
        for name, module in _modules().items():
            patch.setitem(sys.modules, name, module)
        _current.append(here)
        try:
            yield here
        finally:
            here.until(lambda: not here.pending)
            _current.pop()
