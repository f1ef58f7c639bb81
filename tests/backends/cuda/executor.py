"""An executor of normal forms that knows nothing of how they are made: what a kernel does, with lanes as coroutines.

Whoever can go on is drawn at random. Each block keeps a vector clock, which flags carry on, and each element of memory
the clock of its last write and of its last read by each block; so what nothing orders is found in every run, whether or
not it went wrong in this one. A sender's memory counts as read by whoever takes the message.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from schedlang.backends.cuda.normal import Normal
from schedlang.ir.layout import Layout, divide
from schedlang.ir.table import NONE, Array
from schedlang.ops import COLLECTIVES, Op
from schedlang.running.binding import starts

UFUNCS: dict[str, Any] = {"sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum,
                          "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}

Waiting = tuple[Callable[[], bool], str]
"""What a block waits for, and what that is in words."""

_NOTHING: Waiting = (lambda: True, "nothing")

RECEIVES = (Op.RECV, Op.REDUCE_RECV)


@dataclass
class Flag:
    """``value``: (message, pieces that are ready), which only rises; ``clock``: of whoever set it last."""

    value: tuple[int, int] = (0, 0)
    clock: Array | None = None


@dataclass
class Block:
    """One block of a lane, the ``share``-th. ``sent``: the flags that say that what it sent is taken, and of which
    message, those first that were posted first."""

    number: int
    rank: int
    stream: int
    share: int
    clock: Array
    sent: deque[tuple[Flag, int]] = field(default_factory=deque)


class Memory:
    """One buffer on one rank."""

    def __init__(self, values: Array, blocks: int) -> None:
        self.values = values
        self.writer = np.full(len(values), NONE)
        self.written = np.zeros(len(values), np.int64)
        self.read = np.zeros((blocks, len(values)), np.int64)


def class_lengths(layout: Layout) -> Callable[[int], int]:
    """How many elements a class has, written out for each family."""
    table = layout.table
    collective = table.collective
    family = COLLECTIVES[collective.name].family
    if family == "vector":
        assert collective.counts is not None
        flat = collective.counts.ravel().tolist()
        return lambda number: flat[number]
    if family in ("custom", "barrier"):
        return lambda number: layout.part if family == "custom" else 0
    blocks = 1 if family == "whole" else table.ranks
    parts = divide(layout.elements // blocks, max(1, table.chunks // blocks)).tolist()
    return lambda number: parts[number % len(parts)]


class Executor:
    """Runs a normal form once. ``blocks``: of each lane; ``piece``: elements of a chunk that are taken at a time;
    ``shares``: the block that works on each of some elements, given where in the chunk they stand, how long the value
    is, how long the longest can be, and how many blocks there are.

    AssertionError: where something is not ordered, a flag falls, or blocks wait for each other.
    """

    def __init__(self, normal: Normal, layout: Layout, inputs: Sequence[Mapping[str, Array]], seed: int, *,
                 op: str | None = None, blocks: int = 1, piece: int = 3,
                 shares: Callable[[Array, int, int, int], Array] | None = None) -> None:
        self.normal, self.table, self.piece = normal, normal.table, piece
        t = self.table
        self.rng = random.Random(seed)
        self.layout = Layout(t, layout.elements if COLLECTIVES[t.collective.name].family != "vector" else None)
        self.length = class_lengths(self.layout)
        self.combine = UFUNCS[op or t.operator or "sum"]
        self.shares = shares or (lambda at, length, most, blocks: at * blocks // max(1, most))
        lanes = sorted({(int(r), int(s)) for r, s in zip(t.rank, t.stream, strict=True)})
        self.blocks = [Block(k * blocks + b, rank, stream, b, np.zeros(len(lanes) * blocks, np.int64))
                       for k, (rank, stream) in enumerate(lanes) for b in range(blocks)]
        self.per_lane = blocks
        self.pieces = max(1, -(-self.layout.part // piece))
        self.memory = self._memory(inputs)
        self.ready: dict[tuple[int, ...], Flag] = {}
        self.done: dict[tuple[int, ...], Flag] = {}
        self.events: dict[tuple[int, ...], Flag] = {}
        self.steps: dict[tuple[int, int], list[list[int]]] = {lane: [] for lane in lanes}
        for row in np.lexsort((np.arange(len(t)), t.step)).tolist():
            steps = self.steps[int(t.rank[row]), int(t.stream[row])]
            if len(steps) == t.step[row]:
                steps.append([])
            steps[int(t.step[row])].append(row)

    def _memory(self, inputs: Sequence[Mapping[str, Array]]) -> dict[tuple[int, int], Memory]:
        """Poison everywhere, then the inputs."""
        t, dtype = self.table, next(a.dtype for given in inputs for a in given.values())
        draw = np.random.default_rng(self.rng.randrange(1 << 30))
        found = {}
        for b, buffer in enumerate(t.buffers):
            for rank in range(t.ranks):
                size = int(self.layout.starts(b, rank)[-1]) if buffer.only in (None, rank) else 0
                values = draw.integers(-1000, 1000, size).astype(dtype)
                found[rank, b] = Memory(values, len(self.blocks))
        for rank, (given, here) in enumerate(zip(inputs, starts(t), strict=True)):
            for name, chunks in here.items():
                b = t.buffer_index(name)
                assert b is not None
                cuts = self.layout.starts(b, rank)
                found[rank, b].values[int(cuts[chunks.start]) : int(cuts[chunks.stop])] = given[name]
        return found

    # ---- what blocks do, and in which order

    def run(self) -> None:
        """All blocks to their end."""
        alive = [self._block(block) for block in self.blocks]
        waits: list[Waiting | None] = [None] * len(alive)
        left = list(range(len(alive)))
        while left:
            able = [k for k in left if (w := waits[k]) is None or w[0]()]
            assert able, "blocks wait for each other: " + "; ".join(
                f"rank {self.blocks[k].rank} stream {self.blocks[k].stream}: {(waits[k] or _NOTHING)[1]}" for k in left)
            k = self.rng.choice(able)
            for _ in range(self.rng.choice([1, 1, 4, 50])):
                try:
                    waits[k] = next(alive[k])
                except StopIteration:
                    left.remove(k)
                    break
                if (w := waits[k]) is not None and not w[0]():
                    break

    def _block(self, block: Block) -> Iterator[Waiting | None]:
        t, n = self.table, self.normal
        for rows in self.steps[block.rank, block.stream]:
            assert all(len({int(column[r]) for r in rows}) == 1 for column in (n.before, n.after, n.rounds))
            sends = [r for r in rows if t.op[r] == Op.SEND]
            for r in sends:
                if t.of[r] == NONE:
                    yield from self._push(block, r)
                    self._set(block, self._ready(block, r), (int(n.message[r]) + 1, 0))
                    yield None
            yield from self._settle(block, int(n.before[rows[0]]))
            fused = [r for r in sends if t.of[r] != NONE]
            for r in fused:
                yield from self._push(block, r)
            receives = [r for r in rows if t.op[r] in RECEIVES]
            for p in range(int(n.rounds[rows[0]]) * self.pieces):
                for r in receives:
                    yield from self._take(block, r, p)
                for r in fused:
                    last = int(t.count[r]) * self.pieces - 1
                    if p <= last:
                        message = int(n.message[r])
                        self._set(block, self._ready(block, r), (message, p + 1) if p < last else (message + 1, 0))
                        yield None
            for r in rows:
                if t.op[r] in (Op.COPY, Op.REDUCE):
                    for piece in range(int(t.count[r]) * self.pieces):
                        self._move(block, r, piece)
                        yield None
                elif t.op[r] == Op.RECORD:
                    self._set(block, self._event(block, r), (1, 0))
                elif t.op[r] == Op.WAIT:
                    yield from self._wait(block, self._event(block, r), (1, 0), f"event of row {r}")
            yield from self._settle(block, int(n.after[rows[0]]))
        yield from self._settle(block, 0)

    def _ready(self, block: Block, row: int) -> Flag:
        """The flag that says that a message is there, of either end."""
        rank, peer = int(self.table.rank[row]), int(self.table.peer[row])
        ends = (rank, peer) if self.table.op[row] == Op.SEND else (peer, rank)
        tag = int(self.normal.tag[row])
        assert 0 <= tag < self.normal.tags and 0 <= self.normal.message[row] < self.normal.messages
        return self.ready.setdefault((*ends, tag, block.share), Flag())

    def _done(self, block: Block, row: int) -> Flag:
        rank, peer = int(self.table.rank[row]), int(self.table.peer[row])
        ends = (rank, peer) if self.table.op[row] == Op.SEND else (peer, rank)
        return self.done.setdefault((*ends, int(self.normal.tag[row]), block.share), Flag())

    def _event(self, block: Block, row: int) -> Flag:
        return self.events.setdefault((block.rank, int(self.table.event[row]), block.share), Flag())

    def _set(self, block: Block, flag: Flag, value: tuple[int, int]) -> None:
        assert value > flag.value, f"a flag falls from {flag.value} to {value}"
        block.clock[block.number] += 1
        flag.value, flag.clock = value, block.clock.copy()

    def _wait(self, block: Block, flag: Flag, value: tuple[int, int], what: str) -> Iterator[Waiting]:
        yield (lambda: flag.value >= value), what
        assert flag.value >= value
        if flag.clock is not None:
            np.maximum(block.clock, flag.clock, out=block.clock)

    def _push(self, block: Block, row: int) -> Iterator[Waiting]:
        """A send is under way from now on."""
        while len(block.sent) >= self.normal.queue:
            flag, message = block.sent.popleft()
            yield from self._wait(block, flag, (message + 1, 0), f"room for the send of row {row}")
        block.sent.append((self._done(block, row), int(self.normal.message[row])))

    def _settle(self, block: Block, but: int) -> Iterator[Waiting]:
        while but != NONE and len(block.sent) > but:
            flag, message = block.sent.popleft()
            yield from self._wait(block, flag, (message + 1, 0), f"message {message} to be taken, all but {but}")

    def _take(self, block: Block, row: int, p: int) -> Iterator[Waiting | None]:
        last = int(self.table.count[row]) * self.pieces - 1
        if p > last:
            return
        message = int(self.normal.message[row])
        wanted = (message, p + 1) if p < last else (message + 1, 0)
        yield from self._wait(block, self._ready(block, row), wanted, f"piece {p} of row {row}")
        self._move(block, row, p)
        if p == last:
            self._set(block, self._done(block, row), (message + 1, 0))
        yield None

    # ---- memory

    def _move(self, block: Block, row: int, p: int) -> None:
        """One piece of what a row moves."""
        t, n = self.table, self.normal
        part, piece = divmod(p, self.pieces)
        length = self.length(int(n.like[row]) + part)
        within = np.arange(piece * self.piece, min((piece + 1) * self.piece, length))
        if len(within):
            within = within[self.shares(within, length, self.layout.part, self.per_lane) == block.share]
        if not len(within):
            return
        op, rank = int(t.op[row]), block.rank
        target = rank, int(t.buffer[row]), int(t.chunk[row]) + part
        own = rank, int(t.from_buffer[row]), int(t.from_chunk[row]) + part
        if op in RECEIVES:
            theirs = int(t.peer[row]), int(n.their_buffer[row]), int(n.their_chunk[row]) + part
            value = self._read(block, theirs, within)
            if op == Op.REDUCE_RECV:
                value = self.combine(self._read(block, own, within), value)
        elif op == Op.COPY:
            value = self._read(block, own, within)
        else:
            value = self.combine(self._read(block, target, within), self._read(block, own, within))
        self._write(block, target, within, value)

    def _cells(self, place: tuple[int, int, int], within: Array) -> tuple[Memory, Array]:
        rank, buffer, chunk = place
        assert 0 <= chunk < self.table.buffers[buffer].chunks
        cuts = self.layout.starts(buffer, rank)
        at = int(cuts[chunk]) + within
        assert at[-1] < cuts[chunk + 1], f"{len(within)} elements run out of chunk {chunk} of buffer {buffer}"
        return self.memory[rank, buffer], at

    def _read(self, block: Block, place: tuple[int, int, int], within: Array) -> Array:
        memory, at = self._cells(place, within)
        self._require_written_before(block, memory, at, place)
        memory.read[block.number, at] = block.clock[block.number] + 1
        return np.asarray(memory.values[at])

    def _write(self, block: Block, place: tuple[int, int, int], within: Array, value: Array) -> None:
        memory, at = self._cells(place, within)
        self._require_written_before(block, memory, at, place)
        reads = memory.read[:, at]
        reads[block.number] = 0
        assert (reads <= block.clock[:, None]).all(), f"{place} is written while another block may read it"
        memory.values[at] = value
        memory.writer[at], memory.written[at] = block.number, block.clock[block.number] + 1

    def _require_written_before(self, block: Block, memory: Memory, at: Array, place: tuple[int, int, int]) -> None:
        writer = memory.writer[at]
        ordered = (writer == NONE) | (writer == block.number) | (memory.written[at] <= block.clock[writer])
        assert ordered.all(), f"{place} is used while another block may write it"
