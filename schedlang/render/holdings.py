"""Who holds what, step by step: a plain symbolic walk of an op table, for pictures.

The walk goes in *rounds*: every lane that can begin its next step does so, everything read in the round is read before
anything is written, and what has all its messages ends with the round. Messages never block their sender, ``record``
and ``wait`` take no round of their own. This is one of the executions a schedule allows, the most parallel one; whether
all of them agree is for ``verify`` to say. Pictures call a round a step, as whoever reads them thinks of it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from schedlang.ir.table import NONE, OpTable
from schedlang.ops import COLLECTIVES, Op

Origin = tuple[int, int, int]
"""A contribution: (rank, buffer, chunk) of the initial value."""

Place = tuple[int, int, int]
"""A location: (buffer, rank, chunk)."""

Value = dict[Origin, int]
"""What a location holds: how often it contains each contribution. Never changed in place."""

MAX_ROWS = 100_000
"""Larger tables are no use as a picture, and their walk would take minutes."""


@dataclass(frozen=True)
class Round:
    """One round: the rows that ended in it, and the locations it wrote with their new values (None: computed from
    memory that had no value)."""

    rows: tuple[int, ...]
    written: dict[Place, Value | None]


@dataclass(frozen=True)
class Walk:
    """``start``: the locations that have a value at the beginning. ``stuck``: rows that can never end.

    ``began``: the round in which a row began, for a record or wait the one before which it was passed; rows that never
    began are left out. ``sender``: the send of each receive that got its message.
    """

    start: dict[Place, Value]
    rounds: tuple[Round, ...]
    stuck: tuple[int, ...]
    began: Mapping[int, int]
    sender: Mapping[int, int]

    def chosen(self, wanted: range | None) -> range:
        """The rounds that are wanted, as far as there are so many; None: all."""
        total = len(self.rounds)
        return range(total) if wanted is None else range(min(wanted.start, total), min(wanted.stop, total))

    def states(self) -> Iterator[dict[Place, Value | None]]:
        """What every written location holds before round 0, after round 0, and so on. The same mapping is changed and
        yielded each time."""
        state: dict[Place, Value | None] = dict(self.start)
        yield state
        for step in self.rounds:
            state.update(step.written)
            yield state


def start(table: OpTable) -> dict[Place, Value]:
    """The locations that have a value at the beginning, each with its own contribution."""
    kind = COLLECTIVES[table.collective.name]
    root = table.collective.root
    own_block = kind.name in ("allgather", "gather", "allgatherv") and table.collective.inplace
    from_root = kind.name in ("broadcast", "scatter")
    held: dict[Place, Value] = {}
    for index, buffer in enumerate(table.buffers):
        if buffer.role not in ("data", "input"):
            continue
        for rank in range(table.ranks):
            if buffer.only not in (None, rank) or (from_root and rank != root):
                continue
            block = buffer.chunks // table.ranks
            chunks = range(rank * block, (rank + 1) * block) if own_block else range(buffer.chunks)
            for chunk in chunks:
                held[index, rank, chunk] = {(rank, index, chunk): 1}
    return held


def walk(table: OpTable) -> Walk:
    """Walks a table of at most MAX_ROWS rows; raises ValueError for a larger one."""
    if len(table) > MAX_ROWS:
        raise ValueError(f"{len(table):,} operations are too many to draw; at most {MAX_ROWS:,} can be")
    return _Walker(table).run()


@dataclass
class _Posted:
    """A step that has begun: its rows, what they read, and the receives that still lack their message."""

    rows: list[int]
    read: dict[int, list[Value | None]]
    missing: set[int]
    arrived: dict[int, list[Value | None]] = field(default_factory=dict)


class _Walker:
    def __init__(self, table: OpTable) -> None:
        self.table, self.round = table, 0
        columns = ("op", "rank", "stream", "step", "buffer", "chunk", "count", "peer", "chan", "from_buffer",
                   "from_chunk", "of", "event")
        self.column: dict[str, list[int]] = {name: getattr(table, name).tolist() for name in columns}
        self.barrier = table.collective.name == "barrier"
        self.initial = start(table)
        self.state: dict[Place, Value | None] = dict(self.initial)
        self.lanes: dict[tuple[int, int], deque[list[int]]] = {}
        self.posted: dict[tuple[int, int], _Posted] = {}
        self.recorded: set[tuple[int, int]] = set()
        self.began: dict[int, int] = {}
        self.sender: dict[int, int] = {}
        # Per connection, first in, first out: (send, values) under way, and (lane, row) of receives that wait for one.
        self.messages: dict[tuple[int, int, int], deque[tuple[int, list[Value | None]]]] = defaultdict(deque)
        self.receives: dict[tuple[int, int, int], deque[tuple[tuple[int, int], int]]] = defaultdict(deque)
        self.fused = {receive: send for send, receive in enumerate(self.column["of"]) if receive != NONE}
        steps: dict[tuple[int, int], dict[int, list[int]]] = {}
        for row, (rank, stream, step) in enumerate(zip(self.column["rank"], self.column["stream"], self.column["step"],
                                                       strict=True)):
            steps.setdefault((rank, stream), {}).setdefault(step, []).append(row)
        for lane, by_step in steps.items():
            self.lanes[lane] = deque(by_step[step] for step in sorted(by_step))

    def run(self) -> Walk:
        rounds: list[Round] = []
        while True:
            self.round = len(rounds)
            self.pass_events()
            for lane, steps in self.lanes.items():
                if steps and lane not in self.posted and not self.is_event(steps[0][0]):
                    self.post(lane, steps.popleft())
            self.deliver()
            done = [lane for lane, posted in self.posted.items() if not posted.missing]
            if not done:
                break
            rounds.append(self.finish(done))
        stuck = sorted({row for posted in self.posted.values() for row in posted.missing}
                       | {steps[0][0] for lane, steps in self.lanes.items() if steps and lane not in self.posted})
        return Walk(self.initial, tuple(rounds), tuple(stuck), self.began, self.sender)

    def is_event(self, row: int) -> bool:
        return self.column["op"][row] in (Op.RECORD, Op.WAIT)

    def pass_events(self) -> None:
        """Takes every record and wait that can be taken before the next round."""
        progress = True
        while progress:
            progress = False
            for lane, steps in self.lanes.items():
                while steps and lane not in self.posted and self.is_event(steps[0][0]):
                    row = steps[0][0]
                    event = (lane[0], self.column["event"][row])
                    if self.column["op"][row] == Op.RECORD:
                        self.recorded.add(event)
                    elif event not in self.recorded:
                        break
                    self.began[row] = self.round
                    steps.popleft()
                    progress = True

    def read(self, buffer: int, rank: int, chunk: int, count: int) -> list[Value | None]:
        return [self.state.get((buffer, rank, chunk + k)) for k in range(count)]

    def post(self, lane: tuple[int, int], rows: list[int]) -> None:
        c = self.column
        posted = _Posted(rows, {}, set())
        for row in rows:
            self.began[row] = self.round
            op, rank, count = c["op"][row], c["rank"][row], c["count"][row]
            if op == Op.SEND and c["of"][row] == NONE:
                self.messages[rank, c["peer"][row], c["chan"][row]].append(
                    (row, self.read(c["buffer"][row], rank, c["chunk"][row], count)))
            elif op in (Op.RECV, Op.REDUCE_RECV):
                posted.missing.add(row)
                self.receives[c["peer"][row], rank, c["chan"][row]].append((lane, row))
            if op in (Op.COPY, Op.REDUCE) or (op == Op.REDUCE_RECV and c["from_buffer"][row] != NONE):
                posted.read[row] = self.read(c["from_buffer"][row], rank, c["from_chunk"][row], count)
        self.posted[lane] = posted

    def deliver(self) -> None:
        """Hands messages to posted receives; a fused receive passes its value on at once."""
        c = self.column
        pending = deque(self.receives)
        while pending:
            connection = pending.popleft()
            messages, receives = self.messages[connection], self.receives[connection]
            while messages and receives:
                (lane, row), (sent, message) = receives.popleft(), messages.popleft()
                self.sender[row] = sent
                posted = self.posted[lane]
                posted.missing.discard(row)
                posted.arrived[row] = message
                if row in self.fused:
                    send = self.fused[row]
                    value = message
                    if c["op"][row] == Op.REDUCE_RECV:
                        value = [_sum(a, b) for a, b in zip(posted.read[row], message, strict=False)]
                    onward = (c["rank"][send], c["peer"][send], c["chan"][send])
                    self.messages[onward].append((send, value))
                    pending.append(onward)

    def finish(self, lanes: list[tuple[int, int]]) -> Round:
        c = self.column
        rows: list[int] = []
        written: dict[Place, Value | None] = {}
        for lane in lanes:
            posted = self.posted.pop(lane)
            for row in posted.rows:
                rows.append(row)
                op, buffer, rank, chunk = c["op"][row], c["buffer"][row], c["rank"][row], c["chunk"][row]
                if op == Op.SEND or buffer == NONE:
                    continue
                values = posted.arrived.get(row, posted.read.get(row, []))
                # A reduction whose local operand is the destination adds to what is there by now, so that several in
                # one step add up; one with another operand starts from that.
                elsewhere = op == Op.REDUCE_RECV and (c["from_buffer"][row], c["from_chunk"][row]) != (buffer, chunk)
                for k, value in enumerate(values[:c["count"][row]]):
                    place = (buffer, rank, chunk + k)
                    before = written[place] if place in written else self.state.get(place)
                    if self.barrier:
                        value = _union(before, value)
                    elif elsewhere:
                        value = _sum(posted.read[row][k], value)
                    elif op in (Op.REDUCE, Op.REDUCE_RECV):
                        value = _sum(before, value)
                    written[place] = value
        self.state.update(written)
        return Round(tuple(sorted(rows)), written)


def _sum(a: Value | None, b: Value | None) -> Value | None:
    if a is None or b is None:
        return None
    total = dict(a)
    for origin, times in b.items():
        total[origin] = total.get(origin, 0) + times
    return total


def _union(a: Value | None, b: Value | None) -> Value | None:
    """In a barrier a token's value is the set of ranks it has heard of."""
    return dict.fromkeys([*(a or ()), *(b or ())], 1)
