"""Reading the JSON form of an op table: strict, with every complaint at its line (SL107)."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from schedlang.diagnostics import SchedError
from schedlang.ir import legal
from schedlang.ir.buffers import STANDARD, standard_buffers
from schedlang.ir.json.text import INT64, Bad, Reader, integer, list_in, member, name_in, object_in, place_in, shown
from schedlang.ir.table import COLUMNS, DTYPES, NONE, Array, Buffer, Collective, Ensures, OpTable, Site, Transport
from schedlang.ops import COLLECTIVES, REDUCE_OPS, Op
from schedlang.source import Location, Place

_COMMON = ("id", "rank", "stream", "step", "op", "line", "file")
_FIELDS = {
    Op.SEND: ("buffer", "chunk", "count", "peer", "chan", "of"),
    Op.RECV: ("buffer", "chunk", "count", "peer", "chan"),
    Op.REDUCE_RECV: ("buffer", "chunk", "count", "peer", "chan", "from_buffer", "from_chunk"),
    Op.COPY: ("buffer", "chunk", "count", "from_buffer", "from_chunk"),
    Op.REDUCE: ("buffer", "chunk", "count", "from_buffer", "from_chunk"),
    Op.RECORD: ("event", "index"),
    Op.WAIT: ("event", "index"),
}
"""The fields a row can have, by its operation, besides the common ones. What else a tool may add is ignored."""

_ALL_FIELDS = tuple(dict.fromkeys((*_COMMON, *(f for fields in _FIELDS.values() for f in fields))))
_KINDS = {op.name.lower(): op for op in Op}


def loads(text: str, path: str) -> OpTable:
    """The table that a text in JSON form describes. ``path`` is what messages call the text.

    Rows without ``line`` get their line in the text itself as their location. Raises SchedError (SL107) naming the row
    and the field for everything that breaks the rules of the format; what only a faulty schedule would do (an index off
    its buffer, a rank that there is not) is left to ``legal.faults``.
    """
    reader = Reader(text, path)
    top: dict[str, Any] = {}
    rows: list[tuple[int, Any]] = []
    try:
        for key, value in reader.top():
            if key in top:
                raise Bad(f"the field {key!r} stands there twice")
            top[key] = value
            if key == "ops":
                rows = value
        table = _table(top, rows, reader)
    except Bad as e:
        reader.fail(str(e))
    except RecursionError:
        reader.fail("the text nests too deep")
    found = legal.form(table)
    if found:
        at = [rows[d.witness["row"]][0] if "row" in d.witness else 0 for d in found]
        raise SchedError(replace(d, location=reader.place(offset)) for d, offset in zip(found, at, strict=True))
    return table


# The table ---------------------------------------------------------------------------------------------------------


def _table(top: dict[str, Any], rows: list[tuple[int, Any]], reader: Reader) -> OpTable:
    reader.at = 0
    if member(top, "format") != "schedlang-ops":
        raise Bad(f'format should be "schedlang-ops", not {shown(top["format"])}')
    if integer(member(top, "version"), "version", 1) != 1:
        raise Bad(f"version is {top['version']}; this program reads version 1")
    ranks = integer(member(top, "ranks"), "ranks", 1)
    file = reader.path if top.get("file") is None else name_in(top["file"], "file")
    form = object_in(member(top, "collective"), "collective")
    collective = _collective(form, ranks)
    buffers = _buffers(list_in(member(top, "buffers"), "buffers"))
    chunks = _chunks(top, collective, ranks, buffers)
    buffers = _with_roles(buffers, collective, ranks, chunks)
    if form.get("ensures") is not None:
        collective = replace(collective, ensures=_ensures(list_in(form["ensures"], "ensures"), buffers, ranks, file))
    params = object_in(top.get("params", {}), "params")
    for name, value in params.items():
        _parameter(value, f"the parameter {name_in(name, 'a parameter')}")
    transport = None if top.get("transport") is None else _transport(object_in(top["transport"], "transport"))
    member(top, "ops")
    columns = _Rows(buffers, file, reader)
    for i, (offset, row) in enumerate(rows):
        reader.at = offset
        columns.add(i, row)
    reader.at = 0
    return OpTable(name=name_in(member(top, "schedule"), "schedule"), ranks=ranks, params=params, collective=collective,
                   chunks=chunks, buffers=buffers, transport=transport, **columns.finish(),
                   location=Place(reader.path, 1))


def _transport(form: dict[str, Any]) -> Transport:
    return Transport(name_in(member(form, "name"), "the name of the transport"),
                     integer(member(form, "depth"), "depth of the transport", 1))


def _parameter(value: Any, name: str) -> None:
    if isinstance(value, list):
        for v in value:
            _parameter(v, name)
    elif type(value) is int:
        integer(value, name, -INT64 - 1, INT64)
    elif isinstance(value, str):
        name_in(value, name)
    elif not isinstance(value, bool):
        raise Bad(f"{name} should be an integer, true, false, a text or a list of those, not {shown(value)}")


def _collective(form: dict[str, Any], ranks: int) -> Collective:
    name = member(form, "name")
    if not isinstance(name, str) or name not in COLLECTIVES:
        raise Bad(f"there is no collective {shown(name)}; there are {', '.join(COLLECTIVES)}")
    kind, op, root, counts = COLLECTIVES[name], form.get("op"), form.get("root"), form.get("counts")
    if op is not None and (not isinstance(op, str) or op not in REDUCE_OPS):
        raise Bad(f"there is no reduction operator {shown(op)}; there are {', '.join(REDUCE_OPS)}")
    inplace = form.get("inplace", kind.family in ("whole", "barrier", "custom"))
    if not isinstance(inplace, bool):
        raise Bad(f"inplace should be true or false, not {shown(inplace)}")
    counts_read = form.get("counts_read", counts is not None)
    if not isinstance(counts_read, bool):
        raise Bad(f"counts_read should be true or false, not {shown(counts_read)}")
    return Collective(name, op, None if root is None else integer(root, "root", 0, ranks - 1), inplace,
                      None if counts is None else _counts(list_in(counts, "counts")), counts_read=counts_read)


def _counts(values: list[Any]) -> Array:
    matrix = [v if isinstance(v, list) else [v] for v in values]
    flat = [integer(v, "an element of counts", 0, INT64) for row in matrix for v in row]
    if sum(flat) > INT64:
        raise Bad("the counts add up to more than 64 bits hold")
    nested = {isinstance(v, list) for v in values}
    if len(nested) > 1 or len({len(row) for row in matrix}) > 1:
        raise Bad("counts should be a list of integers, or of lists of equal length")
    return np.array(flat, np.int64).reshape((len(values), -1) if nested == {True} else -1)


def _buffers(forms: list[Any]) -> tuple[Buffer, ...]:
    buffers: list[Buffer] = []
    for i, form in enumerate(forms):
        form = object_in(form, f"buffer {i}")
        name = name_in(member(form, "name"), f"the name of buffer {i}")
        if any(b.name == name for b in buffers):
            raise Bad(f"there are two buffers called {name}")
        place = form.get("place", "device")
        if place not in ("device", "host"):
            raise Bad(f'the place of buffer {name} should be "device" or "host", not {shown(place)}')
        buffers.append(Buffer(name, integer(member(form, "chunks"), f"chunks of buffer {name}"), place))
    return tuple(buffers)


def _chunks(top: dict[str, Any], collective: Collective, ranks: int, buffers: tuple[Buffer, ...]) -> int:
    if top.get("chunks") is not None:
        return integer(top["chunks"], "chunks", 0)
    kind = COLLECTIVES[collective.name]
    if kind.family == "vector":
        return ranks
    long = {"data", kind.long if kind.long in ("input", "output") else "input"}
    return 1 if kind.family == "custom" else next((b.chunks for b in buffers if b.name in long), 1)


def _with_roles(buffers: tuple[Buffer, ...], collective: Collective, ranks: int, chunks: int) -> tuple[Buffer, ...]:
    if collective.name == "custom":
        return tuple(replace(b, role=b.name) if b.name in STANDARD else b for b in buffers)
    try:
        wanted = {b.name: b for b in standard_buffers(collective, ranks, chunks)}
    except ValueError as e:
        raise Bad(str(e)) from None
    if missing := next((name for name in wanted if all(b.name != name for b in buffers)), None):
        raise Bad(f"buffer {missing} of {collective.name} is missing")
    return tuple(replace(b, role=wanted[b.name].role, only=wanted[b.name].only) if b.name in wanted else b
                 for b in buffers)


def _ensures(forms: list[Any], buffers: tuple[Buffer, ...], ranks: int, file: str) -> Ensures:
    index = {b.name: i for i, b in enumerate(buffers)}
    targets: list[tuple[int, int, int]] = []
    sources: list[tuple[int, int, int]] = []
    starts, places = [0], []

    def at(form: Any, where: str) -> tuple[int, int, int]:
        form = object_in(form, where)
        name = member(form, "buffer")
        if not isinstance(name, str) or name not in index:
            raise Bad(f"{where} speaks of a buffer {shown(name)}, which there is not")
        buffer = buffers[index[name]]
        return (index[name], integer(member(form, "rank"), f"rank in {where}", 0, ranks - 1),
                integer(member(form, "chunk"), f"chunk of {name} in {where}", 0, buffer.chunks - 1))

    for i, form in enumerate(forms):
        targets.append(at(form, f"ensure {i}"))
        of = list_in(member(form, "of"), f"of in ensure {i}")
        if not of:
            raise Bad(f"of in ensure {i} is empty; a result is made of one value at least")
        sources += [at(s, f"of in ensure {i}") for s in of]
        starts.append(len(sources))
        places.append(place_in(form, file))
    b, r, c = np.array(targets, np.int32).reshape(-1, 3).T
    sb, sr, sc = np.array(sources, np.int32).reshape(-1, 3).T
    return Ensures(b, r, c, np.array(starts, np.int64), sb, sr, sc, tuple(places))


class _Rows:
    """The columns of a table, row after row."""

    def __init__(self, buffers: tuple[Buffer, ...], file: str, reader: Reader) -> None:
        self.buffers = {b.name: i for i, b in enumerate(buffers)}
        self.file, self.reader = file, reader
        self.streams: dict[str, int] = {}
        self.events: dict[tuple[str, tuple[int, ...]], int] = {}
        self.sites: dict[Location, list[int]] = {}
        self.site_of: dict[Location, int] = {}
        self.cells: list[tuple[int, ...]] = []
        self.strange: set[str] = set()

    def add(self, i: int, row: Any) -> None:
        """Takes the next row. Raises Bad naming it."""
        try:
            self._add(i, object_in(row, "a row"))
        except Bad as e:
            raise Bad(f"row {i}: {e}") from None

    def _add(self, i: int, row: dict[str, Any]) -> None:
        if integer(member(row, "id"), "id") != i:
            raise Bad(f"id is {row['id']}; rows are numbered from 0 in their order")
        kind = member(row, "op")
        if not isinstance(kind, str) or kind not in _KINDS:
            raise Bad(f"there is no op {shown(kind)}; there are {', '.join(_KINDS)}")
        op = _KINDS[kind]
        self._check_names(row, op)
        rank, step = integer(member(row, "rank"), "rank"), integer(member(row, "step"), "step")
        stream_name = name_in(member(row, "stream"), "stream")
        stream = self.streams.setdefault(stream_name, len(self.streams))
        place = place_in(row, self.file) or self.reader.place(self.reader.at)
        site = self.site_of.setdefault(place, len(self.site_of))
        turns = self.sites.setdefault(place, [])
        turns.append(i)
        buffer = peer = chan = from_buffer = from_chunk = of = event = NONE
        chunk = count = 0
        if op >= Op.RECORD:
            event = self._event(row)
        else:
            of = NONE if row.get("of") is None else integer(row["of"], "of")
            buffer, chunk = self._target(row, op, of)
            count = integer(row.get("count", 1), "count", 1)
        if op <= Op.REDUCE_RECV:
            peer = integer(member(row, "peer"), "peer")
            chan_name = stream_name if row.get("chan") is None else name_in(row["chan"], "chan")
            chan = self.streams.setdefault(chan_name, len(self.streams))
        if Op.REDUCE_RECV <= op <= Op.REDUCE:
            if op is Op.REDUCE_RECV and row.get("from_buffer") is None:
                if buffer == NONE:
                    raise Bad("from_buffer is missing; a reduce_recv that stores nothing needs its local operand")
                if row.get("from_chunk") is not None:
                    raise Bad("from_chunk is given without from_buffer")
                from_buffer, from_chunk = buffer, chunk
            else:
                from_buffer = self._buffer(member(row, "from_buffer"), "from_buffer")
                from_chunk = integer(member(row, "from_chunk"), "from_chunk")
        self.cells.append((op, rank, stream, step, buffer, chunk, count, peer, chan, from_buffer, from_chunk, of, event,
                           site, len(turns) - 1))

    def _check_names(self, row: dict[str, Any], op: Op) -> None:
        for name, value in row.items():
            if name in _COMMON or name in _FIELDS[op] or value is None:
                continue
            if name in _ALL_FIELDS:
                raise Bad(f"a {op.name.lower()} has no {name}")
            if name not in self.strange:
                self.strange.add(name)
                if near := get_close_matches(name, _ALL_FIELDS, 1, 0.8):
                    raise Bad(f"there is no field {shown(name)}; did you mean {near[0]}?")

    def _buffer(self, value: Any, name: str) -> int:
        if not isinstance(value, str) or value not in self.buffers:
            raise Bad(f"{name} is {shown(value)}; there are {', '.join(self.buffers) or 'no buffers'}")
        return self.buffers[value]

    def _target(self, row: dict[str, Any], op: Op, of: int) -> tuple[int, int]:
        """Buffer and chunk. A fused send that does not say takes those of its receive."""
        if of != NONE and "buffer" not in row:
            if of >= len(self.cells):
                raise Bad(f"of is {of}; a fused send stands after its receive")
            return self.cells[of][4], self.cells[of][5]
        if member(row, "buffer") is None:
            if op is Op.COPY or op is Op.REDUCE or (op is Op.SEND and of == NONE):
                raise Bad("buffer is null; only a receive may store nothing")
            if row.get("chunk") not in (None, 0):
                raise Bad(f"chunk is {shown(row['chunk'])}, but there is no buffer")
            return NONE, 0
        return self._buffer(row["buffer"], "buffer"), integer(member(row, "chunk"), "chunk")

    def _event(self, row: dict[str, Any]) -> int:
        name, index = name_in(member(row, "event"), "event"), row.get("index")
        values = index if isinstance(index, list) else [0 if index is None else index]
        key = (name, tuple(integer(v, "index", -INT64 - 1, INT64) for v in values))
        return self.events.setdefault(key, len(self.events))

    def finish(self) -> dict[str, Any]:
        """The fields of the table that rows make. The one 'loop value' of each row is its id."""
        names = [c for c in COLUMNS if c != "number"]
        cells = np.array(self.cells, np.int32).reshape(-1, len(names))
        columns = {c: cells[:, i].astype(DTYPES[c]) for i, c in enumerate(names)}
        sites = tuple(Site(place, ("row",), (np.array(ids, np.int32),)) for place, ids in self.sites.items())
        return {**columns, "streams": tuple(self.streams), "events": tuple(e for e, _ in self.events),
                "event_indices": tuple(i for _, i in self.events), "sites": sites}
