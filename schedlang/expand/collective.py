"""The collective of a schedule: its operator, root and counts, and the buffers it works in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from schedlang.diagnostics import Note
from schedlang.expand.frame import fail
from schedlang.expand.program import did_you_mean
from schedlang.expand.values import Array, Interval, Items, Value, as_items, longest, plain
from schedlang.expand.values import kind as kind_of
from schedlang.ir.buffers import STANDARD, standard_buffers
from schedlang.ir.table import Buffer, Collective
from schedlang.ops import COLLECTIVES, REDUCE_OPS, CollectiveKind
from schedlang.syntax import tree as t

if TYPE_CHECKING:
    from schedlang.expand.declare import Declarations


_EXAMPLES = {"op": "sum", "root": "0", "counts": "counts"}
"""An argument of each kind, for messages."""
_MEANT = {"add": "sum", "plus": "sum", "mul": "prod", "times": "prod", "multiply": "prod", "product": "prod",
          "average": "avg", "mean": "avg", "maximum": "max", "minimum": "min", "xor": "bxor"}
"""What other languages call the operators."""


def operator_hint(word: str) -> str:
    """How to mend a word that is no reduction operator."""
    near = f"did you mean `{_MEANT[word.lower()]}`?" if word.lower() in _MEANT else did_you_mean(word, list(REDUCE_OPS))
    listed = "the operators are " + ", ".join(REDUCE_OPS)
    return f"{near} {listed}" if near else listed


def buffer_hint(statement: t.CollectiveStmt, kind: CollectiveKind, name: str) -> str | None:
    """How to mend a place in `data`, `input` or `output` where the collective has no such buffer."""
    if name not in STANDARD:
        return None
    whole = f"{statement.name} works in `data`"
    parts = f"{statement.name} reads `input` and leaves its result in `output`"
    match kind.family:
        case "custom":
            return f"a custom collective declares its own: `buffer {name}[CHUNKS]`"
        case "barrier":
            return "a barrier has one token a rank, `data[0]`"
        case "whole":
            return f"{parts}; without `outofplace`, it works in `data`" if name == "data" else (
                f"{whole}; with `outofplace`, it reads `input` and leaves its result in `output`")
        case _ if name != "data":
            return f"{whole}; without `inplace`, it reads `input` and leaves its result in `output`"
        case _:
            return parts if kind.long == "both" else f"{parts}; with `inplace` after it, it works in one `data`"


def combines(schedule: t.Schedule) -> bool:
    """Whether a schedule has an operator that another one can replace; true of one without a known collective."""
    s = next((s for s in schedule.body if isinstance(s, t.CollectiveStmt)), None)
    if s is None or s.name not in COLLECTIVES:
        return True
    if s.name != "custom":
        return "op" in COLLECTIVES[s.name].arguments
    return bool(s.arguments) or any(isinstance(e.value, t.EnsureMany) for e in _ensures(schedule.body))


def collective(d: Declarations, s: t.CollectiveStmt) -> Collective:
    """What a `collective` statement says; its `ensure` statements and whether its counts are read come later.

    Raises Fail SL205, SL206, SL222; SL207 where the root is a parameter, and its value is no rank.
    """
    kind = d.kind
    given = _arguments(d, s, kind)
    op, root, counts = None, None, None
    if "op" in kind.arguments:
        op = _op(d, s, given.get("op"))
    elif d.op is not None:
        raise fail("SL206", f"{kind.name} combines nothing, so it has no operator to replace by `{d.op}`",
                   s.span, d.root)
    if "root" in given:
        value = d.evaluate.integer(given["root"], d.root, d.module)
        assert isinstance(value, int)
        if not 0 <= value < d.ranks:
            if isinstance(given["root"], t.Name) and given["root"].id in (p.name for p in d.schedule.params):
                # Whoever gives the value is wrong, not the schedule.
                ranks = Note(f"the ranks are 0 to {d.ranks - 1}" if d.ranks > 1 else "the only rank is 0")
                raise fail("SL207", f"root {value} is not among the ranks", given["root"].span, d.root, final=True,
                           help="choose one of them", notes=[ranks])
            raise fail(
                "SL222", f"root {value} is not among the ranks 0 to {d.ranks - 1}", given["root"].span, d.root
            )
        root = value
    if "counts" in given:
        before, d.root.read = d.root.read, set()
        counts = _counts(d, given["counts"], kind)
        d.counts_names, d.root.read = d.root.read - {"ranks"}, before
    inplace = _inplace(d, s, kind)
    return Collective(kind.name, op, root, inplace, counts, location=s.span)


def _arguments(d: Declarations, s: t.CollectiveStmt, kind: CollectiveKind) -> dict[str, t.Expr]:
    form = f"`{kind.name}({', '.join(kind.arguments)})`" if kind.arguments else f"`{kind.name}`"
    given: dict[str, t.Expr] = {}
    free = list(kind.arguments)
    for a in s.arguments:
        name = a.name
        if name is None:
            if not free:
                raise fail("SL205", f"too many arguments; the form is {form}", a.span, d.root)
            name = free[0]
        elif name not in kind.arguments:
            raise fail("SL205", f"{kind.name} has no argument `{name}`; the form is {form}", a.span, d.root,
                       help=did_you_mean(name, kind.arguments))
        elif name in given:
            raise fail("SL205", f"argument `{name}` is given twice", a.span, d.root)
        if name in free:
            free.remove(name)
        given[name] = a.value
    missing = [name for name in free if not (name == "op" and kind.name == "custom")]
    if missing:
        example = ", ".join(_EXAMPLES[name] for name in kind.arguments)
        raise fail("SL205", f"{kind.name} lacks its argument `{missing[0]}`; the form is {form}", s.span, d.root,
                   help=f"for example `collective {kind.name}({example})`"
                   + (", with `counts` a parameter of the schedule" if "counts" in kind.arguments else ""))
    return given


def _op(d: Declarations, s: t.CollectiveStmt, given: t.Expr | None) -> str | None:
    said: str | None = None
    if given is not None:
        unbound = isinstance(given, t.Name) and given.id not in d.root.names and given.id not in d.root.demand
        value = given.id if unbound and isinstance(given, t.Name) else d.evaluate(given, d.root, d.module)
        if not isinstance(value, str) or value not in REDUCE_OPS:
            raise fail(
                "SL205",
                f"`{given.span.text}` is no reduction operator",
                given.span,
                d.root,
                help=operator_hint(str(value)),
            )
        said = value
    for e in _ensures(d.schedule.body) if s.name == "custom" else ():
        if isinstance(e.value, t.EnsureMany):
            if said is not None and e.value.op != said:
                raise fail("SL205", f"this ensures a {e.value.op}, but the operator of the schedule is {said}",
                           e.value.span, d.root, help="a schedule has one operator")
            said = e.value.op
    if d.op is not None and said is None:
        raise fail("SL206", f"this collective combines nothing, so it has no operator to replace by `{d.op}`",
                   s.span, d.root)
    return d.op or said


def _counts(d: Declarations, given: t.Expr, kind: CollectiveKind) -> Array:
    value: Value = d.evaluate(given, d.root, d.module)
    n = d.ranks
    shape = (n, n) if kind.name == "alltoallv" else (n,)
    wanted = f"{n} lists of {n} integers" if len(shape) == 2 else f"a list of {n} integers"
    if not isinstance(value, (Interval, Items)):
        article = "an" if kind_of(value) == "integer" else "a"
        raise fail("SL203", f"`{given.span.text}` is {article} {kind_of(value)}; counts must be {wanted}", given.span,
                   d.root, help=f"-p {given.span.text}=@FILE reads them from a .csv or .json file; in Python they are "
                   "lists or an array" if isinstance(given, t.Name) else None)
    if isinstance(value, Interval):
        if longest(value) != n:
            raise fail("SL205", f"`counts` must be {wanted}, not {longest(value):.0f} integers", given.span, d.root)
        value = as_items(value, 1)
    rows = plain(value)
    if len(shape) == 2:
        fits = len(rows) == n and all(isinstance(r, list) and len(r) == n for r in rows)
        flat: list[Any] = [x for r in rows for x in r] if fits else []
    else:
        fits, flat = len(rows) == n, rows
    if not fits or any(isinstance(x, bool) or not isinstance(x, int) for x in flat):
        raise fail("SL205", f"`counts` must be {wanted}, not {_form(rows)}", given.span, d.root)
    if any(x < 0 for x in flat):
        raise fail("SL205", f"a count is negative: {next(x for x in flat if x < 0)}", given.span, d.root)
    if sum(flat) > (1 << 62):
        raise fail("SL205", "the counts add up to more than 2^62 elements", given.span, d.root)
    return np.array(rows, np.int64).reshape(shape)


def _form(rows: list[Any]) -> str:
    """What a list is, for messages: ``3 lists of 4``, ``4 integers``."""
    sizes = {len(row) if isinstance(row, list) else -1 for row in rows}
    if sizes <= {-1}:
        whole = all(isinstance(x, int) and not isinstance(x, bool) for x in rows)
        return f"{len(rows)} integer{'s' * (len(rows) != 1)}" if whole else "values of another kind"
    return f"{len(rows)} lists of {sizes.pop()}" if len(sizes) == 1 else "lists of different lengths"


def _inplace(d: Declarations, s: t.CollectiveStmt, kind: CollectiveKind) -> bool:
    if s.inplace is not None and s.outofplace:
        raise fail("SL205", "`inplace` and `outofplace` exclude each other", s.span, d.root)
    if kind.family in ("barrier", "custom"):
        if s.inplace is not None or s.outofplace:
            raise fail(
                "SL205",
                f"{kind.name} has no `{'outofplace' if s.outofplace else 'inplace'}` form",
                s.span,
                d.root,
            )
        return kind.family == "barrier" or not any(
            b.name in ("input", "output")
            for d in d.schedule.body
            if isinstance(d, t.BufferStmt)
            for b in d.buffers
        )
    inplace = kind.family == "whole" and not s.outofplace
    if s.inplace is not None:
        value = d.evaluate.boolean(s.inplace, d.root, d.module)
        assert isinstance(value, bool)
        inplace = value
    if inplace and kind.long == "both":
        raise fail("SL205", f"{kind.name} has no `inplace` form: each part of the buffer is sent and received into",
                   s.span, d.root)
    return inplace


def collective_buffers(d: Declarations, c: Collective) -> list[Buffer]:
    """The buffers that a collective brings; those of a custom one are declared. Raises Fail SL205."""
    kind, n, chunks, at_ = COLLECTIVES[c.name], d.ranks, d.chunks, d.statement.span
    declared = next((s.span for s in d.schedule.body if isinstance(s, t.ChunksStmt)), at_)
    if kind.family == "custom":
        return []
    if (kind.family == "barrier" and chunks != 1) or (kind.family == "vector" and chunks != n):
        raise fail(
            "SL205",
            f"{kind.name} has {1 if kind.family == 'barrier' else n} chunks, not {chunks}",
            declared,
            d.root,
            help="leave out the `chunks` line",
        )
    if kind.family == "blocked" and chunks % n:
        raise fail(
            "SL205",
            f"the buffer of {kind.name} is {n} equal blocks, which {chunks} chunks cannot make",
            declared,
            d.root,
            help=f"take a multiple of {n}",
        )
    return list(standard_buffers(c, n, chunks))


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
