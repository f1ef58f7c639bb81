"""One call of a schedule: the caller's arrays to a back end and its results back, in the caller's library and shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from schedlang.backend import Backend, Progress
from schedlang.diagnostics import SchedError, error
from schedlang.ir.table import Array, OpTable
from schedlang.ops import COLLECTIVES
from schedlang.running.arrays import OnGpu, Taken, is_array, shape_of, take
from schedlang.running.binding import starts


@dataclass(frozen=True)
class Call:
    """The inputs of one call, checked. ``inputs``: as a back end takes them; they may share the caller's memory."""

    table: OpTable
    inputs: list[dict[str, Array]]
    taken: list[dict[str, Taken]]
    stacked: bool

    @classmethod
    def of(cls, table: OpTable, inputs: Any, *, stay: bool = False) -> Call:
        """``stay``: arrays on GPUs stay there, if each rank has its own; they may then be on different ones.

        Raises SchedError (SL801..803) where the inputs do not fit the table; the message names the rank."""
        wanted = starts(table)
        if COLLECTIVES[table.collective.name].family == "barrier":
            _require_nothing(table, inputs)
            tokens = [{name: np.zeros(0, np.float32) for name in here} for here in wanted]
            return cls(table, tokens, [{} for _ in wanted], False)
        stay = stay and not is_array(inputs)
        taken = [_taken(r, entry, wanted[r], stay) for r, entry in enumerate(_entries(table, inputs))]
        _require_one_kind(table, taken)
        flat = [{name: t.values for name, t in here.items() if name} for r, here in enumerate(taken)]
        return cls(table, flat, taken, is_array(inputs))

    def results(self, outputs: Sequence[Mapping[str, Array]]) -> Any:
        """A back end's outputs in the caller's library, shape and form."""
        if COLLECTIVES[self.table.collective.name].family == "barrier":
            return [None] * self.table.ranks
        like = next((t for here in self.taken for t in here.values()), None)
        if like is None:
            return [_plain(here) for here in outputs]
        shaped = [{name: value.reshape(_shape(self.table, self.taken[r], like, value)) for name, value in here.items()}
                  for r, here in enumerate(outputs)]
        values = [v for here in shaped for v in here.values()]
        if self.stacked and all(len(here) == 1 for here in shaped) and len({v.shape for v in values}) == 1:
            return like.give(np.stack(values))
        return [_plain({name: like.give(value) for name, value in here.items()}) for here in shaped]


def call(table: OpTable, inputs: Any, backend: Backend, *, op: str | None = None, accumulate: str | None = None,
         progress: Progress | None = None) -> Any:
    """See :meth:`schedlang.schedule.Schedule.__call__`."""
    this = Call.of(table, inputs, stay=bool(getattr(backend, "on_gpus", False)))
    op = op or table.collective.op
    return this.results(backend.run(table, this.inputs, op=op, accumulate=accumulate, progress=progress))


def _require_nothing(table: OpTable, inputs: Any) -> None:
    if inputs is not None and not (isinstance(inputs, (list, tuple)) and all(entry is None for entry in inputs)):
        raise SchedError(error("SL801", f"{table.name} is a barrier, which takes no arrays",
                               help="call it without inputs"))


def _entries(table: OpTable, inputs: Any) -> list[Any]:
    if inputs is None:
        if any(starts(table)):
            raise SchedError(error("SL801", f"{table.name} is called without inputs",
                                   help="give a list with one array a rank, or one array stacked along axis 0"))
        inputs = [None] * table.ranks
    if is_array(inputs):
        if not shape_of(inputs):
            raise SchedError(error("SL801", "the stacked inputs have no dimension to tell ranks apart",
                                   help=f"stack {table.ranks} arrays along axis 0, or give a list"))
        number = shape_of(inputs)[0]
    elif isinstance(inputs, (list, tuple)):
        number = len(inputs)
    else:
        raise SchedError(error("SL801", f"the inputs are of the type {type(inputs).__name__}",
                               help="give a list with one array a rank, or one array stacked along axis 0"))
    if number != table.ranks:
        raise SchedError(error("SL801", f"{table.name} has {table.ranks} ranks, but there are inputs for {number}",
                               help="give one entry a rank"))
    return [inputs[r] for r in range(number)]


