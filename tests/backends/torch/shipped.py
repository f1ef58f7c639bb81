"""The shipped schedules, and awkward sizes for them."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

from schedlang.expand import cases, expand, load_program
from schedlang.ir.layout import Layout
from schedlang.ir.table import OpTable
from tests.backends.worlds import some_layout

EXAMPLES = Path(__file__).parents[3] / "examples"
SCHEDULES = [(str(path.relative_to(EXAMPLES)), name) for path in sorted(EXAMPLES.rglob("*.sched"))
             for name in load_program(str(path)).names]


@cache
def shipped(path: str, name: str, ranks: int, **params: int) -> OpTable | None:
    """A shipped schedule for one size; None where it is not for that."""
    program = load_program(str(EXAMPLES / path))
    for case in cases(program, name, ranks=None, params={}) if not params else ():
        if case["ranks"] == ranks:
            params = {key: value for key, value in case.items() if key != "ranks"}
            break
    table, findings = expand(program, name, ranks=ranks, params=params)
    assert table is not None or {d.code for d in findings} <= {"SL207", "SL206", "SL205"}, findings
    return table


def sizes(table: OpTable, rng: random.Random) -> list[Layout]:
    """Sizes that are awkward: none, fewer elements than chunks, one too many, and just right."""
    found = {layout.elements: layout for layout in (some_layout(table, rng) for _ in range(12))}
    return [found[elements] for elements in sorted(found)][:5]
