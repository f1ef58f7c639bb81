"""How messages go between ranks: over a process group of torch.distributed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

from schedlang.backends.torch.faults import Watch, store_of

FIRST_TAG = 1 << 24
"""Tags of messages start here, above those that people use."""


Message = tuple[bool, torch.Tensor, int]
"""Whether it is sent, what is sent or where it lands, the other rank."""


class Work(Protocol):
    """A message under way."""

    def wait(self, timeout: timedelta = ...) -> object: ...


class Wire(Protocol):
    """Sends and receives of one rank of a world of ``size``, one by one. Neither blocks. Messages of one source,
    destination and tag come in the order in which they are sent. ``watch``: tells others whom this rank waits for;
    None: nobody."""

    rank: int
    size: int
    watch: Watch | None

    def send(self, data: torch.Tensor, peer: int, tag: int) -> Work: ...

    def receive(self, data: torch.Tensor, peer: int, tag: int) -> Work: ...


class GlooWire:
    """Tagged messages between the ranks of a group, one after another for each pair and tag.

    They go to the group's Gloo itself: past the dispatcher, which costs a fifth of the time of a small message.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.rank, self.size = group.rank(), group.size()
        gloo = group._get_backend(torch.device("cpu"))
        self._send, self._receive = gloo.send, gloo.recv
        found = store_of(group)
        timeout = None if found is None else gloo.options._timeout
        self.watch = None if found is None else Watch(*found, self.rank, timeout)

    def send(self, data: torch.Tensor, peer: int, tag: int) -> Work:
        work: Work = self._send([data], peer, FIRST_TAG + tag)
        return work

    def receive(self, data: torch.Tensor, peer: int, tag: int) -> Work:
        work: Work = self._receive([data], peer, FIRST_TAG + tag)
        return work


class NcclWire:
    """Batches of messages between the ranks of a group, one after another, without tags.

    ``through``: torch.distributed, or what stands in for it. The communicator is set up at the first batch, for which
    every rank must come: so the first thing that goes over it is a sum, in which all take part.
    """

    def __init__(self, group: Any, through: Any = dist) -> None:
        self.rank, self.size = through.get_rank(group), through.get_world_size(group)
        self.watch: Watch | None = None         # the host does not wait, NCCL's own watch does
        self._through, self._group = through, group
        self._peers = [through.get_global_rank(group, peer) for peer in range(self.size)]
        self._begun = False

    def begin(self, like: torch.Tensor) -> None:
        """Before the first batch of a call; ``like``: a tensor on the device."""
        if not self._begun:
            self._through.all_reduce(like.new_zeros(1, dtype=torch.int32), group=self._group)
            self._begun = True

    def exchange(self, messages: Sequence[Message]) -> None:
        """One batch; the current stream waits for its end."""
        through = self._through
        operations = [through.P2POp(through.isend if sends else through.irecv, data, self._peers[peer], self._group)
                      for sends, data, peer in messages]
        for work in through.batch_isend_irecv(operations):
            work.wait()


AnyWire = Wire | NcclWire
"""Messages one by one, or in batches."""


def wire_of(group: dist.ProcessGroup, device: str | None = None) -> AnyWire:
    """The wire over a process group; ranks are those of the group, 0 to size - 1. ``device``: where the tensors are,
    ``cpu`` or ``cuda``; None: the CPU, if the group moves what is there."""
    kinds = {kind.type for kind in group._device_types}
    on = device or ("cpu" if "cpu" in kinds else "cuda")
    if on == "cuda" and group._get_backend(torch.device("cuda")).name() == "nccl":
        return NcclWire(group)
    return GlooWire(group)