def _taken(rank: int, entry: Any, wanted: Mapping[str, range], stay: bool) -> dict[str, Taken]:
    """A rank's arrays by buffer name. Where the collective reads nothing at a rank, an array there is only looked
    at."""
    if entry is None:
        if wanted:
            raise SchedError(error("SL801", f"rank {rank} has no input",
                                   help=f"give it an array for {', '.join(wanted)}"))
        return {}
    if isinstance(entry, Mapping):
        return {str(name): take(value, f"{name} of rank {rank}", stay=stay) for name, value in entry.items()}
    if len(wanted) > 1:
        raise SchedError(error("SL801", f"rank {rank} starts with several buffers: {', '.join(wanted)}",
                               help="give a dict of arrays by buffer name"))
    return {next(iter(wanted), ""): take(entry, f"the input of rank {rank}", stay=stay)}


def _require_one_kind(table: OpTable, taken: Sequence[Mapping[str, Taken]]) -> None:
    family = COLLECTIVES[table.collective.name].family
    given = [(rank, t) for rank, here in enumerate(taken) for t in here.values()]
    for rank, t in given[1:]:
        first_rank, first = given[0]

        def differs(code: str, mine: str, other: str, help: str, rank: int = rank, at: int = first_rank) -> SchedError:
            return SchedError(error(code, f"the input of rank {rank} {mine}, but that of rank {at} {other}", help=help))

        if t.dtype != first.dtype:
            raise differs("SL803", f"is {t.dtype.name}", f"is {first.dtype.name}", "convert all inputs to one dtype")
        on_gpus = isinstance(t.values, OnGpu) and isinstance(first.values, OnGpu)
        if t.library != first.library or (t.device != first.device and not on_gpus):
            raise differs("SL801", f"is a {t.kind}", f"is a {first.kind}", "bring all inputs to one library and device")
        if family in ("whole", "blocked") and t.shape != first.shape:
            raise differs("SL801", f"has shape {t.shape}", f"has {first.shape}", "all ranks bring arrays of one shape")
    if family == "vector":
        for rank, t in given:
            if len(t.shape) != 1:
                raise SchedError(error("SL801", f"the input of rank {rank} has shape {t.shape}, but the counts of "
                                                f"{table.collective.name} are of elements in one dimension",
                                       help="flatten it: array.reshape(-1)"))
    if family == "blocked" and given and _divides(table):
        _require_blocks(given[0][1].shape, table.ranks)


def _require_blocks(shape: tuple[int, ...], ranks: int) -> None:
    if not shape:
        raise SchedError(error("SL802", "the inputs have no dimension to divide between ranks",
                               help="give at least one dimension"))
    if shape[0] % ranks:
        below = shape[0] // ranks * ranks
        raise SchedError(error(
            "SL802", f"the inputs have shape {shape}, whose first dimension {ranks} ranks do not divide",
            help=f"make it {f'{below} or ' if below else ''}{below + ranks}"))


def _divides(table: OpTable) -> bool:
    """Whether each rank brings the long buffer of a blocked collective."""
    return COLLECTIVES[table.collective.name].long in ("input", "both")


def _shape(table: OpTable, taken: Mapping[str, Taken], like: Taken, value: Array) -> tuple[int, ...]:
    """The shape of a result."""
    kind = COLLECTIVES[table.collective.name]
    if kind.family == "custom":
        return next((t.shape for t in taken.values() if t.values.size == value.size), (-1,))
    if kind.family == "vector":
        return (-1,)
    if kind.family == "whole" or kind.long == "both":
        return like.shape
    first, *rest = like.shape or (1,)
    return (first // table.ranks if kind.long == "input" else first * table.ranks, *rest)


def _plain(here: Mapping[str, Any]) -> Any:
    return dict(here) if len(here) > 1 else next(iter(here.values()), None)
