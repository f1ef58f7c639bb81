"""How a location came to hold what it holds: exact, and only over the carriers whose values reach it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from schedlang.ir.table import NONE, Array
from schedlang.verify.values.conditions import Conditions
from schedlang.verify.values.records import Traces
from schedlang.verify.values.walk import ADD, OPERATE, PASS, PUT, READ, Program, Walk, backwards

Tree = int | tuple[object, object]
"""A contribution, or two trees added."""


@dataclass(frozen=True)
class Value:
    """``once``: the contributions held at least once, ``twice``: those held more than once, as bits over
    :attr:`History.bits`; ``tree``: how they were added up."""

    once: int = 0
    twice: int = 0
    tree: Tree | None = None

    def plus(self, other: Value) -> Value:
        tree = other.tree if self.tree is None else self.tree if other.tree is None else (self.tree, other.tree)
        return Value(self.once | other.once, self.twice | other.twice | (self.once & other.once), tree)


@dataclass
class History:
    """What one location holds at the end, and how it came there.

    ``contributions``: the number of each bit. ``writers``: the carriers whose values make up the content, from the last
    plain write on. ``moved``: what each carrier of the slice carried. ``copied``: for carriers that read a location,
    which, and whose values made up its content then. ``repeats``: the carriers that added contributions already there,
    in walking order; what they added is still held twice at the end. ``mixes``: all additions: (carrier, old bits,
    added bits).
    """

    location: int
    value: Value = field(default_factory=Value)
    contributions: list[int] = field(default_factory=list)
    writers: list[int] = field(default_factory=list)
    moved: dict[int, Value] = field(default_factory=dict)
    copied: dict[int, tuple[int, list[int]]] = field(default_factory=dict)
    repeats: list[int] = field(default_factory=list)
    mixes: list[tuple[int, int, int]] = field(default_factory=list)

    def ids(self, bits: int) -> list[int]:
        """The contributions of a set of bits, ascending."""
        size = len(self.contributions) // 8 + 1
        flags = np.unpackbits(np.frombuffer(bits.to_bytes(size, "little"), np.uint8), bitorder="little")
        return sorted(self.contributions[k] for k in np.flatnonzero(flags).tolist())

    def bits(self, ids: list[int]) -> int:
        """The bits of contributions; those that never come near the location have none."""
        wanted = set(ids)
        flags = np.array([c in wanted for c in self.contributions], np.bool_)
        return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def history(program: Program, conditions: Conditions, location: int) -> History:
    """Replay what reaches a location."""
    found = History(location)
    starts_with = np.full(conditions.locations.total, NONE, np.int64)
    starts_with[conditions.initial_at] = conditions.initial
    place: dict[int, int] = {}

    def initial(at: int) -> Value:
        contribution = int(starts_with[at])
        if contribution == NONE:
            return Value()
        bit = place.setdefault(contribution, len(place))
        return Value(1 << bit, 0, contribution)

    cells: dict[int, Value] = {}
    operands: dict[int, Value] = {}
    writers: dict[int, list[int]] = {}
    moved = found.moved

    def at(where: int) -> Value:
        if where not in cells:
            cells[where] = initial(where)
        return cells[where]

    def add(carrier: int, old: Value, more: Value) -> Value:
        if old.once & more.once:
            found.repeats.append(carrier)
        found.mixes.append((carrier, old.once, more.once))
        return old.plus(more)

    def arrives(carrier: int) -> Value:
        """What the receive of a carrier yields."""
        if carrier in operands:
            return add(carrier, operands[carrier], moved[carrier])
        return moved[carrier]

    for event, who, where in _slice(program, conditions.locations.total, location):
        for c, w in zip(who.tolist(), where.tolist(), strict=True):
            if event == READ:
                moved[c] = at(w)
                found.copied[c] = w, list(writers.get(w, ()))
            elif event == OPERATE:
                operands[c] = at(w)
            elif event == PASS:
                moved[c] = arrives(w)
            elif event == PUT:
                cells[w] = arrives(c)
                writers[w] = [c]
            else:
                cells[w] = add(c, at(w), moved[c])
                writers.setdefault(w, []).append(c)
    found.value = at(location)
    found.writers = writers.get(location, [])
    found.contributions = list(place)
    return found


def _slice(program: Program, total: int, location: int) -> list[tuple[int, Array, Array]]:
    """The batches, cut down to the events on whose values the location's end depends, in walking order."""
    c = program.carriers
    wanted = np.zeros(total, bool)
    wanted[location] = True
    carried = np.zeros(len(c), bool)
    operated = np.zeros(len(c), bool)
    kept = []
    for event, who, where in backwards(program):
        if event in (PUT, ADD):
            hit = wanted[where]
        elif event == PASS:
            hit = carried[who]
        else:
            hit = carried[who] if event == READ else operated[who]
        if not hit.any():
            continue
        who, where = who[hit], where[hit]
        if event == PUT:
            carried[who] = operated[who] = True
            wanted[where] = False
        elif event == ADD:
            carried[who] = True
        elif event == PASS:
            carried[where] = operated[where] = True
        else:
            wanted[where] = True
        kept.append((event, who, where))
    return kept[::-1]


@dataclass(frozen=True)
class Trail:
    """Where a contribution went: ``last`` the last carrier that brought it somewhere (NONE: it never left its origin),
    ``to`` where; ``lost``: the carrier that then overwrote it there, NONE where it is still held there. ``came``: the
    last carrier that brought it to the rank that was asked for, NONE: none did."""

    last: int
    to: int
    lost: int
    came: int = NONE


class _Tracing(Walk):
    """A walk that watches one contribution."""

    def __init__(self, program: Program, conditions: Conditions, contribution: int, rank: int) -> None:
        super().__init__(program, [Traces(contribution)], conditions)
        self.last, self.to, self.lost, self.came = NONE, conditions.origin(contribution), NONE, NONE
        self.rank, self.ranks_of = rank, conditions.locations.ranks_of

    def landing(self, who: Array, where: Array, brought: Array, stored: Array) -> None:
        held = np.flatnonzero(brought[:, 1])
        if len(held):
            self.last, self.to, self.lost = int(who[held[-1]]), int(where[held[-1]]), NONE
            came = who[held[self.ranks_of(where[held]) == self.rank]]
            if len(came):
                self.came = int(came[-1])
        elif self.lost == NONE:
            over = np.flatnonzero((where == self.to) & (stored[:, 1] == 0))
            if len(over):
                self.lost = int(who[over[-1]])


def trail(program: Program, conditions: Conditions, contribution: int, rank: int = NONE) -> Trail:
    """Follow a contribution through the whole walk, and see whether it comes to a rank."""
    walk = _Tracing(program, conditions, contribution, rank)
    walk.run()
    return Trail(walk.last, walk.to, walk.lost, walk.came)
