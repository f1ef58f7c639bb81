"""What a step may not do, and what it makes a back end do: the accesses of one (lane, step) against each other.

A step reads before it writes. So a plain write together with any other write to one location is an error (SL402), and a
location that is both read and written needs a staging copy somewhere (SL603); a reduction's own read of its destination
does not. That a schedule writes its input is noted (SL604).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from schedlang.diagnostics import Diagnostic, error, note
from schedlang.ir.legal.blocks import BLOCK
from schedlang.ir.origin import at_row, came_from
from schedlang.ir.table import NONE, Array, OpTable, chosen, spaced
from schedlang.ir.words import chunks_text
from schedlang.ops import Op
from schedlang.verify import collapse, words
from schedlang.verify.timing.lanes import Lanes
from schedlang.verify.values.conditions import Conditions

SHOWN = 16
"""So many statements of a kind are described one by one; the last one counts those left out."""

_Which = Callable[[OpTable, slice], Array | slice]
"""Which rows of a block do something."""


@dataclass(frozen=True)
class Steps:
    """The findings, and the reductions that come after another one into the same location in their step: chunk
    ``part[i]`` of row ``row[i]`` is the ``turn[i]``-th (from 0) in row order."""

    diagnostics: tuple[Diagnostic, ...]
    row: Array
    part: Array
    turn: Array

    def turns(self, receiver: Array, part: Array | int) -> Array | None:
        """The turn of each of the given chunks of rows (rows ascending, chunks in order); None where all are 0."""
        if len(self.row) == 0:
            return None
        turns = np.zeros(len(receiver), np.int32)
        del part        # chunks of a row stand one after another, from the first
        turns[np.searchsorted(receiver, self.row) + self.part] = self.turn
        return turns


def steps(table: OpTable, lanes: Lanes, conditions: Conditions) -> Steps:
    """Judge every step of a legal table with these lanes and conditions."""
    if table.collective.name == "barrier":      # its tokens have no elements
        none = np.zeros(0, np.int64)
        return Steps((), none, none, none)
    accesses = _Accesses(table, lanes)
    row, part, turn, clashes = accesses.repeated_writes(conditions)
    found = [*clashes, *accesses.staged(), *_input_written(table)]
    return Steps(tuple(found), row, part, turn)


class _Accesses:
    """The reading and writing rows of a table by (lane, step), which have a number each (``key``).

    ``reader``, ``writer``: the last row of each (lane, step) that reads and that writes; NONE where there is none.
    ``reads_more``, ``writes_more``: the (lane, step)s that have several; None: there are none.
    """

    def __init__(self, table: OpTable, lanes: Lanes) -> None:
        self.table, self.key, self.nodes = table, lanes.node, lanes.nodes
        self.offset = np.cumsum([0, *(b.chunks for b in table.buffers)], dtype=np.int64)
        self.span = int(self.offset[-1]) + 1
        self.reader, self.reads_more = self._last(_readers)
        self.writer, self.writes_more = self._last(_writers)

    def _last(self, which: _Which) -> tuple[Array, Array | None]:
        """The last row of each (lane, step) that ``which`` gives, and the (lane, step)s that have several."""
        last = np.full(self.nodes, NONE, np.int32)
        rows = 0
        for block in self._blocks():
            own = which(self.table, block)
            key = self.key[own]
            last[key] = _numbers(own)
            rows += len(key)
        if rows == np.count_nonzero(last != NONE):
            return last, None
        more = np.zeros(self.nodes, bool)
        for block in self._blocks():
            own = _numbers(which(self.table, block))
            key = self.key[own]
            more[key[last[key] != own]] = True
        return last, more

    def _blocks(self) -> Iterator[slice]:
        """All rows, in blocks: few enough for the caches, so that temporaries cost next to nothing."""
        return (slice(start, min(start + BLOCK, len(self.table))) for start in range(0, len(self.table), BLOCK))

    def _crowd(self, which: _Which, crowded: Array | None) -> Array:
        """The rows of the given (lane, step)s that ``which`` gives."""
        rows = [np.zeros(0, np.int64)]
        if crowded is not None and crowded.any():
            for block in self._blocks():
                own = _numbers(which(self.table, block))
                rows.append(own[crowded[self.key[own]]])
        return np.concatenate(rows)

    def _source(self, rows: Array | slice) -> tuple[Array, Array]:
        """Buffer and chunk that reading rows read."""
        table = self.table
        sends = table.op[rows] == Op.SEND
        if sends.all():
            return table.buffer[rows], table.chunk[rows]
        return (np.where(sends, table.buffer[rows], table.from_buffer[rows]),
                np.where(sends, table.chunk[rows], table.from_chunk[rows]))

    def _flat(self, rows: Array, buffer: Array, chunk: Array) -> tuple[Array, Array, Array]:
        """One entry a chunk: (index into rows, which chunk of the row, number of (lane, step, location))."""
        count = self.table.count[rows].astype(np.int64)
        which = np.repeat(np.arange(len(rows)), count)
        part = np.arange(len(which)) - (np.cumsum(count) - count)[which]
        place = self.offset[buffer[which]] + chunk[which] + part
        return which, part, self.key[rows[which]].astype(np.int64) * self.span + place

    def repeated_writes(self, conditions: Conditions) -> tuple[Array, Array, Array, list[Diagnostic]]:
        """Locations written more than once in a step: the turns of reductions, and the clashes (SL402)."""
        table = self.table
        rows = self._crowd(_writers, self.writes_more)
        if not len(rows):
            return rows, rows, rows, []
        which, part, place = self._flat(rows, table.buffer[rows], table.chunk[rows])
        if len(conditions.empty):
            row = rows[which]
            at = conditions.locations.at(table.buffer[row], table.rank[row], table.chunk[row] + part)
            some = ~np.isin(at, conditions.empty)
            which, part, place = which[some], part[some], place[some]
        by_place = np.argsort(place, kind="stable")
        place, which, part = place[by_place], which[by_place], part[by_place]
        starts = np.flatnonzero(np.diff(place, prepend=-1))
        size = np.diff(starts, append=len(place))
        turn = np.arange(len(place)) - np.repeat(starts, size)
        row = rows[which]
        plain = ~_adds(table, row)
        bad = np.logical_or.reduceat(plain, starts) & (size > 1)
        later = (turn > 0) & ~np.repeat(bad, size)
        at = starts[bad]
        found = []
        for index, count in collapse.shown(collapse.by_statement(table, row[at + 1], row[at]), SHOWN):
            group = slice(int(at[index]), int(at[index] + size[bad][index]))
            first = int(np.argmax(plain[group]))
            a, b = (int(r) for r in sorted((row[group][first], row[group][0 if first else 1])))
            where = f"{self._name(int(row[at[index]]), int(part[at[index]]))} on rank {int(table.rank[b])}"
            said = came_from(table, b)
            times = _times(int(size[bad][index]))
            found.append(at_row(error(
                "SL402",
                f"one step writes {where} {times}, and not only by reductions: which value stays is not settled{said}",
                count=count,
                notes=[collapse.note(table, a, "it is written by "), collapse.note(table, b, "and by ")],
                help="put the writes into steps of their own, or give them different places",
                rows=[a, b], rank=int(table.rank[b]), stream=table.streams[int(table.stream[b])],
                step=int(table.step[b])), table, b, a))
        return row[later], part[later], turn[later], found

    def _name(self, row: int, part: int) -> str:
        table = self.table
        return chunks_text(table, int(table.buffer[row]), int(table.chunk[row]) + part, 1)

    def staged(self) -> list[Diagnostic]:
        """Locations that a step both reads and writes (SL603)."""
        table = self.table
        by, of = self._read_and_written()
        by, unique = np.unique(by, return_index=True)       # several chunks of one row count once
        of = of[unique]
        remarks = []
        for index, times in collapse.shown(collapse.by_statement(table, by, of), SHOWN):
            w, r = int(by[index]), int(of[index])
            what = chunks_text(table, int(table.buffer[w]), int(table.chunk[w]), int(table.count[w]))
            said = came_from(table, w)
            remarks.append(at_row(note(
                "SL603",
                f"rank {int(table.rank[w])} reads and writes {what} in one step, so a back end keeps a copy of what is "
                f"read{said}", count=times, notes=[] if r == w else [collapse.note(table, r, "it is read by ")],
                rows=[w, r]), table, w, r))
        return remarks

    def _several(self) -> Array | None:
        """The (lane, step)s that read and write, and have several rows that do one of the two; None: there are none."""
        found = None
        for more, other in ((self.reads_more, self.writer), (self.writes_more, self.reader)):
            if more is not None:
                both = more & (other != NONE)
                found = both if found is None else found | both
        return found

    def _read_and_written(self) -> tuple[Array, Array]:
        """Pairs of rows of one step, the first of which writes a location that the second reads. Not every pair, but
        one for each location."""
        table = self.table
        written, read = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        # One reading and one writing row: compare their ranges. That is nearly every step of nearly every schedule.
        several = self._several()
        for block in self._blocks():
            one = _writers(table, block)
            reader = self.reader[self.key[one]]
            other: Array | slice
            if several is None and int(reader.min(initial=0)) != NONE:
                other = spaced(reader)
            else:
                single = reader != NONE
                if several is not None:
                    single &= ~several[self.key[one]]
                one, other = _numbers(one)[single], reader[single]
            buffer, chunk = self._source(other)
            begin, size = table.chunk[one], table.count
            meets = buffer == table.buffer[one]
            meets &= chunk < begin + size[one]
            meets &= begin < chunk + size[other]
            if meets.any():
                written.append(_numbers(one)[meets])
                read.append(_numbers(other)[meets].astype(np.int64, copy=False))
        crowd = self._crowd(_writers, several)
        if len(crowd):
            theirs = np.zeros(self.nodes, bool)
            theirs[self.key[crowd]] = True
            rows = self._crowd(_readers, theirs)
            which, _, place = self._flat(rows, *self._source(rows))
            order = np.argsort(place, kind="stable")
            which, place = which[order], place[order]
            w_which, _, w_place = self._flat(crowd, table.buffer[crowd], table.chunk[crowd])
            found = np.searchsorted(place, w_place)
            hit = np.flatnonzero(found < len(place))
            hit = hit[place[found[hit]] == w_place[hit]]
            written.append(crowd[w_which[hit]])
            read.append(rows[which[found[hit]]])
        return np.concatenate(written), np.concatenate(read)


def _writers(table: OpTable, rows: slice) -> Array | slice:
    """The rows of a block that write."""
    op = table.op[rows]
    writes = (op != Op.SEND) & (op < Op.RECORD)
    writes &= table.buffer[rows] != NONE
    return chosen(writes, rows.start)


def _readers(table: OpTable, rows: slice) -> Array | slice:
    """The rows of a block that read; a reduction's own read of its destination does not count."""
    op = table.op[rows]
    reads = (op == Op.SEND) & (table.of[rows] == NONE)
    reads |= (op == Op.COPY) | (op == Op.REDUCE)
    reads |= (op == Op.REDUCE_RECV) & _elsewhere(table, rows)
    return chosen(reads, rows.start)


