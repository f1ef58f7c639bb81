"""A schedule as CUDA C++: one kernel, whose lanes walk their steps with flags between them. README.md tells how.

``normal`` makes of a table what a lane can execute in order, ``body`` writes the lanes with their loops, ``formulas``
their numbers, ``head`` the rest of what is different from file to file. ``types.cuh`` and ``lane.cuh`` are copied in as
they stand: values and operators, and what a lane does. The same file runs on a CPU (``schedlang.backends.native``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from schedlang.backends.cuda.body import Body, Names
from schedlang.backends.cuda.formulas import Tables, literal
from schedlang.backends.cuda.head import Head, copied, names_of
from schedlang.backends.cuda.normal import Normal, normal
from schedlang.diagnostics import SchedError, Severity
from schedlang.ir.loops import lanes
from schedlang.ir.loops.nests import statements
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op
from schedlang.running.dtypes import Dtype, named, require_defined
from schedlang.verify import verify

__all__ = ["Kernel", "kernel", "source"]

STATEMENTS = 1024
"""So many statements a file may have as loops; compilers take long over more, and nobody reads them."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """A schedule's source, and what whoever launches it must know.

    ``lanes``: int32, shape (lanes, 2): the rank and the program (a stream) of each lane. ``programs``: the stream, by
    its number in the table, that each program is. ``flags``: of each row of the normal form, the flag of the event that
    it records or waits for (NONE: another row). ``cells``: how many flags each block has on a rank, all in all.
    """

    text: str
    normal: Normal = field(repr=False)
    lanes: Array
    programs: tuple[int, ...]
    flags: Array
    cells: int


def source(table: OpTable, *, dtype: str = "float32", op: str | None = None) -> str:
    """The file for a schedule, which is proved right first. ``dtype``: of the values; ``op``: the operator, by default
    the table's own.

    Raises SchedError: the findings where the schedule is not right on the connections that it was written for, and
    SL803 where the operator has no meaning for the dtype.
    """
    verdict = verify(table)
    if not verdict.ok:
        raise SchedError([d for d in verdict.diagnostics if d.severity is Severity.ERROR])
    return kernel(table, dtype=named(dtype), op=op).text


def kernel(table: OpTable, *, dtype: Dtype, op: str | None = None, faults: Sequence[str] = (),
           most: int = STATEMENTS) -> Kernel:
    """The same with what a launch needs. The table is known to be right on the connections that it was written for.

    ``most``: with more statements what streams do is tables. ``faults``: mistakes to put in, which only tests do
    (`lane.cuh` names them). Raises SchedError: SL803.
    """
    op = op or table.operator
    if op is not None:
        require_defined(op, dtype)
    found = normal(table)
    flag, events = _flags(found.table)
    # In row order, but for sends that post, which come first; what else a step is made of, `body` takes apart.
    place = np.where(found.table.op == Op.SEND, 0, 1)
    more = {"tag": found.tag, "message": found.message, "their_chunk": found.their_chunk, "like": found.like,
            "before": found.before, "after": found.after, "rounds": found.rounds, "flag": flag}
    nests = lanes(found.table, more, fixed=[found.their_buffer], place=place)
    programs = tuple(sorted({p.stream for p in nests.programs}))
    taken = names_of(*map(copied, ("types.cuh", "lane.cuh", "tabled.cuh")))
    names = Names.of(found.table, programs, taken)
    others = frozenset({*taken, *names.buffers.values(), *names.streams.values()})
    body = Body(found, names, Tables(table.ranks, others), flag)
    by_stream = {s: [p for p in nests.programs if p.stream == s] for s in programs}
    if sum(1 for p in nests.programs for _ in statements(p.body)) > most:
        functions = [copied("tabled.cuh"), *(list(body.table(s)) for s in programs)]
    else:
        functions = [list(body.loops(s, some)) for s, some in by_stream.items()]
    tables = [line for name, values in body.tables.made.items() for line in literal(name, values)]
    streams = "\n".join("\n".join(lines) for lines in functions)
    head = Head(table, found, names, dtype, op, events, streams.count("lane."), tuple(faults))
    beginning = head.beginning(streams)
    parts = [head.opening(), copied("types.cuh"), head.configuration(), copied("lane.cuh"), beginning, tables,
             *functions, head.ending(), head.kernel(programs)]
    text = "\n\n".join("\n".join(part) for part in parts if part) + "\n"
    where = [(r, k) for k, s in enumerate(programs) for p in by_stream[s] for r in p.ranks.tolist()]
    cells = 2 * found.tags * table.ranks + events + max(1, len(programs))      # as FLAGS in lane.cuh
    return Kernel(text, found, np.array(sorted(where), np.int32).reshape(-1, 2), programs, flag, cells)


def _flags(table: OpTable) -> tuple[Array, int]:
    """The number of the flag of each record and wait (NONE: another row), counted by the names and indices of events;
    and how many there are."""
    first = {name: k for k, name in reversed(list(enumerate(table.events)))}
    order = sorted(range(len(table.events)), key=lambda e: (first[table.events[e]], table.event_indices[e]))
    number = np.full(len(order) + 1, NONE, np.int64)        # the last one: no event
    number[order] = np.arange(len(order))
    return number[table.event], len(order)
