"""What can be said of a schedule without values: where statements may stand, and that every name is bound.

Names are lexical, so this look at the text finds them all, also in code that no size reaches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from schedlang.diagnostics import Diagnostic, Note, error
from schedlang.expand.collective import operator_hint
from schedlang.expand.frame import Fail
from schedlang.expand.parameters import used_too_early
from schedlang.expand.program import Module, did_you_mean
from schedlang.expand.remarks import Named, remarks
from schedlang.expand.walk import children
from schedlang.ops import BUILTINS, COLLECTIVES, REDUCE_OPS
from schedlang.source import Span
from schedlang.syntax import tree as t

_DECLARATIONS = (t.CollectiveStmt, t.RanksStmt, t.ChunksStmt, t.BufferStmt, t.VerifyStmt)
_WORDS: dict[type, str] = {
    t.CollectiveStmt: "collective", t.RanksStmt: "ranks", t.ChunksStmt: "chunks", t.BufferStmt: "buffer",
    t.VerifyStmt: "verify", t.Ensure: "ensure", t.Use: "use", t.Step: "step", t.OnRank: "on"}


@dataclass(frozen=True)
class _Inside:
    """What a statement stands in."""

    top: bool = True
    step: bool = False
    on: bool = False
    stream: bool = False


@dataclass
class _Checker:
    module: Module
    schedule: t.Schedule
    params: frozenset[str]
    collective: str | None = None
    findings: list[Diagnostic] = field(default_factory=list)
    named: Named = field(default_factory=Named)

    def say(self, code: str, message: str, span: Span, help: str | None = None, notes: Iterable[Note] = ()) -> None:
        self.findings.append(error(code, message, span, help=help, notes=tuple(notes)))

    # ---- names -----------------------------------------------------------------------------------------------------

    def expr(self, node: t.Expr | None, scope: frozenset[str]) -> None:
        if node is None:
            return
        if isinstance(node, t.Name):
            self.named.read.add(node.id)
            if node.id not in scope and node.id not in REDUCE_OPS:
                hint = did_you_mean(node.id, sorted(scope))
                if node.id in ("True", "False"):
                    hint = f"write `{node.id.lower()}`"
                elif node.id in BUILTINS or node.id in self.module.functions:
                    hint = f"`{node.id}` is a function: call it, `{node.id}(...)`"
                self.say("SL201", f"nothing here is called `{node.id}`", node.span, hint)
        elif isinstance(node, t.Comp):
            self.expr(node.source, scope)
            inner = scope | {node.var}
            self.expr(node.condition, inner)
            self.expr(node.element, inner)
        else:
            if isinstance(node, t.Call):
                self.call(node)
            for child in children(node):
                self.expr(child, scope)

    def call(self, node: t.Call) -> None:
        given = len(node.arguments)
        if node.function in BUILTINS:
            builtin = BUILTINS[node.function]
            fits = given >= builtin.arity if builtin.variadic else given == builtin.arity
            wanted = ("at least " if builtin.variadic else "") + str(builtin.arity)
        else:
            try:
                params = self.module.function(node.function, node.span).tree.params
            except Fail as why:
                self.findings += why.findings
                return
            fits, wanted = given == len(params), str(len(params))
        if not fits:
            self.say("SL203", f"`{node.function}` takes {wanted} argument{'s' if wanted != '1' else ''}, and here "
                     + (f"are {given}" if given != 1 else "is 1"), node.span)

    def forgotten_counts(self, s: t.CollectiveStmt, i: int, scope: frozenset[str]) -> bool:
        """Says that the i-th argument are counts which would have to be a parameter, where that is so."""
        given, value = s.arguments[i], s.arguments[i].value
        known = COLLECTIVES[s.name].arguments if s.name in COLLECTIVES else ()
        role = given.name if given.name is not None else known[i] if i < len(known) else None
        if role != "counts" or not isinstance(value, t.Name) or value.id in scope or did_you_mean(
                value.id, sorted(self.params)):
            return False
        params = self.schedule.params
        header = [p.name for p in params if p.default is None] + [value.id]
        header += [f"{p.name}={p.default.span.text}" for p in params if p.default is not None]
        self.say("SL201", f"nothing here is called `{value.id}`", value.span,
                 f"counts come from outside, as a parameter: `schedule {self.schedule.name}({', '.join(header)}):`")
        return True

    def loc(self, loc: t.Loc | None, scope: frozenset[str]) -> None:
        if loc is not None:
            self.named.buffers.add(loc.buffer)
            self.expr(loc.start, scope)
            self.expr(loc.stop, scope)

    def fresh(self, name: str, span: Span, scope: frozenset[str]) -> None:
        if name in scope:
            self.say("SL202", f"`{name}` is bound already; a name keeps its value to the end of its block", span,
                     "give this one another name")

    # ---- statements ------------------------------------------------------------------------------------------------

    def block(self, body: tuple[t.Stmt, ...], scope: frozenset[str], inside: _Inside) -> None:
        for statement in body:
            if isinstance(statement, t.Let):
                self.expr(statement.value, scope)
                self.fresh(statement.name, statement.span, scope)
                scope = scope | {statement.name}
            else:
                self.statement(statement, scope, inside)

    def statement(self, s: t.Stmt, scope: frozenset[str], inside: _Inside) -> None:
        self.place(s, inside)
        self.expr(getattr(s, "condition", None), scope)
        self.named.statement(s)
        match s:
            case t.CollectiveStmt():
                reduces = s.name in COLLECTIVES and COLLECTIVES[s.name].reduces
                self.named.read |= {a.value.id for a in s.arguments if isinstance(a.value, t.Name)}
                for i, a in enumerate(s.arguments):
                    # a bare word there is an operator, and the collective knows which there are
                    if not (
                        reduces and isinstance(a.value, t.Name) and (a.name == "op" or (a.name is None and i == 0))
                    ) and not self.forgotten_counts(s, i, scope):
                        self.expr(a.value, scope)
                self.expr(s.inplace, scope)
            case t.RanksStmt() | t.ChunksStmt():
                self.expr(s.value, scope)
            case t.BufferStmt():
                for b in s.buffers:
                    self.expr(b.chunks, scope)
            case t.VerifyStmt():
                self.findings += used_too_early(s, self.params)
                earlier: frozenset[str] = frozenset()
                for r in s.ranges:
                    self.expr(r.values, earlier | self.params)
                    if r.name in earlier:
                        self.say("SL202", f"`{r.name}` has its values on this line already", r.span,
                                 f"put them together, as a range or a list: `{r.name} in [2, 3, 5]`")
                    earlier = earlier | {r.name}
            case t.Transfer():
                self.loc(s.what, scope)
                for e in (s.source, s.target):
                    self.expr(e, scope)
                self.loc(s.into, scope)
                self.forwards(s.forwards, scope)
            case t.OwnSend():
                self.loc(s.what, scope)
                self.expr(s.target, scope)
            case t.OwnRecv():
                self.loc(s.what, scope)
                self.expr(s.source, scope)
                self.loc(s.into, scope)
                self.forwards(s.forwards, scope)
                self.own_forwards(s)
            case t.Local():
                self.loc(s.what, scope)
                self.loc(s.into, scope)
                self.expr(s.rank, scope)
            case t.EventStmt():
                for e in s.event.indices:
                    self.expr(e, scope)
                self.expr(s.rank, scope)
            case t.Chan():
                self.stream_name(s.name, scope)
            case t.Use():
                self.use(s, scope)
            case t.Ensure():
                self.ensure(s, scope)
            case _:
                self.compound(s, scope, inside)

    def compound(self, s: t.Stmt, scope: frozenset[str], inside: _Inside) -> None:
        nested = replace(inside, top=False)
        match s:
            case t.For():
                self.expr(s.values, scope)
                self.fresh(s.var, s.span, scope)
                self.block(s.body, scope | {s.var}, nested)
            case t.If():
                for condition, body in s.branches:
                    self.expr(condition, scope)
                    self.block(body, scope, nested)
                self.block(s.otherwise, scope, nested)
            case t.Step():
                self.block(s.body, scope, replace(nested, step=True))
            case t.Stream():
                symbol = self.stream_name(s.name, scope)
                with self.named.stream(symbol):
                    self.block(s.body, scope, replace(nested, stream=True))
            case t.OnRank():
                self.expr(s.rank, scope)
                self.block(s.body, scope, replace(nested, on=True))

    def forwards(self, forwards: tuple[t.Forward, ...], scope: frozenset[str]) -> None:
        for f in forwards:
            self.expr(f.target, scope)
            self.loc(f.into, scope)

    def own_forwards(self, s: t.OwnRecv) -> None:
        if len(s.forwards) > 1:
            self.say("SL204", "a receive in the rank's own view is sent on once", s.forwards[1].span,
                     "what happens at the next rank stands in that rank's own view")
        if s.forwards and s.forwards[0].into is not None:
            self.say("SL204", "where the next rank puts it is that rank's business in the rank's own view",
                     s.forwards[0].into.span, "leave out the `into`")
        if s.into is not None and s.forwards and s.forwards[0].only:
            self.say("SL204", "with `only` this rank stores nothing, so there is no place to put it", s.into.span,
                     "leave out the `into` or the `only`")

    def stream_name(self, name: t.StreamName, scope: frozenset[str]) -> t.Name | None:
        """Looks at the name of a stream; gives it where it is a symbol."""
        self.expr(name.index, scope)
        if isinstance(name.base, t.Name) and name.base.id not in scope:
            self.named.streams.setdefault(name.base.id, []).append(name.base.span)
            return name.base
        self.expr(name.base, scope)
        return None

    def use(self, s: t.Use, scope: frozenset[str]) -> None:
        try:
            self.module.schedule(s.schedule, s.span)
        except Fail as why:
            self.findings += why.findings
        for a in s.arguments:
            self.expr(a.value, scope)
        self.expr(s.on, scope)
        for b in s.bindings:
            self.loc(b.outer, scope)

    def ensure(self, s: t.Ensure, scope: frozenset[str]) -> None:
        self.loc(s.what, scope)
        self.expr(s.rank, scope)
        self.loc(s.value.what, scope)
        if isinstance(s.value, t.EnsureOne):
            self.expr(s.value.rank, scope)
        else:
            self.expr(s.value.ranks, scope)
            if s.value.op not in REDUCE_OPS:
                self.say("SL205", f"`{s.value.op}` is no reduction operator", s.value.span,
                         operator_hint(s.value.op))

    # ---- places ----------------------------------------------------------------------------------------------------

    def place(self, s: t.Stmt, inside: _Inside) -> None:
        word = _WORDS.get(type(s), "")
        if isinstance(s, _DECLARATIONS):
            if not inside.top:
                self.say("SL204", f"`{word}` describes the whole schedule and stands directly under its header", s.span)
        elif isinstance(s, t.Ensure):
            if self.collective not in (None, "custom"):
                self.say(
                    "SL204",
                    f"`ensure` is the postcondition of a custom collective; {self.collective} has its own",
                    s.span,
                )
            elif inside.step or inside.on:
                self.say(
                    "SL204",
                    "`ensure` speaks of the end of the schedule and stands in no step and no rank's own view",
                    s.span,
                )
        elif isinstance(s, (t.Step, t.Use)):
            if inside.step:
                self.say("SL204", f"`{word}` cannot stand inside a `step`", s.span,
                         "a step is posted all at once; end it before this line")
            elif inside.on and isinstance(s, t.Use):
                self.say("SL204", "`use` cannot stand inside `on`: a schedule is for several ranks", s.span)
        elif isinstance(s, t.Chan):
            if not inside.stream:
                self.say("SL204", "`chan` names the connections of a stream and stands inside one", s.span,
                         "put it under `stream NAME:`, before the transfers it is for")
        elif isinstance(s, t.OnRank):
            if inside.on:
                self.say("SL204", "`on` inside `on`: one rank's own view has no other rank's", s.span)
        elif isinstance(s, t.Transfer):
            if inside.on:
                self.say(
                    "SL204",
                    f"`{s.kind} ... from ... to` pairs two ranks and cannot stand in one rank's own view",
                    s.span,
                    f"write `{s.kind} ... {'to' if s.kind == 'send' else 'from'}` for this rank's part of it",
                )
        elif isinstance(s, (t.OwnSend, t.OwnRecv)):
            if not inside.on:
                kind = "send" if isinstance(s, t.OwnSend) else s.kind
                self.say("SL204", f"`{kind}` with one rank stands in a rank's own view only", s.span,
                         "put it under `on RANK:`, or name both ranks: `from ... to ...`")
        elif isinstance(s, (t.Local, t.EventStmt)):
            if isinstance(s, t.EventStmt) and inside.step:
                self.say("SL204", f"`{s.kind}` is a step by itself and cannot stand inside a `step`", s.span)
            if inside.on and s.rank is not None:
                self.say(
                    "SL204",
                    f"`{s.kind} ... on` inside `on`: the rank is given already",
                    s.span,
                    "leave out the `on ...`",
                )
            elif not inside.on and s.rank is None:
                self.say("SL204", f"`{s.kind}` does not say on which rank", s.span, "add `on RANK`")


def check(schedule: t.Schedule, module: Module) -> list[Diagnostic]:
    """What is wrong with the text of a schedule, whatever its parameters: SL201 to SL205; as warnings SL601, SL605 and
    SL609 to SL612."""
    checker = _Checker(module, schedule, frozenset(p.name for p in schedule.params))
    for function in module.functions.values():
        checker.expr(function.tree.value, frozenset(function.tree.params))
        _distinct(checker, "parameter", [(p, function.tree.span) for p in function.tree.params])
    checker.named = Named()             # no function reads the names of the schedule
    scope = {"ranks", "chunks"}
    _distinct(checker, "parameter", [(p.name, p.span) for p in schedule.params])
    earlier: set[str] = set()
    for p in schedule.params:
        checker.expr(p.default, frozenset(earlier))
        earlier.add(p.name)
    one = _declared_once(checker, schedule)
    for s in one:
        if isinstance(s, t.CollectiveStmt):
            checker.collective = s.name if s.name in COLLECTIVES else None
    checker.block(schedule.body, frozenset(scope | earlier), _Inside())
    return checker.findings + remarks(schedule, checker.named, whole=not checker.findings)


def _distinct(checker: _Checker, what: str, names: list[tuple[str, Span]]) -> None:
    seen: set[str] = set()
    for name, span in names:
        if name in seen:
            checker.say("SL202", f"two {what}s are called `{name}`", span)
        seen.add(name)


def _declared_once(checker: _Checker, schedule: t.Schedule) -> list[t.Stmt]:
    """The declarations that a schedule has once, checked: one collective; ranks, chunks and verify at most once."""
    first: dict[type, t.Stmt] = {}
    for s in schedule.body:
        if isinstance(s, (t.CollectiveStmt, t.RanksStmt, t.ChunksStmt, t.VerifyStmt)):
            if type(s) in first:
                checker.say("SL205", f"a second `{_WORDS[type(s)]}`", s.span,
                            notes=[Note("the first is here", first[type(s)].span)])
            first.setdefault(type(s), s)
    if t.CollectiveStmt not in first:
        checker.say("SL205", f"schedule `{schedule.name}` does not say what it implements", schedule.name_span,
                    "add a line such as `collective allreduce(sum)`")
    if t.RanksStmt not in first and all(p.name != "ranks" for p in schedule.params):
        checker.say("SL205", f"schedule `{schedule.name}` does not say how many ranks it is for", schedule.name_span,
                    "give it a parameter `ranks`, or add a line such as `ranks nodes * gpus`")
    return list(first.values())
