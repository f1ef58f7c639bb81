"""What a schedule costs, counted: rounds, bytes and messages, scratch, buffering; beside what no schedule can go below.

Bytes are in units of ``n``, as exact fractions: the bytes of the buffer whose length the element count is (see
``ir.layout.measured``); of that buffer's c chunks each counts n / c. For v-collectives, whose chunks differ, they are
elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from schedlang.ir.layout import measured
from schedlang.ir.legal.blocks import BLOCK
from schedlang.ir.table import NONE, Array, OpTable, chosen
from schedlang.ops import COLLECTIVES, Op
from schedlang.verify.values.carriers import Carriers
from schedlang.verify.values.conditions import Conditions


@dataclass(frozen=True)
class Bounds:
    """Lower bounds: ``rounds`` where a rank sends and receives at most one message a round (what one rank starts with
    is then at most on twice as many ranks as before), and the bytes that some rank must send and that some rank must
    receive. None: nothing is known.

    Source: Thakur, Rabenseifner, Gropp, Optimization of Collective Communication Operations in MPICH, IJHPCA 19(1),
    2005.
    """

    rounds: int | None
    sent: Fraction | None
    received: Fraction | None


def bounds(collective: str, ranks: int) -> Bounds:
    """The lower bounds for a collective on ``ranks`` ranks."""
    family = COLLECTIVES[collective].family
    if family in ("custom", "vector"):
        return Bounds(None, None, None)
    log = (ranks - 1).bit_length()
    if ranks == 1 or family == "barrier":
        return Bounds(log, Fraction(0), Fraction(0))
    whole, others, one = Fraction(1), Fraction(ranks - 1, ranks), Fraction(1, ranks)
    sent, received = {
        "allreduce": (2 * others, 2 * others), "reduce": (whole, whole), "broadcast": (whole, whole),
        "reduce_scatter": (others, others), "allgather": (others, others), "alltoall": (others, others),
        "scatter": (others, one), "gather": (one, others),
    }[collective]
    return Bounds(log, sent, received)


def share(value: Fraction) -> str:
    """A number of bytes: ``7/4 n``, ``n``, ``0``."""
    if value in (0, 1):
        return "n" if value else "0"
    return f"{value} n"


def traffic(table: OpTable, elements: Array | None = None) -> dict[str, Any]:
    """What ranks send and receive, over which links. ``elements``: how many each send sends, for v-collectives, whose
    chunks differ; without it their bytes are left out, and those of a barrier always: its tokens have none. ``n`` in
    words is among the facts where it is a unit."""
    n = table.ranks
    link, moved, number = _links(table, elements)
    sent, received = _summed(link // n, moved, n), _summed(link % n, moved, n)
    messages = _summed(link // n, number, n)
    facts: dict[str, Any] = {}
    measure = measured(table) if COLLECTIVES[table.collective.name].family not in ("vector", "barrier") else None
    unit = measure.chunks if measure is not None else 0
    if elements is not None or unit:
        def amount(chunks: int) -> str:
            return share(Fraction(chunks, unit)) if elements is None else f"{chunks} elements"

        if elements is None and measure is not None:
            facts["n"] = f"the bytes of {measure.name}"
        limit = bounds(table.collective.name, n)
        facts["sent_most"] = amount(int(sent.max()))
        if limit.sent is not None:
            facts["sent_bound"] = share(limit.sent)
        facts["sent_least"] = amount(int(sent.min()))
        facts["received_most"] = amount(int(received.max()))
        if limit.received is not None:
            facts["received_bound"] = share(limit.received)
        facts["link_most"] = amount(int(moved.max(initial=0)))
    return facts | {"messages": int(messages.sum()), "messages_most": int(messages.max()), "links": len(link)}


def _sends(table: OpTable, elements: Array | None, least: int) -> Iterator[tuple[Array, Array | None]]:
    """The sends in pieces of at least ``least`` rows, without large temporaries: the link (source times ranks plus
    destination), and how much each sends (None: 1)."""
    size, done = max(BLOCK, least), 0
    for start in range(0, len(table), size):
        sends = chosen(table.op[start : start + size] == Op.SEND, start)
        link = table.rank[sends] * np.int64(table.ranks)
        link += table.peer[sends]
        count = table.count[sends] if elements is None else elements[done : done + len(link)]
        done += len(link)
        unit = elements is None and int(count.max(initial=0)) <= 1
        yield link, None if unit else count


def _summed(index: Array, weight: Array | None, size: int) -> Array:
    return np.bincount(index, weight, size).astype(np.int64)


def _links(table: OpTable, elements: Array | None) -> tuple[Array, Array, Array]:
    """The used links, the chunks (or elements) that go over each, and the messages."""
    n = table.ranks
    if n * n <= max(1 << 20, 4 * len(table)):
        used = np.zeros(n * n, bool)
        for link, _ in _sends(table, elements, 0):
            used[link] = True
        links = np.flatnonzero(used)
        number = np.cumsum(used, dtype=np.int32)
        number -= 1
        total, messages = np.zeros(len(links), np.int64), np.zeros(len(links), np.int64)
        for link, weight in _sends(table, elements, len(links)):
            which = number[link]
            times = np.bincount(which, minlength=len(links))
            messages += times
            total += times if weight is None else _summed(which, weight, len(links))
        return links, total, messages
    parts = list(_sends(table, elements, len(table)))
    if not parts:
        none = np.zeros(0, np.int64)
        return none, none, none
    (key, weight), = parts
    links, inverse, messages = np.unique(key, return_inverse=True, return_counts=True)
    return links, _summed(inverse, weight, len(links)), messages


def peak_scratch(table: OpTable, carriers: Carriers, conditions: Conditions) -> int:
    """The most scratch chunks that a rank uses: whatever the interleaving, no more hold a value at once."""
    if all(buffer.role != "scratch" for buffer in table.buffers):
        return 0
    places, c = conditions.locations, carriers
    used = np.zeros(places.total, bool)
    for touched in (c.source, c.operand, c.target):
        if touched is not None:
            used[touched[touched != NONE]] = True
    per_rank = np.zeros(table.ranks, np.int64)
    for buffer, base in zip(table.buffers, places.base.tolist(), strict=True):
        if buffer.role == "scratch":
            per_rank += used[base : base + table.ranks * buffer.chunks].reshape(table.ranks, buffer.chunks).sum(1)
    return int(per_rank.max())
