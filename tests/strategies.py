"""Random op tables: of schedules that are right or nearly so, and of rows thrown together.

Everything draws from a ``random.Random``: Hypothesis gives one that it can shrink, the nightly run a seeded one.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from schedlang.ir.buffers import standard_buffers
from schedlang.ir.build import table_from_rows
from schedlang.ir.table import Buffer, Collective, OpTable
from schedlang.ops import COLLECTIVES
from schedlang.source import Place
from tests.strategies_moves import Move, Spot, World, collective_moves, fuse, interleave, random_moves, rounds


@st.composite
def tables(draw: st.DrawFn, collective: str | None = None, flawless: bool = False) -> OpTable:
    """Tables of working schedules; where not ``flawless``, orders between streams are left out here and there."""
    return working_table(draw(st.randoms(use_true_random=False)), collective, flawless)


@st.composite
def arbitrary_tables(draw: st.DrawFn) -> OpTable:
    """Tables of rows thrown together, legal in form."""
    return arbitrary_table(draw(st.randoms(use_true_random=False)))


# ---- from moves to rows ---------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Slot:
    """One step of a lane, in the making."""

    number: float
    rows: list[dict[str, Any]] = field(default_factory=list)


class Lowering:
    """Puts moves into steps on lanes, with the events that order what streams of one rank do to one location."""

    def __init__(self, rng: random.Random, streams: int, care: float) -> None:
        self.rng, self.care = rng, care
        self.names = [f"t{k}" for k in range(streams)]
        self.lanes: dict[tuple[int, str], list[Slot]] = {}
        self.touched: dict[Spot, list[tuple[tuple[int, str], Slot, str]]] = {}
        self.known: dict[tuple[tuple[int, str], tuple[int, str]], float] = {}
        self.group: list[Move] = []
        self.groups = 0
        self.events = 0
        self.together = rng.choice([0.0, 0.5, 0.9])
        self.mixed = rng.random() < 0.3

    def run(self, moves: Iterable[Move]) -> None:
        for move in moves:
            stream = self.rng.choice(self.names)
            move.streams = [self.rng.choice(self.names) if self.mixed else stream for _ in move.ranks()]
            if self.group and (self.rng.random() >= self.together or self._clashes(move)):
                self._flush()
            self.group.append(move)
        self._flush()

    def _clashes(self, move: Move) -> bool:
        for stream, spot, how in move.accesses():
            for other in self.group:
                for stream2, spot2, how2 in other.accesses():
                    together = how == how2 == "r" or (stream == stream2 and (how == how2 == "+" or how2 == "r"))
                    if spot == spot2 and not together:
                        return True
        return False

    def _flush(self) -> None:
        self.groups += 1
        slots: dict[tuple[int, str], Slot] = {}
        for move in self.group:
            for lane in zip(move.ranks(), move.streams, strict=True):
                slots.setdefault(lane, Slot(float(self.groups)))
            self._rows(move, slots)
        for lane, slot in slots.items():
            for stream, spot, how in (a for move in self.group for a in move.accesses()):
                if (spot[0], stream) == lane:
                    self._order(lane, spot, how)
            self.lanes.setdefault(lane, []).append(slot)
        for move in self.group:
            for stream, spot, how in move.accesses():
                self.touched.setdefault(spot, []).append(((spot[0], stream), slots[spot[0], stream], how))
        self.group = []

    def _order(self, lane: tuple[int, str], spot: Spot, how: str) -> None:
        """Record and wait, so that what is now done to ``spot`` comes after what other streams did to it."""
        for other, slot, how2 in self.touched.get(spot, []):
            if other == lane or how == how2 == "r" or self.known.get((lane, other), 0) >= slot.number:
                continue
            if self.rng.random() >= self.care:
                continue
            self.events += 1
            steps = self.lanes[other]
            at = steps.index(slot) if self.rng.random() < 0.5 else len(steps) - 1
            tick = self.events * 1e-6
            row = {"rank": lane[0], "event": f"e{self.events % 3}", "index": self.events}
            steps.insert(at + 1, Slot(steps[at].number + tick, [{**row, "op": "record", "stream": other[1]}]))
            wait = Slot(self.groups - 0.5 + tick, [{**row, "op": "wait", "stream": lane[1]}])
            self.lanes.setdefault(lane, []).append(wait)
            self.known[lane, other] = steps[at].number

    def _rows(self, move: Move, slots: dict[tuple[int, str], Slot]) -> None:
        common: dict[str, Any] = {"count": move.count, "location": Place("random.sched", self.groups)}

        def put(rank: int, stream: str, **row: Any) -> dict[str, Any]:
            made = {**common, **row, "rank": rank, "stream": stream}
            slots[rank, stream].rows.append(made)
            return made

        (rank, buffer, chunk), stream = move.source, move.streams[0]
        if move.target is not None:
            put(rank, stream, op="reduce" if move.adds else "copy", buffer=move.target[1], chunk=move.target[2],
                from_buffer=buffer, from_chunk=chunk)
            return
        chan = self._chan(stream, move.streams[1])
        put(rank, stream, op="send", buffer=buffer, chunk=chunk, peer=move.hops[0].spot[0], chan=chan)
        for i, hop in enumerate(move.hops):
            stream2 = move.streams[i + 1]
            row: dict[str, Any] = {"op": "recv" if hop.operand is None else "reduce_recv", "peer": rank, "chan": chan,
                                   "buffer": hop.spot[1] if hop.stores else None, "chunk": hop.spot[2]}
            if hop.operand is not None:
                row |= {"from_buffer": hop.operand[1], "from_chunk": hop.operand[2]}
            receive = put(hop.spot[0], stream2, **row)
            if i + 1 < len(move.hops):
                chan = self._chan(stream2, move.streams[i + 2])
                put(hop.spot[0], stream2, op="send", peer=move.hops[i + 1].spot[0], chan=chan, of=receive)
            rank = hop.spot[0]

    def _chan(self, sender: str, receiver: str) -> str:
        return sender if sender == receiver and not self.mixed else f"{sender}-{receiver}"


def assemble(lanes: dict[tuple[int, str], list[Slot]], *, numbered: bool, **about: Any) -> OpTable:
    """The table of lanes of slots; rows in the order of the slots' numbers."""
    rows: list[tuple[float, int, int, dict[str, Any]]] = []
    for slots in lanes.values():
        for step, slot in enumerate(slots):
            rows += [(slot.number, i, step, row) for i, row in enumerate(slot.rows)]
    rows.sort(key=lambda entry: entry[0])
    place = {id(row): i for i, (*_, row) in enumerate(rows)}
    made = [{**row, "step": step, **({"of": place[id(row["of"])]} if row.get("of") is not None else {})}
            for _, _, step, row in rows]
    table = table_from_rows(made, **about)
    if not numbered:
        return table
    numbers = np.array([number for number, *_ in rows])
    return table.with_columns(number=np.searchsorted(np.unique(numbers), numbers).astype(np.int32))


