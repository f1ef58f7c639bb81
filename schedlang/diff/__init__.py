"""What two tables have in common: the same operations, the same bits, the same results, or not even these; and what
each of them costs.

In the order of reading: ``report`` (what is found), ``promises`` (what can be compared, and in which parts);
``operations`` (whether these are the same) with ``colours`` (what things are like, whatever they are called) and
``apart`` (where they differ, in words); ``states`` (results, and the order of additions); ``path`` (the critical path).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from schedlang.diagnostics import Note
from schedlang.diff import operations, states
from schedlang.diff.path import chain, stretches
from schedlang.diff.promises import common_parts, unlike
from schedlang.diff.report import LEVELS, Difference, Level, Side, Stretch
from schedlang.ir.table import OpTable, Transport
from schedlang.verify import verify
from schedlang.verify.matching import match
from schedlang.verify.timing.lanes import Lanes

__all__ = ["LEVELS", "Difference", "Level", "Side", "Stretch", "diff"]

SETTLED = ("form", "steps", "matching", "deadlock", "races", "initialisation", "barrier")
"""The proofs without which a table has no one result."""


def diff(a: OpTable, b: OpTable) -> Difference:
    """Compare two tables: what they promise, their operations, their results; the first that settles it is the answer.

    Where both divide the buffer into different numbers of chunks, the parts that both have in common are compared: the
    answer holds for element counts that divide into these. Deadlock is judged without buffering, all else with
    unlimited buffering; where a table was written for a transport, deadlock by what that offers, of both. Raises
    SchedError (SL208) where there are too many common parts to follow.
    """
    one, other = _side(a, b.transport), _side(b, a.transport)
    if not (one.settled and other.settled):
        return Difference(one, other, "faulty", ())
    apart = unlike(a, b)
    if apart:
        x, y = apart[0]
        return Difference(one, other, "different", (Note(f"A: {x}", a.collective.location or a.location),
                                                    Note(f"B: {y}", b.collective.location or b.location)))
    first = operations.difference(a, b)
    if not first and _ensured_alike(a, b):
        return Difference(one, other, "operations", ())
    found = states.compare(a, b)
    parts = common_parts(a, b)
    divided = None if common_parts(a, a) == common_parts(b, b) else parts
    notes = found.notes or first
    return Difference(one, other, found.level, notes, found.results, found.others, divided, found.doubt)


def _side(table: OpTable, others: Transport | None) -> Side:
    verdict = verify(table if table.transport or others is None else table.with_columns(transport=others))
    facts = dict(verdict.facts)
    stretch: tuple[Stretch, ...] = ()
    if verdict.proof("form").state == "proved":
        lanes = Lanes(table)
        facts |= {"operations": len(table), "streams": int(lanes.per_rank(table.ranks).max(initial=0)),
                  "chunks": table.chunks}
        if "rounds" in facts:
            stretch = tuple(stretches(table, chain(table, match(table))))
    settled = all(p.state == "proved" for p in verdict.proofs if p.name in SETTLED)
    return Side(table, verdict.ok, settled, verdict.diagnostics, facts, stretch)


def _ensured_alike(a: OpTable, b: OpTable) -> bool:
    """Whether two `custom` collectives of the same buffers say the same of the same places; other collectives do."""
    one, other = a.collective.ensures, b.collective.ensures
    if one is None or other is None:
        return one is other

    def places(table: OpTable, buffer: np.ndarray[Any, Any], rank: np.ndarray[Any, Any],
               chunk: np.ndarray[Any, Any]) -> list[tuple[str, int, int]]:
        return [(table.buffers[i].name, r, c) for i, r, c in zip(buffer.tolist(), rank.tolist(), chunk.tolist(),
                                                                strict=True)]

    said = []
    for table, e in ((a, one), (b, other)):
        sources = places(table, e.source_buffer, e.source_rank, e.source_chunk)
        bounds = e.starts.tolist()
        said.append({place: sorted(sources[s:t]) for place, s, t in zip(
            places(table, e.buffer, e.rank, e.chunk), bounds[:-1], bounds[1:], strict=True)})
    return said[0] == said[1]
