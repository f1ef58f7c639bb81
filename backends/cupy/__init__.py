"""The CuPy back end: all ranks on the GPUs of this machine, in one process. README.md says how."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import ref

from schedlang.backend import Progress
from schedlang.backends.cupy.kernels import Kernels
from schedlang.backends.cupy.loaded import Function, load
from schedlang.backends.cupy.machine import Machine, arranged, missing
from schedlang.backends.cupy.streams import Streams, combining
from schedlang.backends.cupy.task import Buffers
from schedlang.backends.native.program import carrier
from schedlang.diagnostics import SchedError, error
from schedlang.ir.layout import Layout
from schedlang.ir.table import Array, OpTable
from schedlang.ops import REDUCE_OPS
from schedlang.running.arrays import OnGpu
from schedlang.running.binding import Bound, bind
from schedlang.running.dtypes import Dtype, accumulator, require_defined
from schedlang.running.executable import legal_order
from schedlang.running.values import Values, follow

TIMEOUT = 60.0
"""Seconds that a run may take."""

LONGEST = 1e9
"""Seconds of the longest timeout."""

MODES = ("kernel", "streams")

KEPT = 16
"""Schedules in use that are kept ready, with their memory."""


@dataclass(frozen=True)
class Options:
    """How schedules run. ``mode``: one kernel on each GPU, or streams. ``devices``: the numbers of the GPUs (None:
    all). Of mode kernel only: ``blocks`` of each lane, ``slice_bytes``: how much of a chunk a lane passes on at a time
    (None: by the size)."""

    mode: str = "kernel"
    devices: tuple[int, ...] | None = None
    blocks: int | None = None
    slice_bytes: int | None = None


class _Kept:
    """A schedule on the GPUs. ``runner``: by the mode. ``buffers`` and ``prepared``: for the last size."""

    def __init__(self, table: OpTable, key: tuple[Any, ...], where: Machine, dtype: Dtype, op: str | None,
                 options: Options) -> None:
        from cupy.cuda import Device, Stream

        self.table, self.key, self.where, self.options = ref(table), key, where, options
        self.streams = {}
        for device in where.devices:
            with Device(device):
                self.streams[device] = Stream(non_blocking=True)
        self.runner: Kernels | Streams = (
            Kernels(where, table, dtype, op, options.blocks, self.streams) if options.mode == "kernel"
            else Streams(where, table, dtype, op))
        pairs, when = legal_order(table)
        self.values: Values = follow(table, pairs.partner, when.posted, when.ready, when.done)
        self.lock = threading.Lock()
        self._averages: Mapping[int, Function] | None = None
        self._size: Any = None
        self._buffers: Any = None
        self._prepared: Any = None

    def averages(self, dtype: str) -> Mapping[int, Function]:
        """What divides sums on each GPU."""
        if self._averages is None:
            self._averages = load(combining(dtype, "avg"), "schedlang_average", self.where.devices)
        return self._averages

    def ready(self, table: OpTable, bound: Bound, held: Dtype) -> tuple[Buffers, Any]:
        """Buffers and what a launch is told, for a size; all memory is there after that."""
        size = bound.elements, held.name
        if self._size != size:
            self._size = self._buffers = self._prepared = None      # the old memory goes first
            normal = self.runner.normal.table
            buffers = Buffers(self.where, table, normal, bound, held, self.streams)
            layout = Layout(normal, bound.elements)
            if isinstance(self.runner, Kernels):
                self._prepared = self.runner.arguments(layout, buffers.addresses, held.numpy.itemsize,
                                                       self.options.slice_bytes)
            else:
                self._prepared = self.runner.arguments(layout, buffers.addresses)
            self._buffers, self._size = buffers, size
        return self._buffers, self._prepared


@dataclass
class CupyBackend:
    """See :class:`schedlang.backend.Backend` and :class:`schedlang.backend.Adjustable`."""

    timeout: float = TIMEOUT
    options: Options = field(default_factory=Options)
    name = "cupy"
    on_gpus = True
    choices = ("devices", "mode", "blocks", "slice", "timeout")

    def __post_init__(self) -> None:
        self._kept: list[_Kept] = []                        # the newest first
        self._lock = threading.Lock()

    def available(self) -> str | None:
        return missing()

    def chosen(self, *, devices: Sequence[int] | None = None, mode: str | None = None, blocks: int | None = None,
               slice: int | None = None, timeout: float | None = None) -> CupyBackend:
        """This back end with other choices; see :class:`Options`. Raises SchedError (SL806)."""
        if mode is not None and mode not in MODES:
            raise SchedError(error("SL806", f"there is no mode {mode}", help=f"choose one of: {', '.join(MODES)}"))
        for what, number in (("--blocks", blocks), ("--slice", slice)):
            if number is not None and not 0 < number < 1 << 31:
                raise SchedError(error("SL806", f"{what} is {number}", help="give a number of 1 or more, below 2^31"))
        if timeout is not None and not 0 < timeout <= LONGEST:          # nor is it NaN
            raise SchedError(error("SL806", f"a run cannot take {timeout:g} seconds",
                                   help=f"give a timeout above 0 and up to {LONGEST:g} seconds"))
        given: dict[str, Any] = {"mode": mode, "devices": None if devices is None else tuple(devices),
                                 "blocks": blocks, "slice_bytes": slice}
        options = replace(self.options, **{name: value for name, value in given.items() if value is not None})
        if options.mode == "streams" and (options.blocks is not None or options.slice_bytes is not None):
            raise SchedError(error("SL806", "--blocks and --slice are of mode kernel: mode streams copies whole chunks",
                                   help="leave them out, or take --mode kernel"))
        return CupyBackend(self.timeout if timeout is None else timeout, options)

    def run(self, table: OpTable, inputs: Sequence[Mapping[str, Array]], *, op: str | None,
            accumulate: str | None = None, progress: Progress | None = None) -> list[dict[str, Array]]:
        """See :meth:`schedlang.backend.Backend.run`. Raises SchedError also where the table cannot be executed to its
        end on connections that hold nothing; SL802 where a value would move into a part too short for it, or memory
        does not suffice; SL804 where it cannot be compiled, or GPUs do not reach each other's memory; SL811 where lanes
        do not fit on a GPU at once; SL813 where it takes longer than the timeout."""
        return self.timed(table, inputs, bind(table, inputs), op=op, accumulate=accumulate, progress=progress)[1]

    def timed(self, table: OpTable, inputs: Sequence[Mapping[str, Array]], bound: Bound, *, op: str | None,
              accumulate: str | None = None, repeat: int = 1,
              progress: Progress | None = None) -> tuple[list[float], list[dict[str, Array]]]:
        """See :meth:`schedlang.backend.Timed.timed`: the seconds are those of the GPUs' work, copies from and to the
        host left out."""
        op = op or table.operator
        if op is not None:
            require_defined(op, bound.dtype)
        held = accumulator(accumulate, bound.dtype)
        kept = self._of(table, held, op)
        stay = held == bound.dtype and any(isinstance(a, OnGpu) for here in inputs for a in here.values())
        averages = kept.averages(held.name) if stay and op is not None and REDUCE_OPS[op].divides else {}
        seconds = []
        with kept.lock:
            kept.values.require_fit(bound.layout)
            buffers, prepared = kept.ready(table, bound, held)
            for turn in range(repeat):
                buffers.fill(inputs)
                seconds.append(kept.runner.launch(prepared, self.timeout))
                if progress is not None:
                    progress((turn + 1) / repeat)
            if stay:
                there: Any = buffers.on_gpus(op, averages)
                return seconds, there
            return seconds, buffers.results(op)

    def _of(self, table: OpTable, dtype: Dtype, op: str | None) -> _Kept:
        """A schedule on the GPUs, as it was kept or new."""
        dtype, op = carrier(table, dtype, op)
        key = dtype, op, self.options
        with self._lock:
            found = next((k for k in self._kept if k.table() is table and k.key == key), None)
            if found is None:
                found = _Kept(table, key, arranged(table.ranks, self.options.devices), dtype, op, self.options)
            others = [k for k in self._kept if k is not found and k.table() is not None]
            self._kept = [found, *others[: KEPT - 1]]
        return found


backend = CupyBackend()
