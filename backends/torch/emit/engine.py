"""What executes the steps in an emitted file. Its text, from the line of dashes on, is copied into each of them;
nothing else imports it. What it takes from the file round it: RANKS, STREAMS, GROUPS, TURNS, EARLY and combine().
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

RANKS = 1
STREAMS: dict[str, Callable[..., Iterator[Step]]] = {}
GROUPS: tuple[str, ...] = ()
TURNS = False
EARLY = False


def combine(op: str | None, into: torch.Tensor, value: torch.Tensor) -> None:
    """See values.py, which comes later in the file."""
    raise NotImplementedError


# ---------------------------------------------------------------------------------------------------------------------
# How steps are executed. The schedule ends here: what follows is the same in every such file, whatever the schedule.

AHEAD = 32 if EARLY else 2  # over Gloo, receives are posted up to so many turns before their own


class Place(NamedTuple):
    """Chunks start, start + 1 .. stop - 1 of a buffer."""

    buffer: str
    start: int
    stop: int


class Buffer(NamedTuple):
    """A buffer in chunks: b[3] is one of them, b[4:8] four."""

    name: str

    def __getitem__(self, at: Any) -> Any:
        return Place(self.name, at.start, at.stop) if isinstance(at, slice) else Place(self.name, at, at + 1)


class Op(NamedTuple):
    """One operation: what it writes (or sends), what else it reads, its peer and process group, or its event."""

    kind: str
    place: Place | None = None
    other: Place | None = None
    peer: int = -1
    group: str | None = None
    event: tuple[Any, ...] = ()


class Step(NamedTuple):
    """Operations posted together; all of them read before any of them writes. ``turn``: where the step stands in the
    one order of all ranks and streams, which is the order in which the host issues operations."""

    ops: tuple[Op, ...]
    turn: int


def step(*ops: Op, turn: int = 0) -> Step:
    return Step(ops, turn)


def send(place: Place, dst: int, group: str | None = None) -> Op:
    """Send what stands there."""
    return Op("send", place, None, dst, group)


def recv(place: Place, src: int, group: str | None = None) -> Op:
    """Receive it there."""
    return Op("recv", place, None, src, group)


def recv_reduce(place: Place, src: int, group: str | None = None, operand: Place | None = None) -> Op:
    """place = operand (op) what is received; the operand is what stands in the place, unless it is another."""
    return Op("recv_reduce", place, operand, src, group)


def copy(source: Place, into: Place) -> Op:
    return Op("copy", into, source)


def reduce(source: Place, into: Place) -> Op:
    """into = into (op) source."""
    return Op("reduce", into, source)


def record(*event: Any) -> Op:
    """Note that this stream has come here."""
    return Op("record", event=event)


def wait(*event: Any) -> Op:
    """Go on only after another stream of this rank has recorded the event. On the host the order of turns sees to that,
    on a GPU CUDA's events do."""
    return Op("wait", event=event)


class Task(NamedTuple):
    """An operation as this rank executes it, in which stream, group and turn (counted from 0 on this rank).

    ``staged``: what is received lands beside its place first. ``kept``: what it reads is written in the same step, so a
    copy is read. ``free``: the first turn in which its place is free, so that its receive may be posted. ``chunks``:
    those of its place."""

    op: Op
    stream: int
    group: str
    turn: int
    staged: bool
    kept: bool
    free: int
    chunks: tuple[tuple[str, int], ...]


@cache
def tasks(rank: int, buffers: tuple[str, ...]) -> list[list[Task]]:
    """What a rank does, turn by turn."""
    steps = [(one.turn if TURNS else at, number, name, one.ops) for number, (name, stream) in enumerate(STREAMS.items())
             for at, one in enumerate(stream(rank, *map(Buffer, buffers)))]
    steps.sort(key=lambda one: one[:2])
    found: list[list[Task]] = []
    free: dict[tuple[str, int], int] = {}  # by chunk: the turn after the last one so far that reads or writes it
    for turn, (_, together) in enumerate(itertools.groupby(steps, key=lambda one: one[0])):
        now: list[Task] = []
        for _, number, name, ops in together:
            reads = {c for op in ops for c in chunks(op.place if op.kind == "send" else op.other)}
            writes = {c for op in ops if op.kind != "send" for c in chunks(op.place)}
            for op in ops:
                mine = chunks(op.place)
                staged = op.kind == "recv_reduce" or (op.kind == "recv" and not reads.isdisjoint(mine))
                kept = not writes.isdisjoint(chunks(op.other))
                since = 0 if staged else max((free.get(c, 0) for c in mine), default=0)
                now.append(Task(op, number, op.group or name, turn, staged, kept, since, mine))
        free.update((c, turn + 1) for task in now for c in (*task.chunks, *chunks(task.op.other)))
        found.append(now)
    return found


