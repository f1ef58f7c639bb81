"""The postcondition: every result holds each contribution exactly once, none missing, none twice, none foreign.

One walk over the carriers in a legal order decides it: by names where nothing is reduced, by sets where they are small
enough, else by fingerprints (records.py). An explanation is always exact: it replays what reaches the location.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from schedlang.diagnostics import Diagnostic
from schedlang.ir.table import NONE, Array, OpTable, spaced
from schedlang.verify.agreement import Agreement, compare
from schedlang.verify.initialisation import uninitialised
from schedlang.verify.values.conditions import Conditions
from schedlang.verify.values.explanations import FOREIGN, MISSING, REPEATED, Wrong, explain
from schedlang.verify.values.records import PRIME, Fingerprints, Names, Sets, Trees, bits
from schedlang.verify.values.repeats import Watched
from schedlang.verify.values.walk import SPOILT, Program, Walk

Method = Literal["names", "sets", "fingerprints"]

STATE_LIMIT = 64 << 20
"""How many bytes the sets of all locations may take before fingerprints stand in for them."""
BLOCK = 1 << 18
"""So many results are looked at together."""
TRAFFIC_LIMIT = 512 << 20
"""How many bytes of sets may be moved in one walk before fingerprints stand in for them."""


@dataclass(frozen=True)
class Values:
    """The outcome of the walk.

    ``method`` decided; ``doubt`` bounds the probability that a wrong result passed (0 where the check was exact): with
    fingerprints, 1 / (2^61 - 1) for each result (records.py), so at most their sum for any of them.
    ``uninitialised``: reads of what nothing has written. ``wrong``: results that are not as they must be, those left
    out that come from something uninitialised. ``agreement``: None where it was not asked for, or the values are wrong.
    ``repeats``: the carriers that brought to a place what it held (see :class:`~.repeats.Watched`).
    """

    uninitialised: tuple[Diagnostic, ...]
    wrong: tuple[Diagnostic, ...]
    method: Method
    doubt: float
    agreement: Agreement | None
    repeats: Array


def judge(table: OpTable, program: Program, conditions: Conditions, *, agree: bool, method: Method | None = None,
          seed: int | None = None) -> Values:
    """Walk, and judge initialisation, the postcondition and (with ``agree``) agreement.

    ``method`` forces a way to check, ``seed`` settles the random elements: both are for tests.
    """
    rng = np.random.default_rng(seed)
    trees = [Trees(conditions.ranks, conditions.classes, rng)] if agree else []
    ways = _ways(program, conditions, method, rng)
    while True:
        holds = next(ways)
        walk = Watched(program, [holds, *trees], conditions)
        reads = walk.run()
        if not (isinstance(holds, Sets) and holds.mixed):
            break
    unset = tuple(uninitialised(table, program, conditions, reads))
    wrong = tuple(explain(table, program, conditions, _wrong(walk, holds, conditions)))
    agreement = compare(table, program, conditions, walk) if agree and not unset and not wrong else None
    if isinstance(holds, Fingerprints):
        return Values(unset, wrong, "fingerprints", len(conditions.results) / PRIME, agreement, walk.repeats)
    return Values(unset, wrong, "names" if isinstance(holds, Names) else "sets", 0.0, agreement, walk.repeats)


def _ways(program: Program, conditions: Conditions, method: Method | None,
          rng: np.random.Generator) -> Iterator[Names | Sets | Fingerprints]:
    """The ways to say what is held, the best first; a later one serves where classes mix."""
    c = program.carriers
    if method == "names" or (method is None and c.operand is None and not c.adds.any()):
        yield Names()
    if method != "fingerprints":
        for whole in (False, True):
            sets = Sets(conditions.ranks, conditions.classes, whole=whole)
            size = 8 * (1 + sets.width)
            small = size * conditions.locations.total <= STATE_LIMIT and size * len(c) <= TRAFFIC_LIMIT
            if small or method == "sets":
                yield sets
    yield Fingerprints(conditions.ranks, conditions.classes, rng)


def _wrong(walk: Walk, holds: Names | Sets | Fingerprints, conditions: Conditions) -> Wrong:
    """The results that are not as they must be; those made from something uninitialised are left out."""
    words = walk.state[:, walk.columns[0]]
    holds_right = _rightly(words, holds, conditions)
    found = [np.zeros(0, np.int64)]
    for start in range(0, len(conditions.results), BLOCK):
        which = np.arange(start, min(start + BLOCK, len(conditions.results)))
        place = spaced(conditions.results[start : start + BLOCK])
        count, size = walk.count[place], _sizes(conditions, which)
        right = (count == size) & holds_right(which)
        found.append(which[~right & (count != SPOILT)])
    wrong = np.concatenate(found)
    count, size = walk.count[conditions.results[wrong]], _sizes(conditions, wrong)
    # What fingerprints do not tell is guessed from the count; each explanation works it out exactly.
    repeated, foreign = count > size, count == size
    if isinstance(holds, Names):
        foreign = ~_expected(conditions, wrong, words[conditions.results[wrong], 0].astype(np.int64))
    elif isinstance(holds, Sets):
        got = words[conditions.results[wrong]]
        foreign = (got[:, 1:] & ~_wanted_of(holds, conditions, wrong, got[:, 0])).any(1)
        repeated = count > bits(got[:, 1:])
    return Wrong(wrong, np.where(foreign, FOREIGN, np.where(repeated, REPEATED, MISSING)))


def _rightly(words: Array, holds: Names | Sets | Fingerprints, conditions: Conditions) -> Callable[[Array], Array]:
    """Which of some results hold the words of what they must hold, where they hold the right number."""
    if isinstance(holds, Sets):
        return lambda which: _equal_sets(words, holds, conditions, which)
    if isinstance(holds, Fingerprints):
        sums = _Sums(holds, conditions)
        return lambda which: words[spaced(conditions.results[which]), 0] == sums(which)

    def equal_names(which: Array) -> Array:
        one: Array = _sizes(conditions, which) == 1
        return one & (words[conditions.results[which], 0] == _first(conditions, which).astype(np.uint64))

    return equal_names


def _first(conditions: Conditions, which: Array) -> Array:
    """The one contribution of results that must hold one (the first of those that must hold several)."""
    return conditions.expected_class[which] * conditions.ranks + np.maximum(conditions.expected_rank[which], 0)


def _expected(conditions: Conditions, which: Array, contribution: Array) -> Array:
    """Whether each of some results must hold the given contribution (among others)."""
    if conditions.starts is None or conditions.sources is None:
        rank = conditions.expected_rank[which]
        among: Array = (conditions.expected_class[which] == contribution // conditions.ranks) & (
            (rank == NONE) | (rank == contribution % conditions.ranks))
        return among
    owner, sources = _listed(conditions, which)
    hit = np.zeros(len(which), bool)
    hit[owner[sources == contribution[owner]]] = True
    return hit


def _sizes(conditions: Conditions, which: Array) -> Array:
    """How many contributions each of some results must hold."""
    if conditions.starts is not None:
        return np.diff(conditions.starts)[which]
    return np.where(conditions.expected_rank[which] == NONE, conditions.ranks, 1)


def _listed(conditions: Conditions, which: Array) -> tuple[Array, Array]:
    """All contributions that some results must hold: (index into ``which``, contribution)."""
    each = _sizes(conditions, which)
    owner = np.repeat(np.arange(len(which)), each)
    turn = np.arange(len(owner)) - (np.cumsum(each) - each)[owner]
    if conditions.starts is not None and conditions.sources is not None:
        return owner, conditions.sources[conditions.starts[which][owner] + turn]
    return owner, _first(conditions, which)[owner] + turn


class _Sums:
    """The fingerprints that results must have."""

    def __init__(self, holds: Fingerprints, conditions: Conditions) -> None:
        self.holds, self.conditions = holds, conditions
        self.listed: Array | None = None
        if conditions.starts is not None and conditions.sources is not None:
            self.listed = holds.sums_of(conditions.starts, conditions.sources)
        else:
            self.of_class = holds.sums()

    def __call__(self, which: Array) -> Array:
        if self.listed is not None:
            return self.listed[which]
        if (self.conditions.expected_rank[which] == NONE).all():
            sums: Array = self.of_class[self.conditions.expected_class[which]]
            return sums
        return self.holds.of(_first(self.conditions, which))     # results of one collective are all of one kind


def _equal_sets(words: Array, holds: Sets, conditions: Conditions, which: Array) -> Array:
    """Which of some results hold the set that they must hold; that none is held twice is for the count to say."""
    got = words[conditions.results[which]]
    if not holds.whole and (conditions.expected_rank[which] == NONE).all():
        tag = (conditions.expected_class[which] + 1).astype(np.uint64)
        same: Array = (got[:, 0] == tag) & (got[:, 1:] == holds.everyone()).all(1)
        return same
    same = (got == _want(holds, conditions, which)).all(1)
    return same


def _wanted_of(holds: Sets, conditions: Conditions, which: Array, tag: Array) -> Array:
    """Of what some results must hold, the contributions of the classes that they have the tags of: bits."""
    owner, sources = _listed(conditions, which)
    has, bit = holds.split(sources)
    of = np.flatnonzero(has == tag[owner])
    want = np.zeros((len(which), holds.width - 1), np.uint64)
    np.bitwise_or.at(want, (owner[of], bit[of] // 64), np.uint64(1) << (bit[of] % 64).astype(np.uint64))
    return want


def _want(holds: Sets, conditions: Conditions, which: Array) -> Array:
    """The words that some results must hold. Contributions of several classes get a class of none."""
    owner, sources = _listed(conditions, which)
    tag, bit = holds.split(sources)
    want = np.zeros((len(which), holds.width), np.uint64)
    want[owner, 0] = tag
    np.bitwise_or.at(want, (owner, 1 + bit // 64), np.uint64(1) << (bit % 64).astype(np.uint64))
    want[owner[tag != want[owner, 0]], 0] = np.iinfo(np.uint64).max
    return want
