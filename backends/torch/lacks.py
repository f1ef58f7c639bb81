"""What torch lacks, and what the executor asks of tensors: told before torch itself would fail, and without torch."""

from __future__ import annotations

from typing import Any, NamedTuple

from schedlang.diagnostics import SchedError, error
from schedlang.running.dtypes import Dtype

WITHOUT_SUMS = ("uint16", "uint32", "uint64")
"""What torch stores, but does not compute with: NumPy does it, on the CPU."""


def require_computed(op: str, dtype: Dtype, device: str) -> None:
    """Raises SchedError (SL814) where an operator cannot be computed on a kind of device (``cpu``, ``cuda``)."""
    if device != "cpu" and dtype.name in WITHOUT_SUMS:
        raise SchedError(error("SL814", f"torch has no {op} of {dtype.name} on {device}",
                               help="use a signed dtype of that size, or tensors on the CPU"))


class Looks(NamedTuple):
    """What counts of a tensor: how many dimensions and elements, whether it is contiguous, its device and dtype."""

    dimensions: int
    elements: int
    contiguous: bool
    device: Any
    dtype: Any

    @classmethod
    def of(cls, tensor: Any) -> Looks:
        """Those of a tensor."""
        return cls(tensor.dim(), tensor.numel(), tensor.is_contiguous(), tensor.device, tensor.dtype)


def require_fit(name: str, looks: Looks, elements: int, others: Looks) -> None:
    """Raises SchedError (SL815) where a tensor is not as a rank's buffer ``name`` of so many elements must be, in the
    company of ``others``."""
    if looks == (1, elements, True, others.device, others.dtype):
        return
    if looks.dimensions != 1:
        wrong, help = f"has {looks.dimensions} dimensions, not 1", "flatten it: tensor.view(-1)"
    elif looks.elements != elements:
        wrong, help = f"has {looks.elements} elements, not {elements}", f"give a tensor of {elements} elements"
    elif not looks.contiguous:
        wrong, help = "is not contiguous", "give tensor.contiguous()"
    elif looks.device != others.device:
        wrong, help = f"is on {looks.device}, others are on {others.device}", "bring all to one device"
    else:
        wrong, help = f"is {looks.dtype}, others are {others.dtype}", "convert all to one dtype"
    raise SchedError(error("SL815", f"{name} {wrong}", help=help))
