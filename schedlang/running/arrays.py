"""The caller's arrays: from any array library to NumPy and back, on the device they came from.

NumPy arrays, torch tensors (bfloat16 too), CuPy arrays, and whatever offers DLPack or the array API. Nothing of these
libraries is imported here: a caller who hands over a tensor has imported torch already.

A torch tensor that requires a gradient is taken as its values: results are never part of an autograd graph.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from schedlang.diagnostics import SchedError, error
from schedlang.ir.table import Array
from schedlang.running.dtypes import DTYPES, Dtype, of_array


@dataclass(frozen=True)
class Taken:
    """An array of the caller's as NumPy sees it.

    ``values``: its elements in C order, one-dimensional, perhaps sharing the caller's memory: only read it.
    ``library`` and ``device``: where it came from. ``give(result)`` makes such an array of a NumPy array of any
    shape.
    """

    values: Array
    shape: tuple[int, ...]
    dtype: Dtype
    library: str
    device: str
    give: Callable[[Array], Any]

    @property
    def kind(self) -> str:
        """What must be equal on all ranks beside the shape, in words: ``float32 torch tensor on cpu``."""
        noun = {"torch": "tensor"}.get(self.library, "array")
        return f"{self.dtype.name} {self.library} {noun} on {self.device}"


def is_array(value: Any) -> bool:
    """Whether ``value`` is an array of some library, rather than a list of them."""
    return isinstance(value, (np.ndarray, np.generic)) or any(
        hasattr(value, name) for name in ("__dlpack__", "__array_namespace__"))


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of an array of some library; () where it does not tell."""
    try:
        return tuple(value.shape)
    except (AttributeError, RuntimeError):      # offers DLPack only; a nested tensor of torch
        return ()


def take(value: Any, what: str) -> Taken:
    """The elements of an array; ``what`` names it in messages ("the input of rank 3").

    Raises SchedError: SL801 where it is no dense array with elements, SL803 for a dtype schedules do not run on.
    """
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    try:
        if hasattr(value, "mask") and isinstance(value, np.ma.MaskedArray):
            raise SchedError(error("SL801", "a masked array has elements without a value",
                                   help="say what stands for them: array.filled(0)"))
        if isinstance(value, (np.ndarray, np.generic)):
            return _taken(np.asarray(value), "numpy", "cpu", lambda result: result)
        if torch is not None and isinstance(value, torch.Tensor):
            return _from_torch(value, what, torch)
        if cupy is not None and isinstance(value, cupy.ndarray):
            return _from_cupy(value, cupy)
        if is_array(value):
            return _from_any(value)
    except SchedError as refused:
        raise SchedError([error(d.code, f"{what}: {d.message}", help=d.help) for d in refused.diagnostics]) from None
    raise SchedError(error("SL801", f"{what} is a {type(value).__name__}, not an array",
                           help="give a NumPy array, a torch tensor, a CuPy array, or another that offers DLPack"))


def _taken(array: Array, library: str, device: str, give: Callable[[Array], Any]) -> Taken:
    return Taken(np.ascontiguousarray(array).reshape(-1), tuple(array.shape), of_array(array), library, device, give)


def _from_torch(tensor: Any, what: str, torch: Any) -> Taken:
    if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized or tensor.is_nested:
        raise SchedError(error("SL801", "a sparse, quantized, nested or meta tensor has no dense elements in memory",
                               help="give a dense tensor"))
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise SchedError(error("SL803", f"schedules do not run on tensors of dtype {name}",
                               help=f"convert it to one of: {', '.join(DTYPES)}"))
    device, wanted = tensor.device, DTYPES[name].numpy
    dense = tensor.detach().cpu().resolve_neg().contiguous()
    array = dense.view(torch.int16).numpy().view(wanted) if name == "bfloat16" else dense.numpy()

    def give(result: Array) -> Any:
        if name == "bfloat16":
            return torch.from_numpy(np.asarray(result, order="C").view(np.int16)).view(torch.bfloat16).to(device)
        return torch.from_numpy(np.asarray(result, order="C")).to(device)

    return _taken(array, "torch", str(device), give)


def _from_cupy(array: Any, cupy: Any) -> Taken:
    device = array.device

    def give(result: Array) -> Any:
        with device:
            return cupy.asarray(result)

    return _taken(array.get(), "cupy", f"cuda:{device.id}", give)


def _from_any(value: Any) -> Taken:
    try:
        array = np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError):  # another device, or a dtype unknown to DLPack or NumPy
        try:
            array = np.asarray(value)
        except (TypeError, ValueError, RuntimeError, BufferError) as cause:
            raise SchedError(error("SL801", f"a {type(value).__name__} cannot be brought to NumPy: {cause}",
                                   help="bring it to the CPU, or give a NumPy array")) from cause
    library = type(value).__module__.partition(".")[0]
    device = str(getattr(value, "device", "cpu"))
    namespace = getattr(value, "__array_namespace__", None)

    def give(result: Array) -> Any:
        if namespace is None:
            return result
        xp = namespace()
        return xp.asarray(result, device=value.device) if hasattr(value, "device") else xp.asarray(result)

    return _taken(array, library, device, give)
