"""The rules an op table obeys, in one place. Every pass may rely on them after :func:`check` found nothing.

``form``: the shape of the table itself (a breach is SL107, and for a table that came from a schedule a bug of ours).
``faults``: what a schedule's author can get wrong: ranks (SL222, SL224), bounds (SL221), events (SL306, SL307), and a
world too large to follow (SL208).
Not here: a step that writes a location twice, which depends on what the operations do there (``verify/steps.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from schedlang.diagnostics import Diagnostic, Note, error
from schedlang.ir.buffers import STANDARD, standard_buffers
from schedlang.ir.origin import at_row, row_note
from schedlang.ir.table import COLUMNS, DTYPES, NONE, Array, Buffer, OpTable, Site
from schedlang.ir.words import event_text, lane_text, location, row_text, turn_text
from schedlang.ops import COLLECTIVES, MAX_OPS, REDUCE_OPS, Op

_BLOCK = 1 << 16
"""Rows looked at together: few enough for the caches, so that temporaries cost next to nothing."""

_SHOWN = 10
"""A rule that is broken at more statements than this is reported at the first ones only."""

_MANY = int(np.iinfo(np.int32).max)


def check(table: OpTable) -> list[Diagnostic]:
    """All breaches of the rules, one finding for each rule and source statement."""
    return form(table) or faults(table)


def form(table: OpTable) -> list[Diagnostic]:
    """Breaches of the format: SL107, naming the first row. Without any, all indices but ranks and chunks are in
    range."""
    problem = _header(table)
    if problem is not None:
        return [error("SL107", problem, table.location)]
    for block in _blocks(table):
        for broken, says in _FORM:
            rows = broken(block)
            if rows.any():
                row = block.start + int(np.argmax(rows))
                return [_bad_row(table, row, says(table, row))]
    return _fusion(table) or _lanes(table)


def faults(table: OpTable) -> list[Diagnostic]:
    """Faults of the schedule, in a table of good form."""
    found: list[Diagnostic] = []
    chunks = sum(b.chunks for b in table.buffers)
    if table.ranks * chunks > MAX_OPS:
        found.append(error(
            "SL208", f"{table.ranks} ranks with {chunks} chunks of buffer each are {table.ranks * chunks} locations to "
            f"follow, more than {MAX_OPS}", table.location, help="take fewer chunks, or verify a smaller world"))
    broken: dict[_Fault, list[Array]] = {rule: [] for rule in _FAULTS}
    for block in _blocks(table):
        for rule, rows in broken.items():
            hits = rule.broken(block)
            if hits.any():
                rows.append(np.flatnonzero(hits) + block.start)
    for rule, parts in broken.items():
        if parts:
            found += _collapse(table, np.concatenate(parts), rule.code, rule.says, rule.help)
    return found + _events(table)


# The table as a whole ----------------------------------------------------------------------------------------------


def _header(table: OpTable) -> str | None:
    """What is wrong with everything but the rows, or None."""
    c = table.collective
    if not 1 <= table.ranks <= _MANY:
        return f"ranks is {table.ranks}; it is at least 1"
    if c.name not in COLLECTIVES:
        return f"there is no collective {c.name!r}"
    kind = COLLECTIVES[c.name]
    if c.op is not None and c.op not in REDUCE_OPS:
        return f"there is no reduction operator {c.op!r}"
    if c.op is None and kind.reduces and kind.family != "custom":
        return f"{c.name} needs an op: one of {', '.join(REDUCE_OPS)}"
    if kind.rooted and (c.root is None or not 0 <= c.root < table.ranks):
        return f"root is {c.root}; {c.name} needs one of the ranks 0 to {table.ranks - 1}"
    if not 0 <= table.chunks <= _MANY:
        return f"chunks is {table.chunks}"
    return _counts(table) or _buffers(table) or _ensures(table) or _columns(table)


def _counts(table: OpTable) -> str | None:
    name, counts = table.collective.name, table.collective.counts
    if "counts" not in COLLECTIVES[name].arguments:
        return None if counts is None else f"{name} has no counts"
    shape = (table.ranks,) * (2 if COLLECTIVES[name].long == "both" else 1)
    if counts is None or counts.shape != shape:
        given = "there are none" if counts is None else f"they have {counts.shape}"
        return f"{name} on {table.ranks} ranks needs counts of shape {shape}; {given}"
    if counts.size and counts.min() < 0:
        return f"counts holds {int(counts.min())}; no part has fewer than 0 elements"
    return None


def _buffers(table: OpTable) -> str | None:
    there: dict[str, Buffer] = {}
    for buffer in table.buffers:
        if buffer.name in there:
            return f"there are two buffers called {buffer.name}"
        there[buffer.name] = buffer
    if bad := next((b for b in table.buffers if not 0 <= b.chunks <= _MANY), None):
        return f"buffer {bad.name} has {bad.chunks} chunks"
    if bad := next((b for b in table.buffers if b.place not in ("device", "host")), None):
        return f"buffer {bad.name} is on {bad.place}; it can be on device or host"
    try:
        wanted = standard_buffers(table.collective, table.ranks, table.chunks)
    except ValueError as e:
        return str(e)
    for buffer in wanted:
        given = there.get(buffer.name)
        if given is None or given.chunks != buffer.chunks:
            has = "is missing" if given is None else f"has {given.chunks} chunks"
            return f"buffer {buffer.name} of {table.collective.name} {has}; it needs {buffer.chunks} chunks here"
        if (given.role, given.only) != (buffer.role, buffer.only):
            return f"buffer {buffer.name} of {table.collective.name} has the role {given.role} and exists on " \
                   f"{'all ranks' if given.only is None else f'rank {given.only}'}"
    if table.collective.name == "custom":
        for buffer in table.buffers:
            if buffer.role != (buffer.name if buffer.name in STANDARD else "scratch"):
                return f"buffer {buffer.name} of custom has the role {buffer.role}"
    return None


def _ensures(table: OpTable) -> str | None:
    ensures = table.collective.ensures
    if ensures is None:
        return None
    if table.collective.name != "custom":
        return f"only custom has ensures, not {table.collective.name}"
    sizes = np.array([b.chunks for b in table.buffers], np.int64)
    for buffer, rank, chunk in ((ensures.buffer, ensures.rank, ensures.chunk),
                                (ensures.source_buffer, ensures.source_rank, ensures.source_chunk)):
        bad = _outside(buffer, len(sizes)) | _outside(rank, table.ranks)
        if not bad.any():
            bad = _outside(chunk, sizes[buffer])
        if bad.any():
            i = int(np.argmax(bad))
            return f"an ensure speaks of chunk {chunk[i]} of buffer {buffer[i]} on rank {rank[i]}, which there is not"
    return None


def _columns(table: OpTable) -> str | None:
    for name in COLUMNS:
        column = getattr(table, name)
        if column is None and name == "number":
            continue
        if column.shape != (len(table),) or column.dtype != DTYPES[name]:
            return f"column {name} has shape {column.shape} and type {column.dtype}; " \
                   f"it needs {(len(table),)} and {np.dtype(DTYPES[name])}"
    if len(table.events) != len(table.event_indices):
        return f"there are {len(table.events)} events and {len(table.event_indices)} of their indices"
    return None


# Rows one by one ---------------------------------------------------------------------------------------------------


class _Block:
    """Some consecutive rows: their columns as views, and what the rules ask about them."""

    op: Array
    rank: Array
    stream: Array
    step: Array
    buffer: Array
    chunk: Array
    count: Array
    peer: Array
    chan: Array
    from_buffer: Array
    from_chunk: Array
    of: Array
    event: Array
    site: Array
    turn: Array

    def __init__(self, table: OpTable, start: int, limits: Array) -> None:
        self.table, self.start, self.limits = table, start, limits
        for name in COLUMNS:
            if name != "number":
                setattr(self, name, getattr(table, name)[start : start + _BLOCK])
        self.is_event = self.op >= Op.RECORD
        self.is_transfer = self.op <= Op.REDUCE_RECV
        self.has_from = (self.op >= Op.REDUCE_RECV) & (self.op <= Op.REDUCE)
        self.sizes = np.array([*(b.chunks for b in table.buffers), np.iinfo(np.int64).max])  # the last one serves NONE


def _blocks(table: OpTable) -> Iterator[_Block]:
    limits = np.array([_turns(site) for site in table.sites], np.int64)
    return (_Block(table, start, limits) for start in range(0, len(table), _BLOCK))


def _turns(site: Site) -> int:
    """How many turns a site has; many where its loop values are the same in all."""
    return min((len(v) for v in site.values if isinstance(v, np.ndarray)), default=_MANY)


def _outside(values: Array, size: int | Array, low: int = 0) -> Array:
    return np.logical_or(values < low, values >= size)


def _bad_buffer(b: _Block) -> Array:
    optional = b.is_event | (b.op == Op.RECV) | (b.op == Op.REDUCE_RECV) | ((b.op == Op.SEND) & (b.of != NONE))
    lacking = b.buffer == NONE
    return _outside(b.buffer, len(b.table.buffers), NONE) | (lacking & ~optional) | (~lacking & b.is_event)


def _bad_operand(b: _Block) -> Array:
    given = (b.from_buffer != NONE) | (b.from_chunk != NONE)
    return np.where(b.has_from, _outside(b.from_buffer, len(b.table.buffers)), given)


_FORM: tuple[tuple[Callable[[_Block], Array], Callable[[OpTable, int], str]], ...] = (
    (lambda b: _outside(b.site, len(b.table.sites)), lambda t, r: f"site is {t.site[r]}, of {len(t.sites)} sites"),
    (lambda b: (b.turn < 0) | (b.turn >= b.limits[b.site]),
     lambda t, r: f"turn is {t.turn[r]}, more than its site has"),
    (lambda b: _outside(b.op, len(Op)), lambda t, r: f"op is {t.op[r]}, which is no operation"),
    (lambda b: _outside(b.stream, len(b.table.streams)),
     lambda t, r: f"stream is {t.stream[r]}, of {len(t.streams)} streams"),
    (lambda b: b.step < 0, lambda t, r: f"step is {t.step[r]}; steps count from 0"),
    (lambda b: np.where(b.is_event, b.count != 0, b.count < 1),
     lambda t, r: f"count is {t.count[r]}; it is at least 1, and 0 for record and wait"),
    (_bad_buffer, lambda t, r: "buffer is missing; only a receive may store nothing" if t.buffer[r] == NONE
     else f"buffer is {t.buffer[r]}, which this row cannot have"),
    (lambda b: (b.buffer == NONE) & (b.chunk != 0), lambda t, r: f"chunk is {t.chunk[r]}, but there is no buffer"),
    (lambda b: ~b.is_transfer & (b.peer != NONE), lambda t, r: f"peer is {t.peer[r]}; only transfers have one"),
    (lambda b: np.where(b.is_transfer, _outside(b.chan, len(b.table.streams)), b.chan != NONE),
     lambda t, r: f"chan is {t.chan[r]}, of {len(t.streams)} streams; transfers have one, others none"),
    (_bad_operand, lambda t, r: f"from_buffer is {t.from_buffer[r]} and from_chunk {t.from_chunk[r]}, which this row "
     "cannot have"),
    (lambda b: _outside(b.of, len(b.table), NONE) | ((b.of != NONE) & (b.op != Op.SEND)),
     lambda t, r: f"of is {t.of[r]}; it stands on a send and is the id of a receive"),
    (lambda b: np.where(b.is_event, _outside(b.event, len(b.table.events)), b.event != NONE),
     lambda t, r: f"event is {t.event[r]}, of {len(t.events)} events; record and wait have one, others none"),
)
"""Which rows break a rule of form, and what to say of the first. Each may rely on those before it."""


def _past_end(b: _Block, buffer: Array, chunk: Array) -> Array:
    if (buffer[0] == buffer).all():
        if buffer[0] == NONE:
            return np.zeros(len(buffer), bool)
        return np.logical_or(chunk < 0, chunk > int(b.sizes[buffer[0]]) - b.count)
    return np.logical_and(buffer != NONE, (chunk < 0) | (chunk > b.sizes[buffer] - b.count))


def _past_end_text(t: OpTable, row: int) -> str:
    count = int(t.count[row])
    used = [(int(t.buffer[row]), int(t.chunk[row])), (int(t.from_buffer[row]), int(t.from_chunk[row]))]
    buffer, chunk = next((b, c) for b, c in used if b != NONE and not 0 <= c <= t.buffers[b].chunks - count)
    size = t.buffers[buffer].chunks
    what = f"chunk {chunk}" if count == 1 else f"chunks {chunk} to {chunk + count - 1}"
    there = f"{size} chunks (0 to {size - 1})" if size > 1 else "1 chunk (0)" if size else "no chunks"
    return f"{what} of {t.buffers[buffer].name}, which has {there}"


def _elsewhere(b: _Block, buffer: Array) -> Array:
    if all(x.only is None for x in b.table.buffers):
        return np.zeros(len(buffer), bool)
    only = np.array([*(NONE if x.only is None else x.only for x in b.table.buffers), NONE])[buffer]
    return np.logical_and(only != NONE, only != b.rank)


def _elsewhere_text(t: OpTable, row: int) -> str:
    rank = int(t.rank[row])
    used = (t.buffers[int(b)] for b in (t.buffer[row], t.from_buffer[row]) if b != NONE)
    buffer = next(b for b in used if b.only not in (None, rank))
    return f"{buffer.name} on rank {rank}; it exists only on the root, rank {buffer.only}"


def _rank_text(t: OpTable, row: int) -> str:
    rank = int(t.rank[row])
    bad = rank if not 0 <= rank < t.ranks else int(t.peer[row])
    there = f"{t.ranks} ranks (0 to {t.ranks - 1})" if t.ranks > 1 else "1 rank (0)"
    return f"rank {bad}, but the world has {there}"


@dataclass(frozen=True)
class _Fault:
    code: str
    broken: Callable[[_Block], Array]
    says: Callable[[OpTable, int], str]
    help: str


_FAULTS = (
    _Fault("SL222",
           lambda b: _outside(b.rank, b.table.ranks) | (b.is_transfer & _outside(b.peer, b.table.ranks)), _rank_text,
           "Wrap round with `% ranks`, or leave the ends of a line out with a trailing `if`."),
    _Fault("SL224", lambda b: b.is_transfer & (b.peer == b.rank), lambda t, r: f"rank {t.rank[r]} sends to itself",
           "Use `copy X into Y on r` or `reduce X into Y on r`, or leave this turn out with a trailing `if`."),
    _Fault("SL221",
           lambda b: _past_end(b, b.buffer, b.chunk) | _past_end(b, b.from_buffer, b.from_chunk), _past_end_text,
           "Chunks count from 0. Wrap round with `%`, or give the buffer more chunks."),
    _Fault("SL221", lambda b: _elsewhere(b, b.buffer) | _elsewhere(b, b.from_buffer), _elsewhere_text,
           "On other ranks use a scratch buffer: `buffer NAME[CHUNKS]`."),
)


# Rows together -----------------------------------------------------------------------------------------------------


def _fusion(table: OpTable) -> list[Diagnostic]:
    """A fused send and its receive: of one step, alike, and each receive fused once."""
    if (table.of == NONE).all():
        return []
    sends = np.flatnonzero(table.of != NONE)
    receives = table.of[sends]

    def first(bad: Array, says: Callable[[int, int], str]) -> list[Diagnostic]:
        at = int(np.argmax(bad))
        row = int(sends[at])
        return [_bad_row(table, row, says(row, int(receives[at])))] if bad.any() else []

    op = table.op[receives]
    if found := first((op != Op.RECV) & (op != Op.REDUCE_RECV),
                      lambda s, r: f"of is {r}, but row {r} is a {Op(int(table.op[r])).name.lower()}, not a receive"):
        return found
    for name in ("rank", "stream", "step", "count", "buffer", "chunk"):
        column = getattr(table, name)

        def differs(send: int, receive: int, name: str = name, column: Array = column) -> str:
            return f"of is {receive}, but {name} is {column[send]} here and {column[receive]} there"

        if found := first(column[sends] != column[receives], differs):
            return found
    order = np.argsort(receives, kind="stable")
    again = np.zeros(len(sends), bool)
    again[order[1:]] = receives[order[1:]] == receives[order[:-1]]
    return first(again, lambda s, r: f"of is {r}, but another send forwards the value of row {r} already")


def _lanes(table: OpTable) -> list[Diagnostic]:
    """Steps without gaps in each lane, and record and wait alone in theirs."""
    if not len(table):
        return []
    low, high = int(table.rank.min()), int(table.rank.max())
    lanes, steps = (high - low + 1) * len(table.streams), int(table.step.max()) + 1
    if lanes * steps > max(8 * len(table), 1 << 16):
        return _lanes_by_sorting(table, low)
    seen = np.zeros(lanes * steps, bool)
    for _, key in _step_keys(table, low, steps):
        seen[key] = True
    grid = seen.reshape(lanes, steps)
    gap = (~grid[:, :-1] & grid[:, 1:]).any(1)
    if gap.any():
        return [_gap(table, low, int(np.argmax(gap)))]
    if (table.op < Op.RECORD).all():
        return []
    owner = np.full(lanes * steps, NONE, np.int32)
    for rows, key in _step_keys(table, low, steps):
        events = table.op[rows] >= Op.RECORD
        owner[key[events]] = np.flatnonzero(events) + rows.start
    for rows, key in _step_keys(table, low, steps):
        there = owner[key]
        shared = (there != NONE) & (there != np.arange(rows.start, rows.start + len(there)))
        if shared.any():
            at = int(np.argmax(shared))
            return [_not_alone(table, int(there[at]), rows.start + at)]
    return []


def _step_keys(table: OpTable, low: int, steps: int) -> Iterator[tuple[slice, Array]]:
    """For blocks of rows: the number of their (lane, step)."""
    for start in range(0, len(table), _BLOCK):
        rows = slice(start, start + _BLOCK)
        lane = (table.rank[rows].astype(np.int64) - low) * len(table.streams) + table.stream[rows]
        yield rows, lane * steps + table.step[rows]


def _lanes_by_sorting(table: OpTable, low: int) -> list[Diagnostic]:
    """As :func:`_lanes`, where step numbers are too large for a grid."""
    lane = (table.rank.astype(np.int64) - low) * len(table.streams) + table.stream
    order = np.lexsort((table.step, lane))
    lane, step = lane[order], table.step[order]
    new = np.concatenate(([True], lane[1:] != lane[:-1]))
    before = np.concatenate(([0], step[:-1]))
    gap = np.where(new, step != 0, (step != before) & (step != before + 1))
    if gap.any():
        at = int(np.argmax(gap))
        return [_gap(table, low, int(lane[at]))]
    same = ~new & (step == before)
    event = table.op[order] >= Op.RECORD
    crowded = same[1:] & (event[1:] | event[:-1])
    if crowded.any():
        at = int(np.argmax(crowded))
        one, other = sorted((int(order[at]), int(order[at + 1])), key=lambda r: table.op[r], reverse=True)
        return [_not_alone(table, one, other)]
    return []


def _gap(table: OpTable, low: int, lane: int) -> Diagnostic:
    rank, stream = low + lane // len(table.streams), lane % len(table.streams)
    mine = np.flatnonzero((table.rank == rank) & (table.stream == stream))
    missing = next(k for k, s in enumerate([*np.unique(table.step[mine]).tolist(), _MANY]) if k != s)
    row = int(mine[np.argmax(table.step[mine] > missing)])
    return _bad_row(table, row, f"step is {table.step[row]}, but rank {rank} has no step {missing} on stream "
                                f"{table.streams[stream]}; steps count up from 0 without gaps")


def _not_alone(table: OpTable, event: int, other: int) -> Diagnostic:
    return _bad_row(table, event, f"a {Op(int(table.op[event])).name.lower()} is alone in its step, "
                                  f"but row {other} stands in it too ({lane_text(table, event)})")


def _events(table: OpTable) -> list[Diagnostic]:
    """Each event recorded once on a rank, and nothing waited for that is never recorded."""
    if not len(table) or (table.op < Op.RECORD).all():
        return []
    found: list[Diagnostic] = []
    records, waits = np.flatnonzero(table.op == Op.RECORD), np.flatnonzero(table.op == Op.WAIT)

    def key(rows: Array) -> Array:
        return table.rank[rows].astype(np.int64) * max(len(table.events), 1) + table.event[rows]

    def names(row: int) -> str:
        return f"{event_text(table, row)} on rank {table.rank[row]}"

    order = np.argsort(key(records), kind="stable")
    keys = key(records[order])
    again = np.flatnonzero(keys[1:] == keys[:-1]) + 1
    if len(again):
        earlier = dict(zip(records[order[again]].tolist(), records[order[again - 1]].tolist(), strict=True))
        found += [replace(d, notes=(*d.notes, row_note(table, earlier[d.witness["row"]], "recorded before: ")))
                  for d in _collapse(table, np.sort(records[order[again]]), "SL307",
                                     lambda t, r: f"{names(r)} is recorded a second time",
                                     "an event is recorded once; give it an index, as in `record done[i]`")]
    lost = waits[~np.isin(key(waits), keys)]
    if len(lost):
        found += _collapse(table, lost, "SL306", lambda t, r: f"nothing records {names(r)}",
                           _recorded_hint(table, int(lost[0])))
    return found


def _recorded_hint(table: OpTable, wait: int) -> str:
    """What the author of a wait for something never recorded may have meant."""
    rank, event = int(table.rank[wait]), int(table.event[wait])
    records = table.op == Op.RECORD
    elsewhere = np.flatnonzero(records & (table.event == event))
    if len(elsewhere):
        other = int(table.rank[elsewhere[0]])
        return f"{event_text(table, wait)} is recorded on rank {other}; events order the streams of one rank"
    rows = np.flatnonzero(records & (table.rank == rank))
    first = rows[np.unique(table.event[rows], return_index=True)[1]]
    recorded = [event_text(table, row) for row in first[:8].tolist()]
    there = f"records {', '.join(recorded)}" if recorded else "records nothing"
    return f"record it in another stream of rank {rank} (which {there}), or leave the wait out with a trailing `if`"


# Findings ----------------------------------------------------------------------------------------------------------


def _bad_row(table: OpTable, row: int, says: str) -> Diagnostic:
    site, turn = int(table.site[row]), int(table.turn[row])
    known = 0 <= site < len(table.sites) and 0 <= turn < _turns(table.sites[site])
    return error("SL107", f"row {row}: {says}", location(table, row) if known else table.location, row=row)


def _collapse(table: OpTable, rows: Array, code: str, says: Callable[[OpTable, int], str],
              help: str) -> list[Diagnostic]:
    """One finding for each statement that made some of ``rows`` (in increasing order), at the first of them."""
    places: dict[object, tuple[int, int]] = {}
    _, first, counts = np.unique(table.site[rows], return_index=True, return_counts=True)
    for row, count in sorted(zip(rows[first].tolist(), counts.tolist(), strict=True)):
        place = location(table, row)
        earlier, so_far = places.get(place, (row, 0))
        places[place] = (earlier, so_far + count)
    found = []
    for row, count in list(places.values())[:_SHOWN]:
        turn = turn_text(table, row)
        notes = [Note(f"in {row_text(table, row)}" + (f", with {turn}" if turn else ""))]
        found.append(at_row(error(code, says(table, row), notes=notes, help=help, count=count, row=row), table, row))
    return found
