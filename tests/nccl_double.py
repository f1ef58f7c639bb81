"""A stand-in for torch.distributed over NCCL, and for the part of torch.cuda round it: all ranks are threads of one
process, tensors lie in ordinary memory, and NCCL's rules hold.

* A communicator works in order: what a rank gives it goes on only when what the rank gave it before is over.
* What `batch_isend_irecv` takes is one step: all of it goes on together, and is over together. `isend` and `irecv`
  alone are such a step each.
* Of the messages from one rank to another on one communicator, the first sent is the first received: there are no tags.
  Sizes must agree. A send is over only once it is received.
* The first operation on a communicator, unless it was set up eagerly, holds the host until every rank has come to one.
* Everything happens in streams. An operation begins after what its rank's current stream had to do when it was issued;
  `wait()` holds the current stream, not the host. What computes on tensors is done by the current stream, too, later.

What happens when is chosen at random, as far as the rules leave it open: so code that does not wait where it must is
found out by its results. Where nothing can happen any more, :class:`Hang` says what every rank waits for. `serial`: all
communicators of a rank work in the order of issue, as they may have to where the device has room for one kernel only.

    world = World(4)
    results = world.run(function)           # function(rank), in which `world.dist` and `world.torch` are to be used
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from tests.cuda_double import Item, Stream, Tensor, Torch, current_stream, device, here, host, plain

__all__ = ["Dist", "Hang", "Misuse", "Tensor", "World", "device", "host"]


class Hang(Exception):
    """Nothing can happen any more, and somebody waits."""


class Misuse(Exception):
    """What NCCL answers with an error, or with undefined behaviour."""


class Batch(Item):
    """Messages that go on together: (whether it is a send, tensor, the other rank), those that are not over yet."""

    def __init__(self, comm: Comm, rank: int, messages: list[tuple[bool, torch.Tensor, int]],
                 after: list[Item]) -> None:
        super().__init__(None, after)
        self.comm, self.rank, self.messages, self.begun = comm, rank, messages, False

    def __str__(self) -> str:
        return ", ".join(f"{'send to' if sends else 'recv from'} {peer}" for sends, _, peer in self.messages)


class Collective(Batch):
    """What all ranks of a communicator do together."""

    def __init__(self, comm: Comm, rank: int, kind: str, tensor: torch.Tensor | None, after: list[Item]) -> None:
        super().__init__(comm, rank, [], after)
        self.kind, self.tensor = kind, tensor

    def __str__(self) -> str:
        return self.kind


class Comm:
    """A communicator of some ranks of the world, in their order."""

    def __init__(self, number: int, ranks: list[int], eager: bool) -> None:
        self.number, self.ranks, self.eager = number, ranks, eager
        self.key: Any = None
        self.entered: set[int] = set()
        self.queues: dict[int, deque[Batch]] = {rank: deque() for rank in ranks}


class Group:
    """A rank's handle of a communicator."""

    def __init__(self, comm: Comm, rank: int) -> None:
        self.comm, self.rank = comm, rank


class Work:
    """What an operation returns."""

    def __init__(self, item: Item) -> None:
        self.item = item

    def wait(self, timeout: Any = None) -> bool:
        stream = current_stream()
        stream.world.give(stream, Item(after=[self.item]))
        return True

    def is_completed(self) -> bool:
        return self.item.over


