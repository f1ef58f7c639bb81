"""A world in one process, with the worst timing: the ranks are threads of which one runs at a time, and chance decides
which, and when messages move.

Messages move as between processes: a send is done only when it was received (or, by chance, at once: the message then
was copied), in one order for each source, destination and tag. Memory that one is sent from is read when it moves, the
memory that it lands in holds rubbish then, and the message later. Where nothing can happen any more, :class:`Stuck`.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch

RUBBISH = 0xA5


class Stuck(Exception):
    """Ranks wait for each other."""


class _Stopped(BaseException):
    """Ends a rank that waits in vain."""


class _Message:
    """One end of a message. ``data``: the bytes to read or to write. ``arriving``: what will be written."""

    def __init__(self, world: World, rank: int, data: torch.Tensor, what: str) -> None:
        self.world, self.rank, self.data, self.what = world, rank, data, what
        self.done = False
        self.arriving: torch.Tensor | None = None

    def wait(self, timeout: timedelta = timedelta(0)) -> None:
        while not self.done:
            self.world.pause(self.rank, self)


class MemoryWire:
    """The wire of one rank."""

    def __init__(self, world: World, rank: int) -> None:
        self.world, self.rank, self.size, self.watch = world, rank, world.size, None

    def send(self, data: torch.Tensor, peer: int, tag: int) -> _Message:
        message = _Message(self.world, self.rank, data.view(torch.uint8), f"send to {peer}, tag {tag}")
        self.world.sends[self.rank, peer, tag].append(message)
        if self.world.random.random() < self.world.eager:
            message.data, message.done = message.data.clone(), True
        self.world.pause(self.rank)
        return message

    def receive(self, data: torch.Tensor, peer: int, tag: int) -> _Message:
        message = _Message(self.world, self.rank, data.view(torch.uint8), f"receive from {peer}, tag {tag}")
        self.world.receives[peer, self.rank, tag].append(message)
        self.world.pause(self.rank)
        return message


class World:
    """``size`` ranks. ``eager``: how likely a send is done at once."""

    def __init__(self, size: int, seed: int, eager: float = 0.0) -> None:
        self.size, self.random, self.eager = size, random.Random(seed), eager
        self.sends: dict[tuple[int, int, int], deque[_Message]] = defaultdict(deque)
        self.receives: dict[tuple[int, int, int], deque[_Message]] = defaultdict(deque)
        self._ending: list[_Message] = []
        self._turns = [threading.Semaphore(0) for _ in range(size)]
        self._back = threading.Semaphore(0)
        self._waits: list[_Message | None] = [None] * size
        self._stopped = False
        self._errors: list[BaseException] = []

    def run(self, work: Callable[[MemoryWire], Any]) -> list[Any]:
        """``work(wire)`` on all ranks: what each returned. Raises what a rank raised, or Stuck."""
        results: list[Any] = [None] * self.size
        alive = set(range(self.size))

        def rank_of(rank: int) -> None:
            self._turns[rank].acquire()
            try:
                results[rank] = work(MemoryWire(self, rank))
            except _Stopped:
                pass
            except BaseException as raised:
                self._errors.append(raised)
            alive.discard(rank)
            self._back.release()

        threads = [threading.Thread(target=rank_of, args=(r,), daemon=True) for r in range(self.size)]
        for thread in threads:
            thread.start()
        stuck = ""
        while alive and not self._errors and not stuck:
            stuck = self._happen(sorted(alive))
        self._stopped = True
        for rank in sorted(alive):
            self._turns[rank].release()
            self._back.acquire()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]
        if stuck:
            raise Stuck(stuck)
        assert not any(self.sends.values()) and not any(self.receives.values()), "messages are left over"
        return results

    def pause(self, rank: int, waits: _Message | None = None) -> None:
        """Let others go on; until ``waits`` is done."""
        self._waits[rank] = waits
        self._back.release()
        self._turns[rank].acquire()
        if self._stopped:
            raise _Stopped

    def _happen(self, alive: Sequence[int]) -> str:
        """One thing happens; else why not."""
        able = [r for r in alive if (wait := self._waits[r]) is None or wait.done]
        moving = [line for line, sent in self.sends.items() if sent and self.receives[line]]
        choices: list[tuple[str, Any]] = [("run", r) for r in able] + [("move", line) for line in moving]
        choices += [("end", message) for message in self._ending]
        if not choices:
            return "; ".join(f"rank {r}: {w.what}" for r in alive if (w := self._waits[r]) is not None)
        what, which = self.random.choice(choices)
        if what == "run":
            self._turns[which].release()
            self._back.acquire()
        elif what == "move":
            sent, received = self.sends[which].popleft(), self.receives[which].popleft()
            assert len(sent.data) == len(received.data), (which, len(sent.data), len(received.data))
            received.arriving = sent.data.clone()
            received.data.fill_(RUBBISH)
            self._ending += [sent, received]
        else:
            self._ending.remove(which)
            if which.arriving is not None:
                which.data.copy_(which.arriving)
            which.done = True
        return ""


def ranks_in_memory(size: int, seed: int, work: Callable[[MemoryWire], Any], eager: float = 0.0) -> list[Any]:
    """``work(wire)`` on ``size`` ranks."""
    return World(size, seed, eager).run(work)
