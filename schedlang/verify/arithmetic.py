"""What the additions of a schedule do in a dtype: the values that they make of equal inputs, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from schedlang.diagnostics import SchedError, error
from schedlang.ir.table import Array
from schedlang.running.dtypes import Dtype, accumulator, named
from schedlang.verify.values.shapes import Shapes

COMBINED: dict[str, Callable[[Array, Array], Array]] = {"sum": np.add, "avg": np.add, "prod": np.multiply}
"""The operators whose results grow, or round."""

TRIED = 32
"""So many inputs are tried at a time."""


@dataclass(frozen=True)
class Arithmetic:
    """``dtype``: that of inputs and results. ``held``: that in which values are combined meanwhile. Every combination
    rounds to nearest, ties to even; integers wrap round."""

    dtype: Dtype
    held: Dtype

    @classmethod
    def of(cls, dtype: str, accumulate: str | None = None) -> Arithmetic:
        """From names. SchedError SL803: a name is unknown, bool (which has no sums), or values of ``dtype`` cannot be
        held so."""
        kind = named(dtype)
        if kind.kind == "b":
            raise SchedError(error("SL803", "there are no sums of bool, so nothing can be said of them",
                                   help="choose a floating or integer dtype"))
        return cls(kind, accumulator(accumulate, kind))

    def results(self, shapes: Shapes, which: Array, inputs: Array, op: str) -> Array:
        """The results of shapes ``which`` (a row each) where all contributions are one of the ``inputs`` (of ``dtype``;
        a column each)."""
        combined = shapes.values(inputs.astype(self.held.numpy), COMBINED[op])[which]
        if op == "avg":
            combined = np.stack([self._divided(row, shapes.terms[n])
                                 for row, n in zip(combined, which.tolist(), strict=True)])
        with np.errstate(all="ignore"):
            return np.asarray(combined.astype(self.dtype.numpy))

    def _divided(self, values: Array, terms: int) -> Array:
        """`avg` at its end: integers truncate toward zero."""
        if self.held.kind == "f":
            with np.errstate(all="ignore"):
                return np.asarray(np.divide(values, np.asarray(terms, values.dtype)))
        exact = [abs(v) // terms * (1 if v >= 0 else -1) for v in values.tolist()]
        return np.array(exact, values.dtype)

    def largest(self, shapes: Shapes, which: Array, op: str) -> Any:
        """The largest input of ``dtype`` such that none of the shapes ``which`` overflows, whatever the signs and
        magnitudes of the inputs up to it; a number of the dtype.

        Rounding is monotonic and does not depend on the sign, so of all inputs up to x in magnitude, those that are all
        x make the largest value everywhere: they are the ones to try.
        """
        numpy = self.dtype.numpy
        most = max(shapes.terms[n] for n in which.tolist())
        if self.dtype.kind != "f":
            limit = int(self.dtype.largest)
            return numpy.type(limit // most if op != "prod" else _root(limit, most))
        bits = np.dtype(f"u{numpy.itemsize}")
        top = int(np.array(self.dtype.largest, numpy).view(bits))
        # Non-negative numbers are in the order of their bits. low does not overflow, high does (or is no number).
        low, high = 0, top + 1
        while high - low > 1:
            step = max(1, (high - low) // TRIED)
            tried = list(range(low + step, high, step))
            found = self.results(shapes, which, np.array(tried, bits).view(numpy), op)
            fine = np.isfinite(found.astype(np.float64)).all(0)
            first = int(np.argmin(fine)) if not fine.all() else len(tried)
            high = tried[first] if first < len(tried) else high
            low = tried[first - 1] if first else low
        return np.array([low], bits).view(numpy)[0]

    def next_larger(self, value: Any) -> Any | None:
        """The next larger number of the dtype; None after the largest."""
        if float(value) >= self.dtype.largest:
            return None
        if self.dtype.kind != "f":
            return self.dtype.numpy.type(int(value) + 1)
        bits = np.dtype(f"u{self.dtype.numpy.itemsize}")
        return (np.array([value], self.dtype.numpy).view(bits) + bits.type(1)).view(self.dtype.numpy)[0]


def _root(limit: int, degree: int) -> int:
    """The largest integer whose power of the degree is at most the limit."""
    low, high = 1, limit + 1
    while high - low > 1:
        middle = (low + high) // 2
        # A power with many more bits than the limit need not be worked out.
        small = (middle.bit_length() - 1) * degree <= limit.bit_length() and middle**degree <= limit
        low, high = (middle, high) if small else (low, middle)
    return low
