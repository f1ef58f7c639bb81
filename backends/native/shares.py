"""Ranks as processes: each runs its own lanes on memory that all of them share."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from schedlang.backends.cuda.arguments import FLAG_BYTES, Arguments, sizes
from schedlang.backends.native.launching import Mode, Wait, Watch, failure, launch, waiting, watch_words
from schedlang.backends.native.program import Program
from schedlang.backends.native.segment import Segment
from schedlang.backends.native.task import finished
from schedlang.diagnostics import SchedError, error
from schedlang.ir.layout import Layout
from schedlang.ir.table import Array, OpTable
from schedlang.running.binding import Bound, Ranges, ends, index_of, starts
from schedlang.running.dtypes import DTYPES

LEADER = "schedlang.backends.native.leader:main"

INT32, INT64, BYTE = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.uint8)

_SPINS = 2000
"""Looks at a barrier before a rank sleeps between them."""


@dataclass(frozen=True)
class Run:
    """What all ranks are to do: ``repeat`` times a table, on ``elements`` of ``dtype`` held in ``held`` (names of
    `running.dtypes`). ``blocks``, ``slice_bytes``, ``mode``: see ``Options``; ``timeout`` in seconds."""

    table: OpTable
    elements: int
    dtype: str
    held: str
    op: str | None
    repeat: int
    blocks: int
    slice_bytes: int
    mode: Mode
    timeout: float

    @property
    def bound(self) -> Bound:
        """The sizes."""
        return Bound(DTYPES[self.dtype], Layout(self.table, self.elements))


def regions(run: Run, program: Program) -> Iterator[tuple[Hashable, int]]:
    """The regions of a segment for a run, and their sizes in bytes. Raises SchedError (SL802) if they do not fit."""
    program.values.require_fit(run.bound.layout)
    layout = Layout(program.table, run.elements)
    itemsize = DTYPES[run.held].numpy.itemsize
    given = starts(run.table)
    for rank in range(run.table.ranks):
        yield ("watch", rank), 4 * watch_words(len(_lanes(program, rank)), run.blocks)
        yield ("flags", rank), program.flags * run.blocks * FLAG_BYTES
        yield ("turn", rank), 8
        for b, buffer in enumerate(program.table.buffers):
            if buffer.only in (None, rank) and _place(run, program, given, rank, b)[0] == "buffer":
                yield ("buffer", rank, b), int(layout.count(b)[rank]) * itemsize
        for name, chunks in given[rank].items():
            yield ("input", rank, name), int(run.bound.lengths_of(name, rank, chunks).sum()) * (
                DTYPES[run.dtype].numpy.itemsize)


def _place(run: Run, program: Program, given: Ranges, rank: int, buffer: int) -> tuple[str, int, int | str]:
    """The region of a buffer: that of an input which nobody writes is the buffer itself."""
    b = program.table.buffers[buffer]
    whole = len(given[rank].get(b.name, ())) == b.chunks > 0
    if whole and not program.written[buffer] and run.held == run.dtype:
        return "input", rank, b.name
    return "buffer", rank, buffer


def put(segment: Segment, run: Run, rank: int, inputs: Mapping[str, Array]) -> None:
    """The inputs of a rank into a segment."""
    for name, array in inputs.items():
        segment.array(("input", rank, name), DTYPES[run.dtype].numpy, len(array))[...] = array


def taken(segment: Segment, run: Run, program: Program, rank: int) -> dict[str, Array]:
    """The results of a rank, in arrays that keep the segment or are copies."""
    bound, given, found = run.bound, starts(run.table), {}
    for name, chunks in ends(run.table)[rank].items():
        b = index_of(run.table, name)
        at = bound.layout.starts(b, rank)
        values = segment.array(_place(run, program, given, rank, b), DTYPES[run.held].numpy)
        part = values[int(at[chunks.start]) : int(at[chunks.stop])]
        found[name] = finished(run.table, part, bound.dtype.numpy, run.op, b, rank, chunks)
    return found


def _lanes(program: Program, rank: int) -> list[tuple[int, int]]:
    return [(int(r), int(number)) for r, number in program.kernel.lanes.tolist() if r == rank]


class Share:
    """One rank's part of a run."""

    def __init__(self, segment: Segment, run: Run, program: Program, rank: int) -> None:
        self._segment, self._run, self._program, self._rank = segment, run, program, rank
        layout, held = Layout(program.table, run.elements), DTYPES[run.held].numpy
        bound, given = run.bound, starts(run.table)
        self.watches = [Watch(segment.array(("watch", r), INT32)) for r in range(run.table.ranks)]
        self._turns = [segment.array(("turn", r), INT64) for r in range(run.table.ranks)]
        self._fed: list[tuple[Array, Array]] = []
        for name, chunks in given[rank].items():
            b = index_of(run.table, name)
            if _place(run, program, given, rank, b)[0] == "input":
                continue
            at = bound.layout.starts(b, rank)
            array = segment.array(("buffer", rank, b), held)[int(at[chunks.start]) : int(at[chunks.stop])]
            self._fed.append((array, segment.array(("input", rank, name), bound.dtype.numpy, len(array))))
        buffers = [[self._address(_place(run, program, given, r, b)) for b in range(len(program.table.buffers))]
                   for r in range(run.table.ranks)]
        self._arguments = Arguments(
            sizes(layout, held.itemsize, run.slice_bytes), buffers=buffers,
            flags=[self._address(("flags", r)) for r in range(run.table.ranks)], blocks=run.blocks,
            lanes=_lanes(program, rank), watch=self.watches[rank].address)

    def _address(self, key: Hashable) -> int:
        """Of a region in this process; 0 where there is none."""
        known = self._segment.regions()
        return int(self._segment.array(key, BYTE, 0).ctypes.data) if key in known else 0

    def perform(self, tell: Callable[[float], None], lost: Callable[[], int | None]) -> list[float]:
        """All turns: the seconds that each took here. ``tell`` gets the fraction done; ``lost``: a rank whose process
        has ended, if there is one. Raises SchedError (SL813) where a rank is lost or time is over."""
        run, mine, seconds = self._run, self.watches[self._rank], []
        for turn in range(run.repeat):
            for array, given in self._fed:
                array[...] = given
            self._meet(turn + 1, lost)
            begun = time.perf_counter()
            status = launch(self._program, self._arguments, mine, run.mode, run.timeout)
            seconds.append(time.perf_counter() - begun)
            if status:
                raise self._failure(status, lost())
            tell((turn + 1) / run.repeat)
        return seconds

    def _meet(self, turn: int, lost: Callable[[], int | None]) -> None:
        """Waits until all ranks are about to begin a turn."""
        self._turns[self._rank][0] = turn
        end, looks = time.monotonic() + self._run.timeout, 0
        while (late := [r for r, reached in enumerate(self._turns) if reached[0] < turn]):
            looks += 1
            if looks < _SPINS:
                os.sched_yield()
                continue
            time.sleep(0.0005)
            if lost() is not None or time.monotonic() > end:
                gone = lost()
                raise ended(gone) if gone is not None else SchedError(error(
                    "SL813", f"rank {self._rank} waits in vain for rank {late[0]} before an execution", rank=self._rank,
                    peer=late[0], help=f"see what has become of the process of rank {late[0]}"))

    def _failure(self, status: int, gone: int | None) -> SchedError:
        if gone is not None:
            return ended(gone)
        mine = self.watches[self._rank]
        waits: list[Wait] = []
        for rank, watch in enumerate(self.watches):
            waits += waiting(self._program, _lanes(self._program, rank), watch, self._run.blocks)
        return failure(self._program, waits, mine.why, status, self._run.timeout)


