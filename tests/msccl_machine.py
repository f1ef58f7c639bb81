"""What an MSCCL file does, by the book of its format: the oracle that reader, table and verifier are judged by.

It shares no code with them and knows no table: XML is read by ``xml.etree``, thread blocks are program counters,
connections queues of so many slots, flags the last step that a block has told of, buffers pointers into one memory a
rank, values trees of sums. It is for the tests' own text and for known files, not for hostile ones: those are the
reader's to refuse.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.etree import ElementTree

DEPTH = {"Simple": 2, "LL": 8, "LL128": 8}
COLLECTIVES = {"allreduce", "allgather", "alltoall", "reduce", "broadcast", "reduce_scatter", "reducescatter", "gather",
               "scatter", "custom", "send", "recv", "alltoallv"}
BLOCKED = ("allgather", "reduce_scatter", "reducescatter", "gather", "scatter")
SENDS, RECEIVES = {"s", "rcs", "rrs", "rrcs"}, {"r", "rcs", "rrc", "rrs", "rrcs"}
READS, WRITES = {"s", "cpy", "re", "rrc", "rrs", "rrcs"}, {"r", "cpy", "re", "rcs", "rrc", "rrcs"}
KINDS = SENDS | RECEIVES | READS | {"nop"}

Connection = tuple[int, int, int]
"""(source, destination, channel)"""


class Illegal(Exception):
    """The file breaks a rule of the format; the text says which."""


@dataclass
class Step:
    """As written; ``told``: a flag is published when it is done."""

    kind: str
    src: tuple[str, int]
    dst: tuple[str, int]
    count: int
    depid: int
    deps: int
    told: bool


@dataclass
class Block:
    rank: int
    send: int
    recv: int
    chan: int
    steps: list[Step] = field(default_factory=list)


@dataclass
class File:
    """``of[rank]``: its blocks, as indices into ``blocks``. ``sizes[rank]``: the chunks that each buffer has.
    ``copies``: (rank, input chunk, output chunk, count), before everything. ``lacking``: some step uses a buffer that
    only the root has."""

    ranks: int
    chunks: int
    coll: str
    depth: int
    root: int
    placements: tuple[bool, ...]
    blocks: list[Block]
    of: list[list[int]]
    sizes: list[dict[str, int]]
    copies: list[tuple[int, int, int, int]]
    lacking: bool = False


@dataclass
class Outcome:
    """What comes of a file in one placement. ``never``: a block waits for a flag that none publishes; ``unmatched``:
    sends and receives of a connection are not equally many; ``mismatched``: sizes of a message differ. Where none of
    them holds: ``hangs`` with the protocol's depth, ``least`` depths of whole messages and of single chunks that
    suffice (0: none does). Where one does: ``races``, ``uninitialised`` reads, ``wrong`` results; ``agreement``: all
    ranks hold their results from one order of sums (None: the collective has no result that they share).

    For ``races`` a step reads from its beginning on, a receiving one perhaps before its message has come, and stores
    when that has come. A message that has arrived shows what its sender had done before, and that what it is made of
    has been read; not that the sender's step is done, which may store besides."""

    never: bool = False
    unmatched: bool = False
    mismatched: bool = False
    hangs: bool = False
    least: tuple[int, int] = (0, 0)
    overlaps: bool = False
    races: bool = False
    uninitialised: bool = False
    wrong: bool = False
    agreement: bool | None = None

    @property
    def word(self) -> str:
        """The first that is wrong, or ``clean``."""
        names = ("overlaps", "never", "unmatched", "mismatched", "hangs", "races", "uninitialised", "wrong")
        return next((name for name in names if getattr(self, name)), "clean")


# Reading ------------------------------------------------------------------------------------------------------------


