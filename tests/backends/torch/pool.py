"""Worlds of worker processes for tests: started once a size, joined by Gloo over the loopback, used again and again.

A test hands a pool a function that its own module defines, and gets what it returned on each rank:

    def rank_and_size(extra: int) -> tuple[int, int]:
        return dist.get_rank() + extra, dist.get_world_size()

    def test_it(world):
        assert world(3).run(rank_and_size, 10) == [(10, 3), (11, 3), (12, 3)]

What raised on a rank, or did not answer in time, makes the pool unfit for others; `world` then starts a new one.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from multiprocessing import connection, get_context
from typing import Any

import torch.distributed as dist

from schedlang.diagnostics import Diagnostic, SchedError


def patience() -> float:
    """Seconds after which a rank that has not answered never will, and after which Gloo gives up: 30, and as many times
    more as others want this machine's cores."""
    return 30.0 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@dataclass(frozen=True)
class Raised:
    """What a rank raised: the name of its type, its text, its findings (of a SchedError), and the traceback."""

    type: str
    message: str
    findings: tuple[Diagnostic, ...]
    traceback: str


@dataclass(frozen=True)
class Silent:
    """A rank without an answer: ended with ``exitcode`` (a signal's number below 0), or None: still busy or stopped."""

    exitcode: int | None


class Failure(Exception):
    """Some rank did not return; ``outcomes`` says of each what it did."""

    def __init__(self, outcomes: list[Any]) -> None:
        self.outcomes = outcomes
        told = [f"rank {rank}: {got.traceback if isinstance(got, Raised) else got}"
                for rank, got in enumerate(outcomes) if isinstance(got, Raised | Silent)]
        super().__init__("\n".join(told))


class Pool:
    """``size`` processes that are one world, in which `torch.distributed` is initialised with Gloo."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.fit = True
        """Whether the next test may use it."""
        context = get_context("forkserver")                 # torch is imported once, and each worker starts clean
        context.set_forkserver_preload(["torch.distributed"])
        # The store is ours, so that it outlives every rank that a test kills, as torchrun's does.
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._pipes, self._processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, rank, size, self._store.port), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        failed = [got for got in self.collect() if got is not None]
        if failed:
            self.close()
            raise RuntimeError(f"no world of {size}: {failed}")

    @property
    def pids(self) -> list[int]:
        """The process of each rank."""
        return [process.pid or 0 for process in self._processes]

    @property
    def port(self) -> int:
        """Where the store listens that the ranks met at."""
        return int(self._store.port)

    def run(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> list[Any]:
        """Call a function with the same arguments on all ranks: what each returned. Raises Failure."""
        return self.each(function, [arguments] * self.size, **named)

    def each(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], **named: Any) -> list[Any]:
        """As :meth:`run`, with arguments for each rank."""
        outcomes = self.outcomes(function, arguments, **named)
        if any(isinstance(got, Raised | Silent) for got in outcomes):
            raise Failure(outcomes)
        return outcomes

    def outcomes(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], **named: Any) -> list[Any]:
        """As :meth:`each`, but what raised is a Raised, and who did not answer a Silent."""
        self.start(function, arguments, **named)
        return self.collect()

    def start(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], **named: Any) -> None:
        """Begin a call; :meth:`collect` ends it."""
        for pipe, mine in zip(self._pipes, arguments, strict=True):
            with suppress(BrokenPipeError):                 # of a dead rank, which collect() reports
                pipe.send_bytes(pickle.dumps((function.__module__, function.__qualname__, mine, named)))

    def collect(self, timeout: float | None = None, without: Collection[int] = ()) -> list[Any]:
        """The outcome on each rank, within ``timeout`` seconds (by default, :func:`patience`); of ranks ``without`` no
        answer is waited for."""
        outcomes: list[Any] = [Silent(None)] * self.size
        waiting = {pipe: rank for rank, pipe in enumerate(self._pipes) if rank not in without}
        end = time.monotonic() + (patience() if timeout is None else timeout)
        while waiting and (ready := connection.wait([*waiting], max(0.0, end - time.monotonic()))):
            for pipe in ready:
                rank = waiting.pop(pipe)
                try:
                    outcomes[rank] = pickle.loads(pipe.recv_bytes())
                except (EOFError, ConnectionError):
                    self._processes[rank].join(1)
                    outcomes[rank] = Silent(self._processes[rank].exitcode)
        self.fit &= not any(isinstance(got, Raised | Silent) for got in outcomes)
        return outcomes

    def close(self) -> None:
        """End all processes, stopped ones, too."""
        self.fit = False
        for process in self._processes:
            process.kill()
        for process, pipe in zip(self._processes, self._pipes, strict=True):
            process.join()
            pipe.close()


def _serve(pipe: connection.Connection, rank: int, size: int, port: int) -> None:
    """The life of a worker: calls, until the pipe is closed."""
    import torch

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo" if sys.platform == "linux" else "lo0"
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=patience()))
    pipe.send_bytes(pickle.dumps(None))
    while True:
        try:
            module, name, arguments, named = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        try:
            function = import_module(module)
            for part in name.split("."):
                function = getattr(function, part)
            answer = pickle.dumps(function(*arguments, **named))
        except Exception as raised:                         # whatever it is, the test is to be told
            findings = raised.diagnostics if isinstance(raised, SchedError) else ()
            answer = pickle.dumps(Raised(type(raised).__name__, str(raised), findings, traceback.format_exc()))
        pipe.send_bytes(answer)
