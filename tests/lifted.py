"""A table written as source and read again, for tests."""

from __future__ import annotations

import numpy as np

from schedlang import lift
from schedlang.diff.operations import difference
from schedlang.expand import expand, load_text
from schedlang.ir.table import OpTable
from schedlang.source import Source
from schedlang.syntax import format_file, parse


def written(table: OpTable) -> tuple[str, OpTable]:
    """The source of a table, and the table it expands to."""
    text = lift.source(table)
    program = load_text(text)
    again, found = expand(program, program.main(None))
    assert again is not None, found
    return text, again


def comes_back(table: OpTable) -> str:
    """The source of a table, after looking that it says the same: operations, collective, buffers; and that it is laid
    out as the formatter does."""
    text, again = written(table)
    assert difference(table, again) == ()
    assert (again.ranks, again.chunks, again.operator) == (table.ranks, table.chunks, table.operator)
    one, other = table.collective, again.collective
    assert (one.name, one.root) == (other.name, other.root)
    assert one.name == "custom" or one.inplace == other.inplace
    assert np.array_equal(one.counts, other.counts)
    tree, _ = parse(Source("x.sched", text))
    assert tree is not None and format_file(tree) == text
    return text


def body(text: str) -> list[str]:
    """The lines of a schedule's statements, without the margin."""
    lines = text.splitlines()
    start = max(k for k, line in enumerate(lines) if line.startswith(("    chunks ", "    buffer ", "    collective ")))
    return [line[4:] for line in lines[start + 1 :] if line]
