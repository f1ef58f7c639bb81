"""Steps taken apart: receives that pass on what they yield, and steps whose messages go at different times.

A step becomes several, one after another, each with the messages of one turn. It reads before it writes: so what is
written where the step also reads, or is passed on, is received into the scratch buffer ``passing`` first, and a last
step puts it where it belongs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np

from schedlang.ir.table import COLUMNS, DTYPES, NONE, Array, Buffer, OpTable
from schedlang.ops import Op

PASSING = "passing"

APART = 8
"""Turns given to split are multiples of half of this, so that there is room for what is done between two of them."""

_RECEIVES = (Op.RECV, Op.REDUCE_RECV)

Row = dict[str, int]


def split(table: OpTable, turn: Array) -> tuple[OpTable, Array]:
    """The same meaning without fused operations, each step with one turn; and the turns of its rows, counted from 0."""
    lane = table.rank.astype(np.int64) * max(1, len(table.streams)) + table.stream
    by = np.lexsort((np.arange(len(table)), table.step, lane))
    first = np.ones(len(by), bool)
    first[1:] = (lane[by[1:]] != lane[by[:-1]]) | (table.step[by[1:]] != table.step[by[:-1]])
    steps = [part.tolist() for part in np.split(by, np.flatnonzero(first)[1:])] if len(by) else []
    made = _Splitting(table, turn, steps)
    rows: list[Row] = []
    last = step = NONE
    for here in steps:
        if int(lane[here[0]]) != last:
            last, step = int(lane[here[0]]), 0
        for part in made.parts(here):
            rows += [{**row, "step": step} for row in part]
            step += 1
    rows.sort(key=lambda row: row["was"])           # messages of a connection, and sums into a place, keep their order
    columns = {name: np.array([row[name] for row in rows], DTYPES[name]) for name in COLUMNS if name != "number"}
    buffers = (*table.buffers, Buffer(PASSING, made.room)) if made.room else table.buffers
    turns = np.unique([row["when"] for row in rows], return_inverse=True)[1]
    return table.with_columns(**columns, number=None, buffers=buffers), turns.reshape(len(rows)).astype(np.int32)


class _Splitting:
    """``room``: how many chunks `passing` needs; each stream has its own of them."""

    def __init__(self, table: OpTable, turn: Array, steps: list[list[int]]) -> None:
        self.table, self.turn = table, turn
        self.forwards = {int(table.of[r]): int(r) for r in np.flatnonzero(table.of != NONE)}
        self.aside: dict[int, int] = {}             # by receive: where in its stream's part of `passing` it goes
        self.busy: set[int] = set()                 # receives passed on, to whose place others of the step add
        need: Counter[int] = Counter()
        for rows in steps:
            used = self._place_aside(rows)
            stream = int(table.stream[rows[0]])
            need[stream] = max(need[stream], used)
        self.base, self.room = {}, 0
        for stream in sorted(need):
            self.base[stream] = self.room
            self.room += need[stream]

    def _place_aside(self, rows: list[int]) -> int:
        """Finds the receives of a step that go to `passing` first: those that are passed on, that store nothing, or, in
        a step that is taken apart, whose place other rows touch. Returns how many chunks they need."""
        t = self.table
        receives = [r for r in rows if t.op[r] in _RECEIVES]
        lost = any(t.buffer[r] == NONE for r in receives)
        if not lost and not any(r in self.forwards for r in receives) and len(self._turns(rows)) <= 1:
            return 0
        touch: Counter[tuple[int, int]] = Counter()
        add: Counter[tuple[int, int]] = Counter()
        for r in rows:
            if t.of[r] == NONE:
                touch.update({*self._cells(r, "buffer", "chunk"), *self._cells(r, "from_buffer", "from_chunk")})
            if t.op[r] in (Op.REDUCE, Op.REDUCE_RECV):
                add.update(self._cells(r, "buffer", "chunk"))
        used = 0
        for r in receives:
            cells = self._cells(r, "buffer", "chunk")
            if r in self.forwards or not cells or any(touch[c] > 1 for c in cells):
                self.aside[r] = used
                used += int(t.count[r])
                if r in self.forwards and any(add[c] > 1 for c in cells):
                    self.busy.add(r)
                    used += int(t.count[r])
        return used

    def _turns(self, rows: list[int]) -> set[int]:
        return {int(self.turn[r]) for r in rows if self.table.peer[r] != NONE}

    def _cells(self, row: int, buffer: str, chunk: str) -> list[tuple[int, int]]:
        """The chunks that a row names in two of its columns."""
        which, start = int(getattr(self.table, buffer)[row]), int(getattr(self.table, chunk)[row])
        return [] if which == NONE else [(which, start + k) for k in range(int(self.table.count[row]))]

    def _row(self, row: int, **changed: int) -> Row:
        """A row with other values in some columns; ``was``: which one it is; ``when``: its turn."""
        t = self.table
        return {**{name: int(getattr(t, name)[row]) for name in COLUMNS if name != "number"}, "was": row, **changed}

    def parts(self, rows: list[int]) -> Iterator[list[Row]]:
        """The steps that one step becomes, in order, with their turns in `when`."""
        t, turns = self.table, self._turns(rows)
        if len(turns) <= 1 and not any(r in self.aside for r in rows):
            at = max(turns, default=int(self.turn[rows[0]]))
            yield [self._row(r, when=at) for r in rows]
            return
        parts: defaultdict[int, list[Row]] = defaultdict(list)
        last = max(turns) + 3                       # what is put where it belongs when all has come
        for r in rows:
            at = int(self.turn[r])
            if t.peer[r] == NONE:
                parts[last].append(self._row(r))
            elif t.of[r] != NONE:
                parts[at].append(self._row(r, **self._passing(int(t.of[r])), of=NONE))
            elif r in self.aside:
                self._received(r, at, last, parts)
            else:
                parts[at].append(self._row(r))
        for at in sorted(parts):
            yield [{**row, "when": at} for row in parts[at]]

    def _passing(self, receive: int, second: bool = False) -> Row:
        """Where in `passing` the value of a receive stands; ``second``: its message, where that stands there, too."""
        base = self.base[int(self.table.stream[receive])] + self.aside[receive]
        return {"buffer": len(self.table.buffers), "chunk": base + second * int(self.table.count[receive])}

    def _received(self, r: int, at: int, last: int, parts: defaultdict[int, list[Row]]) -> None:
        """Receive a row's value into `passing`, and store it in the last step."""
        t, here = self.table, self._passing(r)
        local = {"op": int(Op.COPY), "peer": NONE, "chan": NONE}
        value = {"from_buffer": here["buffer"], "from_chunk": here["chunk"]}
        plain = {"op": int(Op.RECV), "from_buffer": NONE, "from_chunk": 0}
        in_place = t.from_buffer[r] == t.buffer[r] and t.from_chunk[r] == t.chunk[r]
        if r in self.busy:                          # what is passed on is not what the place ends as
            message = self._passing(r, second=True)
            there = {"from_buffer": message["buffer"], "from_chunk": message["chunk"]}
            parts[at].append(self._row(r, **{**plain, **message}))
            parts[at + 1].append(self._row(r, **{**local, **here, **there}))
            parts[at + 2].append(self._row(r, **{**local, **here, "op": int(Op.REDUCE)}))
            parts[last].append(self._row(r, **{**local, **there, "op": int(Op.REDUCE)}))
        elif t.op[r] == Op.REDUCE_RECV and (r in self.forwards or not in_place):
            parts[at].append(self._row(r, **here))
            if t.buffer[r] != NONE:
                parts[last].append(self._row(r, **{**local, **value}))
        else:
            parts[at].append(self._row(r, **{**plain, **here}))
            if t.buffer[r] != NONE:
                how = int(Op.REDUCE if t.op[r] == Op.REDUCE_RECV else Op.COPY)
                parts[last].append(self._row(r, **{**local, **value, "op": how}))
