"""Nodes to text: one statement, one expression at a time, with the usual spaces and the parentheses that are needed.

Parentheses that are not needed stay where they help: round an operand that mixes bitwise operators or shifts with
others. A list, call or parameter list that was broken over lines stays so, in the rows that the author chose; its text
then has line ends, the lines after the first indented relative to the statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from schedlang.source import Span
from schedlang.syntax.builder import grouped
from schedlang.syntax.tree import (
    Argument,
    Binary,
    Binding,
    Bool,
    BoolOp,
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
    EventRef,
    EventStmt,
    Expr,
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
    VerifyStmt,
)

(RANGE, CONDITIONAL, OR, AND, NOT, COMPARISON, BIT_OR, BIT_XOR, BIT_AND, SHIFT, SUM, PRODUCT, SIGN, POWER,
 PRIMARY) = range(15)
"""How tightly the kinds of expression bind, loosest first."""

_BINARY = {"|": BIT_OR, "^": BIT_XOR, "&": BIT_AND, "<<": SHIFT, ">>": SHIFT, "+": SUM, "-": SUM,
           "*": PRODUCT, "//": PRODUCT, "%": PRODUCT, "**": POWER}
_BITWISE = frozenset((BIT_OR, BIT_XOR, BIT_AND, SHIFT))
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"})


# ---- expressions -----------------------------------------------------------------------------------------------------


def expression(node: Expr, least: int = RANGE) -> str:
    """The text of an expression where one that binds as ``least`` can stand."""
    text, binds = _bare(node)
    return f"({text})" if binds < least else text


def _bare(node: Expr) -> tuple[str, int]:
    """The text of an expression without parentheses round it, and how tightly it binds."""
    match node:
        case Int(value=value):
            return str(value), PRIMARY if value >= 0 else SIGN
        case Bool(value=value):
            return "true" if value else "false", PRIMARY
        case Name(id=name):
            return name, PRIMARY
        case ListExpr(items=items):
            return _bracketed("[", items, [expression(i, CONDITIONAL) for i in items], "]", node.span), PRIMARY
        case Comp():
            guard = f" if {expression(node.condition, OR)}" if node.condition else ""
            return f"[{expression(node.element, CONDITIONAL)} for {node.var} in {_source(node.source)}{guard}]", PRIMARY
        case Range(start=start, stop=stop):
            return f"{expression(start, OR)}..{expression(stop, OR)}", RANGE
        case Index(base=base, index=index):
            return f"{expression(base, PRIMARY)}[{expression(index, CONDITIONAL)}]", PRIMARY
        case Call(function=function, arguments=arguments):
            return _bracketed(f"{function}(", arguments, [expression(a) for a in arguments], ")", node.span), PRIMARY
        case Unary(op="not", operand=operand):
            return f"not {expression(operand, NOT)}", NOT
        case Unary(op=op, operand=operand):
            return f"{op}{expression(operand, SIGN)}", SIGN
        case Binary(op="**", left=left, right=right):
            return f"{_operand(left, PRIMARY, POWER)} ** {_operand(right, SIGN, POWER)}", POWER
        case Binary(op=op, left=left, right=right):
            binds = _BINARY[op]
            return f"{_operand(left, binds, binds)} {op} {_operand(right, binds + 1, binds)}", binds
        case Compare(first=first, ops=ops, rest=rest):
            pairs = zip(ops, rest, strict=True)
            tail = "".join(f" {op} {_operand(e, BIT_OR, COMPARISON)}" for op, e in pairs)
            return _operand(first, BIT_OR, COMPARISON) + tail, COMPARISON
        case BoolOp(op=op, left=left, right=right):
            binds = OR if op == "or" else AND
            return f"{_operand(left, binds, binds)} {op} {_operand(right, binds + 1, binds)}", binds
        case Conditional(test=test, then=then, otherwise=otherwise):
            last = _operand(otherwise, CONDITIONAL, CONDITIONAL)
            return f"{expression(then, OR)} if {expression(test, OR)} else {last}", CONDITIONAL


def _operand(node: Expr, least: int, parent: int) -> str:
    text, binds = _bare(node)
    mixed = binds != parent and (parent in _BITWISE or binds in _BITWISE or {parent, binds} == {OR, AND})
    keep = grouped(node) and binds < SIGN and (mixed or parent == CONDITIONAL == binds)
    return f"({text})" if binds < least or keep else text


def _source(node: Expr) -> str:
    """What a comprehension loops over or a `use` stands on: a conditional expression there needs parentheses."""
    return expression(node) if isinstance(node, Range) else expression(node, OR)


def _bracketed(opening: str, nodes: Sequence[Expr | Argument | Param], texts: Sequence[str], closing: str,
               whole: Span) -> str:
    rows = _rows(nodes, whole)
    if rows is None:
        return opening + ", ".join(texts) + closing
    lines, k = [], 0
    for size in rows:
        row = ", ".join(texts[k : k + size]).replace("\n", "\n    ")
        lines.append(f"    {row},\n")
        k += size
    return f"{opening}\n{''.join(lines)}{closing}"


def _rows(nodes: Sequence[Expr | Argument | Param], whole: Span) -> list[int] | None:
    """How many of the parts stand on each line, where the author broke between them or before the first; else None."""
    if not nodes:
        return None
    text = nodes[0].span.source.text
    rows, broken = [1], "\n" in text[whole.start : nodes[0].span.start]
    for before, after in pairwise(nodes):
        if "\n" in text[before.span.end : after.span.start]:
            rows.append(1)
        else:
            rows[-1] += 1
    return rows if broken or len(rows) > 1 else None


# ---- parts of statements ---------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _loc(loc: Loc) -> str:
    start = expression(loc.start, CONDITIONAL)
    if loc.stop is None:
        return f"{loc.buffer}[{start}]"
    space = "" if _simple(loc.start) and _simple(loc.stop) else " "
    return f"{loc.buffer}[{start}{space}:{space}{expression(loc.stop, CONDITIONAL)}]"


def _simple(node: Expr) -> bool:
    return isinstance(node, (Int, Bool, Name))


def _into(loc: Loc | None) -> str:
    return f" into {_loc(loc)}" if loc else ""


def _on(rank: Expr | None) -> str:
    return f" on {expression(rank, OR)}" if rank else ""


def _guard(condition: Expr | None) -> str:
    return f" if {expression(condition, OR)}" if condition else ""


def _forwards(forwards: Sequence[Forward]) -> str:
    return "".join(f" then send to {expression(f.target, OR)}{_into(f.into)}{' only' if f.only else ''}"
                   for f in forwards)


def _argument(a: Argument) -> str:
    return expression(a.value) if a.name is None else f"{a.name}={expression(a.value)}"


def _arguments(name: str, arguments: Sequence[Argument], whole: Span) -> str:
    return _bracketed(f"{name}(", arguments, [_argument(a) for a in arguments], ")", whole)


def _event(event: EventRef) -> str:
    return event.name + (f"[{', '.join(expression(i, CONDITIONAL) for i in event.indices)}]" if event.indices else "")


def _stream_name(name: StreamName) -> str:
    if name.index is not None:
        return f"{expression(name.base, PRIMARY)}[{expression(name.index, CONDITIONAL)}]"
    text = expression(name.base, CONDITIONAL)
    # NAME[E] in parentheses is an element of a list for sure, without them perhaps a stream NAME with an index
    return f"({text})" if isinstance(name.base, Index) and isinstance(name.base.base, Name) else text


def _bindings(bindings: Sequence[Binding]) -> str:
    if not bindings:
        return ""
    return " for " + ", ".join(_loc(b.outer) if b.inner is None else f"{b.inner}={_loc(b.outer)}" for b in bindings)


# ---- statements and items --------------------------------------------------------------------------------------------


def statement(node: Stmt) -> str:
    """The text of a statement; of one with a block (other than `if`) the header without its colon."""
    match node:
        case CollectiveStmt():
            name = _arguments(node.name, node.arguments, node.span) if node.arguments else node.name
            inplace = node.inplace
            if isinstance(inplace, Bool) and inplace.value:
                name += " inplace"
            elif inplace is not None:
                name += f" inplace={expression(inplace, OR)}"
            return f"collective {name}{' outofplace' if node.outofplace else ''}"
        case RanksStmt(value=value):
            return f"ranks {expression(value, CONDITIONAL)}"
        case ChunksStmt(value=value):
            return f"chunks {expression(value, CONDITIONAL)}"
        case BufferStmt(buffers=buffers, place=place):
            names = ", ".join(f"{b.name}[{expression(b.chunks, CONDITIONAL)}]" for b in buffers)
            return f"buffer {names}{' on host' if place == 'host' else ''}"
        case Let(name=name, value=value):
            return f"let {name} = {expression(value)}"
        case Require(condition=condition, text=text):
            return f"require {expression(condition, CONDITIONAL)}{'' if text is None else f', {quoted(text)}'}"
        case VerifyStmt(ranges=ranges):
            return "verify " + ", ".join(f"{r.name} in {expression(r.values)}" for r in ranges)
        case Transfer():
            return (f"{node.kind} {_loc(node.what)} from {expression(node.source, OR)} to {expression(node.target, OR)}"
                    f"{_into(node.into)}{_forwards(node.forwards)}{_guard(node.condition)}")
        case OwnSend():
            return f"send {_loc(node.what)} to {expression(node.target, OR)}{_guard(node.condition)}"
        case OwnRecv():
            return (f"{node.kind} {_loc(node.what)} from {expression(node.source, OR)}{_into(node.into)}"
                    f"{_forwards(node.forwards)}{_guard(node.condition)}")
        case Local():
            return f"{node.kind} {_loc(node.what)}{_into(node.into)}{_on(node.rank)}{_guard(node.condition)}"
        case EventStmt():
            return f"{node.kind} {_event(node.event)}{_on(node.rank)}{_guard(node.condition)}"
        case Chan(name=name):
            return f"chan {_stream_name(name)}"
        case Use():
            on = f" on {_source(node.on)}" if node.on else ""
            return (f"use {_arguments(node.schedule, node.arguments, node.span)}{on}{_bindings(node.bindings)}"
                    f"{' reversed' if node.reversed else ''}{_guard(node.condition)}")
        case Ensure(value=value):
            if isinstance(value, EnsureMany):
                held = f"{value.op}({_loc(value.what)} on {expression(value.ranks)})"
            else:
                held = f"{_loc(value.what)}{_on(value.rank)}"
            return f"ensure {_loc(node.what)} on {expression(node.rank, BIT_OR)} == {held}{_guard(node.condition)}"
        case For(var=var, values=values):
            return f"for {var} in {expression(values)}"
        case If(branches=branches):
            return f"if {expression(branches[0][0], CONDITIONAL)}"
        case Step(label=label):
            return f"step {label}" if label else "step"
        case Stream(name=name):
            return f"stream {_stream_name(name)}"
        case OnRank(rank=rank):
            return f"on {expression(rank, CONDITIONAL)}"


def import_line(node: Import) -> str:
    return f"import {quoted(node.path)}"


def fn_head(node: Fn) -> str:
    return f"fn {node.name}({', '.join(node.params)})"


def schedule_head(node: Schedule) -> str:
    params = [p.name if p.default is None else f"{p.name}={expression(p.default)}" for p in node.params]
    return "schedule " + _bracketed(f"{node.name}(", node.params, params, ")", node.span)


def docstring_lines(doc: str) -> list[str]:
    """The lines of a docstring with its quotes."""
    lines = doc.split("\n")
    if len(lines) > 1:
        return [f'"""{lines[0]}', *lines[1:], '"""']
    return [f'"""{doc} """' if doc.endswith('"') else f'"""{doc}"""']
