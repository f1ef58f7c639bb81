"""Whether two tables say the same operations, whatever their streams, connections, events and scratch are called.

Two tables have the same operations where their lanes can be paired so that paired lanes do the same in the same steps:
the same transfers and local operations of the same chunks; over connections that pair likewise; waiting for records in
the same places; in scratch buffers that pair likewise. Nothing else counts: not the order of rows (but for the order in
which a step adds several times into one place, and that of its messages on one connection), not where rows come from,
not the size of scratch. One row of two chunks is one message, so it is not the same as two rows of one.

Nor does the order of waits that follow each other in a lane with nothing between them. A lane runs its steps one after
another, and a wait has ended when the step that records its event has, so whatever stands behind the last of them is
posted when all their records are done, in any order. Between them nothing can tell: a wait touches no memory, sends and
records nothing, so no other lane sees when one of them is posted or has ended; the first one is posted when the step
before them has ended, and the last one ends when all have, whichever these are, which is all that a barrier or a race
can ask. And if one of them never ends, nothing behind them is ever posted, in any order.

The pairing is found by colours: what a lane, a connection or a scratch buffer is like, then what those it meets are
like, and so on. Where several are alike to the end, one is singled out and its partners are tried. What is found so is
then compared row by row, so that "the same" is never an accident of hashes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from schedlang.diagnostics import Note
from schedlang.diff.apart import explained
from schedlang.diff.colours import Colours, Rows, own_buffers, settled
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ir.words import counted

TRIES = 200
"""How many pairings of things that look alike are tried before they count as different."""


def difference(a: OpTable, b: OpTable) -> tuple[Note, ...]:
    """The first thing in which the operations of two legal tables differ, in words for A and for B; empty where they
    are the same. Tables with other faults are compared like any, but where it is not settled which send goes with which
    receive (SL304) equal ones may count as different."""
    found = _worlds(a, b)
    if found:
        return found
    one, other = Rows(a), Rows(b)
    left = [TRIES]
    if _paired(one, other, one.start(), other.start(), left):
        return ()
    return tuple(explained(one, other, TRIES if left[0] < 0 else None))


def _worlds(a: OpTable, b: OpTable) -> tuple[Note, ...]:
    """What differs before any operation: ranks, and the buffers that are not scratch."""
    if a.ranks != b.ranks:
        return _both(counted(a.ranks, "rank"), counted(b.ranks, "rank"))
    here, there = ({t.buffers[i].name: t.buffers[i] for i in sorted(own_buffers(t))} for t in (a, b))
    for name in sorted({*here, *there}):
        one, other = ([f"{x.name}[{x.chunks}]", f"on the {x.place}", f"of rank {x.only}" * (x.only is not None)]
                      if (x := side.get(name)) is not None else None for side in (here, there))
        if one != other:
            return _both(*(f"there is no buffer {name}" if x is None else f"buffer {' '.join(filter(None, x))}"
                           for x in (one, other)))
    return ()


def _both(a: str, b: str) -> tuple[Note, Note]:
    return Note(f"A: {a}"), Note(f"B: {b}")


def _paired(a: Rows, b: Rows, ours: Colours, theirs: Colours, left: list[int]) -> bool:
    """Whether there is a pairing that respects the colours; ``left``: how many more may be tried."""
    ours, theirs, alike = settled(a, b, ours, theirs)
    if not alike:
        return False
    if _equal(a, b, ours, theirs):
        return True
    tie = _tie(a, ours)
    if tie is None:
        return False
    kind, which = tie
    colour = ours.kinds()[kind][which]
    for other in np.flatnonzero((theirs.kinds()[kind][:-1] == colour) & b.used[kind]).tolist():
        left[0] -= 1
        if left[0] < 0:
            return False
        if _paired(a, b, ours.marked(kind, which), theirs.marked(kind, other), left):
            return True
    return False


def _tie(side: Rows, colours: Colours) -> tuple[int, int] | None:
    """One of several things that are alike: (kind, which); None where no two are."""
    for kind, (x, used) in enumerate(zip(colours.kinds(), side.used, strict=True)):
        there = np.flatnonzero(used)
        _, first, count = np.unique(x[there], return_index=True, return_counts=True)
        if (count > 1).any():
            return kind, int(there[first[count > 1][0]])
    return None


def _equal(a: Rows, b: Rows, ours: Colours, theirs: Colours) -> bool:
    """Whether the tables are equal, row by row, when lanes and rows of equal colours are put side by side."""
    if len(a.table) != len(b.table):
        return False
    x, y = _Sorted(a, ours), _Sorted(b, theirs)
    if not all(np.array_equal(p, q) for p, q in zip(x.plain(), y.plain(), strict=True)):
        return False
    here, there = x.buffers(), y.buffers()
    if not _one_to_one(here, there) or not _one_to_one(a.connection[x.order], b.connection[y.order]):
        return False
    return all((p == NONE) == (q == NONE) and (p == NONE or _alike(a, p, b, q)) for p, q in _pairs(here, there))


def _alike(a: Rows, p: int, b: Rows, q: int) -> bool:
    """Whether two buffers may stand for each other."""
    one, other = a.table.buffers[p], b.table.buffers[q]
    scratch = bool(a.scratch[p])
    return scratch == bool(b.scratch[q]) and (one.place, one.only) == (other.place, other.only) and (
        scratch or one.name == other.name)


class _Sorted:
    """The rows of a table by lane, step and colour."""

    def __init__(self, side: Rows, colours: Colours) -> None:
        self.side = side
        place = np.empty(len(colours.lanes), np.int64)
        place[np.argsort(colours.lanes, kind="stable")] = np.arange(len(place))
        used = np.flatnonzero(side.used[0])
        dense = np.full(len(place), NONE, np.int64)
        dense[used[np.argsort(place[used])]] = np.arange(len(used))
        lane = dense[side.lane]
        self.order = np.lexsort((side.rows(colours), side.step, lane))
        self.lane = lane[self.order]
        self.position = np.full(len(side.table) + 1, NONE, np.int64)    # the last entry stands for NONE
        self.position[self.order] = np.arange(len(self.order))

    def plain(self) -> Iterator[Array]:
        """Columns that must be equal."""
        t, by = self.side.table, self.order
        yield self.lane
        yield t.rank[by]
        yield self.side.step[by]
        for column in self.side.columns:
            yield column[by]
        for rows in (self.side.partner, t.of, self.side.record):
            yield self.position[rows[by]]

    def buffers(self) -> Array:
        """The buffers that rows name, those they read from behind those they write."""
        t, by = self.side.table, self.order
        return np.concatenate([t.buffer[by], t.from_buffer[by]])


def _one_to_one(a: Array, b: Array) -> bool:
    return len(_pairs(a, b)) == len(np.unique(a)) == len(np.unique(b))


def _pairs(a: Array, b: Array) -> list[tuple[int, int]]:
    """The pairs of numbers (NONE or more) that stand side by side, each once."""
    width = int(b.max(initial=0)) + 2
    met = np.unique((a.astype(np.int64) + 1) * width + b + 1)
    return list(zip((met // width - 1).tolist(), (met % width - 1).tolist(), strict=True))
