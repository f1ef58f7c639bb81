"""From an op table and a legal order to moves: who writes what from where, level after level, whatever the sizes are.

A *location* is a chunk of a buffer of a rank. Each has a number; behind those of the buffers come temporary ones, for
values that must be kept between being read and being used: a message whose source changes meanwhile, or what a fused
receive passes on. A *move* writes ``count`` consecutive locations: a copy, or ``target = operand (op) source``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedlang.backends.numpy.temporaries import Keeper, Writes
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op


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
    places = _Places(table)
    source = _sources(table, partner)
    receives, local = source.receives, np.flatnonzero((table.op == Op.COPY) | (table.op == Op.REDUCE))

    # What fused reductions pass on, and what is written. The targets of the former are temporary places.
    made = source.made
    at = np.searchsorted(receives, made)
    forwards = _Moves(
        row=made, target=np.zeros(len(made), np.int64), operand=places.at(made, table.from_buffer, table.from_chunk),
        operand_at=posted[made].astype(np.int64), source=places.at(source.send[at], table.buffer, table.chunk),
        source_at=posted[source.send[at]].astype(np.int64), value=source.value[at],
        count=table.count[made].astype(np.int64), level=ready[source.made_by].astype(np.int64))
    storing = np.flatnonzero(table.buffer[receives] != NONE)
    rows, sends = np.concatenate([receives[storing], local]), source.send[storing]
    target = places.at(rows, table.buffer, table.chunk)
    writes = _Moves(
        row=rows, target=target, operand=_operands(table, places, rows, target),
        operand_at=posted[rows].astype(np.int64),
        source=np.concatenate([places.at(sends, table.buffer, table.chunk),
                               places.at(local, table.from_buffer, table.from_chunk)]),
        source_at=np.concatenate([posted[sends], posted[local]]).astype(np.int64),
        value=np.concatenate([source.value[storing], np.full(len(local), NONE)]),
        count=table.count[rows].astype(np.int64), level=done[rows].astype(np.int64))
    written = Writes(writes.target, writes.level, writes.count, int(done.max(initial=0)) + 2)
    _store_what_is_passed_on(writes, made, written)

    keeper = Keeper(written, places.locations)
    forwards.target = keeper.keep(forwards.level, _last_uses(forwards, writes), forwards.count)
    for moves in (writes, forwards):
        moves.read_unchanged(keeper, forwards.target, writes_follow=moves is forwards)
    target, read, level, count = keeper.copies()
    nothing = np.full(len(target), NONE, np.int64)
    staged = _Moves(row=nothing, target=target, operand=nothing, operand_at=level, source=read, source_at=level,
                    value=nothing, count=count, level=level)
    return _joined(places, [staged, forwards, writes], keeper)


class _Places:
    """The numbers of locations."""

    def __init__(self, table: OpTable) -> None:
        self.table = table
        self.chunks = np.array([b.chunks for b in table.buffers], np.int64)
        copies = np.array([table.ranks if b.only is None else 1 for b in table.buffers], np.int64)
        before = np.cumsum(self.chunks * copies) - self.chunks * copies
        only = np.array([b.only or 0 for b in table.buffers], np.int64)
        self.base = before - only * self.chunks     # the one rank that has a buffer finds it at its start
        self.locations = int((self.chunks * copies).sum())

    def at(self, rows: Array, buffer: Array, chunk: Array) -> Array:
        """The first location of each of the rows, for its columns ``buffer`` and ``chunk``."""
        which = buffer[rows]
        return self.base[which] + self.table.rank[rows].astype(np.int64) * self.chunks[which] + chunk[rows]


@dataclass
class _Moves:
    """Moves of one kind, as columns. ``level``: when they are executed; ``source_at``, ``operand_at``: at which level
    source and operand count as read. ``value``: NONE, or which of the values passed on is the source."""

    row: Array
    target: Array
    operand: Array
    operand_at: Array
    source: Array
    source_at: Array
    value: Array
    count: Array
    level: Array

    def read_unchanged(self, keeper: Keeper, values: Array, *, writes_follow: bool) -> None:
        """Point source and operand to places that still hold, at ``level``, what counts as read."""
        passed = np.flatnonzero(self.value != NONE)
        self.source[passed] = values[self.value[passed]]
        plain = np.flatnonzero(self.value == NONE)
        self.source[plain] = keeper.unchanged(self.source[plain], self.source_at[plain], self.level[plain],
                                              self.count[plain], writes_follow=writes_follow)
        apart = np.flatnonzero((self.operand != NONE) & (self.operand != self.target))
        self.operand[apart] = keeper.unchanged(self.operand[apart], self.operand_at[apart], self.level[apart],
                                               self.count[apart], writes_follow=writes_follow)


@dataclass(frozen=True)
class _Sources:
    """Where received values come from. Per receive: ``send``, the row that first sent the value as it is, and
    ``value``, which of the ``made`` it is, or NONE where it comes from memory. ``made``: the fused reductions (rows,
    rising) whose values somebody receives; ``made_by``: a send that passes each on."""

    receives: Array
    send: Array
    value: Array
    made: Array
    made_by: Array


def _sources(table: OpTable, partner: Array) -> _Sources:
    receives = np.flatnonzero((table.op == Op.RECV) | (table.op == Op.REDUCE_RECV))
    origin = np.arange(len(table), dtype=np.int64)          # per send: looking through receives that change nothing
    fused = np.flatnonzero((table.op == Op.SEND) & (table.of != NONE))
    fused = fused[table.op[table.of[fused]] == Op.RECV]
    origin[fused] = partner[table.of[fused]]
    while True:                                             # each turn doubles the distance looked through
        further = origin[origin[fused]]
        if np.array_equal(further, origin[fused]):
            break
        origin[fused] = further
    send = origin[partner[receives]]
    makes = table.of[send] != NONE
    made, first = np.unique(table.of[send][makes], return_index=True)
    value = np.where(makes, np.searchsorted(made, table.of[send]), NONE)
    return _Sources(receives, send, value, made, send[makes][first])


def _operands(table: OpTable, places: _Places, rows: Array, target: Array) -> Array:
    op = table.op[rows]
    operand = np.where(op == Op.REDUCE, target, NONE)
    received = np.flatnonzero(op == Op.REDUCE_RECV)
    operand[received] = places.at(rows[received], table.from_buffer, table.from_chunk)
    return operand


def _store_what_is_passed_on(writes: _Moves, made: Array, written: Writes) -> None:
    """A fused reduction that alone writes its place stores the very value it passes on."""
    if not len(made):
        return
    own = np.searchsorted(made, writes.row).clip(max=len(made) - 1)
    mine = np.flatnonzero(made[own] == writes.row)
    mine = mine[~written.shared(writes.target[mine], writes.level[mine], writes.count[mine])]
    writes.operand[mine] = NONE
    writes.value[mine] = own[mine]


def _last_uses(forwards: _Moves, writes: _Moves) -> Array:
    """Per value passed on, the level of its last use."""
    last = forwards.level.copy()
    for moves in (forwards, writes):
        used = moves.value != NONE
        np.maximum.at(last, moves.value[used], moves.level[used])
    return last


def _joined(places: _Places, kinds: list[_Moves], keeper: Keeper) -> Plan:
    """A plan of moves by level, in the order of the kinds, then in row order."""
    resolve = keeper.finish()
    phase = np.concatenate([moves.level * len(kinds) + k for k, moves in enumerate(kinds)])
    row = np.concatenate([moves.row for moves in kinds])
    order = np.argsort(phase, kind="stable") if (np.diff(row) >= 0).all() else np.lexsort((row, phase))
    group = np.cumsum(np.diff(phase[order], prepend=-1) != 0) - 1

    def column(name: str) -> Array:
        joined: Array = np.concatenate([getattr(moves, name) for moves in kinds])[order]
        return joined

    return Plan(places.base, places.locations, resolve.total, group, resolve(column("target")),
                resolve(column("operand")), resolve(column("source")), column("count"), row[order])
