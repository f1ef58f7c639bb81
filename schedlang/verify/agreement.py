"""Does every rank's value of an element come from the same combination tree, so that all ranks hold the same bits?

Additions are unordered, several reductions in one step are left folds, copies are transparent. Judged for collectives
whose result every rank holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from schedlang.diagnostics import Diagnostic, Severity
from schedlang.ir.origin import at_row
from schedlang.ir.table import Array, OpTable, spaced
from schedlang.ir.words import counted
from schedlang.verify import collapse
from schedlang.verify.values.conditions import Conditions
from schedlang.verify.values.history import history
from schedlang.verify.values.walk import Program, Walk

BLOCK = 1 << 18
"""So many results are looked at together."""


@dataclass(frozen=True)
class Agreement:
    """``diagnostic`` says which results come from different trees (SL505, a note); None where none do."""

    diagnostic: Diagnostic | None = None


def compare(table: OpTable, program: Program, conditions: Conditions, walk: Walk) -> Agreement:
    """Compare the trees at the end of a walk whose last part is ``records.Trees``; its values are right."""
    hashes, shared = walk.state[:, walk.columns[-1]], conditions.expected_class
    # The first result of each chunk is what the others are held against.
    first = np.full(conditions.classes, len(shared), np.int64)
    for start in reversed(range(0, len(shared), BLOCK)):
        chunks = shared[start : start + BLOCK]
        first[chunks[::-1]] = np.arange(start, start + len(chunks))[::-1]       # what is written last stays
    parts = [np.zeros(0, np.int64)]
    for which in _blocks(shared):
        here, there = spaced(conditions.results[which]), spaced(conditions.results[first[shared[which]]])
        parts.append(which[(hashes[here] != hashes[there]).any(1)])
    bad = np.concatenate(parts)
    if not len(bad):
        return Agreement()
    example = int(bad[np.argmin(shared[bad])])
    reference = int(first[shared[example]])
    places = conditions.locations
    mine, other = int(conditions.results[reference]), int(conditions.results[example])
    ours, theirs = history(program, conditions, mine), history(program, conditions, other)
    different = np.unique(shared[bad])
    ranks = np.unique(places.ranks_of(conditions.results[bad]))
    differ = places.ranks_of(conditions.results[bad[shared[bad] == shared[example]]])
    last = [int(program.carriers.receiver[past.writers[-1]]) for past in (ours, theirs)]
    notes = [collapse.note(table, row, f"{places.name(at)} is {written(past.value.tree, conditions)}; written last by ")
             for at, past, row in ((mine, ours, last[0]), (other, theirs, last[1]))]
    return Agreement(at_row(Diagnostic(
        "SL505", Severity.NOTE,
        f"the ranks add up {counted(len(different), 'chunk')} in different orders, so their bits may differ (first in "
        f"chunk {int(shared[example])}: rank {places.where(mine)[1]} against rank{'s' * (len(differ) > 1)} "
        f"{collapse.numbers(differ)})",
        None, tuple(notes),
        "let one rank compute each chunk and send the result to the others", len(different),
        {"chunks": [int(c) for c in different[:64]], "ranks": [int(r) for r in ranks[:64]]}), table, last[1]))


def _blocks(column: Array) -> Iterator[Array]:
    """The positions of a column, in pieces: no large temporaries."""
    return (np.arange(start, min(start + BLOCK, len(column))) for start in range(0, len(column), BLOCK))


def written(tree: object, conditions: Conditions, most: int = 160) -> str:
    """A tree of several contributions as a sum of ranks: ``((0 + 1) + 2) + 3``; the smaller side first, a long one
    cut."""
    text = _text(tree, conditions)[0][1:-1]
    return f"the ranks' {text if len(text) <= most else text[:most] + ' ...'}"


def _text(tree: object, conditions: Conditions) -> tuple[str, int]:
    """The text of a tree and the smallest rank in it. Iterative: a ring's trees are as deep as it has ranks."""
    done: dict[int, tuple[str, int]] = {}
    todo = [tree]
    while todo:
        node = todo[-1]
        if id(node) in done:
            todo.pop()
        elif isinstance(node, tuple):
            waiting = [child for child in node if id(child) not in done]
            if waiting:
                todo += waiting
                continue
            sides = sorted((done[id(child)] for child in node), key=lambda side: side[1])
            done[id(node)] = (f"({sides[0][0]} + {sides[1][0]})", sides[0][1])
            todo.pop()
        else:
            assert isinstance(node, int)
            rank = node % conditions.ranks
            done[id(node)] = (str(rank), rank)
            todo.pop()
    return done[id(tree)]


