"""One call after another: the calls of a group run in the order in which they were issued, the asynchronous ones in a
thread of the group's own.

On a GPU they also run in a stream of the group's own, as NCCL's do: after what the caller's stream had to do when they
were issued, and the stream of whoever waits for them goes on after them.
"""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any
from weakref import WeakSet, ref

import torch
import torch.distributed as dist

from schedlang.torch.graphs import outside_graphs

Job = Callable[[], None]

IDLE = 5.0
"""Seconds after which a thread without work ends; the next asynchronous call starts another."""


_OVER = threading.Event()
_OVER.set()


class Work(dist.Work):      # type: ignore[misc]      # torch is Any to mypy
    """What an asynchronous call returns: see ``torch.distributed.Work``. ``over``: the call has been made."""

    def __init__(self, what: str, results: list[torch.Tensor], lane: Lane | None = None, *, over: bool = False) -> None:
        super().__init__()
        self._what = what
        self.results = results
        self._lane = ref(lane) if lane is not None else None
        self._over = _OVER if over else threading.Event()
        self._raised: BaseException | None = None
        self._device = lane.device if lane is not None else None
        self._done: Any = None              # the event of the lane's stream at the end of the call
        self._promise: Any = None
        self._future: Any = None
        self._mutex = threading.Lock()

    @outside_graphs
    def wait(self, timeout: timedelta | None = None) -> bool:
        """Until the call is done. Raises what went wrong in it; RuntimeError where ``timeout`` is over before."""
        lane = self._lane() if self._lane is not None else None
        if lane is not None:
            lane.help(self)
        if not self._over.wait(timeout.total_seconds() if timeout else None):
            milliseconds = round(timeout.total_seconds() * 1000) if timeout else 0
            raise RuntimeError(f"Timed out waiting {milliseconds}ms for {self._what} operation to complete")
        self._value()
        return True

    def synchronize(self) -> None:
        """As :meth:`wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it is over, well or not."""
        return self._over.is_set() and (self._done is None or bool(self._done.query()))

    def is_success(self) -> bool:
        """Whether it is over, and nothing went wrong."""
        return self.is_completed() and self._raised is None

    def exception(self) -> BaseException | None:
        """What went wrong."""
        return self._raised

    def result(self) -> list[torch.Tensor]:
        """The tensors that hold the results."""
        return self.results

    @outside_graphs
    def get_future(self) -> Any:
        """A ``torch.futures.Future`` with the list of tensors that hold the results."""
        with self._mutex:
            if self._future is None:
                devices = None if self._device is None else [self._device]
                self._promise = torch.futures.Future(devices=devices)
                # An error that is raised in a callback is one for those who wait in C++, too, such as DDP.
                self._future = self._promise.then(lambda _: self._value())
                if self._over.is_set():
                    self._promise.set_result(None)
        return self._future

    def finish(self, raised: BaseException | None = None, done: Any = None) -> None:
        """It is over; on a GPU, once the event ``done`` is."""
        with self._mutex:
            self._raised, self._done = raised, done
            self._over.set()
            promise = self._promise
        if promise is not None:             # outside of the lock: callbacks run here, and may ask for the future again
            promise.set_result(None)

    def _value(self) -> list[torch.Tensor]:
        if self._raised is not None:
            raise self._raised
        if self._done is not None:
            torch.cuda.current_stream(self._device).wait_event(self._done)
        return self.results


class Lane:
    """The order of a group's calls. ``device``: the GPU of its tensors, None: the CPU.

    A call that nothing is before runs in the caller's own thread: handing it over would cost more than a small
    collective takes.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device
        self._stream = None if device is None else torch.cuda.Stream(device)
        self._ready = threading.Condition()
        self._turn = threading.Lock()       # held while a call runs
        self._queue: deque[tuple[Job, Work]] = deque()
        self._pending = 0                   # calls that are queued or run
        self._thread: threading.Thread | None = None
        self._ending = False
        _lanes.add(self)

    def run(self, job: Job) -> None:
        """Run a call after all that were issued before it; returns when it is done. Raises what it raises."""
        job = self._in_stream(job)
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
            if self._stream is not None:
                torch.cuda.current_stream(self.device).wait_stream(self._stream)
        finally:
            self._turn.release()
            with self._ready:
                self._pending -= 1

    def issue(self, job: Job, what: str, results: list[torch.Tensor], touched: Iterable[torch.Tensor] = ()) -> Work:
        """Run a call after all that were issued before it, in the lane's thread. ``touched``: the caller's tensors that
        it reads or writes: on a GPU their memory is not given to others before it is over."""
        job = self._in_stream(job)
        if self._stream is not None:
            for tensor in touched:
                tensor.record_stream(self._stream)
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

    def drain(self) -> None:
        """Wait until all that was issued is over, well or not."""
        if self._pending:
            self.run(_nothing)

    def end(self) -> None:
        """As :meth:`drain`, and until the lane's thread is at its end, too."""
        self.drain()
        with self._ready:
            self._ending = True
            self._ready.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def stream(self) -> AbstractContextManager[object]:
        """In it the lane's stream is the current one."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def synchronize(self) -> None:
        """Wait, on the host, for the lane's stream."""
        if self._stream is not None:
            self._stream.synchronize()

    def _in_stream(self, job: Job) -> Job:
        """The call on the lane's stream, after what the caller's stream has to do by now."""
        stream = self._stream
        if stream is None:
            return job
        before = torch.cuda.Event()
        before.record(torch.cuda.current_stream(self.device))

        def ordered() -> None:
            with torch.cuda.stream(stream):
                stream.wait_event(before)
                job()

        return ordered

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
                    if self._queue:
                        continue
                    self._ready.wait_for(lambda: bool(self._queue) or self._ending, IDLE)
                    if not self._queue:
                        self._thread = None
                        return

    def _step(self) -> bool:
        """Run the next call of the queue; whether there was one."""
        with self._ready:
            if not self._queue:
                return False
            job, work = self._queue.popleft()
        raised: BaseException | None = None
        done = None
        with self._turn:
            try:
                job()
                if self._stream is not None:
                    done = torch.cuda.Event()
                    done.record(self._stream)
            except BaseException as failure:        # whoever waits for it is told
                raised = failure
        with self._ready:
            self._pending -= 1
        work.finish(raised, done)
        return True


def _nothing() -> None:
    """A call that does nothing."""


_lanes: WeakSet[Lane] = WeakSet()


def _at_exit() -> None:
    """A thread that comes back from torch's C++ code while the interpreter ends, be it from the destructor of a group
    that nobody else has any more, would end the process by a signal. So what was issued is waited for, as the
    destructor of torch's own groups does, and the threads, too."""
    for lane in [*_lanes]:
        lane.end()


atexit.register(_at_exit)
