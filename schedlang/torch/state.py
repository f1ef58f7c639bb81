"""What is kept for each process group, and in it for each kind of device: its wire, the order of its calls, and the
schedules it has used."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.distributed as dist
from torch.autograd import profiler
from torch.distributed import distributed_c10d as c10d

from schedlang.backends.native.execute import LocalExecutor, met
from schedlang.backends.native.meeting import Meeting
from schedlang.backends.torch.bound import Bound
from schedlang.backends.torch.execute import SIZES_KEPT, Executor
from schedlang.backends.torch.faults import first_line
from schedlang.backends.torch.handshake import Handshake
from schedlang.backends.torch.header import Header
from schedlang.backends.torch.wire import AnyWire, NcclWire, wire_of
from schedlang.diagnostics import Note, SchedError, error
from schedlang.fitting import Chosen, Given, choose, default, with_counts
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
            found = self.bind(Layout(with_counts(self.table, self.counts), elements))
            _keep(self._by_counts, key, found)
        return found


@dataclass(eq=False)
class Entry:
    """A schedule that the group uses. ``agreed``: all ranks were seen to use it."""

    chosen: Chosen
    executor: Executor | LocalExecutor
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
    """Of one group and the tensors of one kind of device, ``cpu`` or ``cuda``."""

    def __init__(self, group: Any, kind: str) -> None:
        self.rank, self.size = group.rank(), group.size()
        device = torch.device("cuda", torch.cuda.current_device()) if kind == "cuda" else None
        self.lane = Lane(device)
        direct = getattr(group, "direct", None)         # of our own groups: the backend below, past their schedules
        self.wire = NcclWire(group, direct) if direct is not None else wire_of(group, kind)
        with self.lane.stream():
            self.handshake = Handshake(self.wire, device=device or "cpu")
        self.calls = 0
        self._lost: SchedError | None = None
        self._options = None if kind == "cuda" else group._get_backend(torch.device(kind)).options
        self._group = group
        self._local: Meeting | None = None
        self.apart = ""                                     # why ranks that were to share memory do not
        self._asked = kind == "cpu" and getattr(getattr(group, "options", None), "local", None) == "native"
        self._files: dict[Any, Entry] = {}
        self._reading: OrderedDict[Any, Entry] = OrderedDict()      # by the counts that they look at, too
        self._schedules: WeakKeyDictionary[Schedule, dict[Any, Entry]] = WeakKeyDictionary()

    def run(self, request: Request, buffers: Buffers, after: Callable[[], None] | None,
            results: list[torch.Tensor], async_op: bool, sources: Sequence[torch.Tensor] = ()) -> Work | None:
        """Make a call when its turn comes. ``after``: what is done with the results then. ``sources``: the caller's
        tensors that are read, and are no results."""
        if request.check not in ("every", "off"):
            raise ValueError(f'check must be "every" or "off", not {request.check!r}')
        entry = self.entry(request)
        issued.count += 1

        def job() -> None:
            self._in_turn(lambda sequence: self._run(entry, request, buffers, sequence))
            if after is not None:
                after()

        label = self._label(entry, request) if profiler._is_profiler_enabled else None
        if async_op:
            if label is None:
                return self.lane.issue(job, request.title, results, [*results, *sources])
            with profiler.record_function(label) as span:
                work = self.lane.issue(job, request.title, results, [*results, *sources])
                span._call_end_callbacks_on_future(work.get_future())
                return work
        if label is None:
            self.lane.run(job)
            return None
        with profiler.record_function(label):
            self.lane.run(job)
        return None

    def passing(self, what: str, check: str, alike: Sequence[torch.Tensor], others: Sequence[torch.Tensor],
                call: Callable[[], object], root: int | None, op: str) -> Callable[[], None]:
        """What a call without a schedule does when its turn comes: all ranks see that they mean the same, and make it.
        ``alike``: those of its tensors that have as many elements on all ranks; ``others``: the rest."""
        dtype = next((str(one.dtype).removeprefix("torch.") for one in (*alike, *others)), "")
        elements = sum(one.numel() for one in alike) if alike else NONE
        issued.count += 1

        def do(sequence: int) -> None:
            if _every(check):
                self._agree(Header(sequence, what, op, dtype, NONE if root is None else root, elements, bytes(16),
                                   "the inner backend", issued.refused))
                if self.wire.watch is not None:
                    self.wire.watch.end()
            call()

        return lambda: self._in_turn(do)

    def _label(self, entry: Entry, request: Request) -> str:
        """What the profiler shows: the call, its schedule and its size."""
        elements = sum(request.sends or []) if request.elements is None else request.elements
        dtype = str(request.dtype).removeprefix("torch.")
        return (f"schedlang::{request.title} {entry.chosen.title} {elements} {dtype} "
                f"{elements * request.dtype.itemsize} bytes {self.size} ranks")

    def _in_turn(self, do: Callable[[int], None]) -> None:
        """Do a call, whose number in the group is given. Raises SchedError (SL813) where an earlier one has lost a
        rank: then nothing that the group does would end well, or soon."""
        if self._lost is not None:
            found = self._lost.diagnostics[0]
            told = Note(f"that was in call {self.calls} of the group; this one, after it, has not begun")
            raise SchedError(replace(found, notes=(*found.notes, told)))
        self.calls += 1
        if self._options is not None:       # by themselves Gloo's messages wait as long as when the group was made
            self.handshake.timeout = self._options._timeout
        try:
            do(self.calls)
        except SchedError as failure:
            if failure.diagnostics[0].code == "SL813":
                self._lost = failure
            elif self.wire.watch is not None:       # this rank waits for nobody
                self.wire.watch.end()
            raise

    def _run(self, entry: Entry, request: Request, buffers: Buffers, sequence: int) -> None:
        header = Header(sequence, request.collective, request.op or "", str(request.dtype).removeprefix("torch."),
                        NONE if request.root is None else request.root,
                        NONE if request.elements is None else request.elements, entry.chosen.digest,
                        entry.chosen.title, issued.refused)
        if isinstance(entry.executor, LocalExecutor):
            entry.executor.timeout = self.handshake.timeout
            entry.executor.call(header, buffers(entry.chosen), request.elements, request.op, request.dtype)
            issued.refused = ""
            return
        if _every(request.check) or not entry.agreed:
            self._agree(header, entry.chosen.table)
            entry.agreed = True
        if request.sends is not None:
            entry = self._with_counts(entry, request, header)
        assert isinstance(entry.executor, Executor)
        entry.executor.timeout = self.handshake.timeout
        entry.executor.run(buffers(entry.chosen), request.elements, op=request.op)

    def _agree(self, header: Header, table: OpTable | None = None) -> None:
        self.handshake.agree(header, table)
        issued.refused = ""

    def _with_counts(self, entry: Entry, request: Request, header: Header) -> Entry:
        assert request.sends is not None and request.receives is not None
        has = entry.chosen.table.collective
        sends, receives = np.array(request.sends, np.int64), np.array(request.receives, np.int64)
        if _every(request.check) or entry.chosen.relays or has.counts_read:
            counts = self.handshake.counts(header, request.sends, request.receives)
        else:                                   # the own ones are all that matters here
            counts = np.zeros((self.size, self.size), np.int64)
            counts[self.rank], counts[:, self.rank] = sends, receives
        if request.collective != "alltoallv":   # all ranks have one vector
            counts = receives if request.collective == "allgatherv" else sends
        if has.counts_read and not np.array_equal(counts, has.counts):      # type: ignore[arg-type]
            entry = self._reading_entry(request, counts)
        assert isinstance(entry.executor, Counted)
        entry.executor.counts = counts
        return entry

    def use_local(self, local: bool) -> None:
        """Whether schedules run on memory that the ranks share, from here on. Raises SchedError (SL811) on all ranks
        where these are not on one machine."""
        if local and self._local is None:
            self._local = met(self._group, self.rank, self.size, self._timeout())
        if local != self._asked:
            self._asked = local
            self._files.clear()
            self._reading.clear()
            self._schedules.clear()

    def _meeting(self) -> Meeting | None:
        """The ranks, where they were asked to share memory and are on one machine."""
        if self._asked and self._local is None:
            try:
                self._local = met(self._group, self.rank, self.size, self._timeout())
            except SchedError as failure:
                if failure.diagnostics[0].code != "SL811":
                    raise
                self._asked = False                         # on all ranks: messages will do
                self.apart = failure.diagnostics[0].message
        return self._local if self._asked else None

    def _timeout(self) -> timedelta:
        return self._options._timeout if self._options is not None else timedelta(minutes=30)

    def entry(self, request: Request) -> Entry:
        """What is kept of the schedule that a call names. Raises SchedError where it does not fit."""
        kept, key = self._place(request)
        if key not in kept:
            shape = (self.size, self.size) if request.collective == "alltoallv" else self.size
            kept[key] = self._made(request, np.ones(shape, np.int64))
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
        given, of_call = self._given(request), (request.collective, request.root, request.verify)
        if isinstance(given, Schedule):
            return self._schedules.setdefault(given, {}), of_call
        target, params = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
        return self._files, (str(target), _key(params), of_call)

    def _given(self, request: Request) -> Given:
        """The schedule that a call names, or the shipped one for it."""
        if request.schedule is not None:
            return request.schedule
        return default(request.collective, self.size, (request.elements or 0) * request.dtype.itemsize)

    def _made(self, request: Request, counts: Array) -> Entry:
        counted = request.sends is not None
        wanted = Collective(request.collective, root=request.root, counts=counts if counted else None)
        chosen = choose(self._given(request), wanted, self.size, verify=request.verify)
        meeting = None if counted else self._meeting()
        if meeting is not None:
            return Entry(chosen, LocalExecutor(chosen.table, self.rank, meeting))
        return Entry(chosen, (Counted if counted else Executor)(chosen.table, self.rank, self.wire))


def states_of(group: Any) -> list[State]:
    """All that is kept for a group."""
    return [*_states.get(group, {}).values()]


class Issued:
    """Of this process: how many calls were ``issued``; why one was ``refused`` since the last that all ranks made."""

    def __init__(self) -> None:
        self.count = 0
        self.refused = ""


issued = Issued()

F = TypeVar("F", bound=Callable[..., Any])


def noting_refusals(function: F) -> F:
    """A function that makes calls. Where it raises before it has issued one, the other ranks may have issued it: then
    this rank's next call meets theirs, and the ranks are told why."""
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        before = issued.count
        try:
            return function(*arguments, **named)
        except (TypeError, ValueError, RuntimeError, SchedError) as failure:
            if issued.count == before:
                text = failure.diagnostics[0].message if isinstance(failure, SchedError) else first_line(failure)
                issued.refused = f"{type(failure).__name__}: {text}"
            raise

    return call                                 # type: ignore[return-value]


def _every(check: str) -> bool:
    """Whether ranks compare what they mean at this call: in torch's debug mode, always."""
    return check == "every" or dist.get_debug_level() == dist.DebugLevel.DETAIL


_states: WeakKeyDictionary[Any, dict[str, State]] = WeakKeyDictionary()
_making = threading.Lock()


def state_of(group: Any, device: torch.device | None = None) -> State:
    """What is kept for a group and the kind of a device; None: of the kind that the group prefers for what has no
    tensors, the CPU if it has it. Of groups that are destroyed, nothing is kept."""
    if getattr(group, "direct", None) is not None:
        kind = "cuda"
    elif device is None:
        kind = "cpu" if torch.device("cpu") in group._device_types else "cuda"
    else:
        kind = device.type
    known = _states.get(group)
    if known is not None and kind in known:
        return known[kind]
    with _making:
        for old in [*_states]:
            if old not in c10d._world.pg_map:
                del _states[old]
        here = _states.setdefault(group, {})
        if kind not in here:
            here[kind] = State(group, kind)
        return here[kind]


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
