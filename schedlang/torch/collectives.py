"""The collectives of torch.distributed, with its signatures, executed as a schedule says.

What all have beside torch's arguments:

``schedule``: a file as :func:`schedlang.load` takes it (``schedlang:allreduce/ring.sched`` is a shipped one), the same
with parameters (``("ring.sched", {"channels": 2})``), or a :class:`schedlang.Schedule`; left out: a shipped one. It is
loaded for the size of the group and proved right at its first call, unless ``verify`` is False.
``check``: ``"every"``: at every call all ranks see first that they mean the same, and refuse if not (SL812); ``"off"``:
only at the first call with a schedule.

Tensors are dense and contiguous, and on a device that the group has. Errors are torch's where torch has them, with its
words; others are :class:`schedlang.SchedError`. Results have the bits that :meth:`schedlang.Schedule.__call__` gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import torch
import torch.distributed as dist

from schedlang.fitting import Given
from schedlang.torch import checks
from schedlang.torch.buffers import Scattered, apart, block, gathered, whole
from schedlang.torch.graphs import outside_graphs
from schedlang.torch.lane import Work
from schedlang.torch.state import Request, noting_refusals, state_of


class How(TypedDict, total=False):
    """What all collectives take: see above."""

    schedule: Given | None
    check: str
    verify: bool


@outside_graphs
@noting_refusals
def all_reduce(tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False, *,
               schedule: Given | None = None, check: str = "every", verify: bool = True) -> Work | None:
    """See ``torch.distributed.all_reduce``."""
    checks.tensor(tensor, "tensor")
    group = checks.group_of(group, "all_reduce")
    if group is None:
        return None
    name, data = checks.operator(op, tensor, "all_reduce"), checks.flat(tensor, group)
    request = Request("all_reduce", "allreduce", data.dtype, name, None, data.numel(), **_how(schedule, check, verify))
    return state_of(group, data.device).run(request, lambda chosen: whole(chosen, data, data), None, [tensor],
                                            async_op)


@outside_graphs
@noting_refusals
def reduce(tensor: torch.Tensor, dst: int | None = None, op: Any = dist.ReduceOp.SUM, group: Any = None,
           async_op: bool = False, group_dst: int | None = None, *, schedule: Given | None = None,
           check: str = "every", verify: bool = True) -> Work | None:
    """See ``torch.distributed.reduce``. On other ranks than the destination the tensor is not changed."""
    checks.tensor(tensor, "tensor")
    group = checks.group_of(group, "reduce")
    if group is None:
        return None
    root = checks.rank_in(group, dst, group_dst, "reduce")
    name, data = checks.operator(op, tensor, "reduce"), checks.flat(tensor, group)
    request = Request("reduce", "reduce", data.dtype, name, root, data.numel(), **_how(schedule, check, verify))
    target = data if group.rank() == root else None
    return state_of(group, data.device).run(request, lambda chosen: whole(chosen, data, target), None, [tensor],
                                            async_op)


@outside_graphs
@noting_refusals
def broadcast(tensor: torch.Tensor, src: int | None = None, group: Any = None, async_op: bool = False,
              group_src: int | None = None, *, schedule: Given | None = None, check: str = "every",
              verify: bool = True) -> Work | None:
    """See ``torch.distributed.broadcast``."""
    checks.tensor(tensor, "tensor")
    group = checks.group_of(group, "broadcast")
    if group is None:
        return None
    root, data = checks.rank_in(group, src, group_src, "broadcast"), checks.bits(checks.flat(tensor, group))
    request = Request("broadcast", "broadcast", data.dtype, None, root, data.numel(), **_how(schedule, check, verify))
    source = data if group.rank() == root else None
    return state_of(group, data.device).run(request, lambda chosen: whole(chosen, source, data), None, [tensor],
                                            async_op)


@outside_graphs
@noting_refusals
def all_gather_single(output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any = None,
                      async_op: bool = False, *, schedule: Given | None = None, check: str = "every",
                      verify: bool = True) -> Work | None:
    """See ``torch.distributed.all_gather_single``, called ``all_gather_into_tensor`` before torch 2.13."""
    checks.tensor(input_tensor, "input_tensor")
    checks.tensor(output_tensor, "output_tensor")
    group = checks.group_of(group, "all_gather_single")
    if group is None:
        return None
    if output_tensor.dtype != input_tensor.dtype:
        raise TypeError("output tensor must have the same type as input tensor")
    checks.blocks(output_tensor, input_tensor, group.size(),
                  "output tensor size must be equal to world_size times input tensor size")
    output, source = (checks.bits(checks.flat(t, group)) for t in (output_tensor, input_tensor))
    request = Request("all_gather_single", "allgather", output.dtype, elements=output.numel(),
                      **_how(schedule, check, verify))
    rank = group.rank()
    return state_of(group, output.device).run(request, lambda chosen: gathered(chosen, rank, source, output), None,
                                              [output_tensor], async_op, [input_tensor])


@outside_graphs
@noting_refusals
def reduce_scatter_single(output: torch.Tensor, input: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None,
                          async_op: bool = False, *, schedule: Given | None = None, check: str = "every",
                          verify: bool = True) -> Work | None:
    """See ``torch.distributed.reduce_scatter_single``, called ``reduce_scatter_tensor`` before torch 2.13."""
    checks.tensor(output, "output")
    checks.tensor(input, "input")
    group = checks.group_of(group, "reduce_scatter_single")
    if group is None:
        return None
    if output.dtype != input.dtype:
        raise TypeError("input tensor must be the same type as the output tensor.")
    checks.blocks(input, output, group.size(), "input tensor must be the same size as output size times world size")
    name = checks.operator(op, input, "reduce_scatter_single")
    target, source = checks.flat(output, group), checks.flat(input, group)
    request = Request("reduce_scatter_single", "reduce_scatter", source.dtype, name, elements=source.numel(),
                      **_how(schedule, check, verify))
    parts = Scattered(group.rank(), group.size(), source, target)
    return state_of(group, source.device).run(request, parts.buffers, parts.finish, [output], async_op, [input])


@outside_graphs
@noting_refusals
def all_gather(tensor_list: list[torch.Tensor], tensor: torch.Tensor, group: Any = None, async_op: bool = False, *,
               schedule: Given | None = None, check: str = "every", verify: bool = True) -> Work | None:
    """See ``torch.distributed.all_gather``. Where the tensors of the list have different sizes it is an all-gather with
    counts, and needs a schedule for `allgatherv`; else one for `allgather`."""
    checks.tensors(tensor_list, "tensor_list")
    checks.tensor(tensor, "tensor")
    checks.same_dtype(tensor, *tensor_list)
    group = checks.group_of(group, "all_gather")
    if group is None:
        return None
    rank, size = group.rank(), group.size()
    checks.parts(tensor_list, tensor, size, rank, "all_gather", "output")
    source, into = checks.bits(checks.flat(tensor, group)), [checks.bits(checks.flat(t, group)) for t in tensor_list]
    sizes = [part.numel() for part in into]
    output = source.new_empty(sum(sizes))
    if len(set(sizes)) > 1:
        request = Request("all_gather", "allgatherv", output.dtype, sends=[source.numel()] * size, receives=sizes,
                          **_how(schedule, check, verify))
    else:
        request = Request("all_gather", "allgather", output.dtype, elements=output.numel(),
                          **_how(schedule, check, verify))

    def deal() -> None:
        for part, piece in zip(into, output.split(sizes), strict=True):
            part.copy_(piece)

    return state_of(group, source.device).run(request, lambda chosen: gathered(chosen, rank, source, output, sizes),
                                              deal, tensor_list, async_op, [tensor, output])


@outside_graphs
@noting_refusals
def reduce_scatter(output: torch.Tensor, input_list: list[torch.Tensor], op: Any = dist.ReduceOp.SUM,
                   group: Any = None, async_op: bool = False, *, schedule: Given | None = None, check: str = "every",
                   verify: bool = True) -> Work | None:
    """See ``torch.distributed.reduce_scatter``. Where the tensors of the list have different sizes it is a
    reduce-scatter with counts, and needs a schedule for `reduce_scatterv`; else one for `reduce_scatter`."""
    checks.tensor(output, "output")
    checks.tensors(input_list, "input_list")
    checks.same_dtype(output, *input_list)
    group = checks.group_of(group, "reduce_scatter")
    if group is None:
        return None
    rank, size = group.rank(), group.size()
    checks.parts(input_list, output, size, rank, "reduce_scatter", "input")
    name = checks.operator(op, output, "reduce_scatter")
    target, sources = checks.flat(output, group), [checks.flat(t, group) for t in input_list]
    sizes = [part.numel() for part in sources]
    if len(set(sizes)) > 1:
        request = Request("reduce_scatter", "reduce_scatterv", target.dtype, name, sends=sizes,
                          receives=[target.numel()] * size, **_how(schedule, check, verify))
    else:
        request = Request("reduce_scatter", "reduce_scatter", target.dtype, name, elements=sum(sizes),
                          **_how(schedule, check, verify))
    blocks = Scattered(rank, size, sources, target, sizes)
    return state_of(group, target.device).run(request, blocks.buffers, blocks.finish, [output], async_op, input_list)


@outside_graphs
@noting_refusals
def all_to_all_single(output: torch.Tensor, input: torch.Tensor, output_split_sizes: Sequence[int] | None = None,
                      input_split_sizes: Sequence[int] | None = None, group: Any = None, async_op: bool = False, *,
                      schedule: Given | None = None, check: str = "every", verify: bool = True) -> Work | None:
    """See ``torch.distributed.all_to_all_single``. With split sizes it is an all-to-all with counts, and needs a
    schedule for `alltoallv`; without, all parts are equal, and it needs one for `alltoall`."""
    checks.tensor(output, "output")
    checks.tensor(input, "input")
    group = checks.group_of(group, "all_to_all_single")
    if group is None:
        return None
    checks.same_dtype(output, input)
    size = group.size()
    sends, receives = checks.splits(input, input_split_sizes, size), checks.splits(output, output_split_sizes, size)
    target, source = (checks.bits(checks.flat(t, group)) for t in (output, input))
    if output_split_sizes or input_split_sizes:
        request = Request("all_to_all_single", "alltoallv", source.dtype, sends=sends, receives=receives,
                          **_how(schedule, check, verify))
    else:
        if target.numel() != source.numel():
            raise RuntimeError(f"output and input have {target.numel()} and {source.numel()} elements, which without "
                               "split sizes must be equal")
        request = Request("all_to_all_single", "alltoall", source.dtype, elements=source.numel(),
                          **_how(schedule, check, verify))
    return state_of(group, source.device).run(
        request, lambda _: {"input": apart(source, target), "output": target}, None, [output], async_op, [input])


@outside_graphs
@noting_refusals
def gather(tensor: torch.Tensor, gather_list: list[torch.Tensor] | None = None, dst: int | None = None,
           group: Any = None, async_op: bool = False, group_dst: int | None = None, *, schedule: Given | None = None,
           check: str = "every", verify: bool = True) -> Work | None:
    """See ``torch.distributed.gather``."""
    checks.tensor(tensor, "tensor")
    parts = gather_list or []
    checks.tensors(parts, "gather_list")
    checks.same_dtype(tensor, *parts)
    group = checks.group_of(group, "gather")
    if group is None:
        return None
    root = checks.rank_in(group, 0 if dst is None and group_dst is None else dst, group_dst, "gather")
    here = group.rank() == root
    checks.only_there(parts, here, "gather_list", "destination")
    if here:
        checks.listed(parts, tensor, group.size(), "gather", "output")
    source, into = checks.bits(checks.flat(tensor, group)), [checks.bits(checks.flat(p, group)) for p in parts]
    output = source.new_empty(source.numel() * group.size()) if here else None
    request = Request("gather", "gather", source.dtype, None, root, source.numel() * group.size(),
                      **_how(schedule, check, verify))

    def deal() -> None:
        if output is not None:
            for r, part in enumerate(into):
                part.copy_(block(output, len(into), r))

    rank, lent = group.rank(), [tensor] if output is None else [tensor, output]
    return state_of(group, source.device).run(request, lambda chosen: gathered(chosen, rank, source, output), deal,
                                              parts or [tensor], async_op, lent)


@outside_graphs
@noting_refusals
def scatter(tensor: torch.Tensor, scatter_list: list[torch.Tensor] | None = None, src: int | None = None,
            group: Any = None, async_op: bool = False, group_src: int | None = None, *, schedule: Given | None = None,
            check: str = "every", verify: bool = True) -> Work | None:
    """See ``torch.distributed.scatter``."""
    checks.tensor(tensor, "tensor")
    parts = scatter_list or []
    checks.tensors(parts, "scatter_list")
    checks.same_dtype(tensor, *parts)
    group = checks.group_of(group, "scatter")
    if group is None:
        return None
    root = checks.rank_in(group, 0 if src is None and group_src is None else src, group_src, "scatter")
    here = group.rank() == root
    checks.only_there(parts, here, "scatter_list", "source")
    if here:
        checks.listed(parts, tensor, group.size(), "scatter", "input")
    target, dealt = checks.bits(checks.flat(tensor, group)), [checks.bits(checks.flat(p, group)) for p in parts]
    request = Request("scatter", "scatter", target.dtype, None, root, target.numel() * group.size(),
                      **_how(schedule, check, verify))
    blocks = Scattered(group.rank(), group.size(), dealt if here else None, target)
    return state_of(group, target.device).run(request, blocks.buffers, blocks.finish, [tensor], async_op, dealt)


@outside_graphs
@noting_refusals
def barrier(group: Any = None, async_op: bool = False, device_ids: list[int] | None = None, *,
            schedule: Given | None = None, check: str = "every", verify: bool = True) -> Work | None:
    """See ``torch.distributed.barrier``."""
    group = checks.group_of(group, "barrier")
    if group is None:
        return None
    request = Request("barrier", "barrier", torch.uint8, elements=0, **_how(schedule, check, verify))
    state = state_of(group)
    return state.run(request, lambda _: {}, state.lane.synchronize, [], async_op)


def all_gather_into_tensor(output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any = None,
                           async_op: bool = False, **how: Any) -> Work | None:
    """See :func:`all_gather_single`."""
    return all_gather_single(output_tensor, input_tensor, group, async_op, **how)


def reduce_scatter_tensor(output: torch.Tensor, input: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None,
                          async_op: bool = False, **how: Any) -> Work | None:
    """See :func:`reduce_scatter_single`."""
    return reduce_scatter_single(output, input, op, group, async_op, **how)


def _how(schedule: Given | None, check: str, verify: bool) -> How:
    return {"schedule": schedule, "check": check, "verify": verify}
