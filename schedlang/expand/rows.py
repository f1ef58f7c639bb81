"""From what the statements made to the rows of a table.

Statements leave *leaves*: for each turn a fixed number of rows, as columns over the turns. A :class:`Block` holds the
leaves and blocks of a body in the order they stand. Row order is execution order: turn by turn, in a turn part by
part. So a leaf's rows lie at positions that follow from the numbers of rows per turn alone; every column is written
once, in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from schedlang.expand.frame import Frame
from schedlang.expand.values import Array
from schedlang.ir.table import COLUMNS, DTYPES, NONE, constant

Counts = int | Array
"""Rows in each turn of a frame; an int where all have the same number."""


@dataclass(frozen=True, slots=True)
class Even:
    """Positions on a lattice: ``base`` plus, for each axis (size, stride) from the outermost in, a multiple 0, 1, ...,
    size - 1 of its stride."""

    base: int
    axes: tuple[tuple[int, int], ...] = ()

    def within(self, size: int, stride: int) -> Even:
        """With ``size`` positions, ``stride`` apart, in place of each."""
        if size == 1:
            return self
        *outer, last = self.axes or ((1, size * stride),)
        if last[1] == size * stride:
            return Even(self.base, (*outer, (last[0] * size, stride)))
        return Even(self.base, (*self.axes, (size, stride)))


Starts = Even | Array


class Part(Protocol):
    """What a block holds: a leaf, the rows of a `use`, or a block."""

    frame: Frame

    def counts(self) -> Counts:
        """How many rows each turn of its frame makes."""

    def place(self, starts: Starts) -> None:
        """Is told where the rows of each turn start."""


class Leaf(Protocol):
    """A part that makes rows itself: ``width`` of them in each turn of its frame."""

    frame: Frame
    width: int
    starts: Starts

    def uniform(self, column: str) -> int | None:
        """The one value of a column, None where it has several."""

    def on_own_stream(self) -> bool:
        """Whether ``chan`` is known to be ``stream`` in all rows."""

    def write(self, out: Mapping[str, Array]) -> None:
        """Writes the rows into the columns given."""

    def begins(self) -> Sequence[int]:
        """Which rows of a turn begin a source step."""


@dataclass(eq=False)
class Rows:
    """The rows of one statement: ``rows[j]`` are the columns of the j-th row, an int or an array over the turns.

    Columns that a row lacks are NONE. ``of`` counts rows within the turn. ``own_step``: each turn is a source step.
    How many rows there are is known before they are.
    """

    frame: Frame
    width: int
    own_step: bool
    rows: list[dict[str, Any]] = field(default_factory=list)
    site: int = NONE
    starts: Starts = field(default_factory=lambda: Even(0))

    def counts(self) -> Counts:
        return self.width

    def place(self, starts: Starts) -> None:
        self.starts = starts

    def begins(self) -> Sequence[int]:
        return (0,) if self.own_step else ()

    def uniform(self, column: str) -> int | None:
        if column == "site":
            return self.site
        if column == "turn":
            return 0 if self.frame.n == 1 else None
        values = [row.get(column, NONE) for row in self.rows]
        if column == "of" and any(v != NONE for v in values):
            return None
        first = values[0]
        return first if isinstance(first, int) and all(isinstance(v, int) and v == first for v in values) else None

    def on_own_stream(self) -> bool:
        return all("chan" in row and row["chan"] is row["stream"] for row in self.rows)

    def write(self, out: Mapping[str, Array]) -> None:
        n = self.frame.n
        turns = np.arange(n, dtype=np.int32) if "turn" in out else None
        value: Any
        for j, row in enumerate(self.rows):
            for column, cells in out.items():
                if column == "turn":
                    value = turns
                elif column == "site":
                    value = self.site
                elif column == "of" and row.get("of", NONE) != NONE:
                    value = positions(self.starts) + row["of"]
                else:
                    value = row.get(column, NONE)
                _put(cells, self.starts, j, value)
        self.rows = []  # they are in the table now


@dataclass(eq=False)
class Block:
    """The parts of a body, over the turns of ``frame``; with ``step`` each turn that makes rows is a source step."""

    frame: Frame
    parts: list[Part]
    step: bool = False
    starts: Starts = field(default_factory=lambda: Even(0))
    _counts: Counts | None = None

    def counts(self) -> Counts:
        if self._counts is None:
            total: Counts = 0
            for part in self.parts:
                total = total + lifted(part.counts(), _hops(part.frame, self.frame))
            self._counts = total
        return self._counts

    def place(self, starts: Starts) -> None:
        self.starts = starts
        for part in self.parts:
            hops = _hops(part.frame, self.frame)
            part.place(_descend(starts, part.counts(), hops))
            starts = _after(starts, lifted(part.counts(), hops))


def leaves(part: Part) -> Iterator[Leaf]:
    """The leaves under a part, in the order they stand."""
    if isinstance(part, Block):
        for p in part.parts:
            yield from leaves(p)
    else:
        yield part  # type: ignore[misc]


def blocks(part: Part) -> Iterator[Block]:
    """The blocks under a part, itself included."""
    if isinstance(part, Block):
        yield part
        for p in part.parts:
            yield from blocks(p)


# ---- positions -----------------------------------------------------------------------------------------------------


def _hops(inner: Frame, outer: Frame) -> list[Frame]:
    """The frames that lead from one frame out to another, those that change the turns only, innermost first."""
    found: list[Frame] = []
    frame: Frame | None = inner
    while frame is not outer:
        assert frame is not None
        if not frame.same:
            found.append(frame)
        frame = frame.outer
    return found


def _lift(counts: Counts, frame: Frame) -> Counts:
    """Rows per outer turn from rows per turn of a frame."""
    assert frame.outer is not None
    if frame.outer.n == 1:
        return counts * frame.n if isinstance(counts, int) else int(counts.sum())
    if frame.each is not None:
        return counts * frame.each if isinstance(counts, int) else counts.reshape(-1, frame.each).sum(1)
    if isinstance(counts, int):
        return np.bincount(frame.index, minlength=frame.outer.n) * counts
    return np.bincount(frame.index, counts, frame.outer.n).astype(np.int64)


def lifted(counts: Counts, hops: Sequence[Frame]) -> Counts:
    """Counts by turn of the innermost frame, summed up by turn of the outermost."""
    for frame in hops:
        counts = _lift(counts, frame)
    return counts


def _descend(starts: Starts, counts: Counts, hops: list[Frame]) -> Starts:
    """Where the turns of the innermost frame start, from where those of the outermost do."""
    inner = [counts]
    for frame in hops[:-1]:
        inner.append(_lift(inner[-1], frame))
    for frame, c in zip(reversed(hops), reversed(inner), strict=False):
        starts = _within(starts, frame, c)
    return starts


def _within(starts: Starts, frame: Frame, counts: Counts) -> Starts:
    """Where the turns of a frame start, from where the turns of its outer frame do."""
    assert frame.outer is not None
    if isinstance(counts, int):
        if frame.outer.n == 1:
            return Even(positions_base(starts)).within(frame.n, counts)
        if frame.each is not None:
            if isinstance(starts, Even):
                return starts.within(frame.each, counts)
            at = positions(starts)
            return np.asarray((at[:, None] + np.arange(frame.each) * counts).ravel())
        counts = np.full(frame.n, counts, np.int64)
    before = np.cumsum(counts) - counts
    index = frame.index
    changes = np.concatenate(([True], index[1:] != index[:-1]))
    group = np.cumsum(changes) - 1
    return np.asarray(positions(starts)[index] + before - before[changes][group])


def _after(starts: Starts, counts: Counts) -> Starts:
    if isinstance(starts, Even) and isinstance(counts, int):
        return Even(starts.base + counts, starts.axes)
    return positions(starts) + counts


def positions_base(starts: Starts) -> int:
    """Where the first turn starts."""
    return starts.base if isinstance(starts, Even) else int(starts[0])


def positions(starts: Starts) -> Array:
    """The positions written out."""
    if not isinstance(starts, Even):
        return starts
    at = np.array([starts.base], np.int64)
    for size, stride in starts.axes:
        at = (at[:, None] + stride * np.arange(size)).ravel()
    return at


def _put(column: Array, starts: Starts, offset: int, values: Any) -> None:
    """Writes values, one for all or one each, at the positions ``starts + offset``."""
    if not isinstance(starts, Even):
        column[starts + offset] = values
        return
    shape = tuple(size for size, _ in starts.axes)
    size = column.itemsize
    cells: Array = np.ndarray(shape, column.dtype, column, (starts.base + offset) * size,
                              tuple(stride * size for _, stride in starts.axes))
    cells[...] = values if np.ndim(values) == 0 else values.reshape(shape)


# ---- columns -------------------------------------------------------------------------------------------------------


def columns(root: Block, ranks: int, streams: int) -> dict[str, Array]:
    """All columns of the rows under a block of one turn, ``step`` and ``number`` worked out from the source steps."""
    total = root.counts()
    assert isinstance(total, int)
    root.place(Even(0))
    parts = [leaf for leaf in leaves(root) if leaf.frame.n]
    out: dict[str, Array] = {}
    held: dict[str, Array] = {}
    own_streams = all(leaf.on_own_stream() for leaf in parts)
    for column in COLUMNS:
        if column in ("step", "number") or (column == "chan" and own_streams):
            continue
        seen = {leaf.uniform(column) for leaf in parts}
        if len(seen) <= 1 and None not in seen:
            out[column] = constant(seen.pop() or 0 if seen else 0, total, DTYPES[column])
        else:
            held[column] = out[column] = np.empty(total, DTYPES[column])
    begins = np.zeros(total, np.bool_)
    for block in blocks(root):
        if block.step:
            _mark_step(block, begins)
    for leaf in parts:
        for j in leaf.begins():
            _put(begins, leaf.starts, j, True)
        leaf.write(held)
    if own_streams:
        out["chan"] = out["stream"]
    number = np.cumsum(begins, dtype=np.int32)
    number -= 1
    out["number"] = number
    out["step"] = lane_steps(out["rank"], out["stream"], number, ranks, streams)
    return out


def _mark_step(block: Block, begins: Array) -> None:
    counts = block.counts()
    if isinstance(counts, int):
        if counts and block.frame.n:
            _put(begins, block.starts, 0, True)
    else:
        begins[positions(block.starts)[counts > 0]] = True


DENSE = 4
"""A table of all lanes by all source steps is used up to this many cells a row of the op table."""
CELLS = 1 << 19
"""How many cells of that table are worked on at a time."""


def lane_steps(rank: Array, stream: Array, number: Array, ranks: int, streams: int) -> Array:
    """The step of each row: how many source steps its lane, (rank, stream), has met before.

    ``number`` does not decrease from row to row.
    """
    rows, lanes = len(number), ranks * streams
    out = np.empty(rows, np.int32)
    if not rows:
        return out
    numbers = int(number[-1]) + 1
    changes = np.flatnonzero(stream[1:] != stream[:-1]) + 1 if streams > 1 else np.zeros(0, np.int64)
    alone = len(changes) <= rows // CELLS and bool((number[changes] != number[changes - 1]).all())
    if (ranks if alone else lanes) * numbers > DENSE * rows + CELLS:
        return _lane_steps_sorted(rank, stream, number, streams)
    if alone:   # one stream for long: its lanes, as many as there are ranks, make a smaller table
        met = np.zeros((streams, ranks), np.int32)
        for run in (slice(a, b) for a, b in pairwise([0, *changes.tolist(), rows])):
            _count_steps(rank[run], number[run], met[int(stream[run.start])], out[run])
    else:
        _count_steps(_lanes(rank, stream, streams), number, np.zeros(lanes, np.int32), out)
    return out


def _count_steps(lane: Array, number: Array, met: Array, out: Array) -> None:
    """Writes to ``out``, for each row, how many source steps its lane has met before. ``met``: how many each lane has
    met before the first row; afterwards, before the row that would follow."""
    lanes, low = len(met), int(number[0])
    numbers = int(number[-1]) - low + 1
    per = max(1, CELLS // lanes)
    edges = [0] if numbers <= per else np.searchsorted(number, np.arange(low, low + numbers, per)).tolist()
    for i, (begin, end) in enumerate(zip(edges, [*edges[1:], len(lane)], strict=True)):
        cell = number[begin:end].astype(np.int64)
        cell -= low + i * per
        cell *= lanes
        cell += lane[begin:end]
        table = np.zeros((min(per, numbers - i * per), lanes), np.bool_)
        table.reshape(-1)[cell] = True
        before = np.cumsum(table, 0, np.int32)
        before += met - 1
        out[begin:end] = before.reshape(-1)[cell]
        met[:] = before[-1] + 1


def _lanes(rank: Array, stream: Array, streams: int) -> Array:
    return rank if streams == 1 else rank.astype(np.int64) * streams + stream


def _lane_steps_sorted(rank: Array, stream: Array, number: Array, streams: int) -> Array:
    lane = _lanes(rank, stream, streams)
    order = np.argsort(lane, kind="stable")
    lane, at = lane[order], number[order]
    first = np.empty(len(at), np.bool_)
    first[0] = True
    np.not_equal(lane[1:], lane[:-1], out=first[1:])
    new = first.copy()
    new[1:] |= at[1:] != at[:-1]
    count = np.cumsum(new, dtype=np.int64)
    base = np.maximum.accumulate(np.where(first, count, 0))
    out = np.empty(len(at), np.int32)
    out[order] = count - base
    return out
