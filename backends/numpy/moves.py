"""From an op table and a legal order to moves: who writes what from where, level after level, whatever the sizes are.

A *location* is a chunk of a buffer of a rank. Each has a number; behind those of the buffers come temporary ones, for
values that must be kept between being read and being used: a message whose source changes meanwhile, or what a fused
receive passes on. A *move* writes ``count`` consecutive locations: a copy, or ``target = operand (op) source``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op

STAGE, FORWARD, WRITE = 0, 1, 2
"""The phases of a level: keep what would be overwritten, make the values of fused receives, write."""


@dataclass(frozen=True)
class Plan:
    """Moves in an order in which they may be executed one by one.

    ``base[b] + rank * chunks + chunk`` is the location of a chunk of buffer ``b``; ``locations`` is the number of
    those, ``temporaries`` that of the ones behind. ``group`` numbers what may be executed at once (increasing along
    the moves), except that reductions into one location go in the order of the moves. ``operand`` is NONE for a copy.
    ``row``: the row of the table that writes, NONE for copies into temporary locations.
    """

    base: Array
    locations: int
    temporaries: int
    group: Array
    target: Array
    operand: Array
    source: Array
    count: Array
    row: Array

    def __len__(self) -> int:
        return len(self.target)


def plan(table: OpTable, partner: Array, posted: Array, done: Array, ready: Array) -> Plan:
    """The moves of a table whose sends and receives are matched.

    ``partner``: per row, the other end of its transfer (``verify.matching``). ``posted``, ``done``, ``ready``: the
    levels of a legal execution, as ``verify.order.Order`` describes them.
    """
    return _Planner(table, partner, posted, done, ready).plan()


class _Planner:
    def __init__(self, table: OpTable, partner: Array, posted: Array, done: Array, ready: Array) -> None:
        self.table, self.partner, self.posted, self.ready, self.done = table, partner, posted, ready, done
        self.base, self.locations = _bases(table)
        self.levels = int(done.max(initial=0)) + 2

    def location(self, rows: Array, buffer: Array, chunk: Array) -> Array:
        """The first location of each of the rows, for its columns ``buffer`` and ``chunk``."""
        which = buffer[rows]
        width = np.array([b.chunks for b in self.table.buffers], np.int64)
        return self.base[which] + self.table.rank[rows].astype(np.int64) * width[which] + chunk[rows]

    def plan(self) -> Plan:
        t = self.table
        receives = np.flatnonzero((t.op == Op.RECV) | (t.op == Op.REDUCE_RECV))
        senders = self._makers(receives)
        makes = t.of[senders] != NONE                       # the value comes from a fused reduction, not from memory
        made, first = np.unique(t.of[senders][makes], return_index=True)
        made_level = self.ready[senders[makes][first]].astype(np.int64)
        made_of = np.where(makes, np.searchsorted(made, t.of[senders]), NONE)   # per receive: index into made, or NONE

        storing = t.buffer[receives] != NONE
        local = np.flatnonzero((t.op == Op.COPY) | (t.op == Op.REDUCE))
        rows = np.concatenate([receives[storing], local])
        target = self.location(rows, t.buffer, t.chunk)
        level = self.done[rows].astype(np.int64)
        count = t.count[rows].astype(np.int64)
        n_received = int(storing.sum())

        sends = senders[storing]
        source = np.concatenate([self.location(sends, t.buffer, t.chunk),
                                 self.location(local, t.from_buffer, t.from_chunk)])
        read_at = np.concatenate([self.posted[sends], self.posted[local]]).astype(np.int64)
        value = np.concatenate([made_of[storing], np.full(len(local), NONE)])
        operand = np.full(len(rows), NONE, np.int64)
        reducing = (t.op[rows] == Op.REDUCE_RECV)
        operand[reducing] = self.location(rows[reducing], t.from_buffer, t.from_chunk)
        operand[t.op[rows] == Op.REDUCE] = target[t.op[rows] == Op.REDUCE]
        writes = _Writes(target, level, count, self.levels)

        # A fused receive that alone writes its place stores the very value it passes on.
        own = np.searchsorted(made, rows).clip(max=max(len(made) - 1, 0))
        passes_on = np.zeros(len(rows), bool)
        if len(made):
            passes_on[:n_received] = made[own[:n_received]] == rows[:n_received]
            alone = np.flatnonzero(passes_on)
            passes_on[alone] = ~writes.shared(target[alone], level[alone], count[alone])
        operand[passes_on] = NONE
        value[passes_on] = own[passes_on]

        at = np.searchsorted(receives, made)
        made_source = self.location(senders[at], t.buffer, t.chunk)
        made_read_at = self.posted[senders[at]].astype(np.int64)
        made_value = made_of[at]
        made_operand = self.location(made, t.from_buffer, t.from_chunk)
        made_count = t.count[made].astype(np.int64)

        keep = _Keeper(self.locations)
        values = keep.values(made_level, _last_use(made_level, value, level, made_value, made_level), made_count)
        source = np.where(value != NONE, values[value] if len(made) else NONE, source)
        made_source = np.where(made_value != NONE, values[made_value] if len(made) else NONE, made_source)

        from_memory = np.flatnonzero(value == NONE)
        source[from_memory] = keep.staged(writes, source[from_memory], read_at[from_memory], level[from_memory],
                                          count[from_memory], writes_follow=False)
        elsewhere = np.flatnonzero((operand != NONE) & (operand != target))
        operand[elsewhere] = keep.staged(writes, operand[elsewhere], self.posted[rows[elsewhere]].astype(np.int64),
                                         level[elsewhere], count[elsewhere], writes_follow=False)
        from_memory = np.flatnonzero(made_value == NONE)
        made_source[from_memory] = keep.staged(writes, made_source[from_memory], made_read_at[from_memory],
                                               made_level[from_memory], made_count[from_memory], writes_follow=True)
        made_operand = keep.staged(writes, made_operand, self.posted[made].astype(np.int64), made_level, made_count,
                                   writes_follow=True)

        stage_target, stage_source, stage_level, stage_count, resolve, temporaries = keep.finish()
        none = np.full(len(stage_target), NONE, np.int64)
        row = np.concatenate([none, made, rows])
        phase = np.concatenate([stage_level * 3 + STAGE, made_level * 3 + FORWARD, level * 3 + WRITE])
        order, group = _ordered(phase, row)
        return Plan(self.base, self.locations, temporaries, group,
                    np.concatenate([resolve(stage_target), resolve(values), target])[order],
                    np.concatenate([none, resolve(made_operand), resolve(operand)])[order],
                    np.concatenate([stage_source, resolve(made_source), resolve(source)])[order],
                    np.concatenate([stage_count, made_count, count])[order], row[order])

    def _makers(self, receives: Array) -> Array:
        """Per receive, the send whose value it takes: looking through receives that pass on what they got unchanged."""
        t = self.table
        through = np.arange(len(t), dtype=np.int64)
        fused = np.flatnonzero((t.op == Op.SEND) & (t.of != NONE))
        fused = fused[t.op[t.of[fused]] == Op.RECV]
        through[fused] = self.partner[t.of[fused]]
        while True:                                         # each turn doubles the distance looked through
            further = through[through[fused]]
            if np.array_equal(further, through[fused]):
                return through[self.partner[receives]]
            through[fused] = further


class _Writes:
    """When each location is written."""

    def __init__(self, target: Array, level: Array, count: Array, levels: int) -> None:
        self.levels = levels
        locations, owner = spread(target, count)
        self.keys = np.sort(locations * levels + level[owner])

    def between(self, first: Array, start: Array, stop: Array, count: Array) -> Array:
        """Per range of ``count`` locations from ``first``: is any written at a level in ``start..stop``?"""
        return self._reach(first, start, stop, count, 0)

    def shared(self, first: Array, level: Array, count: Array) -> Array:
        """Per range: is any of its locations written more than once at ``level``?"""
        return self._reach(first, level, level + 1, count, 1)

    def _reach(self, first: Array, start: Array, stop: Array, count: Array, others: int) -> Array:
        """Per range: is any of its locations written more than ``others`` times at a level in ``start..stop``?"""
        if not len(self.keys) or (stop <= start).all():
            return np.zeros(len(first), bool)
        locations, owner = spread(first, count)
        at = locations * self.levels
        next_ = np.searchsorted(self.keys, at + start[owner]) + others
        found = (next_ < len(self.keys)) & (self.keys[next_.clip(max=len(self.keys) - 1)] < at + stop[owner])
        if len(owner) == len(first):
            return found
        return np.logical_or.reduceat(found, np.cumsum(count) - count) if len(first) else found


class _Keeper:
    """Gives temporary locations. Until :meth:`finish` they are numbered downwards from -2, one number an interval."""

    def __init__(self, locations: int) -> None:
        self.locations = locations
        self.starts: list[Array] = []
        self.ends: list[Array] = []
        self.counts: list[Array] = []
        self.given = 0
        self.stages: list[tuple[Array, Array, Array, Array]] = []

    def values(self, start: Array, end: Array, count: Array) -> Array:
        """Places for values that live from level ``start`` to level ``end``."""
        number = -2 - np.arange(self.given, self.given + len(start), dtype=np.int64)
        self.given += len(start)
        self.starts.append(start)
        self.ends.append(end)
        self.counts.append(count)
        return number

    def staged(self, writes: _Writes, source: Array, read_at: Array, used_at: Array, count: Array, *,
               writes_follow: bool) -> Array:
        """Sources from which to read at level ``used_at`` what memory held at ``read_at``.

        The source itself where nothing writes it in between, else a temporary copy of it. ``writes_follow``: the use
        comes before the writes of its level.
        """
        changed = writes.between(source, read_at, used_at, count)
        clash = np.zeros(len(source), bool) if writes_follow else writes.between(source, used_at, used_at + 1, count)
        copied = np.flatnonzero(changed | clash)
        at = np.where(changed, read_at, used_at)[copied]
        kept = self.values(at, used_at[copied], count[copied])
        self.stages.append((kept, source[copied], at, count[copied]))
        result = source.copy()
        result[copied] = kept
        return result

    def finish(self) -> tuple[Array, Array, Array, Array, _Resolve, int]:
        """The staging copies (target, source, level, count), what turns numbers into locations, and how many those
        are."""
        start, end, count = (np.concatenate(x) for x in (self.starts, self.ends, self.counts))
        place = np.zeros(len(start), np.int64)
        total = 0
        for size in np.unique(count):
            same = np.flatnonzero(count == size)
            slots, used = _colour(start[same], end[same])
            place[same] = total + slots * size
            total += used * int(size)
        target, source, level, counts = (np.concatenate(x) for x in zip(*self.stages, strict=True))
        return target, source, level, counts, _Resolve(self.locations + place), total


@dataclass(frozen=True)
class _Resolve:
    place: Array

    def __call__(self, numbers: Array) -> Array:
        temporary = numbers < NONE
        if not temporary.any():
            return numbers
        out = numbers.copy()
        out[temporary] = self.place[-2 - numbers[temporary]]
        return out


def _colour(start: Array, end: Array) -> tuple[Array, int]:
    """Slots for closed intervals of levels so that none overlap, as few as there are; the slots and their number.

    In order of their starts, an interval takes the slot that has been free for longest, or a new one. How many have
    been freed before each start is a search, so which interval each one follows is known without a loop.
    """
    n = len(start)
    by_start = np.argsort(start, kind="stable")
    by_end = np.argsort(end, kind="stable")
    freed = np.searchsorted(end[by_end], start[by_start])
    fresh = np.maximum.accumulate(np.concatenate([[0], np.arange(1, n + 1) - freed]))
    is_new = np.diff(fresh) > 0
    before = np.arange(n)
    before[by_start[~is_new]] = by_end[np.arange(n)[~is_new] - fresh[1:][~is_new]]
    before[by_start[is_new]] = by_start[is_new]
    while True:
        further = before[before]
        if np.array_equal(further, before):
            break
        before = further
    slot = np.empty(n, np.int64)
    slot[by_start[is_new]] = np.arange(int(is_new.sum()))
    return slot[before], int(fresh[-1])


def _bases(table: OpTable) -> tuple[Array, int]:
    base, at = [], 0
    for b in table.buffers:
        base.append(at - (0 if b.only is None else b.only * b.chunks))
        at += b.chunks * (table.ranks if b.only is None else 1)
    return np.array(base, np.int64), at


def _last_use(made_level: Array, value: Array, level: Array, made_value: Array, made_at: Array) -> Array:
    last = made_level.copy()
    for which, when in ((value, level), (made_value, made_at)):
        used = which != NONE
        np.maximum.at(last, which[used], when[used])
    return last


def _ordered(key: Array, row: Array) -> tuple[Array, Array]:
    """The order by key, then row, and a number for each key along it."""
    order = np.argsort(key, kind="stable") if (np.diff(row) >= 0).all() else np.lexsort((row, key))
    return order, np.cumsum(np.diff(key[order], prepend=-1) != 0) - 1


def spread(first: Array, count: Array) -> tuple[Array, Array]:
    """All locations of ranges of ``count`` from ``first``, and for each the index of its range."""
    owner = np.arange(len(first))
    if (count == 1).all():
        return first, owner
    owner = np.repeat(owner, count)
    return first[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count), owner
