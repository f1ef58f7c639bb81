"""Whether two tables leave the same results, and whether they add them up alike.

Both are walked with the same random elements for the same initial values: results are equal where they hold equal
numbers of contributions and equal sums of elements, and get the same bits where they come from equal trees of additions
(:mod:`schedlang.verify.values.records`). A difference that is found is then replayed exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from schedlang.diagnostics import Note
from schedlang.diff.colours import own_buffers
from schedlang.diff.promises import factors, refined
from schedlang.diff.report import Level
from schedlang.ir.buffers import starts
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.verify import words
from schedlang.verify.agreement import written
from schedlang.verify.matching import match
from schedlang.verify.steps import steps
from schedlang.verify.timing.order import order
from schedlang.verify.values.carriers import carriers
from schedlang.verify.values.conditions import Conditions, conditions
from schedlang.verify.values.explanations import contributions
from schedlang.verify.values.history import History, history
from schedlang.verify.values.records import PRIME, Fingerprints, Trees
from schedlang.verify.values.walk import Program, Walk

SEED = 0x5C4ED


@dataclass(frozen=True)
class Compared:
    """``level``: ``bits`` where all results hold the same, added up alike, ``state`` where they hold the same, else
    ``different``. ``notes``: where they differ first, in words for A and for B. ``results``: how many were compared,
    ``others``: in how many of them the tables differ (in order only, where the level is ``state``). ``doubt`` bounds
    the probability that results which differ were taken for equal."""

    level: Level
    notes: tuple[Note, ...]
    results: int
    others: int
    doubt: float


def compare(a: OpTable, b: OpTable) -> Compared:
    """Hold the results of two tables against each other that promise the same (``promises.unlike``), and of which each
    comes to its end in a settled order. Raises SchedError (SL208) where their chunks have too many parts in common."""
    more = factors(a, b)
    one, other = (_Followed(t, factor) for t, factor in zip((a, b), more, strict=True))
    keys, here, there = np.intersect1d(one.keys, other.keys, return_indices=True)
    lone = np.setxor1d(one.keys, other.keys) if one.custom else keys[:0]
    x, y = one.held(here), other.held(there)
    unset = np.isnan(x.count) & np.isnan(y.count)
    differs = ~unset & ((x.count != y.count) | (x.sums != y.sums))
    doubt = len(keys) / PRIME
    if len(lone):
        # Only one of the two promises something there; the other holds something there all the same, or nothing.
        at = int(lone[0])
        return Compared("different", (one.promise(at, "A"), other.promise(at, "B")), len(keys) + len(lone), len(lone),
                        doubt)
    if differs.any():
        first = int(np.argmax(differs))
        return Compared("different", (one.holds(int(here[first]), "A"), other.holds(int(there[first]), "B")), len(keys),
                        int(differs.sum()), doubt)
    differs = ~unset & (x.trees != y.trees).any(1)
    if differs.any():
        first = int(np.argmax(differs))
        return Compared("state", (one.adds(int(here[first]), "A"), other.adds(int(there[first]), "B")), len(keys),
                        int(differs.sum()), doubt)
    return Compared("bits", (), len(keys), 0, doubt)


@dataclass(frozen=True)
class _Held:
    """What some results hold: how many contributions, the sum of their elements, the tree of their additions."""

    count: Array
    sums: Array
    trees: Array


class _Followed:
    """A table walked to its end, in common parts, with results named alike in every table."""

    def __init__(self, table: OpTable, factor: int) -> None:
        self.table, self.factor = table, factor
        self.custom = table.collective.name == "custom"
        fine = refined(table, factor)
        self.conditions, self.program = _program(fine)
        if self.custom:
            self.conditions = _by_name(fine, self.conditions)
        rng = np.random.default_rng(SEED)
        size = self.conditions.ranks, self.conditions.classes
        self.walk = Walk(self.program, [Fingerprints(*size, rng), Trees(*size, rng)], self.conditions)
        self.walk.run()
        self.keys = self._named() if self.custom else self._expected()

    def _expected(self) -> Array:
        """Results by their rank and by what they must hold, which on one rank is another for each."""
        c = self.conditions
        rank = c.locations.ranks_of(c.results).astype(np.int64)
        return (rank * c.classes + c.expected_class) * (c.ranks + 1) + c.expected_rank + 1

    def _named(self) -> Array:
        """Results by buffer, rank and chunk; the buffers of two tables that can be compared have the same names."""
        buffer, rank, chunk = self.conditions.locations.apart(self.conditions.results)
        names = sorted(self.table.buffers[i].name for i in own_buffers(self.table))
        number = np.array([names.index(b.name) if b.name in names else NONE for b in self.table.buffers], np.int64)
        most = max((self.conditions.locations.buffers[i].chunks for i in own_buffers(self.table)), default=0) + 1
        self._most, self._names = most, names
        keys: Array = (rank.astype(np.int64) * len(names) + number[buffer]) * most + chunk
        return keys

    def held(self, which: Array) -> _Held:
        at = self.conditions.results[which]
        words = self.walk.state[at]
        return _Held(self.walk.count[at], words[:, 1], words[:, 2:4])

    # ---- in words ----------------------------------------------------------------------------------------------------

    @cached_property
    def _whole(self) -> tuple[Conditions, Program]:
        """The table's own chunks, for words."""
        return (self.conditions, self.program) if self.factor == 1 else _program(self.table)

    def _past(self, result: int) -> tuple[str, History, Conditions]:
        """A result in the table's own terms: its name, and how it came to hold what it holds."""
        before, program = self._whole
        buffer, rank, chunk = self.conditions.locations.where(int(self.conditions.results[result]))
        chunk, part = divmod(chunk, self.factor)
        name = f"{self.table.buffers[buffer].name}[{chunk}] on rank {rank}"
        if self.factor > 1:
            name = f"part {part} of {self.factor} of {name}"
        at = before.locations.at(buffer, rank, chunk)
        return name, history(program, before, int(at)), before

    def holds(self, result: int, side: str) -> Note:
        """What a result holds, and who wrote it last."""
        name, past, before = self._past(result)
        held = contributions(before, past.ids(past.value.once))
        if past.value.twice:
            held += f", more than once {contributions(before, past.ids(past.value.twice))}"
        return self._note(f"{side}: {name} holds {held}", past)

    def adds(self, result: int, side: str) -> Note:
        """How a result was added up."""
        name, past, before = self._past(result)
        return self._note(f"{side}: {name} is {written(past.value.tree, before)}", past)

    def _note(self, text: str, past: History) -> Note:
        if not past.writers:
            return Note(text)
        row = int(self._whole[1].carriers.receiver[past.writers[-1]])
        return Note(f"{text}; written last by {words.sentence(self.table, row)}", self.table.origin(row)[0])

    def promise(self, key: int, side: str) -> Note:
        """Whether a location, by its key, is a result of this `custom` collective."""
        rest, chunk = divmod(key, self._most)
        rank, name = divmod(rest, len(self._names))
        chunk, part = divmod(chunk, self.factor)
        where = f"{self._names[name]}[{chunk}] on rank {rank}"
        if self.factor > 1:
            where = f"part {part} of {self.factor} of {where}"
        said = "says what it ends with" if key in self.keys else "does not say what it ends with"
        return Note(f"{side}: {said}: {where}", self.table.collective.location)


def _program(table: OpTable) -> tuple[Conditions, Program]:
    """The events of a table in a legal order."""
    before = conditions(table)
    matched = match(table)
    ill = steps(table, matched.lanes, before)
    return before, Program.of(carriers(table, matched, order(table, matched), before.locations, ill))


def _by_name(table: OpTable, before: Conditions) -> Conditions:
    """Contributions numbered by the names of their buffers, whatever the order in which these are declared."""
    extents = starts(table)
    firsts = np.cumsum([0, *(e.chunks for e in extents)])
    by_name = sorted(range(len(extents)), key=lambda i: table.buffers[extents[i].buffer].name)
    moved = np.zeros(before.classes, np.int64)
    at = 0
    for i in by_name:
        size = extents[i].chunks
        moved[firsts[i] : firsts[i] + size] = np.arange(at, at + size)
        at += size
    part, rank = np.divmod(before.initial, before.ranks)
    return replace(before, initial=moved[part] * before.ranks + rank)
