"""Operations without which every result is the same and every proof still holds.

An operation is useless where nothing needs the value that it brings: it is stored where nothing reads it, or where it
is already, and nothing passes it on. Rows count as a whole: a row of several chunks of which one is needed is not
useless. Receives that store nothing are never judged: they are there for the order that they make; nor is a world of
one rank, where what serves larger ones has nothing to do.

What is found can go all at once. Values stay the same: a useless store is read by useless operations only, a repeated
one changes nothing. Nothing deadlocks that did not (there is less to wait for). Where a rank has one stream, its order
is its own, so nothing can race; else, since messages make order, the table is tried without them, and messages that are
needed for that are no longer useless (:func:`useless`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedlang.ir.table import NONE, Array, OpTable
from schedlang.verify.collapse import statements
from schedlang.verify.removal import settled, without
from schedlang.verify.sends import Sends
from schedlang.verify.values.conditions import Conditions
from schedlang.verify.values.needs import needs, receivers_without_store
from schedlang.verify.values.walk import Program

TRIED_ROWS = 1 << 18
"""In larger tables with several streams a rank, messages are taken to be needed for their order."""

TRIED_STATEMENTS = 8
"""Where not all messages that look useless can go, those of so many statements are tried one after another."""


@dataclass(frozen=True)
class Useless:
    """Rows (bool, a row each). ``gone``: operations that can be left out, both ends of transfers. ``unstored``:
    receives whose store alone is useless: what they receive is passed on. ``repeated``: of the receives and local
    operations among both, those that bring something that is read, but was there already."""

    gone: Array
    unstored: Array
    repeated: Array

    @property
    def any(self) -> bool:
        return bool(self.gone.any() or self.unstored.any())


def useless(table: OpTable, program: Program, conditions: Conditions, repeats: Array, sends: Sends, *,
            alone: bool) -> Useless | None:
    """What a table that is proved right could do without. ``repeats``: the carriers that :class:`~.repeats.Watched`
    tells. ``alone``: every rank has one stream. None where nothing is found."""
    if table.ranks == 1 or not len(program.carriers) or not len(conditions.results):
        return None
    search = _Search(table, program, conditions, repeats)
    found = search.found(None)
    if not found.any:
        return None
    messages = search.messages(found)
    if alone or not len(messages):
        return found
    if len(table) <= TRIED_ROWS:
        if settled(without(table, found.gone, found.unstored), sends):
            return found
        found = _those_that_can_go(table, search, messages, sends)
    else:
        found = search.found(messages)
    return found if found.any else None


def _those_that_can_go(table: OpTable, search: _Search, messages: Array, sends: Sends) -> Useless:
    """Keep all messages, then try to let those of one statement after another go."""
    keep = messages
    statement = statements(table)[table.site[messages]]
    for one in np.unique(statement)[:TRIED_STATEMENTS].tolist():
        without_one = keep[~np.isin(keep, messages[statement == one])]
        found = search.found(without_one)
        if settled(without(table, found.gone, found.unstored), sends):
            keep = without_one
    return search.found(keep)


class _Search:
    """The search for useless rows; a row is a transfer's receiving row, or a local one."""

    def __init__(self, table: OpTable, program: Program, conditions: Conditions, repeats: Array) -> None:
        self.table, self.program, self.conditions = table, program, conditions
        self.carriers = c = program.carriers
        self.tokens = receivers_without_store(program)
        self.several = int(table.count.max()) > 1
        self.idle: Array | None = None
        if len(repeats):
            idle = np.zeros(len(c), bool)
            idle[repeats] = True
            self.idle = idle & ~self._rows(~idle)[c.receiver]       # all chunks of a row, or none

    def _rows(self, carriers: Array) -> Array:
        """The rows of the given carriers (bool, each)."""
        rows = np.zeros(len(self.table), bool)
        rows[self.carriers.receiver[carriers]] = True
        return rows

    def messages(self, found: Useless) -> Array:
        """The receiving rows of the transfers among what was found to be useless as a whole."""
        c = self.carriers
        return np.unique(c.receiver[found.gone[c.receiver] & (c.sender != c.receiver)])

    def found(self, kept: Array | None) -> Useless:
        """What is useless where the rows ``kept`` are to stay as they are."""
        c, rows = self.carriers, len(self.table)
        moved = self.tokens.copy()
        stored = np.zeros(len(c), bool)
        idle = self.idle
        if kept is not None:
            stay = np.zeros(rows, bool)
            stay[kept] = True
            mine = stay[c.receiver]
            moved |= mine
            stored = mine & (c.target != NONE)
            idle = idle & ~mine if idle is not None else None
        while True:
            need = needs(self.program, self.conditions, idle, moved if moved.any() else None,
                         stored if stored.any() else None)
            if not self.several:
                break
            # A row moves all of its chunks or none, and stores all of them or none.
            whole_moved = self._rows(need.moved)[c.receiver]
            whole_stored = self._rows(need.stored & (c.target != NONE))[c.receiver] & (c.target != NONE)
            if not ((whole_moved & ~need.moved).any() or (whole_stored & ~need.stored).any()):
                break
            moved, stored = moved | whole_moved, stored | whole_stored
        receives = self._rows(~need.moved)
        gone = receives.copy()
        if receives.any():
            gone[c.sender[~need.moved]] = True
        unstored = self._rows(~need.stored) & ~gone
        repeated = np.zeros(rows, bool)
        if idle is not None:
            repeated = self._rows(idle & need.wanted) & (receives | unstored)
        return Useless(gone, unstored, repeated)
