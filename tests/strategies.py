"""Random op tables: of schedules that are right or nearly so, and of rows thrown together.

Everything draws from a ``random.Random``: Hypothesis gives one that it can shrink, the nightly run a seeded one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from schedlang.ir.buffers import standard_buffers
from schedlang.ir.build import table_from_rows
from schedlang.ir.table import Buffer, Collective, Ensures, OpTable
from schedlang.ops import COLLECTIVES
from schedlang.source import Place

Spot = tuple[int, str, int]
"""(rank, buffer, first chunk)"""


@st.composite
def tables(draw: st.DrawFn, collective: str | None = None, flawless: bool = False) -> OpTable:
    """Tables of working schedules; where not ``flawless``, orders between streams are left out here and there."""
    return working_table(draw(st.randoms(use_true_random=False)), collective, flawless)


@st.composite
def arbitrary_tables(draw: st.DrawFn) -> OpTable:
    """Tables of rows thrown together, legal in form."""
    return arbitrary_table(draw(st.randoms(use_true_random=False)))


# ---- moves: what a schedule does, one thing after another -----------------------------------------------------------


@dataclass
class Hop:
    """The next place a transfer comes to. ``operand``: added to what arrives (None: nothing is). ``stores``: or only
    passes it on."""

    spot: Spot
    operand: Spot | None = None
    stores: bool = True


@dataclass
class Move:
    """``hops`` empty: local, from ``source`` into ``target``, adding to it where ``adds``. Else a transfer, fused
    where there is more than one hop. ``streams``: of the source's rank, then of each hop's."""

    source: Spot
    hops: list[Hop] = field(default_factory=list)
    target: Spot | None = None
    adds: bool = False
    count: int = 1
    streams: list[str] = field(default_factory=list)

    def ranks(self) -> list[int]:
        return [self.source[0], *(h.spot[0] for h in self.hops)]

    def accesses(self) -> Iterable[tuple[str, Spot, str]]:
        """(stream, location, ``r``, ``w`` or ``+``), one entry a chunk."""

        def spread(stream: str, spot: Spot, how: str) -> Iterable[tuple[str, Spot, str]]:
            return ((stream, (spot[0], spot[1], spot[2] + i), how) for i in range(self.count))

        yield from spread(self.streams[0], self.source, "r")
        if self.target is not None:
            yield from spread(self.streams[0], self.target, "+" if self.adds else "w")
        for i, (hop, stream) in enumerate(zip(self.hops, self.streams[1:], strict=True)):
            if hop.operand is not None and (hop.operand != hop.spot or i + 1 < len(self.hops)):
                yield from spread(stream, hop.operand, "r")
            if hop.stores:
                yield from spread(stream, hop.spot, "+" if hop.operand == hop.spot else "w")


class World:
    """What the moves of one schedule are made with."""

    NAMES = ("s", "h")

    def __init__(self, rng: random.Random, ranks: int) -> None:
        self.rng, self.ranks = rng, ranks
        self.scratch = rng.randint(1, 3)

    def spare(self, rank: int) -> Spot:
        return rank, self.rng.choice(self.NAMES), self.rng.randrange(self.scratch)

    def transfer(self, source: Spot, target: Spot, count: int, adds: bool = False) -> list[Move]:
        """Moves that bring ``source`` to ``target``, now and then by a detour."""
        if source[0] == target[0]:
            return [Move(source, target=target, adds=adds, count=count)]
        detour = self.rng.random() if count == 1 else 1.0
        if detour < 0.1:
            here = self.spare(source[0])
            return [Move(source, target=here), Move(here, [Hop(target, operand=target if adds else None)])]
        if detour < 0.2:
            there = self.spare(target[0])
            return [Move(source, [Hop(there)]), Move(there, target=target, adds=adds)]
        if detour < 0.25 and adds:
            there = self.spare(target[0])
            return [Move(source, [Hop(there, operand=target)]), Move(there, target=target)]
        return [Move(source, [Hop(target, operand=target if adds else None)], count=count)]

    def spread(self, root: Spot, targets: Sequence[Spot], count: int) -> list[Move]:
        """Copies to all targets, each from one that has it."""
        have, moves = [root], []
        for target in self.rng.sample(list(targets), len(targets)):
            chain = self.rng.random() < 0.6
            moves += self.transfer(have[-1] if chain else self.rng.choice(have), target, count)
            have.append(target)
        return moves

    def collect(self, spots: Sequence[Spot], root: Spot, count: int) -> list[Move]:
        """Sums up all spots at the root, which is one of them."""
        left, moves = [s for s in spots if s != root], []
        self.rng.shuffle(left)
        while left:
            source = left.pop()
            moves += self.transfer(source, self.rng.choice([*left, root]), count, adds=True)
        return moves


def _collective_moves(world: World, table: Collective, chunks: int) -> list[list[Move]]:
    """Lists of moves, each to be kept in order, that together do what the collective asks."""
    kind, ranks, root = COLLECTIVES[table.name], range(world.ranks), table.root or 0
    before, after = ("data", "data") if table.inplace else ("input", "output")
    lists: list[list[Move]] = []
    if kind.family == "whole":
        for first, count in _ranges(world.rng, chunks):
            at = [(r, before, first) for r in ranks]
            to = [(r, after, first) for r in ranks]
            if table.name == "broadcast":
                lists.append(world.spread(at[root], [s for s in to if s != at[root]], count))
                continue
            top = root if table.name == "reduce" else world.rng.choice(ranks)
            moves = world.collect(at, at[top], count)
            if to[top] != at[top]:
                moves += world.transfer(at[top], to[top], count)
            if table.name == "allreduce":
                moves += world.spread(to[top], [to[r] for r in ranks if r != top], count)
            lists.append(moves)
        return lists
    block = chunks // world.ranks
    for r in ranks:
        for first, count in _ranges(world.rng, block):
            own = first if not table.inplace else r * block + first
            long = r * block + first
            if kind.long == "output":
                source, takers = (r, before, own), [root] if kind.rooted else ranks
                targets = [(p, after, long) for p in takers]
                lists.append(world.spread(source, [t for t in targets if t != source], count))
            elif kind.long == "input":
                target = (r, after, own)
                if kind.rooted:
                    source = (root, before, long)
                    lists.append(world.transfer(source, target, count) if source != target else [])
                else:
                    spots = [(p, before, long) for p in ranks]
                    moves = world.collect(spots, spots[r], count)
                    lists.append(moves + (world.transfer(spots[r], target, count) if spots[r] != target else []))
            else:
                for d in ranks:
                    lists.append(world.transfer((r, before, d * block + first), (d, after, long), count))
    return lists


def _ranges(rng: random.Random, chunks: int) -> list[tuple[int, int]]:
    """A division of 0..chunks into ranges (first, count)."""
    found, first = [], 0
    while first < chunks:
        count = min(chunks - first, rng.choice([1, 1, 2, 3]))
        found.append((first, count))
        first += count
    return found


def _interleave(rng: random.Random, lists: list[list[Move]]) -> list[Move]:
    if rng.random() < 0.3:
        return [m for moves in lists for m in moves]
    queues = [list(reversed(moves)) for moves in lists if moves]
    found = []
    while queues:
        queue = rng.choice(queues)
        found.append(queue.pop())
        while _into_scratch(found[-1]):  # a detour is gone to its end: others use the same scratch
            found.append(queue.pop())
        queues = [q for q in queues if q]
    return found


def _into_scratch(move: Move) -> bool:
    target = move.hops[-1].spot if move.hops else move.target
    return target is not None and target[1] in World.NAMES


def _fuse(rng: random.Random, moves: list[Move], flawless: bool) -> list[Move]:
    """Some transfers whose result the next move sends on become one fused move."""
    found: list[Move] = []
    for move in moves:
        last = found[-1] if found else move
        follows = last.hops and move.hops and last.hops[-1].spot == move.source and last.count == move.count
        if follows and not set(move.ranks()[1:]) & set(last.ranks()) and rng.random() < 0.5:
            if rng.random() < 0.05 and not flawless:
                last.hops[-1] = replace(last.hops[-1], stores=False)
            last.hops += move.hops
        else:
            found.append(move)
    return found


def _random_moves(world: World, buffers: Sequence[Buffer]) -> tuple[list[Move], Ensures]:
    """Any moves of initialised values, and what they lead to as the postcondition of `custom`."""
    rng = world.rng
    places = [(r, b.name, c) for r in range(world.ranks) for b in buffers for c in range(b.chunks)]
    held: dict[Spot, Counter[Spot]] = {p: Counter({p: 1}) for p in places if p[1] in ("input", "data")}
    moves: list[Move] = []
    for _ in range(rng.randint(1, 14)):
        source, target = rng.choice(list(held)), rng.choice(places)
        if source == target:
            continue
        adds = target in held and rng.random() < 0.5
        moves.append(Move(source, target=target, adds=adds) if source[0] == target[0]
                     else Move(source, [Hop(target, operand=target if adds else None)]))
        held[target] = held[source] + held[target] if adds else held[source].copy()
    good = sorted(p for p, contents in held.items() if set(contents.values()) == {1})
    chosen = rng.sample(good, min(len(good), rng.randint(1, 6)))
    index = {b.name: i for i, b in enumerate(buffers)}
    sources = [sorted(held[p]) for p in chosen]
    flat = [s for each in sources for s in each]
    return moves, Ensures(
        buffer=np.array([index[p[1]] for p in chosen], np.int32), rank=np.array([p[0] for p in chosen], np.int32),
        chunk=np.array([p[2] for p in chosen], np.int32), starts=np.cumsum([0, *map(len, sources)]),
        source_buffer=np.array([index[s[1]] for s in flat], np.int32),
        source_rank=np.array([s[0] for s in flat], np.int32),
        source_chunk=np.array([s[2] for s in flat], np.int32))


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
        moves, ensures = _random_moves(world, buffers)
        about = replace(about, ensures=ensures)
    elif kind.family == "barrier":
        buffers, moves = (*standard_buffers(about, ranks, 1), *scratch), _rounds(world, flawless)
    else:
        buffers = (*standard_buffers(about, ranks, chunks), *scratch)
        moves = _interleave(rng, _collective_moves(world, about, chunks))
    streams = 1 if flawless and kind.family == "barrier" else rng.choice([1, 1, 2, 3])
    lowering = Lowering(rng, streams, care=1.0 if flawless else rng.choice([1.0, 1.0, 0.9, 0.5]))
    lowering.run(_fuse(rng, moves, flawless))
    return assemble(lowering.lanes, numbered=rng.random() < 0.5, ranks=ranks, chunks=chunks, buffers=buffers,
                    collective=about, name=f"random_{name}")


def _rounds(world: World, flawless: bool) -> list[Move]:
    """Tokens round the ring, with distances that double: a barrier, unless a round is missing."""
    distances = [1 << k for k in range((world.ranks - 1).bit_length())]
    if world.rng.random() < 0.3 and not flawless:
        distances.remove(world.rng.choice(distances))
    return [Move((r, "data", 0), [Hop(((r + d) % world.ranks, "data", 0))])
            for d in distances for r in range(world.ranks)]


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
