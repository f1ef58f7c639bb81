"""Which values the results depend on: one pass over the carriers, from the end to the beginning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedlang.ir.table import NONE, Array
from schedlang.verify.values.conditions import Conditions
from schedlang.verify.values.walk import ADD, PASS, PUT, Program, backwards


@dataclass(frozen=True)
class Needs:
    """One entry a carrier (bool). ``moved``: something needs the value that it brings. ``stored``: something needs that
    it is stored; also true where nothing is stored. ``wanted``: something reads the place that it writes, whether it
    writes there or not."""

    moved: Array
    stored: Array
    wanted: Array


def needs(program: Program, conditions: Conditions, idle: Array | None = None, moved: Array | None = None,
          stored: Array | None = None) -> Needs:
    """What the results need, and what else is to stay as it is: the values that carriers ``moved`` bring, the stores of
    those in ``stored``. The stores of ``idle`` carriers change nothing, and are taken not to happen. All are bool, one
    entry a carrier; None: of none.

    A reduction needs the value that it is combined with. Places without elements need everything: that they are empty
    depends on the counts.
    """
    c = program.carriers
    alive = np.zeros(conditions.locations.total, bool)
    alive[conditions.results] = True
    empty = np.zeros(0, bool)
    if len(conditions.empty):
        empty = np.zeros(len(alive), bool)
        empty[conditions.empty] = True
    has_moved = np.zeros(len(c), bool) if moved is None else moved.copy()
    has_stored = np.ones(len(c), bool)
    wanted = has_stored if idle is None else np.ones(len(c), bool)
    for event, carriers, where in backwards(program):
        who = _as_slice(carriers)
        if event in (PUT, ADD):
            needed = alive[where]
            if len(empty):
                needed |= empty[where]
            writes = None
            if idle is not None:
                wanted[who] = needed
                if event == PUT:
                    writes = ~idle[who]
                    needed = needed & writes
            if stored is not None:
                needed |= stored[who]
            has_stored[who] = needed
            has_moved[who] |= needed
            if event == PUT:
                alive[where if writes is None else where[writes]] = False
            elif stored is not None:
                alive[where] |= needed
        elif event == PASS:
            has_moved[where[has_moved[who]]] = True
        else:
            reads = has_moved[who]
            alive[where if reads.all() else where[reads]] = True
    return Needs(has_moved, has_stored, wanted)


def _as_slice(carriers: Array) -> Array | slice:
    """The carriers of a batch, which rise, as a slice where they stand side by side: that is cheaper."""
    first, last = int(carriers[0]), int(carriers[-1])
    return slice(first, last + 1) if last - first == len(carriers) - 1 else carriers


def receivers_without_store(program: Program) -> Array:
    """The carriers of messages that are neither stored nor passed on: they are there for the order they make (bool)."""
    c = program.carriers
    tokens: Array = c.target == NONE
    if c.parent is not None:
        tokens[c.parent[c.parent != NONE]] = False
    return tokens
