"""Many mutants, each judged by ``verify`` and by the interpreter: ``python -m tests.campaign --count 20000``.

Bases are the shipped schedules, one after another, each in all its small worlds, and random working tables, half of
each; a mutant has one mutation, now and then two. Prints how many there were, by mutation, by verdict and by schedule,
and every disagreement, made small, as a JSON table.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from schedlang.ir import json
from schedlang.ir.table import OpTable
from tests.comparison import MODELS, compare
from tests.mutants import MUTATIONS, Draft, mutate
from tests.strategies import working_table

EXAMPLES = Path(__file__).parent.parent / "examples"

LARGEST = 400
"""Rows of a base: interpreting takes time."""


@cache
def shipped_tables(most_ranks: int = 8) -> tuple[tuple[str, OpTable], ...]:
    """Every shipped schedule, expanded for each of its small worlds: (what it is, table). What it is begins with the
    name of the schedule and a space."""
    return tuple(_shipped_tables(most_ranks))


def _shipped_tables(most_ranks: int) -> Iterator[tuple[str, OpTable]]:
    from schedlang.expand import cases, expand, load_program

    for path in sorted(EXAMPLES.rglob("*.sched")):
        program = load_program(str(path))
        for name in program.names:
            for case in cases(program, name, ranks=None, params={}):
                if not 2 <= case["ranks"] <= most_ranks:
                    continue
                given = {k: v for k, v in case.items() if k != "ranks"}
                table, found = expand(program, name, ranks=case["ranks"], params=given)
                assert table is not None, found
                if len(table) <= LARGEST:
                    yield f"{path.relative_to(EXAMPLES)}::{name} {case}", table


def schedule_of(base: str) -> str:
    """The schedule's name in what :func:`shipped_tables` calls a base."""
    return base.split(" ", 1)[0]


class Judged(Protocol):
    """What any campaign came to."""

    disagreements: list[Any]

    def lines(self) -> Iterator[str]: ...


@dataclass
class Figures:
    """What a campaign came to. ``kinds``: mutants by mutation. ``schedules``: by the shipped schedule they are made of.
    ``verdicts``: by what is wrong with them. ``void``: mutations that found nothing to change. ``disagreements``:
    (base, mutations, model, sentence, smallest table that shows it)."""

    kinds: Counter[str] = field(default_factory=Counter)
    schedules: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    void: int = 0
    disagreements: list[tuple[str, str, str, str, OpTable]] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"{self.verdicts.total()} mutants, {len(self.disagreements)} disagreements"
        yield "by mutation: " + ", ".join(f"{k} {n}" for k, n in self.kinds.most_common())
        yield "by verdict: " + ", ".join(f"{k} {n}" for k, n in self.verdicts.most_common())
        if self.schedules:
            (most, n), (least, few) = self.schedules.most_common()[0], self.schedules.most_common()[-1]
            yield f"of {len(self.schedules)} shipped schedules, from {few} ({least}) to {n} ({most}) each"
        for base, kinds, model, sentence, table in self.disagreements:
            yield f"\n{base}, {kinds}, {model}: {sentence}\n{json.dumps(table)}"


def campaign(count: int, seed: int, shipped: Sequence[tuple[str, OpTable]]) -> Figures:
    """Judge ``count`` mutants."""
    figures, rng, kinds = Figures(), random.Random(seed), list(MUTATIONS)
    bases: dict[str, list[tuple[str, OpTable]]] = defaultdict(list)
    for what, table in shipped:
        bases[schedule_of(what)].append((what, table))
    schedules, turn = list(bases.values()), 0
    while figures.verdicts.total() < count:
        turn += 1
        if schedules and turn % 2:
            name, base = rng.choice(schedules[turn // 2 % len(schedules)])
        else:
            name, base = f"random {turn}", working_table(rng, flawless=True)
        chosen = [rng.choice(kinds) for _ in range(rng.choice([1, 1, 1, 1, 2]))]
        mutant: OpTable | None = base
        for kind in chosen:
            mutant = None if mutant is None else mutate(mutant, kind, rng)
        if mutant is None:
            figures.void += 1
            continue
        model, at = rng.choice(MODELS), rng.randrange(1 << 30)
        judged = compare(mutant, model, at)
        figures.kinds.update(chosen)
        if turn % 2 and schedules:
            figures.schedules[schedule_of(name)] += 1
        figures.verdicts[judged.verdict] += 1
        if judged.disagreement is not None:
            small = shrink(mutant, lambda t, m=model, s=at: compare(t, m, s).disagreement is not None)  # type: ignore[misc]
            sentence = compare(small, model, at).disagreement or judged.disagreement
            figures.disagreements.append((name, "+".join(chosen), model, sentence, small))
    return figures


def shrink(table: OpTable, fails: Callable[[OpTable], bool], tries: int = 1000) -> OpTable:
    """A small table for which ``fails`` holds as well: ranks, lanes, transfers and rows are left out one after another,
    as long as it does. ``tries``: how many tables are tried."""
    for parts in (_ranks, _lanes, _transfers, _rows, _transfers, _rows):
        at = 0
        while at < len(found := parts(table)) and tries:
            tries -= 1
            draft = Draft(table, random.Random(0))
            draft.remove(*(draft.rows[i] for i in found[at]))
            candidate = draft.finish() if draft.rows else table
            if len(candidate) < len(table) and fails(candidate):
                table = candidate
            else:
                at += 1
    return table


def _ranks(table: OpTable) -> list[list[int]]:
    return [np.flatnonzero((table.rank == r) | (table.peer == r)).tolist() for r in range(table.ranks)]


def _lanes(table: OpTable) -> list[list[int]]:
    lane = table.rank * len(table.streams) + table.stream
    return [np.flatnonzero(lane == x).tolist() for x in np.unique(lane)]


def _transfers(table: OpTable) -> list[list[int]]:
    return [[send["id"], receive["id"]] for send, receive in Draft(table, random.Random(0)).pairs()]


def _rows(table: OpTable) -> list[list[int]]:
    return [[i] for i in range(len(table))]


def run(module: str, count: int, campaign: Callable[[int, int], Judged], arguments: Sequence[str] | None) -> int:
    """The command line of a campaign: runs it for ``--count`` mutants, drawn by ``--seed``, and prints what it came to.
    1 where there was a disagreement."""
    parser = argparse.ArgumentParser(prog=module)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    began = time.process_time()
    figures = campaign(given.count, given.seed)
    print("\n".join(figures.lines()))
    print(f"{time.process_time() - began:.0f} s CPU")
    return 1 if figures.disagreements else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this one."""
    return run("tests.campaign", 20_000, lambda count, seed: campaign(count, seed, shipped_tables()), arguments)


if __name__ == "__main__":
    sys.exit(main())
