"""From an op table to what one rank does, whatever the sizes are.

All ranks see one legal execution of the table (:mod:`.execution`): a list of events, in which every rank finds its own
in one order common to all. At each level, first all that is posted then (plain sends, receives; what is read counts as
read now), then fused sends whose message has arrived, then what is done writes.

**No rank hangs**, whatever the timing. Posts do not block, and each wait is put where, in the common list, both posts
of its message stand before it: a receive is waited for at its end or later, where its send, plain or fused, has been
posted; a send is waited for only before a write that comes after the post of its receive (where it would come before,
a copy is sent) or at the very end. Of all ranks that wait, take the one whose wait comes first in the common list:
the posts of its message stand before it, so no rank has still to do them, and with them the earlier ones of its
connection; so the message comes. :func:`.tasks.listed` moves posts forward only, which keeps this true.

**Values.** A step reads before it writes. Messages land in place where nobody else has to do with that place between
post and end of its step; else, and where they are reduced, in a slot of staging memory. The post itself may come sooner
(:mod:`.causes`). What is read at the post of a step but used
later is copied first where somebody may write it meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from schedlang.backends.torch.execution import Execution, PerTable, execution
from schedlang.backends.torch.tasks import STAGING, Instruction, Kind, Place, Tasks, listed, settled
from schedlang.ir.table import NONE, OpTable
from schedlang.ops import Op

AHEAD = 32
"""How many receives a rank has under way before it needs the first of them, at most."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What ``rank`` does: its instructions in order. ``slots``: how many chunks each slot of staging memory holds.
    ``messages``: how many messages the rank sends and receives. ``written``: which buffers are written."""

    rank: int
    instructions: tuple[Instruction, ...]
    slots: tuple[int, ...]
    messages: int
    written: frozenset[int]
    execution: Execution


_plans: PerTable[dict[tuple[int, int, bool], Plan]] = PerTable(lambda table: {})


def plan(table: OpTable, rank: int, *, ahead: int = AHEAD, early: bool = True) -> Plan:
    """The plan of one rank. ``early``: receives may stand ready before their place is free, where :mod:`.causes` says
    that nothing can come too early; not where messages without elements are left out, as what they cause is, too.
    Raises SchedError where the table cannot be executed to its end."""
    known = _plans(table)
    if (rank, ahead, early) not in known:
        known[rank, ahead, early] = Walk(table, rank, execution(table), early=early).plan(ahead)
    return known[rank, ahead, early]


Moment = tuple[int, int, int]
"""Where something stands in the common list: level, turn within it, row."""

BEGIN, PASS, END = 0, 2, 4
"""The turns of a level: steps are posted, fused sends pass on, what is done writes."""


@dataclass(frozen=True)
class Row:
    """One row of this rank. ``target``: what it writes. ``source``: what a plain send, a copy or a reduction reads, of
    a reduce_recv the local operand. ``taken``: of a send, when its receive is posted."""

    row: int
    op: int
    posted: int
    ready: int
    done: int
    count: int
    target: Place | None
    source: Place | None
    peer: int
    tag: int
    of: int
    taken: Moment

    @property
    def end(self) -> Moment:
        return self.done, END, self.row


def _rows(table: OpTable, rank: int, shared: Execution) -> Iterator[Row]:
    mine = np.flatnonzero((table.rank == rank) & (table.op < Op.RECORD))
    partner = np.where(shared.partner[mine] == NONE, mine, shared.partner[mine])
    columns = (mine, table.op[mine], shared.posted[mine], shared.ready[mine], shared.done[mine], table.count[mine],
               table.buffer[mine], table.chunk[mine], table.from_buffer[mine], table.from_chunk[mine], table.peer[mine],
               shared.tag[mine], table.of[mine], shared.posted[partner], partner)
    for row, op, posted, ready, done, count, buffer, chunk, from_buffer, from_chunk, peer, tag, of, taken, other in zip(
            *(c.tolist() for c in columns), strict=True):
        target = Place(buffer, chunk, count) if buffer != NONE and op != Op.SEND else None
        source = Place(from_buffer, from_chunk, count) if from_buffer != NONE else None
        if op == Op.SEND and of == NONE:
            source = Place(buffer, chunk, count)
        yield Row(row, op, posted, ready, done, count, target, source, peer, tag, of, (taken, BEGIN, other))


@dataclass(frozen=True, order=True)
class _Access:
    """A row's hold on a cell, from the post of its step to the end."""

    posted: int
    done: int
    row: int
    writes: bool


