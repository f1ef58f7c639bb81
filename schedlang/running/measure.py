"""Timed runs of a table on a back end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schedlang.backend import Backend, Progress, Timed
from schedlang.ir.table import Array, OpTable
from schedlang.running import bandwidth
from schedlang.running.binding import Bound, bind
from schedlang.running.dtypes import Dtype


@dataclass(frozen=True)
class Measurement:
    """``seconds``: of each run. ``elements`` and ``bytes``: the size of the collective, as bandwidths count it.
    ``algbw`` and ``busbw``: bytes a second, by the shortest run; None where they mean nothing."""

    dtype: Dtype
    elements: int
    bytes: int
    seconds: list[float]
    algbw: float | None
    busbw: float | None
    outputs: list[dict[str, Array]]


def measure(table: OpTable, inputs: Sequence[Mapping[str, Array]], backend: Backend, *, accumulate: str | None = None,
            repeat: int = 1, progress: Progress | None = None, bound: Bound | None = None) -> Measurement:
    """Run a table ``repeat`` times. The first run includes what the back end prepares once. ``bound``: what the inputs
    are bound to, where that is known without looking at them.

    Raises SchedError where the inputs do not fit.
    """
    bound = bound or bind(table, inputs)
    seconds: list[float] = []
    outputs: list[dict[str, Array]] = []
    if isinstance(backend, Timed):
        seconds, outputs = backend.timed(table, inputs, bound, op=table.collective.op, accumulate=accumulate,
                                         repeat=repeat, progress=progress)
        repeat = 0
    for turn in range(repeat):
        outputs = []                                    # so that two runs' results are never held at once
        overall = None if progress is None else lambda part, turn=turn: progress((turn + part) / repeat)
        begun = time.perf_counter()
        outputs = backend.run(table, inputs, op=table.collective.op, accumulate=accumulate, progress=overall)
        seconds.append(time.perf_counter() - begun)
    counted = bandwidth.elements(table, bound.layout)
    elements = bound.elements if counted is None else counted
    size = elements * bound.dtype.numpy.itemsize
    algbw = None if counted is None else size / max(min(seconds), 1e-9)
    factor = bandwidth.bus_factor(table.collective.name, table.ranks)
    busbw = None if algbw is None or factor is None else algbw * float(factor)
    return Measurement(bound.dtype, elements, size, seconds, algbw, busbw, outputs)
