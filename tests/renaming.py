"""Copies of tables that say the same in other words: other names, other orders of rows, of buffers, of streams."""

import random
from dataclasses import replace

import numpy as np

from schedlang.diff.colours import own_buffers
from schedlang.ir.table import COLUMNS, NONE, OpTable
from schedlang.ops import Op


def in_other_words(table: OpTable, rng: random.Random) -> OpTable:
    """A table with the same operations."""
    return _shuffled(_renamed(table, rng), rng)


def _order(size: int, rng: random.Random) -> np.ndarray:
    order = list(range(size))
    rng.shuffle(order)
    return np.array([*order, NONE], np.int32)       # the last entry stands for NONE


def _renamed(table: OpTable, rng: random.Random) -> OpTable:
    """Names of streams go to others, each rank's streams and each connection's by themselves; events and scratch are
    called and listed otherwise; scratch may be larger."""
    n = len(table.streams)
    streams = np.stack([_order(n, rng) for _ in range(table.ranks)])
    chans = np.stack([_order(n, rng) for _ in range(table.ranks ** 2)])
    sending = table.op == Op.SEND
    ends = np.where(sending, table.rank * table.ranks + table.peer, table.peer * table.ranks + table.rank)
    chan = chans[np.where(table.peer == NONE, 0, ends), table.chan]
    events = _order(len(table.events), rng)
    new = np.argsort(events[:-1])
    own = own_buffers(table)
    # Scratch and the caller's buffers change places; contributions go by the order of the latter, which stays.
    places = sorted(rng.sample(range(len(table.buffers)), len(own)))
    rest = [i for i in range(len(table.buffers)) if i not in places]
    rng.shuffle(rest)
    moved = np.full(len(table.buffers) + 1, NONE, np.int32)
    moved[sorted(own)] = places
    moved[[i for i in range(len(table.buffers)) if i not in own]] = rest
    buffers = [None] * len(table.buffers)
    for i, b in enumerate(table.buffers):
        buffers[moved[i]] = b if i in own else replace(b, name=f"other{i}", chunks=b.chunks + rng.randrange(3))
    e = table.collective.ensures
    ensures = e if e is None else replace(e, buffer=moved[e.buffer], source_buffer=moved[e.source_buffer])
    return table.with_columns(
        streams=tuple(f"s{k}" for k in range(n)), stream=streams[table.rank, table.stream],
        chan=np.where(table.peer == NONE, NONE, chan).astype(np.int32),
        events=tuple("renamed" for _ in new), event_indices=tuple((int(k),) for k in new), event=events[table.event],
        buffers=tuple(buffers), buffer=moved[table.buffer], from_buffer=moved[table.from_buffer],
        collective=replace(table.collective, ensures=ensures), number=None)


def _shuffled(table: OpTable, rng: random.Random) -> OpTable:
    """Rows in another order, but for what an order in a step says: messages of one connection, additions."""
    order = list(range(len(table)))
    rng.shuffle(order)
    kept: dict[tuple, list[int]] = {}
    for place, row in enumerate(order):
        step = tuple(int(getattr(table, c)[row]) for c in ("rank", "stream", "step"))
        if table.op[row] == Op.SEND:
            kept.setdefault((*step, int(table.peer[row]), int(table.chan[row])), []).append(place)
        elif table.op[row] in (Op.RECV, Op.REDUCE_RECV, Op.REDUCE):
            kept.setdefault(step, []).append(place)
    for places in kept.values():
        for place, row in zip(places, sorted(order[p] for p in places)):
            order[place] = row
    by = np.array(order, np.int64)
    position = np.full(len(table) + 1, NONE, np.int32)
    position[by] = np.arange(len(by))
    columns = {c: getattr(table, c)[by] for c in COLUMNS if c != "number"}
    columns["of"] = position[columns["of"]]
    return table.with_columns(**columns)
