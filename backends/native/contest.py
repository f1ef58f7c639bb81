"""Schedules timed against the copying of as many bytes, in turn, with all ranks as threads of this process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from schedlang.backends.cuda.arguments import Sizes, sizes
from schedlang.backends.cuda.traffic import touched
from schedlang.backends.native.launching import Mode, failure, launch, waiting
from schedlang.backends.native.memory import Own, aligned
from schedlang.backends.native.program import carrier, program
from schedlang.backends.native.task import Task
from schedlang.ir.layout import Layout
from schedlang.ir.table import Array, OpTable
from schedlang.running.binding import Bound, starts
from schedlang.running.dtypes import named

LEAST = 7
"""So many rounds are timed, however long they take."""


def contest(tables: Sequence[OpTable], elements: int, dtype: str, *, rounds: int, seconds: float, slice_bytes: int,
            blocks: int, timeout: float) -> list[tuple[list[float], list[float]]]:
    """For each table the seconds of each round, and those of copying, by as many threads as there are processors, half
    the bytes that its ranks must read and write together (:mod:`schedlang.backends.cuda.traffic`): what is copied is
    read and written. Each round begins with another table. Tensors hold zeros.

    Raises SchedError: SL802 where the size does not fit, SL804 without a compiler, SL813 where time is over.
    """
    sides = [_Side(table, elements, dtype, slice_bytes, blocks, timeout) for table in tables]
    begun = time.perf_counter()
    for side in sides:
        side.run()
        side.copy()
    rounds = min(rounds, max(LEAST, int(seconds / max(time.perf_counter() - begun, 1e-6))))
    found: list[tuple[list[float], list[float]]] = [([], []) for _ in sides]
    for turn in range(rounds):
        for k in range(len(sides)):
            which = (turn + k) % len(sides)
            for one, times in zip((sides[which].run, sides[which].copy), found[which], strict=True):
                times.append(_timed(one))
    return found


def _timed(call: Callable[[], None]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


class _Side:
    """A table, ready to run, and what is copied beside it."""

    def __init__(self, table: OpTable, elements: int, dtype: str, slice_bytes: int, blocks: int,
                 timeout: float) -> None:
        kind = named(dtype)
        self._own = Own(program(table, *carrier(table, kind, table.operator)), blocks)
        bound = Bound(kind, Layout(table, elements))
        inputs = [{name: np.zeros(int(bound.lengths_of(name, rank, chunks).sum()), kind.numpy)
                   for name, chunks in here.items()} for rank, here in enumerate(starts(table))]
        self._task = Task(self._own, table, bound, kind, inputs, slice_bytes)
        self._task.fill()
        self._arguments = self._task.arguments()
        self._timeout = timeout
        normal = self._own.program.kernel.normal
        made = sizes(Layout(normal.table, elements), kind.numpy.itemsize)
        self._copied = touched(normal, _lengths(made)) * kind.numpy.itemsize // 2
        room = sum(array.nbytes for here in inputs for array in here.values()) // 2
        self._from, self._to = (aligned(max(1, min(room, self._copied)), np.dtype(np.uint8), zero=True)
                                for _ in range(2))

    def run(self) -> None:
        """Launch the kernel once."""
        own = self._own
        own.watch.clear()
        status = launch(own.program, self._arguments, own.watch, Mode(), self._timeout)
        if status:
            own.forget()
            raise failure(own.program, waiting(own.program, own.lanes, own.watch, own.blocks), own.watch.why, status,
                          self._timeout)

    def copy(self) -> None:
        """Copy as many bytes, round and round in as much memory as the schedule works on."""
        whole, rest = divmod(self._copied, len(self._from))
        threads = len(os.sched_getaffinity(0))
        parts = np.linspace(0, len(self._from), threads + 1).astype(int).tolist()

        def part(k: int) -> None:
            here = slice(parts[k], parts[k + 1])
            for _ in range(whole):
                np.copyto(self._to[here], self._from[here])
            last = slice(parts[k], min(parts[k + 1], parts[k] + rest // threads))
            np.copyto(self._to[last], self._from[last])

        if self._copied < 1 << 20:                          # threads would take longer to begin
            for k in range(threads):
                part(k)
        else:
            list(_threads(threads).map(part, range(threads)))


_pools: dict[int, ThreadPoolExecutor] = {}


def _threads(number: int) -> ThreadPoolExecutor:
    if number not in _pools:
        _pools[number] = ThreadPoolExecutor(number)
    return _pools[number]


def _lengths(made: Sizes) -> Array:
    """How long values are, by length class."""
    cut = made.values
    if cut.table is not None:
        return np.diff(cut.table)
    return cut.each + (np.arange(cut.parts) < cut.longer).astype(np.int64)