class World:
    """``size`` ranks. ``eager``: whether communicators are set up when they are made. ``haste``: how much of what can
    happen does happen as soon as something is issued, 0 to 1; the rest happens when somebody waits."""

    def __init__(self, size: int, *, seed: int = 0, haste: float = 0.0, eager: bool = False,
                 serial: bool = False) -> None:
        self.size, self.haste, self.eager, self.serial = size, haste, eager, serial
        self.random = random.Random(seed)
        self.changed = threading.Condition(threading.RLock())
        self.streams: dict[int, list[Stream]] = defaultdict(list)
        self.issued: dict[int, deque[Batch]] = {rank: deque() for rank in range(size)}
        self.comms: list[Comm] = []
        self.groups: dict[int, list[Any]] = {rank: [] for rank in range(size)}
        self.alive = size                                       # ranks that are not at their end
        self.waiting: list[Callable[[], bool]] = []             # what the hosts that wait wait for
        self.hung: str | None = None
        self.dist, self.torch = Dist(self), Torch()
        self.world = Comm(0, list(range(size)), eager)
        self.comms.append(self.world)
        self.handles = [Group(self.world, rank) for rank in range(size)]

    def run(self, function: Callable[[int], Any]) -> list[Any]:
        """Call ``function(rank)`` on all ranks, and let them finish: what each returned. Raises what one of them
        raised, a Hang last."""
        got: list[Any] = [None] * self.size
        raised: list[BaseException] = []

        def rank_(rank: int) -> None:
            here.world, here.rank = self, rank
            here.stack = [Stream(self, rank)]
            try:
                got[rank] = function(rank)
                self.torch.cuda.synchronize()
            except BaseException as error:                      # told to the caller below
                raised.append(error)
                self.hung = self.hung or f"rank {rank} has raised {error!r}"    # nobody waits for it
            finally:
                with self.changed:
                    self.alive -= 1
                    self.changed.notify_all()

        threads = [threading.Thread(target=rank_, args=(rank,), daemon=True) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for error in sorted(raised, key=lambda error: isinstance(error, Hang)):
            raise error
        return got

    # What ranks issue

    def joined(self, threads: int) -> None:
        """So many more threads, or fewer, do what ranks do."""
        with self.changed:
            self.alive += threads
            self.changed.notify_all()

    def give(self, stream: Stream, item: Item) -> None:
        """Put an item at the end of a stream."""
        with self.changed:
            stream.queue.append(item)
            self._hurry()

    def issue(self, batch: Batch) -> Work:
        """Give a batch to its communicator."""
        comm, rank = batch.comm, batch.rank
        with self.changed:
            comm.entered.add(rank)
            comm.queues[rank].append(batch)
            self.issued[rank].append(batch)
            self.changed.notify_all()
            if not comm.eager:
                self._hold(lambda: len(comm.entered) == len(comm.ranks),
                           f"rank {rank} sets up communicator {comm.number}, which needs all of {comm.ranks}")
            self._hurry()
        return Work(batch)

    def until(self, item: Item) -> None:
        """Wait on the host until an item is over."""
        with self.changed:
            self._hold(lambda: item.over, "")

    def _hold(self, over: Callable[[], bool], why: str) -> None:
        """Wait on the host, and let things happen meanwhile."""
        self.waiting.append(over)
        try:
            while not over():
                if self.hung is not None:
                    raise Hang(self.hung)
                if self._step():
                    continue
                if any(done() for done in self.waiting):
                    self.changed.notify_all()
                elif len(self.waiting) == self.alive:
                    self.hung = self._told(why)
                    self.changed.notify_all()
                    continue
                self.changed.wait()
        finally:
            self.waiting.remove(over)
            self.changed.notify_all()       # another one lets things happen now

    def _hurry(self) -> None:
        while self.random.random() < self.haste and self._step():
            pass

    # What happens

    def _step(self) -> bool:
        """Let something happen, if anything can."""
        can: list[Callable[[], None]] = []
        for streams in [*self.streams.values()]:                # ranks may begin meanwhile
            for stream in [*streams]:
                if stream.queue and stream.queue[0].ready():
                    can.append(lambda stream=stream: self._finish(stream.queue))
        for comm in self.comms:
            for rank, queue in comm.queues.items():
                if queue and queue[0].ready() and not (self.serial and self.issued[rank][0] is not queue[0]):
                    queue[0].begun = True
            can += self._exchanges(comm)
        if not can:
            return False
        self.random.choice(can)()
        return True

    def _finish(self, queue: deque[Any]) -> None:
        item = queue.popleft()
        if item.act is not None:
            item.act()
        item.over = True

    def _done(self, batch: Batch) -> None:
        self._finish(batch.comm.queues[batch.rank])
        self.issued[batch.rank].remove(batch)

    def _exchanges(self, comm: Comm) -> Iterator[Callable[[], None]]:
        """What can go over a communicator now."""
        heads = {rank: queue[0] for rank, queue in comm.queues.items() if queue and queue[0].begun}
        together = [head for head in heads.values() if isinstance(head, Collective)]
        if len(together) == len(comm.ranks):
            if len({head.kind for head in together}) > 1:
                raise Misuse(f"communicator {comm.number}: ranks call different collectives")
            yield lambda: self._together(together)
            return
        for rank, head in heads.items():
            if isinstance(head, Collective):
                continue
            if not head.messages:
                yield lambda head=head: self._done(head)
            for peer in {to for sends, _, to in head.messages if sends}:
                other = heads.get(peer)
                if other is None or isinstance(other, Collective):
                    continue
                out = next(m for m in head.messages if m[0] and m[2] == peer)
                into = next((m for m in other.messages if not m[0] and m[2] == rank), None)
                if into is not None:
                    yield lambda head=head, other=other, out=out, into=into: self._move(head, other, out, into)

    def _together(self, heads: list[Collective]) -> None:
        tensors = [head.tensor for head in heads if head.tensor is not None]
        if tensors:
            total = torch.stack([plain(tensor) for tensor in tensors]).sum(0)
            for tensor in tensors:
                plain(tensor).copy_(total)
        for head in heads:
            self._done(head)

    def _move(self, head: Batch, other: Batch, out: Any, into: Any) -> None:
        if out[1].numel() != into[1].numel() or out[1].dtype != into[1].dtype:
            raise Misuse(f"rank {head.rank} sends {out[1].numel()} elements of {out[1].dtype} to {other.rank}, which "
                         f"receives {into[1].numel()} of {into[1].dtype}")
        plain(into[1]).copy_(plain(out[1]))
        head.messages = [m for m in head.messages if m is not out]
        other.messages = [m for m in other.messages if m is not into]
        for batch in {head, other}:
            if not batch.messages:
                self._done(batch)

    def _told(self, why: str) -> str:
        lines = ["nothing can happen any more", *filter(None, [why])]
        for comm in self.comms:
            for rank, queue in comm.queues.items():
                if queue:
                    state = "" if queue[0].begun else " (not begun)"
                    lines.append(f"rank {rank}, communicator {comm.number}: {queue[0]}{state}")
        return "\n".join(lines)


class P2POp:
    """See torch.distributed.P2POp; ``op`` is `isend` or `irecv` of the double."""

    def __init__(self, op: Any, tensor: torch.Tensor, peer: int, group: Group | None = None, tag: int = 0) -> None:
        self.op, self.tensor, self.peer, self.group = op, tensor, peer, group


class ReduceOp:
    """Only sums are known here: other collectives than ours set communicators up."""

    SUM = "sum"


class Dist:
    """What is used of the module torch.distributed, for the rank whose thread asks."""

    P2POp, ReduceOp = P2POp, ReduceOp

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def group(self) -> Any:
        handle = self._world.handles[here.rank]
        return type("group", (), {"WORLD": handle})

    def _of(self, group: Group | None) -> Group:
        return self._world.handles[here.rank] if group is None else group

    def is_initialized(self) -> bool:
        return True

    def get_rank(self, group: Group | None = None) -> int:
        handle = self._of(group)
        return handle.comm.ranks.index(handle.rank)

    def get_world_size(self, group: Group | None = None) -> int:
        return len(self._of(group).comm.ranks)

    def get_global_rank(self, group: Group | None, rank: int) -> int:
        return self._of(group).comm.ranks[rank]

    def get_process_group_ranks(self, group: Group | None) -> list[int]:
        return list(self._of(group).comm.ranks)

    def get_backend(self, group: Group | None = None) -> str:
        return "nccl"

    def get_backend_config(self, group: Group | None = None) -> str:
        return "cuda:nccl"

    def new_group(self, ranks: Sequence[int] | None = None, backend: Any = None, timeout: Any = None,
                  use_local_synchronization: bool = False, **_: Any) -> Group | None:
        """All ranks of the world make the same groups in the same order; only members, with local synchronisation."""
        world, rank = self._world, here.rank
        members = list(range(world.size)) if ranks is None else list(ranks)
        key = (tuple(members), bool(use_local_synchronization))
        with world.changed:
            made = world.groups[rank]
            made.append(key)
            alike = [k for k, comm in enumerate(made) if comm == key]
            known = [comm for comm in world.comms[1:] if comm.key == key]     
            if len(known) < len(alike):
                comm = Comm(len(world.comms), members, world.eager)
                comm.key = key                                                
                world.comms.append(comm)
                known.append(comm)
            comm = known[len(alike) - 1]
            if not use_local_synchronization:
                for other in world.groups.values():
                    for mine, theirs in zip(made, other, strict=False):
                        if mine != theirs and not (mine[1] or theirs[1]):
                            raise Misuse(f"rank {rank} makes group {mine[0]} where another makes {theirs[0]}")
        return Group(comm, rank) if rank in members else None

    def isend(self, tensor: torch.Tensor, dst: int, group: Group | None = None, tag: int = 0) -> Work:
        return self.batch_isend_irecv([P2POp(self.isend, tensor, dst, group)])[0]

    def irecv(self, tensor: torch.Tensor, src: int, group: Group | None = None, tag: int = 0) -> Work:
        return self.batch_isend_irecv([P2POp(self.irecv, tensor, src, group)])[0]

    def batch_isend_irecv(self, ops: Sequence[P2POp]) -> list[Work]:
        handle = self._of(ops[0].group)
        messages = []
        for op in ops:
            if self._of(op.group) is not handle:
                raise Misuse("all operations of a batch must have one group")
            if op.peer == handle.rank or op.peer not in handle.comm.ranks:
                raise Misuse(f"rank {handle.rank} exchanges with {op.peer}")
            if not op.tensor.is_contiguous():
                raise Misuse("Tensors must be contiguous")
            messages.append((op.op.__name__ == "isend", op.tensor, op.peer))
        after = [current_stream().last()]
        return [self._world.issue(Batch(handle.comm, handle.rank, messages, after))]

    def all_reduce(self, tensor: torch.Tensor, op: Any = "sum", group: Group | None = None,
                   async_op: bool = False) -> Any:
        return self._together("all_reduce", tensor, group, async_op)

    def barrier(self, group: Group | None = None, async_op: bool = False, device_ids: Any = None) -> Any:
        return self._together("barrier", None, group, async_op)

    def _together(self, kind: str, tensor: torch.Tensor | None, group: Group | None, async_op: bool) -> Any:
        handle = self._of(group)
        work = self._world.issue(Collective(handle.comm, handle.rank, kind, tensor, [current_stream().last()]))
        if not async_op:
            work.wait()
        return work if async_op else None


class Backend:
    """A ProcessGroupNCCL of the rank whose thread makes it, on the world's communicator."""

    def __init__(self, world: World) -> None:
        self._dist, self._rank = world.dist, here.rank
        self._group = world.handles[self._rank]
        self._messages: list[P2POp] | None = None

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return len(self._group.comm.ranks)

    def name(self) -> str:
        return "nccl"

    def _start_coalescing(self) -> None:
        self._messages = []

    def _end_coalescing(self) -> Work:
        messages, self._messages = self._messages, None
        return self._dist.batch_isend_irecv(messages or [])[0]

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Any:
        return self._message(P2POp(self._dist.isend, tensors[0], peer, self._group))

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> Any:
        return self._message(P2POp(self._dist.irecv, tensors[0], peer, self._group))

    def _message(self, message: P2POp) -> Any:
        if self._messages is None:
            return self._dist.batch_isend_irecv([message])[0]
        self._messages.append(message)
        return None

    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> Work:
        found: Work = self._dist.all_reduce(tensors[0], group=self._group, async_op=True)
        return found
