"""Pictures of a schedule in the terminal: step by step who holds what, and one rank's own operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from textwrap import wrap

from schedlang.ir.origin import origin_text
from schedlang.ir.table import OpTable
from schedlang.render.cells import NOTHING, Cells
from schedlang.render.holdings import Place, Round, Value, Walk
from schedlang.render.style import Style, width
from schedlang.render.words import operation, stream, transfer

MAX_TABLE_RANKS = 32
"""With more ranks, or where the columns do not fit, only what changes is listed."""

MAX_BANDS = 4
"""How many times a table may be broken to fit the terminal."""

MAX_LINES = 40
"""How many transfers or changes of a step are listed."""


def rank_lines(table: OpTable, rank: int, wanted: range | None, style: Style) -> Iterator[str]:
    """One rank's own operations, stream by stream; ``wanted`` picks steps of each stream."""
    rows: list[int] = (table.rank == rank).nonzero()[0].tolist()
    yield style("bold", f"{table.name}: rank {rank} of {table.ranks}, {len(rows):,} operation{'s' * (len(rows) != 1)}")
    rows.sort(key=lambda row: (int(table.stream[row]), int(table.step[row]), row))
    shown = None
    for (name, step), together in groupby(rows, key=lambda row: (stream(table, row), int(table.step[row]))):
        if wanted is not None and step not in wanted:
            continue
        if name != shown:
            yield ""
            yield style("bold", f"stream {name}")
            shown = name
        for k, row in enumerate(together):
            where = origin_text(table, [row])
            place = style("dim", f"id {row}" + (f", {where}" if where else ""))
            yield f"  {'' if k else f'step {step}':<9} {operation(table, row):<40} {place}"


