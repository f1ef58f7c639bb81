"""What is made of a table once for a dtype and an operator: its kernel, compiled, and what a launch of it needs."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from schedlang.backends.cuda import Kernel, kernel
from schedlang.backends.native.compiler import load
from schedlang.ir.table import OpTable
from schedlang.ops import Op
from schedlang.running.dtypes import DTYPES, Dtype
from schedlang.running.executable import legal_order
from schedlang.running.values import Values, follow

_WRITING = (Op.RECV, Op.REDUCE_RECV, Op.COPY, Op.REDUCE)
_COMBINING = (Op.REDUCE_RECV, Op.REDUCE)


@dataclass(frozen=True, eq=False)
class Program:
    """``kernel``: the source, and its lanes. ``library``: what was made of it. ``written``: for each buffer of the
    normal form, whether any rank writes to it. ``flags``: how many flags each block has on a rank. ``values``: whose
    length each value of the table (not of the normal form) has."""

    kernel: Kernel
    library: ctypes.CDLL
    written: tuple[bool, ...]
    flags: int
    values: Values

    @property
    def table(self) -> OpTable:
        """What the kernel executes: the normal form."""
        table: OpTable = self.kernel.normal.table
        return table


    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.kernel, self.library._name, self.written, self.flags, self.values)


def _again(made: Kernel, library: str, written: tuple[bool, ...], flags: int, values: Values) -> Program:
    """The program in another process of this machine."""
    return Program(made, ctypes.CDLL(library), written, flags, values)


def carrier(table: OpTable, dtype: Dtype, op: str | None) -> tuple[Dtype, str | None]:
    """The dtype and the operator of the kernel: where nothing is combined, any type of that size moves the same bits;
    booleans combine as bytes do; averages are sums until the end."""
    combines = bool(np.isin(table.op, _COMBINING).any())
    if not combines or dtype.kind == "b":
        dtype = DTYPES[f"uint{8 * dtype.numpy.itemsize}"]
    return dtype, (None if not combines else "sum" if op == "avg" else op)


def program(table: OpTable, dtype: Dtype, op: str | None, *, flags: Sequence[str] = (),
            faults: Sequence[str] = ()) -> Program:
    """Compile a table that is known to be right, for values of ``dtype`` (see :func:`carrier`). ``flags``: of the
    compiler, beside our own; ``faults``: see :func:`schedlang.backends.cuda.kernel`.

    Raises SchedError: what the generator raises, and SL804 where there is no compiler.
    """
    made = kernel(table, dtype=dtype, op=op, faults=faults)
    found = made.normal.table
    written = np.zeros(len(found.buffers) + 1, bool)
    written[found.buffer[np.isin(found.op, _WRITING)]] = True           # the last one: a receive that stores nothing
    library = load(made.text, flags=flags)
    pairs, when = legal_order(table)
    values = follow(table, pairs.partner, when.posted, when.ready, when.done)
    return Program(made, library, tuple(written[:-1].tolist()), made.cells, values)
