"""Collectives that autograd sees through: each gives a new tensor and changes none.

Gradients are those of the sum of all ranks' losses. So what a rank gets back says how that sum changes with its own
tensor, and every rank must call ``backward`` on something that depends on the result, in the same order.

The way back of a linear collective is the reversed schedule: of an all-gather a reduce-scatter, of a broadcast a
reduce, of a gather a scatter, of an all-to-all its transpose, and the other way round; of an all-reduce it is an
all-reduce, by the same schedule. Where a schedule has no reverse (SL211) ``backward`` names one for the way back. Sums
and averages are linear; through other operators no gradient goes.

The other arguments are those of :mod:`schedlang.torch.collectives`. Under ``torch.compile`` each call is a graph break.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from schedlang.fitting import Given, require_fit
from schedlang.ir.reverse import reverse
from schedlang.ir.table import Collective
from schedlang.ops import COLLECTIVES
from schedlang.schedule import Schedule
from schedlang.torch import checks
from schedlang.torch.graphs import outside_graphs
from schedlang.torch.maps import LINEAR, TRANSPOSE, Map
from schedlang.torch.state import noting_refusals


class _Linear(torch.autograd.Function):         # type: ignore[misc]        # torch is Any to mypy
    @staticmethod
    def forward(context: Any, x: torch.Tensor, through: Map) -> torch.Tensor:
        result = through(x.detach())
        if context.needs_input_grad[0]:
            context.back = through.transpose()
        return result

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _Linear.apply(gradient, context.back), None


class _NotLinear(torch.autograd.Function):      # type: ignore[misc]
    @staticmethod
    def forward(context: Any, x: torch.Tensor, through: Callable[[torch.Tensor], torch.Tensor],
                what: str) -> torch.Tensor:
        context.what = what
        return through(x.detach())

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        raise RuntimeError(f"{context.what} has no gradient: only sums and averages are linear. Give it a detached "
                           "tensor: x.detach()")


def _group(group: Any, what: str) -> Any:
    found = checks.group_of(group, what)
    if found is None:
        raise ValueError(f"{what} has no result on rank {dist.get_rank()}, which does not belong to the given group")
    return found


def _apply(x: torch.Tensor, op: str | None, group: Any, collective: str, backward: Given | None, how: dict[str, Any],
           **more: Any) -> torch.Tensor:
    checks.device(x, group)
    if x.is_complex():
        return torch.view_as_complex(_apply(torch.view_as_real(x), op, group, collective, backward, how, **more))
    through = Map(collective, group, how.pop("schedule", None), backward, op or "sum", op == "avg", **more, **how)
    if op is None or op in LINEAR:
        return _Linear.apply(x, through)
    return _NotLinear.apply(x, through, f"{collective} with {op}")


@outside_graphs
@noting_refusals
def all_reduce(tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, *, backward: Given | None = None,
               **how: Any) -> torch.Tensor:
    """The reduction of all ranks' tensors."""
    checks.tensor(tensor, "tensor")
    name = checks.operator(op, tensor, "all_reduce")
    return _apply(tensor, name, _group(group, "all_reduce"), "allreduce", backward, how)


@outside_graphs
@noting_refusals
def reduce(tensor: torch.Tensor, dst: int | None = None, op: Any = dist.ReduceOp.SUM, group: Any = None,
           group_dst: int | None = None, *, backward: Given | None = None, **how: Any) -> torch.Tensor:
    """The reduction of all ranks' tensors on the destination, zeros elsewhere."""
    checks.tensor(tensor, "tensor")
    group, name = _group(group, "reduce"), checks.operator(op, tensor, "reduce")
    root = checks.rank_in(group, dst, group_dst, "reduce")
    return _apply(tensor, name, group, "reduce", backward, how, root=root)


@outside_graphs
@noting_refusals
def broadcast(tensor: torch.Tensor, src: int | None = None, group: Any = None, group_src: int | None = None, *,
              backward: Given | None = None, **how: Any) -> torch.Tensor:
    """The source's tensor; of those of other ranks only shape and dtype matter, and their gradient is zero."""
    checks.tensor(tensor, "tensor")
    group = _group(group, "broadcast")
    root = checks.rank_in(group, src, group_src, "broadcast")
    return _apply(tensor, None, group, "broadcast", backward, how, root=root)


@outside_graphs
@noting_refusals
def all_gather_single(tensor: torch.Tensor, group: Any = None, *, backward: Given | None = None,
                      **how: Any) -> torch.Tensor:
    """All ranks' tensors, joined along the first dimension."""
    checks.tensor(tensor, "tensor")
    rows = tensor if tensor.dim() else tensor.reshape(1)
    return _apply(rows, None, _group(group, "all_gather_single"), "allgather", backward, how)


