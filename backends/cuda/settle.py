"""Where a lane must wait until what it has sent is taken, because the place is written next.

The sends of a lane count in the order in which it posts them: phase by phase, in a phase those that post at its
beginning first, each kind in row order.
"""

from __future__ import annotations

import numpy as np

from schedlang.backends.cuda.hazards import spread
from schedlang.ir.locations import Locations
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op


def send_order(table: OpTable, phase: Array) -> Array:
    """The rows of all sends, lane by lane in the order in which they are posted. ``phase``: a number for each step of
    each lane, lane by lane."""
    sends = np.flatnonzero(table.op == Op.SEND)
    order: Array = sends[np.lexsort((sends, table.of[sends] != NONE, phase[sends]))]
    return order


def before(table: OpTable, phase: Array, lane: Array, posts: Array) -> Array:
    """For each phase how many of the sends posted before it need not be taken yet; NONE: all of them (int64).

    A phase must not write a place that an earlier send of its lane reads. ``lane``: a row each; ``posts``: as
    :func:`send_order` says.
    """
    phases = int(phase.max(initial=-1)) + 1
    index, sent = _counted(phase, lane, posts, phases)
    places = Locations(table.ranks, table.buffers)
    writes = np.flatnonzero((table.op != Op.SEND) & (table.op < Op.RECORD))
    rows = np.concatenate([writes, posts])
    cell, owner = spread(places.at(table.buffer[rows], table.rank[rows], table.chunk[rows]),
                         table.count[rows].astype(np.int64))
    row = rows[owner]
    key = cell * max(1, len(table.streams)) + table.stream[row]
    sending = owner >= len(writes)
    order = np.lexsort((sending, phase[row], key))              # a phase's own sends come after its writes
    key, row, sending = key[order], row[order], sending[order]
    new = np.ones(len(key), bool)
    new[1:] = key[1:] != key[:-1]
    step = len(posts) + 1
    last = np.where(sending, index[row] + 1, 0) + np.cumsum(new) * step
    last = np.maximum.accumulate(last) % step - 1               # of this place, the last send so far
    needed = np.full(phases, NONE, np.int64)
    np.maximum.at(needed, phase[row[~sending]], last[~sending])
    return np.where(needed == NONE, NONE, sent - 1 - needed)


def _counted(phase: Array, lane: Array, posts: Array, phases: int) -> tuple[Array, Array]:
    """Which send of its lane each row is (int64, NONE for others), and how many its lane has posted before each
    phase."""
    per_phase = np.bincount(phase[posts], minlength=phases)
    earlier = np.cumsum(per_phase) - per_phase                  # of all lanes
    first = np.full(int(lane.max(initial=-1)) + 1, len(posts), np.int64)
    np.minimum.at(first, lane, earlier[phase])
    index = np.full(len(phase), NONE, np.int64)
    index[posts] = np.arange(len(posts)) - first[lane[posts]]
    of_phase = np.zeros(phases, np.int64)
    of_phase[phase] = lane
    return index, earlier - first[of_phase]


def after(table: OpTable, phase: Array, lane: Array, posts: Array, step: Array, shared: Array) -> Array:
    """For each phase how many of the sends posted so far need not be taken yet at its end; NONE: all of them (int64).

    At the end of a step all its sends must be taken whose place another lane writes later. ``step`` (a row each): a
    number for each step as it was before it became phases, lane by lane; ``shared`` (bool, a row each): which sends
    these are.
    """
    phases = int(phase.max(initial=-1)) + 1
    last_phase = np.zeros(int(step.max(initial=-1)) + 1, np.int64)
    np.maximum.at(last_phase, step, phase)
    index, sent = _counted(phase, lane, posts, phases)
    total = sent + np.bincount(phase[posts], minlength=phases)
    last = np.full(phases, NONE, np.int64)
    rows = posts[shared[posts]]
    np.maximum.at(last, last_phase[step[rows]], index[rows])
    return np.where(last == NONE, NONE, total - 1 - last)


def written_later(table: OpTable, lane: Array, posted: Array, done: Array) -> Array:
    """Which sends have a place that another lane of their rank writes after their step (bool, a row each).

    ``posted``, ``done``: levels of a legal execution. Of a table without races, what comes after in one execution does
    so in all of them.
    """
    found = np.zeros(len(table), bool)
    if len(table.streams) < 2:
        return found
    places = Locations(table.ranks, table.buffers)
    writes = np.flatnonzero((table.op != Op.SEND) & (table.op < Op.RECORD) & (table.buffer != NONE))
    sends = np.flatnonzero((table.op == Op.SEND) & (table.buffer != NONE))
    cell, owner = spread(places.at(table.buffer[writes], table.rank[writes], table.chunk[writes]),
                         table.count[writes].astype(np.int64))
    row = writes[owner]
    # The last write of each lane to each cell; of these the last two, which are of two lanes.
    order = np.lexsort((done[row], lane[row], cell))
    cell, row = cell[order], row[order]
    last = np.ones(len(cell), bool)
    last[:-1] = (cell[1:] != cell[:-1]) | (lane[row[1:]] != lane[row[:-1]])
    cell, row = cell[last], row[last]
    order = np.lexsort((done[row], cell))
    cell, row = cell[order], row[order]
    where, owner = spread(places.at(table.buffer[sends], table.rank[sends], table.chunk[sends]),
                          table.count[sends].astype(np.int64))
    send = sends[owner]
    at = np.searchsorted(cell, where, side="right") - 1
    for back in (0, 1):
        k = at - back
        there = (k >= 0) & (cell[np.maximum(k, 0)] == where) if len(cell) else np.zeros(len(where), bool)
        writer = row[np.where(there, k, 0)] if len(row) else np.zeros(len(where), np.int64)
        late = there & (lane[writer] != lane[send]) & (done[writer] >= posted[send])
        found[send[late]] = True
    return found
