"""Ranks of one machine that make calls together: each tells the others, in memory that they share, what it means and
where its buffers are.

Memory of a rank that others have mapped is read directly, other memory through the system (process_vm_readv), where
that is allowed.
"""

from __future__ import annotations

import bisect
import ctypes
import json
import mmap
import os
import select
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import finalize, ref

import numpy as np

from schedlang.backends.native.compiler import load
from schedlang.backends.native.launching import LONGEST, Watch
from schedlang.backends.native.shares import ended
from schedlang.diagnostics import SchedError, error
from schedlang.memory import require

SLOT = 4096
"""Bytes for what a rank says of a call, and ``Slot`` of meet.cpp before it."""

MAPPED = 256
"""So many pieces of other ranks stay mapped; the one used longest ago goes first."""

LOOKS = 300
"""At what a rank says, before this one sleeps until it says something."""

_SOURCE = Path(__file__).parent / "meet.cpp"

_PLACE, _NUMBER = struct.Struct("<qqqqq"), struct.Struct("<q")


class ReachStruct(ctypes.Structure):
    """``Reach`` of lane.cuh."""

    _fields_ = (("process", ctypes.c_longlong), ("buffers", ctypes.c_void_p))


class RanksStruct(ctypes.Structure):
    """``Ranks`` of meet.cpp."""

    _fields_ = (("slots", ctypes.c_void_p), ("ranks", ctypes.c_int), ("rank", ctypes.c_int), ("gone", ctypes.c_void_p),
                ("looks", ctypes.c_int))


def _patience(timeout: float) -> int:
    """In nanoseconds."""
    return int(min(timeout, LONGEST) * 1e9)


