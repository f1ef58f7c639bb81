"""Where two tables whose operations are not the same differ first, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from schedlang.diagnostics import Note
from schedlang.diff.colours import Colours, Rows, settled
from schedlang.ir.table import NONE, Array
from schedlang.ir.words import counted
from schedlang.verify import words

MOST_RANKS = 64
"""Of so many ranks that differ the one that differs first is looked for."""


def explained(a: Rows, b: Rows, tried: int | None) -> Iterable[Note]:
    """Where two tables, which are not the same, differ first: by what operations do, else by whom they meet. ``tried``:
    after so many attempts to pair them the search was given up."""
    ours, theirs = a.start(), b.start()
    found = _first(a, b, a.rows(ours), b.rows(theirs))
    if found is None:
        ours, theirs, _ = settled(a, b, ours, theirs)
        for _ in range(2):
            ours, theirs = a.refined(ours), b.refined(theirs)
        found = _first(a, b, a.rows(ours), b.rows(theirs))
        if found is not None:
            yield Note("all ranks do the same, but not with the same operations of others: these are alike but for the "
                       "messages, events, connections or scratch buffers that they meet")
    if found is None:
        yield Note("all ranks do the same, but no pairing of streams, connections and scratch buffers "
                   f"{'makes' if tried is None else f'was found in {tried} attempts that makes'} one of the other")
        return
    lanes, step = found
    for name, side, lane, rows in zip("AB", (a, b), lanes, _apart(a, b, lanes, step, ours, theirs), strict=True):
        yield _told(name, side, lane, step, rows, lanes)


def _first(a: Rows, b: Rows, ours: Array, theirs: Array) -> tuple[tuple[int, int], int] | None:
    """The lanes of A and B (NONE: there is none) that differ first, and the step in which they do; each lane against
    that lane of its rank in the other table which is most like it."""
    here, there = (Counter(zip(s.lanes.rank[s.lanes.used].tolist(), s.lane_sums(rows)[s.lanes.used].tolist(),
                               strict=True)) for s, rows in ((a, ours), (b, theirs)))
    ranks = sorted({rank for rank, _ in [*(here - there), *(there - here)]})[:MOST_RANKS]
    steps = a.steps(ours), b.steps(theirs)
    best: tuple[int, int, tuple[int, int]] | None = None
    for rank in ranks:
        pairs: list[tuple[int, tuple[int, int]]] = []
        unpaired = [_unpaired(s, rows, rank, less) for s, rows, less in ((a, ours, here - there),
                                                                        (b, theirs, there - here))]
        for one in unpaired[0] or [NONE]:
            for other in unpaired[1] or [NONE]:
                pairs.append((_common(a, b, one, other, steps), (one, other)))
        step, lanes = max(pairs, key=lambda pair: pair[0])
        if best is None or step < best[0]:
            best = step, rank, lanes
    return None if best is None else (best[2], best[0])


def _unpaired(side: Rows, rows: Array, rank: int, less: Counter[tuple[int, int]]) -> list[int]:
    """A few lanes of a rank that have no twin."""
    sums, found = side.lane_sums(rows), []
    for lane in side.lanes.used[side.lanes.rank[side.lanes.used] == rank].tolist():
        if less[rank, int(sums[lane])] > 0:
            found.append(lane)
    return found[:8]


def _common(a: Rows, b: Rows, one: int, other: int, steps: tuple[Array, Array]) -> int:
    """How many steps two lanes have in common at their beginnings; 0 where one of them is not there."""
    if NONE in (one, other):
        return 0
    x, y = (found[s.lanes.start[lane] : s.lanes.start[lane] + s.lanes.steps[lane]]
            for s, lane, found in ((a, one, steps[0]), (b, other, steps[1])))
    size = min(len(x), len(y))
    differs = np.flatnonzero(x[:size] != y[:size])
    return int(differs[0]) if len(differs) else size


def _apart(a: Rows, b: Rows, lanes: tuple[int, int], step: int, ours: Colours,
           theirs: Colours) -> tuple[list[int], list[int]]:
    """The rows of a step that the other lane's step has not got."""
    found = []
    for side, lane, colours in ((a, lanes[0], ours), (b, lanes[1], theirs)):
        here = (side.lane == lane) & (side.table.step == step)      # nothing where lane is NONE
        rows = np.flatnonzero(here)
        found.append((rows.tolist(), side.rows(colours)[rows].tolist()))
    (x, x_like), (y, y_like) = found
    more, less = Counter(x_like) - Counter(y_like), Counter(y_like) - Counter(x_like)
    return ([r for r, like in zip(x, x_like, strict=True) if more[like]],
            [r for r, like in zip(y, y_like, strict=True) if less[like]])


def _told(name: str, side: Rows, lane: int, step: int, rows: list[int], lanes: tuple[int, int]) -> Note:
    t = side.table
    if rows:
        more = f", and {len(rows) - 1} more in this step" if len(rows) > 1 else ""
        return Note(f"{name}: {words.sentence(t, rows[0])}{more}", t.origin(rows[0])[0])
    if lane == NONE:
        return Note(f"{name}: no such stream on that rank")
    where = f"rank {int(side.lanes.rank[lane])}"
    if len(t.streams) > 1:
        where += f", stream {t.streams[int(side.lanes.stream[lane])]}"
    if step >= int(side.lanes.steps[lane]):
        return Note(f"{name}: {where} ends after {counted(int(side.lanes.steps[lane]), 'step')}")
    return Note(f"{name}: {where}, step {step} has nothing besides")
