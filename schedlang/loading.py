"""Finding the one schedule that somebody names, and expanding it for one size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedlang.diagnostics import Diagnostic, SchedError, Severity, error, note
from schedlang.ops import MAX_OPS, REDUCE_OPS

if TYPE_CHECKING:
    from schedlang.expand import Choice, Program
    from schedlang.ir.table import OpTable


def split_name(target: str) -> tuple[str, str | None]:
    """``FILE::NAME`` as file and schedule. Raises SchedError (SL806) where either is empty."""
    file, separator, name = target.partition("::")
    if not file:
        raise SchedError(error("SL806", f"{target or 'PATH'}: the path is empty", help="name a file"))
    if separator and not name:
        raise SchedError(error("SL806", f"{target}: a schedule's name is missing after ::"))
    return file, name or None


def is_table(file: str) -> bool:
    """Whether a path names an op table in JSON rather than a schedule's text."""
    return Path(file).suffix.lower() == ".json"


def load_table(target: str, *, ranks: int | None = None, params: Mapping[str, Any] | None = None, op: str | None = None,
               max_ops: int | None = None, make_up_counts: bool = False) -> tuple[OpTable, list[Diagnostic]]:
    """The op table of ``FILE``, ``FILE::NAME`` or a table in JSON, and what its expansion remarked.

    A parameter that is not given has its default, or where it has none its value in the first case of the `verify` line
    that has ``ranks`` ranks and that no `require` excludes; a note says so. ``ranks`` itself is never taken from the
    `verify` line. With ``make_up_counts``, counts may be left out: some are made up, and a note says so.

    Raises SchedError: whatever is wrong with the file (SL1xx), its names and values (SL2xx).
    """
    file, name = split_name(target)
    if is_table(file):
        read = read_table(file, name, ranks=ranks, params=params, op=op)
        _require_bounds(read)
        return read, []
    from schedlang.expand import choose, load_program

    program = load_program(file)
    name = program.main(name)
    size = {} if ranks is None else {"ranks": ranks}
    excluded: list[Diagnostic] = []
    for choice in choose(program, name, ranks=ranks, params=params, make_up_counts=make_up_counts):
        table, findings = expand_case(program, name, {**choice.values, **size}, op=op, max_ops=max_ops)
        findings += _unasked(choice)
        if table is not None:
            return table, findings
        if any(d.code != "SL207" for d in findings if d.severity is Severity.ERROR):
            raise SchedError(findings)
        excluded = excluded or findings
    raise SchedError(excluded)


def parameters_of(target: str) -> tuple[str, ...]:
    """The names of the parameters of what ``FILE``, ``FILE::NAME`` or a table in JSON holds; `ranks` among them where
    it is one. Raises SchedError as :func:`load_table` does."""
    file, name = split_name(target)
    if is_table(file):
        return tuple(read_table(file, name).params)
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
        raise SchedError(outside)


def expand_case(program: Program, name: str, case: Mapping[str, Any], *, op: str | None = None,
                max_ops: int | None = None) -> tuple[OpTable | None, list[Diagnostic]]:
    """Expands a schedule with the values of one case: its parameters, and ``ranks`` (see ``expand.cases``)."""
    from schedlang.expand import expand

    rest = {key: value for key, value in case.items() if key != "ranks"}
    return expand(program, name, ranks=case.get("ranks"), params=rest, op=op,
                  max_ops=MAX_OPS if max_ops is None else max_ops)


def read_table(file: str, name: str | None = None, *, ranks: int | None = None, params: Mapping[str, Any] | None = None,
               op: str | None = None) -> OpTable:
    """An op table from a JSON file. It is expanded already, so what is asked for can only be checked.

    Raises SchedError (SL105, SL107, SL206, SL212, SL806).
    """
    from schedlang.ir.json import loads
    from schedlang.syntax import read

    return as_asked(loads(read(file).text, file), file, name, ranks=ranks, params=params, op=op)


def as_asked(table: OpTable, file: str, name: str | None = None, *, ranks: int | None = None,
             params: Mapping[str, Any] | None = None, op: str | None = None) -> OpTable:
    """A table that was read from a file, if it is the one that is asked for, with the operator that is.

    Raises SchedError (SL206, SL212, SL806).
    """
    from schedlang.ir.words import shown

    if name not in (None, table.name):
        raise SchedError(error("SL212", f"{file} holds the schedule {table.name}, not {name}"))
    if ranks not in (None, table.ranks):
        raise SchedError(error("SL206", f"{file} is an op table for {table.ranks} ranks, not {ranks}",
                               help="it is expanded already; other sizes need the .sched file"))
    there = {"ranks": table.ranks, **table.params}
    for key, value in (params or {}).items():
        if key not in there:
            raise SchedError(error("SL206", f"{file} is an op table, expanded already, without a parameter {key}",
                                   help="give parameters to a .sched file"))
        if not same_value(there[key], value):
            raise SchedError(error("SL206", f"{file} is an op table, expanded already with {key} = "
                                   f"{shown(there[key])}, not {shown(value)}",
                                   help="give parameters to a .sched file"))
    return table if op is None else with_op(table, op)


def same_value(a: Any, b: Any) -> bool:
    """Whether two values of a parameter are equal: integers, booleans, names, lists, matrices."""
    import numpy as np

    return np.array_equal(a, b)


def with_op(table: OpTable, op: str) -> OpTable:
    """The table with another reduction operator, a key of ``ops.REDUCE_OPS``. Raises SchedError (SL806)."""
    if op not in tuple(REDUCE_OPS):         # from Python it may be anything
        raise SchedError(error("SL806", f"there is no reduction operator {op}",
                               help=f"choose one of: {', '.join(REDUCE_OPS)}"))
    if table.operator is None:
        raise SchedError(error("SL806", f"{table.name} is for {table.collective.name}, which reduces nothing",
                               help="leave the operator out"))
    return table.with_columns(collective=replace(table.collective, op=op))
