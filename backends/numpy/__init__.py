"""The NumPy back end: all ranks in one process, whole steps at a time. README.md says how and how fast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from weakref import ref

import numpy as np

from schedlang.backend import Progress
from schedlang.backends.numpy.fit import lengths
from schedlang.backends.numpy.moves import Plan, plan
from schedlang.backends.numpy.tiles import Piece, execute
from schedlang.ir.table import Array, OpTable
from schedlang.ops import COLLECTIVES, REDUCE_OPS
from schedlang.running.binding import Ranges, bind, ends, starts
from schedlang.running.dtypes import accumulator, named, require_defined
from schedlang.running.executable import divisors, legal_order

MOVES_KEPT = 1 << 21
"""How many moves the plans that are kept may have together; the newest is kept in any case."""


class NumpyBackend:
    """See :class:`schedlang.backend.Backend`."""

    name = "numpy"

    def __init__(self) -> None:
        self._plans: list[tuple[ref[OpTable], Plan]] = []       # of tables in use, the newest first

    def available(self) -> str | None:
        return None

    def run(self, table: OpTable, inputs: Sequence[Mapping[str, Array]], *, op: str | None,
            accumulate: str | None = None, progress: Progress | None = None) -> list[dict[str, Array]]:
        """See :meth:`schedlang.backend.Backend.run`. Raises SchedError also where the table cannot be executed to its
        end (unmatched transfers, a deadlock), and SL802 where a value would move into a part too short for it."""
        bound = bind(table, inputs)
        op = op or table.operator
        if op is not None:
            require_defined(op, bound.dtype)
        held = accumulator(accumulate, bound.dtype)
        rounded = held.numpy
        if held.name in ("float16", "bfloat16"):        # exact in float32, and there several times as fast
            held = named("float32")
        steps = self._plan(table)
        feeds = []
        for r, b, chunks in _each(table, starts(table)):
            array = inputs[r][table.buffers[b].name]
            feeds.append(Piece(_first(table, steps, b, r, chunks), bound.lengths(b, r, chunks), array))
        results: list[dict[str, Array]] = [{} for _ in range(table.ranks)]
        drains = []
        for r, b, chunks in _each(table, ends(table)):
            parts = bound.lengths(b, r, chunks)
            array = results[r][table.buffers[b].name] = np.empty(int(parts.sum()), bound.dtype.numpy)
            drains.append(Piece(_first(table, steps, b, r, chunks), parts, array, _divisor(table, op, b, r, chunks)))
        moved = lengths(table, steps, bound)
        execute(steps, feeds, drains, moved, held=held.numpy, rounded=rounded, op=op, progress=progress)
        return results

    def _plan(self, table: OpTable) -> Plan:
        known = next((steps for owner, steps in self._plans if owner() is table), None)
        if known is not None:
            return known
        pairs, when = legal_order(table)
        made = plan(table, pairs.partner, when.posted, when.done, when.ready)
        kept, moves = [(ref(table), made)], len(made)
        for owner, steps in self._plans:
            moves += len(steps)
            if owner() is not None and moves <= MOVES_KEPT:
                kept.append((owner, steps))
        self._plans = kept
        return made


def _each(table: OpTable, ranges: Ranges) -> Iterator[tuple[int, int, range]]:
    """(rank, buffer, chunks) of all ranges."""
    names = {b.name: i for i, b in enumerate(table.buffers)}
    for rank, here in enumerate(ranges):
        for name, chunks in here.items():
            yield rank, names[name], chunks


def _first(table: OpTable, steps: Plan, buffer: int, rank: int, chunks: range) -> int:
    return int(steps.base[buffer]) + rank * table.buffers[buffer].chunks + chunks.start


def _divisor(table: OpTable, op: str | None, buffer: int, rank: int, chunks: range) -> int | Array | None:
    """What results are divided by at the end."""
    if op is None or not REDUCE_OPS[op].divides or not COLLECTIVES[table.collective.name].reduces:
        return None
    found = divisors(table, buffer, rank, chunks)
    return table.ranks if table.collective.ensures is None else found


backend = NumpyBackend()