class Walk:
    """Goes through the events of one rank and makes tasks of them."""

    def __init__(self, table: OpTable, rank: int, shared: Execution, *, early: bool = False) -> None:
        self.rank, self.shared = rank, shared
        self.causes = shared.causes(table) if early else None
        self.rows = {x.row: x for x in _rows(table, rank, shared)}
        self.tasks = Tasks(shared.partner.tolist())
        self.passed: dict[int, Row] = {}       # per receive: the fused send that passes it on first
        self.accesses: dict[tuple[int, int], list[_Access]] = {}
        self.longest = 0
        for x in self.rows.values():
            self.longest = max(self.longest, x.done - x.posted)
            if x.of != NONE and (x.of not in self.passed or x.ready < self.passed[x.of].ready):
                self.passed[x.of] = x
            for place in {x.target, x.source}:
                for cell in place.cells() if place is not None else ():
                    access = _Access(x.posted, x.done, x.row, place == x.target)
                    self.accesses.setdefault(cell, []).append(access)
        for known in self.accesses.values():
            known.sort()
        self.landings: dict[int, Place] = {}    # per receive: where it lands
        self.sources: dict[int, Place] = {}     # per row: where what it reads is kept until its end
        self.operands: dict[int, Place] = {}    # per fused reduction: what it is combined with
        self.results: dict[int, Place] = {}     # per fused reduction: what is passed on
        self.sent: dict[int, int] = {}          # per send from a slot: its message

    def plan(self, ahead: int) -> Plan:
        for moment, do in sorted(self.events(), key=lambda event: event[0]):
            do(self.rows[moment[2]])
        self.tasks.finish()
        instructions, slots = settled(self.listed(ahead), self.tasks.slots)
        written = frozenset(x.target.buffer for x in instructions if x.target is not None)
        messages = sum(x.kind in (Kind.POST_RECV, Kind.POST_SEND) for x in instructions)
        return Plan(self.rank, tuple(instructions), tuple(slots), messages, written - {STAGING}, self.shared)

    def events(self) -> Iterator[tuple[Moment, Callable[[Row], None]]]:
        """What happens when to which row."""
        for x in self.rows.values():
            if x.op == Op.SEND and x.of != NONE:
                yield (x.ready, PASS, x.row), self._pass_on
            else:
                yield (x.posted, BEGIN, x.row), self._begin
            yield x.end, self._end

    def listed(self, ahead: int) -> list[Instruction]:
        """The instructions of the tasks in the best order."""
        return listed(self.tasks, ahead)

    def _begin(self, x: Row) -> None:
        """A step is posted: sends go, receives are ready to take, what is read is read."""
        if x.op == Op.SEND:
            assert x.source is not None
            self.send(x, self._unchanged(x, x.source, x.taken))
            return
        if x.source is not None and x.source != x.target:
            self.sources[x.row] = self._unchanged(x, x.source, x.end)
        if x.peer == NONE:
            return
        fused = self.passed.get(x.row)
        if x.op == Op.REDUCE_RECV and fused is not None:
            assert x.source is not None
            kept = self.sources.get(x.row)
            self.operands[x.row] = kept or self._unchanged(x, x.source, (fused.ready, PASS, fused.row))
        apart = x.source is None or x.target is None or not x.source.overlaps(x.target)
        here = x.target if x.target is not None and apart and self._alone(x) else self.tasks.slot(x.count)
        self.landings[x.row] = here
        self.receive(x, here)

    def _pass_on(self, x: Row) -> None:
        """A fused send goes: with what its receive yields."""
        receive, what = self.rows[x.of], self.landings[x.of]
        if receive.op == Op.REDUCE_RECV:
            if x.of not in self.results:
                into = what
                if receive.target is not None:      # a slot of its own where the message is needed once more
                    into = receive.target if self._alone(receive) else self.tasks.slot(x.count)
                self.tasks.reduce(x.of, into, self.operands[x.of], what)
                self.results[x.of] = into
            what = self.results[x.of]
        if what.buffer != STAGING and self._changes(x, what, (x.ready, PASS, x.row), x.taken, besides=x.of):
            what = self._copied(x, what)
        self.send(x, what)

    def _end(self, x: Row) -> None:
        """A row is done: its result lands."""
        if x.row in self.sent and x.taken < x.end:
            self.tasks.wait(self.sent[x.row])       # its slot is free again
        if x.target is None:
            return
        if x.op == Op.RECV:
            if self.landings[x.row] != x.target:
                self.tasks.copy(x.row, x.target, self.landings[x.row])
        elif x.op == Op.REDUCE_RECV:
            if self.results.get(x.row) != x.target:
                self.tasks.reduce(x.row, x.target, self.sources.get(x.row, x.target), self.landings[x.row])
        elif x.op == Op.COPY:
            self.tasks.copy(x.row, x.target, self.sources.get(x.row, x.target))
        else:
            self.tasks.reduce(x.row, x.target, x.target, self.sources.get(x.row, x.target))

    def receive(self, x: Row, landing: Place) -> None:
        """Post a receive."""
        arrived: set[int] = set()
        if self.causes is not None and landing.buffer != STAGING:
            arrived = self.causes.arrived(int(self.shared.partner[x.row]))
        self.tasks.receive(x.row, landing, x.peer, x.tag, arrived)

    def send(self, x: Row, source: Place) -> None:
        """Post a send."""
        message = self.tasks.send(x.row, source, x.peer, x.tag)
        if source.buffer == STAGING:
            self.sent[x.row] = message

    def _unchanged(self, x: Row, place: Place, until: Moment) -> Place:
        """Where what ``x`` reads at its post can still be read at ``until``: there, or in a copy made now."""
        torn = x.target is not None and x.target != place and x.target.overlaps(place)
        if torn or self._changes(x, place, (x.posted, BEGIN, NONE), until):
            return self._copied(x, place)
        return place

    def _copied(self, x: Row, place: Place) -> Place:
        slot = self.tasks.slot(x.count)
        self.tasks.copy(x.row, slot, place)
        return slot

    def _changes(self, x: Row, place: Place, since: Moment, until: Moment, besides: int = NONE) -> bool:
        """Whether other rows (than ``besides``) may write to a place between two moments."""
        return any(other.writes and other.row != besides and self._starts(other.row) <= until
                   and since <= self.rows[other.row].end
                   for other in self._others(x.row, place, since[0], until[0]))

    def _starts(self, row: int) -> Moment:
        """When a row begins to write."""
        x = self.rows[row]
        return (x.posted, BEGIN, row) if x.peer != NONE and self._alone(x) else x.end

    def _alone(self, x: Row) -> bool:
        """Whether no other row has to do with the target of ``x`` between its post and its end."""
        assert x.target is not None
        return not any(self._others(x.row, x.target, x.posted, x.done))

    def _others(self, row: int, place: Place, first: int, last: int) -> Iterator[_Access]:
        """What other rows do with a place at the levels ``first..last``, both included."""
        for cell in place.cells():
            known = self.accesses.get(cell, [])
            for k in range(bisect_left(known, first - self.longest, key=lambda access: access.posted), len(known)):
                access = known[k]
                if access.posted > last:
                    break
                if access.done >= first and access.row != row:
                    yield access
