"""Ranks as processes on this machine: start them, hear from them, and leave none behind."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any

from schedlang.diagnostics import Diagnostic, Note, SchedError, error
from schedlang.running.ranks import Done, Failed, Job, Lost, Told
from schedlang.running.ranks.lead import last_line

GRACE = 2.0
"""Seconds that others have, after one has lost its peer, to say what was the matter with that."""

_BEGIN = "import sys; sys.path[:] = {path!r}; from {module} import {function}; {function}({number})"


def launch(job: Job, inherited: Iterable[int] = (), told: Callable[[int, Any], None] | None = None) -> list[Any]:
    """Do a job: what its task returned on each rank. ``inherited``: numbers of open files that the ranks get, too.
    ``told`` is called with a rank and what it says meanwhile.

    Raises SchedError: what a rank raised, SL811 where they cannot be started, SL813 where one ended by itself. Whatever
    happens, no process is left when it returns; should this process end first, they end, too.
    """
    ours, theirs = Pipe()
    module, _, function = job.leader.partition(":")
    begin = _BEGIN.format(path=sys.path, module=module, function=function, number=theirs.fileno())
    with ours, tempfile.TemporaryFile() as said:
        leader = subprocess.Popen(
            [sys.executable, "-c", begin], pass_fds=(theirs.fileno(), *inherited), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=said,
            start_new_session=True)                         # which makes it a group, to be ended as a whole
        theirs.close()
        try:
            ours.send_bytes(pickle.dumps(job))
            return _results(ours, job.ranks, told)
        except (EOFError, ConnectionError):
            status = leader.wait()
            raise SchedError(error("SL811", f"the process that starts the ranks {_ended(status)}",
                                   notes=_notes(last_line(said)))) from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(leader.pid, signal.SIGKILL)
            leader.wait()


def _results(pipe: Connection[Any, Any], ranks: int, told: Callable[[int, Any], None] | None) -> list[Any]:
    results: dict[int, Any] = {}
    failures: dict[int | None, Failed | Lost] = {}
    end: float | None = None
    while len(results) + len(failures) < ranks and (end is None or pipe.poll(max(0.0, end - time.monotonic()))):
        rank, what = pickle.loads(pipe.recv_bytes())
        if isinstance(what, Told):
            if told is not None:
                told(rank, what.value)
        elif isinstance(what, Done):
            results[rank] = what.result
        else:
            failures[rank] = what
            if _weight(what) < 2:
                break
            end = end or time.monotonic() + GRACE
    if failures:
        rank, what = min(failures.items(), key=lambda entry: (_weight(entry[1]), entry[0] or 0))
        raise SchedError(_findings(rank, what))
    return [results[rank] for rank in range(ranks)]


def _weight(what: Failed | Lost) -> int:
    """What is told of several failures is the one of least weight: one that only misses another rank, or does not
    understand what has failed, follows from something else, if there is anything else."""
    if isinstance(what, Lost):
        return 0
    if what.bug is not None:
        return 3
    return 2 if all(d.code == "SL813" for d in what.findings) else 1


def _findings(rank: int | None, what: Failed | Lost) -> tuple[Diagnostic, ...]:
    if isinstance(what, Lost):
        help = "the system does so where memory runs out: take fewer ranks or elements" if (
            what.status == -signal.SIGKILL) else None
        return (error("SL813", f"the process of rank {rank} {_ended(what.status)}", notes=_notes(what.said), help=help,
                      rank=rank, status=what.status),)
    if what.bug is not None:
        return (error("SL811", f"rank {rank} failed: {what.bug}", rank=rank),)
    return what.findings


def _ended(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def _notes(said: str) -> tuple[Note, ...]:
    return (Note(f"the last it said: {said}"),) if said else ()
