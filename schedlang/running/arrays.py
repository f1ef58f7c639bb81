"""The caller's arrays: from any array library to NumPy and back, on the device they came from.

NumPy arrays, torch tensors (bfloat16 too), CuPy arrays, and whatever offers DLPack or the array API. Nothing of these
libraries is imported here: a caller who hands over a tensor has imported torch already. For a back end that works on
GPUs, arrays of torch and CuPy that are on one stay there.

A torch tensor that requires a gradient is taken as its values: results are never part of an autograd graph.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from schedlang.diagnostics import SchedError, error
from schedlang.ir.table import Array
from schedlang.running.dtypes import DTYPES, Dtype, of_array


@dataclass(frozen=True)
class OnGpu:
    """Elements that are on a GPU, in C order: as much of an array as binding looks at. ``address``: of the first;
    ``owner`` keeps the memory. Other libraries take it as it is, by the CUDA array interface, as integers of its size.
    """

    address: int
    device: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    owner: Any

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return prod(self.shape)

    def reshape(self, shape: tuple[int, ...]) -> OnGpu:
        """The same elements in another shape; one length may be -1."""
        known = prod(n for n in shape if n != -1)
        return replace(self, shape=tuple(self.size // max(1, known) if n == -1 else n for n in shape))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": f"<i{self.dtype.itemsize}", "data": (self.address, False),
                "strides": None, "version": 3, "stream": None}


@dataclass(frozen=True)
class Taken:
    """An array of the caller's as NumPy sees it.

    ``values``: its elements in C order, one-dimensional, perhaps sharing the caller's memory: only read it. For a back
    end that works on GPUs, perhaps an :class:`OnGpu`.
    ``library`` and ``device``: where it came from. ``give(result)`` makes such an array of a NumPy array of any
    shape, or of an :class:`OnGpu`, on whose GPU it stays.
    """

    values: Any
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


def take(value: Any, what: str, *, stay: bool = False) -> Taken:
    """The elements of an array; ``what`` names it in messages ("the input of rank 3"). ``stay``: on its GPU.

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
            return _from_torch(value, what, torch, stay)
        if cupy is not None and isinstance(value, cupy.ndarray):
            return _from_cupy(value, cupy, stay)
        if is_array(value):
            return _from_any(value)
    except SchedError as refused:
        raise SchedError([error(d.code, f"{what}: {d.message}", help=d.help) for d in refused.diagnostics]) from None
    raise SchedError(error("SL801", f"{what} is a {type(value).__name__}, not an array",
                           help="give a NumPy array, a torch tensor, a CuPy array, or another that offers DLPack"))


def _taken(array: Array, library: str, device: str, give: Callable[[Array], Any]) -> Taken:
    return Taken(np.ascontiguousarray(array).reshape(-1), tuple(array.shape), of_array(array), library, device, give)


def _from_torch(tensor: Any, what: str, torch: Any, stay: bool) -> Taken:
    if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized or tensor.is_nested:
        raise SchedError(error("SL801", "a sparse, quantized, nested or meta tensor has no dense elements in memory",
                               help="give a dense tensor"))
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise SchedError(error("SL803", f"schedules do not run on tensors of dtype {name}",
                               help=f"convert it to one of: {', '.join(DTYPES)}"))
    device, wanted = tensor.device, DTYPES[name].numpy

    def give(result: Any) -> Any:
        if isinstance(result, OnGpu):
            return torch.as_tensor(result, device=f"cuda:{result.device}").view(tensor.dtype)
        if name == "bfloat16":
            return torch.from_numpy(np.asarray(result, order="C").view(np.int16)).view(torch.bfloat16).to(device)
        return torch.from_numpy(np.asarray(result, order="C")).to(device)

    if stay and device.type == "cuda":
        there = tensor.detach().resolve_neg().contiguous()
        torch.cuda.current_stream(device).synchronize()     # whoever made it may still be at work
        values = OnGpu(there.data_ptr(), device.index, wanted, (there.numel(),), there)
        return Taken(values, tuple(tensor.shape), DTYPES[name], "torch", str(device), give)
    dense = tensor.detach().cpu().resolve_neg().contiguous()
    array = dense.view(torch.int16).numpy().view(wanted) if name == "bfloat16" else dense.numpy()
    return _taken(array, "torch", str(device), give)


def _from_cupy(array: Any, cupy: Any, stay: bool) -> Taken:
    device = array.device

    def give(result: Any) -> Any:
        if isinstance(result, OnGpu):
            with cupy.cuda.Device(result.device):
                return cupy.asarray(result).view(array.dtype)
        with device:
            return cupy.asarray(result)

    if stay:
        dtype = of_array(array)
        with device:
            there = cupy.ascontiguousarray(array)
            cupy.cuda.get_current_stream().synchronize()    # whoever made it may still be at work
        values = OnGpu(there.data.ptr, device.id, dtype.numpy, (int(there.size),), there)
        return Taken(values, tuple(array.shape), dtype, "cupy", f"cuda:{device.id}", give)
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
