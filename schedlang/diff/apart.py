"""Where two tables whose operations are not the same differ first, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from schedlang.diagnostics import Note
from schedlang.diff.colours import Rows, settled
from schedlang.ir.table import NONE, Array
from schedlang.ir.words import counted
from schedlang.ops import Op
from schedlang.verify import words

MOST_RANKS = 64
"""Of so many ranks that differ the one that differs first is looked for."""


def explained(a: Rows, b: Rows, tried: int | None) -> Iterator[Note]:
    """Where two tables, which are not the same, differ first: in what operations do, else in what others they meet.
    ``tried``: after so many attempts to pair them the search was given up."""
    for number, (ours, theirs) in enumerate(_looks(a, b)):
        found = _first(a, b, ours, theirs)
        if found is not None:
            lanes, step = found
            apart = _apart(a, b, lanes, step, ours, theirs)
            for name, side, lane, rows in zip("AB", (a, b), lanes, apart, strict=True):
                yield _told(name, side, lane, step, rows, met=number > 0)
            return
    yield Note("all ranks do the same, but no pairing of streams, connections and scratch buffers "
               f"{'makes' if tried is None else f'was found in {tried} attempts that makes'} one of the other")


def _looks(a: Rows, b: Rows) -> Iterator[tuple[Array, Array]]:
    """Ever closer looks at the rows of both: at what each does, at whom it meets, at whom those meet."""
    ours, theirs = a.start(), b.start()
    yield a.alone(ours), b.alone(theirs)
    yield a.rows(ours), b.rows(theirs)
    ours, theirs, _ = settled(a, b, ours, theirs)
    for _ in range(2):
        ours, theirs = a.refined(ours), b.refined(theirs)
    yield a.rows(ours), b.rows(theirs)


def _first(a: Rows, b: Rows, ours: Array, theirs: Array) -> tuple[tuple[int, int], int] | None:
    """The lanes of A and B (NONE: there is none) that differ first, and the step in which they do; each lane against
    that lane of its rank in the other table which is most like it."""
    sums = [s.lane_sums(rows) for s, rows in ((a, ours), (b, theirs))]
    here, there = (Counter(zip(s.lanes.rank[s.lanes.used].tolist(), of[s.lanes.used].tolist(), strict=True))
                   for s, of in zip((a, b), sums, strict=True))
    ranks = sorted({rank for rank, _ in [*(here - there), *(there - here)]})[:MOST_RANKS]
    steps = a.steps(ours), b.steps(theirs)
    best: tuple[int, int, tuple[int, int]] | None = None
    for rank in ranks:
        pairs: list[tuple[int, tuple[int, int]]] = []
        unpaired = [_unpaired(s, of, rank, more) for s, of, more in ((a, sums[0], here - there),
                                                                    (b, sums[1], there - here))]
        for one in unpaired[0] or [NONE]:
            for other in unpaired[1] or [NONE]:
                pairs.append((_common(a, b, one, other, steps), (one, other)))
        step, lanes = max(pairs, key=lambda pair: pair[0])
        if best is None or step < best[0]:
            best = step, rank, lanes
    return None if best is None else (best[2], best[0])


def _unpaired(side: Rows, sums: Array, rank: int, more: Counter[tuple[int, int]]) -> list[int]:
    """A few lanes of a rank that have no twin."""
    lanes = side.lanes.used[side.lanes.rank[side.lanes.used] == rank].tolist()
    return [lane for lane in lanes if more[rank, int(sums[lane])] > 0][:8]


def _common(a: Rows, b: Rows, one: int, other: int, steps: tuple[Array, Array]) -> int:
    """How many steps two lanes have in common at their beginnings; 0 where one of them is not there."""
    if NONE in (one, other):
        return 0
    x, y = (found[s.lanes.start[lane] : s.lanes.start[lane] + s.lanes.steps[lane]]
            for s, lane, found in ((a, one, steps[0]), (b, other, steps[1])))
    size = min(len(x), len(y))
    differs = np.flatnonzero(x[:size] != y[:size])
    return int(differs[0]) if len(differs) else size


def _apart(a: Rows, b: Rows, lanes: tuple[int, int], step: int, ours: Array,
           theirs: Array) -> tuple[list[int], list[int]]:
    """The rows of a step that the other lane's step has not got."""
    found = []
    for side, lane, like in ((a, lanes[0], ours), (b, lanes[1], theirs)):
        rows = np.flatnonzero((side.lane == lane) & (side.step == step))      # none where lane is NONE
        found.append((rows.tolist(), like[rows].tolist()))
    (x, x_like), (y, y_like) = found
    more, less = Counter(x_like) - Counter(y_like), Counter(y_like) - Counter(x_like)
    return ([r for r, like in zip(x, x_like, strict=True) if more[like]],
            [r for r, like in zip(y, y_like, strict=True) if less[like]])


def _told(name: str, side: Rows, lane: int, step: int, rows: list[int], *, met: bool) -> Note:
    """What a lane does in a step that the other's does not; with ``met`` also what that goes together with."""
    t = side.table
    if rows:
        row = rows[0]
        other = int(side.partner[row] if side.partner[row] != NONE else side.record[row])
        text = f"{name}: {words.sentence(t, row)}"
        if met and t.peer[row] != NONE:
            ours = (side.connection == side.connection[row]) & ((t.op == Op.SEND) == (t.op[row] == Op.SEND))
            text += (f", message {int(side.matching.message[row]) + 1} of {int(ours.sum())} over the connection "
                     f"{t.streams[int(t.chan[row])]}")
        if met and other != NONE:
            text += f", which goes with {words.sentence(t, other)}"
        return Note(text + (f"; and {len(rows) - 1} more in this step" if len(rows) > 1 else ""), t.origin(row)[0])
    if lane == NONE:
        return Note(f"{name}: no such stream on that rank")
    where = f"rank {int(side.lanes.rank[lane])}"
    if len(t.streams) > 1:
        where += f", stream {t.streams[int(side.lanes.stream[lane])]}"
    if step >= int(side.lanes.steps[lane]):
        return Note(f"{name}: {where} ends after {counted(int(side.lanes.steps[lane]), 'step')}")
    return Note(f"{name}: {where}, step {step} has nothing besides")
