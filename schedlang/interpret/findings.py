"""What a run that has stopped shows: who is stuck and why, what has no partner, and what happens-before does not
order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import pairwise

from schedlang.interpret.conditions import Location
from schedlang.interpret.machine import Model
from schedlang.interpret.outcome import Blocked, Race
from schedlang.interpret.program import Clock, Message, Operation, Program, Step
from schedlang.ir.table import OpTable
from schedlang.ops import Op


def unmatched(program: Program) -> tuple[int, ...]:
    """The rows of sends and receives for which the other end of their connection has too few."""
    rows: list[int] = []
    for connection in program.connections.values():
        sends, receives = connection.total_sends, connection.total_receives
        rows += sends[len(receives) :] + receives[len(sends) :]
    return tuple(sorted(rows))


def mismatched(table: OpTable, program: Program) -> tuple[tuple[int, int], ...]:
    """(send, receive) rows of posted pairs of different size."""
    pairs = [(m.send.send_row, m.receive.row) for c in program.connections.values() for m in c.messages
             if m.send is not None and m.receive is not None]
    return tuple(sorted(p for p in pairs if table.count[p[0]] != table.count[p[1]]))


def conflicts(program: Program, empty: Set[Location]) -> tuple[tuple[int, int, Location], ...]:
    """Where a step writes a location twice, not only by reductions."""
    found: list[tuple[int, int, Location]] = []
    for lane in program.lanes:
        for step in lane.steps:
            writers: dict[Location, Operation] = {}
            for operation in step.operations:
                for location in (at for at in operation.writes if at not in empty):
                    first = writers.setdefault(location, operation)
                    if first is not operation and not (first.accumulates and operation.accumulates):
                        found.append((first.row, operation.row, location))
    return tuple(found)


def never_recorded(program: Program) -> tuple[int, ...]:
    """The rows of waits for events that nothing records."""
    return tuple(sorted(o.row for o in program.operations()
                        if o.op is Op.WAIT and (o.step.lane.rank, o.event) not in program.records))


# ---- deadlock --------------------------------------------------------------------------------------------------------


def blocked(table: OpTable, program: Program, model: Model) -> tuple[Blocked, ...]:
    """Every operation that is posted and not done, with what would let it go on."""
    found: list[Blocked] = []
    for lane in program.lanes:
        if lane.at == len(lane.steps):
            continue
        for operation in lane.steps[lane.at].operations:
            if not operation.done:
                waits_for, reason = _obstacle(program, model, operation)
                event = f" {table.events[operation.event]}" if operation.op is Op.WAIT else ""
                found.append(Blocked(operation.row, tuple(waits_for), f"{operation.op.name.lower()}{event}: {reason}"))
    return tuple(found)


def _obstacle(program: Program, model: Model, operation: Operation) -> tuple[Sequence[int], str]:
    rank = operation.step.lane.rank
    if operation.op is Op.WAIT:
        records = [o.row for o in program.records.get((rank, operation.event), [])]
        return records, "the event has not been recorded" if records else "the event is never recorded"
    if operation.connection_in is not None:
        assert operation.incoming is not None
        missing = _missing_send(model, operation.incoming)
        if missing is not None:
            return missing
    assert operation.outgoing is not None
    return _missing_room(model, operation.outgoing)


def _missing_send(model: Model, message: Message) -> tuple[Sequence[int], str] | None:
    connection = message.connection
    source = connection.key[0]
    if message.send is None:
        rest = connection.total_sends[len(connection.sends) :]
        return rest[:1], f"rank {source} has not sent" if rest else f"rank {source} has no such send"
    here = message.available is not None if model.rendezvous else message.send.done
    if here:
        return None
    return [message.send.send_row], f"what rank {source} forwards has not reached it or cannot leave it"


def _missing_room(model: Model, message: Message) -> tuple[Sequence[int], str]:
    connection = message.connection
    destination = connection.key[1]
    needed = message.number - (model.depth or 0)
    if needed >= len(connection.receives):
        rest = connection.total_receives[len(connection.receives) :]
        what = "has not posted the receive" if rest else "has no such receive"
        return rest[:1], f"rank {destination} {what}"
    what = "cannot pass on what it forwards" if model.rendezvous else f"has not received message {needed}"
    return [connection.receives[needed].row], f"rank {destination} {what}"


# ---- happens-before --------------------------------------------------------------------------------------------------


def _ends_before(a: Step, moment: Clock | None) -> bool:
    """Whether a is complete before a moment."""
    return moment is not None and bool(moment[a.lane.index] >= 2 * a.number + 2)


def _begins_before(a: Step, b: Step) -> bool:
    """Whether a is posted before b is posted."""
    return b.posted is not None and bool(b.posted[a.lane.index] >= 2 * a.number + 1)


def ambiguous(program: Program) -> tuple[tuple[int, int], ...]:
    """Neighbours at one end of a connection whose posts nothing orders (neighbours suffice: the order is
    transitive)."""
    found: list[tuple[int, int]] = []
    for connection in program.connections.values():
        for a, b in (*pairwise(connection.sends), *pairwise(connection.receives)):
            if a.step.lane is not b.step.lane and not _begins_before(a.step, b.step):
                found.append((a.row, b.row))
    return tuple(found)


def _accesses(operations: Iterable[Operation]) -> Iterator[tuple[Location, Operation, bool]]:
    for operation in operations:
        for location in operation.writes:
            yield location, operation, True
        for location in operation.reads:
            yield location, operation, False


def _over(a: Operation, writes: bool, copies: bool) -> Iterator[Step]:
    """The steps at whose end an access is over: its own; where messages are copied, also the one that receives what it
    read, if its step sends that and does nothing else."""
    yield a.step
    receive = a.outgoing.receive if a.outgoing is not None else None
    if copies and not writes and len(a.step.operations) == 1 and receive is not None:
        yield receive.step


def _begun(b: Operation, writes: bool, copies: bool, model: Model) -> Iterator[Clock | None]:
    """The moments before which an access does not happen: its step is posted; where messages are copied, also the one
    from which on the message is there that it stores, if its step does nothing else."""
    yield b.step.posted
    if not copies or not writes or len(b.step.operations) > 1 or b.incoming is None or b.incoming.send is None:
        return
    send = b.incoming.send
    passes_on = send.fused is not None and len(send.step.operations) == 1 and not model.rendezvous
    yield send.step.completed if passes_on else send.step.posted


def races(program: Program, empty: Set[Location], copies: bool, model: Model) -> tuple[Race, ...]:
    """Accesses of two lanes to one location, one of them a write, of which neither is over before the other begins.
    ``copies``: messages are copied on their way, so what is received has been read, and is stored after it has come."""

    def before(a: Operation, a_writes: bool, b: Operation, b_writes: bool) -> bool:
        return any(_ends_before(step, moment) for step in _over(a, a_writes, copies)
                   for moment in _begun(b, b_writes, copies, model))

    by_location: dict[Location, list[tuple[Operation, bool]]] = defaultdict(list)
    for location, operation, writes in _accesses(program.operations()):
        if operation.step.posted is not None and location not in empty:
            by_location[location].append((operation, writes))
    found: dict[tuple[int, int], Race] = {}
    for location, accesses in by_location.items():
        for i, (a, a_writes) in enumerate(accesses):
            for b, b_writes in accesses[:i]:
                if a.step.lane is b.step.lane or not (a_writes or b_writes):
                    continue
                if not (before(a, a_writes, b, b_writes) or before(b, b_writes, a, a_writes)):
                    pair = (min(a.row, b.row), max(a.row, b.row))
                    found.setdefault(pair, Race(*pair, location))
    return tuple(found[pair] for pair in sorted(found))


def unordered_ends(table: OpTable, program: Program) -> tuple[tuple[int, int], ...]:
    """(r, p) for which no stream of rank r ends after all streams of rank p have begun; a rank without steps neither
    begins nor ends. None in a world of one rank that has no steps."""
    of_rank = [[lane for lane in program.lanes if lane.rank == r] for r in range(table.ranks)]
    if table.ranks == 1 and not of_rank[0]:
        return ()

    def enters_before(p: int, r: int) -> bool:
        return bool(of_rank[p]) and any(
            (end := lane.steps[-1].completed) is not None and all(end[begun.index] >= 1 for begun in of_rank[p])
            for lane in of_rank[r])

    return tuple((r, p) for r in range(table.ranks) for p in range(table.ranks) if not enters_before(p, r))