def chunks(place: Place | None) -> tuple[tuple[str, int], ...]:
    return tuple((place.buffer, c) for c in range(place.start, place.stop)) if place else ()


class Span(NamedTuple):
    """Elements first .. last - 1 of a buffer."""

    buffer: str
    first: int
    last: int


BESIDE = ""  # the buffer for what lands, or is kept, beside its place

Starts = tuple[tuple[str, tuple[int, ...]], ...]  # by buffer, where its chunks start, and where the last one ends


class Move(NamedTuple):
    """A task on tensors of one size: what it sends, or where what it receives lands; what it copies before the
    messages of its turn; and what it writes after them, as (how, into, from)."""

    task: Task
    span: Span | None
    keeps: tuple[Span, Span] | None
    writes: list[tuple[str, Span, Span]]


@lru_cache(maxsize=64)
def moves(rank: int, starts: Starts) -> tuple[list[list[Move]], int]:
    """The tasks of each turn, without those that have nothing to do at this size; and how much memory they take beside
    the buffers."""
    cuts, room = dict(starts), 0
    free: dict[tuple[int, int], list[Span]] = {}  # by stream and size
    used: list[list[tuple[int, Span]]] = []

    def span(place: Place | None) -> Span | None:
        if place is None or cuts[place.buffer][place.start] == cuts[place.buffer][place.stop]:
            return None
        return Span(place.buffer, cuts[place.buffer][place.start], cuts[place.buffer][place.stop])

    def beside(stream: int, like: Span) -> Span:
        nonlocal room
        size = like.last - like.first
        known = free.get((stream, size))
        if known:
            found = known.pop()
        else:
            found, room = Span(BESIDE, room, room + size), room + size
        used[-1].append((stream, found))
        return found

    turns: list[list[Move]] = []
    for turn in tasks(rank, tuple(cuts)):
        for stream, given in used[-AHEAD - 1] if len(used) > AHEAD else ():  # nothing is posted further ahead
            free.setdefault((stream, given.last - given.first), []).append(given)
        used.append([])
        turns.append([])
        for task in turn:
            place, other = span(task.op.place), span(task.op.other)
            if place is None and not task.op.event:
                continue
            landed = beside(task.stream, place) if task.staged and place else None
            keeps = (beside(task.stream, other), other) if task.kept and other else None
            writes = []
            for source in (keeps[0] if keeps else other, landed):
                if place and source:
                    first = task.op.kind in ("recv", "copy") or (landed and source is not landed)
                    writes.append(("copy" if first else "combine", place, source))
            turns[-1].append(Move(task, landed or place, keeps, writes))
    return turns, room


class Action(NamedTuple):
    """What a rank does next over Gloo. ``message``: its number, of a message, whose span is in bytes."""

    how: str
    message: int
    into: Any = None
    source: Any = None
    peer: int = -1
    group: str = ""


