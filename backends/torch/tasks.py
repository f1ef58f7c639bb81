"""What one rank has to do, as tasks that say what they must come after, and the order in which they are done best."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from schedlang.ir.table import NONE

STAGING = -1
"""In place of a buffer's index: a slot of the executor's own memory."""

FOLLOWED = 64
"""So many tasks are looked at to find one that was sent."""


class Kind(IntEnum):
    """The kinds of instruction. Posts do not block, waits do."""

    POST_RECV = 0
    POST_SEND = 1
    WAIT_RECV = 2
    WAIT_SEND = 3
    COPY = 4
    REDUCE = 5


class Place(NamedTuple):
    """``chunks`` of them from ``first`` on of a buffer (its index); or, where ``buffer`` is STAGING, a slot for so
    many, whose number is ``first``."""

    buffer: int
    first: int
    chunks: int

    def cells(self) -> Iterator[tuple[int, int]]:
        """What hazards are about: chunks of buffers, whole slots."""
        if self.buffer == STAGING:
            yield self.buffer, self.first
        else:
            for chunk in range(self.first, self.first + self.chunks):
                yield self.buffer, chunk

    def overlaps(self, other: Place) -> bool:
        """Whether both have a chunk in common."""
        return (self.buffer == other.buffer and self.first < other.first + other.chunks
                and other.first < self.first + self.chunks)


class Instruction(NamedTuple):
    """One thing a rank does for ``row`` of the table.

    POST_RECV lands in ``target``, POST_SEND reads ``source``; each starts message number ``message`` of this rank with
    rank ``peer`` under ``tag``. WAIT_*: until that message is done; the other fields are those of its post.
    COPY: ``target = source``. REDUCE: ``target = operand (op) source``.
    """

    kind: Kind
    row: int
    target: Place | None = None
    source: Place | None = None
    operand: Place | None = None
    peer: int = NONE
    tag: int = NONE
    message: int = NONE


@dataclass
class _Cell:
    """Who touched a cell last: a message that is landing or the task that wrote it, and who has read that since."""

    landing: int = NONE
    writer: int = NONE
    sending: list[int] = field(default_factory=list)
    readers: list[int] = field(default_factory=list)


class Tasks:
    """Instructions in an order in which they may be done one by one (if posts came at the moment of their steps), each
    with the earlier ones it must come after. A wait enters when something first needs it."""

    def __init__(self, receives: Sequence[int]) -> None:
        """``receives``: of each send of the table, the row that receives it."""
        self._receives = receives
        self.instructions: list[Instruction] = []
        self.after: list[set[int]] = []
        self.follow: list[set[int]] = []
        self.slots: list[int] = []
        self._cells: dict[tuple[int, int], _Cell] = {}
        self._posts: list[int] = []                  # the task that posts each message
        self._waits: list[int] = []                  # the task that waits for it, or NONE
        self._last: dict[tuple[Kind, int, int], int] = {}

    def slot(self, count: int) -> Place:
        """A new place of ``count`` chunks."""
        self.slots.append(count)
        return Place(STAGING, len(self.slots) - 1, count)

    def receive(self, row: int, target: Place, peer: int, tag: int, arrived: Container[int] = ()) -> None:
        """Post a receive into ``target``. ``arrived``: rows of this rank and others whose messages have arrived
        wherever the one is sent that comes: what must be over for that need not be over before the post."""
        after = self._to_write([target], arrived)
        task = self._post(Instruction(Kind.POST_RECV, row, target=target, peer=peer, tag=tag), after)
        for cell in target.cells():
            self._cells[cell] = _Cell(landing=self.instructions[task].message)

    def send(self, row: int, source: Place, peer: int, tag: int) -> int:
        """Post a send from ``source``; the number of its message."""
        task = self._post(Instruction(Kind.POST_SEND, row, source=source, peer=peer, tag=tag), self._to_read([source]))
        for cell in source.cells():
            self._cell(cell).sending.append(self.instructions[task].message)
        return self.instructions[task].message

    def wait(self, message: int) -> None:
        """Wait for a message here, unless something has waited for it before."""
        self._wait(message)

    def copy(self, row: int, target: Place, source: Place) -> None:
        """Copy ``source`` to ``target``."""
        self._compute(Instruction(Kind.COPY, row, target, source), [source])

    def reduce(self, row: int, target: Place, operand: Place, source: Place) -> None:
        """Combine ``operand`` and ``source`` into ``target``."""
        self._compute(Instruction(Kind.REDUCE, row, target, source, operand), [operand, source])

    def finish(self) -> None:
        """Wait for all that was posted, receives first."""
        for kind in (Kind.POST_RECV, Kind.POST_SEND):
            for message, task in enumerate(self._posts):
                if self.instructions[task].kind == kind:
                    self._wait(message)

    def _post(self, instruction: Instruction, after: set[int]) -> int:
        line = (instruction.kind, instruction.peer, instruction.tag)
        if line in self._last:
            after.add(self._last[line])
        task = self._last[line] = self._add(instruction._replace(message=len(self._posts)), after)
        self._posts.append(task)
        self._waits.append(NONE)
        return task

    def _compute(self, instruction: Instruction, reads: list[Place]) -> None:
        target = instruction.target
        assert target is not None
        task = self._add(instruction, self._to_read(reads) | self._to_write([target]))
        for place in reads:
            for cell in place.cells():
                self._cell(cell).readers.append(task)
        for cell in target.cells():
            self._cells[cell] = _Cell(writer=task)

    def _add(self, instruction: Instruction, after: set[int]) -> int:
        task = len(self.instructions)
        self.instructions.append(instruction)
        self.after.append(after)
        self.follow.append(set())
        for other in after:
            self.follow[other].add(task)
        return task

    def _cell(self, at: tuple[int, int]) -> _Cell:
        return self._cells.setdefault(at, _Cell())

    def _wait(self, message: int) -> int:
        if self._waits[message] == NONE:
            post = self._posts[message]
            start = self.instructions[post]
            kind = Kind.WAIT_RECV if start.kind == Kind.POST_RECV else Kind.WAIT_SEND
            self._waits[message] = self._add(start._replace(kind=kind), {post})
        return self._waits[message]

    def _to_read(self, places: Iterable[Place]) -> set[int]:
        after: set[int] = set()
        for place in places:
            for at in place.cells():
                cell = self._cell(at)
                if cell.landing != NONE:
                    after.add(self._wait(cell.landing))
                elif cell.writer != NONE:
                    after.add(cell.writer)
        return after

    def _to_write(self, places: Iterable[Place], arrived: Container[int] = ()) -> set[int]:
        after: set[int] = set()
        for place in places:
            for at in place.cells():
                cell = self._cell(at)
                if cell.landing != NONE and self._posted(cell.landing).row not in arrived:
                    after.add(self._wait(cell.landing))
                after.update(task for task in {cell.writer, *cell.readers} - {NONE} if not self._over(task, arrived))
                after.update(self._wait(message) for message in cell.sending
                             if self._receives[self._posted(message).row] not in arrived)
        return after

    def _posted(self, message: int) -> Instruction:
        return self.instructions[self._posts[message]]

    def _over(self, task: int, arrived: Container[int]) -> bool:
        """Whether a task must be over: something that it comes before was sent, and has arrived."""
        left, seen = [task], {task}
        while left and len(seen) < FOLLOWED:
            for other in self.follow[left.pop()] - seen:
                one = self.instructions[other]
                if one.kind == Kind.POST_SEND and self._receives[one.row] in arrived:
                    return True
                seen.add(other)
                left.append(other)
        return False


def listed(tasks: Tasks, ahead: int) -> list[Instruction]:
    """The instructions in the order in which a rank does them: whatever does not block as early as it may, and waits in
    the order of the tasks. Receives are posted ahead while fewer than ``ahead`` are under way.

    Moving posts forward never makes a rank hang where it did not before: they do not block, and each wait still comes
    after all posts that stand before it in ``tasks``.
    """
    instructions = tasks.instructions
    before = [len(after) for after in tasks.after]
    follow = tasks.follow
    waits = [i for i, x in enumerate(instructions) if x.kind in (Kind.WAIT_RECV, Kind.WAIT_SEND)]
    waiting = set(waits)
    sends = [x.kind == Kind.POST_SEND for x in instructions]    # last: the other end waits less if receives stand ready
    free = [(sends[i], i) for i, n in enumerate(before) if n == 0]
    heapify(free)
    held: list[int] = []                    # receives that could be posted, but are too far ahead
    under_way, done = 0, []

    def do(task: int) -> None:
        done.append(instructions[task])
        for other in follow[task]:
            before[other] -= 1
            if before[other] == 0 and other not in waiting:
                heappush(free, (sends[other], other))

    for wait in [*waits, len(instructions)]:
        for task in held:
            heappush(free, (False, task))
        held = []
        while free:
            _, task = heappop(free)
            if instructions[task].kind == Kind.POST_RECV:
                if task > wait and under_way >= ahead:
                    held.append(task)
                    continue
                under_way += 1
            do(task)
        if wait < len(instructions):
            under_way -= instructions[wait].kind == Kind.WAIT_RECV
            do(wait)
    assert len(done) == len(instructions)
    return done


def settled(instructions: list[Instruction], sizes: list[int]) -> tuple[list[Instruction], list[int]]:
    """The same with slots shared by what lives one after another; and how many chunks each of these has."""
    last: dict[int, int] = {}
    for i, x in enumerate(instructions):
        for place in (x.target, x.source, x.operand):
            if place is not None and place.buffer == STAGING:
                last[place.first] = i
    given: dict[int, int] = {}
    spare: dict[int, list[int]] = {}
    slots: list[int] = []
    found = []

    def moved(place: Place | None) -> Place | None:
        if place is None or place.buffer != STAGING:
            return place
        if place.first not in given:
            free = spare.get(sizes[place.first])
            given[place.first] = free.pop() if free else len(slots)
            if given[place.first] == len(slots):
                slots.append(sizes[place.first])
        return place._replace(first=given[place.first])

    for i, x in enumerate(instructions):
        found.append(x._replace(target=moved(x.target), source=moved(x.source), operand=moved(x.operand)))
        ended = {p.first for p in (x.target, x.source, x.operand)
                 if p is not None and p.buffer == STAGING and last[p.first] == i}
        for slot in ended:
            spare.setdefault(sizes[slot], []).append(given[slot])
    return found, slots
