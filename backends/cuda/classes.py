"""Length classes: numbers that say how many elements a chunk of a message has, for whatever element count.

A value keeps its length as it moves, so its class is that of the place where it was at the start
(:mod:`schedlang.running.values`). By the family of the collective a class is

* whole: the chunk of the collective's buffer; blocked: the part within a block, any chunk of the long buffer being as
  good as its part. Classes count modulo ``parts`` here;
* vector with input and output both long (all-to-all): source * ranks + destination; other vectors: the rank whose
  count it is;
* custom, barrier: all lengths are equal; 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedlang.diagnostics import SchedError, error
from schedlang.ir.origin import at_row
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import COLLECTIVES, Op
from schedlang.running.values import Values


@dataclass(frozen=True, eq=False)
class Classes:
    """The classes of all chunks of all rows. Those of row r are ``of[first[r] : first[r] + count[r]]`` (int64).

    ``parts``: two classes that are equal modulo that are one; 0: no two are.
    """

    first: Array
    of: Array
    parts: int

    def consecutive(self, count: Array) -> Array:
        """Which rows have classes that count up by one from chunk to chunk (bool, a row each)."""
        apart = np.diff(self.of, append=0) - 1
        wrong = apart % self.parts != 0 if self.parts else apart != 0
        last = np.cumsum(count)[count > 0] - 1
        wrong[last] = False                             # what follows is another row's
        if not wrong.any():
            return np.ones(len(count), bool)
        before = np.concatenate([[0], np.cumsum(wrong)])
        return np.asarray(before[self.first + count] == before[self.first])


def classes(table: OpTable, values: Values) -> Classes:
    """The classes of a table's rows.

    Raises SchedError (SL403) where a value that nothing has initialised moves, though it has elements.
    """
    kind = COLLECTIVES[table.collective.name]
    origin = values.origin
    if kind.family in ("custom", "barrier"):
        return Classes(values.first, np.zeros(len(origin), np.int64), 1)
    buffer, rank, chunk = values.places.apart(np.maximum(origin, 0))
    if kind.family != "vector":
        parts = table.chunks // (table.ranks if kind.family == "blocked" else 1)
        found, parts = chunk % max(parts, 1), max(parts, 1)
    elif kind.long == "both":
        found, parts = rank * table.ranks + chunk, 0        # values start in inputs
    else:
        long = np.array([b.role in ("data", kind.long) for b in table.buffers])[buffer]
        found, parts = np.where(long, chunk, rank), 0
    nothing = origin == NONE
    if nothing.any():
        counts = table.collective.counts
        empty = np.flatnonzero(counts.ravel() == 0) if counts is not None else np.zeros(0, np.int64)
        if not len(empty):
            row = int(np.searchsorted(values.first, np.argmax(nothing), side="right")) - 1
            raise SchedError(at_row(error("SL403", f"row {row} of {table.name} moves what nothing has written",
                                          help="see what `schedlang verify` says"), table, row))
        found = np.where(nothing, empty[0], found)
    return Classes(values.first, found.astype(np.int64), parts)


def like(table: OpTable, partner: Array, found: Classes) -> Array:
    """The class of each row's first chunk (int64, NONE for rows that move nothing), all rows being consecutive.

    Of equal ones the chunk of the row's place, of its partner's or its source's, where it is one of these: that keeps
    formulas short.
    """
    moving = table.op < Op.RECORD
    own = np.full(len(table), NONE, np.int64)
    own[moving] = found.of[found.first[moving]]
    if found.parts <= 1:
        return own
    fixed = np.array([b.role != "scratch" for b in table.buffers] + [False])    # the last one: no buffer
    other = np.where(partner == NONE, np.arange(len(table)), partner)
    places = [(table.buffer, table.chunk), (table.buffer[other], table.chunk[other]),
              (table.from_buffer, table.from_chunk)]
    for buffer, chunk in reversed(places):
        own = np.where(moving & fixed[buffer] & ((chunk - own) % found.parts == 0), chunk, own)
    return own
