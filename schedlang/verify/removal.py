"""A table without some of its operations, and whether everything that is proved without looking at values holds there,
too."""

from __future__ import annotations

import numpy as np

from schedlang.diagnostics import Severity
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.verify import deadlock, matching, races
from schedlang.verify.sends import Sends
from schedlang.verify.timing.order import order
from schedlang.verify.timing.slots import slots


def without(table: OpTable, gone: Array, unstored: Array) -> OpTable:
    """The table without the rows ``gone``, and with receives ``unstored`` that store nothing (both bool, a row each).

    Both ends of a transfer must be gone, or neither. Steps left without rows go, too: the later ones move up.
    """
    columns = table.take(np.arange(len(table)))
    plain = unstored.copy()
    fused = np.flatnonzero(table.of != NONE)
    plain[fused] = unstored[table.of[fused]]        # a fused send names the place its receive stores to
    columns["buffer"] = np.where(plain, NONE, columns["buffer"]).astype(np.int32)
    columns["chunk"] = np.where(plain, 0, columns["chunk"]).astype(np.int32)
    place = np.full(len(table) + 1, NONE, np.int32)
    place[np.flatnonzero(~gone)] = np.arange(int((~gone).sum()), dtype=np.int32)
    columns["of"] = place[columns["of"]]
    kept = {name: cells[~gone] for name, cells in columns.items()}
    lane = kept["rank"].astype(np.int64) * max(1, len(table.streams)) + kept["stream"]
    steps = int(table.step.max(initial=0)) + 1
    distinct, which = np.unique(lane * steps + kept["step"], return_inverse=True)
    lane_of = distinct // steps
    kept["step"] = (np.arange(len(distinct)) - np.searchsorted(lane_of, lane_of))[which].astype(np.int32)
    return table.with_columns(**kept)


def settled(table: OpTable, sends: Sends) -> bool:
    """Whether a table's transfers match, it comes to its end, and nothing races."""
    matched = matching.match(table, sends)
    if any(d.severity == Severity.ERROR for d in matched.diagnostics):
        return False
    found = order(table, matched, sends)
    stuck = deadlock.check(table, matched, found, slots(table, matched))
    return found.complete and not stuck and not races.check(table, found)
