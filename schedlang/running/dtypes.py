"""The dtypes values can have, and which reductions each of them knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from ml_dtypes import bfloat16, finfo

from schedlang.diagnostics import SchedError, error
from schedlang.ops import REDUCE_OPS


@dataclass(frozen=True, slots=True)
class Dtype:
    """A dtype by its name in NumPy, torch and CuPy.

    ``kind``: ``f`` (binary floating point), ``i`` (signed, two's complement), ``u`` (unsigned) or ``b`` (boolean).
    ``short``: what one may write for it.
    """

    name: str
    kind: str
    short: str
    numpy: np.dtype[Any]

    @property
    def roundoff(self) -> float:
        """The unit roundoff u of round-to-nearest: half the distance from 1 to the next number; 0 where nothing
        rounds."""
        return float(finfo(self.numpy).eps) / 2 if self.kind == "f" else 0.0

    @property
    def largest(self) -> float:
        """The largest finite value."""
        if self.kind == "f":
            return float(finfo(self.numpy).max)
        return 1 if self.kind == "b" else int(np.iinfo(self.numpy).max)


DTYPES: dict[str, Dtype] = {
    d.name: d
    for d in (
        Dtype("float16", "f", "f16", np.dtype(np.float16)),
        Dtype("bfloat16", "f", "bf16", np.dtype(bfloat16)),
        Dtype("float32", "f", "f32", np.dtype(np.float32)),
        Dtype("float64", "f", "f64", np.dtype(np.float64)),
        *(Dtype(f"{'u' * (k == 'u')}int{bits}", k, f"{k}{bits}", np.dtype(f"{k}{bits // 8}"))
          for k in "iu" for bits in (8, 16, 32, 64)),
        Dtype("bool", "b", "bool", np.dtype(np.bool_)),
    )
}


NCCL = {"half": "float16", "float": "float32", "double": "float64", "char": "int8", "int": "int32"}
"""What NCCL and nccl-tests call some of them, as the command line does. Not so in Python: there NumPy's `float` has 64
bits."""


def named(word: str) -> Dtype:
    """The dtype written ``word``: its name or its short name. Raises SchedError (SL803) where there is none."""
    text = str(word).lower()                # from Python it may be anything: a NumPy dtype reads as its name
    found = DTYPES.get(text) or next((d for d in DTYPES.values() if d.short == text), None)
    if found is None:
        raise SchedError(error("SL803", f"{word} is no dtype that schedules run on",
                               help=f"choose one of: {', '.join(DTYPES)}"))
    return found


def of_array(array: Any) -> Dtype:
    """The dtype of a NumPy array. Raises SchedError (SL803) where schedules do not run on it."""
    found = next((d for d in DTYPES.values() if d.numpy == array.dtype), None)
    if found is None:
        help = f"convert it to one of: {', '.join(DTYPES)}"
        if array.dtype.kind in "fiu" and not array.dtype.isnative:
            help = f"convert it to native byte order: array.astype({array.dtype.newbyteorder('=').name!r})"
        raise SchedError(error("SL803", f"schedules do not run on arrays of dtype {array.dtype}", help=help))
    return found


def require_defined(op: str, dtype: Dtype) -> None:
    """Raises SchedError (SL803) where ``op`` has no meaning for ``dtype``."""
    if dtype.kind == "f" and REDUCE_OPS[op].integers_only:
        raise SchedError(error("SL803", f"{op} is not defined for {dtype.name}: it combines bits of integers",
                               help="use an integer dtype, or one of: sum, prod, min, max, avg"))
    if dtype.kind == "b" and op in ("sum", "prod", "avg"):
        raise SchedError(error("SL803", f"{op} is not defined for bool",
                               help="use bor (true where any is) or band (true where all are), or an integer dtype"))


def accumulator(word: str | None, dtype: Dtype) -> Dtype:
    """The dtype to hold and combine values of ``dtype`` in, from ``--accumulate``.

    Raises SchedError (SL803) where it cannot hold every value of ``dtype`` or is of another kind.
    """
    if word is None:
        return dtype
    wide = named(word)
    if dtype == wide:
        return dtype
    if wide.name not in ("float32", "float64") or dtype.kind != "f" or wide.numpy.itemsize <= dtype.numpy.itemsize:
        raise SchedError(error("SL803", f"values of {dtype.name} cannot be accumulated in {wide.name}",
                               help="float16 and bfloat16 accumulate in float32 or float64, float32 in float64; "
                                    "other dtypes in themselves (leave the option out)"))
    return wide

