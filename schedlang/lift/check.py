"""Whether a text says what a table does, under the names that it was written with: exactly, row by row."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from schedlang.ir.table import NONE, Array, OpTable
from schedlang.lift.head import own_buffers, same_ensures
from schedlang.ops import Op


@dataclass(frozen=True, eq=False)
class Renamed:
    """What a table's things are called in the text, one entry a row: ``stream``, and, where the row has such a thing,
    ``chan`` and ``event``; and of each buffer its name. Names are any values that compare; NONE for nothing."""

    stream: Sequence[Hashable]
    chan: Sequence[Hashable]
    event: Sequence[Hashable]
    buffers: list[str]


def same(table: OpTable, names: Renamed, written: OpTable) -> bool:
    """Whether ``written`` is ``table`` with these names, which tell apart what must be told apart; the order of rows
    does not count but where a step has several messages on a connection or several sums, nor does unused scratch, nor
    the order of waits that follow each other: what stands behind them is posted when all they wait for is done."""
    if len(table) != len(written) or not _same_head(table, names, written):
        return False
    index = {b.name: i for i, b in enumerate(written.buffers)}
    if any(n not in index for n in names.buffers):
        return False
    buffer = np.array([*(index[n] for n in names.buffers), NONE], np.int64)
    if not same_ensures(table.collective.ensures, written.collective.ensures, buffer):
        return False
    events = list(zip(written.events, written.event_indices, strict=True))
    here = _codes(names.stream, names.chan, names.event)
    there = _codes([written.streams[k] for k in written.stream.tolist()],
                   [NONE if k == NONE else written.streams[k] for k in written.chan.tolist()],
                   [NONE if k == NONE else events[k] for k in written.event.tolist()], known=here[1])
    if not _tells_apart(table, here[0]):
        return False
    return np.array_equal(_sorted(table, here[0], buffer), _sorted(written, there[0], np.arange(-1, len(index))[
        np.r_[1 : len(index) + 1, 0]]))


def _same_head(table: OpTable, names: Renamed, written: OpTable) -> bool:
    c, d = table.collective, written.collective
    # Of a custom collective `inplace` says nothing: its buffers do.
    placed = c.name == "custom" or c.inplace == d.inplace
    if not placed or (table.ranks, table.chunks, c.name, table.operator, c.root) != (
            written.ranks, written.chunks, d.name, written.operator, d.root):
        return False
    if (c.counts is None) != (d.counts is None):
        return False
    if c.counts is not None and d.counts is not None and not np.array_equal(c.counts, d.counts):
        return False
    own = own_buffers(table)
    return {(names.buffers[i], b.chunks, b.place, b.role, b.only) for i, b in enumerate(table.buffers) if i in own} == {
        (b.name, b.chunks, b.place, b.role, b.only) for i, b in enumerate(written.buffers)
        if i in own_buffers(written)} and all(
        any((o.name, o.place, o.only) == (names.buffers[i], b.place, b.only) and o.chunks >= b.chunks
            for o in written.buffers) for i, b in enumerate(table.buffers))


Codes = tuple[Array, Array, Array]


def _codes(*columns: Sequence[Hashable], known: list[dict[Hashable, int]] | None = None) -> tuple[
        Codes, list[dict[Hashable, int]]]:
    """Numbers for the names in columns; NONE stays."""
    numbers = [dict(k) for k in known] if known else [{} for _ in columns]
    found = tuple(np.array([NONE if v == NONE else n.setdefault(v, len(n)) for v in column], np.int64)
                  for column, n in zip(columns, numbers, strict=True))
    return found, numbers  # type: ignore[return-value]


def _tells_apart(table: OpTable, codes: Codes) -> bool:
    """Whether what a rank's streams, two ranks' connections and a rank's events are called is one to one."""
    sends = table.op == Op.SEND
    source = np.where(sends, table.rank, table.peer).astype(np.int64)
    target = np.where(sends, table.peer, table.rank)
    ends = np.where(table.peer == NONE, NONE, source * table.ranks + target)
    for where, old, new in ((table.rank, table.stream, codes[0]), (ends, table.chan, codes[1]),
                            (table.rank, table.event, codes[2])):
        there = np.flatnonzero(old != NONE)
        both = np.unique(np.stack([where[there], old[there], new[there]], 1).astype(np.int64), axis=0)
        for k in (1, 2):
            if len(np.unique(both[:, [0, k]], axis=0)) != len(both):
                return False
    return True


def _sorted(t: OpTable, codes: Codes, buffer: Array) -> Array:
    """All that rows say, sorted: equal for equal tables."""
    stream, chan, event = codes
    step = _without_order(t, stream)
    node = np.unique(np.stack([t.rank, stream, step], 1), axis=0, return_inverse=True)[1].reshape(len(t))
    fused = t.of != NONE
    message = _turn(node, t.op, t.peer, chan) * (t.peer != NONE)
    lands = (t.op == Op.RECV) | (t.op == Op.REDUCE_RECV) | (t.op == Op.REDUCE)
    crowd = np.bincount(node[(t.op == Op.REDUCE) | (t.op == Op.REDUCE_RECV)], minlength=int(node.max(initial=0)) + 1)
    sums = _turn(node, lands) * (lands & (crowd[node] > 1)) if len(t) else message
    of = [np.where(fused, column[t.of], NONE) for column in (t.peer, chan, message)]
    columns = [t.rank, stream, step, t.op, buffer[t.buffer], np.where(t.buffer == NONE, 0, t.chunk), t.count, t.peer,
               chan, buffer[t.from_buffer], np.where(t.from_buffer == NONE, 0, t.from_chunk), event, message, sums,
               fused, *of]
    table = np.stack([c.astype(np.int64) for c in columns], 1)
    return table[np.lexsort(table.T[::-1])]


def _without_order(t: OpTable, stream: Array) -> Array:
    """The step of each row; waits that follow each other in a lane all have that of the first."""
    step = t.step.astype(np.int64)
    waits = np.flatnonzero(t.op == Op.WAIT)
    waits = waits[np.lexsort((step[waits], stream[waits], t.rank[waits]))]
    first = np.ones(len(waits), bool)
    first[1:] = (np.diff(t.rank[waits]) != 0) | (np.diff(stream[waits]) != 0) | (np.diff(step[waits]) != 1)
    step[waits] = step[waits[np.maximum.accumulate(np.where(first, np.arange(len(waits)), 0))]]
    return step


def _turn(*keys: Array) -> Array:
    """Of rows with equal keys, which comes first: 0, 1, ... in the order of rows."""
    size = len(keys[0])
    group = np.unique(np.stack([k.astype(np.int64) for k in keys], 1), axis=0, return_inverse=True)[1].reshape(size)
    order = np.argsort(group, kind="stable")
    start = np.searchsorted(group[order], np.arange(int(group.max(initial=0)) + 1))
    found = np.empty(size, np.int64)
    found[order] = np.arange(size) - start[group[order]]
    return found