# ---- whole tables ---------------------------------------------------------------------------------------------------


def working_table(rng: random.Random, collective: str | None = None, flawless: bool = False) -> OpTable:
    """A schedule that does what its collective asks, unless an order between streams has been left out."""
    name = collective or rng.choice(list(COLLECTIVES))
    kind = COLLECTIVES[name]
    ranks = rng.randint(2, 6)
    blocks = 1 if kind.family == "vector" else rng.randint(1, 2)
    chunks = ranks * blocks if kind.family in ("blocked", "vector") else rng.randint(1, 4)
    counts = None
    if kind.family == "vector":
        least = rng.choice([0, 1, 1])
        shape = (ranks, ranks) if name == "alltoallv" else (ranks,)
        counts = np.array([rng.randint(least, 3) for _ in range(ranks ** len(shape))], np.int64).reshape(shape)
    about = Collective(
        name, op=rng.choice(["sum", "max", "avg"]) if kind.reduces else None,
        root=rng.randrange(ranks) if kind.rooted else None,
        inplace=kind.family in ("barrier", "custom") or (kind.long != "both" and rng.random() < 0.5), counts=counts,
        counts_read=counts is not None and rng.random() < 0.5)
    chunks = 1 if kind.family == "barrier" else chunks
    world = World(rng, ranks)
    scratch = (Buffer("s", world.scratch), Buffer("h", world.scratch, place="host"))
    if kind.family == "custom":
        buffers = (Buffer("input", rng.randint(1, 3), role="input"), Buffer("output", 2, role="output"), *scratch)
        moves, ensures = random_moves(world, buffers)
        about = replace(about, ensures=ensures)
    elif kind.family == "barrier":
        buffers, moves = (*standard_buffers(about, ranks, 1), *scratch), rounds(world, flawless)
    else:
        buffers = (*standard_buffers(about, ranks, chunks), *scratch)
        moves = interleave(rng, collective_moves(world, about, chunks))
    streams = 1 if flawless and kind.family == "barrier" else rng.choice([1, 1, 2, 3])
    lowering = Lowering(rng, streams, care=1.0 if flawless else rng.choice([1.0, 1.0, 0.9, 0.5]))
    lowering.run(fuse(rng, moves, flawless))
    return assemble(lowering.lanes, numbered=rng.random() < 0.5, ranks=ranks, chunks=chunks, buffers=buffers,
                    collective=about, name=f"random_{name}")


