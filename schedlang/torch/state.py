"""What is kept for each process group: its wire, the order of its calls, and the schedules it has used."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.autograd import profiler
from torch.distributed import distributed_c10d as c10d

from schedlang.backends.torch.bound import Bound, bind
from schedlang.backends.torch.execute import SIZES_KEPT, Executor
from schedlang.backends.torch.handshake import Handshake
from schedlang.backends.torch.header import Header
from schedlang.backends.torch.wire import AnyWire, NcclWire, wire_of
from schedlang.diagnostics import SchedError, error
from schedlang.fitting import Chosen, Given, choose, with_counts
from schedlang.ir.layout import Layout
from schedlang.ir.table import NONE, Array, Collective, OpTable
from schedlang.schedule import Schedule
from schedlang.torch.buffers import Buffers
from schedlang.torch.lane import Lane, Work


class Counted(Executor):
    """Executes v-collectives whose counts change from call to call."""

    def __init__(self, table: OpTable, rank: int, wire: AnyWire) -> None:
        super().__init__(table, rank, wire)
        assert table.collective.counts is not None
        self.counts: Array = table.collective.counts
        self._by_counts: OrderedDict[bytes, Bound] = OrderedDict()

    def bound(self, elements: int | None) -> Bound:
        """What is done for :attr:`counts`."""
        key = self.counts.tobytes()
        found = self._by_counts.get(key)
        if found is None:
            found = bind(self.plan, Layout(with_counts(self.table, self.counts), elements))
            _keep(self._by_counts, key, found)
        return found


@dataclass(eq=False)
class Entry:
    """A schedule that the group uses. ``agreed``: all ranks were seen to use it."""

    chosen: Chosen
    executor: Executor
    agreed: bool = False


@dataclass(frozen=True)
class Request:
    """A call. ``elements``: None: ranks have their own numbers, ``sends`` and ``receives``. ``title``: which function
    was called."""

    title: str
    collective: str
    dtype: torch.dtype
    op: str | None = None
    root: int | None = None
    elements: int | None = None
    sends: list[int] | None = None
    receives: list[int] | None = None
    schedule: Given | None = None
    check: str = "every"
    verify: bool = True


class State:
    """Of one group."""

    def __init__(self, group: Any) -> None:
        self.rank, self.size = group.rank(), group.size()
        self.wire = NcclWire(group) if getattr(group, "carrier", "") == "nccl" else wire_of(group)
        self.lane = Lane()
        self.handshake = Handshake(self.wire, device="cuda" if isinstance(self.wire, NcclWire) else "cpu")
        self.calls = 0
        self._files: dict[Any, Entry] = {}
        self._reading: OrderedDict[Any, Entry] = OrderedDict()      # by the counts that they look at, too
        self._schedules: WeakKeyDictionary[Schedule, dict[Any, Entry]] = WeakKeyDictionary()

    def run(self, request: Request, buffers: Buffers, after: Callable[[], None] | None,
            results: list[torch.Tensor], async_op: bool) -> Work | None:
        """Make a call when its turn comes. ``after``: what is done with the results then."""
        if request.check not in ("every", "off"):
            raise ValueError(f'check must be "every" or "off", not {request.check!r}')
        entry = self.entry(request)

        def job() -> None:
            self._run(entry, request, buffers)
            if after is not None:
                after()

        label = self._label(entry, request) if profiler._is_profiler_enabled else None
        if async_op:
            if label is None:
                return self.lane.issue(job, request.title, results)
            with profiler.record_function(label) as span:
                work = self.lane.issue(job, request.title, results)
                span._call_end_callbacks_on_future(work.get_future())
                return work
        if label is None:
            self.lane.run(job)
            return None
        with profiler.record_function(label):
            self.lane.run(job)
        return None

    def _label(self, entry: Entry, request: Request) -> str:
        """What the profiler shows: the call, its schedule and its size."""
        elements = sum(request.sends or []) if request.elements is None else request.elements
        dtype = str(request.dtype).removeprefix("torch.")
        return (f"schedlang::{request.title} {entry.chosen.title} {elements} {dtype} "
                f"{elements * request.dtype.itemsize} bytes {self.size} ranks")

    def _run(self, entry: Entry, request: Request, buffers: Buffers) -> None:
        self.calls += 1
        header = Header(self.calls, request.collective, request.op or "", str(request.dtype).removeprefix("torch."),
                        NONE if request.root is None else request.root,
                        NONE if request.elements is None else request.elements, entry.chosen.digest, entry.chosen.title)
        if request.check == "every" or not entry.agreed:
            self.handshake.agree(header)
            entry.agreed = True
        if request.sends is not None:
            entry = self._with_counts(entry, request, header)
        entry.executor.run(buffers(entry.chosen), request.elements, op=request.op)

    def _with_counts(self, entry: Entry, request: Request, header: Header) -> Entry:
        assert request.sends is not None and request.receives is not None
        has = entry.chosen.table.collective
        if request.check == "every" or entry.chosen.relays or has.counts_read:
            counts = self.handshake.counts(header, request.sends, request.receives)
        else:                                   # the own ones are all that matters here
            counts = np.zeros((self.size, self.size), np.int64)
            counts[self.rank], counts[:, self.rank] = request.sends, request.receives
        if has.counts_read and not np.array_equal(counts, has.counts):      # type: ignore[arg-type]
            entry = self._reading_entry(request, counts)
        assert isinstance(entry.executor, Counted)
        entry.executor.counts = counts
        return entry

    def entry(self, request: Request) -> Entry:
        """What is kept of the schedule that a call names. Raises SchedError where it does not fit."""
        kept, key = self._place(request)
        if key not in kept:
            kept[key] = self._made(request, np.ones((self.size, self.size), np.int64))
        return kept[key]

    def _reading_entry(self, request: Request, counts: Array) -> Entry:
        """As :meth:`entry`, for a schedule that looks at its counts."""
        if isinstance(request.schedule, Schedule):
            table = request.schedule.table
            raise SchedError(error("SL816", f"{table.name} looks at its counts, and they are others than the call's",
                                   table.collective.location, help="give the file, with a parameter `counts`"))
        key = (self._place(request)[1], counts.tobytes())
        if key not in self._reading:
            _keep(self._reading, key, self._made(request, counts))
        return self._reading[key]

    def _place(self, request: Request) -> tuple[dict[Any, Entry], Any]:
        """Where the entry is kept, and by which key."""
        given, of_call = request.schedule, (request.collective, request.root, request.verify)
        if isinstance(given, Schedule):
            return self._schedules.setdefault(given, {}), of_call
        target, params = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
        return self._files, (str(target), _key(params), of_call)

    def _made(self, request: Request, counts: Array) -> Entry:
        counted = request.sends is not None
        wanted = Collective(request.collective, root=request.root, counts=counts if counted else None)
        chosen = choose(request.schedule, wanted, self.size, verify=request.verify)
        return Entry(chosen, (Counted if counted else Executor)(chosen.table, self.rank, self.wire))


_states: WeakKeyDictionary[Any, State] = WeakKeyDictionary()


def state_of(group: Any) -> State:
    """What is kept for a group; of those that are destroyed, nothing is."""
    found = _states.get(group)
    if found is None:
        for old in [*_states]:
            if old not in c10d._world.pg_map:
                del _states[old]
        found = _states[group] = State(group)
    return found


K = TypeVar("K")
V = TypeVar("V")


def _keep(known: OrderedDict[K, V], key: K, value: V) -> None:
    """Remember one more, and forget the oldest of too many."""
    known[key] = value
    if len(known) > SIZES_KEPT:
        known.popitem(last=False)


def _key(value: Any) -> Any:
    """What two equal parameter values have in common, and can be looked up by."""
    if isinstance(value, np.ndarray):
        return value.shape, value.tolist().__repr__()
    if isinstance(value, Mapping):
        return tuple(sorted((str(k), _key(v)) for k, v in value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(map(_key, value))
    return type(value).__name__, str(value)
