"""Lanes that lie on rings: each receives from one rank and sends to one, and so round."""

from __future__ import annotations

import numpy as np

from schedlang.ir.table import NONE, Array
from schedlang.lift.statements import Statements
from schedlang.ops import Op


def rings(s: Statements, members: Array, number: Array) -> tuple[Array, Array] | None:
    """Lanes ``members`` by place, then ring, and the rank by ring, then place; None where they are no rings that all
    have as many ranks. ``number``: of each lane, that of its connections; lanes with the same one may be on a ring.
    A ring begins at its least rank."""
    following = _following(s, members)
    if following is None or (number[members] == NONE).any():
        return None
    found: list[tuple[list[int], list[int]]] = []
    for ring in np.unique(number[members]).tolist():
        there = number[members] == ring
        lane = dict(zip(s.rank[members[there]].tolist(), members[there].tolist(), strict=True))
        onward = dict(zip(s.rank[members[there]].tolist(), following[there].tolist(), strict=True))
        if len(lane) < int(there.sum()) or set(onward.values()) != set(onward):
            return None
        ranks = [min(onward)]
        while onward[ranks[-1]] != ranks[0]:
            ranks.append(onward[ranks[-1]])
            if len(ranks) > len(lane):
                return None
        if len(ranks) < len(lane):
            return None
        found.append((ranks, [lane[r] for r in ranks]))
    if len({len(ranks) for ranks, _ in found}) > 1 or len(found[0][0]) < 3:
        return None
    return np.array([lanes for _, lanes in found], np.int64).T, np.array([ranks for ranks, _ in found], np.int64)


def _following(s: Statements, members: Array) -> Array | None:
    """Whom each lane sends to; None where some send to several or receive from several."""
    t = s.table
    found = []
    for lane in members.tolist():
        part = slice(int(s.first[lane]), int(s.first[lane + 1]))
        rows, forward = s.row[part], s.forward[part]
        op = t.op[rows]
        out = np.unique(np.r_[t.peer[rows[op == Op.SEND]], t.peer[forward[forward != NONE]]])
        into = np.unique(t.peer[rows[(op == Op.RECV) | (op == Op.REDUCE_RECV)]])
        if len(out) != 1 or len(into) != 1:
            return None
        found.append(int(out[0]))
    return np.array(found, np.int64)
