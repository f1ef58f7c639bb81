"""Launching a compiled kernel on a CPU, and what to say where it does not come to its end."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np

from schedlang.backends.cuda import Kernel
from schedlang.backends.cuda.arguments import Arguments, ModeStruct
from schedlang.backends.native.program import Program
from schedlang.diagnostics import Diagnostic, Note, SchedError, error
from schedlang.ir.origin import at_row, came_from
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ir.words import row_text, standing
from schedlang.ops import Op

WATCH_WORDS, WAITING_WORDS = 8, 8
"""int32 words of the head of a watch, and of what each block says in it."""

LONGEST = (1 << 62) / 1e9
"""Seconds of the longest timeout."""


class Kind(IntEnum):
    """How the threads of a kernel run."""

    THREADS = 0
    FIBERS = 1


class Stop(IntEnum):
    """Why all blocks ended early, as lane.cuh has it."""

    GO = 0
    ASKED = 1
    TIMEOUT = 2
    DEADLOCK = 3
    UNREADABLE = 4


class _For(IntEnum):
    """What a block waits for, as lane.cuh has it."""

    NOTHING = 0
    MESSAGE = 1
    TAKEN = 2
    EVENT = 3
    BARRIER = 4


@dataclass(frozen=True)
class Mode:
    """How a kernel runs. ``threads`` of each block; ``looks`` at a flag before a thread sleeps, the last ``yields`` of
    which give the processor away each time. The others are for tests: ``delays``: one in so many times that a flag is
    looked at something else comes first, ``delay`` microseconds at most; ``seed``: of all that is random."""

    kind: Kind = Kind.THREADS
    threads: int = 1
    looks: int = 1000
    yields: int = 1000
    delays: int = 0
    delay: int = 0
    seed: int = 0

    def struct(self, timeout: float) -> ModeStruct:
        """The same for a kernel; ``timeout`` in seconds."""
        return ModeStruct(self.kind, self.threads, self.looks, self.yields, self.delays, self.delay, self.seed,
                          int(min(timeout, LONGEST) * 1e9))


class Watch:
    """What blocks say of themselves while they wait long, and the word that stops them."""

    def __init__(self, words: Array) -> None:
        """``words``: int32, :func:`watch_words` of them, in memory that stays."""
        self.words = words

    @property
    def address(self) -> int:
        """Where it is in this process."""
        return int(self.words.ctypes.data)

    @property
    def why(self) -> Stop:
        """Why blocks were stopped."""
        return Stop(int(self.words[0]))

    def clear(self) -> None:
        """Before a launch."""
        self.words[...] = 0

    def stop(self) -> None:
        """End whatever runs; unless it has another reason already."""
        if self.words[0] == Stop.GO:
            self.words[0] = Stop.ASKED

    def waits(self, lanes: int, blocks: int) -> list[tuple[int, int, int, int, int]]:
        """Kind, peer, tag, message and slice that each lane waits for (the first of its blocks that waits)."""
        said = self.words[WATCH_WORDS:][: lanes * blocks * WAITING_WORDS].reshape(lanes, blocks, WAITING_WORDS)
        found = []
        for lane in said.tolist():
            first = next((words for words in lane if words[0] != _For.NOTHING), lane[0])
            found.append((first[0], first[1], first[2], first[3], first[4]))
        return found


def watch_words(lanes: int, blocks: int) -> int:
    """The length of a watch for so many lanes."""
    return WATCH_WORDS + WAITING_WORDS * lanes * blocks


def launch(program: Program, arguments: Arguments, watch: Watch, mode: Mode, timeout: float) -> int:
    """Run the lanes of ``arguments`` to their end: 0; or 1 where they were stopped (``watch`` says why), 2 where none
    could go on, 3 where the system has not got the threads."""
    call: Callable[..., int] = program.library.schedlang_launch
    made = _struct(mode, timeout)
    return call(ctypes.byref(arguments.struct), ctypes.c_int(arguments.lanes), ctypes.byref(made))


@functools.lru_cache(64)
def _struct(mode: Mode, timeout: float) -> ModeStruct:
    return mode.struct(timeout)


@dataclass(frozen=True)
class Wait:
    """A lane waits: in ``row`` of the normal form, for rank ``peer`` (itself, where it waits for an event)."""

    rank: int
    peer: int
    row: int


class Launched(Protocol):
    """What is known of a kernel that lanes execute, here or on GPUs."""

    @property
    def kernel(self) -> Kernel: ...

    @property
    def table(self) -> OpTable: ...


def waiting(program: Launched, lanes: Sequence[tuple[int, int]], watch: Watch, blocks: int) -> list[Wait]:
    """What the lanes (rank and program) that have stopped waited for, as far as they have said so."""
    table, normal = program.table, program.kernel.normal
    found = []
    for (rank, number), (kind, peer, tag, message, _) in zip(lanes, watch.waits(len(lanes), blocks), strict=True):
        if kind in (_For.NOTHING, _For.BARRIER):
            continue
        here = (table.rank == rank) & (table.stream == program.kernel.programs[number])
        if kind == _For.EVENT:
            here &= (table.op == Op.WAIT) & (program.kernel.flags == message)
        else:
            sends = table.op == Op.SEND
            here &= (table.peer == peer) & (normal.tag == tag) & (normal.message == message)
            here &= sends if kind == _For.TAKEN else ~sends
        rows = np.flatnonzero(here)
        found.append(Wait(rank, peer, int(rows[0]) if len(rows) else NONE))
    return found


def failure(program: Launched, waits: Sequence[Wait], why: Stop, status: int, timeout: float, *,
            error_number: int = 0, by: int = NONE) -> SchedError:
    """What to raise after :func:`launch` has returned ``status``. ``waits``: of all ranks, as far as known."""
    if status == 3:
        return SchedError(error("SL811", f"{program.table.name} has {len(program.kernel.lanes)} lanes, and the system "
                                         "does not give as many threads",
                                help="take fewer ranks, or raise the limit: ulimit -u"))
    if why == Stop.UNREADABLE:
        cause = os.strerror(error_number) or errno.errorcode.get(error_number, str(error_number))
        return SchedError(error("SL813", f"the memory of rank {by} cannot be read any more: {cause}", rank=by,
                                help=f"see what has become of the process of rank {by}"))
    return SchedError(_vain(program.table, waits, why, timeout))


def _vain(table: OpTable, waits: Sequence[Wait], why: Stop, timeout: float) -> Diagnostic:
    when = {Stop.TIMEOUT: f" for {timeout:g} seconds", Stop.DEADLOCK: ": no lane can go on"}.get(why, "")
    if not waits:
        return error("SL813", f"{table.name} did not come to its end{when or ' in time'}, though no rank waits for "
                              "another", help="give it more time: --timeout", location=table.location)
    waiting_ranks = {wait.rank for wait in waits}
    first = next((wait for wait in waits if wait.peer not in waiting_ranks), waits[0])
    notes = [Note(f"rank {wait.rank} waits for {'itself' if wait.peer == wait.rank else f'rank {wait.peer}'}: "
                  f"{_where(table, wait.row)}", None if wait.row == NONE else table.origin(wait.row)[0])
             for wait in waits if wait is not first][:4]
    who = "an event of its own" if first.peer == first.rank else f"rank {first.peer}"
    found = error("SL813", f"rank {first.rank} waits in vain for {who}{when}: {_where(table, first.row)}", notes=notes,
                  help="see what `schedlang verify` says of the schedule; if it is right, give more time: --timeout",
                  rank=first.rank, peer=first.peer, row=first.row)
    return at_row(found, table, first.row)


def _where(table: OpTable, row: int) -> str:
    if row == NONE:
        return "in a step that is not known"
    return f"{row_text(table, row)} ({standing(table, row)}{came_from(table, row)})"
