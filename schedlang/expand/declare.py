"""The declarations of a schedule: world size, chunks, collective, buffers. Their order is free as far as values
allow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from schedlang.diagnostics import Note
from schedlang.expand.collective import collective, collective_buffers
from schedlang.expand.evaluate import Evaluator
from schedlang.expand.frame import Fail, Findings, Frame, fail, shown_at
from schedlang.expand.program import Module, did_you_mean
from schedlang.expand.values import POISON, Array, Col, Poison, Value
from schedlang.ir.buffers import STANDARD
from schedlang.ir.table import Buffer, Collective
from schedlang.ir.words import shown
from schedlang.ops import COLLECTIVES, CollectiveKind
from schedlang.syntax import tree as t

LARGEST = (1 << 31) - 1


class Root(Frame):
    """The outermost frame of a schedule: one turn, in which names are worked out when they are first needed."""

    __slots__ = ("_busy", "demand", "read")

    def __init__(self, names: dict[str, Value]) -> None:
        super().__init__(1, names=names)
        self.demand: dict[str, Callable[[], Value]] = {}
        self._busy: set[str] = set()
        self.read: set[str] = set()

    def lookup(self, name: str) -> Value:
        self.read.add(name)
        if name in self._busy:
            raise RecursionInDeclarations(name)
        value = self.names.get(name)
        if value is None:
            thunk = self.demand[name]
            self._busy.add(name)
            self.names[name] = POISON
            try:
                value = thunk()
            finally:
                self._busy.discard(name)
            self.names[name] = value
        return value

    def peek(self, name: str) -> Value:
        """As :meth:`lookup`, without counting as a read in the source."""
        before = name in self.read
        value = self.lookup(name)
        if not before:
            self.read.discard(name)
        return value


class RecursionInDeclarations(Exception):
    """`ranks` or `chunks` is needed to work itself out."""


@dataclass
class Declarations:
    """Works out the declarations of one schedule with values for its parameters."""

    schedule: t.Schedule
    module: Module
    evaluate: Evaluator
    root: Root
    op: str | None
    findings: Findings = field(default_factory=Findings)
    buffers: list[Buffer] = field(default_factory=list)
    collective: Collective | None = None
    whole: bool = True
    """Whether all declarations could be worked out."""
    counts_names: set[str] = field(default_factory=set)
    """What the counts of the collective are made of."""

    def __post_init__(self) -> None:
        for s in self.schedule.body:
            if isinstance(s, t.Let):
                self.root.lets += (s.name,)
                self.root.demand[s.name] = lambda s=s: self.evaluate(s.value, self.root, self.module)  # type: ignore[misc]
            elif isinstance(s, t.RanksStmt):
                if "ranks" not in self.root.names:
                    self.root.demand["ranks"] = lambda s=s: self._size(s, "ranks")  # type: ignore[misc]
            elif isinstance(s, t.ChunksStmt) and "chunks" not in self.root.names:
                self.root.demand["chunks"] = lambda s=s: self._size(s, "chunks")  # type: ignore[misc]
        if "chunks" not in self.root.names:
            self.root.demand.setdefault("chunks", self._default_chunks)

    # ---- reading ---------------------------------------------------------------------------------------------------

    @property
    def statement(self) -> t.CollectiveStmt:
        """The `collective` statement."""
        return next(s for s in self.schedule.body if isinstance(s, t.CollectiveStmt))

    @property
    def kind(self) -> CollectiveKind:
        """What is known of the collective by its name."""
        return COLLECTIVES[self.statement.name]

    @property
    def ranks(self) -> int:
        value = self.root.peek("ranks")
        if isinstance(value, Poison):
            raise Fail()
        assert isinstance(value, int)
        return value

    @property
    def chunks(self) -> int:
        value = self.root.peek("chunks")
        if isinstance(value, Poison):
            raise Fail()
        assert isinstance(value, int)
        return value

    def run(self) -> None:
        """Works out everything; what fails is in ``findings``. Raises Fail where a requirement does not hold."""
        statement = self.statement
        if statement.name not in COLLECTIVES:
            raise fail(
                "SL205",
                f"there is no collective called `{statement.name}`",
                statement.span,
                self.root,
                final=True,
                help=did_you_mean(statement.name, list(COLLECTIVES)) or "there are " + ", ".join(COLLECTIVES),
            )
        ended = False
        for position, s in enumerate(self.schedule.body):
            if ended and not isinstance(s, t.Require):
                continue  # whether all this was meant for these values is still of interest
            self.findings.position = position
            declares = True
            try:
                match s:
                    case t.Let():
                        declares = False
                        self.root.peek(s.name)
                    case t.Require():
                        declares = False
                        self.require(s, self.root)
                    case t.RanksStmt():
                        self._agrees("ranks", s)
                    case t.ChunksStmt():
                        self._agrees("chunks", s)
                    case t.CollectiveStmt():
                        self.collective = collective(self, s)
                    case t.BufferStmt():
                        self._buffers(s)
                    case t.VerifyStmt():
                        self._verify(s)
            except RecursionInDeclarations as name:
                self.whole = False
                self.findings.add(fail("SL205", f"`{name}` is needed to work itself out", s.span, self.root))
            except Fail as why:
                self.whole = self.whole and not declares
                self.findings.add(why)
                ended = ended or why.final
                if any(finding.code == "SL207" for finding in why.findings):
                    break
        if ended:
            raise Fail(final=True)
        if self.whole and self.collective is not None:
            try:
                self.buffers[:0] = collective_buffers(self, self.collective)
            except Fail as why:
                self.whole = False
                self.findings.add(why)

    def require(self, s: t.Require, frame: Frame) -> None:
        """Raises Fail SL207, final, where a requirement does not hold in some turn."""
        truth = self.evaluate.boolean(s.condition, frame, self.module)
        if isinstance(truth, Col):
            if truth.data.all():
                return
            bad: Array | None = ~truth.data
        elif truth:
            return
        else:
            bad = None
        turn = 0 if bad is None else int(np.argmax(bad))
        values = self._read(s.condition, frame, turn)
        text = s.text or f"`{s.condition.span.text}` does not hold"
        held = [Note(f"`{s.condition.span.text}` does not hold with " + ", ".join(values.values()))] if values else []
        raise fail("SL207", text, s.span, frame, bad, notes=held, final=True, told=values)

    def _read(self, e: t.Expr, frame: Frame, turn: int = 0) -> dict[str, str]:
        """The names that an expression reads, each with its value in a turn, in words: ``k = 0``."""
        values = {}
        for name in sorted(self.evaluate.free_names(e)):
            try:
                values[name] = f"{name} = {shown_at(frame.lookup(name), turn)}"
            except KeyError:
                continue
        return values

    # ---- sizes -----------------------------------------------------------------------------------------------------

    def _size(self, s: t.RanksStmt | t.ChunksStmt, what: str) -> int:
        value = self.evaluate.integer(s.value, self.root, self.module)
        assert isinstance(value, int)
        if not 1 <= value <= LARGEST:
            values = self._read(s.value, self.root)
            raise fail("SL205", f"`{what}` is {value}; it must be at least 1"
                       + (f" and at most {LARGEST:,}" if value > 1 else ""), s.value.span, self.root,
                       notes=[Note("where " + ", ".join(values.values()))] if values else [], told=values)
        return value

    def _agrees(self, what: str, s: t.RanksStmt | t.ChunksStmt) -> None:
        """Works a size out; where a parameter has the same name, both must say the same."""
        if what in self.root.demand:
            value = self.root.peek(what)
            if isinstance(value, Poison):
                raise Fail()
            return
        given, said = self.root.names[what], self._size(s, what)
        if given != said:
            raise fail(
                "SL205", f"the parameter `{what}` is {shown(given)} but this line says {said}", s.span, self.root
            )

    def _default_chunks(self) -> int:
        return self.ranks if self.kind.family in ("blocked", "vector") else 1

    @property
    def counts_read(self) -> bool:
        """Whether the source knows the counts: something but the collective itself has read what they are made of, or
        they are made of no list that a caller gives.
        """
        if self.collective is None or self.collective.counts is None:
            return False
        given = {p.name for p in self.schedule.params if not isinstance(self.root.names[p.name], (int, str))}
        return not given & self.counts_names or bool(self.counts_names & self.root.read)

    # ---- buffers ---------------------------------------------------------------------------------------------------

    def _buffers(self, s: t.BufferStmt) -> None:
        for b in s.buffers:
            chunks = self.evaluate.integer(b.chunks, self.root, self.module)
            assert isinstance(chunks, int)
            if b.name in STANDARD and self.kind.family != "custom":
                raise fail("SL202", f"`{b.name}` is a name for the buffers of the collective itself", b.span, self.root,
                           help="give the scratch buffer another name")
            if any(b.name == other.name for other in self.buffers):
                raise fail("SL202", f"buffer `{b.name}` is declared twice", b.span, self.root)
            if not 0 <= chunks <= LARGEST:
                raise fail("SL205", f"buffer `{b.name}` has {chunks} chunks; there can be 0 to {LARGEST:,}",
                           b.chunks.span, self.root)
            self.buffers.append(Buffer(b.name, chunks, s.place, b.name if b.name in STANDARD else "scratch"))

    def _verify(self, s: t.VerifyStmt) -> None:
        known = [p.name for p in self.schedule.params]
        for r in s.ranges:
            if r.name not in known:
                raise fail("SL206", f"schedule `{self.schedule.name}` has no parameter `{r.name}`", r.span, self.root,
                           help=did_you_mean(r.name, known))


def buffer_list(buffers: list[Buffer] | tuple[Buffer, ...]) -> str:
    """The buffers there are, for messages."""
    return ", ".join(f"{b.name}[{b.chunks}]" for b in buffers) or "none"
