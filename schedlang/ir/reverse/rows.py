"""The rows of a reversed table, once it is settled how each value comes back (see :mod:`schedlang.ir.reverse`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from schedlang.ir.reverse.liveness import Flow
from schedlang.ir.reverse.timeline import nodes, wait_pairs
from schedlang.ir.table import COLUMNS, DTYPES, NONE, Array, Buffer, Collective, OpTable, constant
from schedlang.ops import Op


class Way(IntEnum):
    """How a value comes back to where it came from: not at all, for nothing needs it; as a copy; as a sum; as a copy
    in a step of its own before the others of its step; or through a landing place, to be added in a step
    afterwards."""

    NOTHING = 0
    COPY = 1
    SUM = 2
    COPY_BEFORE = 3
    LAND = 4


_BEFORE, _MAIN, _AFTER = range(3)
"""The steps that the reverse of one step can need. Of a record, the reverse needs one step for each wait."""


@dataclass
class _Part:
    """Rows in the making.

    ``columns`` as in the table but for step and number; ``source``: the row that each is the reverse of; ``piece``:
    which part of it; ``sub``: which of the steps that its step becomes; ``place``: the higher, the earlier among the
    new rows.
    """

    columns: dict[str, Array]
    source: Array
    piece: Array
    sub: Array
    place: Array

    def take(self, rows: Array) -> _Part:
        return _Part({n: c[rows] for n, c in self.columns.items()}, self.source[rows], self.piece[rows],
                     self.sub[rows], self.place[rows])


def _part(table: OpTable, source: Array, piece: Array, sub: int | Array, place: Array, **columns: Array) -> _Part:
    """Rows that keep rank, stream and origin of their source; columns not given hold nothing."""
    n = len(source)
    empty = {c: constant(0 if c in ("chunk", "count") else NONE, n) for c in COLUMNS if c not in ("step", "number")}
    kept = {c: getattr(table, c)[source] for c in ("rank", "stream", "site", "turn")}
    return _Part({**empty, **kept, **columns}, source, piece, np.broadcast_to(np.asarray(sub, np.int32), (n,)), place)


def _joined(parts: list[_Part]) -> _Part:
    parts = [p for p in parts if len(p.source)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    columns = {c: np.concatenate([p.columns[c] for p in parts]) for c in parts[0].columns}
    others = (np.concatenate([getattr(p, f) for p in parts]) for f in ("source", "piece", "sub", "place"))
    return _Part(columns, *others)


def reversed_table(flow: Flow, way: Array, collective: Collective, buffers: tuple[Buffer, ...]) -> OpTable:
    """The reverse of ``flow.table``. ``way``: by element, how its value comes back (values of :class:`Way`)."""
    table = flow.table
    landing, slot = _landing(flow, way, buffers)
    pieces = _Pieces(flow, way)
    moves = _moves(flow, way, slot, pieces, len(buffers))
    events, names = _events(table)
    rows = _joined([*moves, events])
    keep = np.flatnonzero(rows.columns["op"] != NONE)
    if len(rows.source) == len(moves[0].source) and not pieces.split:
        keep = keep[::-1]
    else:
        keep = keep[np.lexsort((keep, -rows.source[keep], rows.piece[keep], -rows.place[keep]))]
    of = rows.columns["of"]
    fused = np.flatnonzero(of != NONE)
    if len(fused):
        position = np.full(len(rows.source), NONE, np.int32)
        position[keep] = np.arange(len(keep))
        of[fused] = position[of[fused]]
    rows = rows.take(keep)
    step, number = _numbered(table, rows)
    columns = {c: rows.columns[c].astype(DTYPES[c], copy=False) for c in rows.columns}
    return table.with_columns(
        name=f"{table.name} reversed", collective=collective, buffers=(*buffers, *landing), step=step, number=number,
        events=tuple(n for n, _ in names), event_indices=tuple(i for _, i in names), **columns)


def _landing(flow: Flow, way: Array, buffers: tuple[Buffer, ...]) -> tuple[tuple[Buffer, ...], Array]:
    """The scratch that values land in before they are added, if any, and by element the chunk of it (NONE: none)."""
    slot = np.full(len(way), NONE, np.int32)
    elements = np.flatnonzero(way == Way.LAND)
    if not len(elements):
        return (), slot
    rank = flow.table.rank[flow.row[elements]]
    order = np.argsort(rank, kind="stable")
    first = np.searchsorted(rank[order], rank[order])
    slot[elements[order]] = np.arange(len(order)) - first
    taken = {b.name for b in buffers}
    name = next(n for n in ("landing", *(f"landing{i}" for i in range(len(taken)))) if n not in taken)
    return (Buffer(name, int(slot.max()) + 1),), slot


class _Pieces:
    """How rows fall into pieces: runs of chunks that come back in one way, the same at all rows that a message touches.

    One entry for each piece of each row with chunks: ``row``, ``piece``, its number within the row, ``offset`` and
    ``count``, its chunks, and ``element``, the first of them. ``first``: by row, its first entry. ``place``: by row,
    its place in the new order. ``split``: whether any row has several pieces.
    """

    row: Array
    piece: Array
    offset: Array
    count: Array
    element: Array
    first: Array
    place: Array
    split: bool

    def __init__(self, flow: Flow, way: Array) -> None:
        table = flow.table
        rows = np.arange(len(table), dtype=np.int32)
        receives = (table.op == Op.RECV) | (table.op == Op.REDUCE_RECV)
        head = np.where(receives, flow.time.partner, np.where(table.of != NONE, table.of, rows))
        while not np.array_equal(head, head[head]):
            head = head[head]
        kind = way + np.int8(8) * flow.stored + np.int8(16) * flow.passed
        opens = flow.offset == 0
        changes = np.flatnonzero(~opens & (kind != np.roll(kind, 1)))
        self.split = bool(len(changes))
        cut = opens.copy()
        cut[flow.base[head[flow.row[changes]]] + flow.offset[changes]] = True
        self.place = rows
        if not self.split:
            self.row = flow.row[opens]
            self.first = (np.cumsum(table.count > 0) - (table.count > 0)).astype(np.int32)
            self.piece = np.zeros(len(self.row), np.int32)
            self.offset = self.piece
            self.count = table.count[self.row]
            self.element = flow.base[self.row]
            return
        starts = np.flatnonzero(cut & (head[flow.row] == flow.row)).astype(np.int32)
        owner = flow.row[starts]
        ends = np.minimum(np.append(starts[1:], len(cut)), flow.base[owner] + table.count[owner])
        pieces = np.bincount(owner, minlength=len(table)).astype(np.int32)
        of_head = (np.cumsum(pieces) - pieces)[head]
        mine = np.where(table.count > 0, pieces[head], 0)
        self.first = (np.cumsum(mine) - mine).astype(np.int32)
        self.row = np.repeat(rows, mine)
        self.piece = np.arange(len(self.row), dtype=np.int32) - self.first[self.row]
        entry = of_head[self.row] + self.piece
        self.offset = flow.offset[starts[entry]]
        self.count = (ends - starts)[entry].astype(np.int32)
        self.element = flow.base[self.row] + self.offset
        # Rows of one chain that stand together stay together, piece by piece.
        size, highest, lowest = np.bincount(head, minlength=len(table)), rows.copy(), rows.copy()
        np.maximum.at(highest, head, rows)
        np.minimum.at(lowest, head, rows)
        self.place = np.where((highest - lowest + 1 == size)[head], highest[head], rows)


def _moves(flow: Flow, way: Array, slot: Array, pieces: _Pieces, landing: int) -> list[_Part]:
    """Transfers and local operations: one row for each piece, ``op`` NONE where nothing comes back, and two lists
    more: local operands that come back beside a message, and what is added from its landing place. In the first part
    ``of`` is a place in that part."""
    table, row, element = flow.table, pieces.row, pieces.element
    op = table.op[row]
    fused = (op == Op.SEND) & (table.of[row] != NONE)
    receives = (op == Op.RECV) | (op == Op.REDUCE_RECV)
    # What a fused send and its receive were is known at the receive.
    known = np.where(fused, table.of[row], row) if fused.any() else row
    at = flow.base[known] + pieces.offset
    how, stored, passed = way[at], flow.stored[at], flow.passed[at]
    operation = table.op[known]
    here = _shifted(table.buffer[row], table.chunk[row], pieces.offset, 0)
    there = _shifted(table.from_buffer[known], table.from_chunk[known], pieces.offset, NONE)
    land = (np.full(len(row), landing, np.int32), slot[element])

    new_op = np.full(len(row), NONE, np.int8)
    to = (np.full(len(row), NONE, np.int32), np.zeros(len(row), np.int32))
    operand = (np.full(len(row), NONE, np.int32), np.full(len(row), NONE, np.int32))
    of = np.full(len(row), NONE, np.int32)

    def put(where: Array, kind: int | Array, target: tuple[Array, Array],
            source: tuple[Array, Array] | None = None) -> None:
        new_op[where] = kind[where] if isinstance(kind, np.ndarray) else kind
        for column, values in zip((*to, *operand), (*target, *(source or ())), strict=False):
            column[where] = values[where]

    asks = (op == Op.SEND) & ~fused
    put(asks & (how == Way.COPY), Op.RECV, here)
    put(asks & (how == Way.SUM), Op.REDUCE_RECV, here, here)
    put(asks & (how == Way.LAND), Op.RECV, land)
    put(receives & stored & ~passed, Op.SEND, here)
    local = (op == Op.COPY) | (op == Op.REDUCE)
    adds = np.where(how == Way.SUM, np.int8(Op.REDUCE), np.int8(Op.COPY))
    put(local & (how != Way.NOTHING), adds, there, here)
    if fused.any():
        # The value that comes back to a forwarding rank: what its target returns, plus what its own copy has gathered.
        sums = operation == Op.REDUCE_RECV
        keeps = np.where(sums, there[0], NONE), np.where(sums, there[1], 0)
        back = fused & passed
        put(back, Op.RECV, keeps)
        put(back & stored, Op.REDUCE_RECV, keeps, here)
        put(receives & passed, Op.SEND, keeps)
        forwards = np.flatnonzero(receives & passed)
        of[forwards] = pieces.first[flow.forward[row[forwards]]] + pieces.piece[forwards]
    transfer = op <= Op.REDUCE_RECV
    place = pieces.place[row]
    main = _part(table, row, pieces.piece, np.where(local & (how == Way.COPY_BEFORE), _BEFORE, _MAIN), place,
                 op=new_op, buffer=to[0], chunk=to[1], count=pieces.count, of=of, from_buffer=operand[0],
                 from_chunk=operand[1], peer=np.where(transfer, table.peer[row], NONE),
                 chan=np.where(transfer, table.chan[row], NONE))

    in_place = (here[0] == there[0]) & (here[1] == there[1])
    beside = np.flatnonzero((op == Op.REDUCE_RECV) & ~in_place & stored & ~passed & (how != Way.NOTHING))
    after = np.flatnonzero(asks & (how == Way.LAND))
    parts = [main]
    for rows, sub, kind, target, source in (
            (beside, np.where(how[beside] == Way.COPY_BEFORE, _BEFORE, _MAIN), adds[beside], there, here),
            (after, _AFTER, np.full(len(after), Op.REDUCE, np.int8), here, land)):
        parts.append(_part(table, row[rows], pieces.piece[rows], sub, place[rows], op=kind, buffer=target[0][rows],
                           chunk=target[1][rows], count=pieces.count[rows], from_buffer=source[0][rows],
                           from_chunk=source[1][rows]))
    return parts


def _shifted(buffer: Array, chunk: Array, offset: Array, nothing: int) -> tuple[Array, Array]:
    """Places ``offset`` chunks further on; ``nothing`` is the chunk where there is no buffer."""
    return buffer, np.where(buffer == NONE, np.int32(nothing), chunk + offset)


def _events(table: OpTable) -> tuple[_Part, list[tuple[str, tuple[int, ...]]]]:
    """Records and waits, and the names and indices of their events: what came after a wait now comes before its
    record."""
    waits, records = wait_pairs(table)
    order = np.argsort(records, kind="stable")
    waits, records = waits[order], records[order]
    turn = np.arange(len(waits)) - np.searchsorted(records, records)
    old = table.event[records]
    several = np.zeros(len(table.events), bool)
    several[old[turn > 0]] = True
    crowded = {name for name, many in zip(table.events, several.tolist(), strict=True) if many}
    size = int(turn.max(initial=0)) + 1
    keys, new = np.unique(old.astype(np.int64) * size + turn, return_inverse=True)
    names: dict[tuple[str, tuple[int, ...]], None] = {}
    for event, j in zip((keys // size).tolist(), (keys % size).tolist(), strict=True):
        name, indices = table.events[event], table.event_indices[event]
        if name in crowded:
            indices = (*indices, j)
        while (name, indices) in names:
            name += "'"
        names[name, indices] = None
    source = np.concatenate((waits, records))
    kind = np.repeat(np.array([Op.RECORD, Op.WAIT], np.int8), len(waits))
    return _part(table, source, np.concatenate((0 * turn, turn)), np.concatenate((0 * turn, turn)), source, op=kind,
                 event=np.concatenate((new, new))), list(names)


def _numbered(table: OpTable, rows: _Part) -> tuple[Array, Array | None]:
    """``step`` and ``number`` of the new rows, without gaps where steps vanished and with room where they
    multiplied."""
    _, first, length = nodes(table)
    width = int(rows.sub.max(initial=0)) + 1
    lane = table.rank[rows.source] * np.int32(len(table.streams)) + table.stream[rows.source]
    start = first[lane].astype(np.int64) * width
    last = (length[lane] - 1 - table.step[rows.source]).astype(np.int64)
    ours, before = _smaller(start + last * width + rows.sub, start)
    if table.number is None:
        return ours - before, None
    back = (table.number.max(initial=0) - table.number[rows.source]).astype(np.int64)
    return ours - before, _smaller(back * width + rows.sub)[0]


def _smaller(keys: Array, *others: Array) -> list[Array]:
    """How many different smaller values occur among ``keys``, for each of them and for each of ``others`` (int32)."""
    size = int(max((int(a.max(initial=0)) for a in (keys, *others)), default=0)) + 1
    if size > 8 * len(keys) + 1024:
        values = np.unique(keys)
        return [np.searchsorted(values, a).astype(np.int32) for a in (keys, *others)]
    used = np.zeros(size, bool)
    used[keys] = True
    smaller = np.cumsum(used, dtype=np.int32) - used
    return [smaller[a] for a in (keys, *others)]
