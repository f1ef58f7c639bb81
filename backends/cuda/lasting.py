"""Values that are sent from a copy which stays until it is taken.

Where connections hold messages, a lane may write the place of a send before its message can be taken: to wait for that
could mean to wait for ever. Then a copy in staging memory is sent. Whether one may wait is judged by one legal
execution: a lane may wait for a send where the message, and those of all that the lane has sent before, are taken at an
earlier moment than that at which it waits. Without buffering that is so wherever a lane waits.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from schedlang.backends.cuda.hazards import spread
from schedlang.ir.locations import Locations
from schedlang.ir.table import Array, OpTable
from schedlang.ops import Op


def unsettled(table: OpTable, sends: Array, taken: Array, phase: Array, moment: Array) -> Array:
    """Which of the ``sends`` (rows of a normal form; bool, one each) have a place that their lane writes next before it
    may wait for them.

    ``taken``: of each send, the moment at which it and all that its lane has sent before are taken. ``phase``: of each
    row; ``moment``: of each phase, when it settles.
    """
    places = Locations(table.ranks, table.buffers)
    writes = np.flatnonzero((table.op != Op.SEND) & (table.op < Op.RECORD))
    rows = np.concatenate([writes, sends])
    cell, owner = spread(places.at(table.buffer[rows], table.rank[rows], table.chunk[rows]),
                         table.count[rows].astype(np.int64))
    key = cell * max(1, len(table.streams)) + table.stream[rows[owner]]
    order = np.lexsort((owner >= len(writes), phase[rows[owner]], key))
    key, owner = key[order], owner[order]
    here = np.arange(len(owner))
    following = np.where(owner < len(writes), here, len(here))
    following = np.append(np.minimum.accumulate(following[::-1])[::-1], len(here))[1:]
    asked = np.flatnonzero((owner >= len(writes)) & (following < len(here)))
    asked = asked[key[following[asked]] == key[asked]]
    send = owner[asked] - len(writes)
    found = np.zeros(len(sends), bool)
    found[send[moment[phase[rows[owner[following[asked]]]]] <= taken[send]]] = True
    return found


def slots(lane: Array, posted: Array, taken: Array, count: Array) -> list[int]:
    """Places for values of ``count`` chunks, which are written at moment ``posted`` and taken at ``taken``, one lane's
    beside another's; values stand lane by lane in the order in which they are posted."""
    found: list[int] = []
    now, size = -1, 0
    free: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)   # by count: when it is free, and where it is
    for of, start, end, chunks in zip(lane.tolist(), posted.tolist(), taken.tolist(), count.tolist(), strict=True):
        if of != now:
            now, size, free = of, 0, defaultdict(list)
        known = free[chunks]
        if known and known[0][0] < start:           # values are taken in the order in which they are posted
            at = known.pop(0)[1]
        else:
            at, size = size, size + chunks
        known.append((end, at))
        found.append(at)
    return found
