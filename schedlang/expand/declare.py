"""The declarations of a schedule: world size, chunks, collective, buffers. Their order is free as far as values allow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from schedlang.diagnostics import Diagnostic, Note
from schedlang.expand.evaluate import Evaluator
from schedlang.expand.frame import Fail, Frame, fail, shown
from schedlang.expand.program import Module, did_you_mean
from schedlang.expand.values import POISON, Array, Col, Interval, Items, Poison, Value, as_items, at, longest, plain
from schedlang.ir.table import Buffer, Collective
from schedlang.ops import COLLECTIVES, REDUCE_OPS, CollectiveKind
from schedlang.syntax import tree as t

LARGEST = (1 << 31) - 1
RESERVED = ("data", "input", "output")


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
        value = self.names.get(name)
        if value is None:
            thunk = self.demand[name]
            if name in self._busy:
                raise RecursionInDeclarations(name)
            self._busy.add(name)
            self.names[name] = POISON
            try:
                value = thunk()
            except RecursionInDeclarations:
                del self.names[name]
                raise
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
    findings: list[Diagnostic] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    collective: Collective | None = None
    whole: bool = True
    """Whether all declarations could be worked out."""

    def __post_init__(self) -> None:
        for s in self.schedule.body:
            if isinstance(s, t.Let):
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
        return next(s for s in self.schedule.body if isinstance(s, t.CollectiveStmt))

    @property
    def kind(self) -> CollectiveKind:
        return COLLECTIVES[self.statement.name]

    @property
    def ranks(self) -> int:
        value = self.root.peek("ranks")
        if isinstance(value, Poison):
            raise Fail(None)
        assert isinstance(value, int)
        return value

    @property
    def chunks(self) -> int:
        value = self.root.peek("chunks")
        if isinstance(value, Poison):
            raise Fail(None)
        assert isinstance(value, int)
        return value

    def run(self) -> None:
        """Works out everything; what fails is in ``findings``. Raises Fail where a requirement does not hold."""
        statement = self.statement
        if statement.name not in COLLECTIVES:
            raise fail("SL205", f"there is no collective called `{statement.name}`", statement.span, self.root, final=True,
                       help=did_you_mean(statement.name, list(COLLECTIVES)) or "there are " + ", ".join(COLLECTIVES))
        for s in self.schedule.body:
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
                        self.collective = self._collective(s)
                    case t.BufferStmt():
                        self._buffers(s)
                    case t.VerifyStmt():
                        self._verify(s)
            except RecursionInDeclarations as name:
                self.whole = False
                self.findings.append(_finding(fail(
                    "SL205", f"`{name}` is needed to work itself out", s.span, self.root)))
            except Fail as why:
                self.whole = self.whole and not declares
                if why.finding is not None:
                    self.findings.append(why.finding)
                if why.final:
                    raise Fail(None, final=True) from None
        if self.whole and self.collective is not None:
            try:
                self._collective_buffers(self.collective)
            except Fail as why:
                self.whole = False
                if why.finding is not None:
                    self.findings.append(why.finding)

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
        values = []
        for name in sorted(self.evaluate.free_names(s.condition)):
            try:
                values.append(f"{name} = {shown(at(frame.lookup(name), turn))}")
            except KeyError:
                continue
        text = s.text or f"`{s.condition.span.text}` does not hold"
        why = fail("SL207", text, s.span, frame, bad, final=True)
        assert why.finding is not None
        if values:
            found = why.finding
            held = Note(f"`{s.condition.span.text}` does not hold with " + ", ".join(values))
            object.__setattr__(found, "notes", (held, *found.notes))
        raise why

    # ---- sizes -----------------------------------------------------------------------------------------------------

    def _size(self, s: t.RanksStmt | t.ChunksStmt, what: str) -> int:
        value = self.evaluate.integer(s.value, self.root, self.module)
        assert isinstance(value, int)
        if not 1 <= value <= LARGEST:
            raise fail("SL205", f"`{what}` is {value}; it must be at least 1"
                       + (f" and at most {LARGEST:,}" if value > 1 else ""), s.value.span, self.root)
        return value

    def _agrees(self, what: str, s: t.RanksStmt | t.ChunksStmt) -> None:
        """Works a size out; where a parameter has the same name, both must say the same."""
        if what in self.root.demand:
            value = self.root.peek(what)
            if isinstance(value, Poison):
                raise Fail(None)
            return
        given, said = self.root.names[what], self._size(s, what)
        if given != said:
            raise fail("SL205", f"the parameter `{what}` is {shown(given)} but this line says {said}", s.span, self.root)

    def _default_chunks(self) -> int:
        return self.ranks if self.kind.family in ("blocked", "vector") else 1

    # ---- the collective --------------------------------------------------------------------------------------------

    def _collective(self, s: t.CollectiveStmt) -> Collective:
        kind = self.kind
        given = self._arguments(s, kind)
        op, root, counts = None, None, None
        if "op" in kind.arguments:
            op = self._op(s, given.get("op"))
        elif self.op is not None:
            raise fail("SL206", f"{kind.name} combines nothing, so it has no operator to replace by `{self.op}`",
                       s.span, self.root)
        if "root" in given:
            value = self.evaluate.integer(given["root"], self.root, self.module)
            assert isinstance(value, int)
            if not 0 <= value < self.ranks:
                raise fail("SL222", f"root {value} is not among the ranks 0..{self.ranks - 1}", given["root"].span, self.root)
            root = value
        if "counts" in given:
            before, self.root.read = self.root.read, set()
            counts = self._counts(given["counts"], kind)
            self._counts_names, self.root.read = self.root.read - {"ranks"}, before
        inplace = self._inplace(s, kind)
        return Collective(kind.name, op, root, inplace, counts, location=s.span)

    _counts_names: frozenset[str] | set[str] = frozenset()

    @property
    def counts_read(self) -> bool:
        """Whether anything but the collective itself has read what the counts are made of."""
        return bool(self._counts_names & self.root.read)

    def _arguments(self, s: t.CollectiveStmt, kind: CollectiveKind) -> dict[str, t.Expr]:
        form = f"`{kind.name}({', '.join(kind.arguments)})`" if kind.arguments else f"`{kind.name}`"
        given: dict[str, t.Expr] = {}
        free = list(kind.arguments)
        for a in s.arguments:
            name = a.name
            if name is None:
                if not free:
                    raise fail("SL205", f"too many arguments; the form is {form}", a.span, self.root)
                name = free[0]
            elif name not in kind.arguments:
                raise fail("SL205", f"{kind.name} has no argument `{name}`; the form is {form}", a.span, self.root,
                           help=did_you_mean(name, kind.arguments))
            elif name in given:
                raise fail("SL205", f"argument `{name}` is given twice", a.span, self.root)
            if name in free:
                free.remove(name)
            given[name] = a.value
        missing = [name for name in free if not (name == "op" and kind.name == "custom")]
        if missing:
            raise fail("SL205", f"{kind.name} lacks its argument `{missing[0]}`; the form is {form}", s.span, self.root)
        return given

    def _op(self, s: t.CollectiveStmt, given: t.Expr | None) -> str | None:
        said: str | None = None
        if given is not None:
            value = self.evaluate(given, self.root, self.module)
            if not isinstance(value, str) or value not in REDUCE_OPS:
                raise fail("SL205", f"`{given.span.text}` is no reduction operator", given.span, self.root,
                           help=did_you_mean(str(value), list(REDUCE_OPS)) or "the operators are " + ", ".join(REDUCE_OPS))
            said = value
        for e in _ensures(self.schedule.body) if s.name == "custom" else ():
            if isinstance(e.value, t.EnsureMany):
                if said is not None and e.value.op != said:
                    raise fail("SL205", f"this ensures a {e.value.op}, but the operator of the schedule is {said}",
                               e.value.span, self.root, help="a schedule has one operator")
                said = e.value.op
        if self.op is not None and said is None:
            raise fail("SL206", f"this collective combines nothing, so it has no operator to replace by `{self.op}`",
                       s.span, self.root)
        return self.op or said

    def _counts(self, given: t.Expr, kind: CollectiveKind) -> Array:
        value: Value = self.evaluate.list(given, self.root, self.module)
        n = self.ranks
        shape = (n, n) if kind.name == "alltoallv" else (n,)
        wanted = f"{n} lists of {n} integers" if len(shape) == 2 else f"a list of {n} integers"
        if isinstance(value, Interval):
            if longest(value) != n:
                raise fail("SL205", f"`counts` must be {wanted}", given.span, self.root)
            value = as_items(value, 1)
        assert isinstance(value, Items)
        rows = plain(value)
        if len(shape) == 2:
            fits = len(rows) == n and all(isinstance(r, list) and len(r) == n for r in rows)
            flat: list[Any] = [x for r in rows for x in r] if fits else []
        else:
            fits, flat = len(rows) == n, rows
        if not fits or any(isinstance(x, bool) or not isinstance(x, int) for x in flat):
            raise fail("SL205", f"`counts` must be {wanted}", given.span, self.root)
        if any(x < 0 for x in flat):
            raise fail("SL205", f"a count is negative: {next(x for x in flat if x < 0)}", given.span, self.root)
        if sum(flat) > (1 << 62):
            raise fail("SL205", "the counts add up to more than 2^62 elements", given.span, self.root)
        return np.array(rows, np.int64).reshape(shape)

    def _inplace(self, s: t.CollectiveStmt, kind: CollectiveKind) -> bool:
        if s.inplace is not None and s.outofplace:
            raise fail("SL205", "`inplace` and `outofplace` exclude each other", s.span, self.root)
        if kind.family in ("barrier", "custom"):
            if s.inplace is not None or s.outofplace:
                raise fail("SL205", f"{kind.name} has no `{'outofplace' if s.outofplace else 'inplace'}` form", s.span, self.root)
            return kind.family == "barrier" or not any(
                b.name in ("input", "output") for d in self.schedule.body if isinstance(d, t.BufferStmt) for b in d.buffers)
        inplace = kind.family == "whole" and not s.outofplace
        if s.inplace is not None:
            value = self.evaluate.boolean(s.inplace, self.root, self.module)
            assert isinstance(value, bool)
            inplace = value
        if inplace and kind.long == "both":
            raise fail("SL205", f"{kind.name} has no `inplace` form: each part of the buffer is sent and received into",
                       s.span, self.root)
        return inplace

    def _collective_buffers(self, c: Collective) -> None:
        """The buffers of the collective, before all scratch."""
        kind, n, chunks, at_ = COLLECTIVES[c.name], self.ranks, self.chunks, self.statement.span
        declared = next((s.span for s in self.schedule.body if isinstance(s, t.ChunksStmt)), at_)
        if kind.family == "custom":
            return
        if kind.family == "barrier" and chunks != 1 or kind.family == "vector" and chunks != n:
            raise fail("SL205", f"{kind.name} has {1 if kind.family == 'barrier' else n} chunks, not {chunks}", declared, self.root,
                       help="leave out the `chunks` line")
        if kind.family == "blocked" and chunks % n:
            raise fail("SL205", f"the buffer of {kind.name} is {n} equal blocks, which {chunks} chunks cannot make", declared,
                       self.root, help=f"take a multiple of {n}")
        if c.inplace:
            own = [Buffer("data", chunks, role="data")]
        else:
            sizes, only = {"input": chunks, "output": chunks}, {"input": None, "output": None}
            if kind.long in ("input", "output"):
                sizes["output" if kind.long == "input" else "input"] = chunks // n
                if kind.rooted:
                    only[kind.long] = c.root  # type: ignore[assignment]
            own = [Buffer(b, sizes[b], role=b, only=only[b]) for b in ("input", "output")]
        self.buffers[:0] = own

    def _buffers(self, s: t.BufferStmt) -> None:
        for b in s.buffers:
            chunks = self.evaluate.integer(b.chunks, self.root, self.module)
            assert isinstance(chunks, int)
            if b.name in RESERVED and self.kind.family != "custom":
                raise fail("SL202", f"`{b.name}` is a name for the buffers of the collective itself", b.span, self.root,
                           help="give the scratch buffer another name")
            if any(b.name == other.name for other in self.buffers):
                raise fail("SL202", f"buffer `{b.name}` is declared twice", b.span, self.root)
            if not 0 <= chunks <= LARGEST:
                raise fail("SL205", f"buffer `{b.name}` has {chunks} chunks", b.chunks.span, self.root)
            self.buffers.append(Buffer(b.name, chunks, s.place, b.name if b.name in RESERVED else "scratch"))

    def _verify(self, s: t.VerifyStmt) -> None:
        known = [p.name for p in self.schedule.params]
        for r in s.ranges:
            if r.name not in known:
                raise fail("SL206", f"schedule `{self.schedule.name}` has no parameter `{r.name}`", r.span, self.root,
                           help=did_you_mean(r.name, known))


def _ensures(body: tuple[t.Stmt, ...]) -> list[t.Ensure]:
    found = []
    for s in body:
        match s:
            case t.Ensure():
                found.append(s)
            case t.For() | t.Stream():
                found += _ensures(s.body)
            case t.If():
                for _, inner in s.branches:
                    found += _ensures(inner)
                found += _ensures(s.otherwise)
    return found


def _finding(why: Fail) -> Diagnostic:
    assert why.finding is not None
    return why.finding


def buffer_list(buffers: list[Buffer] | tuple[Buffer, ...]) -> str:
    """The buffers there are, for messages."""
    return ", ".join(f"{b.name}[{b.chunks}]" for b in buffers) or "none"