def read(text: str, root: int = 0) -> File:
    """The file in a text, for calls with a root. Raises Illegal."""
    try:
        algo = ElementTree.fromstring(text)
    except ElementTree.ParseError as e:
        raise Illegal(str(e)) from None
    _rule(algo.tag == "algo", "no algo")
    ranks, chunks = _int(algo, "ngpus", 1), _int(algo, "nchunksperloop", 1)
    coll, proto = algo.get("coll", ""), algo.get("proto", "")
    _rule(coll in COLLECTIVES and proto in DEPTH, "unknown collective or protocol")
    _int(algo, "nchannels", 1)
    inplace = bool(_int(algo, "inplace", 0, 1))
    outofplace = bool(_int(algo, "outofplace", 0, 1)) if "outofplace" in algo.attrib else not inplace
    gpus = {_int(gpu, "id", 0): gpu for gpu in algo.findall("gpu")}
    _rule(sorted(gpus) == list(range(ranks)) and len(algo.findall("gpu")) == ranks, "ranks")
    if coll in ("gather", "scatter"):
        # The format does not say whether it is the long buffer's chunks that count, or the short one's.
        short, long = "io" if coll == "gather" else "oi"
        given = [max(_int(gpu, f"{name}_chunks", 0) for gpu in gpus.values()) for name in (short, long)]
        if given[1] == chunks * ranks or given == [chunks, 0]:
            chunks *= ranks
    if coll in BLOCKED or coll == "alltoall":
        _rule(chunks % ranks == 0, "blocks are not equal")
    file = File(ranks, chunks, coll, DEPTH[proto], root, (True,) * inplace + (False,) * outofplace, [], [], [], [])
    for rank in range(ranks):
        _gpu(file, rank, gpus[rank])
    _rule(bool(file.placements), "for no use")
    return file


def _gpu(file: File, rank: int, gpu: ElementTree.Element) -> None:
    given = {name: _int(gpu, f"{name}_chunks", 0) for name in "ios"}
    whole = {"i": file.chunks, "o": file.chunks}
    if file.coll in BLOCKED:
        whole["i" if file.coll in ("allgather", "gather") else "o"] //= file.ranks
    known = file.coll not in ("custom", "send", "recv", "alltoallv")
    # What is declared bounds offsets; 0 declares nothing, and the collective says what there is.
    size = {b: min(given[b] or whole[b], whole[b]) if known else given[b] or whole[b] for b in "io"}
    size["s"] = given["s"]
    file.sizes.append({**whole, "s": given["s"]} if known else size)
    tbs = sorted(gpu.findall("tb"), key=lambda tb: _int(tb, "id", 0))
    _rule([_int(tb, "id", 0) for tb in tbs] == list(range(len(tbs))), "ids of blocks")
    blocks = [_block(file, rank, tb) for tb in tbs]
    for ends in ([(b.send, b.chan) for b in blocks if b.send >= 0], [(b.recv, b.chan) for b in blocks if b.recv >= 0]):
        _rule(len(set(ends)) == len(ends), "two blocks on one connection")
    whole_here = rank == file.root or False not in file.placements
    absent = None if whole_here else {"scatter": "i", "gather": "o"}.get(file.coll)
    for b in blocks:
        for s in b.steps:
            _rule(s.kind not in SENDS or b.send >= 0, "a send without a peer")
            _rule(s.kind not in RECEIVES or b.recv >= 0, "a receive without a peer")
            _rule(s.kind == "nop" or s.count >= 1, "nothing to move")
            _rule(s.depid < len(blocks), "no such block")
            _rule(s.depid < 0 or s.deps < len(blocks[s.depid].steps), "no such step")
            for used, (buffer, offset) in ((s.kind in READS, s.src), (s.kind in WRITES, s.dst)):
                _rule(not used or 0 <= offset <= size[buffer] - s.count, "outside of the buffer")
                file.lacking |= used and buffer == absent
    file.of.append(list(range(len(file.blocks), len(file.blocks) + len(blocks))))
    file.blocks += blocks
    for copy in gpu.findall("copy"):
        i, o, count = _int(copy, "i_off", 0), _int(copy, "o_off", 0), int(copy.get("cnt", "1"))
        file.lacking |= absent is not None
        _rule(count >= 1 and i + count <= size["i"] and o + count <= size["o"], "a copy outside of the buffer")
        file.copies.append((rank, i, o, count))


