"""Source from a table: a schedule in the language that says the same operations, with loops and formulas where they are
regular and plain steps where they are not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from schedlang.diagnostics import SchedError, error
from schedlang.ir.table import NONE, OpTable
from schedlang.lift import draft, head, names
from schedlang.lift.check import Renamed, same
from schedlang.lift.draft import Draft
from schedlang.lift.phrase import INDENT, Tables, listed
from schedlang.lift.statements import Statements, statements
from schedlang.lift.write import WIDTH, Words, nest_lines

__all__ = ["source"]


def source(table: OpTable) -> str:
    """A legal table as a file of the language, laid out as the formatter does.

    Expanded, the text has the same operations: the same but for the names of streams, connections, events and scratch
    and for the order of rows. That is checked here, row by row, before the text is given out; where a form fails, a
    plainer one is taken.

    Raises SchedError SL808 where the language has no form for what the table does.
    """
    s = statements(table)
    for form in _forms(s):
        made = form()
        text, renamed = _text(s, made)
        formatted = _formatted(text)
        if formatted is not None and _expands(formatted, table, renamed):
            return formatted
    raise SchedError(error("SL808", f"{table.name} cannot be written as source", table.location,
                           help="this should not happen: please report it, with the file"))


def _forms(s: Statements) -> Iterator[Callable[[], Draft]]:
    """Ways to write a table, the most readable first."""
    yield lambda: draft.mixed(s)
    yield lambda: draft.own_view(s)
    yield lambda: draft.own_view(s, alone=True)
    yield lambda: draft.own_view(s, loops=False, alone=True)


def _text(s: Statements, made: Draft) -> tuple[str, Renamed]:
    """The text of a draft, and what things are called in it."""
    table = s.table
    called = names.buffers(table, head.own_buffers(table))
    tables = Tables(table.ranks, names.taken())
    extra, passing = _passing(s, called)
    words = Words(called, made.events, passing)
    body: list[str] = []
    for nest, naming in zip(made.nests, made.namings, strict=True):
        body += nest_lines(nest, naming, made.kinds, words, tables)
    used = set(re.findall(r"[a-z]+[0-9]*", "\n".join(body)))
    lists = [line for name, values in tables.values.items() if name in used
             for line in listed(name, values, WIDTH - len(INDENT))]
    parts = [head.declarations(table, called) + extra, head.ensures(table, called), lists, body]
    counts = head.counts_line(table)
    doc = head.doc(table)
    lines = [f"schedule {names.identifier(table.name, 'schedule')}():",
             *([f'{INDENT}"""{doc[0]}"""'] if len(doc) == 1 else [
                 f'{INDENT}"""{doc[0]}', *(INDENT + line if line else "" for line in doc[1:]), f'{INDENT}"""'])]
    lines += [INDENT + line for line in counts]
    for k, part in enumerate(p for p in parts if p):
        lines += [""] * (k > 0) + [INDENT + line for line in part]
    return "\n".join(lines) + "\n", _renamed(s, made, called)


def _passing(s: Statements, called: list[str]) -> tuple[list[str], str]:
    """A buffer to name where what arrives is passed on without being stored, declared if there is none large enough."""
    t = s.table
    rows = s.row[(t.buffer[s.row] == NONE) & (t.from_buffer[s.row] == NONE) & (t.count[s.row] > 0)]
    need = int(t.count[rows].max(initial=0))
    there = next((k for k, b in enumerate(t.buffers) if b.chunks >= need and b.only is None), None)
    if there is not None or not need:
        return [], called[there] if there is not None else ""
    name = "passing"
    while name in called:
        name += "_"
    return [f"buffer {name}[{need}]"], name


def _renamed(s: Statements, made: Draft, called: list[str]) -> Renamed:
    size = len(s.table)
    lane = np.zeros(size, np.int64)
    lane[s.row] = s.lane
    fused = s.forward != NONE
    lane[s.forward[fused]] = s.lane[fused]
    event: list[object] = [NONE] * size
    for row, name in zip(s.row.tolist(), made.event, strict=True):
        event[row] = name
    chan = [NONE if c == NONE else made.chan[c] for c in s.connection.tolist()]
    return Renamed([made.stream[k] for k in lane.tolist()], chan, event, called)  # type: ignore[arg-type]


def _formatted(text: str) -> str | None:
    """A text in the usual layout; None where it is not in the language."""
    from schedlang.source import Source
    from schedlang.syntax import format_file, parse

    tree, _ = parse(Source("lifted.sched", text))
    return None if tree is None else format_file(tree)


def _expands(text: str, table: OpTable, renamed: Renamed) -> bool:
    """Whether a text expands to a table, under the names that it was written with."""
    from schedlang.expand import expand, load_text

    program = load_text(text)
    written, _ = expand(program, program.main(None))
    return written is not None and same(table, renamed, written)
