"""The rows that a `use` makes: copies of a table, placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from schedlang.expand.frame import Frame
from schedlang.expand.rows import Even, Starts, positions
from schedlang.expand.values import Array
from schedlang.ir.place import Placement, placed
from schedlang.ir.table import NONE, OpTable


@dataclass(eq=False)
class Inlined:
    """The rows of a `use`: a copy of a table in each turn of a frame."""

    frame: Frame
    table: OpTable
    by: Placement
    starts: Starts = field(default_factory=lambda: Even(0))

    @property
    def width(self) -> int:
        """Rows in each turn; for this and the other methods see :class:`schedlang.expand.rows.Leaf`."""
        return len(self.table)

    def counts(self) -> int:
        return self.width

    def place(self, starts: Starts) -> None:
        self.starts = starts

    def begins(self) -> Sequence[int]:
        number = self.table.number
        assert number is not None
        return [0, *(np.flatnonzero(number[1:] != number[:-1]) + 1).tolist()] if self.width else []

    def uniform(self, column: str) -> int | None:
        if column in ("turn", "site") or getattr(self.table, column).strides != (0,):
            return None
        value = placed(self.table, self.by, column)
        if isinstance(value, int):
            return value
        first = int(value.flat[0])
        return first if (value == first).all() else None

    def on_own_stream(self) -> bool:
        return False        # may be, but it is not looked for

    def write(self, out: Mapping[str, Array]) -> None:
        n, width = self.frame.n, self.width
        at = positions(self.starts)
        together = n == 1 or (isinstance(self.starts, Even) and self.starts.axes == ((n, width),))
        base = int(at[0])
        where: Any = slice(base, base + n * width) if together else (at[:, None] + np.arange(width)).ravel()
        for column, cells in out.items():
            value = placed(self.table, self.by, column)
            if column == "of" and not isinstance(value, int):
                value = np.where(value == NONE, NONE, value + at[:, None])
            cells[where] = value if isinstance(value, int) else value.ravel()
