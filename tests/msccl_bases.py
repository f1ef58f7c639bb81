"""MSCCL files that are right, for tests: the usual algorithms small, and sequences of moves drawn at random.

A file is written from a sequence of moves that would be right one after another. Each goes to the block of its
connection; what a step must wait for in other blocks follows from the places that it reads and writes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.msccl_text import Element, algo, block, gpu, nop, step

Place = tuple[str, int]


@dataclass
class _Step:
    kind: str
    src: Place
    dst: Place
    cnt: int
    waits: set[tuple[int, int]]
    told: bool = False


@dataclass
class _Block:
    rank: int
    number: int
    chan: int
    send: int = -1
    recv: int = -1
    steps: list[_Step] = field(default_factory=list)


class Writer:
    """Writes a file. ``fuse``: how often a receive and the send of what came become one step."""

    def __init__(self, ranks: int, chunks: int, coll: str, *, inplace: bool, proto: str = "LL", scratch: int = 0,
                 fuse: float = 0.0, seed: int = 0) -> None:
        self.ranks, self.chunks, self.coll, self.inplace = ranks, chunks, coll, inplace
        self.proto, self.scratch, self.fuse, self.rng = proto, scratch, fuse, random.Random(seed)
        self.blocks: list[list[_Block]] = [[] for _ in range(ranks)]
        self.last: list[dict[Place, tuple[tuple[int, int] | None, set[tuple[int, int]]]]] = [{} for _ in range(ranks)]

    # Moves ------------------------------------------------------------------------------------------------------------

    def send(self, a: int, src: Place, b: int, dst: Place, cnt: int = 1, *, chan: int = 0, kind: str = "r") -> None:
        """Rank a sends, rank b receives: `r` stores it, `rrc` adds it to what is there."""
        self.exchange([(a, b)], src, dst, cnt, chan=chan, kind=kind)

    def exchange(self, pairs: Sequence[tuple[int, int]], src: Place | Sequence[Place],
                 dst: Place | Sequence[Place], cnt: int = 1, *, chan: int = 0, kind: str = "r") -> None:
        """All first ones of the pairs send, then all second ones receive; places are one, or one a pair."""
        sources, targets = ([p] * len(pairs) if isinstance(p, tuple) else p for p in (src, dst))
        for (a, b), source, target in zip(pairs, sources, targets, strict=True):
            out = self._block(a, chan, send=b)
            if not self._fused(out, source, cnt):
                self._add(out, "s", source, target, cnt, reads=[source])
        for (a, b), source, target in zip(pairs, sources, targets, strict=True):
            own = [target] if kind == "rrc" else []
            self._add(self._block(b, chan, recv=a), kind, *(own or [source]), target, cnt, reads=own, writes=[target])

    def local(self, rank: int, kind: str, src: Place, dst: Place, cnt: int = 1, *, number: int | None = None) -> None:
        """`cpy` or `re`, in a block of the rank (None: one of its own, after the others)."""
        if number is None or number >= len(self.blocks[rank]):
            number = next((b.number for b in self.blocks[rank] if b.send == b.recv == -1), None)
            if number is None:
                number = self._new(rank, 0).number
        self._add(self.blocks[rank][number], kind, src, dst, cnt, reads=[src] + [dst] * (kind == "re"), writes=[dst])

    def _fused(self, out: _Block, src: Place, cnt: int) -> bool:
        """Whether the step before has just received what is sent: then it sends it, too."""
        last = out.steps[-1] if out.steps else None
        if last is None or last.kind not in ("r", "rrc") or self._at(out.rank, last.dst) != self._at(out.rank, src):
            return False
        here = out.number, len(out.steps) - 1
        newest = all(self.last[out.rank].get(place, (None,))[0] == here for place in self._places(out.rank, src, cnt))
        if last.cnt != cnt or not newest or self.rng.random() >= self.fuse:
            return False
        last.kind = {"r": "rcs", "rrc": "rrcs"}[last.kind]
        return True

    def _block(self, rank: int, chan: int, *, send: int = -1, recv: int = -1) -> _Block:
        found = [b for b in self.blocks[rank] if b.chan == chan and ((send >= 0 and b.send == send) or
                                                                      (recv >= 0 and b.recv == recv))]
        if found:
            return found[0]
        free = [b for b in self.blocks[rank] if b.chan == chan and (b.send if send >= 0 else b.recv) == -1
                and (b.send, b.recv) != (-1, -1)]
        chosen = free[0] if free and (self.fuse or self.rng.random() < 0.5) else self._new(rank, chan)
        if send >= 0:
            chosen.send = send
        else:
            chosen.recv = recv
        return chosen

    def _new(self, rank: int, chan: int) -> _Block:
        self.blocks[rank].append(_Block(rank, len(self.blocks[rank]), chan))
        return self.blocks[rank][-1]

    # What waits for what ----------------------------------------------------------------------------------------------

    def _at(self, rank: int, place: Place) -> Place:
        """In place, input and output are one."""
        buffer, k = place
        if buffer == "s" or not self.inplace:
            return place
        short = {"allgather": "i", "reduce_scatter": "o"}.get(self.coll)
        return "d", k + (rank * (self.chunks // self.ranks) if buffer == short else 0)

    def _places(self, rank: int, place: Place, cnt: int) -> list[Place]:
        buffer, k = self._at(rank, place)
        return [(buffer, k + j) for j in range(cnt)]

    def _add(self, to: _Block, kind: str, src: Place, dst: Place, cnt: int, *, reads: list[Place],
             writes: list[Place] | None = None) -> None:
        here, waits, known = (to.number, len(to.steps)), set(), self.last[to.rank]
        for place in [p for start in reads for p in self._places(to.rank, start, cnt)]:
            writer, readers = known.setdefault(place, (None, set()))
            waits |= {writer} - {None}
            readers.add(here)
        for place in [p for start in writes or [] for p in self._places(to.rank, start, cnt)]:
            writer, readers = known.get(place, (None, set()))
            waits |= ({writer} | readers) - {None, here}
            known[place] = (here, set())
        latest: dict[int, int] = {}
        for number, s in waits:
            if number != to.number:
                latest[number] = max(latest.get(number, -1), s)
        for number, s in latest.items():
            self.blocks[to.rank][number].steps[s].told = True
        to.steps.append(_Step(kind, src, dst, cnt, set(latest.items())))

    # Text -------------------------------------------------------------------------------------------------------------

    def text(self, **attributes: str | int) -> str:
        """The file. The dependencies of a step but one stand in nops before it."""
        gpus = []
        for rank in range(self.ranks):
            # A step's number moves by the nops before it.
            at = {b.number: [sum(max(len(s.waits), 1) for s in b.steps[:i + 1]) - 1 for i in range(len(b.steps))]
                  for b in self.blocks[rank]}
            gpus.append(gpu(rank, [block(b.number, list(self._steps(b, at)), send=b.send, recv=b.recv, chan=b.chan)
                                   for b in self.blocks[rank]], s=self.scratch))
        return algo(gpus, chunks=self.chunks, coll=self.coll, proto=self.proto, inplace=int(self.inplace),
                    outofplace=int(not self.inplace), **attributes)

    def _steps(self, b: _Block, at: dict[int, list[int]]) -> Iterator[Element]:
        for s in b.steps:
            *before, own = [(number, at[number][i]) for number, i in sorted(s.waits)] or [None]
            yield from (nop(dep) for dep in before if dep is not None)
            yield step(s.kind, s.src, s.dst, s.cnt, dep=own, hasdep=int(s.told))


def _hop(ranks: int, hop: int) -> list[tuple[int, int]]:
    """Of what began at each rank and went around a ring: between which two it goes next."""
    return [((r + hop) % ranks, (r + hop + 1) % ranks) for r in range(ranks)]


# Algorithms ---------------------------------------------------------------------------------------------------------


def ring_allreduce(ranks: int, channels: int = 1, cnt: int = 1, *, inplace: bool = True, proto: str = "LL",
                   fuse: float = 1.0) -> str:
    """Reduce-scatter around a ring, then allgather, on several channels."""
    w = Writer(ranks, ranks * channels * cnt, "allreduce", inplace=inplace, proto=proto, fuse=fuse)
    for chan in range(channels):
        for chunk in range(ranks):
            k = (chan * ranks + chunk) * cnt
            if not inplace:
                for r in range(ranks):
                    w.local(r, "cpy", ("i", k), ("o", k), cnt)
    for hop in range(2 * ranks - 2):
        for chan in range(channels):
            places = [("o", (chan * ranks + chunk) * cnt) for chunk in range(ranks)]
            w.exchange(_hop(ranks, hop), places, places, cnt, chan=chan, kind="rrc" if hop < ranks - 1 else "r")
    return w.text()


def pairs_allreduce(ranks: int, *, inplace: bool = True, proto: str = "LL") -> str:
    """Every rank gets its block of all others into scratch, adds them up, and sends the sum to all."""
    w = Writer(ranks, ranks, "allreduce", inplace=inplace, proto=proto, scratch=ranks)
    for owner in range(ranks):
        if not inplace:
            w.local(owner, "cpy", ("i", owner), ("o", owner))
        for r in range(ranks):
            if r != owner:
                w.send(r, ("i", owner), owner, ("s", r))
    for owner in range(ranks):
        for r in range(ranks):
            if r != owner:
                w.local(owner, "re", ("s", r), ("o", owner), number=0)
        for r in range(ranks):
            if r != owner:
                w.send(owner, ("o", owner), r, ("o", owner))
    return w.text()


def tree_allreduce(ranks: int, chunks: int = 2, *, proto: str = "Simple") -> str:
    """Up a binary tree, and down again; a channel each way."""
    w = Writer(ranks, chunks, "allreduce", inplace=True, proto=proto, fuse=0.5)
    for k in range(chunks):
        for r in range(ranks - 1, 0, -1):
            w.send(r, ("i", k), (r - 1) // 2, ("i", k), kind="rrc")
        for r in range(1, ranks):
            w.send((r - 1) // 2, ("o", k), r, ("o", k), chan=1)
    return w.text()


def hierarchical_allreduce(nodes: int, local: int, *, proto: str = "Simple") -> str:
    """Reduce-scatter within each node, ring between nodes, allgather within."""
    ranks = nodes * local
    w = Writer(ranks, local, "allreduce", inplace=True, proto=proto, scratch=local * nodes)
    for node in range(nodes):
        for k in range(local):
            for g in range(local):
                if g != k:
                    w.send(node * local + g, ("i", k), node * local + k, ("i", k), kind="rrc")
    for k in range(local):
        for node in range(nodes - 1):
            w.send(node * local + k, ("i", k), (node + 1) * local + k, ("i", k), chan=1, kind="rrc")
        for node in range(nodes - 1, 0, -1):
            w.send(node * local + k, ("i", k), (node - 1) * local + k, ("o", k), chan=1)
    for node in range(nodes):
        for k in range(local):
            for g in range(local):
                if g != k:
                    w.send(node * local + k, ("o", k), node * local + g, ("o", k))
    return w.text()


def ring_allgather(ranks: int, per: int = 1, *, inplace: bool = True, fuse: float = 1.0, proto: str = "LL") -> str:
    """Around a ring, each block as one message."""
    w = Writer(ranks, ranks * per, "allgather", inplace=inplace, fuse=fuse, proto=proto)
    for r in range(ranks):
        if not inplace:
            w.local(r, "cpy", ("i", 0), ("o", r * per), per)
    for hop in range(ranks - 1):
        places = [("o", owner * per) for owner in range(ranks)]
        w.exchange(_hop(ranks, hop), ("i", 0) if hop == 0 else places, places, per)
    return w.text()


def direct_alltoall(ranks: int, per: int = 1, *, proto: str = "LL") -> str:
    """Each to each, out of place."""
    w = Writer(ranks, ranks * per, "alltoall", inplace=False, proto=proto)
    for a in range(ranks):
        w.local(a, "cpy", ("i", a * per), ("o", a * per), per)
        for b in range(ranks):
            if a != b:
                w.send(a, ("i", b * per), b, ("o", a * per), per)
    return w.text()


def alltoall_in_place(ranks: int) -> str:
    """Each to each through scratch, as what is sent and what comes share their places."""
    w = Writer(ranks, ranks, "alltoall", inplace=True, scratch=ranks)
    for a in range(ranks):
        for b in range(ranks):
            if a != b:
                w.send(a, ("i", b), b, ("s", a))
    for a in range(ranks):
        for b in range(ranks):
            if a != b:
                w.local(b, "cpy", ("s", a), ("o", a))
    return w.text()


def ring_reduce_scatter(ranks: int, *, inplace: bool = True, proto: str = "LL128") -> str:
    """Around a ring through the input; out of place the sum is copied."""
    w = Writer(ranks, ranks, "reduce_scatter", inplace=inplace, proto=proto, fuse=1.0)
    for hop in range(ranks - 1):
        places = [("i", chunk) for chunk in range(ranks)]
        w.exchange(_hop(ranks, hop + 1), places, places, kind="rrc")
    for chunk in range(ranks if not inplace else 0):
        w.local(chunk, "cpy", ("i", chunk), ("o", 0))
    return w.text()


def chain(coll: str, ranks: int, chunks: int, *, inplace: bool = True) -> str:
    """Broadcast or reduce along a line, chunk by chunk; rank 0 is the root."""
    w = Writer(ranks, chunks, coll, inplace=inplace, fuse=1.0)
    for k in range(chunks):
        if not inplace and coll == "broadcast":
            w.local(0, "cpy", ("i", k), ("o", k))
        for r in range(ranks - 1) if coll == "broadcast" else range(ranks - 1, 0, -1):
            if coll == "broadcast":
                w.send(r, ("i" if r == 0 else "o", k), r + 1, ("o", k))
            elif inplace or r > 1:
                w.send(r, ("i", k), r - 1, ("i", k), kind="rrc")
            else:
                w.local(0, "cpy", ("i", k), ("o", k))
                w.send(r, ("i", k), 0, ("o", k), kind="rrc")
    return w.text()


def direct_rooted(coll: str, ranks: int, per: int = 2) -> str:
    """Gather and scatter, out of place."""
    w = Writer(ranks, per, coll, inplace=False)
    w.local(0, "cpy", ("i", 0), ("o", 0), per)
    for r in range(1, ranks):
        if coll == "gather":
            w.send(r, ("i", 0), 0, ("o", r * per), per)
        else:
            w.send(0, ("i", r * per), r, ("o", 0), per)
    i, o = (per, ranks * per) if coll == "gather" else (ranks * per, per)
    return re.sub('i_chunks="[0-9]*" o_chunks="[0-9]*"', f'i_chunks="{i}" o_chunks="{o}"', w.text())


def scattered_sum() -> str:
    """A sum passed on and not kept: rrs."""
    w = Writer(3, 2, "reduce", inplace=False, fuse=1.0)
    for k in range(2):
        w.local(0, "cpy", ("i", k), ("o", k))
        w.send(2, ("i", k), 1, ("i", k), kind="rrc")
        w.send(1, ("i", k), 0, ("o", k), kind="rrc")
    return w.text().replace('type="rrcs"', 'type="rrs"')


def moves(rng: random.Random) -> str:
    """A sequence of moves drawn at random; the collective promises nothing, so only order and what is read count."""
    ranks, chunks, channels = rng.randint(2, 4), rng.randint(2, 5), rng.randint(1, 3)
    w = Writer(ranks, chunks, "custom", inplace=rng.random() < 0.5, proto=rng.choice(["LL", "LL128", "Simple"]),
               scratch=chunks, fuse=rng.choice([0, 0.5]), seed=rng.randrange(1 << 30))
    there = [{*(("i", k) for k in range(chunks)), *((("o", k) for k in range(chunks)) if w.inplace else ())}
             for _ in range(ranks)]
    for _ in range(rng.randint(4, 24)):
        cnt = rng.choice([1, 1, 1, 2, 3])
        a, b = rng.sample(range(ranks), 2)
        if cnt > chunks:
            continue

        def place(r: int, cnt: int = cnt, *, known: bool) -> Place | None:
            found = [(x, k) for x in "ios" for k in range(chunks - cnt + 1)
                     if not known or all((x, k + j) in there[r] for j in range(cnt))]
            return rng.choice(found) if found else None

        kind = rng.choice(["r", "r", "rrc", "cpy", "re"])
        to = a if kind in ("cpy", "re") else b
        src, dst = place(a, known=True), place(to, known=kind in ("rrc", "re"))
        if src is None or dst is None:
            continue
        if to == a:
            (x, i), (y, j) = w._at(a, src), w._at(a, dst)
            if x == y and abs(i - j) < cnt:
                continue
            w.local(a, kind, src, dst, cnt, number=rng.choice([None, 0, 1]))
        else:
            w.send(a, src, b, dst, cnt, chan=rng.randrange(channels), kind=kind)
        for j in range(cnt):
            there[to].add((dst[0], dst[1] + j))
            if w.inplace and dst[0] != "s":
                there[to] |= {("i", dst[1] + j), ("o", dst[1] + j)}
    return w.text()


BASES: dict[str, Callable[[], str]] = {
    "ring": lambda: ring_allreduce(4),
    "ring of 3, two channels, Simple": lambda: ring_allreduce(3, 2, proto="Simple"),
    "ring, messages of 3": lambda: ring_allreduce(3, cnt=3),
    "ring, messages of 2, Simple": lambda: ring_allreduce(3, cnt=2, proto="Simple", fuse=0),
    "ring, nothing fused": lambda: ring_allreduce(3, fuse=0),
    "ring out of place": lambda: ring_allreduce(3, inplace=False),
    "pairs": lambda: pairs_allreduce(4),
    "pairs out of place": lambda: pairs_allreduce(3, inplace=False),
    "tree": lambda: tree_allreduce(7),
    "tree, LL": lambda: tree_allreduce(4, 4, proto="LL"),
    "hierarchical": lambda: hierarchical_allreduce(2, 2),
    "hierarchical, 3 nodes": lambda: hierarchical_allreduce(3, 2, proto="LL"),
    "allgather": lambda: ring_allgather(4, 2),
    "allgather out of place": lambda: ring_allgather(3, 2, inplace=False, fuse=0, proto="Simple"),
    "alltoall": lambda: direct_alltoall(4),
    "alltoall, blocks of 3, Simple": lambda: direct_alltoall(3, 3, proto="Simple"),
    "alltoall in place": lambda: alltoall_in_place(3),
    "reduce-scatter": lambda: ring_reduce_scatter(4),
    "reduce-scatter out of place": lambda: ring_reduce_scatter(3, inplace=False),
    "broadcast": lambda: chain("broadcast", 4, 3),
    "broadcast out of place": lambda: chain("broadcast", 3, 3, inplace=False),
    "reduce": lambda: chain("reduce", 4, 3),
    "reduce out of place": lambda: chain("reduce", 3, 3, inplace=False),
    "gather": lambda: direct_rooted("gather", 3),
    "scatter": lambda: direct_rooted("scatter", 3),
    "a sum not kept": scattered_sum,
}
"""Small files by what they are; all are right."""
