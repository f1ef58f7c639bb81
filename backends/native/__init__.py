"""The native back end: the kernel that runs on GPUs, compiled for this machine's processors. README.md says how.

Ranks are threads of this process, which work on the arrays where they stand.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from weakref import ref

from schedlang.backend import Progress
from schedlang.backends.native.arguments import SLICE_BYTES
from schedlang.backends.native.compiler import find
from schedlang.backends.native.launching import Mode, failure, launch, waiting
from schedlang.backends.native.memory import Own
from schedlang.backends.native.program import carrier, program
from schedlang.backends.native.task import Task
from schedlang.diagnostics import SchedError
from schedlang.ir.table import Array, OpTable
from schedlang.running.binding import Bound, bind
from schedlang.running.dtypes import Dtype, accumulator, require_defined

TIMEOUT = 300.0
"""Seconds that a run may take."""

PROGRAMS_KEPT = 64
"""Compiled programs of tables in use that are kept ready, with their flags."""

SCRATCH_KEPT = 1 << 28
"""Bytes of scratch that they may keep together; the newest keeps its own in any case."""


@dataclass(frozen=True)
class Options:
    """How kernels are made and run. ``blocks`` of each lane; ``slice_bytes``: how much of a chunk is passed on at a
    time; ``mode``: see there. For tests: ``flags`` of the compiler beside our own, ``faults`` to put in."""

    mode: Mode = field(default_factory=Mode)
    blocks: int = 1
    slice_bytes: int = SLICE_BYTES
    flags: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


@dataclass
class _Kept:
    """A program and its memory. ``table``: of which it was made, for ``dtype`` and ``op``."""

    table: ref[OpTable]
    dtype: Dtype
    op: str | None
    own: Own
    lock: threading.Lock = field(default_factory=threading.Lock)


class NativeBackend:
    """See :class:`schedlang.backend.Backend`."""

    name = "native"

    def __init__(self, timeout: float = TIMEOUT, options: Options | None = None) -> None:
        self.timeout, self.options = timeout, options or Options()
        self._kept: list[_Kept] = []                        # the newest first
        self._lock = threading.Lock()

    def available(self) -> str | None:
        if not sys.platform.startswith("linux"):
            return "it runs on Linux only"
        try:
            find()
        except SchedError as missing:
            return missing.diagnostics[0].message.partition(": ")[2]
        return None

    def run(self, table: OpTable, inputs: Sequence[Mapping[str, Array]], *, op: str | None,
            accumulate: str | None = None, progress: Progress | None = None) -> list[dict[str, Array]]:
        """See :meth:`schedlang.backend.Backend.run`. Raises SchedError also where the table cannot be executed to its
        end on connections that hold nothing, SL802 where a value would move into a part too short for it, SL804 where
        it cannot be compiled, and SL813 where it takes longer than the timeout."""
        outputs = self._timed(table, inputs, bind(table, inputs), op, accumulate, 1, progress)[1]
        return outputs

    def _timed(self, table: OpTable, inputs: Sequence[Mapping[str, Array]], bound: Bound, op: str | None,
               accumulate: str | None, repeat: int,
               progress: Progress | None) -> tuple[list[float], list[dict[str, Array]]]:
        op = op or table.operator
        if op is not None:
            require_defined(op, bound.dtype)
        held = accumulator(accumulate, bound.dtype)
        kept = self._of(table, held, op)
        seconds = []
        with kept.lock:
            own = kept.own
            task = Task(own, table, bound, held, inputs, self.options.slice_bytes)
            arguments = task.arguments()
            for turn in range(repeat):
                task.fill()
                own.watch.clear()
                begun = time.perf_counter()
                status = launch(own.program, arguments, own.watch, self.options.mode, self.timeout)
                seconds.append(time.perf_counter() - begun)
                if status:
                    own.forget()
                    waits = waiting(own.program, own.lanes, own.watch, own.blocks)
                    raise failure(own.program, waits, own.watch.why, status, self.timeout)
                if progress is not None:
                    progress((turn + 1) / repeat)
            return seconds, task.results(op)

    def _made(self, table: OpTable, dtype: Dtype, op: str | None) -> Own:
        o = self.options
        return Own(program(table, dtype, op, flags=o.flags, faults=o.faults), o.blocks)

    def _of(self, table: OpTable, dtype: Dtype, op: str | None) -> _Kept:
        """The program of a table, and its memory."""
        dtype, op = carrier(table, dtype, op)
        with self._lock:
            found = next((k for k in self._kept if k.table() is table and (k.dtype, k.op) == (dtype, op)), None)
            if found is None:
                found = _Kept(ref(table), dtype, op, self._made(table, dtype, op))
            others = [k for k in self._kept if k is not found and k.table() is not None]
            self._kept, room = [found], SCRATCH_KEPT
            for k in others[: PROGRAMS_KEPT - 1]:
                room -= k.own.kept
                if room >= 0:
                    self._kept.append(k)
        return found


backend = NativeBackend()