def _block(file: File, rank: int, tb: ElementTree.Element) -> Block:
    send, recv, chan = (_int(tb, name, -1) for name in ("send", "recv", "chan"))
    _rule(rank not in (send, recv) and max(send, recv) < file.ranks, "no such peer")
    _rule(chan >= 0 or send == recv == -1, "no channel")
    block = Block(rank, send, recv, chan)
    for number, step in enumerate(tb.findall("step")):
        _rule(_int(step, "s", 0) == number, "numbers of steps")
        kind, places = step.get("type", ""), []
        for end in ("src", "dst"):
            buffer = step.get(f"{end}buf", "")
            _rule(buffer in ("i", "o", "s"), "unknown buffer")
            places.append((buffer, _int(step, f"{end}off", -(1 << 31))))
        _rule(kind in KINDS, "unknown operation")
        block.steps.append(Step(kind, places[0], places[1], _int(step, "cnt", 0), _int(step, "depid", -1),
                                max(0, _int(step, "deps", -1)), bool(_int(step, "hasdep", 0, 1)) and kind != "nop"))
    return block


def _rule(holds: bool, why: str) -> None:
    if not holds:
        raise Illegal(why)


def _int(element: ElementTree.Element, name: str, low: int, high: int = (1 << 31) - 1) -> int:
    try:
        value = int(element.attrib[name])
    except (KeyError, ValueError):
        raise Illegal(f"{name} of {element.tag}") from None
    _rule(low <= value <= high, f"{name} of {element.tag}")
    return value


# Running ------------------------------------------------------------------------------------------------------------


def execute(file: File, depth: int | None, pieces: bool = False, rng: random.Random | None = None
            ) -> Iterator[tuple[int, int]]:
    """Runs all blocks as far as they come; yields (block, step) as each is done. ``depth``: how many messages a
    connection holds, None: all. ``pieces``: a message of c chunks is c messages, one after another. ``rng`` draws the
    interleaving."""
    sent: dict[Connection, int] = {}
    taken: dict[Connection, int] = {}
    flags, at, rest = [-1] * len(file.blocks), [0] * len(file.blocks), [0] * len(file.blocks)
    ahead = [b for b, block in enumerate(file.blocks) if block.steps]
    room = 1 << 60 if depth is None else depth
    while ahead:
        if rng is not None:
            rng.shuffle(ahead)
        went = False
        for b in ahead:
            block = file.blocks[b]
            out, into = (block.rank, block.send, block.chan), (block.recv, block.rank, block.chan)
            mine = file.of[block.rank]
            while at[b] < len(block.steps):
                step = block.steps[at[b]]
                if step.depid >= 0 and flags[mine[step.depid]] < step.deps:
                    break
                sends, receives = step.kind in SENDS, step.kind in RECEIVES
                if sends or receives:
                    rest[b] = rest[b] or (step.count if pieces else 1)
                    while rest[b]:
                        if receives and taken.get(into, 0) >= sent.get(into, 0):
                            break
                        if sends and sent.get(out, 0) - taken.get(out, 0) >= room:
                            break
                        if receives:
                            taken[into] = taken.get(into, 0) + 1
                        if sends:
                            sent[out] = sent.get(out, 0) + 1
                        rest[b] -= 1
                        went = True
                    if rest[b]:
                        break
                yield b, at[b]
                went = True
                if step.told:
                    flags[b] = at[b]
                at[b] += 1
                if rng is not None and rng.random() < 0.3:
                    break
        if not went:
            return
        ahead = [b for b in ahead if at[b] < len(file.blocks[b].steps)]


def finishes(file: File, depth: int | None, pieces: bool = False) -> bool:
    """Whether every block comes to its end."""
    return sum(1 for _ in execute(file, depth, pieces)) == sum(len(b.steps) for b in file.blocks)


def judge(file: File, inplace: bool, seed: int = 0) -> Outcome:
    """What comes of the file in a placement; ``seed`` draws the interleaving."""
    found = Outcome(overlaps=overlaps(file, inplace), never=_never(file))
    found.unmatched, found.mismatched = _unmatched(file)
    if found.word != "clean":
        return found
    found.hangs = not all(finishes(file, file.depth, pieces) for pieces in (False, True))
    if not found.hangs or finishes(file, None):
        found.least = _least(file, False), _least(file, True)
        _Memory(file, inplace).run(seed, found)
    return found


def _least(file: File, pieces: bool) -> int:
    return next(depth for depth in itertools.count(1) if finishes(file, depth, pieces))


