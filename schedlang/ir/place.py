"""Placing a table inside a larger one: other ranks, other chunks, other names; many copies at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from schedlang.ir.table import DTYPES, NONE, Array, OpTable, Site, constant
from schedlang.ops import Op


@dataclass(frozen=True)
class Placement:
    """How m copies of a table lie in a larger one; every array has a row for each copy.

    ``ranks[i, q]``: where rank q lies. ``streams[i, s]`` and ``chans[i, s]``: what stream s is as a stream and as the
    chan of a connection. ``buffers[i, b]`` and ``offsets[i, b]``: which buffer b is, and the chunk in it where b
    begins; ``factors[i]``: how many chunks of the larger table a chunk of the small one is. ``events[i, e]``: what
    event e is. ``sites[i]``: where the copy's sites begin. ``site``: the site of the statement that placed the
    copies, copy i in its turn i; rows of the small table without a site (see :func:`fork_join`) get that one.
    """

    ranks: Array
    streams: Array
    chans: Array
    buffers: Array
    offsets: Array
    factors: Array
    events: Array
    sites: Array
    site: int

    @property
    def copies(self) -> int:
        """How many copies there are."""
        return len(self.factors)


def placed(table: OpTable, by: Placement, column: str) -> Array | int:
    """A column of all copies: an int where it is one value throughout, else an array (copies, rows of the table).

    ``of`` counts rows within a copy. Not for ``step`` and ``number``, which follow from where the copies lie.
    """
    cells = getattr(table, column)
    if column == "op":
        return np.broadcast_to(cells, (by.copies, len(table)))
    if column == "of":
        return NONE if (cells == NONE).all() else np.broadcast_to(cells, (by.copies, len(table)))
    if column in ("rank", "peer"):
        return _mapped(by.ranks, cells)
    if column in ("stream", "chan"):
        return _mapped(by.streams if column == "stream" else by.chans, cells)
    if column == "event":
        return _mapped(by.events, cells)
    if column in ("buffer", "from_buffer"):
        return _mapped(by.buffers, cells)
    if column in ("chunk", "from_chunk"):
        buffer = table.buffer if column == "chunk" else table.from_buffer
        offset = _mapped(by.offsets, buffer)
        moved = np.where(buffer == NONE, cells, cells * by.factors[:, None] + offset)
        return np.asarray(moved)
    if column == "count":
        return np.asarray(cells * by.factors[:, None])
    own = cells if column == "turn" else cells + by.sites[:, None]
    fallback = np.arange(by.copies)[:, None] if column == "turn" else by.site
    return np.asarray(np.where(table.site == NONE, fallback, own))


def _mapped(names: Array, cells: Array) -> Array | int:
    """``names[:, cells]`` with NONE kept."""
    if len(cells) and cells.strides == (0,):
        if cells[0] == NONE:
            return NONE
        values = names[:, cells[0]]
        if (values == values[0]).all():
            return int(values[0])
    if names.shape[1] == 0:
        return NONE
    found = names[:, cells]
    return np.where(cells == NONE, NONE, found) if len(cells) and cells.min() == NONE else np.asarray(found)


def placed_sites(table: OpTable, by: Placement, copy: int) -> list[Site]:
    """The sites of one copy, with the placing statement as the parent of those that have none."""
    base = int(by.sites[copy])
    return [replace(s, parent=(by.site, copy) if s.parent is None else (s.parent[0] + base, s.parent[1]))
            for s in table.sites]


FORK, JOIN = "fork", "join"
"""The names of the events that order a table's own streams against the stream it is used in."""


