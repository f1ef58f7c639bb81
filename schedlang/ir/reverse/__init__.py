"""A schedule run backwards: as a linear map from what it starts with to what it ends with, the transpose.

Steps run in reverse. Within a step everything still reads before anything writes, so the transpose of a step is one
step of the transposes: where a value went from X to Y, what is in Y is now added to X. That is a plain copy where X
holds nothing yet, as it does when X was not touched after the value left it. So copies become sums and sums become
copies.

What keeps a schedule from having a reverse (SL211): a copy onto something written before, for what it destroys would
have to come back as zero; and a sum out of a value that is used afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from schedlang.diagnostics import Note, SchedError, error
from schedlang.ir.buffers import initialised
from schedlang.ir.origin import at_row, in_row, row_note
from schedlang.ir.reverse.liveness import Flow
from schedlang.ir.reverse.rows import Way, reversed_table
from schedlang.ir.reverse.timeline import CannotRun, timeline
from schedlang.ir.reverse.transpose import transposed
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ir.words import chunks_text
from schedlang.ops import Op


def reverse(table: OpTable) -> OpTable:
    """The reverse of a legal table, which implements the transposed collective.

    Moves whose value no result needs are left out. Rows keep their places in the source.

    Raises SchedError (SL211) where there is no reverse, at the row that stands in the way.
    """
    collective, buffers = transposed(table)
    try:
        flow = Flow(table, timeline(table))
    except CannotRun as e:
        raise SchedError(at_row(error("SL211", f"{table.name} cannot run to its end, so it has no reverse: {e}",
                                      notes=[row_note(table, e.row)], help="verify it on its own first"),
                                table, e.row)) from None
    _check_copies(flow)
    ways = _ways_back(flow)
    _check_sums(flow, ways)
    return reversed_table(flow, ways.way, collective, buffers)


# What stands in the way --------------------------------------------------------------------------------------------


def _check_copies(flow: Flow) -> None:
    """Nothing is copied onto what was there before."""
    op, kind = flow.table.op, flow.table.op[flow.row]
    plain = flow.is_write & ((kind == Op.RECV) | (kind == Op.COPY) | ~flow.same_place())
    writes = np.flatnonzero(flow.is_write)
    first = np.full(flow.locations.total, np.iinfo(np.int32).max, np.int32)
    np.minimum.at(first, flow.place[writes], flow.end[writes])
    at = np.flatnonzero(plain)
    at = at[np.argsort(-flow.end[at], kind="stable")]
    owner = np.full(flow.locations.total, NONE, np.int32)
    owner[flow.place[at]] = at  # the earliest stays
    given = initialised(flow.table)
    place = flow.place[at]
    bad = at[given[place] | (first[place] < flow.end[at]) | (owner[place] != at)]
    if not len(bad):
        return
    element = int(bad[np.argmin(flow.end[bad])])
    row = int(flow.row[element])
    same = writes[(flow.place[writes] == flow.place[element]) & (flow.row[writes] != row)]
    earlier = int(flow.row[same[np.argmin(flow.end[same])]]) if len(same) else NONE
    before = given[flow.place[element]]
    what = chunks_text(flow.table, int(flow.table.buffer[row]), int(flow.table.chunk[row] + flow.offset[element]))
    why = "holds a value from the start" if before else "was written before"
    verb = "receives into" if op[row] != Op.COPY else "copies into"
    _no_reverse(flow.table, row, f"{verb} {what} on rank {flow.table.rank[row]}, which {why}: what a copy destroys "
                "cannot come back", [] if before else [row_note(flow.table, earlier, "written before: ")],
                "use a fresh scratch chunk for each value")


def _check_sums(flow: Flow, ways: _Ways) -> None:
    """Nothing is summed from what is used afterwards."""
    kind = flow.table.op[flow.row]
    reduces = flow.any_along_chain(kind == Op.REDUCE_RECV)
    summed = (kind == Op.REDUCE) | (flow.is_reading_send & reduces[flow.target])
    bad = np.flatnonzero(summed & ways.used_later)
    kept = np.flatnonzero(flow.stored & flow.passed & (flow.following != NONE) & reduces[flow.following])
    if len(bad):
        element = int(bad[0])
        row, at = int(flow.row[element]), int(ways.back[element])
        later = np.flatnonzero((flow.stored & (flow.place == at) & (flow.end == ways.last[at]))
                               | ((ways.back == at) & (flow.begin == ways.last[at])))
        later = later[flow.row[later] != row]
        send = kind[element] == Op.SEND
        t = flow.table
        buffer, chunk = (t.buffer[row], t.chunk[row]) if send else (t.from_buffer[row], t.from_chunk[row])
        what = chunks_text(t, int(buffer), int(chunk + flow.offset[element]))
        notes = [row_note(flow.table, int(flow.row[later[0]]), "used afterwards: ")] if len(later) else []
        why = "is used afterwards" if len(later) else "is part of the result"
        _no_reverse(t, row, f"sums {what} of rank {t.rank[row]} into another place, but {what} {why}: the sum would "
                    "have to come back as a copy and a sum at once", notes,
                    "sum from a value's last place only, or send a copy of it")
    if len(kept):
        _no_reverse(flow.table, int(flow.row[kept[0]]), "keeps a value that it also passes on into a sum", [],
                    "store nothing (`only`), or forward in a step of its own")


def _no_reverse(table: OpTable, row: int, what: str, notes: list[Note], help: str) -> NoReturn:
    raise SchedError(at_row(error("SL211", f"{table.name} has no reverse: it {what}", help=help, row=row,
                                  notes=[in_row(table, row), *notes]), table, row))


# How values come back ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ways:
    """By element: ``back``, the location that its value comes back to (NONE: none), and ``way``, how.

    ``used_later``: whether that location is touched after the value left it. By location: ``last``, when it is touched
    last.
    """

    back: Array
    way: Array
    used_later: Array
    last: Array


def _ways_back(flow: Flow) -> _Ways:
    kind, same = flow.table.op[flow.row], flow.same_place()
    source = np.where(flow.is_reading_send, flow.place, flow.operand)
    # A sum in place leaves its operand where it is, unless the sum is not stored but only passed on.
    leaves = np.where(kind == Op.REDUCE_RECV, ~same | ~flow.stored, source != NONE)
    back = np.where(leaves & flow.used, source, NONE)
    there = back != NONE
    last = np.full(flow.locations.total, NONE, np.int32)
    stored = np.flatnonzero(flow.stored)
    np.maximum.at(last, flow.place[stored], flow.end[stored])
    np.maximum.at(last, back[there], flow.begin[there])
    used_later = there & (flow.results[back] | (last[back] > flow.begin)) if len(last) else there
    way = np.zeros(len(back), np.int8)
    way[there] = Way.COPY
    way[used_later] = Way.SUM
    _settle_ties(flow, way, back)
    passed_sum = np.flatnonzero(flow.passed & there & (way != Way.COPY))
    if len(passed_sum):
        _no_reverse(flow.table, int(flow.row[passed_sum[0]]), "passes on a sum whose local operand is used elsewhere",
                    [], "sum first and send in a step of its own")
    return _Ways(back, way, used_later, last)


def _settle_ties(flow: Flow, way: Array, back: Array) -> None:
    """Of several values that would come back to one place as copies at once, one does; changes ``way``."""
    copies = np.flatnonzero(way == Way.COPY)
    how_many = np.zeros(flow.locations.total, np.int32)
    np.add.at(how_many, back[copies], 1)
    tied = copies[how_many[back[copies]] > 1]
    if not len(tied):
        return
    tied = tied[np.lexsort((-flow.row[tied], back[tied]))]
    new = np.concatenate(([True], back[tied][1:] != back[tied][:-1]))
    starts, group = np.flatnonzero(new), np.cumsum(new) - 1
    node = flow.time.node[flow.row[tied]]
    together = node == node[starts][group]  # in one step with the first; other steps run, by this order, afterwards
    alone = np.add.reduceat(together.astype(np.int32), starts) == 1
    local = together & (flow.table.op[flow.row[tied]] >= Op.REDUCE_RECV)
    position = np.arange(len(tied))
    first_local = np.minimum.reduceat(np.where(local, position, len(tied)), starts)
    has_local = ~alone & (first_local < len(tied))
    way[tied] = np.where(together & ~has_local[group], int(Way.LAND), int(Way.SUM))
    way[tied[starts[~has_local]]] = Way.COPY
    way[tied[first_local[has_local]]] = Way.COPY_BEFORE
