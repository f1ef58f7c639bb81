"""Calls: the built-in functions, and those that a file defines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from schedlang.expand import arith
from schedlang.expand.frame import Fail, Frame, fail
from schedlang.expand.program import Function, Module
from schedlang.expand.values import (
    Col,
    Interval,
    Items,
    Value,
    column,
    is_uniform,
    key,
    kind,
    lengths_of,
    runs,
    spread,
)
from schedlang.ir.words import counted
from schedlang.ops import BUILTINS, MAX_DEPTH
from schedlang.syntax import tree as t

if TYPE_CHECKING:
    from schedlang.expand.evaluate import Evaluator

MAX_CALLS = 1 << 17
"""How many function calls an expansion may evaluate, each over any number of turns."""


class Calls:
    """Evaluates the calls of one expansion; remembers what functions gave for arguments that were the same. ``count``:
    how many it has evaluated."""

    def __init__(self, evaluate: Evaluator) -> None:
        self._evaluate = evaluate
        self.count = self._depth = 0
        self._memo: dict[Any, Value] = {}

    def value(self, node: t.Call, frame: Frame, module: Module) -> Value:
        """The value of a call. Raises Fail."""
        if node.function in BUILTINS:
            return self._builtin(node, frame, module)
        function = module.function(node.function, node.span)
        arguments = [self._evaluate.value(a, frame, module) for a in node.arguments]
        if len(arguments) != len(function.tree.params):
            raise fail("SL203", f"`{function.name}` takes {counted(len(function.tree.params), 'argument')}, "
                       f"and here are {len(arguments)}", node.span, frame)
        if all(map(is_uniform, arguments)):
            memo = (id(function), *map(_key, arguments))
            known = self._memo.get(memo)
            if known is None:
                known = self._memo[memo] = self._body(function, arguments, node, frame.single())
            return known
        if function.recursive and all(isinstance(a, (int, Col)) and kind(a) != "name" for a in arguments):
            return self._distinct(function, arguments, node, frame)
        return self._body(function, arguments, node, frame)

    def _distinct(self, function: Function, arguments: Sequence[Value], node: t.Call, frame: Frame) -> Value:
        """A recursive function, evaluated once for each combination of arguments that occurs."""
        code = np.zeros(frame.n, np.int64)
        for a in arguments:
            if isinstance(a, Col):
                _, inverse = np.unique(a.data, return_inverse=True)
                _, code = np.unique(code * (int(inverse.max()) + 1) + inverse, return_inverse=True)
        first = np.full(int(code.max()) + 1, frame.n)
        np.minimum.at(first, code, np.arange(frame.n))
        sub = Frame(len(first), frame, index=first)
        inner = [sub.lifted(a) for a in arguments]
        memo = (id(function), *(a.data.tobytes() if isinstance(a, Col) else _key(a) for a in inner),
                *(a.data.dtype.char if isinstance(a, Col) else "" for a in inner))
        known = self._memo.get(memo)
        if known is None:
            known = self._memo[memo] = self._body(function, inner, node, sub)
        return known if sub.n == 1 else Frame(frame.n, sub, index=code).lifted(known)

    def _body(self, function: Function, arguments: Sequence[Value], node: t.Call, frame: Frame) -> Value:
        self.count += 1
        if self.count > MAX_CALLS:
            raise fail("SL208", f"more than {MAX_CALLS:,} function calls", node.span, frame, final=True)
        if self._depth >= MAX_DEPTH:
            raise self._too_deep(function, node, frame)
        names = dict(zip(function.tree.params, arguments, strict=True))
        self._depth += 1
        try:
            return self._evaluate.value(
                function.tree.value,
                Frame(frame.n, frame, names=names, call=(function.name, node.span)),
                function.module,
            )
        finally:
            self._depth -= 1

    @staticmethod
    def _too_deep(function: Function, node: t.Call, frame: Frame) -> Fail:
        """Found at the innermost call, said at the outermost one."""
        span, turn, outer, first = node.span, 0, frame, 0
        inner: Frame | None = frame
        while inner is not None:
            turn = inner.outer_turn(turn) if inner.outer is not None else turn
            if inner.call is not None and inner.outer is not None:
                span, outer, first = inner.call[1], inner.outer, turn
            inner = inner.outer
        bad = np.zeros(outer.n, np.bool_)
        bad[first] = True
        return fail(
            "SL209",
            f"`{function.name}` calls itself more than {MAX_DEPTH:,} deep",
            span,
            outer,
            bad,
            final=True,
            help="does the recursion end for these arguments?",
        )

    def _builtin(self, node: t.Call, frame: Frame, module: Module) -> Value:
        name, given = node.function, len(node.arguments)
        wanted = BUILTINS[name]
        if given < wanted.arity or (given > wanted.arity and not wanted.variadic):
            least = "at least " if wanted.variadic else ""
            raise fail("SL203", f"`{name}` takes {least}{counted(wanted.arity, 'argument')}, and here are {given}",
                       node.span, frame)
        if name == "len":
            return self._length(node, frame, module)
        if name in ("min", "max"):
            return self._extreme(node, frame, module)
        values = [self._evaluate.integer(a, frame, module) for a in node.arguments]
        functions: dict[str, Callable[..., Value]] = {
            "abs": arith.absolute, "log2": arith.log2, "ceil_log2": arith.ceil_log2, "ceil_div": arith.ceil_div,
            "gcd": arith.gcd, "is_pow2": arith.is_pow2}
        return self._evaluate.checked(node, frame, lambda: functions[name](*values), *values)

    def _length(self, node: t.Call, frame: Frame, module: Module) -> Value:
        argument = node.arguments[0]
        reads = frame.reads if isinstance(argument, t.Name) else None
        read = reads is None or (isinstance(argument, t.Name) and argument.id in reads)
        value = self._evaluate.list(argument, frame, module)
        if reads is not None and isinstance(argument, t.Name) and not read:
            reads.discard(argument.id)  # the length is no look at the elements
        if isinstance(value, Interval):
            difference = self._evaluate.checked(node, frame, lambda: arith.sub(value.hi, value.lo), value.lo, value.hi)
            return arith.greatest(cast(Any, difference), 0)
        return value.length if isinstance(value.length, int) else column(value.length)

    def _extreme(self, node: t.Call, frame: Frame, module: Module) -> Value:
        choose = arith.least if node.function == "min" else arith.greatest
        if len(node.arguments) > 1:
            result = self._evaluate.integer(node.arguments[0], frame, module)
            for argument in node.arguments[1:]:
                result = choose(result, self._evaluate.integer(argument, frame, module))
            return result
        value = self._evaluate.list(node.arguments[0], frame, module)
        length = lengths_of(value)
        empty = np.broadcast_to(np.asarray(length) == 0, (frame.n,))
        if empty.any():
            raise fail("SL221", f"an empty list has no {node.function}", node.span, frame, empty)
        if isinstance(value, Interval):
            return value.lo if node.function == "min" else arith.sub(value.hi, 1)
        if not isinstance(value.content, Col) or kind(value.content) != "integer":
            raise fail("SL203", f"`{node.function}` needs a list of integers", node.span, frame)
        reduce = np.minimum if node.function == "min" else np.maximum
        if is_uniform(value):
            assert isinstance(value.start, int) and isinstance(value.length, int)
            return int(reduce.reduce(value.content.data[value.start : value.start + value.length]))
        items = spread(value, frame.n)
        assert isinstance(items, Items)
        lengths = np.asarray(items.length)
        flat = value.content.data[runs(np.asarray(items.start), lengths)]
        return Col(reduce.reduceat(flat, np.cumsum(lengths) - lengths), value.content.lo, value.content.hi)


def _key(v: Value) -> Any:
    """As :func:`values.key`; an interval stands for itself, so that a long one need not be written out."""
    return ("range", v.lo, v.hi) if isinstance(v, Interval) else key(v)
