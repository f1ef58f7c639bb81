"""The lines of a schedule before its statements: what it is, for whom, with which buffers."""

from __future__ import annotations

import os

import numpy as np

from schedlang.diagnostics import SchedError, error
from schedlang.ir.table import TRANSPORTS, Array, Ensures, OpTable
from schedlang.ir.words import counted
from schedlang.lift import names
from schedlang.ops import COLLECTIVES


def own_buffers(table: OpTable) -> set[int]:
    """The buffers that are known by name: all but scratch, and what an `ensure` speaks of."""
    own = {i for i, b in enumerate(table.buffers) if b.role != "scratch"}
    e = table.collective.ensures
    return own if e is None else own | {*e.buffer.tolist(), *e.source_buffer.tolist()}


def doc(table: OpTable) -> list[str]:
    """The docstring."""
    at = table.location or next((s.location for s in table.sites if s.location is not None), None)
    where = f" of {os.path.basename(at.file)}" if at is not None else ""
    how = ""
    if table.transport is not None and "inplace" in table.params:
        how = ", in place" if table.params["inplace"] else ", out of place"
    first = f"{table.name}{where}, as it is for {counted(table.ranks, 'rank')}{how}."
    lines = ["".join(c if c.isprintable() else "?" for c in first)]     # a file may be called anything
    if table.transport is not None:
        name, depth = table.transport.name, table.transport.depth
        lines += ["", f"Written for {name}, which has {counted(depth, 'message')} in flight on a connection:"]
        lines.append(f"`schedlang verify --sends {name}` judges by that." if TRANSPORTS.get(name) == table.transport
                     else f"for messages that go whole `schedlang verify --sends buffered={depth}` judges by that.")
    return [line.replace("\\", "/").replace('"""', "'''") for line in lines]


def collective(table: OpTable) -> str:
    """The `collective` line."""
    c, kind = table.collective, COLLECTIVES[table.collective.name]
    arguments = []
    if table.operator is not None:
        arguments.append(table.operator)
    if kind.rooted:
        arguments.append(str(c.root))
    if c.counts is not None:
        arguments.append("counts")
    text = f"collective {c.name}" + (f"({', '.join(arguments)})" if arguments else "")
    if kind.family == "whole" and not c.inplace:
        text += " outofplace"
    elif kind.family in ("blocked", "vector") and c.inplace:
        text += " inplace"
    return text


def declarations(table: OpTable, called: list[str]) -> list[str]:
    """The lines from `ranks` to `buffer`. Raises SchedError SL808 for a buffer that cannot be declared."""
    found = [f"ranks {table.ranks}", collective(table)]
    if COLLECTIVES[table.collective.name].family in ("whole", "blocked", "custom"):
        found.append(f"chunks {table.chunks}")
    own = own_buffers(table)
    custom = table.collective.name == "custom"
    for i, b in enumerate(table.buffers):
        if b.role != "scratch" and not custom:
            continue
        if b.only is not None:
            raise _cannot(table, f"scratch buffer {b.name} is on rank {b.only} only, and scratch is on every rank")
        if i in own and not names.legal(called[i]):
            raise _cannot(table, f"an `ensure` speaks of a buffer called {b.name!r}, which is no name in the language")
        found.append(f"buffer {called[i]}[{b.chunks}]" + (" on host" if b.place == "host" else ""))
    return found


def ensures(table: OpTable, called: list[str]) -> list[str]:
    """The `ensure` lines. Raises SchedError SL808 for one that the language has no form for."""
    e = table.collective.ensures
    if e is None or not len(e.rank):
        return []
    lines: list[str] = []
    for i in np.lexsort((e.chunk, e.rank, e.buffer)).tolist():
        a, b = int(e.starts[i]), int(e.starts[i + 1])
        what = f"{called[int(e.buffer[i])]}[{e.chunk[i]}]"
        sources = e.source_rank[a:b]
        same = len({*e.source_buffer[a:b].tolist()}) == 1 == len({*e.source_chunk[a:b].tolist()})
        if not same or len(np.unique(sources)) < b - a:
            raise _cannot(table, f"{what} on rank {e.rank[i]} is to hold contributions of several places of a rank, "
                          "and an `ensure` names one place, on different ranks")
        source = f"{called[int(e.source_buffer[a])]}[{e.source_chunk[a]}]"
        held = f"{source} on {sources[0]}" if b - a == 1 else (
            f"{table.operator or 'sum'}({source} on {ranks_text(np.sort(sources))})")
        lines.append(f"ensure {what} on {e.rank[i]} == {held}")
    return lines


def ranks_text(ranks: Array) -> str:
    """Ascending ranks as a range, or as a list."""
    if len(ranks) > 1 and (np.diff(ranks) == 1).all():
        return f"{ranks[0]}..{ranks[-1] + 1}"
    return f"[{', '.join(map(str, ranks.tolist()))}]"


def counts_line(table: OpTable) -> list[str]:
    """What the counts are."""
    counts = table.collective.counts
    if counts is None:
        return []
    from schedlang.lift.phrase import listed

    return listed("counts", counts, 112)


def _cannot(table: OpTable, why: str) -> SchedError:
    return SchedError(error("SL808", f"cannot be written as source: {why}", table.location))


def same_ensures(one: Ensures | None, other: Ensures | None, buffer: Array) -> bool:
    """Whether two postconditions ask the same; ``buffer``: of each buffer of the first, its index in the other."""
    return _asked(one, buffer) == _asked(other, np.arange(1 << 12))


def _asked(e: Ensures | None, buffer: Array) -> set[tuple[object, ...]]:
    if e is None:
        return set()
    return {(int(buffer[e.buffer[i]]), int(e.rank[i]), int(e.chunk[i]), tuple(sorted(
        (int(buffer[e.source_buffer[k]]), int(e.source_rank[k]), int(e.source_chunk[k]))
        for k in range(int(e.starts[i]), int(e.starts[i + 1]))))) for i in range(len(e.rank))}