def fork_join(table: OpTable, default: str = "main") -> OpTable:
    """The table with its own streams tied to its stream ``default``: at each rank they start after what that stream did
    before, and it goes on after they end.

    At each rank with own streams: ``record fork`` on the default stream and ``wait fork`` first on each own stream;
    at the end ``record join[k]`` on the k-th own stream (in the order in which the streams first occur) and ``wait
    join[k]`` on the default stream. These rows have no site. All rows of one kind (of one k, for the last) share a
    ``number``; ``step`` is not brought up to date. A table without own streams is returned as it is. Needs
    ``number``.
    """
    assert table.number is not None
    main = table.streams.index(default) if default in table.streams else len(table.streams)
    streams = table.streams if main < len(table.streams) else (*table.streams, default)
    if not len(table) or (table.stream == main).all():
        return table
    order, place = _by_occurrence(table.stream, len(streams))
    pairs = np.flatnonzero(np.bincount(table.rank.astype(np.int64) * len(streams) + place[table.stream]))
    rank, stream = pairs // len(streams), order[pairs % len(streams)]
    rank, stream = rank.astype(np.int32), stream.astype(np.int32)
    rank, stream = rank[stream != main], stream[stream != main]
    first = np.flatnonzero(np.concatenate(([True], rank[1:] != rank[:-1])))
    ordinal = np.arange(len(rank)) - np.repeat(first, np.diff(np.append(first, len(rank))))
    by_ordinal = np.argsort(ordinal, kind="stable")
    names = [(FORK, (0,)), *((JOIN, (k,)) for k in range(int(ordinal.max()) + 1))]
    fork, join = len(table.events), len(table.events) + 1
    last = int(table.number[-1]) + 2
    head = [_events(Op.RECORD, rank[first], main, fork, 0), _events(Op.WAIT, rank, stream, fork, 1)]
    tail = [_events(Op.RECORD, rank, stream, join + ordinal, last + 1),
            _events(Op.WAIT, rank[by_ordinal], main, join + ordinal[by_ordinal], last + 2 + ordinal[by_ordinal])]
    before = sum(len(p["op"]) for p in head)
    after = sum(len(p["op"]) for p in tail)
    columns = {}
    for c, dtype in DTYPES.items():
        own = getattr(table, c)
        if c == "of":
            own = np.where(own == NONE, NONE, own + before)
        elif c == "number":
            own = own + 2
        ends = [p[c] for p in (*head, *tail)]
        if own.strides == (0,) and all(p.strides == (0,) and p[0] == own[0] for p in ends):
            columns[c] = constant(int(own[0]), before + len(table) + after, dtype)
        else:
            columns[c] = np.concatenate([*(p[c] for p in head), own, *(p[c] for p in tail)]).astype(dtype, copy=False)
    return table.with_columns(
        streams=streams, events=(*table.events, *(n for n, _ in names)),
        event_indices=(*table.event_indices, *(i for _, i in names)), **columns)


def _by_occurrence(stream: Array, n: int) -> tuple[Array, Array]:
    """The streams in the order of their first rows, and the place of each in that order."""
    first = np.full(n, len(stream))
    first[stream[::-1]] = np.arange(len(stream) - 1, -1, -1)  # of several assignments to one place the last one stands
    order = np.argsort(first, kind="stable")
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    return order, place


def _events(op: Op, rank: Array, stream: Array | int, event: Array | int, number: Array | int) -> dict[str, Array]:
    rows = len(rank)
    values = dict.fromkeys(DTYPES, NONE) | {"op": op, "rank": rank, "stream": stream, "step": 0, "chunk": 0, "count": 0,
                                            "event": event, "turn": 0, "number": number}
    return {c: v if isinstance(v, np.ndarray) else constant(int(v), rows, DTYPES[c]) for c, v in values.items()}


def by_number(table: OpTable) -> OpTable:
    """The table with its rows in the order of their source steps, as ``number`` counts them."""
    assert table.number is not None
    if not len(table) or (table.number[1:] >= table.number[:-1]).all():
        return table
    order = np.argsort(table.number, kind="stable")
    position = np.empty(len(order), np.int32)
    position[order] = np.arange(len(order), dtype=np.int32)
    columns = table.take(order)
    columns["of"] = np.where(columns["of"] == NONE, NONE, position[columns["of"]]).astype(np.int32)
    return table.with_columns(**columns)
