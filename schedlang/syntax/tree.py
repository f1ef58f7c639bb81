"""The tree of a parsed file. Plain frozen nodes; each carries the span it was read from, and equality ignores spans."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from schedlang.source import Source, Span


@dataclass(frozen=True, slots=True)
class Node:
    span: Span = field(compare=False, repr=False)


# ---- expressions ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Int(Node):
    value: int


@dataclass(frozen=True, slots=True)
class Bool(Node):
    value: bool


@dataclass(frozen=True, slots=True)
class Name(Node):
    id: str


@dataclass(frozen=True, slots=True)
class ListExpr(Node):
    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Comp(Node):
    """``[element for var in source if condition]``"""

    element: Expr
    var: str
    source: Expr
    condition: Expr | None


@dataclass(frozen=True, slots=True)
class Range(Node):
    """``start..stop``, half-open; empty where stop <= start."""

    start: Expr
    stop: Expr


@dataclass(frozen=True, slots=True)
class Index(Node):
    """``base[index]``"""

    base: Expr
    index: Expr


@dataclass(frozen=True, slots=True)
class Call(Node):
    """``function(arguments)``: a built-in or an ``fn``; positional arguments only."""

    function: str
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Unary(Node):
    op: Literal["-", "+", "~", "not"]
    operand: Expr


@dataclass(frozen=True, slots=True)
class Binary(Node):
    op: Literal["+", "-", "*", "//", "%", "**", "<<", ">>", "&", "|", "^"]
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Compare(Node):
    """``first op1 rest1 op2 rest2 ...``: a chain, as in Python."""

    first: Expr
    ops: tuple[Literal["==", "!=", "<", "<=", ">", ">="], ...]
    rest: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class BoolOp(Node):
    """``and`` / ``or`` of two operands, the right one evaluated only where it is needed."""

    op: Literal["and", "or"]
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Conditional(Node):
    """``then if test else otherwise``; only the chosen branch is evaluated."""

    test: Expr
    then: Expr
    otherwise: Expr


Expr = Int | Bool | Name | ListExpr | Comp | Range | Index | Call | Unary | Binary | Compare | BoolOp | Conditional


# ---- parts of statements -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Loc(Node):
    """``buffer[start]`` (stop is None: one chunk) or the half-open slice ``buffer[start:stop]``."""

    buffer: str
    start: Expr
    stop: Expr | None


@dataclass(frozen=True, slots=True)
class EventRef(Node):
    """``name[i, j]``"""

    name: str
    indices: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Argument(Node):
    """``name=value`` or, with name None, a positional value."""

    name: str | None
    value: Expr


@dataclass(frozen=True, slots=True)
class Param(Node):
    name: str
    default: Expr | None


@dataclass(frozen=True, slots=True)
class BufferDecl(Node):
    name: str
    chunks: Expr


@dataclass(frozen=True, slots=True)
class Binding(Node):
    """``inner=outer[a:b]`` in a ``use``; inner is None in the short form ``for data[a:b]``."""

    inner: str | None
    outer: Loc


@dataclass(frozen=True, slots=True)
class VerifyRange(Node):
    """``name in values`` of a ``verify`` line."""

    name: str
    values: Expr


# ---- statements ----------------------------------------------------------------------------------------------------
# `condition` is the trailing `if` of a statement that may have one.


@dataclass(frozen=True, slots=True)
class CollectiveStmt(Node):
    """``collective NAME(...) [inplace=EXPR] [outofplace]``; a bare ``inplace`` is ``inplace=true``."""

    name: str
    arguments: tuple[Argument, ...]
    inplace: Expr | None
    outofplace: bool


@dataclass(frozen=True, slots=True)
class RanksStmt(Node):
    value: Expr


@dataclass(frozen=True, slots=True)
class ChunksStmt(Node):
    value: Expr


@dataclass(frozen=True, slots=True)
class BufferStmt(Node):
    buffers: tuple[BufferDecl, ...]
    place: Literal["device", "host"]


@dataclass(frozen=True, slots=True)
class Let(Node):
    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Require(Node):
    condition: Expr
    text: str | None


@dataclass(frozen=True, slots=True)
class VerifyStmt(Node):
    ranges: tuple[VerifyRange, ...]


@dataclass(frozen=True, slots=True)
class Forward(Node):
    """One hop ``then send to RANK [into LOC] [only]``; ``only``: the forwarding rank stores nothing."""

    target: Expr
    into: Loc | None
    only: bool


@dataclass(frozen=True, slots=True)
class Transfer(Node):
    """``send|reduce X from r to p [into Y] [then send to q [into Z] [only]]...``

    ``into`` is where the first receiver p puts it (default: X's own place); a forward's ``into`` is where its target
    does (default: where the hop before it was received).
    """

    kind: Literal["send", "reduce"]
    what: Loc
    source: Expr
    target: Expr
    into: Loc | None
    forwards: tuple[Forward, ...]
    condition: Expr | None


@dataclass(frozen=True, slots=True)
class OwnSend(Node):
    """``send X to p`` inside ``on r:``"""

    what: Loc
    target: Expr
    condition: Expr | None


@dataclass(frozen=True, slots=True)
class OwnRecv(Node):
    """``recv X from p`` or ``reduce X from p [into Y]`` inside ``on r:``, with forwards as in a transfer

    ``into``: of a reduce, where the sum of X and what arrives goes (default: X itself).
    """

    kind: Literal["recv", "reduce"]
    what: Loc
    source: Expr
    into: Loc | None
    forwards: tuple[Forward, ...]
    condition: Expr | None


@dataclass(frozen=True, slots=True)
class Local(Node):
    """``copy|reduce X into Y [on r]``; rank is None inside ``on r:``"""

    kind: Literal["copy", "reduce"]
    what: Loc
    into: Loc
    rank: Expr | None
    condition: Expr | None


@dataclass(frozen=True, slots=True)
class EventStmt(Node):
    """``record|wait event [on r]``"""

    kind: Literal["record", "wait"]
    event: EventRef
    rank: Expr | None
    condition: Expr | None


@dataclass(frozen=True, slots=True)
class Chan(Node):
    """``chan E``: the connection's name for what follows in this block."""

    name: StreamName


@dataclass(frozen=True, slots=True)
class StreamName(Node):
    """``E`` (index is None) or ``NAME[E]``. A bare name that nothing binds is itself."""

    base: Expr
    index: Expr | None


@dataclass(frozen=True, slots=True)
class Use(Node):
    """``use S(args) [on RANKS] [for SLICE | for b=X[..], ...] [reversed]``"""

    schedule: str
    arguments: tuple[Argument, ...]
    on: Expr | None
    bindings: tuple[Binding, ...]
    reversed: bool
    condition: Expr | None


@dataclass(frozen=True, slots=True)
class EnsureOne(Node):
    """the right side ``X on r`` of an ``ensure``"""

    what: Loc
    rank: Expr


@dataclass(frozen=True, slots=True)
class EnsureMany(Node):
    """the right side ``op(X on RANKS)`` of an ``ensure``"""

    op: str
    what: Loc
    ranks: Expr


@dataclass(frozen=True, slots=True)
class Ensure(Node):
    """``ensure X on r == ...``; ``span`` covers the statement"""

    what: Loc
    rank: Expr
    value: EnsureOne | EnsureMany
    condition: Expr | None


@dataclass(frozen=True, slots=True)
class For(Node):
    var: str
    values: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class If(Node):
    """``branches``: (condition, body) of `if` and each `elif`; ``otherwise``: the body of `else`, maybe empty"""

    branches: tuple[tuple[Expr, tuple[Stmt, ...]], ...]
    otherwise: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Step(Node):
    label: str | None
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Stream(Node):
    name: StreamName
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class OnRank(Node):
    rank: Expr
    body: tuple[Stmt, ...]


Stmt = (CollectiveStmt | RanksStmt | ChunksStmt | BufferStmt | Let | Require | VerifyStmt | Transfer | OwnSend | OwnRecv
        | Local | EventStmt | Chan | Use | Ensure | For | If | Step | Stream | OnRank)


# ---- files ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Import(Node):
    path: str


@dataclass(frozen=True, slots=True)
class Fn(Node):
    name: str
    params: tuple[str, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Schedule(Node):
    """``name_span`` is the span of the name in the header, for findings about the schedule as a whole."""

    name: str
    params: tuple[Param, ...]
    doc: str | None
    body: tuple[Stmt, ...]
    name_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Comment:
    """A ``#`` comment, with its place; the formatter puts it back."""

    span: Span = field(compare=False, repr=False)
    text: str = ""


@dataclass(frozen=True, slots=True)
class File:
    """A parsed file: imports, functions and schedules in the order they stand, and its comments."""

    source: Source = field(compare=False, repr=False)
    items: tuple[Import | Fn | Schedule, ...]
    comments: tuple[Comment, ...] = field(default=(), compare=False)
