"""The JSON form of an op table, both ways. The format is described in the language document ("The expanded form").

Beyond that description: ``"chunks"`` (how the collective's buffer divides; worked out where it is missing), ``"file"``
at the top (the file of rows without one of their own), ``counts_read`` in the collective, and the explicit form of a
custom collective's postcondition::

    "ensures": [{"buffer": "output", "rank": 0, "chunk": 0, "line": 6,
                 "of": [{"buffer": "input", "rank": 3, "chunk": 0}]}]

which says that the location ends as the reduction of the initial values in ``of`` (one of them: as that very value).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from schedlang.ir.json.read import loads as loads
from schedlang.ir.table import COLUMNS, NONE, Array, Ensures, OpTable
from schedlang.ops import Op
from schedlang.source import Location

FORMAT, VERSION = "schedlang-ops", 1

_BLOCK = 1 << 14


def dumps(table: OpTable) -> str:
    """The JSON form of a table, one line a row; a table with 100,000 rows takes about 12 MB."""
    return "".join(pieces(table))


def pieces(table: OpTable) -> Iterator[str]:
    """The JSON form of a table, piece by piece, for writing to a file."""
    file = _file(table)
    head = {
        "format": FORMAT, "version": VERSION, "schedule": table.name, "ranks": table.ranks, "chunks": table.chunks,
        **({"file": file} if file is not None else {}),
        "params": {name: _plain(value) for name, value in table.params.items()},
        "collective": _collective(table, file),
        "buffers": [{"name": b.name, "chunks": b.chunks, "place": b.place} for b in table.buffers],
        **({"transport": {"name": table.transport.name, "depth": table.transport.depth}} if table.transport else {}),
    }
    yield "{" + ",\n ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()) + ',\n "ops": ['
    for start in range(0, len(table), _BLOCK):
        yield ",".join([""] * (start > 0) + _rows(table, start, min(start + _BLOCK, len(table)), file))
    yield "\n ]}\n"


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _file(table: OpTable) -> str | None:
    """The file of the first row, if that has one."""
    at = table.sites[int(table.site[0])].location if len(table) else None
    return None if at is None else at.file


def _place(location: Location | None, file: str | None) -> dict[str, Any]:
    if location is None:
        return {}
    return {"line": location.line, **({"file": location.file} if location.file != file else {})}


def _collective(table: OpTable, file: str | None) -> dict[str, Any]:
    c = table.collective
    form: dict[str, Any] = {"name": c.name, "op": c.op, "root": c.root, "inplace": c.inplace,
                            "counts": _plain(c.counts)}
    if c.counts is not None:
        form["counts_read"] = c.counts_read
    form["ensures"] = None if c.ensures is None else _ensures(table, c.ensures, file)
    return form


def _ensures(table: OpTable, ensures: Ensures, file: str | None) -> list[dict[str, Any]]:
    names = [b.name for b in table.buffers]

    def locations(*columns: Array) -> list[dict[str, Any]]:
        cells = zip(*(column.tolist() for column in columns), strict=True)
        return [{"buffer": names[b], "rank": r, "chunk": c} for b, r, c in cells]

    targets = locations(ensures.buffer, ensures.rank, ensures.chunk)
    sources = locations(ensures.source_buffer, ensures.source_rank, ensures.source_chunk)
    starts = ensures.starts.tolist()
    places = [_place(at, file) for at in ensures.location] or [{}] * len(targets)
    return [{**target, "of": sources[starts[i] : starts[i + 1]], **places[i]} for i, target in enumerate(targets)]


def _rows(table: OpTable, start: int, stop: int, file: str | None) -> list[str]:
    names = [json.dumps(b.name) for b in table.buffers] + ["null"]  # the last one serves NONE
    streams = [json.dumps(s) for s in table.streams]
    events = [json.dumps(e) for e in table.events]
    indices = [str(i[0]) if len(i) == 1 else json.dumps(list(i)) for i in table.event_indices]
    places = ["".join(f', "{k}": {json.dumps(v)}' for k, v in _place(s.location, file).items()) for s in table.sites]
    kinds = [f'"{op.name.lower()}"' for op in Op]
    columns = (getattr(table, c)[start:stop].tolist() for c in COLUMNS if c not in ("turn", "number"))
    rows = []
    for row, cells in enumerate(zip(*columns, strict=True), start):
        op, rank, stream, step, buffer, chunk, count, peer, chan, from_buffer, from_chunk, of, event, site = cells
        text = f'\n  {{"id": {row}, "rank": {rank}, "stream": {streams[stream]}, "step": {step}, "op": {kinds[op]}'
        if op >= Op.RECORD:
            text += f', "event": {events[event]}, "index": {indices[event]}'
        elif buffer == NONE:
            text += f', "buffer": null, "count": {count}'
        else:
            text += f', "buffer": {names[buffer]}, "chunk": {chunk}, "count": {count}'
        if op <= Op.REDUCE_RECV:
            text += f', "peer": {peer}'
            if chan != stream:
                text += f', "chan": {streams[chan]}'
            if of != NONE:
                text += f', "of": {of}'
        elsewhere = op != Op.REDUCE_RECV or (from_buffer, from_chunk) != (buffer, chunk)
        if from_buffer != NONE and elsewhere:
            text += f', "from_buffer": {names[from_buffer]}, "from_chunk": {from_chunk}'
        rows.append(text + places[site] + "}")
    return rows
