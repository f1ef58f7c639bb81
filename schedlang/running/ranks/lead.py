"""The process that starts the ranks on this machine: it imports once what they need, and forks.

It gets the number of a pipe to whoever wants the ranks (launch.py). That brings a :class:`Job`; back come reports, each
the number of a rank (None: the leader's own) and what became of it. When the pipe ends, or the leader does, all ranks
end.
"""

from __future__ import annotations

import os
import pickle
import signal
import tempfile
import threading
from collections.abc import Callable
from importlib import import_module
from multiprocessing.connection import Connection, Pipe, wait
from typing import IO, Any, Protocol

from schedlang.diagnostics import SchedError, error
from schedlang.running.ranks import Done, Failed, Job, Lost, Told


class Ground(Protocol):
    """What ranks stand on."""

    def prepare(self, job: Job) -> None:
        """Before the ranks are there: import what takes long. Raises SchedError where they cannot be."""

    def meet(self) -> Any:
        """Once they are there: what they are told to find each other, pickled."""

    def place(self, rank: int, job: Job, told: Any, tell: Callable[[Any], None]) -> Any:
        """On a rank: what its task gets as its place. ``tell`` hands something to whoever wants the ranks."""


def lead(number: int, ground: Ground) -> None:
    """Do the job that the pipe brings, and end this process with its group."""
    pipe: Connection[Any, Any] = Connection(number)
    try:
        job: Job = pickle.loads(pipe.recv_bytes())
        ground.prepare(job)
        _lead(pipe, job, ground)
    except (EOFError, ConnectionError):
        pass                                                # nobody wants the ranks any more
    except SchedError as failure:
        _report(pipe, None, Failed(failure.diagnostics))
    os.killpg(0, signal.SIGKILL)


def _lead(pipe: Connection[Any, Any], job: Job, ground: Ground) -> None:
    ends = [Pipe() for _ in range(job.ranks)]
    said = [tempfile.TemporaryFile() for _ in ends]  # noqa: SIM115  # open as long as the leader lives
    processes = []
    for rank in range(job.ranks):
        process = os.fork()
        if not process:
            pipe.close()
            for other, (ours, theirs) in enumerate(ends):
                ours.close()
                if other != rank:
                    theirs.close()
            _be(rank, job, ground, ends[rank][1], said[rank])
        processes.append(process)
    told = ground.meet()
    ranks = {}
    for rank, (ours, theirs) in enumerate(ends):
        theirs.close()
        ours.send(told)
        ranks[ours] = rank
    while ranks:
        for ready in wait([pipe, *ranks]):
            if ready is pipe:
                pipe.recv_bytes()                           # nothing but the end can come
            assert isinstance(ready, Connection)
            rank = ranks[ready]
            try:
                pipe.send_bytes(ready.recv_bytes())
            except (EOFError, ConnectionResetError):
                del ranks[ready]
                status = os.waitstatus_to_exitcode(os.waitpid(processes[rank], 0)[1])
                if status:
                    _report(pipe, rank, Lost(status, last_line(said[rank])))
    pipe.recv_bytes()


def _be(rank: int, job: Job, ground: Ground, pipe: Connection[Any, Any], said: IO[bytes]) -> None:
    """The life of a rank; it does not return."""
    try:
        os.dup2(said.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        _report(pipe, rank, _outcome(rank, job, ground, pipe))
    finally:
        os._exit(0)


def _outcome(rank: int, job: Job, ground: Ground, pipe: Connection[Any, Any]) -> Done | Failed:
    try:
        told = pipe.recv()
        threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
        place = ground.place(rank, job, told, lambda value: _report(pipe, rank, Told(value)))
        module, _, name = job.task.partition(":")
        return Done(getattr(import_module(module), name)(place, *job.arguments))
    except SchedError as failure:
        return Failed(failure.diagnostics)
    except MemoryError:
        return Failed((error("SL802", "arrays of this size on all ranks do not fit into memory",
                             help="take fewer elements or ranks"),))
    except Exception as bug:                                # of whatever kind: this is where a process ends
        return Failed((), f"{type(bug).__name__}: {bug}")


def _end_with(pipe: Connection[Any, Any]) -> None:
    """Ends this process when the other end of a pipe is gone."""
    try:
        pipe.recv_bytes()
    except (EOFError, ConnectionError):
        os._exit(1)


def _report(pipe: Connection[Any, Any], rank: int | None, what: Told | Done | Failed | Lost) -> None:
    pipe.send_bytes(pickle.dumps((rank, what)))


def last_line(said: IO[bytes]) -> str:
    """The last line of what a process wrote to its standard error."""
    said.seek(max(0, said.seek(0, os.SEEK_END) - 4096))
    lines = said.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip() if lines else ""
