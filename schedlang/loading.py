"""Finding the one schedule that somebody names, and expanding it for one size."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from schedlang.diagnostics import Diagnostic, SchedError, Severity, error, note
from schedlang.ops import MAX_OPS, REDUCE_OPS
from schedlang.ready import is_ready, read_ready

if TYPE_CHECKING:
    from schedlang.expand import Choice, Program
    from schedlang.ir.table import OpTable


def split_name(target: str) -> tuple[str, str | None]:
    """``FILE::NAME`` as file and schedule; what is a file under the whole name is that file. Raises SchedError (SL806)
    where either is empty."""
    if "::" in target and os.path.exists(target):
        return target, None
    file, separator, name = target.partition("::")
    if not file:
        raise SchedError(error("SL806", f"{target or 'PATH'}: the path is empty", help="name a file"))
    if separator and not name:
        raise SchedError(error("SL806", f"{target}: a schedule's name is missing after ::"))
    return file, name or None


def load_table(target: str, *, ranks: int | None = None, params: Mapping[str, Any] | None = None, op: str | None = None,
               max_ops: int | None = None, make_up_counts: bool = False) -> tuple[OpTable, list[Diagnostic]]:
    """The op table of ``FILE``, ``FILE::NAME`` or a file that holds tables (see :mod:`schedlang.ready`), and what its
    expansion remarked.

    A parameter that is not given has its default, or where it has none its value in the first case of the `verify` line
    that has ``ranks`` ranks and that no `require` excludes; a note says so. ``ranks`` itself is never taken from the
    `verify` line. With ``make_up_counts``, counts may be left out: some are made up, and a note says so. Of an MSCCL
    file for use in place and out of place the table is the one in place, unless ``params`` says otherwise.

    Raises SchedError: whatever is wrong with the file (SL1xx), its names and values (SL2xx).
    """
    file, name = split_name(target)
    if is_ready(file):
        ready, given = read_ready(file, name), params or {}
        case = ready.cases(None if ranks is None else [ranks], {key: [value] for key, value in given.items()})[0]
        table = ready.table(case)
        if op is not None:
            table = with_op(table, op)
        _require_bounds(table)
        return table, [*ready.notes({key: case[key] for key in given}), *ready.unasked(given)]
    from schedlang.expand import choose, load_program

    program = load_program(file)
    name = program.main(name)
    size = {} if ranks is None else {"ranks": ranks}
    excluded: list[Diagnostic] = []
    for choice in choose(program, name, ranks=ranks, params=params, make_up_counts=make_up_counts):
        expanded, findings = expand_case(program, name, {**choice.values, **size}, op=op, max_ops=max_ops)
        findings += _unasked(choice)
        if expanded is not None:
            return expanded, findings
        if any(d.code != "SL207" for d in findings if d.severity is Severity.ERROR):
            raise SchedError(findings)
        excluded = excluded or findings
    raise SchedError(excluded)


def parameters_of(target: str) -> tuple[str, ...]:
    """The names of the parameters of what ``FILE``, ``FILE::NAME`` or a file that holds tables has; `ranks` among them
    where a schedule takes it for one. Raises SchedError as :func:`load_table` does."""
    file, name = split_name(target)
    if is_ready(file):
        return tuple(read_ready(file, name).choices)
    from schedlang.expand import load_program

    return load_program(file).parameters(name)


def _unasked(choice: Choice) -> list[Diagnostic]:
    """Notes on the values that nobody gave."""
    from schedlang.ir.words import shown

    found = []
    if choice.listed:
        values = ", ".join(f"{key} = {shown(value)}" for key, value in choice.listed.items())
        found.append(note("SL606", f"not given, so taken from the `verify` line: {values}",
                          help="-p NAME=VALUE gives others", values=dict(choice.listed)))
    return found + [note("SL606", f"`{key}` was not given: an uneven one with zeros is made up",
                         help=f"-p {key}=@FILE gives it") for key in choice.made_up]


def _require_bounds(table: OpTable) -> None:
    """Expansion makes only rows within the world and its buffers; of a table from a file that is to be seen. Raises
    SchedError (SL208, SL221, SL222, SL224)."""
    from schedlang.ir import legal

    outside = [d for d in legal.faults(table) if d.code not in ("SL306", "SL307")]
    if outside:
        raise SchedError(outside if table.told is None else table.told(outside))


def expand_case(program: Program, name: str, case: Mapping[str, Any], *, op: str | None = None,
                max_ops: int | None = None) -> tuple[OpTable | None, list[Diagnostic]]:
    """Expands a schedule with the values of one case: its parameters, and ``ranks`` (see ``expand.cases``)."""
    from schedlang.expand import expand

    rest = {key: value for key, value in case.items() if key != "ranks"}
    return expand(program, name, ranks=case.get("ranks"), params=rest, op=op,
                  max_ops=MAX_OPS if max_ops is None else max_ops)


def with_op(table: OpTable, op: str) -> OpTable:
    """The table with another reduction operator, a key of ``ops.REDUCE_OPS``. Raises SchedError (SL806)."""
    if op not in tuple(REDUCE_OPS):         # from Python it may be anything
        raise SchedError(error("SL806", f"there is no reduction operator {op}",
                               help=f"choose one of: {', '.join(REDUCE_OPS)}"))
    if table.operator is None:
        raise SchedError(error("SL806", f"{table.name} is for {table.collective.name}, which reduces nothing",
                               help="leave the operator out"))
    return table.with_columns(collective=replace(table.collective, op=op))
