"""What the statements of a schedule share while they are run: streams, buffers, events, places in the source, the count
of rows. What each statement does: ``block.py``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from schedlang.expand.collective import buffer_hint
from schedlang.expand.declare import Declarations, buffer_list
from schedlang.expand.evaluate import Evaluator
from schedlang.expand.frame import Fail, Frame, fail, kind_mismatch
from schedlang.expand.postcondition import Collected
from schedlang.expand.program import Module, did_you_mean
from schedlang.expand.values import Array, Col, Interval, Items, Value, bounds, column, fitting, kind
from schedlang.ir.table import NONE, Buffer, OpTable, Site
from schedlang.ir.words import numbered
from schedlang.memory import available, gigabytes
from schedlang.source import Span
from schedlang.syntax import tree as t

MAIN = "main"
STREAM, CHAN, RANK = "$stream", "$chan", "$rank"
"""The names under which a frame holds the current stream and chan (indices into the streams) and the rank of `on`."""

MANY_ROWS = 1 << 22
"""From so many rows on it is asked whether they fit into memory."""

ROW = 32
"""Bytes that a row takes at least while a table is made."""


@dataclass(frozen=True, slots=True)
class Where:
    """A slice over the turns of a frame: ``buffer[start : start + length]``."""

    buffer: int
    start: int | Col
    length: int | Col
    node: t.Loc


class Tables(Protocol):
    """Who expands the schedules that a schedule uses: :class:`schedlang.expand.expansion.Expansions`."""

    def used(self, schedule: t.Schedule, module: Module, given: dict[str, Value], s: t.Use, frame: Frame) -> OpTable:
        """The table that a `use` places. Raises Fail."""


@dataclass
class Statements:
    """The running of one schedule's statements; what fails is in ``findings`` and makes no rows.

    Statements whose number of rows is plain before they are looked at closer are left for :meth:`finish`, so that a
    schedule with too many rows is refused before any is made.
    """

    declared: Declarations
    module: Module
    evaluate: Evaluator
    expansions: Tables
    streams: dict[str, int] = field(default_factory=lambda: {MAIN: 0})
    events: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)
    sites: list[Site] = field(default_factory=list)
    ensures: Collected = field(default_factory=Collected)
    rows: int = 0
    copies: int = 0
    """How many names for private things have been given out."""
    counts_read: bool = False
    pending: list[tuple[int, Callable[[], None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ranks, self.findings = self.declared.ranks, self.declared.findings
        self.buffers: list[Buffer] = list(self.declared.buffers)
        self.index = {b.name: i for i, b in enumerate(self.buffers)}

    # ---- streams ---------------------------------------------------------------------------------------------------

    def stream(self, name: t.StreamName, frame: Frame) -> tuple[list[str], Array | None]:
        """The names of a stream that occur, and which of them each turn has (None: there is one only)."""
        symbol = None
        if isinstance(name.base, t.Name):
            try:
                frame.lookup(name.base.id)
            except KeyError:
                symbol = name.base.id
        if symbol is None and name.index is not None:
            base = self.evaluate(name.base, frame, self.module)
            if isinstance(base, str):
                symbol = base
            elif isinstance(base, (Interval, Items)):
                return self._named(
                    self.evaluate(t.Index(name.span, name.base, name.index), frame, self.module), name.span, frame
                )
            else:
                raise kind_mismatch("a name or a list", base, name.base.span, frame)
        if symbol is not None and name.index is None:
            return [symbol], None
        value = self.evaluate(name.base if symbol is None else name.index, frame, self.module)  # type: ignore[arg-type]
        names, which = self._named(value, name.span, frame)
        return [f"{symbol}[{n}]" for n in names] if symbol is not None else names, which

    def _named(self, value: Value, span: Span, frame: Frame) -> tuple[list[str], Array | None]:
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
            return [str(value)], None
        if isinstance(value, Col) and kind(value) == "integer":
            found, which = np.unique(value.data, return_inverse=True)
            return [str(v) for v in found.tolist()], which
        raise kind_mismatch("an integer or a name", value, span, frame)

    def stream_id(self, name: str) -> int:
        """The number of a stream, a new one where it is new."""
        return self.streams.setdefault(name, len(self.streams))

    def interned(self, named: tuple[list[str], Array | None]) -> int | Col:
        """The numbers of streams, given as :meth:`stream` gives them."""
        names, which = named
        ids = [self.stream_id(n) for n in names]
        return ids[0] if which is None else column(np.array(ids, np.int32)[which])

    def joined(self, named: tuple[list[str], Array | None], frame: Frame) -> int | Col:
        """The streams meant by names inside the current streams."""
        names, which = named
        current = frame.lookup(STREAM)
        assert isinstance(current, (int, Col))
        if isinstance(current, int):
            outer = list(self.streams)[current]
            return self.interned(([nested(outer, n) for n in names], which))
        pairs = current.data.astype(np.int64) * len(names) + (0 if which is None else which)
        found, inverse = np.unique(pairs, return_inverse=True)
        known = list(self.streams)
        joined = [nested(known[p // len(names)], names[p % len(names)]) for p in found.tolist()]
        return self.interned((joined, inverse))

    def connection(self, frame: Frame) -> tuple[Any, Any]:
        """The current stream and chan over a frame, as cells."""
        stream, chan = frame.lookup(STREAM), frame.lookup(CHAN)
        assert isinstance(stream, (int, Col)) and isinstance(chan, (int, Col))
        if isinstance(chan, int):
            here = cell(stream)
            return here, here if chan == NONE else chan
        return cell(stream), np.where(chan.data == NONE, cell(stream), chan.data)

    # ---- checked parts of statements -------------------------------------------------------------------------------

    def guarded(self, condition: t.Expr | None, frame: Frame) -> Frame:
        """The turns in which a trailing `if` lets a statement run."""
        if condition is None:
            return frame
        truth = self.evaluate.boolean(condition, frame, self.module)
        if isinstance(truth, Col):
            return frame.where(truth.data)
        return frame if truth else Frame(0, frame, index=np.zeros(0, np.int64))

    def rank(self, node: t.Expr, frame: Frame) -> int | Col:
        """A rank. Raises Fail SL222 where it is none."""
        value = self.evaluate.integer(node, frame, self.module)
        lo, hi = bounds(value)
        if lo < 0 or hi >= self.ranks:
            if isinstance(value, int):
                bad = None
            else:
                bad = (value.data < 0) | (value.data >= self.ranks)
                if not bad.any():
                    return Col(value.data, max(lo, 0), min(hi, self.ranks - 1))
            raise fail(
                "SL222",
                lambda i: f"rank {cell_at(value, i)} is not among the ranks 0 to {self.ranks - 1}",
                node.span,
                frame,
                bad,
            )
        return value

    def buffer(self, name: str, span: Span, frame: Frame) -> int:
        """The index of a buffer. Raises Fail SL201."""
        index = self.index.get(name)
        if index is None:
            names = [n for n in self.index if "#" not in n]
            declared = [b for b in self.buffers if b.name in names]
            raise fail("SL201", f"there is no buffer `{name}`; the buffers are {buffer_list(declared)}", span, frame,
                       help=buffer_hint(self.declared.statement, self.declared.kind, name) or did_you_mean(name, names)
                       or "scratch buffers are declared with `buffer NAME[CHUNKS]`")
        return index

    def where(self, loc: t.Loc, frame: Frame) -> Where:
        """A place in a buffer. Raises Fail SL201, SL221."""
        index = self.buffer(loc.buffer, loc.span, frame)
        size = self.buffers[index].chunks
        start = self.evaluate.integer(loc.start, frame, self.module)
        if loc.stop is None:
            self._inside(
                loc,
                start,
                0,
                size - 1,
                frame,
                lambda i: f"chunk {cell_at(start, i)} of `{loc.buffer}`, which has " + numbered(size, "chunk"),
            )
            return Where(index, start, 1, loc)
        stop = self.evaluate.integer(loc.stop, frame, self.module)

        def message(i: int) -> str:
            a, b = cell_at(start, i), cell_at(stop, i)
            if b < a:
                return f"the slice `{loc.buffer}[{a}:{b}]` ends before it starts"
            return f"`{loc.buffer}[{a}:{b}]` reaches outside `{loc.buffer}`, which has {numbered(size, 'chunk')}"

        self._inside(loc, start, 0, size, frame, message)
        self._inside(loc, stop, 0, size, frame, message)
        if isinstance(start, int) and isinstance(stop, int):
            length: int | Col = stop - start
        else:
            difference = np.asarray(cell(stop) - cell(start))
            length = column(difference)
            if length.lo == length.hi:
                length = length.lo
        if bounds(length)[0] < 0:
            bad = length.data < 0 if isinstance(length, Col) else None
            raise fail("SL221", message, loc.span, frame, bad)
        return Where(index, start, length, loc)

    @staticmethod
    def _inside(loc: t.Loc, value: int | Col, least: int, most: int, frame: Frame, message: Any) -> None:
        lo, hi = bounds(value)
        if lo < least or hi > most:
            bad = (value.data < least) | (value.data > most) if isinstance(value, Col) else None
            if bad is None or bad.any():
                raise fail("SL221", message, loc.span, frame, bad)

    # ---- rows ------------------------------------------------------------------------------------------------------

    def site(self, span: Span, frame: Frame) -> int:
        """A new site for the turns of a frame."""
        names: list[str] = []
        values: list[int | Array] = []
        for name in frame.loops():
            value = frame.lookup(name)
            if isinstance(value, int):
                names.append(name)
                values.append(int(value))
            elif isinstance(value, Col) and kind(value) == "integer":
                names.append(name)
                values.append(value.data.astype(fitting(value.lo, value.hi), copy=False))
        self.sites.append(Site(span, tuple(names), tuple(values)))
        return len(self.sites) - 1

    def count_rows(self, new: int, span: Span, frame: Frame) -> None:
        """Accounts for rows about to be made. Raises Fail SL208."""
        self.rows += new
        if self.rows > self.evaluate.max_ops:
            raise fail(
                "SL208",
                f"with this statement the schedule has {self.rows:,} operations; the limit is "
                f"{self.evaluate.max_ops:,}",
                span,
                frame,
                help="a larger limit can be set with --max-ops",
                final=True,
            )
        room = available() if self.rows > MANY_ROWS else None
        if room is not None and self.rows * ROW > room:
            raise fail(
                "SL208",
                f"with this statement the schedule has {self.rows:,} operations, which take more than "
                f"{gigabytes(self.rows * ROW)} of memory; {gigabytes(room)} are available",
                span,
                frame,
                help="take fewer ranks or chunks, or a machine with more memory",
                final=True,
            )

    def later(self, act: Callable[[], None]) -> None:
        """Leaves something for :meth:`finish`."""
        self.pending.append((self.findings.position, act))

    def finish(self) -> None:
        """Does what was left for later. Raises Fail."""
        for position, act in self.pending:
            self.findings.position = position
            try:
                act()
            except Fail as why:
                self.findings.add(why)
        self.pending.clear()


def nested(outer: str, inner: str) -> str:
    """The name of a stream inside another."""
    return inner if outer == MAIN else f"{outer}/{inner}"


def cell(v: int | Col) -> Any:
    """A value as the cell of a row: an int or an array."""
    return v.data if isinstance(v, Col) else v


def cell_at(v: int | Col, turn: int) -> int:
    """A value in one turn."""
    return int(v.data[turn]) if isinstance(v, Col) else v