def _numbers(rows: Array | slice) -> Array:
    return np.arange(rows.start, rows.stop, rows.step) if isinstance(rows, slice) else rows


def _elsewhere(table: OpTable, rows: Array | slice) -> Array:
    """Whether the operand of reductions is not their destination."""
    elsewhere: Array = table.from_buffer[rows] != table.buffer[rows]
    elsewhere |= table.from_chunk[rows] != table.chunk[rows]
    return elsewhere


def _adds(table: OpTable, rows: Array) -> Array:
    """Whether writing rows combine what they bring with what is at their destination."""
    op = table.op[rows]
    return (op == Op.REDUCE) | ((op == Op.REDUCE_RECV) & ~_elsewhere(table, rows))


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def _input_written(table: OpTable) -> list[Diagnostic]:
    found = []
    for index, buffer in enumerate(table.buffers):
        if buffer.role != "input":
            continue
        writes = (table.buffer == index) & (table.op != Op.SEND) & (table.op < Op.RECORD)
        if writes.any():
            row = int(np.argmax(writes))
            said = came_from(table, row)
            found.append(at_row(note(
                "SL604", f"the schedule writes its {buffer.name}, so back ends work on a copy of it: "
                f"{words.operation(table, row)}{said}", count=int(writes.sum()), buffer=buffer.name, rows=[row]),
                table, row))
    return found
