"""Bandwidths as nccl-tests defines them (its doc/PERFORMANCE.md), so that figures can be laid beside each other.

Algorithm bandwidth is bytes over time, the bytes of the buffer, or of the long buffer where there are ``ranks``
blocks. Bus bandwidth is that times what each link must carry at least, as a share of those bytes.
"""

from __future__ import annotations

from fractions import Fraction

from schedlang.ir.layout import Layout
from schedlang.ir.table import OpTable

_BLOCKS = ("allgather", "reduce_scatter", "alltoall", "gather", "scatter", "allgatherv", "reduce_scatterv")


def elements(table: OpTable, layout: Layout) -> int | None:
    """The elements whose bytes count (all-to-all-v: of the rank that sends most); None where there are none."""
    name = table.collective.name
    if name in ("custom", "barrier"):
        return None
    return int(layout.inputs.max(initial=0)) if name == "alltoallv" else layout.elements


def bus_factor(name: str, ranks: int) -> Fraction | None:
    """What the algorithm bandwidth of a collective is multiplied with; None where that means nothing."""
    if ranks < 2:
        return None
    if name == "allreduce":
        return Fraction(2 * (ranks - 1), ranks)
    if name in _BLOCKS:
        return Fraction(ranks - 1, ranks)
    return Fraction(1) if name in ("broadcast", "reduce") else None