class Piece:
    """Memory of this process that others can map, at first all 0. When nobody here needs :attr:`memory` any more it is
    given back, though others still have it mapped: unless it is ``lasting``, or a call has gone wrong, they read it in
    calls only that this process makes, too."""

    def __init__(self, size: int, *, lasting: bool = False) -> None:
        """``lasting``: it stays as long as others have it mapped. Raises MemoryError."""
        size = max(size, 1)
        require(size)
        self._number = os.memfd_create("schedlang", os.MFD_CLOEXEC)
        os.truncate(self._number, size)
        self.memory = mmap.mmap(self._number, size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.size = size
        self.id = _next_id()
        _known.add(self.address, size, self._number, self.id)
        finalize(self.memory, _known.forget, self.address, self._number, lasting).atexit = False


_ids = iter(range(1, 1 << 62))


def _next_id() -> int:
    return next(_ids)


class _Known:
    """The pieces of this process, by where they are."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._pieces: dict[int, tuple[int, int, int]] = {}
        self.lasting = False                                # whether all of them last, from here on
        self._lock = threading.RLock()                      # finalizers come at any time, in any thread

    def add(self, start: int, size: int, number: int, id: int) -> None:
        with self._lock:
            bisect.insort(self._starts, start)
            self._pieces[start] = size, number, id

    def forget(self, start: int, number: int, lasting: bool) -> None:
        with self._lock:
            self._starts.remove(start)
            del self._pieces[start]
        if not (lasting or self.lasting):
            os.truncate(number, 0)
        os.close(number)

    def at(self, address: int, size: int) -> tuple[int, int, int] | None:
        """The file's number, the piece's id and the offset in it; None for other memory."""
        with self._lock:
            k = bisect.bisect_right(self._starts, address) - 1
            if k < 0:
                return None
            start = self._starts[k]
            length, number, id = self._pieces[start]
        return (number, id, address - start) if address + size <= start + length else None


_known = _Known()


def broken() -> None:
    """A call of this process has gone wrong: others may still be at it, and read what is here."""
    _known.lasting = True


def shared_at(address: int, size: int) -> tuple[int, int, int] | None:
    """Where memory of this process is that others can map: the file's number, the piece's id, and the offset in it;
    None for other memory."""
    return _known.at(address, size)


@dataclass(frozen=True)
class Where:
    """Memory of a rank. ``number``: of the file that it is in, -1 where it is in none; ``id`` of that piece of memory,
    and ``offset`` in it; ``address`` in the rank's own process, 0 where there is none; ``size`` in bytes."""

    number: int
    id: int
    offset: int
    address: int
    size: int

    @classmethod
    def of(cls, address: int, size: int) -> Where:
        """Of memory of this process."""
        number, id, offset = _known.at(address, size) or (-1, 0, 0)
        return cls(number, id, offset, address, size)

    def pack(self) -> bytes:
        return _PLACE.pack(self.number, self.id, self.offset, self.address, self.size)


def unpacked(data: bytes) -> list[Where]:
    """Several of them."""
    return [Where(*fields) for fields in _PLACE.iter_unpack(data)]


NOWHERE = Where(-1, 0, 0, 0, 0)


class Meeting:
    """The ranks of a group, from this rank's side. Not for several threads at once."""

    def __init__(self, rank: int, size: int, exchange: Callable[[str], list[str]]) -> None:
        """``exchange``: gives what all ranks, in their order, have given. Raises SchedError (SL811) on all ranks where
        they are not on one machine, or cannot see each other's memory."""
        self.rank, self.size = rank, size
        self.turn = 0
        self._mine = Piece(3 * SLOT, lasting=True)          # what it says, in turn; and which call it has done last
        place = Where.of(self._mine.address, 3 * SLOT)
        if rank == 0:
            load(_SOURCE.read_text())                       # which the others find, then
        told = exchange(json.dumps([_machine(), os.getpid(), place.number, place.address]))
        self._memory: list[mmap.mmap] = []
        self._maps: OrderedDict[tuple[int, int], tuple[mmap.mmap, int]] = OrderedDict()
        self.processes, reason, reads = [], "", True
        for peer, text in enumerate(told):
            machine, process, number, address = json.loads(text)
            self.processes.append(process)
            try:
                if machine != _machine():
                    raise OSError(0, "it is on another machine, or in another container")
                self._memory.append(self._mine.memory if peer == rank else _mapped(process, number))
                reads = reads and (peer == rank or readable(process, address))
            except OSError as cause:
                reason = reason or f"rank {rank} cannot reach the memory of rank {peer}: {cause.strerror}"
        answers = [json.loads(text) for text in exchange(json.dumps([reason, reads]))]
        first = next((answer[0] for answer in answers if answer[0]), None)
        if first is not None:
            raise SchedError(error("SL811", first, help="the ranks must be on one machine, of one user, and see each "
                                                        "other's processes; else leave out local=\"native\""))
        self.reads = all(answer[1] for answer in answers)
        """Whether all ranks can read memory of the others that is not mapped."""
        self._ended: list[int] = []
        self._gone = np.zeros(size, np.intc)                # the same, for schedlang_hear
        self._watch: Watch | None = None
        self._library = load(_SOURCE.read_text())
        starts = [ctypes.addressof(ctypes.c_char.from_buffer(memory)) for memory in self._memory]
        self._slots = np.array([start + k * SLOT for start in starts for k in range(2)], np.uintp)
        self._ranks = RanksStruct(self._slots.ctypes.data, size, rank, self._gone.ctypes.data, LOOKS)
        self._ranks_at = ctypes.c_void_p(ctypes.addressof(self._ranks))
        self._library.schedlang_meet.argtypes = (
            ctypes.c_void_p, ctypes.c_ulonglong, ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint,
            ctypes.c_uint, ctypes.c_char_p, ctypes.c_longlong)
        self._library.schedlang_hear.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_ulonglong, ctypes.c_longlong)
        ours, theirs = os.pipe()
        numbers = {}
        for peer, process in enumerate(self.processes):
            if peer != rank:
                numbers[os.pidfd_open(process)] = peer
        threading.Thread(target=_look, args=(ref(self), numbers, ours), daemon=True, name="schedlang-watch").start()
        finalize(self, os.close, theirs)

    def begin(self, watch: Watch) -> None:
        """What is launched from here on is stopped when a rank ends that has not done this call."""
        watch.clear()
        self._watch = watch
        if self._ended and self.gone() is not None:
            watch.stop()

    def end(self) -> None:
        """This call is done here, well or not."""
        self._watch = None
        _NUMBER.pack_into(self._mine.memory, 2 * SLOT, self.turn)

    def gone(self) -> int | None:
        """A rank whose process has ended before this call was done there."""
        return next((rank for rank in self._ended if self._done(rank) < self.turn), None)

    def _done(self, peer: int) -> int:
        done: int = _NUMBER.unpack_from(self._memory[peer], 2 * SLOT)[0]
        return done

    def meet(self, record: bytes, meaning: tuple[int, int], places: int, known: bytes | None, timeout: float) -> bool:
        """Begin the next call: say ``record``, and hear what the others say. Whether all mean the same (the bytes of
        ``meaning`` are alike), and what they say from ``places`` on is what is ``known``, one after the other.

        Raises SchedError (SL813) where one has ended, or says nothing in time."""
        assert len(record) + 16 <= SLOT, len(record)
        self.turn += 1
        status = self._library.schedlang_meet(
            self._ranks_at, self.turn, record, len(record), *meaning, places, known, _patience(timeout))
        if status < 0:
            raise self._missed(-1 - status, self.turn)
        return bool(status == 0)

    def said(self) -> list[bytes]:
        """What each rank has said of this call."""
        at, found = self.turn % 2 * SLOT, []
        for memory in self._memory:
            length = int.from_bytes(memory[at + 12 : at + 16], "little")
            found.append(memory[at + 16 : at + 16 + length])
        return found

    def follow(self, peer: int, timeout: float) -> None:
        """Wait until a rank has begun the next call. Raises SchedError (SL813) as :meth:`meet`."""
        if self._library.schedlang_hear(self._ranks_at, peer, self.turn + 1, _patience(timeout)):
            raise self._missed(peer, self.turn + 1)

    def _missed(self, peer: int, turn: int) -> SchedError:
        broken()
        if peer in self._ended:
            return ended(peer)
        return SchedError(error(
            "SL813", f"rank {self.rank} waits in vain for rank {peer}, which does not make call {turn} of those on "
                     "shared memory", rank=self.rank, peer=peer,
            help=f"see what has become of rank {peer}; the process group cannot be used any more"))

    def address(self, peer: int, where: Where) -> tuple[int, object]:
        """Where memory of a rank is in this process, 0 where it is not mapped; and what must be kept as long as it is
        to be there."""
        if peer == self.rank or where.number < 0:
            return where.address if peer == self.rank else 0, None
        key = peer, where.id
        found = self._maps.pop(key, None)
        if found is None:
            memory = _mapped(self.processes[peer], where.number)
            found = memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._maps[key] = found
        if len(self._maps) > MAPPED:
            self._maps.popitem(last=False)
        return found[1] + where.offset, found[0]