@outside_graphs
@noting_refusals
def gather(tensor: torch.Tensor, dst: int | None = None, group: Any = None, group_dst: int | None = None, *,
           backward: Given | None = None, **how: Any) -> torch.Tensor:
    """All ranks' tensors, joined along the first dimension, on the destination, zeros elsewhere."""
    checks.tensor(tensor, "tensor")
    group = _group(group, "gather")
    root = checks.rank_in(group, 0 if dst is None and group_dst is None else dst, group_dst, "gather")
    rows = tensor if tensor.dim() else tensor.reshape(1)
    return _apply(rows, None, group, "gather", backward, how, root=root)


@outside_graphs
@noting_refusals
def scatter(tensor: torch.Tensor, src: int | None = None, group: Any = None, group_src: int | None = None, *,
            backward: Given | None = None, **how: Any) -> torch.Tensor:
    """This rank's part, along the first dimension, of the source's tensor; of those of other ranks only shape and dtype
    matter, and their gradient is zero."""
    checks.tensor(tensor, "tensor")
    group = _group(group, "scatter")
    root = checks.rank_in(group, 0 if src is None and group_src is None else src, group_src, "scatter")
    _divides(tensor, group, "scatter")
    return _apply(tensor, None, group, "scatter", backward, how, root=root)


@outside_graphs
@noting_refusals
def reduce_scatter_single(tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, *,
                          backward: Given | None = None, **how: Any) -> torch.Tensor:
    """This rank's part, along the first dimension, of the reduction of all ranks' tensors."""
    checks.tensor(tensor, "tensor")
    group, name = _group(group, "reduce_scatter_single"), checks.operator(op, tensor, "reduce_scatter_single")
    _divides(tensor, group, "reduce_scatter_single")
    return _apply(tensor, name, group, "reduce_scatter", backward, how)


def _divides(tensor: torch.Tensor, group: Any, what: str) -> None:
    """A tensor of a part for each rank."""
    if not tensor.dim() or tensor.shape[0] % group.size():
        raise ValueError(f"{what}: input tensor must be the same size as output size times world size: the first "
                         f"dimension of {tuple(tensor.shape)} does not divide by {group.size()}")


@outside_graphs
@noting_refusals
def all_to_all_single(tensor: torch.Tensor, output_split_sizes: Sequence[int] | None = None,
                      input_split_sizes: Sequence[int] | None = None, group: Any = None, *,
                      backward: Given | None = None, **how: Any) -> torch.Tensor:
    """The parts that all ranks have for this one, joined along the first dimension. Split sizes: of both or of none."""
    checks.tensor(tensor, "tensor")
    group = _group(group, "all_to_all_single")
    sends = checks.splits(tensor, input_split_sizes, group.size())
    if output_split_sizes is None and input_split_sizes is None:
        return _apply(tensor, None, group, "alltoall", backward, how)
    if output_split_sizes is None or len(output_split_sizes) != group.size():
        raise RuntimeError("Number of tensor splits not equal to group size")
    receives = [n * checks.row(tensor) for n in output_split_sizes]
    return _apply(tensor, None, group, "alltoallv", backward, how, sends=sends, receives=receives)


# All ranks in one process ---------------------------------------------------------------------------------------------


class _Stacked(torch.autograd.Function):        # type: ignore[misc]
    @staticmethod
    def forward(context: Any, x: torch.Tensor, through: Schedule, back: Schedule) -> torch.Tensor:
        context.ways = back, through
        return _results(through, x.detach())

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _Stacked.apply(gradient, *context.ways), None, None


def stacked(x: torch.Tensor, schedule: Schedule, *, backward: Schedule | None = None) -> torch.Tensor:
    """A collective of all ranks in this one process: ``x[r]`` is what rank r brings, ``result[r]`` what it gets, zeros
    where it gets nothing. The same values as across processes, and the same gradients, without a process group.

    Raises SchedError: SL801 where ``x`` does not fit the schedule, SL816 where ``backward`` is not for the way
    back, and SL211 where there is none."""
    for what, one in (("schedule", schedule), ("backward", schedule if backward is None else backward)):
        if not isinstance(one, Schedule):
            raise TypeError(f"{what} must be a schedlang.Schedule, not {type(one).__name__}: "
                            f"schedlang.load(FILE, ranks={len(x)}) makes one")
    transposed = TRANSPOSE.get(schedule.collective.name)
    if backward is not None and transposed is not None:
        root = schedule.collective.root if COLLECTIVES[transposed].rooted else None
        require_fit(backward.table, Collective(transposed, root=root), schedule.ranks)
    op = schedule.collective.op
    if op is not None and op not in LINEAR:
        return _NotLinear.apply(x, functools.partial(_results, schedule), f"{schedule.collective.name} with {op}")
    if op == "avg":
        schedule, x = schedule.with_op("sum"), x / schedule.ranks
    if backward is None and x.requires_grad:
        backward = schedule if schedule.collective.name == "allreduce" else Schedule(reverse(schedule.table))
    return _Stacked.apply(x, schedule, backward)


def _results(schedule: Schedule, x: torch.Tensor) -> torch.Tensor:
    found = schedule(x.contiguous())
    if isinstance(found, list):
        like = next(one for one in found if one is not None)
        found = torch.stack([torch.zeros_like(like) if one is None else one for one in found])
    return found
