"""What ranks are asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schedlang.ir.table import OpTable


@dataclass(frozen=True)
class Run:
    """What all ranks are to do: ``repeat`` times a table, on ``elements`` of ``dtype`` (the names of these and of
    ``accumulate`` are those of `running.dtypes`)."""

    table: OpTable
    elements: int
    dtype: str
    op: str | None
    accumulate: str | None
    repeat: int


BUILT_IN = {
    "allreduce": "all_reduce", "allgather": "all_gather_into_tensor", "reduce_scatter": "reduce_scatter_tensor",
    "alltoall": "all_to_all_single", "broadcast": "broadcast", "reduce": "reduce",
}
"""What torch.distributed calls the collectives that one can be compared with."""

@dataclass(frozen=True)
class Contest:
    """``tables``: schedules of one collective, each with its title. ``sizes``: in elements. ``rounds``: how often each
    is timed, or as often as ``seconds`` allow for a size."""

    tables: Sequence[tuple[str, OpTable]]
    sizes: Sequence[int]
    dtype: str
    rounds: int
    seconds: float
