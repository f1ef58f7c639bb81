"""What a location holds, as the short text of a cell; all pictures use the same."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from schedlang.ir.table import OpTable
from schedlang.ops import COLLECTIVES
from schedlang.render.holdings import Place, Value, Walk

NOTHING = "."
"""The cell of a location that has no value yet."""

UNKNOWN = "?"
"""The cell of a location whose value was computed from one that had none."""


class Cells:
    """Writes the cells of one walk."""

    def __init__(self, table: OpTable, walk: Walk) -> None:
        self.table = table
        family = COLLECTIVES[table.collective.name].family
        self.in_place = family in ("whole", "barrier") or (table.collective.inplace and family in ("blocked", "vector"))
        chunks_of: dict[int, int] = {}
        for _, rank, _ in walk.start:
            chunks_of[rank] = chunks_of.get(rank, 0) + 1
        self.one_each = all(n == 1 for n in chunks_of.values())
        self.unknown = any(value is None for step in walk.rounds for value in step.written.values())

    def legend(self) -> str:
        """How to read a cell, as one sentence without a full stop."""
        if self.table.collective.name == "barrier":
            return "A cell lists the ranks of which a rank knows that they have entered"
        return ("A cell lists whose initial values a location holds: 0+2 the sum of rank 0's and rank 2's, 0-3 that "
                f"of ranks 0 to 3, 0[5] chunk 5 of rank 0, {NOTHING} nothing yet"
                + (f", {UNKNOWN} from unwritten memory" if self.unknown else ""))

    def text(self, place: Place, value: Value | None) -> str:
        """What a location holds, compactly."""
        if value is None:
            return UNKNOWN
        chunks = {(b, c) for _, b, c in value}
        if len(chunks) == 1:
            ((_, chunk),) = chunks
            names = _ranks({rank: times for (rank, _, _), times in value.items()})
            if self.one_each or (self.in_place and chunk == place[2]):
                return names
            return f"{names}[{chunk}]" if names.isdigit() else f"({names})[{chunk}]"
        if self.one_each:
            return _ranks({rank: times for (rank, _, _), times in value.items()})
        return "+".join((f"{times}*" if times > 1 else "") + f"{rank}[{chunk}]"
                        for (rank, _, chunk), times in sorted(value.items()))


def _ranks(times: Mapping[int, int]) -> str:
    """``0+2``; ``0-3`` for three or more in a row; ``2*1`` for rank 1 twice."""
    parts: list[str] = []
    ranks = sorted(times)
    for (_, often), group in groupby(enumerate(ranks), key=lambda at: (at[1] - at[0], times[at[1]])):
        run = [rank for _, rank in group]
        if often == 1 and len(run) > 2:
            parts.append(f"{run[0]}-{run[-1]}")
        else:
            parts += [str(rank) if often == 1 else f"{often}*{rank}" for rank in run]
    return "+".join(parts)
