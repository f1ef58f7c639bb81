"""The process group `schedlang` of torch.distributed: its collectives by schedules, the rest by an inner backend.

A process group in Python takes the place of torch's own as a whole. torch's C++ code (DDP, functional collectives)
reaches the methods that have a trampoline, most of those below; for the rest it uses the inner backend, which is
therefore registered as the group's.
"""

from __future__ import annotations

import json
from collections import Counter, namedtuple
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import torch
import torch.distributed as dist

from schedlang.diagnostics import SchedError, error
from schedlang.fitting import Given
from schedlang.torch import checks, collectives
from schedlang.torch.graphs import outside_graphs
from schedlang.torch.lane import Work
from schedlang.torch.select import Options
from schedlang.torch.state import state_of, states_of

Call = Callable[[bool], "Work | None"]
"""A call, asynchronous or not."""


class Group(dist.ProcessGroup):     # type: ignore[misc]      # torch is Any to mypy
    """See the module. ``inner``: the backend below. ``direct``: over NCCL, how messages go to it. ``passed``: how many
    calls of each function went to it."""

    def __init__(self, made: Any, options: Options) -> None:
        super().__init__(made.group_rank, made.group_size)
        self.options = options
        self.passed: Counter[str] = Counter()
        # A store and a name serve again where a group is destroyed and made anew: what was said then is not read now.
        life = made.store.add(f"schedlang/lives/{made.group_rank}", 1)
        made.store = dist.PrefixStore(f"schedlang/{life}", made.store)
        _agree(made, options)
        device, kind, self.inner = _inner(made, options)
        self.direct = Direct(self.inner) if options.inner == "nccl" else None
        self._register_backend(torch.device(device), kind, self.inner)
        self._set_default_backend(kind)

    def getBackendName(self) -> str:
        """The name that ``torch.distributed`` knows it by."""
        return "schedlang"

    def routes(self) -> list[str]:
        """The selection table in words, and which functions went to the inner backend so far, how often."""
        passed = [f"{name}: the inner backend, {self.options.inner}, {count} time{'s' * (count != 1)}"
                  for name, count in sorted(self.passed.items())]
        local = [] if self.options.local is None else [f"on one machine: {self.options.local}"]
        apart = [f"by messages after all: {state.apart}" for state in states_of(self) if state.apart]
        return [*map(str, self.options.table), *local, *apart, *passed]

    def shutdown(self) -> None:
        """What ``destroy_process_group`` calls: the end of the group, once all that was issued is over."""
        for state in states_of(self):
            state.lane.drain()
        super().shutdown()

    # What schedules do ------------------------------------------------------------------------------------------------

    @outside_graphs
    def allreduce(self, tensors: Any, opts: Any) -> Any:
        return self._reduced(tensors if isinstance(tensors, list) else [tensors], opts)

    @outside_graphs
    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        return self._reduced(tensors, opts)

    def _reduced(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        back = _Back()
        return self._all(opts, [self._all_reduce(back.of(tensor), opts) for tensor in tensors], tensors, back)

    def _all_reduce(self, tensor: torch.Tensor, opts: Any) -> Call:
        given = self._given("allreduce", tensor)
        if given is None or _only_inner(opts, tensor):
            return self._pass("all_reduce", lambda: self.inner.allreduce([tensor], opts), [tensor],
                              op=opts.reduceOp)
        return lambda later: collectives.all_reduce(tensor, opts.reduceOp, self, later, **self._how(given))

    @outside_graphs
    def broadcast(self, tensors: Any, opts: Any) -> Any:
        tensor, = tensors = tensors if isinstance(tensors, list) else [tensors]
        given, back = self._given("broadcast", tensor), _Back()
        dense = back.of(tensor)
        if given is None:
            call = self._pass("broadcast", lambda: self.inner.broadcast([dense], opts), [dense], root=opts.rootRank)
        else:
            def call(later: bool) -> Work | None:
                return collectives.broadcast(dense, None, self, later, opts.rootRank, **self._how(given))
        return self._all(opts, [call], tensors, back)

    @outside_graphs
    def reduce(self, tensors: Any, opts: Any) -> Any:
        tensor, = tensors = tensors if isinstance(tensors, list) else [tensors]
        given, back = self._given("reduce", tensor), _Back()
        dense = back.of(tensor)
        if given is None or _only_inner(opts, tensor):
            call = self._pass("reduce", lambda: self.inner.reduce([dense], opts), [dense], (), opts.rootRank,
                              opts.reduceOp)
        else:
            def call(later: bool) -> Work | None:
                return collectives.reduce(dense, None, opts.reduceOp, self, later, opts.rootRank, **self._how(given))
        return self._all(opts, [call], tensors, back)

    @outside_graphs
    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Any:
        return self._gathered([output], [input], opts)

    @outside_graphs
    def all_gather_single_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any) -> Any:
        return self._gathered(outputs, inputs, opts)

    def _gathered(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any) -> Any:
        back = _Back()
        calls = [self._gather(back.of(output), input.contiguous(), opts)
                 for output, input in zip(outputs, inputs, strict=True)]
        return self._all(opts, calls, outputs, back)

    def _gather(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Call:
        given = self._given("allgather", output)
        if given is None:
            return self._pass("all_gather_single", lambda: self.inner._allgather_base(output, input, opts), [output],
                              [input])
        return lambda later: collectives.all_gather_single(output, input, self, later, **self._how(given))

    @outside_graphs
    def allgather(self, output_lists: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> Any:
        outputs, input, back = output_lists[0], inputs[0].contiguous(), _Back()
        parts = [back.of(output) for output in outputs]
        given = self._given_of_list("allgather", outputs)
        if given is None:
            call = self._pass("all_gather", lambda: self.inner.allgather([parts], [input], opts), [], [input, *parts])
        else:
            def call(later: bool) -> Work | None:
                return collectives.all_gather(parts, input, self, later, **self._how(given))
        return self._all(opts, [call], outputs, back)

    @outside_graphs
    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Any:
        return self._scattered([output], [input], opts)

    @outside_graphs
    def reduce_scatter_single_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor],
                                        opts: Any) -> Any:
        return self._scattered(outputs, inputs, opts)

    def _scattered(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any) -> Any:
        back = _Back()
        calls = [self._scatter(back.of(output), input.contiguous(), opts)
                 for output, input in zip(outputs, inputs, strict=True)]
        return self._all(opts, calls, outputs, back)

    def _scatter(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Call:
        given = self._given("reduce_scatter", input)
        if given is None or _only_inner(opts, input):
            return self._pass("reduce_scatter_single", lambda: self.inner._reduce_scatter_base(output, input, opts),
                              [input], [output], op=opts.reduceOp)
        return lambda later: collectives.reduce_scatter_single(output, input, opts.reduceOp, self, later,
                                                               **self._how(given))

    @outside_graphs
    def reduce_scatter(self, outputs: list[torch.Tensor], input_lists: list[list[torch.Tensor]], opts: Any) -> Any:
        back = _Back()
        output, inputs = back.of(outputs[0]), [one.contiguous() for one in input_lists[0]]
        given = self._given_of_list("reduce_scatter", inputs)
        if given is None or _only_inner(opts, output):
            call = self._pass("reduce_scatter", lambda: self.inner.reduce_scatter([output], [inputs], opts), [],
                              [output, *inputs], op=opts.reduceOp)
        else:
            def call(later: bool) -> Work | None:
                return collectives.reduce_scatter(output, inputs, opts.reduceOp, self, later, **self._how(given))
        return self._all(opts, [call], outputs, back)

    @outside_graphs
    def all_to_all_single(self, output: torch.Tensor, input: torch.Tensor, output_splits: list[int],
                          input_splits: list[int], opts: Any) -> Any:
        back = _Back()
        target, source, uneven = back.of(output), input.contiguous(), bool(output_splits or input_splits)
        given = self._given("alltoallv" if uneven else "alltoall", input)
        if given is None:
            call = self._pass("all_to_all_single", lambda: self.inner.alltoall_base(
                target, source, output_splits, input_splits, opts), [], [source, target])
        else:
            def call(later: bool) -> Work | None:
                return collectives.all_to_all_single(target, source, output_splits, input_splits, self, later,
                                                     **self._how(given))
        return self._all(opts, [call], [output], back)

    @outside_graphs
    def barrier(self, opts: Any) -> Any:
        given = self.options.choose("barrier", 0, self.size())
        if given is None:
            return self._all(opts, [self._pass("barrier", lambda: self.inner.barrier(opts), [])], [])
        return self._all(opts, [lambda later: collectives.barrier(self, later, **self._how(given))], [])

    # What torch called them before 2.13
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # What the inner backend does, after what was issued before -------------------------------------------------------

    @outside_graphs
    def gather(self, output_lists: Any, inputs: Any, opts: Any) -> Any:
        results = [one for outputs in output_lists for one in outputs]
        return self._all(opts, [self._pass("gather", lambda: self.inner.gather(output_lists, inputs, opts), inputs,
                                           results, root=opts.rootRank)], results)

    @outside_graphs
    def scatter(self, outputs: Any, input_lists: Any, opts: Any) -> Any:
        return self._all(opts, [self._pass("scatter", lambda: self.inner.scatter(outputs, input_lists, opts), outputs,
                                           [one for inputs in input_lists for one in inputs], root=opts.rootRank)],
                         outputs)

    @outside_graphs
    def alltoall(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        return self._all(opts, [self._pass("all_to_all", lambda: self.inner.alltoall(outputs, inputs, opts), [],
                                           [*inputs, *outputs])], outputs)

    # Messages of people's own, beside the order of collectives --------------------------------------------------------

    @outside_graphs
    def send(self, tensors: Any, rank: int, tag: int) -> Any:
        self.passed["send"] += 1
        return self.inner.send(tensors, rank, tag)

    @outside_graphs
    def recv(self, tensors: Any, rank: int, tag: int) -> Any:
        self.passed["recv"] += 1
        return self.inner.recv(tensors, rank, tag)

    @outside_graphs
    def recv_anysource(self, tensors: Any, tag: int) -> Any:
        self.passed["recv_anysource"] += 1
        return self.inner.recv_anysource(tensors, tag)

    # ------------------------------------------------------------------------------------------------------------------

    def _given(self, collective: str, *tensors: torch.Tensor) -> Given | None:
        size = sum(one.numel() * one.element_size() for one in tensors)
        return self.options.choose(collective, size, self.size())

    def _given_of_list(self, collective: str, tensors: list[torch.Tensor]) -> Given | None:
        """Of a collective with a list of a tensor for each rank."""
        alike = len({one.numel() for one in tensors}) == 1
        return self._given(collective if alike else collective + "v", *tensors)

    def _how(self, given: Given) -> dict[str, Any]:
        return {"schedule": given, "check": self.options.check, "verify": self.options.verify}

    def _pass(self, what: str, start: Callable[[], Any], alike: list[torch.Tensor],
              others: Sequence[torch.Tensor] = (), root: int | None = None, op: Any = None) -> Call:
        """A call of the inner backend, in its turn. ``alike``: those of its tensors that have as many elements on all
        ranks; ``others``: the rest."""
        self.passed[what] += 1
        state = state_of(self)
        job = state.passing(what, self.options.check, alike, others, lambda: start().wait(), root,
                            "" if op is None else checks.shown(op).lower())

        def call(later: bool) -> Work | None:
            if later:
                return state.lane.issue(job, what, [], [*alike, *others])
            state.lane.run(job)
            return None

        return call

    def _all(self, opts: Any, calls: Sequence[Call], results: list[torch.Tensor], back: _Back | None = None) -> Work:
        """One piece of work of several calls, the results put where they belong in the end."""
        if not getattr(opts, "asyncOp", True):
            for call in calls:
                call(False)
            if back is not None:
                back.copy()
            return Work("collective", results, over=True)
        lane = state_of(self).lane
        works = [work for call in calls if (work := call(True)) is not None]

        def finish() -> None:
            for work in works:
                work.wait()
            if back is not None:
                back.copy()

        if len(works) == 1 and (back is None or not back.pairs):
            works[0].results = results
            return works[0]
        return lane.issue(finish, "collective", results)


class Direct:
    """The part of torch.distributed that messages over NCCL need, with a backend itself in place of a group: a group in
    Python is not asked to coalesce messages, and its own sums go by schedules."""

    P2POp = namedtuple("P2POp", ["sends", "tensor", "peer", "group"])
    isend, irecv = True, False

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def get_rank(self, _: Any) -> int:
        return int(self._backend.rank())

    def get_world_size(self, _: Any) -> int:
        return int(self._backend.size())

    def get_global_rank(self, _: Any, rank: int) -> int:
        """The backend knows ranks of the group only."""
        return rank

    def all_reduce(self, tensor: torch.Tensor, group: Any) -> None:
        """The sum, on the current stream."""
        self._backend.allreduce([tensor], dist.AllreduceOptions()).wait()

    def batch_isend_irecv(self, messages: Sequence[Any]) -> list[Any]:
        """All messages as one step."""
        self._backend._start_coalescing()
        for sends, tensor, peer, _ in messages:
            (self._backend.send if sends else self._backend.recv)([tensor], peer, 0)
        return [self._backend._end_coalescing()]


def _only_inner(opts: Any, tensor: torch.Tensor) -> bool:
    """What no schedule does: sums that NCCL scales, and sparse tensors."""
    return opts.reduceOp == dist.ReduceOp.PREMUL_SUM or tensor.layout is not torch.strided


class _Back:
    """Results that come in other memory than they are wanted in: ``pairs`` of where and from where."""

    def __init__(self, pairs: list[tuple[torch.Tensor, torch.Tensor]] | None = None) -> None:
        self.pairs = pairs or []

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor, or dense memory in its place."""
        if tensor.layout is not torch.strided or tensor.is_contiguous():
            return tensor
        dense = tensor.contiguous()
        self.pairs.append((tensor, dense))
        return dense

    def copy(self) -> None:
        """The results to where they are wanted."""
        for tensor, dense in self.pairs:
            tensor.detach().copy_(dense)


def _agree(made: Any, options: Options) -> None:
    """Raises SchedError (SL812) on all ranks where not all have the same options. The first rank compares."""
    mine, key = options.words(), "schedlang/options/{}"
    if made.group_rank:
        made.store.set(key.format(made.group_rank), json.dumps(mine))
    else:
        verdict = ""
        for rank in range(1, made.group_size):
            theirs = json.loads(made.store.get(key.format(rank)))
            if theirs != mine and not verdict:
                has, instead = next(pair for pair in zip_longest(mine, theirs) if pair[0] != pair[1])
                verdict = (f"the ranks do not agree on the options of the group: rank 0 has {has or 'no more rules'}; "
                           f"rank {rank} has {instead or 'no more rules'}")
        made.store.set(key.format(0), verdict)
    found = made.store.get(key.format(0)).decode()
    if found:
        raise SchedError(error("SL812", found, help="give all ranks the same pg_options"))


def _inner(made: Any, options: Options) -> tuple[str, Any, Any]:
    """The device, the type and the inner backend of a group."""
    kinds = dist.ProcessGroup.BackendType
    if options.inner == "gloo":
        gloo = dist.ProcessGroupGloo(made.store, made.group_rank, made.group_size, made.timeout)
        _named(gloo.options, made)
        gloo._set_sequence_number_for_group()
        return "cpu", kinds.GLOO, gloo
    if not dist.is_nccl_available():
        raise RuntimeError("Distributed package doesn't have NCCL built in")
    nccl_options = dist.ProcessGroupNCCL.Options()
    nccl_options._timeout = made.timeout
    _named(nccl_options, made)
    nccl = dist.ProcessGroupNCCL(made.store, made.group_rank, made.group_size, nccl_options)
    nccl._set_sequence_number_for_group()
    return "cuda", kinds.NCCL, nccl


def _named(options: Any, made: Any) -> None:
    """Which group the inner backend is of, for what torch logs."""
    options.global_ranks_in_group, options.group_name = made.global_ranks_in_group, made.group_id


def create(made: Any, options: Any) -> Group:
    """What torch.distributed calls for a new group."""
    if options is None:
        first = dist.GroupMember.WORLD
        options = first.options if isinstance(first, Group) else Options()
    if not isinstance(options, Options):
        raise TypeError(f"pg_options must be schedlang.torch.Options, not {type(options)}")
    return Group(made, options)


def register() -> None:
    """Make the backend known to torch.distributed."""
    if "SCHEDLANG" not in dist.Backend._plugins:
        dist.Backend.register_backend("schedlang", create, extended_api=True, devices=["cpu", "cuda"])
