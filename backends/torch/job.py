"""What ranks are asked to do, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from schedlang.diagnostics import Diagnostic
from schedlang.ir.table import OpTable


@dataclass(frozen=True)
class Job:
    """``task``: ``module:function`` that each of ``ranks`` processes calls with its World and ``arguments``.
    ``device``: ``cpu``, ``cuda``, or None: GPUs where each rank has one. ``timeout``: seconds that one waits for
    another."""

    task: str
    arguments: tuple[Any, ...]
    ranks: int
    device: str | None
    timeout: float


@dataclass(frozen=True)
class Told:
    """Something that a rank says while it works."""

    value: Any


@dataclass(frozen=True)
class Done:
    """What the task returned."""

    result: Any


@dataclass(frozen=True)
class Failed:
    """The findings that the task raised; ``bug``: instead of them the type and text of another exception."""

    findings: tuple[Diagnostic, ...]
    bug: str | None = None


@dataclass(frozen=True)
class Lost:
    """A process that ended by itself: its exit status (a signal's number below 0), and what it said last."""

    status: int
    said: str


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
