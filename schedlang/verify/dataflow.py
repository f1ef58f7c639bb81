"""The postcondition: every result holds each contribution exactly once, none missing, none twice, none foreign.

One walk over the carriers in a legal order decides it: by names where nothing is reduced, by sets where they are small
enough, else by fingerprints (records.py). An explanation is always exact: it replays what reaches the location.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from schedlang.diagnostics import Diagnostic
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.verify.agreement import Agreement, compare
from schedlang.verify.conditions import Conditions
from schedlang.verify.explanations import explain
from schedlang.verify.initialisation import uninitialised
from schedlang.verify.records import PRIME, Fingerprints, Names, Sets, Trees
from schedlang.verify.walk import SPOILT, Program, Walk

Method = Literal["names", "sets", "fingerprints"]

STATE_LIMIT = 64 << 20
"""How many bytes the sets of all locations may take before fingerprints stand in for them."""
TRAFFIC_LIMIT = 512 << 20
"""How many bytes of sets may be moved in one walk before fingerprints stand in for them."""


@dataclass(frozen=True)
class Values:
    """The outcome of the walk.

    ``method`` decided; ``doubt`` bounds the probability that a wrong result passed (0 where the check was exact).
    ``uninitialised``: reads of what nothing has written. ``wrong``: results that are not as they must be, those left out
    that come from something uninitialised. ``agreement``: None where it was not asked for, or the values are wrong.
    """

    uninitialised: tuple[Diagnostic, ...]
    wrong: tuple[Diagnostic, ...]
    method: Method
    doubt: float
    agreement: Agreement | None


def judge(table: OpTable, program: Program, conditions: Conditions, *, agree: bool, method: Method | None = None,
          seed: int | None = None) -> Values:
    """Walk, and judge initialisation, the postcondition and (with ``agree``) agreement.

    ``method`` forces a way to check, ``seed`` settles the random elements: both are for tests.
    """
    rng = np.random.default_rng(seed)
    trees = [Trees(conditions.contributions, rng)] if agree else []
    for holds in _ways(program, conditions, method, rng):
        walk = Walk(program, [holds, *trees], conditions.locations.total, conditions.initial_at, conditions.initial)
        reads = walk.run()
        if not (isinstance(holds, Sets) and holds.mixed):
            break
    unset = tuple(uninitialised(table, program, conditions, reads))
    wrong = tuple(explain(table, program, conditions, _wrong(walk, holds, conditions)))
    agreement = compare(table, program, conditions, walk) if agree and not unset and not wrong else None
    if isinstance(holds, Fingerprints):
        return Values(unset, wrong, "fingerprints", len(conditions.results) / PRIME, agreement)
    return Values(unset, wrong, "names" if isinstance(holds, Names) else "sets", 0.0, agreement)


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
            if method == "sets" or (size * conditions.locations.total <= STATE_LIMIT and size * len(c) <= TRAFFIC_LIMIT):
                yield sets
    yield Fingerprints(conditions.contributions, rng)


def _wrong(walk: Walk, holds: Names | Sets | Fingerprints, conditions: Conditions) -> Array:
    """Which results (indices) are not as they must be; those made from something uninitialised are left out."""
    count = walk.count[conditions.results]
    words = walk.state[:, walk.columns[0]]
    size = _sizes(conditions)
    right = count == size
    alone = size == 1
    first = conditions.expected_class * conditions.ranks + np.maximum(conditions.expected_rank, 0)
    if isinstance(holds, Names):
        right &= alone & (words[conditions.results, 0] == first.astype(np.uint64))
    elif isinstance(holds, Fingerprints):
        got = words[conditions.results, 0]
        if conditions.starts is not None and conditions.sources is not None:
            right &= got == holds.sums_of(conditions.starts, conditions.sources)
        else:
            sums = holds.sums(conditions.ranks)[conditions.expected_class]
            right &= got == np.where(conditions.expected_rank == NONE, sums, holds.elements[first])
    else:
        right &= _equal_sets(words, holds, conditions)
    return np.flatnonzero(~right & (count != SPOILT))


def _sizes(conditions: Conditions) -> Array:
    """How many contributions each result must hold."""
    if conditions.starts is not None:
        return np.diff(conditions.starts)
    return np.where(conditions.expected_rank == NONE, conditions.ranks, 1)


def _equal_sets(words: Array, holds: Sets, conditions: Conditions) -> Array:
    """Which results hold the set that they must hold; that none is held twice is for the count to say."""
    if conditions.starts is not None and conditions.sources is not None:
        owner = np.repeat(np.arange(len(conditions.results)), np.diff(conditions.starts))
        sources = conditions.sources
    else:
        everyone = conditions.expected_rank == NONE
        if everyone.all() and not holds.whole:
            got = words[conditions.results]
            tag = (conditions.expected_class + 1).astype(np.uint64)
            same: Array = (got[:, 0] == tag) & (got[:, 1:] == holds.everyone()).all(1)
            return same
        each = np.where(everyone, conditions.ranks, 1)
        owner = np.repeat(np.arange(len(each)), each)
        turn = np.arange(len(owner)) - (np.cumsum(each) - each)[owner]
        sources = conditions.expected_class[owner] * conditions.ranks + np.where(
            everyone[owner], turn, conditions.expected_rank[owner])
    tag, bit = holds.split(sources)
    want = np.zeros((len(conditions.results), holds.width), np.uint64)
    np.maximum.at(want[:, 0], owner, tag)
    np.bitwise_or.at(want, (owner, 1 + bit // 64), np.uint64(1) << (bit % 64).astype(np.uint64))
    same = (words[conditions.results] == want).all(1)
    return same
