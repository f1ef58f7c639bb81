"""No operation reads memory that nothing has written."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from schedlang.diagnostics import Diagnostic, Note, error
from schedlang.ir.origin import at_row, came_from
from schedlang.ir.table import NONE, OpTable
from schedlang.verify import collapse, words
from schedlang.verify.values.conditions import Conditions
from schedlang.verify.values.nearby import nearby
from schedlang.verify.values.walk import ADD, READ, Program, Reads

SHOWN = 16
"""So many statements that read too early are described one by one; the last one counts those left out."""


def uninitialised(table: OpTable, program: Program, conditions: Conditions, reads: Reads) -> Iterator[Diagnostic]:
    """SL403 for each statement that reads uninitialised locations."""
    if len(reads.carrier) == 0:
        return
    c = program.carriers
    rows = np.where(reads.event == READ, c.sender[reads.carrier], c.receiver[reads.carrier]).astype(np.int64)
    # Rows of several chunks, and a fused receive whose operand is read twice, count once.
    rows, first = np.unique(rows, return_index=True)
    order = np.argsort(first, kind="stable")
    rows, first = rows[order], first[order]
    for index, count in collapse.shown(collapse.by_statement(table, rows), SHOWN):
        row, place = int(rows[index]), int(reads.location[first[index]])
        name = conditions.locations.name(place)
        adds = int(reads.event[first[index]]) == ADD
        writers = np.flatnonzero(c.target == place)
        writers = writers[c.receiver[writers] != row]
        notes, near = [], NONE
        if len(writers):
            later = int(c.receiver[writers[np.argmin(c.lands[writers])]])
            together = (table.rank[later], table.stream[later], table.step[later]) == (
                table.rank[row], table.stream[row], table.step[row])
            when = "in the same step, and a step reads before it writes" if together else "only later"
            notes.append(collapse.note(table, later, f"it is written {when}: "))
        elif not adds:
            there, near = nearby(table, program, conditions, place, int(c.reads[reads.carrier[first[index]]]))
            notes += [Note("no operation writes it"), *there]
        what = "has no value yet to add to" if adds else "is read before anything has written it"
        said = came_from(table, row)
        yield at_row(error(
            "SL403", f"{name} {what}: {words.operation(table, row)}{said}",
            notes=notes, count=count, rows=[row], place=list(conditions.locations.where(place)),
            help="let the first value come by `copy` or `send`, and reduce from the second on" if adds
            else "write it in an earlier step, or read another place"), table, row, near)


