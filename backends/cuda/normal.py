"""The normal form of a table: what lanes can execute in order, with flags between them and nothing else.

A lane executes its *phases* one after another. In a phase it posts its plain sends, settles (waits until all its sends
but the last ``before`` are taken), takes what it receives piece by piece (piece p of all messages in row order, then
passes on piece p of what is fused), executes its local rows in row order, and settles again (``after``). A send is a
flag, and waits for nothing; a receive reads the message where it stands, in the memory of the sender. A message is
*taken* when all of it has been read.

**No lane waits for ever.** All ranks see one legal execution of the whole table, on connections that hold no message
or, where it does not come to its end so, as many as it takes (:func:`~schedlang.running.executable.legal_order`). The
moment of a message is the level at which both its ends are posted and its value is there; if that is so only because a
fused operation passes it on at this very level, it is the second half of the level. So what a fused operation passes on
has a later moment than what it receives. A lane takes the messages of a step in the order of their moments, those of
one moment together, and waits for a send only at a moment after that of its message and of all that it has sent before.
Of all that lanes wait for, look at what comes first in this order. A message of moment m needs its send posted: its
lane does so after what it takes in earlier steps and, where it passes something on, after taking that, all of moments
before m. A wait for an event comes after its record in the order of levels. So who waits for what comes first can go
on. Sends are waited for in later steps, or at the end of their own after all its receives. Without buffering that is
late enough, as a step is done at no earlier level than its messages are taken; else :mod:`.lasting` sees to it.

**No place is written while somebody reads it.** A table that is proved right has no races: where two lanes of a rank
use one place and one of them writes, lanes, messages and events put the end of one step before the post of the other.
Flags order the same and more: the posts of a step come after all that earlier steps of its lane have read and written.
What the table does not know of is that messages are read where they stand until they are taken, perhaps long after
their step. So

* of the same lane, a phase that writes the place of an earlier send settles that first (:meth:`.settle.Sends.before`);
* a send whose place another lane writes later is settled at the end of its own step, before anything that comes after
  this step (:meth:`.settle.Sends.after`). Which of the two comes first can be read off one execution: it is so in all;
* in one step, what is read is kept elsewhere before it is written (:mod:`.hazards`), as a step reads first;
* at the end of the kernel a lane settles everything.

All this holds for each block by itself, as each has flags of its own, provided that the elements of a chunk that a
block works on do not depend on how long the value is that the chunk holds: a longer one may have been there before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from schedlang.backends.cuda.classes import classes
from schedlang.backends.cuda.hazards import LOCALS, OWN, SENDS, Apart, Taken, hazardous
from schedlang.backends.cuda.lasting import slots, unsettled
from schedlang.backends.cuda.settle import Sends, written_later
from schedlang.backends.cuda.split import Split
from schedlang.backends.cuda.tags import Messages, tags
from schedlang.ir.table import DTYPES, NONE, Array, Buffer, OpTable
from schedlang.ops import Op
from schedlang.running.executable import legal_order
from schedlang.running.values import follow

AHEAD = 16
"""So many sends more than it must a lane may have under way."""

_LATEST = 1 << 34
"""More than any moment."""


@dataclass(frozen=True, eq=False)
class Normal:
    """A table whose steps are phases, and further columns (int64, a row each, NONE where they mean nothing). Rows stand
    lane by lane in the order of execution.

    ``message``: which one a send or receive is of its source, destination and ``tag``. ``their_buffer``,
    ``their_chunk``: of a receive, where the message stands at the sender. ``like``: the length class of the first chunk
    (:mod:`.classes`); chunk k has class like + k. ``before``, ``after`` (alike on all rows of a phase): before it
    writes anything, and at its end, of the sends that the lane has posted so far all but the last so many must be
    taken. ``rounds`` (alike, too): the largest count of its receives, 0 without any.

    ``tags``: how many there are. ``messages``: how many a source, destination and tag have at most. ``queue``: with
    room for so many sends under way, posting one need never wait for one of the same step. ``staging``: the chunks of
    the buffer that was added last, 0 where none was; each stream has its own of them.
    """

    table: OpTable
    message: Array
    tag: Array
    their_buffer: Array
    their_chunk: Array
    like: Array
    before: Array
    after: Array
    rounds: Array
    tags: int
    messages: int
    queue: int
    staging: int


def normal(table: OpTable) -> Normal:
    """The normal form of a table that is proved right, be it on connections that hold messages.

    Raises SchedError: what :func:`~schedlang.running.executable.legal_order` raises; SL403 where what nothing has
    written moves.
    """
    pairs, when = legal_order(table)
    values = follow(table, pairs.partner, when.posted, when.ready, when.done)
    split = Split(table, pairs, when, classes(table, values))
    lasting: dict[int, int] = {}
    while True:
        made = Making(split, lasting)
        more = set() if when.deadlock_free else {*made.unsettled().tolist()} - {*lasting}
        if not more:
            return made.made()
        lasting = made.slots({*lasting} | more)


class Making:
    """A normal form in the making: its rows, in the order of execution, and of each its ``phase``, numbered through
    lane by lane, its ``lane`` and its ``node``, the step that it comes from (int64)."""

    def __init__(self, split: Split, lasting: Mapping[int, int]) -> None:
        self.split, self.table = split, split.table
        part = split.moments()
        rows = Taken.plain(split.table, part, split.like)
        self.staging = 0
        bad = hazardous(split.table, split.node)
        bad |= np.isin(split.node, split.node[list(lasting)])
        if bad.any():
            apart = Apart(split.table, part, split.like, lasting)
            where = np.flatnonzero(bad)
            where = where[np.argsort(split.node[where], kind="stable")]
            for step in np.split(where, np.flatnonzero(np.diff(split.node[where])) + 1):
                apart.step(step.tolist())
            new, self.staging = apart.finish()
            rows = rows.replaced(bad, new)
        phase, step = _phases(rows.part, rows.op, split.node[rows.was], split.lane[rows.was])
        turn = np.select([rows.op >= Op.COPY, rows.op != Op.SEND, rows.of != NONE], [3, 1, 2], 0)
        order = np.lexsort((turn, phase))
        self.rows, self.phase, self.step = rows.taken(order), phase[order], step[order]
        was = self.rows.was
        self.node, self.lane = split.node[was], split.lane[was]
        receives = np.flatnonzero((self.rows.op == Op.RECV) | (self.rows.op == Op.REDUCE_RECV))
        self.sends = np.flatnonzero(self.rows.op == Op.SEND)
        here = np.full(len(self.table), NONE, np.int64)         # per row of the table: its transfer
        here[was[receives]], here[was[self.sends]] = receives, self.sends
        self.receives, self.partner = receives, np.full(len(was), NONE, np.int64)
        self.partner[receives] = here[split.partner[was[receives]]]
        self.normal = self._table(np.where(self.rows.of == NONE, NONE, here[self.rows.of]))
        self.shared = written_later(self.table, split.lane, split.posted, split.done)[was]
        self.shared &= self.rows.buffer < len(self.table.buffers)
        # When what a lane has sent so far is taken, and when its phases settle: sends that are posted do not wait.
        timed = part[split.partner[was[self.sends]]] + self.lane[self.sends] * _LATEST
        self.taken = np.maximum.accumulate(timed) - self.lane[self.sends] * _LATEST
        begins = 4 * split.posted[was].astype(np.int64)
        self.moment = np.zeros(int(self.phase.max(initial=-1)) + 1, np.int64)
        np.maximum.at(self.moment, self.phase, np.maximum(begins, self.rows.part))
        posts = self.sends[self.rows.part[self.sends] == SENDS]
        self.moment[self.phase[posts]] = begins[posts]

    def unsettled(self) -> Array:
        """The sends (rows of the table) for which somebody would have to wait too early."""
        late = unsettled(self.normal, self.sends, self.taken, self.phase, self.moment)
        ends = 4 * self.split.done[self.rows.was[self.sends]].astype(np.int64) + 3
        late |= self.shared[self.sends] & (self.taken > ends)
        return self.rows.was[self.sends[late]]

    def slots(self, lasting: set[int]) -> dict[int, int]:
        """Where the values of sends (rows of the table) are kept, in a part of staging memory that each stream has."""
        which = np.isin(self.rows.was[self.sends], list(lasting))
        sends = self.sends[which]
        was = self.rows.was[sends]
        begins = 4 * self.split.posted[was].astype(np.int64)
        return dict(zip(was.tolist(), slots(self.lane[sends], begins, self.taken[which], self.rows.count[sends]),
                        strict=True))

    def made(self) -> Normal:
        """The normal form."""
        rows, phase, partner = self.rows, self.phase, self.partner
        tag, message = self._messages()
        under_way = Sends(self.normal, phase, self.lane)
        rounds = np.zeros(under_way.phases, np.int64)
        np.maximum.at(rounds, phase[self.receives], rows.count[self.receives])
        there = partner != NONE
        return Normal(
            self.normal, message, tag, their_buffer=np.where(there, rows.buffer[partner], NONE),
            their_chunk=np.where(there, rows.chunk[partner], NONE), like=rows.like,
            before=under_way.before()[phase], after=under_way.after(self.node, self.shared)[phase],
            rounds=rounds[phase], tags=int(tag.max(initial=0)) + 1, messages=int(message.max(initial=0)) + 1,
            queue=AHEAD + self._under_way(), staging=self.staging)

    def _under_way(self) -> int:
        """How many sends of a lane may have to be under way when it posts one: those of one step, or those that may not
        have been taken by then."""
        per_step = np.bincount(self.node[self.sends]).max(initial=0)
        lane = self.lane[self.sends] * _LATEST
        earlier = np.searchsorted(self.taken + lane, self.moment[self.phase[self.sends]] + lane)
        return int(max(per_step, (np.arange(len(lane)) - earlier).max(initial=0)))

    def _table(self, of: Array) -> OpTable:
        """The table of the rows. ``of``: as its column."""
        t, rows = self.table, self.rows
        columns = t.take(rows.was)
        local = rows.op >= Op.COPY
        changed = {name: getattr(rows, name) for name in OWN}
        changed |= {"step": self.step, "of": of, "peer": np.where(local, NONE, columns["peer"]),
                    "chan": np.where(local, NONE, columns["chan"])}
        columns |= {name: column.astype(DTYPES[name]) for name, column in changed.items()}
        buffers = (*t.buffers, Buffer(_unused("staging", t), self.staging)) if self.staging else t.buffers
        return t.with_columns(**{**columns, "number": None}, buffers=buffers)

    def _messages(self) -> tuple[Array, Array]:
        """Tag and message of each row."""
        s, was, phase, lane, table = self.split, self.rows.was, self.phase, self.lane, self.normal
        sends = self.partner[self.receives]
        order = np.lexsort((was[sends], s.place[was[sends]], s.connection[was[sends]]))
        sends, receives = sends[order], self.receives[order]
        messages = Messages(
            s.connection[was[sends]], table.rank[sends].astype(np.int64) * table.ranks + table.rank[receives],
            table.chan[sends].astype(np.int64), table.count[sends].astype(np.int64), lane[sends], phase[sends],
            table.of[sends] != NONE, lane[receives], phase[receives])
        tag, message = np.full(len(was), NONE, np.int64), np.full(len(was), NONE, np.int64)
        of_send, index = tags(messages)
        tag[sends] = tag[receives] = of_send
        message[sends] = message[receives] = index
        return tag, message


def _phases(part: Array, op: Array, node: Array, lane: Array) -> tuple[Array, Array]:
    """The phase of each row, numbered through lane by lane, and counted in its lane from 0 (int64)."""
    nodes = int(node.max(initial=-1)) + 1
    timed = part >= 0
    receives = np.flatnonzero(timed & (op != Op.SEND) & (op < Op.COPY))
    first, last = np.full(nodes, np.iinfo(np.int64).max), np.zeros(nodes, np.int64)
    np.minimum.at(first, node[receives], part[receives])
    np.maximum.at(last, node[timed], part[timed])
    first = np.minimum(first, last)                 # a step without receives
    part = np.select([part == SENDS, part == LOCALS], [first[node], last[node]], part)
    order = np.lexsort((part, node))
    new = np.ones(len(part), bool)
    new[1:] = (part[order[1:]] != part[order[:-1]]) | (node[order[1:]] != node[order[:-1]])
    phase = np.empty(len(part), np.int64)
    phase[order] = np.cumsum(new) - 1
    start = np.full(int(lane.max(initial=-1)) + 1, len(part), np.int64)
    np.minimum.at(start, lane, phase)
    return phase, phase - start[lane]


def _unused(name: str, table: OpTable) -> str:
    """A name that no buffer has."""
    taken = {b.name for b in table.buffers}
    while name in taken:
        name += "_"
    return name


