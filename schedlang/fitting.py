"""Which schedule serves a collective of a process group: loaded for the group's size, and proved right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from schedlang.diagnostics import SchedError, error
from schedlang.ir.digest import digest, title
from schedlang.ir.table import Array, Collective, OpTable
from schedlang.loading import load_table, parameters_of
from schedlang.schedule import Schedule

Given: TypeAlias = str | Path | Schedule | tuple[str | Path, Mapping[str, Any]]
"""What may be given for a schedule: a file as ``schedlang.load`` takes it, the same with parameters, or a schedule."""


class Shipped(NamedTuple):
    """A shipped schedule, for groups of at least ``ranks`` ranks, and calls of less than ``below`` bytes of the whole
    collective (its long buffer, where it has one); None: of any size."""

    file: str
    below: int | None = None
    ranks: int = 1


DEFAULTS: dict[str, tuple[Shipped, ...]] = {
    "allreduce": (Shipped("allreduce/halving_doubling.sched", 256 << 10, 8), Shipped("allreduce/ring.sched")),
    "allgather": (Shipped("allgather/bruck.sched", 512 << 10), Shipped("allgather/ring.sched")),
    "reduce_scatter": (Shipped("reduce_scatter/ring.sched"),),
    "broadcast": (Shipped("broadcast/binomial.sched", 4 << 20), Shipped("broadcast/scatter_allgather.sched")),
    "reduce": (Shipped("reduce/binomial.sched"),),
    "gather": (Shipped("gather/direct.sched"),),
    "scatter": (Shipped("scatter/direct.sched"),),
    "alltoall": (Shipped("alltoall/direct.sched"),),
    "alltoallv": (Shipped("alltoallv/direct.sched"),),
    "allgatherv": (Shipped("allgatherv/ring.sched"),),
    "reduce_scatterv": (Shipped("reduce_scatterv/ring.sched"),),
    "barrier": (Shipped("barrier/dissemination.sched"),),
}
"""What serves calls that name no schedule: the first that fits, each on any number of ranks. docs/performance.md says
which of them were measured, and where."""


@dataclass(frozen=True, eq=False)
class Chosen:
    """A schedule for a group. ``digest``: of all it does, whatever its name (16 bytes). ``title``: the schedule in
    words. ``relays``: whether ranks pass on what is neither theirs nor for them, which takes place of their own."""

    table: OpTable
    digest: bytes
    title: str
    relays: bool


def default(collective: str, ranks: int, size: int) -> str:
    """The shipped schedule for a call of ``size`` bytes that names none."""
    file = next(s.file for s in DEFAULTS[collective] if ranks >= s.ranks and (s.below is None or size < s.below))
    return f"schedlang:{file}"


def choose(given: Given, wanted: Collective, ranks: int, *, verify: bool = True) -> Chosen:
    """The schedule for a collective of ``ranks`` ranks.

    Of ``wanted`` name, root and counts matter. A parameter `root` of a file has the call's root, the parameter of a
    v-collective's counts those of the call, unless they are given.

    Raises SchedError: what is wrong with the file, SL816 where the schedule is for something else, and with ``verify``
    the findings where it is not right.
    """
    schedule = given if isinstance(given, Schedule) else Schedule(_loaded(given, wanted, ranks))
    require_fit(schedule.table, wanted, ranks)
    if verify:
        schedule.require_right()
    table = schedule.table
    scratch = [i for i, b in enumerate(table.buffers) if b.role == "scratch"]
    relays = bool(np.isin(table.buffer, scratch).any())
    return Chosen(table, digest(table), title(table), relays)


def with_counts(table: OpTable, counts: Array) -> OpTable:
    """A table of a v-collective that does not look at its counts, with others."""
    return table.with_columns(collective=replace(table.collective, counts=counts))


def _loaded(given: Any, wanted: Collective, ranks: int) -> OpTable:
    target, params = given if isinstance(given, tuple) and len(given) == 2 else (given, {})
    if not isinstance(target, (str, Path)) or not isinstance(params, Mapping):
        raise TypeError("schedule must be a path, (path, parameters) or a schedlang.Schedule, "
                        f"not {type(given).__name__}")
    target, params = str(target), dict(params)
    known = parameters_of(target)
    if wanted.root is not None and "root" in known:
        params.setdefault("root", wanted.root)
    if wanted.counts is not None and "counts" in known:
        params.setdefault("counts", wanted.counts)
    return load_table(target, ranks=None if "ranks" in params else ranks, params=params)[0]


def require_fit(table: OpTable, wanted: Collective, ranks: int) -> None:
    """Raises SchedError (SL816) where a schedule is not for ``wanted`` (name and root), or not for ``ranks`` ranks."""
    has = table.collective
    if has.name != wanted.name:
        raise _unfit(table, f"is for {has.name}, not for {wanted.name}", f"choose a schedule for {wanted.name}")
    if table.ranks != ranks:
        raise _unfit(table, f"is for {table.ranks} ranks, but the group has {ranks}",
                     "give the file rather than a schedule: it is loaded for the size of the group")
    if has.root != wanted.root:
        raise _unfit(table, f"has root {has.root}, but the call's is rank {wanted.root} of the group",
                     "give the schedule a parameter `root`, which then is the call's")


def _unfit(table: OpTable, why: str, help: str) -> SchedError:
    return SchedError(error("SL816", f"{table.name} {why}", table.collective.location or table.location, help=help))
