"""The native back end: the kernel that runs on GPUs, compiled for this machine's processors. README.md says how.

Ranks are threads of this process, which work on the arrays where they stand; or processes, on memory that they share.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import ref

from schedlang.backend import Place, Progress
from schedlang.backends.cuda.arguments import SLICE_BYTES
from schedlang.backends.native.compiler import find
from schedlang.backends.native.launching import LONGEST, Mode, failure, launch, waiting
from schedlang.backends.native.memory import Own
from schedlang.backends.native.program import Program, carrier, program
from schedlang.backends.native.segment import Segment
from schedlang.backends.native.shares import LEADER, Run, put, regions, taken
from schedlang.backends.native.task import Task
from schedlang.diagnostics import SchedError, error
from schedlang.ir.table import Array, OpTable
from schedlang.running.binding import Bound, bind
from schedlang.running.dtypes import Dtype, accumulator, named, require_defined
from schedlang.running.ranks import Job
from schedlang.running.ranks.launch import launch as start

TIMEOUT = 300.0
"""Seconds that an execution may take."""

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
    """A program and its memory. ``table``: of which it was made, for ``dtype`` and ``op``, as ``options`` say."""

    table: ref[OpTable]
    made_for: tuple[Dtype, str | None, Options]
    own: Own
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Programs:
    """The programs of tables in use."""

    def __init__(self) -> None:
        self.kept: list[_Kept] = []                         # the newest first
        self._lock = threading.Lock()

    def of(self, table: OpTable, dtype: Dtype, op: str | None, options: Options) -> _Kept:
        """The program of a table, and its memory."""
        dtype, op = carrier(table, dtype, op)
        made_for = dtype, op, options
        with self._lock:
            found = next((k for k in self.kept if k.table() is table and k.made_for == made_for), None)
            if found is None:
                made = program(table, dtype, op, flags=options.flags, faults=options.faults)
                found = _Kept(ref(table), made_for, Own(made, options.blocks))
            others = [k for k in self.kept if k is not found and k.table() is not None]
            self.kept, room = [found], SCRATCH_KEPT
            for k in others[: PROGRAMS_KEPT - 1]:
                room -= k.own.kept
                if room >= 0:
                    self.kept.append(k)
        return found


@dataclass(frozen=True)
class NativeBackend:
    """See :class:`schedlang.backend.Distributed`. ``processes``: ranks that we start are processes, not threads."""

    name = "native"
    choices = ("blocks", "slice")
    timeout: float = TIMEOUT
    everywhere: bool = True
    processes: bool = False
    options: Options = field(default_factory=Options)
    programs: _Programs = field(default_factory=_Programs, compare=False, repr=False)

    def available(self) -> str | None:
        if not sys.platform.startswith("linux"):
            return "it runs on Linux only"
        try:
            find()
        except SchedError as missing:
            return missing.diagnostics[0].message.partition(": ")[2]
        return None

    def on(self, *, device: str | None = None, timeout: float | None = None, everywhere: bool = True) -> NativeBackend:
        """See :meth:`schedlang.backend.Distributed.on`."""
        if device not in (None, "cpu"):
            raise SchedError(error("SL806", f"the back end native does not run on {device}",
                                   help="leave the device out, or choose another back end"))
        if timeout is not None and not 0 < timeout <= LONGEST:          # nor is it NaN
            raise SchedError(error("SL806", f"ranks cannot wait {timeout:g} seconds",
                                   help=f"give a timeout above 0 and up to {LONGEST:g} seconds"))
        return replace(self, timeout=self.timeout if timeout is None else timeout, everywhere=everywhere)

    def chosen(self, *, blocks: int | None = None, slice: int | None = None) -> NativeBackend:
        """See :meth:`schedlang.backend.Adjustable.chosen`."""
        for what, number in (("--blocks", blocks), ("--slice", slice)):
            if number is not None and number < 1:
                raise SchedError(error("SL806", f"{what} is {number}", help="give a number of 1 or more"))
        given: dict[str, Any] = {"blocks": blocks, "slice_bytes": slice}
        return replace(self, options=replace(self.options, **{k: v for k, v in given.items() if v is not None}))

    def in_processes(self) -> NativeBackend:
        """The same with each rank a process of its own."""
        return replace(self, processes=True)

    def place(self) -> Place | None:
        """See :meth:`schedlang.backend.Distributed.place`."""
        from schedlang.backends.native.together import place

        return place()

    def run(self, table: OpTable, inputs: Sequence[Mapping[str, Array]], *, op: str | None,
            accumulate: str | None = None, progress: Progress | None = None) -> list[dict[str, Array]]:
        """See :meth:`schedlang.backend.Backend.run`. Raises SchedError also where the table cannot be executed to its
        end on connections that hold nothing, SL802 where a value would move into a part too short for it, SL804 where
        it cannot be compiled, and SL813 where it takes longer than the timeout."""
        return self.timed(table, inputs, bind(table, inputs), op=op, accumulate=accumulate, progress=progress)[1]

    def timed(self, table: OpTable, inputs: Sequence[Mapping[str, Array]], bound: Bound, *, op: str | None,
              accumulate: str | None = None, repeat: int = 1,
              progress: Progress | None = None) -> tuple[list[float], list[dict[str, Array]]]:
        """See :meth:`schedlang.backend.Distributed.timed`."""
        op = op or table.operator
        if op is not None:
            require_defined(op, bound.dtype)
        held = accumulator(accumulate, bound.dtype)
        o = self.options
        run = Run(table, bound.elements, bound.dtype.name, held.name, op, repeat, o.blocks, o.slice_bytes, o.mode,
                  self.timeout)
        if (place := self.place()) is not None:
            from schedlang.backends.native.together import found

            return found(place, run, inputs[place.rank] if place.rank < len(inputs) else {}, self._program,
                         self.everywhere)
        if self.processes:
            return self._started(run, inputs, progress)
        return self._here(run, inputs, bound, progress)

    def _program(self, run: Run) -> Program:
        return self.programs.of(run.table, named(run.held), run.op, self.options).own.program

    def _here(self, run: Run, inputs: Sequence[Mapping[str, Array]], bound: Bound,
              progress: Progress | None) -> tuple[list[float], list[dict[str, Array]]]:
        """As :meth:`timed`, by threads of this process."""
        held = named(run.held)
        kept, seconds = self.programs.of(run.table, held, run.op, self.options), []
        with kept.lock:
            own = kept.own
            task = Task(own, run.table, bound, held, inputs, run.slice_bytes)
            arguments = task.arguments()
            for turn in range(run.repeat):
                task.fill()
                own.watch.clear()
                begun = time.perf_counter()
                status = launch(own.program, arguments, own.watch, run.mode, run.timeout)
                seconds.append(time.perf_counter() - begun)
                if status:
                    own.forget()
                    waits = waiting(own.program, own.lanes, own.watch, own.blocks)
                    raise failure(own.program, waits, own.watch.why, status, run.timeout)
                if progress is not None:
                    progress((turn + 1) / run.repeat)
            return seconds, task.results(run.op)

    def _started(self, run: Run, inputs: Sequence[Mapping[str, Array]],
                 progress: Progress | None) -> tuple[list[float], list[dict[str, Array]]]:
        """As :meth:`timed`, by processes that we start."""
        made = self._program(run)
        segment = Segment(regions(run, made))
        for rank, here in enumerate(inputs):
            put(segment, run, rank, here)
        job = Job("schedlang.backends.native.shares:in_segment", (run, made, segment), run.table.ranks, None,
                  run.timeout, LEADER)

        def told(rank: int, part: float) -> None:
            if rank == 0 and progress is not None:
                progress(part)

        took = start(job, (segment.number,), told)
        results = [taken(segment, run, made, rank) for rank in range(run.table.ranks)]
        return [max(turn) for turn in zip(*took, strict=True)], results


backend = NativeBackend()
