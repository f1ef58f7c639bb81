"""Loop nests back to the table they came from."""

from __future__ import annotations

from typing import Any

import numpy as np

from schedlang.ir.loops.nests import Lanes, Loop, Part, Program, Statement, Step, length
from schedlang.ir.table import COLUMNS, DTYPES, NONE, Array, OpTable
from schedlang.ops import Op

Coordinates = tuple[Array, ...]


def unroll(lanes: Lanes) -> OpTable:
    """The table whose loop nests these are, row for row; buffers, streams, events and sites are the original's."""
    made = _Unrolled(lanes)
    for program in lanes.programs:
        made.body(program, program.body, (program.ranks,), np.zeros(1, np.int64))
    return lanes.table.with_columns(**made.columns)


def _deeper(coordinates: Coordinates, count: int) -> tuple[Coordinates, Array]:
    """The coordinates with a loop variable more, which comes last, and that variable."""
    turn = np.arange(count).reshape([1] * len(coordinates) + [count])
    return (*(c[..., None] for c in coordinates), turn), turn


class _Unrolled:
    """Columns that fill up."""

    def __init__(self, lanes: Lanes) -> None:
        t = lanes.table
        columns = [c for c in COLUMNS if c != "number" or t.number is not None]
        self.columns = {c: np.full(lanes.rows, NONE, DTYPES[c]) for c in columns}
        self.events = {key: i for i, key in enumerate(zip(t.events, t.event_indices, strict=True))}

    def body(self, program: Program, parts: tuple[Part, ...], coordinates: Coordinates, step: Array) -> None:
        """Fills in the rows of ``parts``, of which the first is step number ``step``, given for all coordinates."""
        for part in parts:
            if isinstance(part, Step):
                self.step(program, part.body, coordinates, step)
            elif isinstance(part, Loop):
                inner, turn = _deeper(coordinates, part.count)
                self.body(program, part.body, inner, step[..., None] + turn * length(part.body))
            step = step + length((part,))

    def step(self, program: Program, parts: tuple[Part, ...], coordinates: Coordinates, step: Array) -> None:
        """Fills in the rows of a step, then joins fused sends to their receives."""
        rows: dict[int, Array] = {}
        fused: list[tuple[int, int]] = []
        self._statements(program, parts, coordinates, step, np.zeros([1] * len(coordinates), np.int64), rows, fused)
        for send, receive in fused:
            self.columns["of"][rows[send].ravel()] = rows[receive].ravel()

    def _statements(self, program: Program, parts: tuple[Part, ...], coordinates: Coordinates, step: Array, at: Array,
                    rows: dict[int, Array], fused: list[tuple[int, int]]) -> None:
        """``at``: which row of the step the first of ``parts`` is. Notes in ``rows`` the ids of the rows at each
        place."""
        for part in parts:
            if isinstance(part, Loop):
                inner, turn = _deeper(coordinates, part.count)
                self._statements(program, part.body, inner, step[..., None], at[..., None] + turn * length(part.body),
                                 rows, fused)
            elif isinstance(part, Statement):
                ids = self.statement(program, part, coordinates, step)
                for place in np.ndindex(at.shape):
                    rows[int(at[place])] = ids[tuple(
                        slice(None) if n == 1 else slice(i, i + 1) for n, i in zip(at.shape, place, strict=True))]
                    if part.of is not None:
                        fused.append((int(at[place]), part.of))
            at = at + length((part,))

    def statement(self, program: Program, s: Statement, coordinates: Coordinates, step: Array) -> Array:
        """Fills in the rows of a statement; their ids, one axis for each coordinate."""
        shape = np.broadcast_shapes(*(c.shape for c in coordinates))
        ids = np.broadcast_to(s.formulas["row"](coordinates), shape)

        def put(column: str, values: Any) -> None:
            self.columns[column][ids] = np.broadcast_to(values, shape)

        put("op", int(s.op))
        put("rank", coordinates[0])
        put("stream", program.stream)
        put("step", step)
        put("buffer", s.buffer)
        put("from_buffer", s.from_buffer)
        put("chan", s.chan)
        for name in ("chunk", "count", "peer", "from_chunk", "site", "turn", "number"):
            if name in s.formulas:
                put(name, s.formulas[name](coordinates))
        if s.op >= Op.RECORD:
            put("chunk", 0)
            put("count", 0)
            put("event", self.event(s, coordinates, shape))
        return ids

    def event(self, s: Statement, coordinates: Coordinates, shape: tuple[int, ...]) -> Array:
        """The events that a record or wait names."""
        indices = [np.broadcast_to(f(coordinates), shape).ravel().tolist()
                   for name, f in s.formulas.items() if name.startswith("index")]
        keys = list(zip(*indices, strict=True)) if indices else [()] * int(np.prod(shape))
        return np.array([self.events[s.event or "", key] for key in keys]).reshape(shape)
