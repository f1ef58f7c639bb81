"""One call after another: the calls of a group run in the order in which they were issued, the asynchronous ones in a
thread of the group's own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from weakref import ref

import torch
import torch.distributed as dist

Job = Callable[[], None]

IDLE = 5.0
"""Seconds after which a thread without work ends; the next asynchronous call starts another."""


class Work(dist.Work):      # type: ignore[misc]      # torch is Any to mypy
    """What an asynchronous call returns: see ``torch.distributed.Work``."""

    def __init__(self, what: str, results: list[torch.Tensor], lane: Lane | None = None) -> None:
        super().__init__()
        self._what = what
        self.results = results
        self._lane = ref(lane) if lane is not None else None
        self._over = threading.Event()
        self._raised: BaseException | None = None
        self._promise: Any = None
        self._future: Any = None
        self._mutex = threading.Lock()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Until the call is done. Raises what went wrong in it; RuntimeError where ``timeout`` is over before."""
        lane = self._lane() if self._lane is not None else None
        if lane is not None:
            lane.help(self)
        if not self._over.wait(timeout.total_seconds() if timeout else None):
            milliseconds = round(timeout.total_seconds() * 1000) if timeout else 0
            raise RuntimeError(f"Timed out waiting {milliseconds}ms for {self._what} operation to complete")
        if self._raised is not None:
            raise self._raised
        return True

    def synchronize(self) -> None:
        """As :meth:`wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it is over, well or not."""
        return self._over.is_set()

    def is_success(self) -> bool:
        """Whether it is over, and nothing went wrong."""
        return self._over.is_set() and self._raised is None

    def exception(self) -> BaseException | None:
        """What went wrong."""
        return self._raised

    def result(self) -> list[torch.Tensor]:
        """The tensors that hold the results."""
        return self.results

    def get_future(self) -> Any:
        """A ``torch.futures.Future`` with the list of tensors that hold the results."""
        with self._mutex:
            if self._future is None:
                self._promise = torch.futures.Future()
                # An error that is raised in a callback is one for those who wait in C++, too, such as DDP.
                self._future = self._promise.then(lambda _: self._value())
                if self._over.is_set():
                    self._promise.set_result(None)
        return self._future

    def finish(self, raised: BaseException | None = None) -> None:
        """It is over."""
        with self._mutex:
            self._raised = raised
            self._over.set()
            promise = self._promise
        if promise is not None:             # outside of the lock: callbacks run here, and may ask for the future again
            promise.set_result(None)

    def _value(self) -> list[torch.Tensor]:
        if self._raised is not None:
            raise self._raised
        return self.results


class Lane:
    """The order of a group's calls.

    A call that nothing is before runs in the caller's own thread: handing it over would cost more than a small
    collective takes.
    """

    def __init__(self) -> None:
        self._ready = threading.Condition()
        self._turn = threading.Lock()       # held while a call runs
        self._queue: deque[tuple[Job, Work]] = deque()
        self._pending = 0                   # calls that are queued or run
        self._thread: threading.Thread | None = None

    def run(self, job: Job) -> None:
        """Run a call after all that were issued before it; returns when it is done. Raises what it raises."""
        with self._ready:
            alone = self._pending == 0
            self._pending += 1
            if alone:
                self._turn.acquire()        # free: whoever had it counted down after giving it up
            else:
                work = self._put(job, "collective", [])
        if not alone:
            work.wait()
            return
        try:
            job()
        finally:
            self._turn.release()
            with self._ready:
                self._pending -= 1

    def issue(self, job: Job, what: str, results: list[torch.Tensor]) -> Work:
        """Run a call after all that were issued before it, in the lane's thread."""
        with self._ready:
            self._pending += 1
            return self._put(job, what, results)

    def help(self, work: Work) -> None:
        """Called before waiting for ``work``. In the lane's own thread (a callback of a future) nobody else would run
        what comes before it."""
        if threading.current_thread() is not self._thread:
            return
        while not work.is_completed() and self._step():
            pass

    def _put(self, job: Job, what: str, results: list[torch.Tensor]) -> Work:
        work = Work(what, results, self)
        self._queue.append((job, work))
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="schedlang", daemon=True)
            self._thread.start()
        self._ready.notify()
        return work

    def _serve(self) -> None:
        while True:
            if not self._step():
                with self._ready:
                    if not self._queue and not self._ready.wait_for(lambda: bool(self._queue), IDLE):
                        self._thread = None
                        return

    def _step(self) -> bool:
        """Run the next call of the queue; whether there was one."""
        with self._ready:
            if not self._queue:
                return False
            job, work = self._queue.popleft()
        raised: BaseException | None = None
        with self._turn:
            try:
                job()
            except BaseException as failure:        # whoever waits for it is told
                raised = failure
        with self._ready:
            self._pending -= 1
        work.finish(raised)
        return True
