"""Ranks of one machine that share memory in place of messages."""

from __future__ import annotations

from typing import Any

import torch

from schedlang.backends.native.compiler import find
from schedlang.backends.native.execute import tensor_of
from schedlang.backends.native.meeting import Piece
from schedlang.torch import checks


def empty_shared(*size: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A tensor on the CPU, like ``torch.empty(*size, dtype=dtype)`` but all 0, in memory that the other ranks of this
    machine can read where it stands: in groups with ``local="native"`` calls with it copy nothing."""
    shape = torch.Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
    dtype = dtype or torch.get_default_dtype()
    return tensor_of(Piece(shape.numel() * dtype.itemsize), dtype, shape.numel()).view(shape)


def use_local(local: str | None = "native", group: Any = None) -> None:
    """Have the schedules of a group, of whatever backend, run as kernels on memory that its ranks share (`native`), or
    by messages again (None). Tensors on the CPU only; calls with counts go by messages all the same. All ranks of the
    group call it.

    Raises SchedError (SL811) on all of them where they are not on one machine, SL804 where there is no compiler.
    """
    from schedlang.torch.state import state_of

    if local not in (None, "native"):
        raise ValueError(f'local must be "native" or None, not {local!r}')
    group = checks.group_of(group, "use_local")
    if group is not None:
        if local is not None:
            find()
        state_of(group, torch.device("cpu")).use_local(local is not None)
