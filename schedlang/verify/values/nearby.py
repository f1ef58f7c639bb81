"""What is written near a location that nothing writes: the operation that should have written it may be there."""

from __future__ import annotations

import numpy as np

from schedlang.diagnostics import Note
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.verify import collapse
from schedlang.verify.values.conditions import Conditions
from schedlang.verify.values.walk import Program


def nearby(table: OpTable, program: Program, conditions: Conditions, location: int,
           level: int | None = None) -> tuple[list[Note], int]:
    """A note on the nearest location that is written, and the row that writes it last; before a level, where one is
    given and something is: in the same buffer of the rank, first of all one that nothing makes use of; else the same
    chunk on another rank. No note and NONE where there is neither."""
    if level is not None:
        found = _nearby(table, program, conditions, location, program.carriers.lands < level)
        if found[1] != NONE:
            return found
    return _nearby(table, program, conditions, location, np.ones(len(program.carriers), bool))


def _nearby(table: OpTable, program: Program, conditions: Conditions, location: int,
            early: Array) -> tuple[list[Note], int]:
    places, target = conditions.locations, program.carriers.target
    buffer, rank, chunk = places.where(location)
    described = places.buffers[buffer]
    early = early & (target != NONE)
    written = np.zeros(places.total, bool)
    written[target[early]] = True
    first = location - chunk
    here = first + np.flatnonzero(written[first : first + described.chunks])
    idle = here[~_used(program, conditions)[here]] if len(here) else here
    if len(idle):
        place = _nearest(idle, location)
        said = f"nothing makes use of what is written into {described.name}[{place - first}] there: "
    elif len(here):
        place = _nearest(here, location)
        said = f"nearest to it, {described.name}[{place - first}] is written by "
    elif described.only is None:
        column = places.at(buffer, np.arange(table.ranks), chunk)
        ranks = np.flatnonzero(written[column])
        if not len(ranks):
            return [], NONE
        other = _nearest(ranks, rank)
        place, said = int(column[other]), f"on rank {other} it is written by "
    else:
        return [], NONE
    writers = np.flatnonzero(early & (target == place))
    row = int(program.carriers.receiver[writers[np.argmax(program.carriers.lands[writers])]])
    return [collapse.note(table, row, said)], row


def _used(program: Program, conditions: Conditions) -> Array:
    """Which locations are read or results."""
    used = np.zeros(conditions.locations.total, bool)
    used[conditions.results] = True
    for read in (program.carriers.source, program.carriers.operand):
        if read is not None:
            used[read[read != NONE]] = True
    return used


def _nearest(numbers: Array, to: int) -> int:
    return int(numbers[np.argmin(np.abs(numbers - to))])
