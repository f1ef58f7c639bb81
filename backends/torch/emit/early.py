"""Whether receives may stand ready from the beginning: see :mod:`schedlang.backends.torch.causes`."""

from __future__ import annotations

from schedlang.backends.torch.execution import execution
from schedlang.backends.torch.plan import Walk
from schedlang.backends.torch.tasks import Kind
from schedlang.ir.table import OpTable
from schedlang.ops import Op

ROWS = 1 << 13
"""Larger tables are not looked at: it would take seconds."""


def receives_stand_ready(table: OpTable) -> bool:
    """Whether, for every receive that lands in its place, all that has to do with the place before is over wherever its
    message is sent. False where that is not known."""
    return len(table) <= ROWS and all(_ready(Walk(table, rank, execution(table), early=True))
                                      for rank in range(table.ranks))


def _ready(walk: Walk) -> bool:
    walk.plan(1)
    tasks = walk.tasks
    if any(x.op == Op.RECV and walk.landings[x.row] != x.target for x in walk.rows.values()):
        return False
    return all(tasks.instructions[other].kind == Kind.POST_RECV
               for task, x in enumerate(tasks.instructions) if x.kind == Kind.POST_RECV for other in tasks.after[task])
