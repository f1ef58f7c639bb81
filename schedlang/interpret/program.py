"""The table as the machine sees it: lanes of steps of operations, connections of messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from schedlang.interpret.conditions import Location
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op

Clock = Array
"""A vector clock: for each lane, 1 + 2 i when step i is known to be posted, 2 + 2 i when it is known to be complete."""

Value = Array | None
"""What a location holds; None: nothing has been written there. Values are never changed in place."""


@dataclass(eq=False)
class Operation:
    """One row that is no fused send, or a fused receive together with its send."""

    row: int
    op: Op
    step: Step
    connection_in: Connection | None
    connection_out: Connection | None
    fused: int | None
    reads: tuple[Location, ...]
    writes: tuple[Location, ...]
    event: int
    incoming: Message | None = None
    outgoing: Message | None = None
    clock: Clock | None = None
    """Set when it is done."""
    scheduled: bool = False
    got: tuple[Value, ...] | None = None
    """What `reads` held, once they have been read."""
    landed: bool = False

    @property
    def accumulates(self) -> bool:
        """Whether it adds to what its destination holds."""
        return self.op is Op.REDUCE or (self.op is Op.REDUCE_RECV and self.reads == self.writes)

    @property
    def send_row(self) -> int:
        """The row that posts its outgoing message."""
        return self.row if self.fused is None else self.fused

    @property
    def done(self) -> bool:
        """Whether it has been completed."""
        return self.clock is not None


@dataclass(eq=False)
class Step:
    """Operations posted together. ``posted``, ``completed``: the clocks of these moments, None until then."""

    lane: Lane
    number: int
    operations: list[Operation] = field(default_factory=list)
    posted: Clock | None = None
    completed: Clock | None = None


@dataclass(eq=False)
class Lane:
    """One stream of one rank: its steps, of which those before ``at`` are over."""

    index: int
    rank: int
    stream: int
    steps: list[Step] = field(default_factory=list)
    at: int = 0
    """The number of its current step; ``len(steps)`` when it has ended."""


@dataclass(eq=False)
class Message:
    """Message ``number`` of a connection; ``send`` and ``receive`` are known once posted. For ``available`` and
    ``takeable`` see docs/decisions/0001; each holds the clock at which it came true."""

    connection: Connection
    number: int
    send: Operation | None = None
    receive: Operation | None = None
    available: Clock | None = None
    takeable: Clock | None = None


@dataclass(eq=False)
class Connection:
    """(source, destination, chan). ``sends`` and ``receives``: in the order in which they were posted."""

    key: tuple[int, int, int]
    sends: list[Operation] = field(default_factory=list)
    receives: list[Operation] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    total_sends: list[int] = field(default_factory=list)
    """The rows of all its sends, posted or not."""
    total_receives: list[int] = field(default_factory=list)

    def message(self, number: int) -> Message:
        """Message ``number``, counted from 0."""
        while len(self.messages) <= number:
            self.messages.append(Message(self, len(self.messages)))
        return self.messages[number]


@dataclass
class Program:
    """A table taken apart for one run, which changes it."""

    lanes: list[Lane]
    connections: dict[tuple[int, int, int], Connection]
    records: dict[tuple[int, int], list[Operation]]
    """By (rank, event)."""

    def operations(self) -> Iterator[Operation]:
        """All operations, lane by lane and step by step."""
        for lane in self.lanes:
            for step in lane.steps:
                yield from step.operations


def load(table: OpTable) -> Program:
    """The program of a legal table, nothing of it begun."""
    columns = {name: array.tolist() for name, array in table.take(np.arange(len(table))).items()}
    op, rank, stream, step = columns["op"], columns["rank"], columns["stream"], columns["step"]
    buffer, chunk, count, peer, chan = (columns[c] for c in ("buffer", "chunk", "count", "peer", "chan"))
    lanes: dict[tuple[int, int], Lane] = {}
    connections: dict[tuple[int, int, int], Connection] = {}
    records: dict[tuple[int, int], list[Operation]] = defaultdict(list)
    by_row: dict[int, Operation] = {}

    def places(row: int, of_buffer: int, first: int) -> tuple[Location, ...]:
        return tuple((rank[row], of_buffer, first + i) for i in range(count[row])) if of_buffer != NONE else ()

    def connection(source: int, destination: int, row: int) -> Connection:
        key = (source, destination, chan[row])
        return connections.setdefault(key, Connection(key))

    for row in sorted(range(len(table)), key=lambda i: (rank[i], stream[i], step[i])):  # a stable sort
        at = (rank[row], stream[row])
        lane = lanes.setdefault(at, Lane(len(lanes), *at))
        if step[row] == len(lane.steps):
            lane.steps.append(Step(lane, step[row]))
        kind = Op(op[row])
        if columns["of"][row] != NONE:
            continue
        here = places(row, buffer[row], chunk[row])
        source = places(row, columns["from_buffer"][row], columns["from_chunk"][row])
        operation = Operation(
            row, kind, lane.steps[step[row]],
            connection_in=connection(peer[row], rank[row], row) if kind in (Op.RECV, Op.REDUCE_RECV) else None,
            connection_out=connection(rank[row], peer[row], row) if kind is Op.SEND else None,
            fused=None, reads=here if kind is Op.SEND else source, writes=() if kind is Op.SEND else here,
            event=columns["event"][row])
        by_row[row] = operation
        lane.steps[step[row]].operations.append(operation)
        if operation.connection_in is not None:
            operation.connection_in.total_receives.append(row)
        if operation.connection_out is not None:
            operation.connection_out.total_sends.append(row)
        if kind is Op.RECORD:
            records[rank[row], operation.event].append(operation)
    for row, receive in enumerate(columns["of"]):
        if receive != NONE:
            out = connection(rank[row], peer[row], row)
            by_row[receive].fused, by_row[receive].connection_out = row, out
            out.total_sends.append(row)
    return Program(list(lanes.values()), connections, dict(records))
