"""The normal form of a table: what lanes can execute in order, with flags between them and nothing else.

A lane executes its *phases* one after another. In a phase it settles (waits until all its sends but the last ``before``
are taken), posts its plain sends, takes what it receives piece by piece (piece p of all messages in row order, then
passes on piece p of what is fused), executes its local rows in row order, and settles again (``after``). A send is a
flag, and waits for nothing; a receive reads the message where it stands, in the memory of the sender. A message is
*taken* when all of it has been read.

**No lane waits for ever.** All ranks see one legal execution of the whole table, on connections that hold no message
(:func:`~schedlang.running.executable.legal_order`). The moment of a message is the level at which both its ends are
posted and its value is there; if that is so only because a fused operation passes it on at this very level, it is the
second half of the level. So what a fused operation passes on has a later moment than what it receives. A lane takes the
messages of a step in the order of their moments, those of one moment together. Of all that lanes wait for, look at what
comes first in this order. A message of moment m needs its send posted: its lane does so after what it takes in earlier
steps and, where it passes something on, after taking that, all of moments before m. A wait for an event comes after its
record in the order of levels. A send is waited for in later steps of its lane, or at the end of its own, after all
receives of that; and as no message is held, a step is done at no earlier level than its messages are taken. So who
waits for what comes first can go on.

**No place is written while somebody reads it.** A table that is proved right has no races: where two lanes of a rank
use one place and one of them writes, lanes, messages and events put the end of one step before the post of the other.
Flags order the same and more: the posts of a step come after all that earlier steps of its lane have read and written.
What the table does not know of is that messages are read where they stand until they are taken, perhaps long after
their step. So

* of the same lane, a phase that writes the place of an earlier send settles that first (:meth:`.settle.Sends.before`);
* a send whose place another lane writes later is settled at the end of its own step, before anything that comes after
  this step (:meth:`.settle.Sends.after`). Which of the two comes first can be read off one execution: it is so in all;
* in one step, what is read is kept elsewhere before it is written (:mod:`.hazards`): a step reads first;
* at the end of the kernel a lane settles everything.

All this holds for each block by itself, as each has flags of its own, provided that the elements of a chunk that a
block works on do not depend on how long the value is that the chunk holds: a longer one may have been there before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedlang.backends.cuda.classes import Classes, classes, like
from schedlang.backends.cuda.hazards import LOCALS, OWN, SENDS, Apart, Taken, hazardous
from schedlang.backends.cuda.settle import Sends, written_later
from schedlang.backends.cuda.tags import Messages, tags
from schedlang.diagnostics import SchedError, error
from schedlang.ir.table import DTYPES, NONE, Array, Buffer, OpTable
from schedlang.ops import Op
from schedlang.running.executable import legal_order
from schedlang.running.values import follow
from schedlang.verify.timing.connections import Matching
from schedlang.verify.timing.order import Order

AHEAD = 16
"""So many sends more than those of one step a lane may have under way."""


@dataclass(frozen=True, eq=False)
class Normal:
    """A table whose steps are phases, and further columns (int64, a row each, NONE where they mean nothing). Rows stand
    lane by lane in the order of execution.

    ``message``: which one a send or receive is of its source, destination and ``tag``. ``their_buffer``,
    ``their_chunk``: of a receive, where the message stands at the sender. ``like``: the length class of the first chunk
    (:mod:`.classes`); chunk k has class like + k. ``before``, ``after`` (alike on all rows of a phase): before and
    after the phase, of the sends that the lane has posted so far all but the last so many must be taken. ``rounds``
    (alike, too): the largest count of its receives, 0 without any.

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
    """The normal form of a table that is proved right.

    Raises SchedError: what :func:`~schedlang.running.executable.legal_order` raises; SL305 where the table comes to its
    end only on connections that hold messages; SL403 where what nothing has written moves.
    """
    table = table.with_columns(transport=None)
    pairs, when = legal_order(table)
    if not when.deadlock_free:
        raise SchedError(error(
            "SL305", f"{table.name} comes to its end only where connections hold messages, and a kernel's hold none",
            table.location, help="post a receive no later than the send that waits for it: see `schedlang verify "
                                 "--sends rendezvous`"))
    values = follow(table, pairs.partner, when.posted, when.ready, when.done)
    return _Normal(_Split(table, pairs, when, classes(table, values))).made()


