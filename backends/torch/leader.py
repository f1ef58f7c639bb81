"""The process that starts the ranks on this machine: it imports torch once, and forks.

    python -c "...; from schedlang.backends.torch.leader import main; main(NUMBER)"

NUMBER is a pipe to whoever wants the ranks (launch.py). It brings a :class:`Job`; back come reports, each the number of
a rank (None: the leader's own) and what became of it. When the pipe ends, or the leader does, all ranks end.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
import threading
from datetime import timedelta
from importlib import import_module
from multiprocessing.connection import Connection, Pipe, wait
from typing import IO, Any

from schedlang.backend import Place
from schedlang.backends.torch.job import Done, Failed, Job, Lost, Told
from schedlang.backends.torch.world import World, require_gpus, with_gpu
from schedlang.diagnostics import SchedError, error


def main(number: int) -> None:
    """Do the job that the pipe brings."""
    pipe: Connection[Any, Any] = Connection(number)
    try:
        job: Job = pickle.loads(pipe.recv_bytes())
        device = _device(job)
        _lead(pipe, job, device)
    except (EOFError, ConnectionError):
        pass                                                # nobody wants the ranks any more
    except SchedError as failure:
        _report(pipe, None, Failed(failure.diagnostics))
    os.killpg(0, signal.SIGKILL)


def _device(job: Job) -> str:
    """Where the ranks' tensors are. Torch does not initialise CUDA for that, which would not survive a fork."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    import torch
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        raise SchedError(error("SL804", f"the back end torch cannot run here: torch {torch.__version__} has no Gloo",
                               help="install a build of torch that has torch.distributed with Gloo"))
    have = torch.cuda.device_count() if dist.is_nccl_available() else 0
    if job.device == "cuda":
        require_gpus(have, job.ranks)
    return "cuda" if job.device != "cpu" and have >= job.ranks else "cpu"


def _lead(pipe: Connection[Any, Any], job: Job, device: str) -> None:
    import torch.distributed as dist

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
            _be(rank, job, device, ends[rank][1], said[rank])
        processes.append(process)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks = {}
    for rank, (ours, theirs) in enumerate(ends):
        theirs.close()
        ours.send(store.port)
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


def _be(rank: int, job: Job, device: str, pipe: Connection[Any, Any], said: IO[bytes]) -> None:
    """The life of a rank; it does not return."""
    try:
        os.dup2(said.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        _report(pipe, rank, _outcome(rank, job, device, pipe))
    finally:
        os._exit(0)


def _outcome(rank: int, job: Job, device: str, pipe: Connection[Any, Any]) -> Done | Failed:
    try:
        port = pipe.recv()
        threading.Thread(target=_end_with, args=(pipe,), daemon=True).start()
        world = _world(rank, job, device, port, lambda value: _report(pipe, rank, Told(value)))
        module, _, name = job.task.partition(":")
        return Done(getattr(import_module(module), name)(world, *job.arguments))
    except SchedError as failure:
        return Failed(failure.diagnostics)
    except MemoryError:
        return Failed((error("SL802", "arrays of this size on all ranks do not fit into memory",
                             help="take fewer elements or ranks"),))
    except Exception as bug:                                # of whatever kind: this is where a process ends
        return Failed((), f"{type(bug).__name__}: {bug}")


def _world(rank: int, job: Job, device: str, port: int, tell: Any) -> World:
    import torch
    import torch.distributed as dist

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)                            # as torchrun does: the ranks share the cores
    timeout = timedelta(seconds=job.timeout)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timeout)
    if device == "cuda":
        return with_gpu(Place(rank, job.ranks, rank, job.ranks), timeout, tell, store)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=job.ranks, timeout=timeout)
    group = dist.group.WORLD
    return World(rank, job.ranks, torch.device("cpu"), group, group, timeout, tell)


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
