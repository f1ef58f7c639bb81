"""Expressions over frames: one evaluation gives the values of all turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from schedlang.expand import arith
from schedlang.expand.calls import Calls
from schedlang.expand.frame import Fail, Frame, fail, kind_mismatch, shown_at
from schedlang.expand.lists import appended, element, items_of, merge, size
from schedlang.expand.program import Module
from schedlang.expand.values import (
    EMPTY,
    INT64,
    Array,
    Col,
    Interval,
    Items,
    KindMismatch,
    Poison,
    Value,
    as_items,
    at,
    bounds,
    described,
    is_uniform,
    key,
    kind,
    lengths_of,
    longest,
    runs,
    spread,
)
from schedlang.expand.walk import names_in
from schedlang.ir.words import numbered
from schedlang.ops import REDUCE_OPS
from schedlang.source import Span
from schedlang.syntax import tree as t

MAX_NESTED = 1 << 24
"""How many elements lists of lists may have, those of the inner lists included."""


class Evaluator:
    """Evaluates the expressions of one expansion. ``max_ops`` bounds the loop turns of all of it together."""

    def __init__(self, max_ops: int) -> None:
        self.max_ops = max_ops
        self.turns = 0
        self._free: dict[int, frozenset[str]] = {}
        self.calls = Calls(self)
        self._nodes: dict[type, Callable[[Any, Frame, Module], Value]] = {
            t.Int: self._int,
            t.Bool: self._bool,
            t.Name: self._name,
            t.ListExpr: self._list,
            t.Comp: self._comp,
            t.Range: self._range,
            t.Index: self._index,
            t.Call: self.calls.value,
            t.Unary: self._unary,
            t.Binary: self._binary,
            t.Compare: self._compare,
            t.BoolOp: self._boolop,
            t.Conditional: self._conditional,
        }

    def __call__(self, node: t.Expr, frame: Frame, module: Module) -> Value:
        """The value of an expression. Raises Fail."""
        return self.value(node, frame, module)

    def value(self, node: t.Expr, frame: Frame, module: Module) -> Value:
        """As calling the evaluator. Expressions call each other by this method: ``__call__`` goes through C, and Python
        3.12 and later bound the depth of that, whatever the size of the stack.
        """
        return self._nodes[type(node)](node, frame, module)

    # ---- values of one kind ----------------------------------------------------------------------------------------

    def integer(self, node: t.Expr, frame: Frame, module: Module) -> int | Col:
        """The value of an expression that must be an integer. Raises Fail SL203."""
        return self._as_integer(self.value(node, frame, module), node, frame)

    def boolean(self, node: t.Expr, frame: Frame, module: Module) -> bool | Col:
        """The value of an expression that must be a boolean. Raises Fail SL203."""
        value = self.value(node, frame, module)
        if isinstance(value, bool) or (isinstance(value, Col) and kind(value) == "boolean"):
            return value
        hint = "write a comparison, such as `x != 0`" if kind(value) == "integer" else None
        raise kind_mismatch("a boolean", value, node.span, frame, hint)

    def list(self, node: t.Expr, frame: Frame, module: Module) -> Interval | Items:
        """The value of an expression that must be a list. Raises Fail SL203."""
        value = self.value(node, frame, module)
        if isinstance(value, (Interval, Items)):
            return value
        text = node.span.text
        hint = f"write a list, `[{text}]`, or a range, `0..{text}`" if kind(value) == "integer" else None
        raise kind_mismatch("a list", value, node.span, frame, hint)

    def _as_integer(self, value: Value, node: t.Expr, frame: Frame) -> int | Col:
        if (isinstance(value, int) and not isinstance(value, bool)) or (
            isinstance(value, Col) and kind(value) == "integer"
        ):
            return value
        raise kind_mismatch("an integer", value, node.span, frame)

    # ---- limits ----------------------------------------------------------------------------------------------------

    def count_turns(self, new: int, span: Span, frame: Frame) -> None:
        """Accounts for turns about to be made. Raises Fail SL208."""
        if self.turns + new > self.max_ops:
            before = f", after {self.turns:,} in other loops" if self.turns else ""
            raise fail("SL208", f"this makes {new:,} loop turns{before}; the limit is {self.max_ops:,}", span, frame,
                       help="a larger limit can be set with --max-ops", final=True)
        self.turns += new

    def flat(self, value: Interval | Items, span: Span, frame: Frame, loop: str) -> Frame:
        """A frame with a turn for each element of a list, ``loop`` bound to it. Raises Fail SL208.

        The elements are written out when they are first needed, so that turns can be counted before.
        """
        length = lengths_of(value)
        if not isinstance(length, int) and length.min() == length.max():
            length = int(length[0])
        if isinstance(length, int):
            total = length * frame.n
        else:
            total = frame.n * (1 << 62) if length.max(initial=0) > self.max_ops else int(length.sum())
            if total > self.max_ops and length.max(initial=0) > self.max_ops:
                total = sum(length.tolist())
        self.count_turns(total, span, frame)
        if isinstance(length, int):
            return Frame(total, frame, each=length, loop=loop, values=value)
        index = np.repeat(np.arange(frame.n), length)
        return Frame(total, frame, index=index, loop=loop, values=value)

    def written(self, value: Interval | Items, span: Span, frame: Frame) -> Items:
        """A list written out. Raises Fail SL208 where it is too long for that."""
        if isinstance(value, Interval):
            total = longest(value) * (1 if is_uniform(value) else frame.n)
            if total > self.max_ops:
                raise fail(
                    "SL208",
                    f"a list of {longest(value):,} elements; the limit is {self.max_ops:,}",
                    span,
                    frame,
                    help="a larger limit can be set with --max-ops",
                    final=True,
                )
        return as_items(value, frame.n)

    # ---- leaves ----------------------------------------------------------------------------------------------------

    def _int(self, node: t.Int, frame: Frame, module: Module) -> Value:
        if node.value > INT64[1]:
            raise fail("SL223", f"{node.span.text} is beyond signed 64-bit integers", node.span, frame)
        return node.value

    def _bool(self, node: t.Bool, frame: Frame, module: Module) -> Value:
        return node.value

    def _name(self, node: t.Name, frame: Frame, module: Module) -> Value:
        try:
            value = frame.lookup(node.id)
        except KeyError:
            if node.id in REDUCE_OPS:
                return node.id
            raise fail("SL201", f"nothing here is called `{node.id}`", node.span, frame) from None
        if isinstance(value, Poison):
            raise Fail()
        return value

    # ---- arithmetic ------------------------------------------------------------------------------------------------

    def _unary(self, node: t.Unary, frame: Frame, module: Module) -> Value:
        if node.op == "not":
            truth = self.boolean(node.operand, frame, module)
            return Col(~truth.data) if isinstance(truth, Col) else not truth
        if node.op == "-" and isinstance(node.operand, t.Int) and node.operand.value == INT64[1] + 1:
            return INT64[0]
        value = self.integer(node.operand, frame, module)
        if node.op == "+":
            return value
        return self.checked(node, frame, lambda: arith.neg(value) if node.op == "-" else arith.invert(value), value)

    def _binary(self, node: t.Binary, frame: Frame, module: Module) -> Value:
        left, right = self.value(node.left, frame, module), self.value(node.right, frame, module)
        if node.op == "+" and isinstance(left, (Interval, Items)) and isinstance(right, (Interval, Items)):
            return self._append(node, left, right, frame)
        if kind(left) == kind(right) == "boolean" and node.op in "&|":
            raise kind_mismatch(
                "an integer", left, node.left.span, frame, f"write `{'and' if node.op == '&' else 'or'}`"
            )
        x, y = self._as_integer(left, node.left, frame), self._as_integer(right, node.right, frame)
        return self.checked(node, frame, lambda: arith.BINARY[node.op](x, y), x, y)

    @staticmethod
    def checked(node: t.Expr, frame: Frame, compute: Callable[[], Value], *operands: Value) -> Value:
        """What ``compute`` gives. Raises Fail SL223 where that has no value; ``operands`` are for the message."""
        try:
            value = compute()
        except arith.Bad as bad:
            why, turns = bad.why, bad.turns

            def message(turn: int) -> str:
                values = [shown_at(v, turn) for v in operands]
                if isinstance(node, t.Binary):
                    return f"{why}: {values[0]} {node.op} {values[1]}"
                name = node.function if isinstance(node, t.Call) else cast(t.Unary, node).op
                return f"{why}: {name}({', '.join(values)})"

            raise fail("SL223", message, node.span, frame, turns) from None
        return value

    def _append(self, node: t.Binary, left: Interval | Items, right: Interval | Items, frame: Frame) -> Value:
        uniform = is_uniform(left) and is_uniform(right)
        total = (longest(left) + longest(right)) * (1 if uniform else frame.n)
        if total > self.max_ops:
            exact = int(np.sum(np.broadcast_to(lengths_of(left), frame.n), dtype=np.float64)
                        + np.sum(np.broadcast_to(lengths_of(right), frame.n), dtype=np.float64))
            if uniform or exact > self.max_ops:
                raise fail("SL208", f"lists of more than {self.max_ops:,} elements", node.span, frame, final=True,
                           help="a larger limit can be set with --max-ops")
        try:
            made = appended(as_items(left, frame.n), as_items(right, frame.n), frame.n)
        except KindMismatch as two:
            raise fail("SL203", "a list holds values of one kind; these two lists hold " + " and ".join(
                f"{k}s" for k in two.args), node.span, frame) from None
        return self._held(made, node.span, frame)

    # ---- truth -----------------------------------------------------------------------------------------------------

    def _compare(self, node: t.Compare, frame: Frame, module: Module) -> Value:
        return self._chain(node, 0, self.value(node.first, frame, module), frame, module)

    def _chain(self, node: t.Compare, i: int, left: Value, frame: Frame, module: Module) -> Value:
        left_span = node.first.span if i == 0 else node.rest[i - 1].span
        right = self.value(node.rest[i], frame, module)
        result = self._one_comparison(node.ops[i], left, right, left_span.to(node.rest[i].span), frame)
        if i + 1 == len(node.ops) or result is False:
            return result
        if result is True:
            return self._chain(node, i + 1, right, frame, module)
        assert isinstance(result, Col)
        return self._both(
            result.data, True, frame, lambda sub: self._chain(node, i + 1, sub.lifted(right), sub, module)
        )

    def _one_comparison(self, op: str, a: Value, b: Value, span: Span, frame: Frame) -> bool | Col:
        if kind(a) != kind(b):
            raise fail("SL203", f"`{span.text}` compares {described(a)} with {described(b)}", span, frame)
        if kind(a) == "integer":
            return arith.compare(op, a, b)  # type: ignore[arg-type]
        if op not in ("==", "!="):
            raise fail("SL203", f"`{op}` orders integers; these are {kind(a)}s", span, frame)
        if isinstance(a, (Interval, Items)) and isinstance(b, (Interval, Items)):
            equal = self._lists_equal(self.written(a, span, frame), self.written(b, span, frame), span, frame)
        elif isinstance(a, Col) or isinstance(b, Col):
            x, y = (v.data if isinstance(v, Col) else v for v in (a, b))
            equal = Col(np.asarray(x == y, np.bool_))
        else:
            equal = a == b
        if isinstance(equal, bool):
            return equal == (op == "==")
        return equal if op == "==" else Col(~equal.data)

    def _lists_equal(self, a: Items, b: Items, span: Span, frame: Frame) -> bool | Col:
        if is_uniform(a) and is_uniform(b):
            return bool(key(a) == key(b))
        if isinstance(a.content, Items) or isinstance(b.content, Items):
            raise fail("SL203", "lists of lists that differ between loop turns cannot be compared", span, frame)
        x, y = spread(a, frame.n), spread(b, frame.n)
        assert isinstance(x, Items) and isinstance(y, Items)
        same = np.asarray(np.asarray(x.length) == np.asarray(y.length))
        rows = np.flatnonzero(same & (np.asarray(x.length) > 0))
        if len(rows) and a.content is not None and b.content is not None:
            length = np.asarray(x.length)[rows]
            left = a.content.data[runs(np.asarray(x.start)[rows], length)]
            right = b.content.data[runs(np.asarray(y.start)[rows], length)]
            same[rows] = np.logical_and.reduceat(left == right, np.cumsum(length) - length)
        return Col(same)

    def _both(self, mask: Array, needed: bool, frame: Frame, rest: Callable[[Frame], Value]) -> Col:
        """A truth a turn: where ``mask`` is ``needed``, what ``rest`` says over those turns; the mask itself
        elsewhere.
        """
        sub = frame.where(mask if needed else ~mask)
        result = np.array(mask, np.bool_)
        if sub.n:
            value = rest(sub)
            result[sub.index] = value.data if isinstance(value, Col) else value
        return Col(result)

    def _boolop(self, node: t.BoolOp, frame: Frame, module: Module) -> Value:
        needed = node.op == "and"
        left = self.boolean(node.left, frame, module)
        if isinstance(left, bool):
            return self.boolean(node.right, frame, module) if left is needed else left
        return self._both(left.data, needed, frame, lambda sub: self.boolean(node.right, sub, module))

    def _conditional(self, node: t.Conditional, frame: Frame, module: Module) -> Value:
        test = self.boolean(node.test, frame, module)
        if isinstance(test, bool):
            return self.value(node.then if test else node.otherwise, frame, module)
        yes, no = frame.where(test.data), frame.where(~test.data)
        if not no.n:
            return self.value(node.then, frame, module)
        if not yes.n:
            return self.value(node.otherwise, frame, module)
        parts = [(yes.index, self.value(node.then, yes, module)), (no.index, self.value(node.otherwise, no, module))]
        try:
            return merge(parts, frame.n)
        except KindMismatch as two:
            raise fail(
                "SL203", f"the two branches differ in kind: {two.args[0]} and {two.args[1]}", node.span, frame
            ) from None

    # ---- lists -----------------------------------------------------------------------------------------------------

    def _range(self, node: t.Range, frame: Frame, module: Module) -> Value:
        return Interval(self.integer(node.start, frame, module), self.integer(node.stop, frame, module))

    def _list(self, node: t.ListExpr, frame: Frame, module: Module) -> Value:
        values = [self.value(item, frame, module) for item in node.items]
        self.count_turns(len(values) * (1 if all(map(is_uniform, values)) else frame.n), node.span, frame)
        values = [self.written(v, node.span, frame) if isinstance(v, Interval) else v for v in values]
        try:
            made = items_of(values, frame.n)
        except KindMismatch as two:
            raise fail("SL203", f"a list holds values of one kind; here are {two.args[0]} and {two.args[1]}",
                       node.span, frame) from None
        return self._held(made, node.span, frame)

    def _held(self, value: Items, span: Span, frame: Frame) -> Items:
        """A list just made. Raises Fail SL208 where its inner lists hold too much."""
        if isinstance(value.content, Items) and size(value) > MAX_NESTED:
            raise fail("SL208", f"lists in lists, with more than {MAX_NESTED:,} elements in all", span, frame,
                       final=True)
        return value

    def _comp(self, node: t.Comp, frame: Frame, module: Module) -> Value:
        if frame.n > 1 and self._is_uniform_here(node, frame):
            frame = frame.single()
        inner = self.flat(self.list(node.source, frame, module), node.source.span, frame, node.var)
        kept: Frame = inner
        if inner.n and node.condition is not None:
            truth = self.boolean(node.condition, inner, module)
            if isinstance(truth, Col):
                kept = inner.where(truth.data)
            elif not truth:
                return EMPTY
        if not kept.n:
            return EMPTY
        value = self.value(node.element, kept, module)
        if isinstance(value, Interval):
            value = self.written(value, node.element.span, kept)
        content = spread(value, kept.n)
        if frame.n == 1:
            return self._held(Items(0, kept.n, content), node.span, frame)
        if kept is inner and inner.each is not None:
            return self._held(Items(np.arange(frame.n) * inner.each, inner.each, content), node.span, frame)
        outer = inner.index if kept is inner else inner.index[kept.index]
        length = np.bincount(outer, minlength=frame.n)
        return self._held(Items(np.cumsum(length) - length, length, content), node.span, frame)

    def _is_uniform_here(self, node: t.Expr, frame: Frame) -> bool:
        for name in self.free_names(node):
            try:
                value = frame.lookup(name)
            except KeyError:
                continue
            if not is_uniform(value):
                return False
        return True

    def free_names(self, node: t.Expr) -> frozenset[str]:
        """The names that an expression reads."""
        found = self._free.get(id(node))
        if found is None:
            found = self._free[id(node)] = names_in(node)
        return found

    def _index(self, node: t.Index, frame: Frame, module: Module) -> Value:
        base = self.list(node.base, frame, module)
        index = self.integer(node.index, frame, module)
        length = lengths_of(base)
        lo, hi = bounds(index)
        if lo < 0 or hi >= (length if isinstance(length, int) else int(length.min(initial=0))):
            value = index.data if isinstance(index, Col) else index
            bad = np.broadcast_to((value < 0) | (value >= length), (frame.n,))
            if bad.any():
                raise fail(
                    "SL221",
                    lambda i: (
                        f"index {at(index, i)} of `{node.base.span.text}`, which has "
                        + numbered(length if isinstance(length, int) else int(length[i]), "element")
                    ),
                    node.index.span,
                    frame,
                    bad,
                )
        return element(base, index)