@lru_cache(maxsize=64)
def actions(rank: int, starts: Starts, width: int) -> list[Action]:
    """Turn by turn: receives are posted, those of the turn and of some to come; then come sends; then what arrives is
    taken. A send is waited for only where what it reads is written, or at the end. ``width``: bytes of an element."""
    turns, _ = moves(rank, starts)
    # Chunks without elements are not sent, and cause nothing.
    early = EARLY and all(a < b for _, cuts in starts for a, b in itertools.pairwise(cuts))
    coming = [move for turn in turns for move in turn if move.task.op.kind.startswith("recv")]
    number = itertools.count()
    arriving: dict[int, int] = {}  # the message of each move
    sending: dict[tuple[str, int], list[int]] = {}  # by the chunks that they read
    sent: dict[int, int] = {}  # the turn of those that were not waited for
    found: list[Action] = []

    def wire(span: Any) -> Span:
        """Messages move as bytes: so every dtype can be moved."""
        return Span(span.buffer, span.first * width, span.last * width)

    def settle(task: Task) -> None:
        """Wait until no send reads from the place of a task."""
        for message in [message for chunk in task.chunks for message in sending.pop(chunk, ())]:
            if sent.pop(message, None) is not None:
                found.append(Action("wait", message))

    def busy(task: Task, at: int) -> bool:
        """Whether a send of the turn before reads from the place of a task; older ones are over by now, or soon."""
        return any(sent.get(message, -1) >= at - 1 for chunk in task.chunks for message in sending.get(chunk, ()))

    posted = 0
    for at, turn in enumerate(turns):
        while posted < len(coming) and coming[posted].task.turn <= at + AHEAD:
            task = coming[posted].task
            if not task.staged and not early:
                if task.turn > at and (task.free > at or busy(task, at)):
                    break  # later ones wait, too: the messages of a connection come in order
                settle(task)
            message = arriving[id(coming[posted])] = next(number)
            found.append(Action("recv", message, wire(coming[posted].span), None, task.op.peer, task.group))
            posted += 1
        found += [Action("copy", -1, *move.keeps) for move in turn if move.keeps]
        for move in turn:
            if move.task.op.kind == "send":
                message = next(number)
                found.append(Action("send", message, None, wire(move.span), move.task.op.peer, move.task.group))
                sent[message] = at
                for chunk in move.task.chunks:
                    sending.setdefault(chunk, []).append(message)
        for move in turn:
            if id(move) in arriving:
                found.append(Action("wait", arriving.pop(id(move))))
            if move.writes and move.task.op.kind != "send":
                settle(move.task)
                found += [Action(how, -1, into, source) for how, into, source in move.writes]
    return [*found, *(Action("wait", message) for message in sent)]


class Links:
    """What a process group needs once: one more for each further stream, and memory that is used again.

    The groups are made on first use, by all ranks together and in one order, and each begins with a collective: NCCL
    then sets up its communicator. In the first exchange it would hang, where a rank has no part in that.
    """

    def __init__(self, group: Any, device: torch.device) -> None:
        size = dist.get_world_size(group)
        if size != RANKS:
            raise ValueError(f"the schedule is for {RANKS} ranks, and the group has {size}")
        self.rank = dist.get_rank(group)
        self.peers = [dist.get_global_rank(group, rank) for rank in range(size)]
        self.batched = device.type == "cuda" or dist.get_backend(group) == "nccl"
        part = size < dist.get_world_size()
        self.more = [dist.new_group(self.peers, backend=dist.get_backend_config(group), use_local_synchronization=part)
                     for _ in GROUPS[1:]]
        for one in [group, *self.more]:
            dist.all_reduce(torch.zeros(1, device=device), group=one)
        self.memory: dict[str, torch.Tensor] = {}
        self.cuda: dict[int, Any] = {}


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8) if tensor.numel() else tensor.new_empty(0, dtype=torch.uint8)


LINKS: weakref.WeakKeyDictionary[Any, dict[str, Links]] = weakref.WeakKeyDictionary()  # by group and kind of device