def _never(file: File) -> bool:
    for block in file.blocks:
        for step in block.steps:
            if step.depid >= 0 and not any(
                    s.told for s in file.blocks[file.of[block.rank][step.depid]].steps[step.deps:]):
                return True
    return False


def _unmatched(file: File) -> tuple[bool, bool]:
    """Whether messages are not equally many at both ends, and whether the sizes of some differ."""
    ends: dict[Connection, tuple[list[int], list[int]]] = {}
    for b in file.blocks:
        for s in b.steps:
            if s.kind in SENDS:
                ends.setdefault((b.rank, b.send, b.chan), ([], []))[0].append(s.count)
            if s.kind in RECEIVES:
                ends.setdefault((b.recv, b.rank, b.chan), ([], []))[1].append(s.count)
    return (any(len(sends) != len(receives) for sends, receives in ends.values()),
            any(x != y for sends, receives in ends.values() for x, y in zip(sends, receives, strict=False)))


def overlaps(file: File, inplace: bool) -> bool:
    """Whether a step reads chunks that it writes at other offsets: then threads race within it."""
    memory = _Memory(file, inplace)
    for block in file.blocks:
        for s in block.steps:
            if s.kind in READS and s.kind in WRITES:
                apart = abs(memory.pointer(block.rank, *s.src) - memory.pointer(block.rank, *s.dst))
                if 0 < apart < s.count:
                    return True
    return any(0 < abs(memory.pointer(r, "i", i) - memory.pointer(r, "o", o)) < n for r, i, o, n in file.copies)


