"""Names and comments in files that are written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from schedlang.ir.loops import Program, Statement
from schedlang.ir.loops.nests import Part
from schedlang.ir.table import OpTable
from schedlang.source import Location, Span

INDENT = "    "
WIDTH = 120
VARIABLES = "ijklmnuvwxyz"


def variable(depth: int) -> str:
    """The loop variable of the ``depth``-th loop, counted from 1."""
    return VARIABLES[depth - 1] if depth <= len(VARIABLES) else f"i{depth}"


def printable(text: str, instead: str) -> str:
    """A text with something instead of what would end a line, or cannot be seen."""
    return "".join(c if c.isprintable() else instead for c in text)


def identifier(name: str, fallback: str, taken: set[str], reserved: Callable[[str], bool]) -> str:
    """A name made of ``name`` that is not yet taken; it is from then on. ``reserved``: the words that the language of
    the file has for itself."""
    word = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or fallback
    if word[0].isdigit():
        word = f"{fallback}_{word}"
    made, number = word, 1
    while made in taken or reserved(made):
        number += 1
        made = f"{word}_{number}"
    taken.add(made)
    return made


def source_lines(table: OpTable, program: Program, body: Sequence[Part], depth: int, mark: str,
                 width: int) -> Iterator[str]:
    """Comments, which begin with ``mark``: each line of the source that the statements of a step come from, once, and
    what stands there. ``depth``: how many coordinates there are round the step."""
    told = dict.fromkeys(filter(None, map(_source_line, _sites(table, program, body, depth))))
    for line in told:
        text = f"{mark} {line}"
        yield text if len(text) <= width else text[: width - 3] + "..."


def _sites(table: OpTable, program: Program, body: Sequence[Part], depth: int) -> Iterator[Location | None]:
    """Where the statements of a body come from, those of its first turn on the first rank."""
    for part in body:
        if isinstance(part, Statement):
            yield table.origin(first_row(program, part, depth))[0]
        else:
            inner: Any = part
            yield from _sites(table, program, inner.body, depth + 1)


def first_row(program: Program, statement: Statement, depth: int) -> int:
    """The row that a statement is in its first turn on the first rank."""
    row = statement.formulas["row"]([program.ranks[:1], *[np.zeros(1, np.int64)] * (depth - 1)])
    return int(row.flat[0])


def _source_line(where: Location | None) -> str | None:
    if where is None:
        return None
    text = where.source.line(where.line).strip() if isinstance(where, Span) else ""
    at = f"{printable(where.file.rsplit('/', 1)[-1], '?')}:{where.line}"
    return at + (f"  {printable(text, ' ')}" if text else "")


def first(body: Sequence[Part]) -> tuple[Statement, int]:
    """The first statement of a step, and how many loops of the step stand round it."""
    part = body[0]
    if isinstance(part, Statement):
        return part, 0
    inner: Any = part
    found, deeper = first(inner.body)
    return found, deeper + 1
