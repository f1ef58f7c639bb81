"""``schedlang verify --why A B``: what orders two operations, if anything does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from schedlang.cli.common import EXIT_CLEAN, EXIT_FINDINGS, bad_option
from schedlang.cli.rows import RowName
from schedlang.diagnostics import SchedError
from schedlang.ir.origin import came_from
from schedlang.ir.table import OpTable
from schedlang.ir.words import standing
from schedlang.render.words import operation

if TYPE_CHECKING:
    from schedlang.verify.sends import Sends
    from schedlang.verify.timing.connections import Matching
    from schedlang.verify.timing.why import Hop, Moment

_BECAUSE = {
    "lane": "then, on the same stream,",
    "message": "is received by",
    "event": "is waited for by",
    "fused": "is passed on by",
    "room": "makes room for",
    "head": "is received before",
}


_ORDERS: tuple[tuple[Moment, Moment, str], ...] = (
    ("end", "post", "A is over before B begins"),
    ("post", "post", "A begins before B begins, but need not be over by then"),
    ("end", "end", "A is over before B is over, but B may begin before that"),
    ("post", "end", "A begins before B is over, and no more is sure"),
)
"""What may be said of two operations, from the strongest: where the chain starts, where it ends, in words."""

_SWAPPED = str.maketrans("AB", "BA")


def explain(tables: Iterable[tuple[Mapping[str, Any], OpTable]], names: tuple[str, str], sends: Sends) -> int:
    """Prints what orders two operations, in the first of the tables in which both exist; 1 where nothing does.

    Raises SchedError (SL806) where no table has both.
    """
    from schedlang.render.verdict import values_text
    from schedlang.verify.matching import match

    first, second = (RowName.parse(name) for name in names)
    problem: SchedError | None = None
    for values, table in tables:
        try:
            a, b = first.find(table), second.find(table)
        except SchedError as failure:
            problem = failure
            continue
        if a == b:
            raise bad_option(f"{first.text} and {second.text} are one operation: {sentence(table, a)}")
        known = values_text([values])
        click.echo(f"{table.name}{' with ' if known else ''}{known}")
        found = False
        for line in lines(table, match(table, sends), a, b, sends):
            click.echo(line)
            found = found or line.startswith("    ")
        return EXIT_CLEAN if found else EXIT_FINDINGS
    raise problem or bad_option("there is no schedule in which to look for operations")


def lines(table: OpTable, matching: Matching, a: int, b: int, sends: Sends) -> Iterator[str]:
    """The chain from one row to the other, in either direction, an indented line a link; else that there is none."""
    from schedlang.verify.timing.why import path

    yield f"  A: {sentence(table, a)}"
    yield f"  B: {sentence(table, b)}"
    together = all(getattr(table, c)[a] == getattr(table, c)[b] for c in ("rank", "stream", "step"))
    if together:
        yield "Both stand in one step: they are posted together, and nothing orders them."
        return
    for start, until, order in _ORDERS:
        for x, y, named in ((a, b, order), (b, a, order.translate(_SWAPPED))):
            hops = path(table, matching, x, y, sends, start=start, until=until)
            if hops is not None:
                yield f"{named}:"
                yield from _chain(table, hops, x, y)
                return
    yield "Nothing orders them: no chain of steps, messages and events leads from one to the other."


def _chain(table: OpTable, hops: Iterable[Hop], start: int, end: int) -> Iterator[str]:
    yield f"    {sentence(table, start)}"
    last = start
    for hop in hops:
        if hop.before != last:
            yield f"    stands in one step with {sentence(table, hop.before)}"
        yield f"    {_BECAUSE[hop.kind]} {sentence(table, hop.after)}"
        last = hop.after
    if last != end:
        yield f"    stands in one step with {sentence(table, end)}"


def sentence(table: OpTable, row: int) -> str:
    """``rank 2, stream wire, step 3: send data[1] to 0 (line 12)``."""
    return f"{standing(table, row)}: {operation(table, row)}{came_from(table, row)}"
