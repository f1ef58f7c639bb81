"""Ranks x time: where everything in the drawing of a schedule goes.

A rank is a horizontal band, a stream a line in it, a step of the walk a column. On the left of a column stand the
chunks that are sent, on the right those that arrive; arrows lead through the gap between. What is sent in one step and
received in a later one travels above the band of its receiver. Records and waits stand at the beginning of the column
before which they are passed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from schedlang.ir.table import NONE, OpTable
from schedlang.ir.words import counted
from schedlang.ops import Op
from schedlang.render.holdings import Walk
from schedlang.render.shapes import (
    CHIP_HEIGHT,
    Arrow,
    Band,
    Chip,
    Column,
    Lane,
    Mark,
    Timeline,
    above,
    across,
    back,
    stub,
)
from schedlang.render.style import clean, width
from schedlang.render.words import operation

MAX_CHIPS, MAX_WIDTH, MAX_HEIGHT = 4_000, 24_000, 12_000
"""What is still readable, in chips and pixels."""

LETTER = 6.7
"""The width of a letter in a chip."""

LONGEST = 16
"""So many letters of a name are shown."""

ROW, LANE_PAD, BAND_PAD, TRACK, EVENT = 20, 3, 7, 5, 10
LEFT, TOP, COLUMN_PAD = 12, 26, 9


class TooLarge(ValueError):
    """A picture that nobody could read; the text says what is too large."""


def timeline(table: OpTable, walk: Walk, wanted: range | None = None) -> Timeline:
    """Lays out the steps of a walk that ``wanted`` picks. Raises TooLarge."""
    return _Layout(table, walk, wanted).timeline()


def short(name: str, most: int = LONGEST) -> str:
    """A name in one line, long ones cut in the middle."""
    name = clean(name).replace("\n", "\ufffd")
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-(most - most // 2 - 1):]}"


def text_width(text: str) -> float:
    """How wide the text of a chip is."""
    return LETTER * width(text)


def _names(names: Sequence[str]) -> list[str]:
    """Short names of buffers: those of used schedules without these, where that is clear."""
    last = [name.rpartition(".")[2] for name in names]
    return [short(own if last.count(own) == 1 else name) for name, own in zip(names, last, strict=True)]


@dataclass
class _Draft:
    """A chip before it has its place. ``side``: ``left``, ``right`` or ``wide``."""

    kind: str
    side: str
    text: str
    chunk: int
    rows: list[int] = field(default_factory=list)

    @property
    def width(self) -> float:
        return max(CHIP_HEIGHT + 2, text_width(self.text) + 9)


_Lane = tuple[int, int]


class _Layout:
    def __init__(self, table: OpTable, walk: Walk, wanted: range | None) -> None:
        self.table, self.walk = table, walk
        total = len(walk.rounds)
        chosen = walk.chosen(wanted)
        self.last = total if chosen.stop == total else None     # the column after the last step, where it is shown
        self.shown = range(chosen.start, chosen.stop + (self.last is not None))
        names = ("op", "rank", "stream", "buffer", "chunk", "count", "from_buffer", "from_chunk", "of", "event")
        self.column: dict[str, list[int]] = {name: getattr(table, name).tolist() for name in names}
        used = {b for name in ("buffer", "from_buffer") for b in self.column[name] if b != NONE}
        self.one_buffer = len(used) <= 1
        self.names = _names([buffer.name for buffer in table.buffers])
        self.drafts: dict[tuple[_Lane, int], dict[tuple[object, ...], _Draft]] = defaultdict(dict)
        self.chip_of: dict[int, _Draft] = {}
        self.step_of: dict[int, int] = {}
        self.events: dict[tuple[_Lane, int], list[int]] = defaultdict(list)
        self.collect()
        if len(self.chip_of) > MAX_CHIPS:
            raise TooLarge(f"{len(self.chip_of):,} operations are too many for a readable picture (at most "
                           f"{MAX_CHIPS:,})")

    # ---- what there is to draw -------------------------------------------------------------------------------------

    def collect(self) -> None:
        """Sorts the operations by lane and column, those that touch the same place together."""
        c, began = self.column, self.walk.began
        for row, step in began.items():
            if c["op"][row] == Op.SEND and c["of"][row] == NONE:
                self.draft(row, step, "send", "left", self.place(c["buffer"][row], c["chunk"][row], c["count"][row]))
            elif c["op"][row] in (Op.RECORD, Op.WAIT) and step in self.shown:
                self.events[self.lane(row), step].append(row)
        for step, done in enumerate(self.walk.rounds):
            for row in done.rows:
                self.finished(row, step)
        if self.last is not None:
            for row in self.walk.stuck:
                self.draft(row, self.last, "stuck", "wide", short(operation(self.table, row), 44), row)

    def finished(self, row: int, step: int) -> None:
        c = self.column
        op, count = c["op"][row], c["count"][row]
        to = self.place(c["buffer"][row], c["chunk"][row], count)
        added = self.place(c["from_buffer"][row], c["from_chunk"][row], count)
        if op in (Op.COPY, Op.REDUCE):
            sign = "→" if op == Op.COPY else "+→"
            self.draft(row, step, "copy" if op == Op.COPY else "add", "wide", f"{added} {sign} {to}", row)
        elif op in (Op.RECV, Op.REDUCE_RECV):
            plus = "+" if op == Op.REDUCE_RECV else ""
            if c["buffer"][row] == NONE:
                self.draft(row, step, "pass", "right", f"{plus}{added if plus else ''}»", row)
            else:
                text = f"{to}={added}+" if plus and added != to else plus + to
                self.draft(row, step, "reduce" if plus else "recv", "right", text)

    def draft(self, row: int, step: int, kind: str, side: str, text: str, key: int | None = None) -> None:
        if step not in self.shown:
            return
        drafts, chunk = self.drafts[self.lane(row), step], self.sent_chunk(row)
        draft = drafts.setdefault((kind, text, chunk, key), _Draft(kind, side, text, chunk))
        draft.rows.append(row)
        self.chip_of[row], self.step_of[row] = draft, step

    def lane(self, row: int) -> _Lane:
        return self.column["rank"][row], self.column["stream"][row]

    def place(self, buffer: int, chunk: int, count: int) -> str:
        if buffer == NONE:
            return ""
        span = f"{chunk}" if count == 1 else f"{chunk}:{chunk + count}"
        return span if self.one_buffer else f"{self.names[buffer]}[{span}]"

    def sent_chunk(self, row: int) -> int:
        """The chunk that gives an operation its colour: the one that is read where the value comes from."""
        c, seen = self.column, 0
        while c["op"][row] in (Op.RECV, Op.REDUCE_RECV) or c["of"][row] != NONE:
            before = c["of"][row] if c["of"][row] != NONE else self.walk.sender.get(row, NONE)
            if before == NONE or seen > len(c["op"]):
                break
            row, seen = before, seen + 1
        return c["from_chunk"][row] if c["op"][row] in (Op.COPY, Op.REDUCE) else c["chunk"][row]

    # ---- where it goes ---------------------------------------------------------------------------------------------

    def timeline(self) -> Timeline:
        self.messages = [(self.walk.sender[row], row) for row in sorted(self.walk.sender)]
        columns = tuple(self.columns())
        self.at = {column.step: column for column in columns}
        bands = tuple(self.bands())
        size = (columns[-1].x + columns[-1].width if columns else self.margin + 60) + LEFT, self.bottom
        if size[0] > MAX_WIDTH or size[1] > MAX_HEIGHT:
            raise TooLarge(f"{counted(len(columns), 'step')} of {counted(self.table.ranks, 'rank')} would be too large "
                           "for a readable picture")
        chips = {id(draft): chip for draft, chip in self.chips()}
        arrows = tuple(self.arrows(chips))
        marks = {mark.row: mark for mark in self.marks()}
        recorded = {(self.column["rank"][row], self.column["event"][row]): mark for row, mark in marks.items()
                    if mark.records}
        links = tuple((recorded[key], mark) for row, mark in marks.items() if not mark.records and
                      (key := (self.column["rank"][row], self.column["event"][row])) in recorded)
        return Timeline(*size, bands, columns, tuple(chips.values()), arrows, tuple(marks.values()), links)

    def columns(self) -> Iterator[Column]:
        lanes = [self.table.streams[stream] for stream in set(self.column["stream"])]
        self.many_streams = len(lanes) > 1
        self.margin = LEFT + 7.2 * len(f"rank {self.table.ranks - 1}") + 8
        if self.many_streams:
            self.margin += 10 + max(text_width(short(name)) for name in lanes)
        self.parts: dict[int, tuple[float, ...]] = {}    # widths: events, boxes aside, left, right, all chips
        in_column: dict[int, list[_Draft]] = defaultdict(list)
        for (_, step), drafts in self.drafts.items():
            in_column[step] += drafts.values()
        # Where a lane has both messages and boxes, the boxes stand aside, so that they hide no arrows.
        self.crowded = {step for (_, step), drafts in self.drafts.items()
                        if len({draft.side == "wide" for draft in drafts.values()}) == 2}
        events = Counter[int]()
        for (_, step), rows in self.events.items():
            events[step] = max(events[step], len(rows))
        far = Counter[int]()        # how many bands the messages of a column cross
        for send, receive in self.messages:
            if receive in self.step_of:
                far[self.step_of[receive]] += abs(self.column["rank"][send] - self.column["rank"][receive])
        onward = {self.step_of[self.column["of"][send]] for send, receive in self.messages
                  if receive in self.step_of and self.column["of"][send] in self.step_of}
        x = self.margin
        for step in self.shown:
            there = in_column[step]
            wide, left, right = (max((d.width for d in there if d.side == side), default=0.0)
                                 for side in ("wide", "left", "right"))
            if step == self.last and not (there or events[step]):
                return
            gap = 42 + 6 * min(far[step] / self.table.ranks, 30) if right else 30 if left else 0
            aside = wide + 12 if wide and step in self.crowded else 0
            inner = aside + max(left + gap + right, 0 if aside else wide)
            before = EVENT * events[step] + (4 if events[step] else 0)
            self.parts[step] = before, aside, left, right, inner
            whole = before + inner + 2 * COLUMN_PAD + (30 if step in onward else 0)
            text = f"step {step}" if step != self.last else "for ever" if there else ""
            whole = max(whole, text_width(text) + 8)
            yield Column(step, text, x, whole)
            x += whole

    def bands(self) -> Iterator[Band]:
        lanes_of: dict[int, list[int]] = {rank: [] for rank in range(self.table.ranks)}
        for rank, stream in sorted(set(zip(self.column["rank"], self.column["stream"], strict=True))):
            lanes_of[rank].append(stream)
        stacked: dict[_Lane, int] = defaultdict(int)
        for (lane, step), drafts in self.drafts.items():
            sides = Counter(draft.side for draft in drafts.values())
            messages, boxes = max(sides["left"], sides["right"]), sides["wide"]
            stacked[lane] = max(stacked[lane], max(messages, boxes) if step in self.crowded else messages + boxes)
        tracks = self.tracks()
        self.lane_y: dict[_Lane, float] = {}
        self.gap_y: dict[int, float] = {}
        y: float = TOP
        for rank, streams in lanes_of.items():
            self.gap_y[rank] = y
            y += TRACK * tracks[rank]
            top = y
            lanes = []
            for stream in streams or [NONE]:
                high = LANE_PAD * 2 + ROW * max(1, stacked[rank, stream])
                self.lane_y[rank, stream] = y + LANE_PAD + ROW / 2
                name = short(self.table.streams[stream]) if self.many_streams and stream != NONE else ""
                lanes.append(Lane(name, y, high))
                y += high
            yield Band(rank, top, y - top, tuple(lanes))
            y += BAND_PAD
        self.bottom = y + 4

    def tracks(self) -> Counter[int]:
        """Which messages travel above the band of their receiver, and on which track; how many tracks a band has."""
        self.track: dict[int, int] = {}
        count = Counter[int]()
        busy: dict[int, list[int]] = defaultdict(list)      # of a rank: until which step each track is taken
        travelling = [(self.began(send), self.step_of[receive], receive) for send, receive in self.messages
                      if receive in self.step_of]
        for start, end, receive in sorted(travelling):
            if start == end:
                continue
            rank = self.column["rank"][receive]
            free = next((k for k, until in enumerate(busy[rank]) if until < start), len(busy[rank]))
            busy[rank][free:free + 1] = [end]
            self.track[receive] = free
            count[rank] = max(count[rank], free + 1)
        return count

    def began(self, send: int) -> int:
        """The column from which a message leaves; the one before the first where that is not shown."""
        of = self.column["of"][send]
        return self.step_of.get(send if of == NONE else of, self.shown.start - 1)

    def chips(self) -> Iterator[tuple[_Draft, Chip]]:
        for (lane, step), drafts in self.drafts.items():
            before, aside, left, right, inner = self.parts[step]
            x = self.at[step].x + COLUMN_PAD + before
            used = Counter[str]()
            sides = Counter(draft.side for draft in drafts.values())
            used["wide"] = 0 if aside else max(sides["left"], sides["right"])
            for draft in drafts.values():
                start = {"left": x + aside + left - draft.width, "right": x + inner - right,
                         "wide": x + ((aside - 12 if aside else inner) - draft.width) / 2}[draft.side]
                y = self.lane_y[lane] + ROW * used[draft.side]
                used[draft.side] += 1
                yield draft, Chip(draft.kind, draft.text, draft.chunk, step, tuple(draft.rows), start, y, draft.width)

    def marks(self) -> Iterator[Mark]:
        for (lane, step), rows in self.events.items():
            for k, row in enumerate(rows):
                yield Mark(self.column["op"][row] == Op.RECORD, row, step,
                           self.at[step].x + COLUMN_PAD + EVENT * (k + 0.5), self.lane_y[lane])

    def arrows(self, chips: Mapping[int, Chip]) -> Iterator[Arrow]:
        c = self.column
        taken = set()
        for send, receive in self.messages:
            of = c["of"][send]
            source = self.chip_of.get(send if of == NONE else of)
            target = self.chip_of.get(receive)
            if target is None:
                continue
            taken.add(send)
            end = chips[id(target)]
            reduces = c["op"][receive] == Op.REDUCE_RECV
            start = chips[id(source)] if source is not None else None
            if start is not None and start.step == end.step and of != NONE:
                path, tip = back(start, end)
                yield Arrow(reduces, end.chunk, end.step, (send, receive), path, tip, back=True)
                continue
            if start is not None and start.step == end.step:
                path = across(start.x + start.width, start.y, end.x, end.y)
            else:
                gap = self.gap_y[c["rank"][receive]] + TRACK * self.track.get(receive, 0)
                path = above(None if start is None else (start.x + start.width, start.y), gap, end, self.margin)
            yield Arrow(reduces, end.chunk, end.step, (send, receive), path, (end.x, end.y))
        for row, draft in self.chip_of.items():
            if draft.kind == "send" and row not in taken:
                start = chips[id(draft)]
                yield Arrow(False, start.chunk, start.step, (row,), stub(start), None)
