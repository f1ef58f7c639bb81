"""What `ensure` statements may say at all."""

from __future__ import annotations

import numpy as np

from schedlang.diagnostics import Diagnostic, error
from schedlang.ir.table import NONE, OpTable
from schedlang.verify.values.conditions import Conditions


def ensured(table: OpTable, conditions: Conditions) -> list[Diagnostic]:
    """What `ensure` statements say that cannot be meant (SL205): a value that starts uninitialised, one value twice,
    one location twice."""
    ensures = table.collective.ensures
    if ensures is None or conditions.starts is None or conditions.sources is None:
        return []
    owner = np.repeat(np.arange(len(conditions.results)), np.diff(conditions.starts))
    by_source = np.lexsort((conditions.sources, owner))
    same = np.zeros(len(owner), bool)
    same[by_source[1:]] = (np.diff(owner[by_source]) == 0) & (np.diff(conditions.sources[by_source]) == 0)
    unset = conditions.sources == NONE
    by_result = np.argsort(conditions.results, kind="stable")
    again = np.zeros(len(conditions.results), bool)
    again[by_result[1:]] = np.diff(conditions.results[by_result]) == 0
    empty = np.diff(conditions.starts) == 0
    found = []
    for bad, says in (
        (owner[unset], "speaks of a value that is uninitialised at the start; only input and data have one"),
        (owner[same & ~unset], "names one initial value twice"),
        (np.flatnonzero(again), "is the second for this place"),
        (np.flatnonzero(empty), "names no value at all"),
    ):
        if len(bad):
            first = int(bad[0])
            at = ensures.location[first] if first < len(ensures.location) else table.collective.location
            place = conditions.locations.name(int(conditions.results[first]))
            found.append(error("SL205", f"the `ensure` for {place} {says}", at, count=len(np.unique(bad))))
    return found