class Call:
    """One collective on this rank's tensors: ``tensors`` are one-dimensional, ``starts`` says where their chunks start;
    buffers that have no tensor are scratch."""

    def __init__(self, group: Any, op: str | None, tensors: dict[str, Any], starts: dict[str, list[int]],
                 device: torch.device) -> None:
        group = dist.group.WORLD if group is None else group
        known = LINKS.setdefault(group, {})
        if device.type not in known:
            known[device.type] = Links(group, device)
        self.links = known[device.type]
        self.groups = dict(zip(GROUPS, [group, *self.links.more], strict=True))
        self.op = op
        self.starts = tuple((name, tuple(cuts)) for name, cuts in starts.items())
        self.turns, room = moves(self.links.rank, self.starts)
        self.like = next(tensor for tensor in tensors.values() if tensor is not None)
        self.width = self.like.element_size()
        own = {name: self.memory(name, cuts[-1]) for name, cuts in starts.items() if name not in tensors}
        self.tensors = {**tensors, **own, BESIDE: self.memory(BESIDE, room)}
        self.bytes = {name: as_bytes(tensor) for name, tensor in self.tensors.items() if tensor is not None}
        self.events: dict[tuple[Any, ...], Any] = {}

    def run(self) -> None:
        with torch.no_grad(), self.streams():
            if self.links.batched:
                self.batches()
            else:
                self.messages()

    def memory(self, name: str, elements: int) -> torch.Tensor:
        """Memory that is not the caller's: that of the call before, if it fits."""
        kept = self.links.memory.get(name)
        if kept is None or kept.numel() < elements or (kept.dtype, kept.device) != (self.like.dtype, self.like.device):
            kept = self.links.memory[name] = self.like.new_empty(elements)
        return kept[:elements]

    def view(self, span: Span) -> torch.Tensor:
        return self.tensors[span.buffer][span.first : span.last]

    def wire(self, span: Any) -> torch.Tensor:
        """The same as bytes."""
        return self.bytes[span.buffer][span.first * self.width : span.last * self.width]

    def write(self, how: str, into: Span, source: Span) -> None:
        if how == "copy":
            self.view(into).copy_(self.view(source))
        else:
            combine(self.op, self.view(into), self.view(source))

    # Over Gloo: message by message

    def messages(self) -> None:
        """Through the group's own send and recv: dist.isend and irecv, which call them, look at much before."""
        under_way: dict[int, Any] = {}
        groups, parts = self.groups, self.bytes
        for how, message, into, source, peer, group in actions(self.links.rank, self.starts, self.width):
            if how == "recv":
                name, first, last = into
                under_way[message] = groups[group].recv([parts[name][first:last]], peer, 0)
            elif how == "send":
                name, first, last = source
                under_way[message] = groups[group].send([parts[name][first:last]], peer, 0)
            elif how == "wait":
                under_way.pop(message).wait()
            else:
                self.write(how, into, source)

    # Over NCCL: a batch for each step, or for all steps of a turn that share a process group

    def batches(self) -> None:
        """Turn by turn, and in each group by group: in the same order on all ranks. The host waits for nothing."""
        for turn in self.turns:
            for move in turn:
                if move.keeps:
                    with self.stream(move.task):
                        self.write("copy", *move.keeps)
            works = {}
            for group in self.groups:
                mine = [move for move in turn if move.task.group == group and move.task.op.peer >= 0]
                if not mine:
                    continue
                batch = [dist.P2POp(dist.isend if move.task.op.kind == "send" else dist.irecv, self.wire(move.span),
                                    self.links.peers[move.task.op.peer], self.groups[group]) for move in mine]
                with self.stream(mine[0].task):
                    for number in {move.task.stream for move in mine} if self.links.cuda else ():
                        torch.cuda.current_stream().wait_stream(self.links.cuda[number])
                    works[group] = dist.batch_isend_irecv(batch)
            waited = set()
            for move in turn:
                task = move.task
                with self.stream(task):
                    if (task.stream, task.group) not in waited:
                        waited.add((task.stream, task.group))
                        for work in works.get(task.group, ()):
                            work.wait()  # not the host waits, but the stream
                    if task.op.event:
                        self.happen(task.op)
                    for how, into, source in move.writes:
                        self.write(how, into, source)

    # CUDA streams and events, where the tensor is on a GPU

    @contextlib.contextmanager
    def streams(self) -> Iterator[None]:
        """The caller's current stream for the first stream, and others, which start after what that has to do, and
        which it waits for in the end."""
        if not self.like.is_cuda:
            yield
            return
        more, now = self.links.cuda, torch.cuda.current_stream(self.like.device)
        if more.get(0, now) != now:
            now.wait_stream(more[0])  # the call before, which had the same memory, was made on another stream
        more[0] = now
        for number in range(1, len(STREAMS)):
            if number not in more:
                more[number] = torch.cuda.Stream(self.like.device)
            more[number].wait_stream(now)
        yield
        for number in range(1, len(STREAMS)):
            now.wait_stream(more[number])

    def stream(self, task: Task) -> Any:
        return torch.cuda.stream(self.links.cuda[task.stream]) if self.like.is_cuda else contextlib.nullcontext()

    def happen(self, op: Op) -> None:
        """Record an event, or wait for one, on the current stream."""
        if self.like.is_cuda and op.kind == "record":
            self.events[op.event] = torch.cuda.Event()
            self.events[op.event].record()
        elif self.like.is_cuda:
            torch.cuda.current_stream().wait_event(self.events[op.event])