def arbitrary_table(rng: random.Random) -> OpTable:
    """Rows thrown together: pairs of sends and receives (now and then one alone) anywhere in their lanes, local
    operations, events; little of it finishes."""
    ranks, streams, chunks = rng.randint(2, 5), rng.choice([1, 1, 2, 3]), rng.randint(1, 3)
    buffers = (Buffer("data", chunks, role="data"), Buffer("s", 2))
    lanes: dict[tuple[int, str], list[Slot]] = {}
    near = rng.random() < 0.7  # put things near the end of their lanes, so that more of it can run

    def place(rank: int, row: dict[str, Any], alone: bool = False) -> Slot:
        at = (rank, f"t{rng.randrange(streams)}")
        slots = lanes.setdefault(at, [])
        made = {**row, "rank": rank, "stream": at[1]}
        full = [s for s in slots if s.rows[0]["op"] not in ("record", "wait")]
        if full and not alone and rng.random() < 0.3:
            slot = full[-1] if near else rng.choice(full)
            slot.rows.append(made)
            return slot
        slot = Slot(0.0, [made])
        last = max(0, len(slots) - (rng.random() < 0.2))
        slots.insert(last if near else rng.randint(0, len(slots)), slot)
        return slot

    def spot(count: int) -> dict[str, Any]:
        name, size = rng.choice([("data", chunks)] * 3 + [("s", 2)])
        return {"buffer": name, "chunk": rng.randint(0, max(0, min(size, chunks) - count))}

    for _ in range(rng.randint(1, 10)):
        r, p = rng.sample(range(ranks), 2)
        count = rng.choice([1, 1, 1, min(2, chunks)])
        chan = f"c{rng.randrange(2)}"
        what = rng.random()
        if what < 0.65:
            common = {"chan": chan, "count": count}
            sent = {"op": "send", "peer": p, **common, **spot(count)}
            received = {"op": rng.choice(["recv", "reduce_recv"]), "peer": r, **common, **spot(count)}
            lone = rng.random()
            if lone > 0.03:
                place(r, sent)
            if lone < 0.97:
                slot = place(p, received)
                q = rng.randrange(ranks)
                if q != p and rng.random() < 0.3:
                    row = slot.rows[-1]
                    forward = {"op": "send", "peer": q, "chan": chan, "count": count, "of": row}
                    slot.rows.append({**forward, "rank": p, "stream": row["stream"]})
                    place(q, {"op": "recv", "peer": p, "chan": chan, "count": count, **spot(count)})
        elif what < 0.8:
            source = spot(count)
            place(r, {"op": rng.choice(["copy", "reduce"]), "count": count, **spot(count),
                      "from_buffer": source["buffer"], "from_chunk": source["chunk"]})
        else:
            event = {"event": "e", "index": rng.randrange(1 << 20)}
            place(r, {"op": "record", **event}, alone=True)
            for _ in range(rng.randint(0, 2)):
                place(r, {"op": "wait", **event}, alone=True)
    for number, slot in enumerate(s for slots in lanes.values() for s in slots):
        slot.number = float(number)
    return assemble(lanes, numbered=False, ranks=ranks, chunks=chunks, buffers=buffers,
                    collective=Collective("allreduce", "sum"), name="arbitrary")
