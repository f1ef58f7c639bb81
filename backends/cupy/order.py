"""Mode ``streams``: what each stream is given, in an order in which everything waited for has been given before.

Made from the normal form, which lanes execute in order with flags between them (backends/cuda/normal.py). Here a
lane is a CUDA stream, and a flag is an event: recorded where the flag would be set, waited for where the flag would. A
message that is combined with what is there is read by a kernel on the receiver's stream, as the normal form has it, and
so is one that a GPU gets out of the host's memory. One that is copied else goes by the sender's stream, since copies
are fastest from there; it waits until the receiver's stream has come to the phase.

**Nothing waits for ever.** A stream waits for events only that were recorded before, in the order in which things are
given, so there is no circle. That such an order exists is what normal.py shows; it is found by walking all lanes, each
as far as what it waits for has been given.

**No place is written while it is read.** Streams order at least what flags do: what a lane posts comes after all that
its stream was given before; what it settles has been read by its own stream, or an event says so. The receiver's stream
waits for each message where it takes it. Between the phase's beginning and a copy into it the lane has only posted,
unless it took other messages, too: then the copy waits for these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from schedlang.backends.cuda.normal import Normal
from schedlang.ir.table import NONE
from schedlang.ops import Op


class Kind(IntEnum):
    """What a stream is given: to record an event, to wait for one, to move a value."""

    RECORD = 0
    WAIT = 1
    MOVE = 2


@dataclass(frozen=True, slots=True)
class Place:
    """Chunks of a buffer on a rank, from ``chunk`` on."""

    rank: int
    buffer: int
    chunk: int


@dataclass(frozen=True, slots=True)
class Item:
    """Given to the stream of ``lane``. ``event``: of RECORD and WAIT. Of MOVE: ``count`` chunks, the first of length
    class ``like``, ``from_`` one place ``into`` another, combined with those at ``own``, or copied where that is None.
    ``row``: of the normal form, the operation that this is for.
    """

    kind: Kind
    lane: int
    event: int = NONE
    from_: Place | None = None
    into: Place | None = None
    own: Place | None = None
    count: int = 0
    like: int = 0
    row: int = NONE


@dataclass(frozen=True)
class Given:
    """``items``, in order. ``lanes``: rank and stream of each. ``events``: the lane that records each. ``landing``: for
    each lane, the chunks that it needs to put down messages that it cannot read where they are."""

    items: tuple[Item, ...]
    lanes: tuple[tuple[int, int], ...]
    events: tuple[int, ...]
    landing: tuple[int, ...]


def order(normal: Normal, reaches: Callable[[int, int], bool] = lambda rank, peer: True) -> Given:
    """The order for a normal form. ``reaches(rank, peer)``: whether kernels of a rank can read the memory of another;
    where not, messages that are combined are copied to ``landing`` first (a buffer behind those of the normal form)."""
    return _Order(normal, reaches).given()


_Message = tuple[int, int, int, int]
"""Source, destination, tag, and number among those."""


class _Order:
    """The items given so far, and what later ones wait for: of messages the lane that ``posted`` them, the place where
    they stand, and the event after which a kernel may read them there; the event after which one is ``taken``, NONE
    where the sender's own stream says so; of the table's events (rank, event) the one that it is here."""

    def __init__(self, normal: Normal, reaches: Callable[[int, int], bool]) -> None:
        t = self.table = normal.table
        self.normal, self.reaches = normal, reaches
        lanes, lane = np.unique(np.stack([t.rank, t.stream], 1), axis=0, return_inverse=True)
        lane = lane.reshape(-1)
        self.lanes = [(int(r), int(s)) for r, s in lanes]
        rows = np.lexsort((np.arange(len(t)), t.step, lane))
        new = np.flatnonzero((np.diff(t.step[rows], prepend=NONE) != 0) | (np.diff(lane[rows], prepend=NONE) != 0))
        self.phases: list[list[list[int]]] = [[] for _ in self.lanes]
        for phase in np.split(rows, new)[1:]:
            self.phases[lane[phase[0]]].append(phase.tolist())
        receives = np.flatnonzero((t.op == Op.RECV) | (t.op == Op.REDUCE_RECV))
        self.receive = {self._message(int(t.peer[r]), int(t.rank[r]), r): r for r in receives.tolist()}
        self.items: list[Item] = []
        self.events: list[int] = []
        self.last: list[int | None] = [None] * len(self.lanes)      # the event after which a stream was given nothing
        self.posted: dict[_Message, tuple[int, Place, int]] = {}
        self.taken: dict[_Message, int] = {}
        self.recorded: dict[tuple[int, int], int] = {}
        self.landing = [0] * len(self.lanes)

    def given(self) -> Given:
        """Walks all lanes, a phase at a time, until each has come to its end."""
        walks = deque(self._walk(lane) for lane in range(len(self.lanes)))
        in_vain = 0
        while walks:
            before = len(self.items) + len(self.posted)
            if next(walks[0], None) is None:
                walks.popleft()
                in_vain = 0
                continue
            walks.rotate(-1)
            in_vain = in_vain + 1 if len(self.items) + len(self.posted) == before else 0
            assert in_vain <= 2 * len(walks), "lanes of a normal form wait for each other"
        return Given(tuple(self.items), tuple(self.lanes), tuple(self.events), tuple(self.landing))

    def _walk(self, lane: int) -> Iterator[bool]:
        """Gives a lane's stream what it has to do; yields where something else must come first, and after a phase."""
        n, sends, settled = self.normal, list[_Message](), 0
        for phase in self.phases[lane]:
            for pending in (int(n.before[phase[0]]), None, int(n.after[phase[0]])):
                if pending is None:
                    yield from self._phase(lane, phase, sends)
                    continue
                upto = settled if pending == NONE else len(sends) - pending
                for message in sends[settled:upto]:
                    while message not in self.taken:
                        yield False
                    self._wait(lane, self.taken[message])
                settled = max(settled, upto)
            yield True

    def _phase(self, lane: int, phase: list[int], sends: list[_Message]) -> Iterator[bool]:
        t, rank = self.table, self.lanes[lane][0]
        begun = self._record(lane) if (t.op[phase] == Op.RECV).any() else NONE
        for row in phase:
            op, peer = t.op[row], int(t.peer[row])
            if op == Op.SEND:
                message = self._message(rank, peer, row)
                event = self._record(lane) if self._read_there(row, self.receive[message]) else NONE
                self.posted[message] = lane, self._place(row), event
                sends.append(message)
            elif op in (Op.RECV, Op.REDUCE_RECV):
                message = self._message(peer, rank, row)
                while message not in self.posted:
                    yield False
                if op == Op.RECV and self.posted[message][2] == NONE:
                    begun = self._record(lane) if begun == NONE else begun
                    self._fetch(lane, row, message, begun)
                else:
                    self._read(lane, row, message)
                    begun = NONE                            # what is copied to here now comes after that
            elif op == Op.RECORD:
                self.recorded[rank, int(t.event[row])] = self._record(lane)
            elif op == Op.WAIT:
                awaited = rank, int(t.event[row])
                while awaited not in self.recorded:
                    yield False
                self._wait(lane, self.recorded[awaited])
            else:
                source = Place(rank, int(t.from_buffer[row]), int(t.from_chunk[row]))
                self._move(lane, row, source, self._place(row), self._place(row) if op == Op.REDUCE else None)

    def _fetch(self, lane: int, row: int, message: _Message, begun: int) -> None:
        """A message is copied by its sender's stream, after ``begun``."""
        sender, source, _ = self.posted[message]
        self._wait(sender, begun)
        self._move(sender, row, source, self._place(row), None)
        self._wait(lane, self._record(sender))
        self.taken[message] = NONE

    def _read_there(self, send: int, receive: int) -> bool:
        """Whether the receiver's stream reads a message where it is."""
        t = self.table
        on_host = t.buffers[t.buffer[send]].place == "host"
        if t.op[receive] == Op.REDUCE_RECV:
            return on_host or self.reaches(int(t.rank[receive]), int(t.rank[send]))
        return on_host and t.buffers[t.buffer[receive]].place != "host"

    def _read(self, lane: int, row: int, message: _Message) -> None:
        """The receiver's stream copies a message, or combines it with an operand: where it is, or where it has been
        copied."""
        t = self.table
        sender, source, event = self.posted[message]
        if event == NONE:
            self.landing[lane] = max(self.landing[lane], int(t.count[row]))
            landing = Place(self.lanes[lane][0], len(t.buffers) + lane, 0)
            self._wait(sender, self._record(lane))
            self._move(sender, row, source, landing, None)
            source, event = landing, self._record(sender)
        self._wait(lane, event)
        own = Place(self.lanes[lane][0], int(t.from_buffer[row]), int(t.from_chunk[row]))
        self._move(lane, row, source, self._place(row), own if t.op[row] == Op.REDUCE_RECV else None)
        self.taken[message] = NONE if source.buffer >= len(t.buffers) else self._record(lane)

    def _message(self, source: int, destination: int, row: int) -> _Message:
        return source, destination, int(self.normal.tag[row]), int(self.normal.message[row])

    def _place(self, row: int) -> Place:
        t = self.table
        return Place(int(t.rank[row]), int(t.buffer[row]), int(t.chunk[row]))

    def _record(self, lane: int) -> int:
        """An event for all that a stream was given so far."""
        event = self.last[lane]
        if event is None:
            event = len(self.events)
            self.events.append(lane)
            self._give(Item(Kind.RECORD, lane, event=event))
            self.last[lane] = event
        return event

    def _wait(self, lane: int, event: int) -> None:
        if event != NONE and self.events[event] != lane:
            self._give(Item(Kind.WAIT, lane, event=event))

    def _move(self, lane: int, row: int, source: Place, into: Place, own: Place | None) -> None:
        count, like = int(self.table.count[row]), int(self.normal.like[row])
        self._give(Item(Kind.MOVE, lane, from_=source, into=into, own=own, count=count, like=like, row=row))

    def _give(self, item: Item) -> None:
        self.items.append(item)
        self.last[item.lane] = None