class _Memory:
    """One memory a rank. A value is a number: of an initial chunk, or of the sum of two, whose order does not count.
    ``made[value]``: how often it contains each initial chunk (rank, chunk of its input)."""

    def __init__(self, file: File, inplace: bool) -> None:
        self.file, self.inplace = file, inplace
        self.known: dict[object, int] = {}
        self.made: list[dict[tuple[int, int], int]] = []
        self.cells: list[dict[int, int]] = [{} for _ in range(file.ranks)]

    def pointer(self, rank: int, buffer: str, offset: int) -> int:
        """Where a chunk lies. In place the short one of two buffers is the rank's block of the long one."""
        size = self.file.sizes[rank]
        if buffer == "s":
            return (1 << 40) + offset
        if not self.inplace:
            return offset if buffer == "i" else (1 << 20) + offset
        short = min(size["i"], size["o"])
        return offset + (rank * short if self.file.coll in BLOCKED and size[buffer] == short else 0)

    def leaf(self, rank: int, chunk: int) -> int:
        return self._value((rank, chunk), {(rank, chunk): 1})

    def sum(self, x: int | None, y: int | None) -> int | None:
        if x is None or y is None:
            return None
        key = frozenset((x, y)) if x != y else (x, x, "twice")
        if key in self.known:
            return self.known[key]
        parts = dict(self.made[x])
        for one, times in self.made[y].items():
            parts[one] = parts.get(one, 0) + times
        return self._value(key, parts)

    def _value(self, key: object, parts: dict[tuple[int, int], int]) -> int:
        if key not in self.known:
            self.known[key] = len(self.made)
            self.made.append(parts)
        return self.known[key]

    def run(self, seed: int, found: Outcome) -> None:
        """All of the file, with queues that hold everything; what is wrong goes to ``found``. A step is three moments:
        it reads; it takes a message, and sends one; it stores."""
        file, blocks = self.file, self.file.blocks
        self.begin(found)
        clocks = [[0] * len(blocks) for _ in blocks]
        queues: dict[Connection, list[tuple[list[int | None], list[int]]]] = {}
        flags: dict[tuple[int, int], list[int]] = {}
        touched: list[dict[int, tuple[dict[int, int], dict[int, int]]]] = [{} for _ in range(file.ranks)]

        def touch(rank: int, place: int, b: int, writes: bool) -> None:
            reads, writers = touched[rank].setdefault(place, ({}, {}))
            for other in (writers, reads) if writes else (writers,):
                for who, when in other.items():
                    if who != b and clocks[b][who] < when:
                        found.races = True
            (writers if writes else reads)[b] = clocks[b][b]

        for b, number in execute(file, None, rng=random.Random(seed)):
            block, step = blocks[b], blocks[b].steps[number]
            rank, clock, cells = block.rank, clocks[b], self.cells[block.rank]
            if step.depid >= 0:
                other = file.of[rank][step.depid]
                _join(clock, flags[other, _first_told(blocks[other], step.deps)])
            clock[b] += 1
            if step.kind in READS:
                for k in range(step.count):
                    touch(rank, self.pointer(rank, *step.src) + k, b, writes=False)
            message: list[int | None] = []
            if step.kind in RECEIVES:
                message, sender = queues[block.recv, rank, block.chan].pop(0)
                _join(clock, sender)
            shown = list(clock) if step.kind in SENDS else []
            clock[b] += 1
            if step.kind != "nop":
                source, target = self.pointer(rank, *step.src), self.pointer(rank, *step.dst)
                if step.kind in READS:
                    held = [cells.get(source + k) for k in range(step.count)]
                    found.uninitialised |= None in held
                    message = [self.sum(x, y) for x, y in zip(message, held, strict=True)] if message else held
                if step.kind == "re":
                    found.uninitialised |= any(target + k not in cells for k in range(step.count))
                    message = [self.sum(x, cells.get(target + k)) for k, x in enumerate(message)]
                if step.kind in WRITES:
                    for k, value in enumerate(message):
                        touch(rank, target + k, b, writes=True)
                        if value is not None:
                            cells[target + k] = value
                        else:
                            cells.pop(target + k, None)
                if step.kind in SENDS:
                    queues.setdefault((rank, block.send, block.chan), []).append((message, shown))
            if step.told:
                flags[b, number] = list(clock)
        self.end(found)

    def begin(self, found: Outcome) -> None:
        """What there is before: the inputs, of broadcast and scatter the root's only; then the copies."""
        file = self.file
        for rank in range(file.ranks):
            if file.coll in ("broadcast", "scatter") and rank != file.root:
                continue
            size = file.sizes[rank]
            known = file.coll not in ("custom", "send", "recv", "alltoallv")
            for k in range(size["i"] if known or not self.inplace else max(size["i"], size["o"], file.chunks)):
                self.cells[rank][self.pointer(rank, "i", k)] = self.leaf(rank, k)
        for rank, i, o, count in file.copies:
            taken = [self.cells[rank].get(self.pointer(rank, "i", i + k)) for k in range(count)]
            found.uninitialised |= None in taken
            for k, value in enumerate(taken):
                if value is not None:
                    self.cells[rank][self.pointer(rank, "o", o + k)] = value

    def end(self, found: Outcome) -> None:
        """Whether the results are right, and alike."""
        file = self.file
        everyone, block = range(file.ranks), file.sizes[0]["o"]
        if file.coll in ("custom", "send", "recv", "alltoallv"):
            return
        alike = True
        for k in range(file.sizes[0]["o"]):
            held = set()
            for rank in everyone:
                if file.coll in ("reduce", "gather") and rank != file.root:
                    continue
                value = self.cells[rank].get(self.pointer(rank, "o", k))
                if file.coll in ("allreduce", "reduce"):
                    due = {(p, k): 1 for p in everyone}
                elif file.coll == "broadcast":
                    due = {(file.root, k): 1}
                elif file.coll in ("allgather", "gather"):
                    short = file.sizes[0]["i"]
                    due = {(k // short, k % short): 1}
                elif file.coll == "alltoall":
                    per = file.chunks // file.ranks
                    due = {(k // per, rank * per + k % per): 1}
                elif file.coll == "scatter":
                    due = {(file.root, rank * block + k): 1}
                else:
                    due = {(p, rank * block + k): 1 for p in everyone}
                held.add(value)
                found.wrong |= value is None or self.made[value] != due
            alike &= len(held) == 1
        if file.coll in ("allreduce", "allgather", "broadcast"):
            found.agreement = alike


def _first_told(block: Block, deps: int) -> int:
    return next(i for i in range(deps, len(block.steps)) if block.steps[i].told)


def _join(clock: list[int], other: list[int]) -> None:
    for i, when in enumerate(other):
        if when > clock[i]:
            clock[i] = when
