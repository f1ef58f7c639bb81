"""What an emitted file computes with: operators, sizes, and how a call begins. Its text, from the line of dashes on, is
copied into each of them; nothing imports it. What it takes from the file round it is in engine.py.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

from schedlang.backends.torch.emit.engine import Call

# ---------------------------------------------------------------------------------------------------------------------
# Operators and sizes, and how a call begins.

UNSIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}  # torch only stores these


def combine(op: str | None, into: torch.Tensor, value: torch.Tensor) -> None:
    """into = into (op) value, rounded to the dtype."""
    if into.dtype in UNSIGNED:  # sums, products and bits are the same
        into, value = into.view(UNSIGNED[into.dtype]), value.view(UNSIGNED[into.dtype])
    if op in ("sum", "avg"):
        into.add_(value)
    elif op == "prod":
        into.mul_(value)
    elif op == "min":
        torch.minimum(into, value, out=into)
    elif op == "max":
        torch.maximum(into, value, out=into)
    elif op == "band":
        into.bitwise_and_(value)
    elif op == "bor":
        into.bitwise_or_(value)
    else:
        into.bitwise_xor_(value)


def check(op: str, dtype: torch.dtype) -> None:
    """Refuse what has no meaning, or what torch cannot compute, before anything moves."""
    if op not in ("sum", "prod", "min", "max", "avg", "band", "bor", "bxor"):
        raise ValueError(f"there is no operator {op}")
    bits = op in ("band", "bor", "bxor")
    sums = op in ("sum", "prod", "avg")
    if (dtype.is_floating_point and bits) or (dtype == torch.bool and sums) or (dtype.is_complex and not sums):
        raise TypeError(f"{op} is not defined for {dtype}")
    narrow = dtype.is_floating_point and dtype.itemsize < 2  # float8 and below: they can be moved
    if narrow or (dtype in UNSIGNED and op in ("min", "max", "avg")):
        raise TypeError(f"torch cannot compute {op} of {dtype}")


def divide(values: torch.Tensor, by: int) -> None:
    """What turns a sum into an average, once, at the end: floats round, integers truncate toward zero."""
    with torch.no_grad():
        if values.is_floating_point() or values.is_complex():
            values.div_(by)
        else:
            values.copy_(values.long().div_(by, rounding_mode="trunc"))


def execute(group: Any, op: str | None, tensors: dict[str, Any], starts: dict[str, list[int]]) -> None:
    """Run the schedule on tensors by buffer, cut into chunks as ``starts`` says."""
    there = [tensor for tensor in tensors.values() if tensor is not None]
    if any(tensor.dtype != there[0].dtype or tensor.device != there[0].device for tensor in there):
        raise ValueError("tensors must have one dtype and one device")
    if op is not None:
        check(op, there[0].dtype)
    Call(group, op, tensors, starts, there[0].device).run()


def execute_padded(group: Any, op: str | None, tensors: dict[str, Any], starts: dict[str, list[int]],
                   room: int) -> None:
    """The same for a schedule that moves values between chunks of different lengths: where there are such, it works on
    copies in which every chunk has the room of the longest."""
    even = {name: even_chunks(len(cuts) - 1, room) for name, cuts in starts.items()}
    if even == starts:
        return execute(group, op, tensors, starts)
    padded = {name: None if tensor is None else tensor.new_zeros(even[name][-1]) for name, tensor in tensors.items()}
    pairs = [(tensor[a:b], copied[at : at + b - a])
             for name, tensor in tensors.items() if tensor is not None and (copied := padded[name]) is not None
             for at, (a, b) in zip(even[name][:-1], itertools.pairwise(starts[name]), strict=True)]
    for own, copied in pairs:
        copied.copy_(own)
    execute(group, op, padded, even)
    for own, copied in pairs:
        own.copy_(copied)


def flat(tensor: Any) -> Any:
    """A tensor as one dimension of elements, without its history."""
    if tensor is None:
        return None
    if not tensor.is_contiguous():
        raise ValueError("Tensors must be contiguous")
    return tensor.detach().view(-1)


def sized(tensor: Any, elements: int, name: str) -> Any:
    """The tensor, flat, if it has so many elements."""
    if tensor is not None and tensor.numel() != elements:
        raise ValueError(f"{name} must have {elements} elements, and has {tensor.numel()}")
    return flat(tensor)


def divided(elements: int, parts: int) -> list[int]:
    """Where so many parts start, and where the last one ends: the first elements % parts are one element longer."""
    short, longer = divmod(elements, parts)
    return [part * short + min(part, longer) for part in range(parts + 1)]


def blocks(elements: int, count: int, parts: int) -> list[int]:
    """The same for equal blocks, each divided into parts."""
    if elements % count:
        raise ValueError(f"{elements} elements do not divide into {count} equal blocks")
    size = elements // count
    return [block * size + at for block in range(count) for at in divided(size, parts)[:-1]] + [elements]


def even_chunks(chunks_: int, room: int) -> list[int]:
    return [chunk * room for chunk in range(chunks_ + 1)]


def lengths_to_starts(lengths: list[int]) -> list[int]:
    return [0, *itertools.accumulate(lengths)]
