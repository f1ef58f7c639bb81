"""How strands that run alike are laid out: in which nests, over which axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from schedlang.ir.table import Array
from schedlang.lift.build import MOST_SPLIT, Build
from schedlang.lift.formulas import tabled, weight
from schedlang.lift.nest import Nest, Part, Strands, lines, tables

MANY = 1 << 13
"""Strands of more statements are laid out in one way only."""


def nests(strands: Strands, members: Array, *, loops: bool = True, parts: bool = True) -> list[Nest]:
    """Strands that run alike, as few nests as read well. ``loops``: whether what repeats is looked for; ``parts``:
    whether anchors that have as many strands may be in several nests."""
    anchors, count = np.unique(strands.anchor[members], return_counts=True)
    found = []
    for size in np.unique(count).tolist():
        these = members[np.isin(strands.anchor[members], anchors[count == size])]
        found += _uniform(strands, these, loops) if parts else [best(strands, these, loops)]
    return found


def _uniform(strands: Strands, members: Array, loops: bool) -> list[Nest]:
    """Nests of strands of which each anchor has as many."""
    found = [best(strands, members, loops)]
    anchors = np.unique(strands.anchor[members])
    if not tables(found[0].body):
        return found
    of = np.searchsorted(anchors, strands.anchor[members])
    size = len(anchors)
    for parts in (*(p for p in range(2, size // 2 + 1) if size % p == 0 and p <= MOST_PARTS), size):
        if parts * (_total(found) - sum(_listed(n.body) for n in found)) // len(found) >= _total(found):
            continue
        for group in (of % parts, of // (size // parts))[: 1 + (parts < size)]:
            made: list[Nest] = []
            for part in range(parts):
                made.append(best(strands, members[group == part], loops))
                if _total(made) >= _total(found):
                    break
            else:
                found = made
    return found


MOST_PARTS = 16
"""So many groups of ranks are tried, but for one of each rank."""


def _listed(body: Sequence[Part]) -> int:
    """How much of what there is to read are tables."""
    return sum(weight(f) for line in lines(body) for f in line.formulas if tabled(f) is not None)


def _total(made: Sequence[Nest]) -> int:
    return sum(n.cost for n in made)


def best(strands: Strands, members: Array, loops: bool) -> Nest:
    """The nest of all these strands that costs least."""
    build = Build.of(strands, members, loops)
    found: Nest | None = None
    by_rank = _by_rank(build, members)
    for grid in _grids(strands, members):
        made = build.nest(grid)
        if found is None or made.cost < found.cost:
            found = made
        if not tables(found.body) or len(build.kinds) > MANY or (by_rank is not None and not tables(by_rank.body)):
            break
    assert found is not None
    if by_rank is not None and by_rank.cost < found.cost:
        found = by_rank
    if tables(found.body) and len(build.kinds) <= MANY and found.others is None:
        other = replace(build, unrolls=True).nest(found.members)
        return other if other.cost < found.cost else found
    return found


def _by_rank(build: Build, members: Array) -> Nest | None:
    """Strands with an axis for the ranks, as the first number that tells the strands of an anchor apart is such a one;
    None where it is not, or goes over all ranks, or over few."""
    strands, anchor = build.strands, build.strands.anchor[members]
    anchors = np.unique(anchor)
    each = len(members) // len(anchors)
    if each < 2 or strands.world < 3:
        return None
    for at in range(min(len(build.kinds), FIRST)):
        for field in strands.ranked:
            rank = strands.fields[strands.first[members] + at, field]
            pairs, count = np.unique(np.stack([anchor, rank], 1), axis=0, return_counts=True)
            if len(pairs) == len(anchors):
                continue
            if len(pairs) % len(anchors) or (count != count[0]).any() or (
                    pairs[:: len(pairs) // len(anchors), 0] != anchors).any():
                return None
            order = np.lexsort((*list(_keys(strands, members))[1][::-1], rank, anchor))
            shape = (len(anchors), len(pairs) // len(anchors), *([int(count[0])] if count[0] > 1 else []))
            return build.by_rank(members[order].reshape(shape), pairs[:, 1].reshape(shape[:2]))
    return None


FIRST = 16
"""So many statements of a strand are looked at for what tells it apart."""


def _grids(strands: Strands, members: Array) -> Iterator[Array]:
    """Ways to lay strands out: an axis for the anchors, then one or two for those of one anchor, in an order that their
    fields say."""
    anchors = np.unique(strands.anchor[members])
    each = len(members) // len(anchors)
    if each == 1:
        yield members[np.argsort(strands.anchor[members], kind="stable")]
        return
    seen: set[bytes] = set()
    orders = []
    for key in _keys(strands, members):
        order = np.lexsort((*key[::-1], strands.anchor[members]))
        if order.tobytes() not in seen:
            seen.add(order.tobytes())
            orders.append(members[order].reshape(len(anchors), each))
    yield from orders
    if each > MOST_SPLIT:
        return
    for inner in range(2, each // 2 + 1):
        if each % inner == 0:
            for order in orders:
                yield order.reshape(len(anchors), each // inner, inner)


def _keys(strands: Strands, members: Array) -> Iterator[list[Array]]:
    """What strands of one anchor may be sorted by, the most telling first."""
    length = int(strands.first[members[0] + 1] - strands.first[members[0]])
    at = strands.first[members][:, None] + np.arange(length)
    away = [(strands.fields[at, f] - strands.anchor[members][:, None]) % strands.world for f in strands.ranked]
    known = [strands.fields[at, f] for f in strands.ranked]
    rest = [strands.fields[at, f] for f in range(strands.fields.shape[1]) if f not in strands.ranked]
    for parts in ((away, rest), (rest, away), (known, rest)):
        columns = [c for part in parts for column in part for c in column.T]
        yield [c for c in columns if len(c) and (c != c[0]).any()][:64] or [np.zeros(len(members), np.int64)]
