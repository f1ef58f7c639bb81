"""What a schedule's author can get wrong, in a table of good form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from schedlang.diagnostics import Diagnostic, error
from schedlang.ir.legal.blocks import Block, blocks, outside
from schedlang.ir.origin import at_row, in_row, row_note
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ir.words import event_text, numbered
from schedlang.ops import MAX_OPS, Op

_SHOWN = 10
"""A rule that is broken at more statements than this is reported at the first ones only."""


def faults(table: OpTable) -> list[Diagnostic]:
    """Faults of the schedule, in a table of good form."""
    found: list[Diagnostic] = []
    chunks = sum(b.chunks for b in table.buffers)
    if table.ranks * chunks > MAX_OPS:
        found.append(error(
            "SL208", f"{table.ranks} ranks with {chunks} chunks of buffer each are {table.ranks * chunks} locations to "
            f"follow, more than {MAX_OPS}", table.location, help="take fewer chunks, or verify a smaller world"))
    broken: dict[_Fault, list[Array]] = {rule: [] for rule in _FAULTS}
    for block in blocks(table):
        for rule, rows in broken.items():
            hits = rule.broken(block)
            if hits.any():
                rows.append(np.flatnonzero(np.broadcast_to(hits, block.rows)) + block.start)
    for rule, parts in broken.items():
        if parts:
            found += _collapse(table, np.concatenate(parts), rule.code, rule.says, rule.help)
    return found + _events(table)


def _past_end(b: Block, buffer: Array, chunk: Array) -> Array:
    low, high = int(buffer.min()), int(buffer.max())
    if high == NONE:
        return np.zeros(1, bool)
    if low == high:
        return np.logical_or(chunk < 0, chunk > int(b.sizes[low]) - b.count)
    least = int(b.sizes[max(low, 0) : high + 1].min())
    if int(chunk.max()) <= least - int(b.count.max()):     # nearly always
        return np.logical_and(buffer != NONE, chunk < 0)
    return np.logical_and(buffer != NONE, (chunk < 0) | (chunk > b.sizes[buffer] - b.count))


def _past_end_text(t: OpTable, row: int) -> str:
    count = int(t.count[row])
    used = [(int(t.buffer[row]), int(t.chunk[row])), (int(t.from_buffer[row]), int(t.from_chunk[row]))]
    buffer, chunk = next((b, c) for b, c in used if b != NONE and not 0 <= c <= t.buffers[b].chunks - count)
    size = t.buffers[buffer].chunks
    what = f"chunk {chunk}" if count == 1 else f"chunks {chunk} to {chunk + count - 1}"
    return f"{what} of {t.buffers[buffer].name}, which has {numbered(size, 'chunk')}"


def _elsewhere(b: Block, buffer: Array) -> Array:
    if all(x.only is None for x in b.table.buffers):
        return np.zeros(1, bool)
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
    return f"rank {bad}, but the world has {numbered(t.ranks, 'rank')}"


@dataclass(frozen=True)
class _Fault:
    code: str
    broken: Callable[[Block], Array]
    says: Callable[[OpTable, int], str]
    help: str


_FAULTS = (
    _Fault("SL222",
           lambda b: outside(b.rank, b.table.ranks) | (b.is_transfer & outside(b.peer, b.table.ranks)), _rank_text,
           "wrap round with `% ranks`, or leave the ends of a line out with a trailing `if`"),
    _Fault("SL224", lambda b: b.is_transfer & (b.peer == b.rank), lambda t, r: f"rank {t.rank[r]} sends to itself",
           "use `copy X into Y on r` or `reduce X into Y on r`, or leave this turn out with a trailing `if`"),
    _Fault("SL221",
           lambda b: _past_end(b, b.buffer, b.chunk) | _past_end(b, b.from_buffer, b.from_chunk), _past_end_text,
           "chunks count from 0; wrap round with `%`, or give the buffer more chunks"),
    _Fault("SL221", lambda b: _elsewhere(b, b.buffer) | _elsewhere(b, b.from_buffer), _elsewhere_text,
           "on other ranks use a scratch buffer: `buffer NAME[CHUNKS]`"),
)


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
    lost = waits[~np.isin(key(waits), keys)]
    if len(again):
        earlier = dict(zip(records[order[again]].tolist(), records[order[again - 1]].tolist(), strict=True))
        found += [replace(d, notes=(*d.notes, row_note(table, earlier[d.witness["row"]], "recorded before: ")),
                          help=_once_hint(table, d.witness["row"], lost))
                  for d in _collapse(table, np.sort(records[order[again]]), "SL307",
                                     lambda t, r: f"{names(r)} is recorded a second time")]
    if len(lost):
        found += _collapse(table, lost, "SL306", lambda t, r: f"nothing records {names(r)}",
                           _recorded_hint(table, int(lost[0])))
    return found


def _once_hint(table: OpTable, record: int, lost: Array) -> str:
    """What the author of a second record may have meant. ``lost``: the waits for what is never recorded."""
    name = event_text(table, record)
    ranks = table.rank[lost[table.event[lost] == table.event[record]]]
    if len(ranks):
        return f"rank {ranks[0]} waits for {name}, which nothing records there: should this be `on` rank {ranks[0]}?"
    if not name.endswith("]"):
        return "an event is recorded once on a rank; give it an index, as in `record done[i]`"
    return "an event is recorded once on a rank: is this the right rank, and does the index differ from turn to turn?"


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


def _collapse(table: OpTable, rows: Array, code: str, says: Callable[[OpTable, int], str],
              help: str | None = None) -> list[Diagnostic]:
    """One finding for each statement that made some of ``rows`` (in increasing order), at the first of them."""
    places: dict[object, tuple[int, int]] = {}
    _, first, counts = np.unique(table.site[rows], return_index=True, return_counts=True)
    for row, count in sorted(zip(rows[first].tolist(), counts.tolist(), strict=True)):
        place = table.origin(row)[0]
        earlier, so_far = places.get(place, (row, 0))
        places[place] = (earlier, so_far + count)
    found = []
    for row, count in list(places.values())[:_SHOWN]:
        found.append(at_row(error(code, says(table, row), notes=[in_row(table, row)], help=help, count=count, row=row),
                            table, row))
    return found
