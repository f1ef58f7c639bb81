"""What is said of useless operations: SL607, a value that nothing needs, and SL608, one that was there already. What
that means is in :mod:`schedlang.verify.useless`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from schedlang.diagnostics import Diagnostic, Note, note, warning
from schedlang.ir.origin import at_row, came_from
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ir.words import chunks_text
from schedlang.ops import Op
from schedlang.source import Location
from schedlang.verify import collapse, words
from schedlang.verify.useless import Useless
from schedlang.verify.values.walk import Program

SHOWN = 16
"""How many statements are described one by one; the last one counts those left out."""


def remarks(table: OpTable, program: Program, found: Useless) -> Iterator[Diagnostic]:
    """A finding for each statement that makes useless operations: a warning, or a note where only some of those that it
    makes bring what was there, and no step could go."""
    c = program.carriers
    rows = np.unique(c.receiver[(found.gone | found.unstored)[c.receiver] & (c.target != NONE)])
    sender = np.full(len(table), NONE, np.int64)
    sender[c.receiver] = c.sender
    statement = collapse.statements(table)[table.site]
    receiving = np.zeros(len(table), bool)
    receiving[c.receiver] = True
    for repeated in (False, True):
        these = rows[found.repeated[rows] == repeated]
        for index, count in collapse.shown(collapse.by_statement(table, these, sender[these]), SHOWN):
            row = int(these[index])
            alike = these[statement[these] == statement[row]]
            made = int((receiving & (statement == statement[row])).sum())
            yield _remark(table, program, found, row, int(sender[row]), count, alike, made)


def _remark(table: OpTable, program: Program, found: Useless, row: int, sender: int, count: int, alike: Array,
            made: int) -> Diagnostic:
    """``alike``: all such rows of the statement; ``made``: how many operations the statement makes."""
    repeated, passed = bool(found.repeated[row]), bool(found.unstored[row])
    c = program.carriers
    buffer, chunk = int(table.buffer[row]), int(table.chunk[row])
    name = f"{chunks_text(table, buffer, chunk, int(table.count[row]))} on rank {int(table.rank[row])}"
    carrier = int(np.flatnonzero(c.receiver == row)[0])
    what, notes = _repeated(table, program, carrier) if repeated else _unread(table, program, carrier)
    all_of_it = len(alike) == made
    steps = _steps(table, found, alike)
    if made > 1:
        which = "all are" if all_of_it else f"{len(alike):,} {'is' if len(alike) == 1 else 'are'}"
        notes.append(Note(f"of the {made:,} operations that this statement makes, {which} useless so"))
    if steps:
        many = f"{steps:,} steps of the schedule do" if steps > 1 else "1 step of the schedule does"
        notes.append(Note(f"{many} nothing else"))
    if passed:
        help = "store nothing: `only` behind the hop that passes it on, as in `then send to q only`"
    elif (at := _idle_use(table, found, alike)) is not None:
        help = f"leave out the `use` in line {at.line}: nothing needs what it does"
    elif all_of_it:
        help = "leave the statement out"
    else:
        help = "let the loop, or a trailing `if`, leave these turns out"
    # That a place gets again what it has, in a step that is needed for others, is often simpler than to prevent it.
    say = note if repeated and not steps and not all_of_it else warning
    return at_row(say(
        "SL608" if repeated else "SL607", f"{name} {what}: {words.operation(table, row)}{came_from(table, row)}",
        notes=notes, help=help, count=count, rows=sorted({row, sender}), rank=int(table.rank[row]),
        buffer=table.buffers[buffer].name, chunk=chunk, statement=all_of_it, steps=steps), table, row, sender)


def _idle_use(table: OpTable, found: Useless, rows: Array) -> Location | None:
    """The outermost `use` statement that brought in all of the rows and, besides, only operations that are useless."""
    statement = collapse.statements(table)

    def above(number: int) -> Iterator[int]:
        """The sites of the `use` statements round a site, innermost first."""
        while (parent := table.sites[number].parent) is not None:
            number = parent[0]
            yield number

    uses = [*above(int(table.site[rows[0]]))]
    moves = (table.op != Op.RECORD) & (table.op != Op.WAIT)
    for use in reversed(uses):
        inside = np.array([any(statement[n] == statement[use] for n in above(k)) for k in range(len(table.sites))])
        if inside[table.site[rows]].all() and found.gone[inside[table.site] & moves].all():
            return table.sites[use].location
    return None


def _steps(table: OpTable, found: Useless, rows: Array) -> int:
    """How many source steps consist of useless operations only, one of the rows among them; 0 where the table does not
    know its steps."""
    if table.number is None:
        return 0
    steps = np.unique(table.number[rows])
    inside = np.isin(table.number, steps)
    busy = np.unique(table.number[inside & ~found.gone])
    return len(np.setdiff1d(steps, busy))


def _repeated(table: OpTable, program: Program, carrier: int) -> tuple[str, list[Note]]:
    """What a carrier does that brings what was there, and where that came from."""
    c = program.carriers
    place, now = int(c.target[carrier]), int(c.lands[carrier])
    before = np.flatnonzero((c.target == place) & (c.lands < now))
    if not len(before):
        return "holds from the start what comes here", []
    first = int(c.receiver[before[np.argmax(c.lands[before])]])
    return "gets again what it holds already", [collapse.note(table, first, "it has it from ")]


def _unread(table: OpTable, program: Program, carrier: int) -> tuple[str, list[Note]]:
    """Why nothing needs what a carrier brings: it is overwritten, or read by useless operations only, or not at all."""
    c = program.carriers
    place, now = int(c.target[carrier]), int(c.lands[carrier])
    over = np.flatnonzero((c.target == place) & (c.lands > now) & ~c.adds)
    over = over[np.argsort(c.lands[over], kind="stable")][:1]
    until = int(c.lands[over[0]]) if len(over) else int(c.lands.max())
    sent = (c.source == place) & (c.reads > now) & (c.reads <= until)
    taken = (c.target == place) & c.adds & (c.lands > now) & (c.lands <= until)
    if c.operand is not None:
        taken |= (c.operand == place) & (c.operates > now) & (c.operates <= until)
    reader = np.flatnonzero(sent | taken)[:1]
    if len(reader):
        row = int(c.receiver[reader[0]] if taken[reader[0]] else c.sender[reader[0]])
        return "is written, and what reads it is useless itself", [collapse.note(table, row, "it is read by ")]
    if len(over):
        by = collapse.note(table, int(c.receiver[over[0]]), "it is overwritten by ")
        return "is written, and overwritten before anything reads it", [by]
    return "is written, and nothing reads it or needs it at the end", []
