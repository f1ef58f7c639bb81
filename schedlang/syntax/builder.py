"""What each rule of the grammar builds. A method is named as the rule or its alias, with ``_`` behind a Python keyword;
it gets the span of the text and what the rule's parts have built: a node, a token's text, None for an absent part.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Literal, cast

from schedlang.source import Source, Span
from schedlang.syntax.tree import (
    Argument,
    Binary,
    Binding,
    Bool,
    BoolOp,
    BufferDecl,
    BufferStmt,
    Call,
    Chan,
    ChunksStmt,
    CollectiveStmt,
    Comp,
    Compare,
    Conditional,
    Ensure,
    EnsureMany,
    EnsureOne,
    EventRef,
    EventStmt,
    Expr,
    File,
    Fn,
    For,
    Forward,
    If,
    Import,
    Index,
    Int,
    Let,
    ListExpr,
    Loc,
    Local,
    Name,
    OnRank,
    OwnRecv,
    OwnSend,
    Param,
    Range,
    RanksStmt,
    Require,
    Schedule,
    Step,
    Stmt,
    Stream,
    StreamName,
    Transfer,
    Unary,
    Use,
    VerifyRange,
    VerifyStmt,
)

Body = tuple[Stmt, ...]
_ESCAPES = {"n": "\n", "t": "\t"}


def text_of(literal: str) -> str:
    """The text that a string literal stands for."""
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), literal[1:-1])


def docstring(literal: str) -> str:
    """A docstring without its quotes, its indentation and the blank lines round it."""
    lines = [line.rstrip() for line in literal[3:-3].split("\n")]
    rest = [line.expandtabs(4) for line in lines[1:]]
    margin = min((len(line) - len(line.lstrip()) for line in rest if line), default=0)
    return "\n".join([lines[0].lstrip(), *(line[margin:] for line in rest)]).strip("\n")


def grouped(node: Expr) -> bool:
    """Whether the expression stood in parentheses, which its span then covers."""
    text = node.span.source.text
    if node.span.start == node.span.end or not text.startswith("(", node.span.start):
        return False
    first = leftmost(node)
    return first is None or first.span.start > node.span.start


def leftmost(node: Expr) -> Expr | None:
    """The operand with which an expression begins, None where it begins with something else."""
    match node:
        case Binary(left=left) | BoolOp(left=left):
            return left
        case Compare(first=first):
            return first
        case Conditional(then=then):
            return then
        case Range(start=start):
            return start
        case Index(base=base):
            return base
        case _:
            return None


class Builder:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.ranges: list[Span] = []
        """where something is looped over ``range(...)``"""

    # ---- files and values

    def value(self, span: Span, value: Expr) -> Expr:
        return value

    def file(self, span: Span, *items: Import | Fn | Schedule) -> File:
        return File(self.source, items)

    def import_(self, span: Span, path: str) -> Import:
        return Import(span, text_of(path))

    def fn(self, span: Span, name: str, names: tuple[str, ...] | None, value: Expr) -> Fn:
        return Fn(span, name, names or (), value)

    def schedule(self, span: Span, heading: tuple[str, Span], params: tuple[Param, ...] | None, doc: str | None,
                 body: Body) -> Schedule:
        return Schedule(span, heading[0], params or (), doc, body, heading[1])

    def heading(self, span: Span, name: str) -> tuple[str, Span]:
        return name, span

    def doc(self, span: Span, text: str) -> str:
        return docstring(text)

    def names(self, span: Span, *names: str) -> tuple[str, ...]:
        return names

    def params(self, span: Span, *params: Param) -> tuple[Param, ...]:
        return params

    def param(self, span: Span, name: str, default: Expr | None) -> Param:
        return Param(span, name, default)

    # ---- statements

    def block(self, span: Span, *statements: Stmt) -> Body:
        return statements

    def inline_body(self, span: Span, statement: Stmt) -> Body:
        return (statement,)

    def collective(self, span: Span, name: str, arguments: tuple[Argument, ...] | None, inplace: Expr | None,
                   outofplace: str | None) -> CollectiveStmt:
        return CollectiveStmt(span, name, arguments or (), inplace, outofplace is not None)

    def inplace_true(self, span: Span) -> Bool:
        return Bool(span, True)

    def ranks(self, span: Span, value: Expr) -> RanksStmt:
        return RanksStmt(span, value)

    def chunks(self, span: Span, value: Expr) -> ChunksStmt:
        return ChunksStmt(span, value)

    def buffers(self, span: Span, *parts: BufferDecl | str | None) -> BufferStmt:
        *buffers, place = parts
        return BufferStmt(span, cast("tuple[BufferDecl, ...]", tuple(buffers)),
                          cast("Literal['device', 'host']", place or "device"))

    def buffer(self, span: Span, name: str, chunks: Expr) -> BufferDecl:
        return BufferDecl(span, name, chunks)

    def verify(self, span: Span, *ranges: VerifyRange) -> VerifyStmt:
        return VerifyStmt(span, ranges)

    def verify_range(self, span: Span, name: str, values: Expr) -> VerifyRange:
        return VerifyRange(span, name, values)

    def require(self, span: Span, condition: Expr, text: str | None) -> Require:
        return Require(span, condition, None if text is None else text_of(text))

    def let(self, span: Span, name: str, value: Expr) -> Let:
        return Let(span, name, value)

    def chan(self, span: Span, name: StreamName) -> Chan:
        return Chan(span, name)

    def send(self, span: Span, what: Loc, source: Expr, target: Expr, into: Loc | None,
             forwards: tuple[Forward, ...] | None, condition: Expr | None) -> Transfer:
        return Transfer(span, "send", what, source, target, into, forwards or (), condition)

    def reduce(self, span: Span, what: Loc, source: Expr, target: Expr, into: Loc | None,
               forwards: tuple[Forward, ...] | None, condition: Expr | None) -> Transfer:
        return Transfer(span, "reduce", what, source, target, into, forwards or (), condition)

    def own_send(self, span: Span, what: Loc, target: Expr, condition: Expr | None) -> OwnSend:
        return OwnSend(span, what, target, condition)

    def own_recv(self, span: Span, what: Loc, source: Expr, forwards: tuple[Forward, ...] | None,
                 condition: Expr | None) -> OwnRecv:
        return OwnRecv(span, "recv", what, source, None, forwards or (), condition)

    def own_reduce(self, span: Span, what: Loc, source: Expr, into: Loc | None,
                   forwards: tuple[Forward, ...] | None, condition: Expr | None) -> OwnRecv:
        return OwnRecv(span, "reduce", what, source, into, forwards or (), condition)

    def forwards(self, span: Span, *forwards: Forward) -> tuple[Forward, ...]:
        return forwards

    def forward(self, span: Span, target: Expr, into: Loc | None, only: str | None) -> Forward:
        return Forward(span, target, into, only is not None)

    def copy(self, span: Span, what: Loc, into: Loc, rank: Expr | None, condition: Expr | None) -> Local:
        return Local(span, "copy", what, into, rank, condition)

    def local_reduce(self, span: Span, what: Loc, into: Loc, rank: Expr | None, condition: Expr | None) -> Local:
        return Local(span, "reduce", what, into, rank, condition)

    def record(self, span: Span, event: EventRef, rank: Expr | None, condition: Expr | None) -> EventStmt:
        return EventStmt(span, "record", event, rank, condition)

    def wait(self, span: Span, event: EventRef, rank: Expr | None, condition: Expr | None) -> EventStmt:
        return EventStmt(span, "wait", event, rank, condition)

    def event_ref(self, span: Span, name: str, indices: tuple[Expr, ...] | None) -> EventRef:
        return EventRef(span, name, indices or ())

    def use(self, span: Span, schedule: str, arguments: tuple[Argument, ...] | None, on: Expr | None,
            bindings: tuple[Binding, ...] | None, reversed: str | None, condition: Expr | None) -> Use:
        return Use(span, schedule, arguments or (), on, bindings or (), reversed is not None, condition)

    def short_binding(self, span: Span, outer: Loc) -> tuple[Binding, ...]:
        return (Binding(span, None, outer),)

    def bindings(self, span: Span, *bindings: Binding) -> tuple[Binding, ...]:
        return bindings

    def named_binding(self, span: Span, inner: str, outer: Loc) -> Binding:
        return Binding(span, inner, outer)

    def ensure(self, span: Span, what: Loc, rank: Expr, value: EnsureOne | EnsureMany,
               condition: Expr | None) -> Ensure:
        return Ensure(span, what, rank, value, condition)

    def held_one(self, span: Span, what: Loc, rank: Expr) -> EnsureOne:
        return EnsureOne(span, what, rank)

    def held_many(self, span: Span, op: str, what: Loc, ranks: Expr) -> EnsureMany:
        return EnsureMany(span, op, what, ranks)

    def loc(self, span: Span, buffer: str, start: Expr, stop: Expr | None) -> Loc:
        return Loc(span, buffer, start, stop)

    def arguments(self, span: Span, *arguments: Argument) -> tuple[Argument, ...]:
        return arguments

    def argument(self, span: Span, name: str | None, value: Expr) -> Argument:
        return Argument(span, name, value)

    # ---- blocks

    def for_(self, span: Span, var: str, values: Expr, body: Body) -> For:
        self.note_range(values)
        return For(span, var, values, body)

    def if_(self, span: Span, condition: Expr, body: Body, *rest: Any) -> If:
        *more, otherwise = rest
        return If(span, ((condition, body), *more), otherwise or ())

    def elif_(self, span: Span, condition: Expr, body: Body) -> tuple[Expr, Body]:
        return condition, body

    def step(self, span: Span, label: str | None, body: Body) -> Step:
        return Step(span, label, body)

    def stream(self, span: Span, name: StreamName, body: Body) -> Stream:
        return Stream(span, name, body)

    def on_rank(self, span: Span, rank: Expr, body: Body) -> OnRank:
        return OnRank(span, rank, body)

    def stream_name(self, span: Span, name: Expr) -> StreamName:
        if isinstance(name, Index) and isinstance(name.base, Name) and not grouped(name) and not grouped(name.base):
            return StreamName(span, name.base, name.index)
        return StreamName(span, name, None)

    def stream_keyword(self, span: Span, word: str, index: Expr | None) -> StreamName:
        return StreamName(span, Name(Span(span.source, span.start, span.start + len(word)), word), index)

    # ---- expressions

    def range(self, span: Span, start: Expr, stop: Expr) -> Range:
        return Range(span, start, stop)

    def conditional(self, span: Span, then: Expr, test: Expr, otherwise: Expr) -> Conditional:
        return Conditional(span, test, then, otherwise)

    def boolean(self, span: Span, left: Expr, op: Literal["and", "or"], right: Expr) -> BoolOp:
        return BoolOp(span, op, left, right)

    def unary(self, span: Span, op: Literal["-", "+", "~", "not"], operand: Expr) -> Unary:
        return Unary(span, op, operand)

    def binary(self, span: Span, left: Expr, op: Any, right: Expr) -> Binary:
        return Binary(span, op, left, right)

    def compare(self, span: Span, left: Expr, op: Any, right: Expr) -> Compare:
        if isinstance(left, Compare) and not grouped(left):
            return Compare(span, left.first, (*left.ops, op), (*left.rest, right))
        return Compare(span, left, (op,), (right,))

    def index(self, span: Span, base: Expr, index: Expr) -> Index:
        return Index(span, base, index)

    def int(self, span: Span, digits: str) -> Int:
        return Int(span, int(digits))

    def true(self, span: Span) -> Bool:
        return Bool(span, True)

    def false(self, span: Span) -> Bool:
        return Bool(span, False)

    def variable(self, span: Span, name: str) -> Name:
        return Name(span, name)

    def call(self, span: Span, function: str, arguments: tuple[Expr, ...] | None) -> Call:
        return Call(span, function, arguments or ())

    def group(self, span: Span, inner: Expr) -> Expr:
        return replace(inner, span=span)

    def list(self, span: Span, items: tuple[Expr, ...] | None) -> ListExpr:
        return ListExpr(span, items or ())

    def comprehension(self, span: Span, element: Expr, var: str, source: Expr, condition: Expr | None) -> Comp:
        self.note_range(source)
        return Comp(span, element, var, source, condition)

    def note_range(self, values: Expr) -> None:
        if isinstance(values, Call) and values.function == "range":
            self.ranges.append(values.span)

    def items(self, span: Span, *items: Expr) -> tuple[Expr, ...]:
        return items

    def call_arguments(self, span: Span, *arguments: Expr) -> tuple[Expr, ...]:
        return arguments
