"""A schedule with values for its parameters, expanded to a table; and those it uses, each once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from schedlang.diagnostics import Diagnostic, Note, SchedError, Severity
from schedlang.expand import structure
from schedlang.expand.block import block
from schedlang.expand.declare import Declarations, Root
from schedlang.expand.ensure import check_once
from schedlang.expand.evaluate import Evaluator
from schedlang.expand.frame import Fail, Frame, fail, shown_all
from schedlang.expand.parameters import bound
from schedlang.expand.program import Kept, Module
from schedlang.expand.rows import columns
from schedlang.expand.statements import CHAN, STREAM, Statements
from schedlang.expand.values import Value, at, key
from schedlang.ir.legal.blocks import BLOCK
from schedlang.ir.origin import used_note
from schedlang.ir.place import by_number, fork_join
from schedlang.ir.table import NONE, OpTable, constant
from schedlang.syntax import tree as t

MAX_USES = 64
"""How deep schedules may use each other."""

KEPT_ROWS = 1 << 14
"""Up to so many rows the table of a used schedule is kept for further sizes; more are made anew sooner than moved."""

KEPT = 1 << 10
"""So many tables of used schedules are kept for one program."""


class Failed(Exception):
    """A schedule cannot be expanded: why."""

    def __init__(self, findings: list[Diagnostic]) -> None:
        super().__init__(findings[0].message if findings else "")
        self.findings = findings


class Expansions:
    """All expansions of one call: they share their limits and their results. ``shared``: tables of other calls, too."""

    def __init__(self, max_ops: int, alone: bool = False) -> None:
        """``alone``: nothing is taken that other sizes have made."""
        self.alone, self.shared = alone, False
        self.evaluate = Evaluator(max_ops)
        self.warnings: list[Diagnostic] = []
        self._warned: set[int] = set()
        self._tables: dict[Any, OpTable | None] = {}
        self._stack: list[tuple[Any, str]] = []
        self._looked_at: list[tuple[t.Schedule, Module]] = []
        self._deepest = 0

    def table(self, schedule: t.Schedule, module: Module, given: dict[str, Value], op: str | None = None) -> OpTable:
        """The table of a schedule. Raises Failed."""
        self.check(schedule, module)
        try:
            names = bound(schedule, module, self.evaluate, given)
            return self._build(schedule, module, names, op)
        except Fail as why:
            raise Failed(list(why.findings)) from None

    def check(self, schedule: t.Schedule, module: Module) -> None:
        """Looks at the text of a schedule, once. Raises Failed."""
        self._looked_at.append((schedule, module))
        if schedule.name not in module.checked:
            module.checked[schedule.name] = structure.check(schedule, module)
        found = module.checked[schedule.name]
        if id(schedule) not in self._warned:
            self._warned.add(id(schedule))
            self.warnings += [d for d in found if d.severity < Severity.ERROR]
        errors = [d for d in found if d.severity == Severity.ERROR]
        if errors:
            raise Failed(errors)

    def _build(self, schedule: t.Schedule, module: Module, names: dict[str, Value], op: str | None) -> OpTable:
        params = {p.name: at(names[p.name], 0) for p in schedule.params if p.name != "ranks"}
        root = Root(names)
        root.names[STREAM], root.names[CHAN] = 0, NONE
        declared = Declarations(schedule, module, self.evaluate, root, op)
        try:
            declared.run()
        except Fail as why:
            declared.findings.add(why)
            raise Failed(declared.findings.ordered()) from None
        if not declared.whole or declared.collective is None:
            raise Failed(declared.findings.ordered())
        ranks, chunks = declared.ranks, declared.chunks
        run = Statements(declared, module, self.evaluate, self)
        try:
            made = block(run, schedule.body, root)
            run.finish()
            check_once(run)
        except Fail as why:
            declared.findings.add(why)
        if declared.findings:
            raise Failed(declared.findings.ordered())
        filled: dict[str, Any] = columns(made, ranks, len(run.streams))
        streams = _used_streams(run, filled)
        collective = replace(declared.collective, ensures=run.ensures.made(),
                             counts_read=declared.counts_read or run.counts_read)
        return OpTable(
            name=schedule.name,
            ranks=ranks,
            params=params,
            collective=collective,
            chunks=chunks,
            buffers=tuple(run.buffers),
            streams=streams,
            events=tuple(e for e, _ in run.events),
            event_indices=tuple(i for _, i in run.events),
            sites=tuple(run.sites),
            location=schedule.name_span,
            **filled,
        )

    # ---- use -------------------------------------------------------------------------------------------------------

    def used(self, schedule: t.Schedule, module: Module, given: dict[str, Value], s: t.Use, frame: Frame) -> OpTable:
        """The table that a `use` places: reversed where it says so, its own streams tied to the stream it is used in.

        Raises Fail; what is wrong inside the schedule is reported once, with the first `use` that leads there.
        """
        name = (id(schedule), *sorted((k, key(v)) for k, v in given.items()))
        form = (*name, s.reversed)
        keys = [known for known, _ in self._stack]
        if name in keys:
            circle = [called for _, called in self._stack[keys.index(name):]]
            raise fail(
                "SL209",
                "schedules use each other in a circle: " + " uses ".join([*circle, schedule.name]),
                s.span,
                frame,
                final=True,
            )
        if form not in self._tables:
            self._tables[form] = None
            kept = self._kept(module, form)
            self._tables[form] = kept if kept is not None else self._made(schedule, module, given, name, s, frame)
        table = self._tables[form]
        if table is None:
            raise Fail()
        return table

    def _kept(self, module: Module, form: Any) -> OpTable | None:
        """The table that another size has made, if it has. What it cost there counts here, too; it may be more than
        here, where functions have been called alike before, so who fails is tried again alone."""
        kept = module.program.kept.get((form, self.evaluate.max_ops))
        if self.alone or kept is None or len(self._stack) + kept.deep > MAX_USES:
            return None
        self.shared = True
        self.evaluate.turns += kept.turns
        self.evaluate.calls.count += kept.calls
        self._deepest = max(self._deepest, len(self._stack) + kept.deep)
        for schedule, place in kept.looked_at:
            self.check(schedule, place)
        return kept.table

    def _made(self, schedule: t.Schedule, module: Module, given: dict[str, Value], name: Any, s: t.Use,
              frame: Frame) -> OpTable:
        """The table, made here, and kept for other sizes."""
        turns, calls, looked_at = self.evaluate.turns, self.evaluate.calls.count, len(self._looked_at)
        deepest, self._deepest = self._deepest, len(self._stack)
        table = self._expanded(schedule, module, given, name, s, frame)
        deep = self._deepest - len(self._stack)
        self._deepest = max(deepest, self._deepest)
        kept = module.program.kept
        if len(table) <= KEPT_ROWS and len(kept) < KEPT:
            kept[(*name, s.reversed), self.evaluate.max_ops] = Kept(
                table, self.evaluate.turns - turns, self.evaluate.calls.count - calls, deep,
                tuple(self._looked_at[looked_at:]))
        return table

    def _expanded(self, schedule: t.Schedule, module: Module, given: dict[str, Value], name: Any, s: t.Use,
                  frame: Frame) -> OpTable:
        if len(self._stack) >= MAX_USES:
            raise fail("SL209", f"schedules use each other more than {MAX_USES} deep", s.span, frame, final=True,
                       help="does the recursion end for these arguments?")
        self._stack.append((name, schedule.name))
        self._deepest = max(self._deepest, len(self._stack))
        try:
            table = self.table(schedule, module, given)
            if s.reversed:
                from schedlang.ir.legal import check
                from schedlang.ir.reverse import reverse

                faults = [d for d in check(table) if d.severity == Severity.ERROR]
                if faults:
                    raise Failed(faults)
                table = by_number(reverse(table))
        except Failed as why:
            raise self._outside(why.findings, schedule, given, s, frame) from None
        except SchedError as why:
            raise Fail(*(_no_reverse(d, s, frame) for d in why.diagnostics)) from None
        finally:
            self._stack.pop()
        return fork_join(table)

    @staticmethod
    def _outside(
        findings: list[Diagnostic], schedule: t.Schedule, given: dict[str, Value], s: t.Use, frame: Frame
    ) -> Fail:
        """Findings inside a used schedule, as seen from the `use`."""
        note = used_note(schedule.name, shown_all(given), frame.loop_values(0), s.span)
        return Fail(*(replace(d, notes=(*d.notes, note)) for d in findings))


def _no_reverse(d: Diagnostic, s: t.Use, frame: Frame) -> Diagnostic:
    """Why there is no reverse, at the `use` that asks for it: the schedule itself may be without fault."""
    there = Note("this operation stands in the way", d.location)
    loops, = fail(d.code, d.message, s.span, frame).findings
    return replace(d, location=s.span, notes=(there, *d.notes, *loops.notes))


def _used_streams(run: Statements, filled: dict[str, Any]) -> tuple[str, ...]:
    """The names of the streams that occur; the columns are renumbered to match."""
    names = list(run.streams)
    rows = len(filled["stream"])
    used = np.zeros(len(names) + 1, np.bool_)
    one = filled["chan"] is filled["stream"]
    columns = ("stream",) if one else ("stream", "chan")
    for column in columns:
        cells = filled[column]
        for start in range(0, min(rows, 1) if cells.strides == (0,) else rows, BLOCK):
            block = cells[start : start + BLOCK]
            first = int(block[0])
            used[first if (block == first).all() else block] = True       # NONE is the last one
    used = used[:-1]
    if used.all() or not rows:
        return tuple(names) if rows else ()
    new = np.full(len(names) + 1, NONE, np.int32)
    new[:-1][used] = np.arange(int(used.sum()), dtype=np.int32)
    for column in columns:
        cells = filled[column]
        filled[column] = constant(int(new[cells[0]]), rows) if cells.strides == (0,) else new[cells]
    if one:
        filled["chan"] = filled["stream"]
    return tuple(n for n, u in zip(names, used.tolist(), strict=True) if u)