class Picture:
    """Draws who holds what after each step of a walk, for a terminal of ``columns`` columns."""

    def __init__(self, table: OpTable, walk: Walk, *, columns: int, style: Style) -> None:
        self.table, self.walk, self.columns, self.style = table, walk, columns, style
        self.cells = Cells(table, walk)
        self.label = len(f"rank {table.ranks - 1}")

    def lines(self, wanted: range | None) -> Iterator[str]:
        """The picture; ``wanted`` picks steps, counted from 0."""
        total, chosen = len(self.walk.rounds), self.walk.chosen(wanted)
        yield self.style("bold", f"{self.table.name}: {self.table.collective.name} on {self.table.ranks} "
                                 f"rank{'s' * (self.table.ranks != 1)}, {total} step{'s' * (total != 1)}")
        yield from self.legend()
        for number, state in enumerate(self.walk.states()):
            if number == chosen.start:
                yield ""
                yield self.style("bold", "at the start" if number == 0 else f"before step {number}")
                yield from self.state(state, {})
            if number - 1 in chosen:
                step = self.walk.rounds[number - 1]
                where = origin_text(self.table, step.rows)
                yield ""
                yield self.style("bold", f"step {number - 1}") + self.style("dim", f"  {where}" if where else "")
                yield from self.transfers(step)
                yield from self.state(state, step.written)
            if number > chosen.stop:
                break
        if chosen.stop >= total:
            yield from self.stuck()

    def legend(self) -> Iterator[str]:
        """How to read a cell."""
        mark = "" if self.style.color or self.table.collective.name == "barrier" else ", * just written"
        yield from wrap(f"{self.cells.legend()}{mark}.", 101)

    def state(self, state: Mapping[Place, Value | None], written: Mapping[Place, Value | None]) -> Iterator[str]:
        """Who holds what, as a table where it fits, else what has changed."""
        bands = self.bands(state) if self.table.ranks <= MAX_TABLE_RANKS else []
        if not 0 < len(bands) <= MAX_BANDS:
            yield from self.changes(written or state, state)
            return
        for band in bands:
            yield (" " * self.label + "  " + "  ".join(name.ljust(wide) for name, wide, _ in band)).rstrip()
            for rank in range(self.table.ranks):
                cells = [self.padded((buffer, rank, chunk), state, written, wide) for _, wide, (buffer, chunk) in band]
                yield (f"rank {rank}".ljust(self.label) + "  " + "  ".join(cells)).rstrip()

    def bands(self, state: Mapping[Place, Value | None]) -> list[list[tuple[str, int, tuple[int, int]]]]:
        """The columns as (name, width, (buffer, chunk)), in groups that fit side by side."""
        widest: dict[tuple[int, int], int] = {}
        for (buffer, _, chunk), value in state.items():
            cell = self.cells.text((buffer, 0, chunk), value)
            widest[buffer, chunk] = max(widest.get((buffer, chunk), 1), width(cell) + 1)
        bands: list[list[tuple[str, int, tuple[int, int]]]] = []
        used = self.columns
        for (buffer, chunk), cells in sorted(widest.items()):
            name = f"{self.table.buffers[buffer].name}[{chunk}]"
            wide = max(len(name), cells)
            if used + wide + 2 > self.columns:
                bands.append([])
                used = self.label
            bands[-1].append((name, wide, (buffer, chunk)))
            used += wide + 2
        return bands

    def padded(self, place: Place, state: Mapping[Place, Value | None], written: Mapping[Place, Value | None],
               wide: int) -> str:
        """The text of a cell, filled up to a width, with what was just written marked."""
        text = self.cells.text(place, state[place]) if place in state else NOTHING
        if place not in written:
            return text.ljust(wide)
        mark = "" if self.style.color else "*"
        return self.style("changed", text) + mark + " " * (wide - len(text) - len(mark))

    def changes(self, places: Iterable[Place], state: Mapping[Place, Value | None]) -> Iterator[str]:
        """Places and what they hold, a line a run of chunks that hold alike."""
        listed = sorted(places, key=lambda place: (place[1], place[0], place[2]))
        runs = list(_runs(listed, {place: self.cells.text(place, state[place]) for place in listed}))
        for (buffer, rank, chunk), end, text in runs[:MAX_LINES]:
            where = f"{self.table.buffers[buffer].name}[{chunk}{f':{end}' if end > chunk + 1 else ''}]"
            yield f"  {f'rank {rank}'.ljust(self.label)}  {where}: {text}"
        if len(runs) > MAX_LINES:
            yield f"  and {len(runs) - MAX_LINES:,} more; `--rank R` shows one rank's operations"

    def transfers(self, step: Round) -> Iterator[str]:
        """What one step moves."""
        texts = [said for row in step.rows if (said := transfer(self.table, row))]
        yield from _side_by_side(texts[:MAX_LINES], self.columns)
        if len(texts) > MAX_LINES:
            yield f"  and {len(texts) - MAX_LINES:,} more"

    def stuck(self) -> Iterator[str]:
        """The operations that wait for ever, if any."""
        if not self.walk.stuck:
            return
        yield ""
        yield self.style("error", "Here it stops: no operation can go on. These wait:")
        for row in self.walk.stuck[:MAX_LINES]:
            where = origin_text(self.table, [row])
            yield f"  rank {self.table.rank[row]}, stream {stream(self.table, row)}: {operation(self.table, row)}" + \
                self.style("dim", f"  {where}" if where else "")
        if len(self.walk.stuck) > MAX_LINES:
            yield f"  and {len(self.walk.stuck) - MAX_LINES:,} more"


def _runs(places: Sequence[Place], text: Mapping[Place, str]) -> Iterator[tuple[Place, int, str]]:
    """Neighbouring locations of a rank with the same text as one: (first place, end of its chunks, text)."""
    at = 0
    while at < len(places):
        buffer, rank, chunk = places[at]
        end = at + 1
        here = text[places[at]]
        while end < len(places) and places[end] == (buffer, rank, chunk + end - at) and text[places[end]] == here:
            end += 1
        yield places[at], chunk + end - at, here
        at = end


def _side_by_side(texts: Sequence[str], columns: int) -> Iterator[str]:
    """Texts in as many columns as fit."""
    if not texts:
        return
    each = max(map(len, texts)) + 3
    across = max(1, (columns - 2) // each)
    for at in range(0, len(texts), across):
        yield ("  " + "".join(text.ljust(each) for text in texts[at:at + across])).rstrip()
