"""A barrier: no rank leaves before every rank has entered (language.md, Semantics 10)."""

from __future__ import annotations

import numpy as np

from schedlang.diagnostics import Diagnostic, Note, error
from schedlang.ir.origin import at_row
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.verify import collapse
from schedlang.verify.sends import depth_words
from schedlang.verify.timing.order import Order

WORDS = 1 << 22
"""How many 64-bit words of reachability are held at a time."""


def check(table: OpTable, order: Order) -> list[Diagnostic]:
    """SL308 unless, for all ranks r and p, the end of r's last step on some stream comes after the post of p's first
    step on every stream. The finding counts the pairs of ranks for which it does not."""
    lanes = order.matching.lanes
    idle = np.flatnonzero(lanes.per_rank(table.ranks) == 0)
    if len(idle):
        if table.ranks == 1:
            return []
        alone = error("SL308", f"rank {int(idle[0])} takes no part: nothing tells it that the others have entered, "
                               "nor them that it has", help="give every rank a transfer to and from the others",
                      count=len(idle), ranks=[int(r) for r in idle[:64]])
        return [at_row(alone, table, NONE)]
    first_lane = np.searchsorted(lanes.rank[lanes.used], np.arange(table.ranks))
    early = [np.logical_and.reduceat(
        np.logical_or.reduceat(_missed(order, low, high), first_lane[p:q] - low, axis=1), first_lane, axis=0)
        for p, q, low, high in _batches(first_lane, len(lanes.used), order.graph.nodes)]
    found = np.concatenate(early, axis=1)  # [r, p]: r can leave before p has entered
    return [_finding(table, order, found)] if found.any() else []


def _batches(first_lane: Array, used: int, nodes: int) -> list[tuple[int, int, int, int]]:
    """Ranks p..q and their lanes low..high, such that the posts of so many lanes can be followed together."""
    width = 64 * max(1, WORDS // nodes)
    bounds = np.append(first_lane, used)
    batches, p = [], 0
    while p < len(first_lane):
        q = max(p + 1, int(np.searchsorted(bounds, bounds[p] + width, side="right")) - 1)
        batches.append((p, q, int(bounds[p]), int(bounds[q])))
        p = q
    return batches


def _missed(order: Order, low: int, high: int) -> Array:
    """By used lane, and by used lane from ``low`` to ``high``: whether the end of the one can come before the first
    post of the other (bool). A lane that never ends misses nothing."""
    lanes, graph = order.matching.lanes, order.graph
    entered = lanes.start[lanes.used[low:high]]
    bit = np.arange(high - low)
    seen = np.zeros((graph.nodes, -(-(high - low) // 64)), np.uint64)
    seen[entered, bit // 64] = np.uint64(1) << (bit % 64).astype(np.uint64)
    for targets, sources, starts in graph.sweep():
        seen[targets] |= np.bitwise_or.reduceat(seen[sources], starts, axis=0)
    at_end = seen[lanes.ends]
    missed: Array = (at_end[:, bit // 64] >> (bit % 64).astype(np.uint64)) & np.uint64(1) == 0
    missed &= (graph.level[lanes.ends] >= 0)[:, None]
    return missed


def _finding(table: OpTable, order: Order, early: Array) -> Diagnostic:
    leaving, entering = np.nonzero(early)
    own = leaving == entering
    r, p = (int(x[np.argmin(own)]) for x in (leaving, entering))  # rather two ranks than one
    last, first, shown = _witness(table, order, r, p)
    whom = f"rank {p}" if p != r else "all its own streams"
    missing = np.flatnonzero(early[r])
    return at_row(error(
        "SL308",
        f"rank {r} can leave before {whom} {'has' if p != r else 'have'} entered ({depth_words(order.sends.depth)}): "
        f"nothing that rank {r} waits for comes after rank {p}'s first step{shown}",
        notes=[collapse.note(table, last, f"the last of rank {r}: "),
               collapse.note(table, first, f"the first of rank {p}{shown}: "),
               *([Note(f"rank {r} does not wait for {len(missing)} ranks: {', '.join(map(str, missing[:8].tolist()))}"
                       f"{', ...' if len(missing) > 8 else ''}")] if len(missing) > 1 else [])],
        help="let word of every rank's entry reach every rank, for example in ceil_log2(ranks) rounds, each rank "
             "sending to the rank 1, 2, 4 ... further on",
        count=int(early.sum()), leaving=r, entering=p), table, last, first)


def _witness(table: OpTable, order: Order, r: int, p: int) -> tuple[int, int, str]:
    """A row of the last step of rank r and one of a first step of rank p that it does not wait for, and `` on stream
    x`` where rank p has several: of the streams of r, the one that waits for most of those of p."""
    lanes = order.matching.lanes
    mine, theirs = (np.flatnonzero(lanes.rank[lanes.used] == rank) for rank in (r, p))
    missed = _missed(order, int(theirs[0]), int(theirs[-1]) + 1)[mine]
    best = int(np.argmin(missed.sum(1)))
    leaving, entering = lanes.used[mine[best]], lanes.used[theirs[int(np.argmax(missed[best]))]]
    last = int(np.flatnonzero(lanes.node == lanes.start[leaving] + lanes.steps[leaving] - 1)[0])
    first = int(np.flatnonzero(lanes.node == lanes.start[entering])[0])
    return last, first, f" on stream {table.streams[int(table.stream[first])]}" if len(theirs) > 1 else ""