class _Split:
    """A table whose rows have classes that follow one another: other rows are split into rows of one chunk.

    Columns: ``like``; ``partner``: the other end of a transfer; ``node``: the step, numbered through lane by lane;
    ``lane``; ``posted``, ``ready``, ``done``: levels; ``connection``, ``place``: of a send, its connection and which of
    its messages it is. NONE for rows without these.
    """

    def __init__(self, table: OpTable, pairs: Matching, when: Order, found: Classes) -> None:
        count = table.count.astype(np.int64)
        times = np.where(found.consecutive(count), 1, count)
        first = np.cumsum(times) - times
        rows = np.repeat(np.arange(len(table)), times)
        part = np.arange(len(rows)) - first[rows]

        def moved(column: Array) -> Array:
            """Row numbers, as those of the split table."""
            there = column[rows].astype(np.int64)
            return np.where(there == NONE, NONE, first[there] + part)

        if len(rows) > len(table):
            old = table.take(rows)
            new = {"count": np.where(times[rows] > 1, 1, old["count"]), "of": moved(table.of),
                   "chunk": np.where(old["buffer"] == NONE, old["chunk"], old["chunk"] + part),
                   "from_chunk": np.where(old["from_buffer"] == NONE, NONE, old["from_chunk"] + part)}
            table = table.with_columns(**(old | {name: column.astype(np.int32) for name, column in new.items()}))
            # The chunks of all rows stand in the same order as before.
            found = Classes(np.cumsum(table.count, dtype=np.int64) - table.count, found.of, found.parts)
        self.table = table
        self.partner = moved(pairs.partner)
        self.node = pairs.lanes.node[rows].astype(np.int64)
        self.lane = pairs.lanes.lane[rows].astype(np.int64)
        self.posted, self.ready, self.done = when.posted[rows], when.ready[rows], when.done[rows]
        ends = pairs.connections
        connection, place = np.full(len(times), NONE), np.full(len(times), NONE)
        connection[ends.sends], place[ends.sends] = ends.of_send, ends.send_index
        self.connection, self.place = connection[rows], place[rows]
        self.like = like(table, self.partner, found)

    def moments(self) -> Array:
        """When each row happens within its step (int64): messages when both their ends are there and their value is,
        in the second half of a level where a fused operation passes it on then; even numbers."""
        t = self.table
        part = np.where(t.op == Op.SEND, SENDS, LOCALS).astype(np.int64)
        receives = np.flatnonzero((t.op == Op.RECV) | (t.op == Op.REDUCE_RECV))
        sends = self.partner[receives]
        level = np.maximum(self.ready[sends], self.posted[receives]).astype(np.int64)
        late = (t.of[sends] != NONE) & (self.ready[sends] == level)
        part[receives] = 4 * level + 2 * late
        fused = np.flatnonzero(t.of != NONE)
        part[fused] = part[t.of[fused]]
        return part


class _Normal:
    """A normal form in the making: its rows, in the order of execution, and of each its ``phase``, numbered through
    lane by lane, its ``lane`` and its ``node``, the step that it comes from (int64)."""

    def __init__(self, split: _Split) -> None:
        self.split, self.table = split, split.table
        part = split.moments()
        rows = Taken.plain(split.table, part, split.like)
        self.staging = 0
        bad = hazardous(split.table, split.node)
        if bad.any():
            apart = Apart(split.table, part, split.like)
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
        self.node, self.lane = split.node[self.rows.was], split.lane[self.rows.was]

    def made(self) -> Normal:
        """The normal form."""
        s, rows, phase = self.split, self.rows, self.phase
        receives = np.flatnonzero((rows.op == Op.RECV) | (rows.op == Op.REDUCE_RECV))
        sends = np.flatnonzero(rows.op == Op.SEND)
        here = np.full(len(self.table), NONE, np.int64)         # per row of the table: its transfer
        here[rows.was[receives]], here[rows.was[sends]] = receives, sends
        partner = np.full(len(rows.was), NONE, np.int64)
        partner[receives] = here[s.partner[rows.was[receives]]]
        table = self._table(np.where(rows.of == NONE, NONE, here[rows.of]))
        tag, message = self._messages(table, receives, partner[receives])
        under_way = Sends(table, phase, self.lane)
        shared = written_later(self.table, s.lane, s.posted, s.done)[rows.was] & (rows.buffer < len(self.table.buffers))
        rounds = np.zeros(under_way.phases, np.int64)
        np.maximum.at(rounds, phase[receives], rows.count[receives])
        there = partner != NONE
        per_step = np.bincount(self.node[sends]).max(initial=0)
        return Normal(
            table, message, tag, their_buffer=np.where(there, rows.buffer[partner], NONE),
            their_chunk=np.where(there, rows.chunk[partner], NONE), like=rows.like,
            before=under_way.before()[phase], after=under_way.after(self.node, shared)[phase], rounds=rounds[phase],
            tags=int(tag.max(initial=0)) + 1, messages=int(message.max(initial=0)) + 1,
            queue=int(per_step) + AHEAD, staging=self.staging)

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

    def _messages(self, table: OpTable, receives: Array, sends: Array) -> tuple[Array, Array]:
        """Tag and message of each row; ``sends``: those that go with ``receives``."""
        s, was, phase, lane = self.split, self.rows.was, self.phase, self.lane
        order = np.lexsort((was[sends], s.place[was[sends]], s.connection[was[sends]]))
        sends, receives = sends[order], receives[order]
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


