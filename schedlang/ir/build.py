"""Tables from rows written one by one: for tests, and for programs that make small tables of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from schedlang.ir.table import COLUMNS, DTYPES, NONE, Buffer, Collective, OpTable, Site
from schedlang.ops import Op
from schedlang.source import Location


def table_from_rows(rows: Iterable[Mapping[str, Any]], *, ranks: int, collective: Collective, buffers: Iterable[Buffer],
                    chunks: int = 1, name: str = "table", params: Mapping[str, Any] | None = None) -> OpTable:
    """A table from rows in their JSON form: ``op rank stream step`` and what the operation needs.

    Row keys are those of the JSON form of language.md, plus ``location`` (where the row comes from). Streams, events
    and buffers are given by name. Defaults: stream ``main``, step 0, count 1, chan the stream, event index 0, and on a
    reduce_recv the local operand is the destination. A fused send takes buffer and chunk from its receive.
    Nothing is checked here but names: see ``ir/legal.py``.

    Raises KeyError for an unknown buffer name or operation and for a missing field.
    """
    buffers = tuple(buffers)
    place = {b.name: i for i, b in enumerate(buffers)}
    streams: dict[str, int] = {}
    events: dict[tuple[str, tuple[int, ...]], int] = {}
    sites: dict[Location | None, int] = {}
    rows = list(rows)
    columns: dict[str, list[int]] = {c: [] for c in COLUMNS if c != "number"}

    def emit(**values: int) -> None:
        for column, cells in columns.items():
            cells.append(values.get(column, NONE))

    def stores(row: Mapping[str, Any]) -> tuple[int, int]:
        return (NONE, 0) if row["buffer"] is None else (place[row["buffer"]], row["chunk"])

    for row in rows:
        op = Op[row["op"].upper()]
        stream = row.get("stream", "main")
        values = {
            "op": int(op), "rank": row["rank"], "step": row.get("step", 0), "turn": 0, "chunk": 0, "count": 0,
            "stream": streams.setdefault(stream, len(streams)),
            "site": sites.setdefault(row.get("location"), len(sites)),
        }
        if op in (Op.RECORD, Op.WAIT):
            index = row.get("index", 0)
            key = (row["event"], tuple(index) if isinstance(index, (list, tuple)) else (index,))
            values["event"] = events.setdefault(key, len(events))
        else:
            values["count"] = row.get("count", 1)
            source = row if row.get("of") is None else rows[row["of"]]
            values["buffer"], values["chunk"] = stores(source)
        if op in (Op.SEND, Op.RECV, Op.REDUCE_RECV):
            values["peer"] = row["peer"]
            chan = row.get("chan", stream)
            values["chan"] = streams.setdefault(chan, len(streams))
            values["of"] = NONE if row.get("of") is None else row["of"]
        if op is Op.REDUCE_RECV and row.get("from_buffer") is None:
            values["from_buffer"], values["from_chunk"] = values["buffer"], values["chunk"]
        elif op in (Op.REDUCE_RECV, Op.COPY, Op.REDUCE):
            values["from_buffer"], values["from_chunk"] = place[row["from_buffer"]], row["from_chunk"]
        emit(**values)
    filled: dict[str, Any] = {c: np.array(cells, DTYPES[c]) for c, cells in columns.items()}
    return OpTable(
        name=name, ranks=ranks, params=dict(params or {}), collective=collective, chunks=chunks, buffers=buffers,
        streams=tuple(streams), events=tuple(e for e, _ in events), event_indices=tuple(i for _, i in events),
        sites=tuple(Site(at) for at in sites),
        **filled)
