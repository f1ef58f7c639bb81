"""Random schedules as moves: one thing after another, without steps and streams, which :mod:`tests.strategies` adds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from schedlang.ir.table import Buffer, Collective, Ensures
from schedlang.ops import COLLECTIVES

Spot = tuple[int, str, int]
"""(rank, buffer, first chunk)"""



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


def collective_moves(world: World, table: Collective, chunks: int) -> list[list[Move]]:
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


def interleave(rng: random.Random, lists: list[list[Move]]) -> list[Move]:
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


def fuse(rng: random.Random, moves: list[Move], flawless: bool) -> list[Move]:
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


def random_moves(world: World, buffers: Sequence[Buffer]) -> tuple[list[Move], Ensures]:
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


def rounds(world: World, flawless: bool) -> list[Move]:
    """Tokens round the ring, with distances that double: a barrier, unless a round is missing."""
    distances = [1 << k for k in range((world.ranks - 1).bit_length())]
    if world.rng.random() < 0.3 and not flawless:
        distances.remove(world.rng.choice(distances))
    return [Move((r, "data", 0), [Hop(((r + d) % world.ranks, "data", 0))])
            for d in distances for r in range(world.ranks)]