def ended(rank: int) -> SchedError:
    """A process has ended before the run did."""
    return SchedError(error("SL813", f"the process of rank {rank} has ended", rank=rank,
                            help=f"look at the log of rank {rank}"))


@contextmanager
def watched(processes: Mapping[int, int], watch: Watch) -> Iterator[Callable[[], int | None]]:
    """Stops what runs under ``watch`` when one of some processes (numbers by rank) ends. Yields a function that says
    which rank's that is."""
    gone: list[int] = []
    numbers: dict[int, int] = {}
    poll = select.poll()
    ours, theirs = os.pipe()                                # whose end is the end of watching

    def look() -> None:
        for number, _ in poll.poll():
            if number in numbers:
                gone.append(numbers[number])
                watch.stop()

    thread = threading.Thread(target=look, daemon=True, name="schedlang-watch")
    try:
        for rank, process in processes.items():
            try:
                numbers[os.pidfd_open(process)] = rank
            except ProcessLookupError:
                gone.append(rank)
        for number in (*numbers, ours):
            poll.register(number, select.POLLIN)
        thread.start()
        yield lambda: gone[0] if gone else None
    finally:
        os.close(theirs)
        if thread.ident is not None:
            thread.join()
        for number in (*numbers, ours):
            os.close(number)


def in_segment(place: Any, run: Run, program: Program, segment: Segment) -> list[float]:
    """The task of a rank that we started: as :meth:`Share.perform`. Whoever wants the ranks ends all when one ends."""
    return Share(segment, run, program, place.rank).perform(place.tell, lambda: None)
