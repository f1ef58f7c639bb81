"""Emitted files as modules, and calls of them with NumPy arrays. Workers import this: it is to be light."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from ml_dtypes import bfloat16

Arrays = Mapping[str, "np.ndarray | None"]


@lru_cache(maxsize=64)
def module(text: str) -> ModuleType:
    """An emitted file, imported."""
    made = ModuleType("emitted")
    exec(compile(text, "emitted.py", "exec"), made.__dict__)
    return made


def function_name(text: str) -> str:
    """The name of the function that an emitted file is for."""
    return text.split("    from ", 1)[1].split(" import ", 1)[0]


def to_torch(array: np.ndarray) -> torch.Tensor:
    """A tensor of its own with the elements of an array."""
    if array.dtype == bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.view(torch.int16).numpy().view(bfloat16) if tensor.dtype == torch.bfloat16 else tensor.numpy()


def call(function: Callable[..., None], arrays: Arrays, **named: Any) -> dict[str, np.ndarray | None]:
    """Call the function of an emitted file: the arrays afterwards."""
    tensors = {name: None if array is None else to_torch(array) for name, array in arrays.items()}
    function(*tensors.values(), **named)
    return {name: None if tensor is None else to_numpy(tensor) for name, tensor in tensors.items()}


def perform(text: str, runs: Sequence[tuple[Arrays, Mapping[str, Any]]]) -> list[dict[str, np.ndarray | None]]:
    """On one rank: the arrays after each of some calls."""
    with used(text) as function:
        return [call(function, arrays, **named) for arrays, named in runs]


@contextmanager
def used(text: str) -> Iterator[Callable[..., None]]:
    """The function of an emitted file; the process groups that it makes are destroyed at the end. A thread of each
    looks 100 times a second whether there is something to do, which takes a core where worlds collect them."""
    made = module(text)
    yield getattr(made, function_name(text))
    groups = [group for known in made.LINKS.values() for links in known.values() for group in links.more]
    made.LINKS.clear()
    for group in groups:
        dist.barrier(group)
        dist.destroy_process_group(group)
