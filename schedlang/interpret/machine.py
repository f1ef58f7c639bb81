"""The machine: what can happen next, and what happens then.

Everything that can happen is an event; once possible, an event stays possible until it happens (every rule is a
conjunction of things that stay true), so a schedule of events is any order of picking from the bag of possible ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from schedlang.interpret.conditions import Location
from schedlang.interpret.order import Kind, Order
from schedlang.interpret.program import Clock, Lane, Message, Operation, Program, Value
from schedlang.interpret.values import Combine
from schedlang.ir.table import Array
from schedlang.ops import Op


@dataclass(frozen=True)
class Model:
    """A completion model. ``depth``: how many messages a connection buffers; None: without limit; 0: rendezvous."""

    depth: int | None

    @property
    def rendezvous(self) -> bool:
        """Whether nothing is buffered."""
        return self.depth == 0


class Machine:
    """One run of a program.

    ``memory`` holds the initial values; ``capacity`` the length of the part at each location, where values have
    lengths that matter. With ``clocks``, happens-before is tracked (needed for races, ambiguity and barriers).
    """

    def __init__(self, program: Program, model: Model, order: Order, memory: dict[Location, Array], combine: Combine,
                 capacity: Mapping[Location, int] | None, clocks: bool = True) -> None:
        self.program, self.model, self.order = program, model, order
        self.memory, self.combine, self.capacity = memory, combine, capacity
        self._lanes = len(program.lanes) if clocks else 0
        self._waiting: dict[tuple[int, int], list[Operation]] = defaultdict(list)
        self._recorded: dict[tuple[int, int], Clock] = {}
        self.uninitialised: dict[tuple[int, Location], None] = {}
        self.misfits: dict[tuple[int, Location], None] = {}
        self.recorded_twice: list[int] = []

    def run(self, progress: Callable[[float], None] | None = None) -> None:
        """Let events happen until none is possible. ``progress`` hears now and then what part of the steps is done."""
        steps, done = sum(len(lane.steps) for lane in self.program.lanes), 0
        for lane in self.program.lanes:
            self.order.add((Kind.POST, lane, None))
        while (event := self.order.pick()) is not None:
            kind, lane, operation = event
            if kind is Kind.POST:
                self._post(lane)
            elif kind is Kind.COMPLETE:
                self._complete(lane)
                done += 1
                if progress is not None and done % 256 == 0:
                    progress(done / steps)
            else:
                assert operation is not None
                {Kind.READ: self._read, Kind.FINISH: self._finish, Kind.WRITE: self._write}[kind](operation)

    # ---- steps -----------------------------------------------------------------------------------------------------

    def _post(self, lane: Lane) -> None:
        step = lane.steps[lane.at]
        before = lane.steps[lane.at - 1].completed if lane.at else np.zeros(self._lanes, np.int64)
        assert before is not None
        step.posted = self._tick(before, lane, 2 * lane.at + 1)
        changed: list[Message] = []
        for operation in sorted((o for o in step.operations if o.connection_out), key=lambda o: o.send_row):
            assert operation.connection_out is not None
            operation.outgoing = operation.connection_out.message(len(operation.connection_out.sends))
            operation.outgoing.send = operation
            operation.connection_out.sends.append(operation)
            changed.append(operation.outgoing)
        for operation in step.operations:
            if operation.connection_in is not None:
                operation.incoming = operation.connection_in.message(len(operation.connection_in.receives))
                operation.incoming.receive = operation
                operation.connection_in.receives.append(operation)
                changed.append(operation.incoming)
            if operation.op is Op.WAIT:
                self._waiting[lane.rank, operation.event].append(operation)
            if operation.reads:
                if self.order.reads_at_once:
                    self._read(operation)
                else:
                    self.order.add((Kind.READ, lane, operation))
        self._settle(changed)
        for operation in step.operations:
            self._consider(operation)

    def _complete(self, lane: Lane) -> None:
        step = lane.steps[lane.at]
        clock = step.posted
        for operation in step.operations:
            clock = join(clock, operation.clock)
        assert clock is not None
        for operation in step.operations:
            self._read(operation)
        for operation in step.operations:
            self._write(operation)
        step.completed = self._tick(clock, lane, 2 * lane.at + 2)
        lane.at += 1
        if lane.at < len(lane.steps):
            self.order.add((Kind.POST, lane, None))
        for operation in step.operations:
            if operation.op is Op.RECORD:
                self._record(lane.rank, operation, step.completed)

    def _record(self, rank: int, operation: Operation, clock: Clock) -> None:
        if (rank, operation.event) in self._recorded:
            self.recorded_twice.append(operation.row)
            return
        self._recorded[rank, operation.event] = clock
        for waiting in self._waiting[rank, operation.event]:
            self._consider(waiting)

    # ---- completion: docs/decisions/0001 -----------------------------------------------------------------------------

    def _settle(self, changed: list[Message]) -> None:
        """See which of these messages have become available or takeable, and what follows from it."""
        while changed:
            message = changed.pop()
            if message.available is None and (clock := self._availability(message)) is not None:
                message.available = clock
                if message.receive is not None and message.receive.outgoing is not None:
                    changed.append(message.receive.outgoing)
            if message.takeable is None and (clock := self._takeability(message)) is not None:
                message.takeable = clock
                if message.number + 1 < len(message.connection.messages):
                    changed.append(message.connection.messages[message.number + 1])
                if message.send is not None and message.send.incoming is not None:
                    changed.append(message.send.incoming)
            for end in (message.send, message.receive):
                if end is not None:
                    self._consider(end)

    def _availability(self, message: Message) -> Clock | None:
        send = message.send
        if send is None:
            return None
        if send.fused is None:
            return send.step.posted
        if not self.model.rendezvous:
            return send.clock
        return join(send.step.posted, send.incoming.available if send.incoming is not None else None)

    def _takeability(self, message: Message) -> Clock | None:
        receive = message.receive
        if not self.model.rendezvous or receive is None:
            return None
        clock = receive.step.posted
        if message.number:
            clock = join(clock, message.connection.messages[message.number - 1].takeable)
        if receive.fused is not None:
            clock = join(clock, receive.outgoing.takeable if receive.outgoing is not None else None)
        return clock

    def _completion(self, operation: Operation) -> Clock | None:
        """The clock at which an operation is done, None where it cannot be yet."""
        clock = operation.step.posted
        if operation.op is Op.WAIT:
            return join(clock, self._recorded.get((operation.step.lane.rank, operation.event)))
        if operation.connection_in is not None:
            assert operation.incoming is not None
            if self.model.rendezvous:
                clock = join(clock, operation.incoming.available)
            else:
                clock = join(clock, operation.incoming.send.clock if operation.incoming.send is not None else None)
        if operation.connection_out is not None:
            assert operation.outgoing is not None
            room = operation.outgoing.takeable if self.model.rendezvous else self._room(operation.outgoing)
            clock = join(clock, room)
        return clock

    def _room(self, message: Message) -> Clock | None:
        """With buffers: the clock at which the connection can take the message."""
        depth = self.model.depth
        if depth is None or message.number < depth:
            assert message.send is not None
            return message.send.step.posted
        earlier = message.connection.messages[message.number - depth].receive
        return earlier.clock if earlier is not None else None

    def _consider(self, operation: Operation) -> None:
        """Put an operation's completion into the bag once it is possible."""
        if operation.scheduled or operation.step.posted is None or self._completion(operation) is None:
            return
        operation.scheduled = True
        self.order.add((Kind.FINISH, operation.step.lane, operation))

    def _finish(self, operation: Operation) -> None:
        operation.clock = self._completion(operation)
        step = operation.step
        if operation.writes and not self.order.writes_at_end and not self._shared(operation):
            self.order.add((Kind.WRITE, step.lane, operation))
        if all(o.done for o in step.operations):
            self.order.add((Kind.COMPLETE, step.lane, None))
        if not self.model.rendezvous:
            changed: list[Message] = []
            if operation.outgoing is not None:
                changed.append(operation.outgoing)
            if operation.incoming is not None and self.model.depth is not None:
                later = operation.incoming.number + self.model.depth
                changed += operation.incoming.connection.messages[later : later + 1]
            self._settle(changed)

    # ---- values ------------------------------------------------------------------------------------------------------

    def _load(self, operation: Operation, location: Location) -> Value:
        value = self.memory.get(location)
        if value is None:
            self.uninitialised[operation.row, location] = None
        return value

    def _read(self, operation: Operation) -> None:
        if operation.got is None:
            operation.got = tuple(self._load(operation, at) for at in operation.reads)

    def _shared(self, operation: Operation) -> bool:
        """Whether another operation of its step writes where it does: then they land together, in row order."""
        mine = set(operation.writes)
        return any(not mine.isdisjoint(o.writes) for o in operation.step.operations if o is not operation)

    def _write(self, operation: Operation) -> None:
        if operation.landed or not operation.writes:
            return
        for other in operation.step.operations:  # a step reads before it writes
            self._read(other)
        operation.landed = True
        assert operation.got is not None
        new = operation.got if operation.incoming is None else self._message(operation.incoming)
        for i, location in enumerate(operation.writes):
            value = new[i] if i < len(new) else None
            if operation.accumulates:
                value = self._reduce(operation, location, self._load(operation, location), value)
            elif operation.op is Op.REDUCE_RECV:
                value = self._reduce(operation, location, operation.got[i], value)
            self._store(operation, location, value)

    def _message(self, message: Message) -> tuple[Value, ...]:
        """The values of a message, chunk by chunk: what its sender read, with what each forwarder added on the way."""
        forwarders: list[Operation] = []
        send = message.send
        while send is not None and send.fused is not None:
            assert send.incoming is not None
            forwarders.append(send)
            send = send.incoming.send
        assert send is not None
        self._read(send)
        assert send.got is not None
        values = send.got
        for forwarder in reversed(forwarders):
            self._read(forwarder)
            assert forwarder.got is not None
            if forwarder.op is Op.REDUCE_RECV:
                values = tuple(self._reduce(forwarder, forwarder.reads[i], own, values[i] if i < len(values) else None)
                               for i, own in enumerate(forwarder.got))
        return values

    def _reduce(self, operation: Operation, location: Location, old: Value, new: Value) -> Value:
        """old (+) new; of values that are not there nothing comes."""
        if old is None or new is None:
            return None
        if len(old) != len(new):
            self.misfits[operation.row, location] = None
            old, new = old[: len(new)], new[: len(old)]
        return self.combine(old, new)

    def _store(self, operation: Operation, location: Location, value: Value) -> None:
        if value is None:
            self.memory.pop(location, None)
            return
        if self.capacity is not None and len(value) > self.capacity[location]:
            self.misfits[operation.row, location] = None
            value = value[: self.capacity[location]]
        self.memory[location] = value

    def _tick(self, clock: Clock, lane: Lane, count: int) -> Clock:
        if not self._lanes:
            return clock
        clock = clock.copy()
        clock[lane.index] = count
        return clock


def join(a: Clock | None, b: Clock | None) -> Clock | None:
    """The least clock that knows what both know; None is none yet."""
    if a is None or b is None:
        return None
    return np.maximum(a, b)
