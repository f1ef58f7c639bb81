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
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import finalize, ref

from schedlang.backends.native.launching import Watch
from schedlang.backends.native.memory import require
from schedlang.backends.native.shares import ended
from schedlang.diagnostics import SchedError, error

SLOT = 4096
"""Bytes for what a rank says of a call."""

MAPPED = 256
"""So many pieces of other ranks stay mapped; the one used longest ago goes first."""

_SPINS = 4000
"""Looks at what a rank says before there is a pause between them."""

_HEAD = struct.Struct("<qII")
"""Of a slot: the number of the call, how many bytes follow, and their checksum: half-written ones have another."""

_PLACE, _NUMBER = struct.Struct("<qqqqq"), struct.Struct("<q")


class ReachStruct(ctypes.Structure):
    """``Reach`` of lane.cuh."""

    _fields_ = (("process", ctypes.c_longlong), ("buffers", ctypes.c_void_p))


class Piece:
    """Memory of this process that others can map, at first all 0; it goes when nobody needs :attr:`memory` any more."""

    def __init__(self, size: int) -> None:
        """Raises MemoryError."""
        size = max(size, 1)
        require(size)
        self._number = os.memfd_create("schedlang", os.MFD_CLOEXEC)
        os.truncate(self._number, size)
        self.memory = mmap.mmap(self._number, size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.size = size
        self.id = _next_id()
        _known.add(self.address, size, self._number, self.id)
        finalize(self.memory, _known.forget, self.address, self._number)


_ids = iter(range(1, 1 << 62))


def _next_id() -> int:
    return next(_ids)


class _Known:
    """The pieces of this process, by where they are."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._pieces: dict[int, tuple[int, int, int]] = {}
        self._lock = threading.RLock()                      # finalizers come at any time, in any thread

    def add(self, start: int, size: int, number: int, id: int) -> None:
        with self._lock:
            bisect.insort(self._starts, start)
            self._pieces[start] = size, number, id

    def forget(self, start: int, number: int) -> None:
        with self._lock:
            self._starts.remove(start)
            del self._pieces[start]
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
        self._mine = Piece(3 * SLOT)                        # what it says, in turn; and which call it has done last
        place = Where.of(self._mine.address, 3 * SLOT)
        told = exchange(json.dumps([_machine(), os.getpid(), place.number, place.address]))
        self._slots: list[mmap.mmap] = []
        self._maps: OrderedDict[tuple[int, int], tuple[mmap.mmap, int]] = OrderedDict()
        self.processes, reason, reads = [], "", True
        for peer, text in enumerate(told):
            machine, process, number, address = json.loads(text)
            self.processes.append(process)
            try:
                if machine != _machine():
                    raise OSError(0, "it is on another machine, or in another container")
                self._slots.append(self._mine.memory if peer == rank else _mapped(process, number))
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
        self._watch: Watch | None = None
        ours, theirs = os.pipe()
        numbers = {}
        for peer, process in enumerate(self.processes):
            if peer != rank:
                numbers[os.pidfd_open(process)] = peer
        threading.Thread(target=_look, args=(ref(self), numbers, ours), daemon=True, name="schedlang-watch").start()
        finalize(self, os.close, theirs)

    @contextmanager
    def watched(self, watch: Watch) -> Iterator[Callable[[], int | None]]:
        """What is launched meanwhile is stopped when a rank ends that has not done this call. Yields a function that
        says which one that is."""
        watch.clear()
        self._watch = watch
        if self.gone() is not None:
            watch.stop()
        try:
            yield self.gone
        finally:
            self._watch = None

    def gone(self) -> int | None:
        """A rank whose process has ended before this call was done there."""
        return next((rank for rank in self._ended if self._done(rank) < self.turn), None)

    def _done(self, peer: int) -> int:
        done: int = _NUMBER.unpack_from(self._slots[peer], 2 * SLOT)[0]
        return done

    def end(self) -> None:
        """This call is done here."""
        _NUMBER.pack_into(self._mine.memory, 2 * SLOT, self.turn)

    def say(self, record: bytes) -> None:
        """Begin the next call. A slot is written again two calls later: then all have begun the one between, and read
        this."""
        assert len(record) + _HEAD.size <= SLOT, len(record)
        self.turn += 1
        at = self.turn % 2 * SLOT
        self._mine.memory[at + _HEAD.size : at + _HEAD.size + len(record)] = record
        self._mine.memory[at : at + _HEAD.size] = _HEAD.pack(self.turn, len(record), zlib.crc32(record))

    def hear(self, peer: int, timeout: float, turn: int | None = None) -> bytes:
        """What a rank says of this call, or of one that it may not have begun. Raises SchedError (SL813) where it has
        ended, or says nothing in time."""
        turn = self.turn if turn is None else turn
        at, memory, looks, end = turn % 2 * SLOT, self._slots[peer], 0, 0.0
        while True:
            number, length, check = _HEAD.unpack_from(memory, at)
            if number == turn:
                data = memory[at + _HEAD.size : at + _HEAD.size + length]
                if zlib.crc32(data) == check:
                    return data
            looks += 1
            if looks < _SPINS:
                os.sched_yield()
                continue
            end = end or time.monotonic() + timeout
            time.sleep(0.0002)
            if peer in self._ended and self._done(peer) < turn:
                raise ended(peer)
            if time.monotonic() > end:
                raise SchedError(error(
                    "SL813", f"rank {self.rank} waits in vain for rank {peer}, which does not make call {turn} on "
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
