"""Random tables whose steps are full: rows that read and write the same few chunks, sums in any order, fused chains,
several messages of one connection."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from schedlang.ir.build import table_from_rows
from schedlang.ir.table import Buffer, Collective, OpTable

CHUNKS = 3
BUFFERS = (Buffer("data", CHUNKS, role="data"), Buffer("input", CHUNKS, role="input"), Buffer("s", 2))

Row = dict[str, Any]


def crowded_table(rng: random.Random, ahead: float = 0.0) -> OpTable:
    """A table of rounds, each one step of every lane that has to do with it. Not all are right: a chain may wait for
    itself, or two streams may meet in one place. ``ahead``: how often a lane sends in a step before the one that it
    receives in, so that connections must hold messages."""
    return _Crowd(rng, ahead).table()


class _Crowd:
    def __init__(self, rng: random.Random, ahead: float) -> None:
        self.rng, self.ahead = rng, ahead
        self.ranks = rng.randint(2, 4)
        self.streams = rng.choice([1, 1, 1, 2])
        self.rows: list[Row] = []
        self.step: defaultdict[tuple[int, str], int] = defaultdict(int)

    def table(self) -> OpTable:
        for _ in range(self.rng.randint(1, 4)):
            self._round()
        place = {id(row): k for k, row in enumerate(self.rows)}
        rows = [{**row, "of": place[id(row["of"])]} if "of" in row else row for row in self.rows]
        return table_from_rows(rows, ranks=self.ranks, collective=Collective("custom", "sum"), buffers=BUFFERS,
                               chunks=1, name="crowded")

    def _round(self) -> None:
        self.made: list[Row] = []
        self.plain: set[tuple[int, str, int]] = set()
        self.added: set[tuple[int, str, int]] = set()
        for _ in range(self.rng.randint(1, 7)):
            self._move()
        if self.rng.random() < 0.5:                     # at the two ends of a connection alike, as it happens
            self.rng.shuffle(self.made)
        parts: tuple[list[Row], list[Row]] = [], []
        for row in self.made:
            parts[row["op"] != "send" or "of" in row or self.rng.random() >= self.ahead].append(row)
        for rows in parts:
            for row in rows:
                row["step"] = self.step[row["rank"], row["stream"]]
            for lane in {(row["rank"], row["stream"]) for row in rows}:
                self.step[lane] += 1
        self.rows += self.made

    def _spot(self, count: int, write: bool = False) -> tuple[str, int]:
        names = ["data", "data", "data", "input"] + ["s"] * write
        name = self.rng.choice(names)
        size = 2 if name == "s" else CHUNKS
        return name, self.rng.randint(0, size - count)

    def _target(self, rank: int, count: int, adds: bool) -> tuple[str, int] | None:
        """A place that may be written in this way, beside what else is written in this round; None: none was found."""
        for _ in range(4):
            name, chunk = self._spot(count, write=not adds)
            cells = {(rank, name, chunk + k) for k in range(count)}
            if not cells & self.plain and (adds or not cells & self.added):
                (self.added if adds else self.plain).update(cells)
                return name, chunk
        return None

    def _move(self) -> None:
        rng = self.rng
        count, rank = rng.choice([1, 1, 1, 2]), rng.randrange(self.ranks)
        stream = f"t{rng.randrange(self.streams)}"
        buffer, chunk = self._spot(count)
        if rng.random() < 0.2:
            adds = rng.random() < 0.6
            target = self._target(rank, count, adds)
            if target is not None:
                self.made.append({"op": "reduce" if adds else "copy", "rank": rank, "stream": stream, "count": count,
                                  "buffer": target[0], "chunk": target[1], "from_buffer": buffer, "from_chunk": chunk})
            return
        common = {"stream": stream, "count": count, "chan": f"c{rng.choice([0, 0, 0, 1])}"}
        send: Row = {**common, "op": "send", "rank": rank, "buffer": buffer, "chunk": chunk}
        hops = rng.choice([1, 1, 2, 2, 3])
        for hop in range(hops):
            peer = rng.choice([r for r in range(self.ranks) if r != rank])
            receive = self._receive(common, rank, peer, count, last=hop == hops - 1)
            if receive is None:
                return
            self.made += [{**send, "peer": peer}, receive]
            rank, send = peer, {**common, "op": "send", "rank": peer, "of": receive}

    def _receive(self, common: Row, rank: int, peer: int, count: int, last: bool) -> Row | None:
        rng = self.rng
        row: Row = {**common, "rank": peer, "peer": rank}
        how = rng.random()
        if how < 0.2:
            row |= {"buffer": None, "chunk": 0, "op": "recv"}
            if how < 0.1 and not last:
                operand = self._spot(count)
                row |= {"op": "reduce_recv", "from_buffer": operand[0], "from_chunk": operand[1]}
            return row
        adds = rng.random() < 0.7
        target = self._target(peer, count, adds)
        if target is None:
            return None
        row |= {"op": "reduce_recv" if adds else "recv", "buffer": target[0], "chunk": target[1]}
        if not adds and rng.random() < 0.3:
            operand = self._spot(count)
            row |= {"op": "reduce_recv", "from_buffer": operand[0], "from_chunk": operand[1]}
        return row
