"""Statements over frames: what each binds, and the rows it makes."""

from __future__ import annotations

from collections.abc import Sequence

from schedlang.expand.ensure import ensure
from schedlang.expand.frame import Fail, Frame
from schedlang.expand.moves import move
from schedlang.expand.rows import Block, Part
from schedlang.expand.statements import CHAN, RANK, STREAM, Statements
from schedlang.expand.used import use
from schedlang.expand.values import POISON, Col
from schedlang.syntax import tree as t


def block(run: Statements, body: Sequence[t.Stmt], frame: Frame, *, in_step: bool = False, step: bool = False) -> Block:
    """The rows of a body. A statement that fails is left out, and the next one is looked at all the same."""
    parts: list[Part] = []
    here, top = frame, frame is run.declared.root
    for i, s in enumerate(body):
        if top:
            run.findings.position = i
        try:
            if isinstance(s, t.Chan):
                chan = run.interned(run.stream(s.name, here))
                here = here.inner()
                here.names[CHAN] = chan
                continue
            if top and isinstance(s, (t.Let, t.Require)):
                continue  # looked at together with the declarations
            part = _statement(run, s, here, in_step or step)
        except Fail as why:
            run.findings.add(why)
            if why.final:
                raise Fail(final=True) from None
            if isinstance(s, t.Let):
                here.names[s.name] = POISON
        else:
            if part is not None:
                parts.append(part)
    return Block(frame, parts, step)


def _statement(run: Statements, s: t.Stmt, frame: Frame, in_step: bool) -> Part | None:
    match s:
        case t.Let():
            frame.names[s.name] = run.evaluate(s.value, frame, run.module)
            frame.lets += (s.name,)
            return None
        case t.Require():
            run.declared.require(s, frame)
            return None
        case t.For():
            values = run.evaluate.list(s.values, frame, run.module)
            inner = run.evaluate.flat(values, s.values.span, frame, s.var)
            return block(run, s.body, inner, in_step=in_step) if inner.n else None
        case t.If():
            return _if(run, s, frame, in_step)
        case t.Step():
            return block(run, s.body, frame.inner(), step=True)
        case t.Stream():
            inner = frame.inner()
            inner.names[STREAM] = run.joined(run.stream(s.name, frame), frame)
            return block(run, s.body, inner, in_step=in_step)
        case t.OnRank():
            inner = frame.inner()
            inner.names[RANK] = run.rank(s.rank, frame)
            return block(run, s.body, inner, in_step=in_step)
        case t.Use():
            return use(run, s, frame)
        case t.Ensure():
            ensure(run, s, frame)
            return None
        case t.Transfer() | t.OwnSend() | t.OwnRecv() | t.Local() | t.EventStmt():
            return move(run, s, frame, in_step)
        case _:
            return None  # a declaration


def _if(run: Statements, s: t.If, frame: Frame, in_step: bool) -> Part | None:
    parts: list[Part] = []
    rest = frame
    for condition, body in s.branches:
        truth = run.evaluate.boolean(condition, rest, run.module)
        if isinstance(truth, Col):
            yes, no = rest.where(truth.data), rest.where(~truth.data)
        elif truth:
            yes, no = rest.inner(), None
        else:
            continue
        if yes.n:
            parts.append(block(run, body, yes, in_step=in_step))
        if no is None or not no.n:
            return Block(frame, parts)
        rest = no
    if s.otherwise:
        parts.append(block(run, s.otherwise, rest.inner(), in_step=in_step))
    return Block(frame, parts)
