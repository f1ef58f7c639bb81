"""A walk over carriers in a legal order, with values of any kind.

What a location holds is a record of 64-bit words. The first is how many contributions have gone into it, each as often
as it was added: a float, exact below ``MANY``, where it stays once it has got there; NaN where the location is
uninitialised, and minus infinity where the value was made from something uninitialised (which is reported once, where
it was read). The other words
belong to the *parts* of the record: what exactly is held is their business.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from schedlang.ir.table import NONE, Array
from schedlang.verify.values.carriers import Carriers
from schedlang.verify.values.conditions import Conditions

BLOCK = 1 << 16
"""So many initial values are set at a time: no large temporaries."""

READ, OPERATE, PASS, PUT, ADD = range(5)
"""The events of a walk: read the source, read the operand, pass on what a receive yields, write, combine."""

SPOILT = -np.inf

MANY = 2.0 ** 53
"""Counts stay here: below it floats count exactly, and a sum that has passed it never comes back."""


class Part(Protocol):
    """Some words of every record."""

    width: int

    def initial(self, contributions: Array) -> Array:
        """The words (n, width) of locations that start with these contributions."""

    def combine(self, into: Array, other: Array) -> None:
        """Reduce ``other`` into ``into``, both (n, width)."""


@dataclass(frozen=True)
class Program:
    """The events of a walk in order: ``batches`` are (event, start, stop) into that event's ``who`` (carriers) and
    ``where`` (locations; for PASS the parents). In one batch no write meets another access to its location."""

    batches: list[tuple[int, int, int]]
    who: tuple[Array, ...]
    where: tuple[Array, ...]
    carriers: Carriers

    @classmethod
    def of(cls, c: Carriers) -> Program:
        reads = _ordered(c.reads, None if c.parent is None else c.source != NONE)
        stores = None if len(c.target) == 0 or int(c.target.min()) != NONE else c.target != NONE
        puts = _ordered(c.lands, _both(~c.adds, stores))
        adds = _ordered(c.lands, _both(c.adds, stores), c.turn)
        none = np.zeros(0, np.int64)
        operates = none if c.operand is None else _ordered(c.operates, c.operand != NONE)
        passes = none if c.parent is None else _ordered(c.passes, c.parent != NONE)
        who = (reads, operates, passes, puts, adds)
        where = (_taken(c.source, reads), none if c.operand is None else c.operand[operates],
                 none if c.parent is None else c.parent[passes], _taken(c.target, puts), _taken(c.target, adds))
        levels = (c.reads, c.operates, c.passes, c.lands, c.lands)
        keys, events, starts, stops = [], [], [], []
        for event, (carriers, level) in enumerate(zip(who, levels, strict=True)):
            if len(carriers) == 0:
                continue
            at = _taken(level, carriers)
            turns = c.turn[carriers] if event == ADD and c.turn is not None else None
            change = np.ones(len(at), bool)
            np.not_equal(at[1:], at[:-1], out=change[1:])
            if turns is not None:
                change[1:] |= turns[1:] != turns[:-1]
            begin = np.flatnonzero(change)
            starts.append(begin)
            stops.append(np.append(begin[1:], len(carriers)))
            turn = turns[begin].astype(np.int64) if turns is not None else np.zeros(len(begin), np.int64)
            keys.append(np.stack([at[begin].astype(np.int64), np.full(len(begin), event), turn]))
            events.append(np.full(len(begin), event))
        if not keys:
            return cls([], who, where, c)
        key = np.concatenate(keys, 1)
        order = np.lexsort(key[::-1])
        columns = (np.concatenate(x)[order].tolist() for x in (events, starts, stops))
        return cls(list(zip(*columns, strict=True)), who, where, c)


def _taken(column: Array, carriers: Array) -> Array:
    """``column[carriers]``, the column itself where these are all carriers in their order."""
    every = len(carriers) == len(column) and bool((carriers[1:] > carriers[:-1]).all())
    return column if every else column[carriers]


def _both(a: Array, b: Array | None) -> Array:
    return a if b is None else a & b


def _ordered(level: Array, chosen: Array | None, turn: Array | None = None) -> Array:
    """The chosen carriers by level, then turn, then position."""
    if chosen is None:
        carriers, key = np.arange(len(level), dtype=np.int32), level
    else:
        carriers = np.flatnonzero(chosen).astype(np.int32)
        key = level[carriers]
    if turn is not None:
        return carriers[np.lexsort((turn[carriers], key))]
    if len(key) and np.any(key[1:] < key[:-1]):
        return carriers[np.argsort(key, kind="stable")]
    return carriers


@dataclass(frozen=True)
class Reads:
    """Reads of uninitialised locations, in the order of the walk: which carrier, and by which event."""

    carrier: Array
    event: Array
    location: Array


class Walk:
    """One walk. ``state`` is (locations, 1 + widths) uint64; see :meth:`run`."""

    def __init__(self, program: Program, parts: Sequence[Part], conditions: Conditions) -> None:
        self.program = program
        self.parts = tuple(parts)
        self.columns: list[slice] = []
        width = 1
        for part in parts:
            self.columns.append(slice(width, width + part.width))
            width += part.width
        self.width = width
        self.state = np.zeros((conditions.locations.total, width), np.uint64)
        count = self.count
        count[:] = np.nan
        for start in range(0, len(conditions.initial_at), BLOCK):
            at = conditions.initial_at[start : start + BLOCK]
            which: Array | slice = at
            if int(at[-1]) - int(at[0]) == len(at) - 1 and bool((at[1:] > at[:-1]).all()):
                which = slice(int(at[0]), int(at[-1]) + 1)
            count[which] = 1.0
            for part, columns in zip(self.parts, self.columns, strict=True):
                self.state[which, columns] = part.initial(conditions.initial[start : start + BLOCK])
        count[conditions.empty] = 0.0           # nothing is there that could be uninitialised
        self._uninitialised: list[tuple[Array, int, Array]] = []

    @property
    def count(self) -> Array:
        """How many contributions each location holds, with their multiplicity."""
        return self.state.view(np.float64)[:, 0]

    def run(self) -> Reads:
        """Walk to the end. Gives the reads of uninitialised locations."""
        program = self.program
        c, record = program.carriers, f"V{8 * self.width}"
        cells = self.state.view(record)[:, 0]
        slots = _slots(c.operand)
        operands = np.zeros((len(program.who[OPERATE]), self.width), np.uint64)
        # Where values land in the level they are read in, only those of one level are under way.
        under_way = np.zeros(0 if c.instant else len(c), record)
        base = 0

        def gather(source: Array, where: Array) -> Array:
            taken: Array = source.take(where).view(np.uint64).reshape(-1, self.width)
            return taken

        for event, start, stop in program.batches:
            who, where = program.who[event][start:stop], program.where[event][start:stop]
            if event == READ:
                read = gather(cells, where)
                self._check(read, READ, who, where)
                if c.instant:
                    under_way, base = read.view(record)[:, 0], start
                else:
                    under_way[who] = read.view(record)[:, 0]
                self.leaving(who, read)
            elif event == OPERATE:
                read = gather(cells, where)
                self._check(read, OPERATE, who, where)
                operands[slots[who]] = read
            elif event == PASS:
                passed = self._yield(gather(under_way, where), where, operands, slots)
                under_way[who] = passed.view(record)[:, 0]
                self.leaving(who, passed)
            else:
                if int(who[-1]) - int(who[0]) == stop - start - 1:
                    at = int(who[0]) - base
                    moved = under_way[at : at + stop - start].view(np.uint64).reshape(-1, self.width)
                else:
                    moved = gather(under_way, who - base)
                if event == PUT:
                    if len(operands):
                        moved = self._yield(moved.copy(), who, operands, slots)
                    stored = moved
                else:
                    old = gather(cells, where)
                    self._check(old, ADD, who, where)
                    stored = self.combine(who, old, moved)
                self.landing(who, where, moved, stored)
                cells[where] = stored.view(record)[:, 0]
        if not self._uninitialised:
            none = np.zeros(0, np.int64)
            return Reads(none, none, none)
        carriers, events, places = zip(*self._uninitialised, strict=True)
        return Reads(np.concatenate(carriers), np.repeat(events, [len(x) for x in carriers]), np.concatenate(places))

    def leaving(self, who: Array, values: Array) -> None:
        """Called when values start on their way; for walks that look at them."""

    def landing(self, who: Array, where: Array, brought: Array, stored: Array) -> None:
        """Called when values land, with what carriers bring and what locations will hold; for walks that look at
        them."""

    def combine(self, who: Array, into: Array, other: Array) -> Array:
        """``into`` with ``other`` reduced into it, in place."""
        count = into.view(np.float64)[:, 0]
        count += other.view(np.float64)[:, 0]
        np.minimum(count, MANY, out=count)
        for part, columns in zip(self.parts, self.columns, strict=True):
            part.combine(into[:, columns], other[:, columns])
        return into

    def _yield(self, values: Array, carriers: Array, operands: Array, slots: Array) -> Array:
        """What receives yield: what arrived, combined with the operand where there is one."""
        if not len(slots):  # no receive has an operand
            return values
        slot = slots[carriers]
        have = np.flatnonzero(slot != NONE)
        if len(have):
            values[have] = self.combine(carriers[have], operands[slot[have]], values[have])
        return values

    def _check(self, read: Array, event: int, who: Array, where: Array) -> None:
        count = read.view(np.float64)[:, 0]
        unset = np.isnan(count)
        if unset.any():
            self._uninitialised.append((who[unset], event, where[unset]))
            count[unset] = SPOILT


def _slots(operand: Array | None) -> Array:
    """Where each carrier's operand is kept while it is under way."""
    if operand is None:
        return np.zeros(0, np.int64)
    slots = np.full(len(operand), NONE, np.int64)
    # In the order of the carriers; only the carriers that have one.
    have = np.flatnonzero(operand != NONE)
    slots[have] = np.arange(len(have))
    return slots


def backwards(program: Program) -> Iterator[tuple[int, Array, Array]]:
    """The batches from the last to the first: (event, carriers, locations or parents)."""
    for event, start, stop in reversed(program.batches):
        yield event, program.who[event][start:stop], program.where[event][start:stop]
