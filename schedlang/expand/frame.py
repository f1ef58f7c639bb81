"""Frames: the turns that a piece of source is evaluated over, and the names it sees."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from schedlang.diagnostics import Diagnostic, Note, error
from schedlang.expand.lists import element, elements
from schedlang.expand.values import Array, Col, Interval, Items, Poison, Value, at, kind, take, take_one
from schedlang.ir.words import shown
from schedlang.source import Location, Span


class Frame:
    """``n`` turns, made from the turns of ``outer``: turn t of this frame lies in turn ``index[t]`` of the outer one.

    ``index`` is None where both have the same turns; ``each`` is the number of turns made from each outer turn where
    that is the same for all (a loop with as many turns every time). A frame of one turn holds uniform values only.
    ``loop`` names the loop variable bound here, ``lets`` what `let` binds here. ``call`` marks the body of a function:
    it sees nothing of the outer frame.
    """

    __slots__ = ("_index", "call", "each", "lets", "loop", "n", "names", "outer", "values")

    def __init__(self, n: int, outer: Frame | None = None, *, index: Array | None = None, each: int | None = None,
                 names: dict[str, Value] | None = None, loop: str | None = None,
                 values: Interval | Items | None = None, call: tuple[str, Span] | None = None) -> None:
        self.n, self.outer, self._index, self.each = n, outer, index, each
        self.names: dict[str, Value] = names if names is not None else {}
        self.loop, self.values, self.call = loop, values, call
        self.lets: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether the turns are those of the outer frame."""
        return self._index is None and self.each is None

    @property
    def index(self) -> Array:
        """The outer turn of each turn."""
        assert self.outer is not None
        if self._index is None:
            if self.each is None:
                self._index = np.arange(self.n)
            elif self.outer.n == 1:
                self._index = np.broadcast_to(np.int64(0), (self.n,))
            else:
                self._index = np.repeat(np.arange(self.outer.n), self.each)
        return self._index

    def outer_turn(self, turn: int) -> int:
        """The turn of the outer frame that a turn lies in."""
        if self.same:
            return turn
        return turn // self.each if self.each is not None else int(self.index[turn])

    def lookup(self, name: str) -> Value:
        """The value of a name over the turns of this frame. Raises KeyError."""
        value = self.names.get(name)
        if value is None:
            if name == self.loop and self.values is not None and self.outer is not None:
                value = elements(self.values, self.each, self.outer.n, self.n)
            elif self.outer is None or self.call is not None:
                raise KeyError(name)
            else:
                value = self.lifted(self.outer.lookup(name))
            self.names[name] = value
        return value

    def _loop_value(self, turn: int) -> Any:
        """The value of the loop variable in one turn; does not write out the others for it."""
        assert self.loop is not None
        if self.loop not in self.names and self.each is not None and self.values is not None:
            values = take_one(self.values, turn // self.each)
            if isinstance(values, (Interval, Items)):
                return at(element(values, turn % self.each), 0)
        return at(self.lookup(self.loop), turn)

    @property
    def reads(self) -> set[str] | None:
        """The names read so far in the outermost frame that this one sees, where that keeps account of it."""
        frame = self
        while frame.outer is not None and frame.call is None:
            frame = frame.outer
        return getattr(frame, "read", None)

    def lifted(self, value: Value) -> Value:
        """A value of the outer frame over the turns of this one."""
        if self.same or isinstance(value, (int, str)):
            return value
        if self.n == 1:
            return take_one(value, self.outer_turn(0))
        if isinstance(value, Col) and self.each is not None:
            return Col(np.repeat(value.data, self.each), value.lo, value.hi)
        return take(value, self.index)

    def inner(self) -> Frame:
        """A new scope over the same turns."""
        return Frame(self.n, self)

    def single(self) -> Frame:
        """One turn that stands for all, for what is uniform."""
        return self if self.n == 1 else Frame(1, self, index=np.zeros(1, np.int64))

    def where(self, mask: Array) -> Frame:
        """The turns where the mask holds."""
        index = np.flatnonzero(mask)
        return Frame(len(index), self, index=index)

    # ---- for findings ----------------------------------------------------------------------------------------------

    def loops(self) -> list[str]:
        """The loop variables round this frame, outermost first."""
        frame: Frame | None = self
        names: list[str] = []
        while frame is not None:
            if frame.loop is not None:
                names.append(frame.loop)
            frame = frame.outer
        return names[::-1]

    def loop_values(self, turn: int) -> dict[str, Any]:
        """The values of the loop variables in one turn, outermost first."""
        found: list[tuple[str, Any]] = []
        frame: Frame | None = self
        while frame is not None:
            if frame.loop is not None:
                found.append((frame.loop, frame._loop_value(turn)))
            turn = frame.outer_turn(turn) if frame.outer is not None else turn
            frame = frame.outer
        return dict(reversed(found))

    def let_values(self, names: Sequence[str], turn: int) -> dict[str, str]:
        """Of some names, in their order, those that `let` binds: their values in one turn as one writes them."""
        found: dict[str, str] = {}
        frame: Frame | None = self
        while frame is not None:
            for name in frame.lets:
                value = frame.names.get(name)
                if name in names and value is not None and not isinstance(value, Poison):
                    found.setdefault(name, shown_at(value, turn))
            turn = frame.outer_turn(turn) if frame.outer is not None else turn
            frame = frame.outer if frame.call is None else None
        return {name: found[name] for name in names if name in found}

    def notes(self, turn: int) -> tuple[Note, ...]:
        """Where a finding in one turn stands: the loop values, and the calls that led there, innermost first."""
        notes: list[Note] = []
        frame: Frame | None = self
        while frame is not None:
            if frame.call is not None:
                name, span = frame.call
                arguments = ", ".join(f"{k} = {shown_at(v, turn)}" for k, v in frame.names.items())
                notes.append(Note(f"in fn {name}, called here" + (f" with {arguments}" if arguments else ""), span))
            turn = frame.outer_turn(turn) if frame.outer is not None else turn
            frame = frame.outer
        return tuple(notes)


MAX_CALLS_SHOWN = 4


class Fail(Exception):
    """Expansion cannot go on with this statement, or, with ``final``, at all. ``findings`` is empty where another
    finding has said why.
    """

    def __init__(self, *findings: Diagnostic, final: bool = False) -> None:
        super().__init__(*(f.message for f in findings))
        self.findings = findings
        self.final = final


class Findings:
    """What was found, in the order of the statements it was found in: ``position`` counts those of the schedule."""

    def __init__(self) -> None:
        self.position = 0
        self._found: list[tuple[int, Diagnostic]] = []

    def add(self, why: Fail) -> None:
        """Takes in the findings of a failure, at the current position."""
        self._found += ((self.position, f) for f in why.findings)

    def __bool__(self) -> bool:
        return bool(self._found)

    def ordered(self) -> list[Diagnostic]:
        """The findings; only those of requirements where one does not hold: the rest was not meant for these values."""
        found = [finding for _, finding in sorted(self._found, key=lambda one: one[0])]
        return [finding for finding in found if finding.code == "SL207"] or found


def fail(
    code: str,
    message: str | Callable[[int], str],
    at_: Location,
    frame: Frame,
    bad: Array | None = None,
    *,
    notes: Sequence[Note] = (),
    help: str | None = None,
    final: bool = False,
    told: Collection[str] = (),
) -> Fail:
    """The failure of an expression or statement over a frame.

    ``bad``: in which turns it fails (None: in all). ``message`` may be a function of the first such turn. A note gives
    the values of the loop variables and of what `let` binds and the text at ``at_`` reads, but for those ``told``.
    """
    turn, count = (0, 1 if final else frame.n) if bad is None else (int(np.argmax(bad)), int(np.count_nonzero(bad)))
    text = message if isinstance(message, str) else message(turn)
    values = frame.loop_values(turn)
    calls = list(frame.notes(turn))
    if len(calls) > MAX_CALLS_SHOWN:
        calls[MAX_CALLS_SHOWN - 1 : -1] = [Note(f"... {len(calls) - MAX_CALLS_SHOWN} more calls between")]
    said = [*notes, *calls]
    read = re.findall(r"[A-Za-z_]\w*", at_.text) if isinstance(at_, Span) else []
    where = {**frame.let_values(read, turn), **{name: shown(value) for name, value in values.items()}}
    where = {name: where[name] for name in (*values, *where) if name not in told}
    if where:
        said.append(Note("where " + ", ".join(f"{name} = {value}" for name, value in where.items())))
    return Fail(
        error(
            code,
            text,
            at_,
            notes=said,
            help=help,
            count=count,
            **({"loop": {k: v for k, v in values.items() if isinstance(v, int)}} if values else {}),
        ),
        final=final,
    )


def shown_at(value: Value, turn: int) -> str:
    """The value in one turn as one writes it in the language; a long list is not written out for it."""
    one = take_one(value, turn)
    if isinstance(one, Interval):
        return f"{one.lo}..{one.hi}"
    return _list_text(one, 3) if isinstance(one, Items) else shown(one)


def _list_text(one: Items, depth: int) -> str:
    """A uniform list, its inner lists down to a depth."""
    assert isinstance(one.start, int) and isinstance(one.length, int)
    if one.length and not depth:
        return "[...]"
    items = ["..."] if one.length > 8 else []
    for i in reversed(range(one.start, one.start + min(one.length, 8))):
        assert one.content is not None
        item = take_one(one.content, i)
        items.insert(0, _list_text(item, depth - 1) if isinstance(item, Items) else shown(item))
    return "[" + ", ".join(items) + "]"


def shown_all(values: Mapping[str, Value]) -> dict[str, str]:
    """Values that are the same in all turns, as one writes them."""
    return {name: shown_at(value, 0) for name, value in values.items()}


def kind_mismatch(wanted: str, value: Value, span: Span, frame: Frame, help: str | None = None) -> Fail:
    """The failure of a value of the wrong kind."""
    found = kind(value)
    article = "an" if found == "integer" else "a"
    text = span.text if len(span.text) <= 60 else span.text[:57] + "..."
    return fail("SL203", f"`{text}` is {article} {found}; {wanted} is needed here", span, frame, help=help)
