"""What torch.distributed demands of its arguments, demanded in its own words and with its own exceptions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from schedlang.running.dtypes import DTYPES

OPERATORS = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "prod": dist.ReduceOp.PRODUCT,
             "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX, "band": dist.ReduceOp.BAND, "bor": dist.ReduceOp.BOR,
             "bxor": dist.ReduceOp.BXOR}
"""What torch calls the operators of schedules."""


def group_of(group: Any, what: str) -> Any:
    """The process group that is meant; None, with torch's warning, where this rank is not in it."""
    if group is None or group is dist.GroupMember.WORLD:
        return c10d._get_default_group()
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        warnings.warn(f"Running {what} on global rank {dist.get_rank()} which does not belong to the given group.",
                      stacklevel=4)
        return None
    return group


def tensor(value: Any, name: str) -> None:
    """An argument that must be a tensor."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor\n"
                        f"             but got {type(value)} instead.")


def tensors(value: Any, name: str) -> None:
    """An argument that must be a list of tensors."""
    if not isinstance(value, list):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n"
                        f"             but got {type(value)} instead.")
    if not all(isinstance(one, torch.Tensor) for one in value):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n"
                        f"             but got {type(value)} with elements of type {[type(one) for one in value]}.")


def operator(op: Any, value: torch.Tensor, what: str) -> str:
    """The schedule's name of a ``torch.distributed.ReduceOp`` for tensors of one dtype."""
    name = next((name for name, known in OPERATORS.items() if op == known), None)
    if name is None:
        if not isinstance(op, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
            raise TypeError(f"op must be a torch.distributed.ReduceOp, not {type(op)}")
        raise RuntimeError(f"Cannot use ReduceOp.{shown(op)} with a schedule")
    if name in ("band", "bor", "bxor") and (value.is_floating_point() or value.is_complex()):
        raise RuntimeError(f"Cannot use ReduceOp.{shown(op)} with non-integral dtype")
    if value.is_complex() and name not in ("sum", "avg"):
        raise ValueError(f"{what} does not support ReduceOp.{shown(op)} on complex tensors")
    return name


def shown(op: Any) -> str:
    """What torch calls a ``torch.distributed.ReduceOp``."""
    return next((name for name, known in dist.ReduceOp.RedOpType.__members__.items() if op == known), "unknown")


def flat(value: torch.Tensor, group: Any) -> torch.Tensor:
    """The elements of a tensor that a group can communicate, in one dimension and in its own memory; of complex numbers
    the parts, outside of any autograd graph."""
    if value.layout is not torch.strided:
        raise ValueError("Tensors must be dense")
    if not value.is_contiguous():
        raise ValueError("Tensors must be contiguous")
    if value.is_neg():              # the memory holds other numbers than the tensor
        raise ValueError("Tensors must not be lazily negated: use resolve_neg()")
    device(value, group)
    value = value.detach()
    return (torch.view_as_real(value) if value.is_complex() else value).view(-1)


def device(value: torch.Tensor, group: Any) -> None:
    """A tensor on a device that the group communicates from, by a backend that takes messages from there."""
    kind = value.device.type
    if torch.device(kind) not in group._device_types:
        raise RuntimeError(f"No backend type associated with device type {kind}")
    if kind != "cpu" and group._get_backend(torch.device(kind)).name() != "nccl":
        name = group._get_backend(torch.device(kind)).name()
        raise RuntimeError(f"schedules move tensors on {kind} over nccl, and this group has {name} for them")


def bits(value: torch.Tensor) -> torch.Tensor:
    """The same memory in a dtype that schedules run on, for what only moves."""
    if str(value.dtype).removeprefix("torch.") in DTYPES:
        return value
    return value.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}.get(value.element_size(), torch.int64))


def same_dtype(*values: torch.Tensor) -> None:
    """Tensors of one dtype."""
    for value in values[1:]:
        if value.dtype != values[0].dtype:
            raise ValueError(f"Invalid usage of tensors with different dtypes: found {values[0].dtype} and "
                             f"{value.dtype}")


def blocks(long: torch.Tensor, short: torch.Tensor, ranks: int, words: str) -> None:
    """A tensor that is a block a rank; ``words``: what torch says where it is not."""
    if long.numel() != ranks * short.numel():
        raise ValueError(f"{words}: {long.numel()} elements and {ranks} x {short.numel()}")


def rank_in(group: Any, rank: int | None, group_rank: int | None, what: str) -> int:
    """The rank within the group of what is given as a global rank or as one within it."""
    found = c10d._canonicalize_group_rank(group, rank, group_rank)
    if not 0 <= found < group.size():
        raise RuntimeError(f"{what}: invalid root rank: {found}")
    return int(found)


def splits(value: torch.Tensor, sizes: Sequence[int] | None, ranks: int) -> list[int]:
    """How many elements of a tensor are for, or from, each rank; ``sizes`` count along its first dimension."""
    rows = value.shape[0] if value.dim() else value.numel()
    if not sizes:
        if rows % ranks:
            raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
        sizes = [rows // ranks] * ranks
    if len(sizes) != ranks:
        raise RuntimeError("Number of tensor splits not equal to group size")
    if sum(sizes) != rows or min(sizes) < 0:
        raise RuntimeError("Split sizes doesn't match total dim 0 size")
    return [int(size) * row(value) for size in sizes]


def row(value: torch.Tensor) -> int:
    """How many elements one step along the first dimension has, a complex number counting for two."""
    return math.prod(value.shape[1:]) * (2 if value.is_complex() else 1)


def only_there(parts: list[torch.Tensor], here: bool, name: str, side: str) -> None:
    """A list that one rank brings, and no other."""
    if here and not parts:
        raise ValueError(f"Argument ``{name}`` must be specified on {side} rank.")
    if parts and not here:
        raise ValueError(f"Argument ``{name}`` must NOT be specified on non-{side} ranks.")


def listed(values: list[torch.Tensor], like: torch.Tensor, ranks: int, what: str, side: str) -> None:
    """A list with a tensor for each rank, all alike."""
    listed_for(values, ranks, what, side)
    for index, value in enumerate(values):
        if value.shape != like.shape:
            raise RuntimeError(f"{what}: invalid tensor size at index {index} (expected {tuple(like.shape)}, got "
                               f"{tuple(value.shape)})")


def listed_for(values: list[torch.Tensor], ranks: int, what: str, side: str) -> None:
    """A list with as many tensors as there are ranks."""
    if len(values) != ranks:
        raise RuntimeError(f"{what}: Incorrect {side} list size {len(values)}. {side.capitalize()} list size should be "
                           f"{ranks}, same as size of the process group.")


def parts(values: list[torch.Tensor], own: torch.Tensor, ranks: int, rank: int, what: str, side: str) -> None:
    """A list with a tensor for each rank, of any sizes, that of this rank as long as its other tensor."""
    listed_for(values, ranks, what, side)
    if values[rank].numel() != own.numel():
        raise RuntimeError(f"{what}: invalid tensor size at index {rank} (expected {tuple(own.shape)}, got "
                           f"{tuple(values[rank].shape)})")
