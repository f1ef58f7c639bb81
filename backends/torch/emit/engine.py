"""What executes the steps in an emitted file. Its text, from the line of dashes on, is copied into each of them;
nothing else imports it. What it takes from the file round it: RANKS, STREAMS, GROUPS, TURNS and combine().
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

RANKS = 1
STREAMS: dict[str, Callable[..., Iterator[Step]]] = {}
GROUPS: tuple[str, ...] = ()
TURNS = False


def combine(op: str | None, into: torch.Tensor, value: torch.Tensor) -> None:
    """See values.py, which comes later in the file."""
    raise NotImplementedError


# ---------------------------------------------------------------------------------------------------------------------
# How steps are executed. The schedule ends here: what follows is the same in every such file, whatever the schedule.

AHEAD = 2  # over Gloo, receives are posted up to so many turns before their own


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
        self.memory: dict[Any, list[torch.Tensor]] = {}
        self.cuda: dict[int, Any] = {}


LINKS: weakref.WeakKeyDictionary[Any, dict[str, Links]] = weakref.WeakKeyDictionary()  # by group and kind of device


class Sent:
    """A send under way, and its turn."""

    def __init__(self, work: Any, turn: int) -> None:
        self.work, self.turn = work, turn

    def wait(self) -> None:
        if self.work is not None:
            self.work.wait()
            self.work = None


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8) if tensor.numel() else tensor.new_empty(0, dtype=torch.uint8)


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
        self.op, self.starts = op, starts
        self.like = next(tensor for tensor in tensors.values() if tensor is not None)
        self.width = self.like.element_size()
        self.reused: dict[Any, list[torch.Tensor]] = {}
        self.scratch = [name for name in starts if name not in tensors]
        self.tensors = {name: tensors[name] if name in tensors else self.memory(name, cuts[-1])
                        for name, cuts in starts.items()}
        self.bytes = {name: as_bytes(tensor) for name, tensor in self.tensors.items() if tensor is not None}
        self.events: dict[tuple[Any, ...], Any] = {}
        self.sending: dict[tuple[str, int], list[Sent]] = {}  # by the chunks that they read

    def run(self) -> None:
        turns = tasks(self.links.rank, tuple(self.starts))
        with torch.no_grad(), self.streams():
            if self.links.batched:
                self.batches(turns)
            else:
                self.messages(turns)
        for name in self.scratch:
            self.release(name, self.tensors[name])
        self.links.memory = self.reused  # for the next call

    # What both ways share

    def size(self, place: Place | None) -> int:
        """How many elements stand there."""
        return self.starts[place.buffer][place.stop] - self.starts[place.buffer][place.start] if place else 0

    def view(self, place: Any) -> torch.Tensor:
        starts = self.starts[place.buffer]
        return self.tensors[place.buffer][starts[place.start] : starts[place.stop]]

    def wire(self, place: Any) -> torch.Tensor:
        """The same as bytes: so every dtype can be moved."""
        starts = self.starts[place.buffer]
        return self.bytes[place.buffer][starts[place.start] * self.width : starts[place.stop] * self.width]

    def memory(self, user: Any, elements: int) -> torch.Tensor:
        """Memory that this user (a buffer, or a stream for what it receives) gave back, or new memory."""
        key = user, elements, self.like.dtype, self.like.device
        kept = self.reused.get(key) or self.links.memory.get(key)
        return kept.pop() if kept else self.like.new_empty(elements)

    def release(self, user: Any, memory: torch.Tensor) -> None:
        self.reused.setdefault((user, memory.numel(), memory.dtype, memory.device), []).append(memory)

    def keep(self, turn: list[Task]) -> dict[int, torch.Tensor]:
        """Copies of what is read and written in the same step, by the number of the task in its turn."""
        values = {}
        for number, task in enumerate(turn):
            if task.kept:
                with self.stream(task):
                    values[number] = self.view(task.op.other).clone()
        return values

    def finish(self, task: Task, landed: torch.Tensor | None, kept: torch.Tensor | None) -> None:
        """Write what a task writes; ``landed``: what it has received beside its place."""
        op = task.op
        if op.kind == "recv" and landed is None:
            return
        target = self.view(op.place)
        value = kept if kept is not None else self.view(op.other) if op.other else None
        if landed is not None:
            if value is not None:
                target.copy_(value)
            value = landed
        if op.kind in ("recv", "copy"):
            target.copy_(value)
        else:
            combine(self.op, target, value)
        if landed is not None:
            self.release(task.stream, landed)

    # Over Gloo: message by message

    def messages(self, turns: list[list[Task]]) -> None:
        """Turn by turn: post receives, those of the turn and of some to come; send; then take what arrives. A send is
        waited for only where what it reads is written, or at the end."""
        coming = [task for turn in turns for task in turn
                  if task.op.kind.startswith("recv") and self.size(task.op.place)]
        arriving: dict[int, tuple[Any, torch.Tensor | None]] = {}
        sent: list[Sent] = []
        posted = 0
        for at, turn in enumerate(turns):
            while posted < len(coming) and coming[posted].turn <= at + AHEAD:
                task = coming[posted]
                if not task.staged:
                    if task.turn > at and (task.free > at or self.busy(task, at)):
                        break  # later ones wait, too: the messages of a connection come in order
                    self.settle(task)
                landed = self.memory(task.stream, self.size(task.op.place)) if task.staged else None
                where = self.wire(task.op.place) if landed is None else landed.view(torch.uint8)
                work = dist.irecv(where, self.links.peers[task.op.peer], self.groups[task.group])
                arriving[id(task)] = work, landed
                posted += 1
            values = self.keep(turn)
            for task in turn:
                if task.op.kind == "send" and self.size(task.op.place):
                    where = self.wire(task.op.place)
                    sent.append(Sent(dist.isend(where, self.links.peers[task.op.peer], self.groups[task.group]), at))
                    for chunk in task.chunks:
                        self.sending.setdefault(chunk, []).append(sent[-1])
            for number, task in enumerate(turn):
                if task.op.kind != "send" and self.size(task.op.place):
                    work, landed = arriving.pop(id(task), (None, None))
                    if work is not None:
                        work.wait()
                    if work is None or landed is not None:
                        self.settle(task)
                    self.finish(task, landed, values.get(number))
        for send_ in sent:
            send_.wait()

    def busy(self, task: Task, at: int) -> bool:
        """Whether a send of the turn before reads from the place of a task; older ones are over by now, or soon."""
        reading = (sent for chunk in task.chunks for sent in self.sending.get(chunk, ()))
        return any(sent.work is not None and sent.turn >= at - 1 for sent in reading)

    def settle(self, task: Task) -> None:
        """Wait until no send reads from the place of a task."""
        for chunk in task.chunks:
            for sent in self.sending.pop(chunk, ()):
                sent.wait()

    # Over NCCL: a batch for each step, or for all steps of a turn that share a process group

    def batches(self, turns: list[list[Task]]) -> None:
        """Turn by turn, and in each group by group: in the same order on all ranks. The host waits for nothing."""
        for turn in turns:
            values, landed, works = self.keep(turn), {}, {}
            for group in self.groups:
                mine = [(number, task) for number, task in enumerate(turn)
                        if task.group == group and task.op.peer >= 0 and self.size(task.op.place)]
                if not mine:
                    continue
                batch = []
                for number, task in mine:
                    where = self.wire(task.op.place)
                    if task.staged:
                        with self.stream(task):
                            landed[number] = self.memory(task.stream, self.size(task.op.place))
                        where = landed[number].view(torch.uint8)
                    how = dist.isend if task.op.kind == "send" else dist.irecv
                    batch.append(dist.P2POp(how, where, self.links.peers[task.op.peer], self.groups[group]))
                with self.stream(mine[0][1]):
                    for number in {task.stream for _, task in mine} if self.links.cuda else ():
                        torch.cuda.current_stream().wait_stream(self.links.cuda[number])
                    works[group] = dist.batch_isend_irecv(batch)
            waited = set()
            for number, task in enumerate(turn):
                with self.stream(task):
                    if (task.stream, task.group) not in waited:
                        waited.add((task.stream, task.group))
                        for work in works.get(task.group, ()):
                            work.wait()  # not the host waits, but the stream
                    if task.op.event:
                        self.happen(task.op)
                    elif task.op.kind != "send" and self.size(task.op.place):
                        self.finish(task, landed.get(number), values.get(number))

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