def _mapped(process: int, number: int) -> mmap.mmap:
    file = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
    try:
        return mmap.mmap(file, 0)
    finally:
        os.close(file)


def _machine() -> str:
    """The machine, since it was started, and the processes that can be seen on it."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"


def _look(meeting: ref[Meeting], numbers: dict[int, int], end: int) -> None:
    """Hears of processes (pidfds, by which rank each is) that end, until ``end`` does."""
    poll = select.poll()
    for number in (*numbers, end):
        poll.register(number, select.POLLIN)
    while True:
        ready = [number for number, _ in poll.poll()]
        if end in ready:
            break
        here = meeting()
        for number in ready:
            poll.unregister(number)
            if here is not None:
                here._ended.append(numbers[number])
                here._gone[numbers[number]] = 1
        if here is not None and here._watch is not None and here.gone() is not None:
            here._watch.stop()
        del here
    for number in (*numbers, end):
        os.close(number)


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def readable(process: int, address: int) -> bool:
    """Whether the system lets this process read memory of another."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "process_vm_readv", None)
    if call is None:
        return False
    word = ctypes.c_char()
    mine, theirs = _Vector(ctypes.addressof(word), 1), _Vector(address, 1)
    call.restype = ctypes.c_ssize_t
    return bool(call(process, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) == 1)


def reached(processes: Sequence[int], which: Sequence[bool], addresses: Any) -> ctypes.Array[ReachStruct]:
    """What :class:`~.arguments.Arguments` takes as `reach`. ``which``: the ranks that are read through the system;
    ``addresses``: shape (ranks, buffers), uintp, in their processes."""
    found = (ReachStruct * len(processes))()
    for rank, (process, through) in enumerate(zip(processes, which, strict=True)):
        found[rank] = ReachStruct(process if through else 0, addresses[rank].ctypes.data)
    return found
