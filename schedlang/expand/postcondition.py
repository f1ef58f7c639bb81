"""Where the `ensure` statements of a schedule are gathered."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from schedlang.expand.values import Array
from schedlang.ir.table import Ensures
from schedlang.source import Span


@dataclass
class Collected:
    """Locations and their sources, statement by statement: (buffer, rank, chunk, sources a location, source
    triples).
    """

    parts: list[tuple[Array, Array, Array, Array, Array, Array, Array]] = field(default_factory=list)
    spans: list[tuple[Span, int]] = field(default_factory=list)

    def made(self) -> Ensures | None:
        """All of it as one; None where there is nothing."""
        if not self.parts:
            return None
        buffer, rank, chunk, counts, *source = (np.concatenate([p[i] for p in self.parts]) for i in range(7))
        starts = np.concatenate(([0], np.cumsum(counts)))
        location = tuple(span for span, n in self.spans for _ in range(n))
        b, r, c = (x.astype(np.int32) for x in source)
        return Ensures(
            buffer.astype(np.int32), rank.astype(np.int32), chunk.astype(np.int32), starts, b, r, c, location
        )
