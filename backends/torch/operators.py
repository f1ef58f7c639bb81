"""Dtypes and reduction operators as torch has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from schedlang.backends.torch.lacks import WITHOUT_SUMS, require_computed
from schedlang.diagnostics import SchedError, error
from schedlang.running.dtypes import DTYPES, Dtype, require_defined

Combine = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]
"""``combine(a, b, out)``: out = a (op) b."""

_TORCH: dict[str, Any] = {
    "sum": torch.add, "avg": torch.add, "prod": torch.mul, "min": torch.minimum, "max": torch.maximum,
    "band": torch.bitwise_and, "bor": torch.bitwise_or, "bxor": torch.bitwise_xor,
}
_NUMPY: dict[str, Any] = {
    "sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum,
    "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor,
}


def dtype_of(tensor: torch.Tensor) -> Dtype:
    """The dtype of a tensor. Raises SchedError (SL803) where schedules do not run on it."""
    found = DTYPES.get(str(tensor.dtype).removeprefix("torch."))
    if found is None:
        raise SchedError(error("SL803", f"schedules do not run on tensors of {tensor.dtype}",
                               help=f"convert it to one of: {', '.join(DTYPES)}"))
    return found


def torch_dtype(dtype: Dtype) -> torch.dtype:
    """The same dtype in torch."""
    found: torch.dtype = getattr(torch, dtype.name)
    return found


def combiner(op: str, dtype: Dtype, device: torch.device) -> Combine:
    """``combine(a, b, out)`` for an operator, rounding to the dtype.

    Raises SchedError: SL803 where the operator has no meaning for the dtype, SL814 where it cannot be computed on the
    device.
    """
    require_defined(op, dtype)
    require_computed(op, dtype, device.type)
    if dtype.name in WITHOUT_SUMS:
        ufunc = _NUMPY[op]

        def by_numpy(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
            ufunc(a.numpy(), b.numpy(), out=out.numpy())

        return by_numpy
    function = _TORCH[op]

    def combine(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        function(a, b, out=out)

    return combine


def divide(values: torch.Tensor, divisor: int, dtype: Dtype) -> None:
    """Divide in place by a positive number: floats round once, integers truncate toward zero."""
    if dtype.name in WITHOUT_SUMS:
        array = values.numpy()
        np.floor_divide(array, np.array(divisor, np.uint64), out=array, casting="unsafe")
    elif dtype.kind == "f":
        values.div_(divisor)
    elif divisor <= torch.iinfo(values.dtype).max:
        values.div_(divisor, rounding_mode="trunc")
    else:       # the divisor, too, would be held in the tensor's dtype
        values.copy_(values.to(torch.int64).div_(divisor, rounding_mode="trunc"))
