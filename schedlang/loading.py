"""Finding the one schedule that somebody names, and expanding it for one size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedlang.diagnostics import Diagnostic, SchedError, error, note
from schedlang.ops import COLLECTIVES, MAX_OPS, REDUCE_OPS

if TYPE_CHECKING:
    from schedlang.expand import Program
    from schedlang.ir.table import OpTable


def split_name(target: str) -> tuple[str, str | None]:
    """``FILE::NAME`` as file and schedule. Raises SchedError (SL806) where the name is empty."""
    file, separator, name = target.partition("::")
    if separator and not name:
        raise SchedError(error("SL806", f"{target}: a schedule's name is missing after ::"))
    return file, name or None


def is_table(file: str) -> bool:
    """Whether a path names an op table in JSON rather than a schedule's text."""
    return Path(file).suffix.lower() == ".json"


def load_table(target: str, *, ranks: int | None = None, params: Mapping[str, Any] | None = None, op: str | None = None,
               max_ops: int | None = None, make_up_counts: bool = False) -> tuple[OpTable, list[Diagnostic]]:
    """The op table of ``FILE``, ``FILE::NAME`` or a table in JSON, and what its expansion remarked.

    Parameters that are not given have their defaults; where the schedule computes its size, ``ranks`` picks values of
    the `verify` line that lead to it. With ``make_up_counts``, counts may be left out: some are made up, and a note
    says so.

    Raises SchedError: whatever is wrong with the file (SL1xx), its names and values (SL2xx).
    """
    file, name = split_name(target)
    if is_table(file):
        return read_table(file, name, ranks=ranks, params=params, op=op), []
    from schedlang.expand import load_program

    program = load_program(file)
    name = program.main(name)
    given = {**(params or {}), **({} if ranks is None else {"ranks": ranks})}
    table, findings = expand_case(program, name, given, op=op, max_ops=max_ops)
    if table is None and make_up_counts and any(d.code == "SL206" for d in findings):
        made_up = _made_up(program, name, given)
        if made_up:
            table, findings = expand_case(program, name, {**made_up, **given}, op=op, max_ops=max_ops)
            findings = [*findings, *(note(
                "SL206", f"`{key}` was not given: an uneven one with zeros is made up", help=f"-p {key}=@FILE gives it")
                for key in made_up)]
    if table is None:
        raise SchedError(findings)
    return table, findings


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

    table = loads(read(file).text, file)
    if name not in (None, table.name):
        raise SchedError(error("SL212", f"{file} holds the schedule {table.name}, not {name}"))
    if params:
        raise SchedError(error("SL206", f"{file} is an op table, expanded already: it takes no {', '.join(params)}",
                               help="give parameters to a .sched file"))
    if ranks not in (None, table.ranks):
        raise SchedError(error("SL206", f"{file} is an op table for {table.ranks} ranks, not {ranks}"))
    return table if op is None else with_op(table, op)


def with_op(table: OpTable, op: str) -> OpTable:
    """The table with another reduction operator, a key of ``ops.REDUCE_OPS``. Raises SchedError (SL806)."""
    if op not in tuple(REDUCE_OPS):         # from Python it may be anything
        raise SchedError(error("SL806", f"there is no reduction operator {op}",
                               help=f"choose one of: {', '.join(REDUCE_OPS)}"))
    if not COLLECTIVES[table.collective.name].reduces:
        raise SchedError(error("SL806", f"{table.name} is for {table.collective.name}, which reduces nothing",
                               help="leave the operator out"))
    return table.with_columns(collective=replace(table.collective, op=op))


def _made_up(program: Program, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Counts that were not given, where everything else was."""
    from schedlang.expand import cases

    rest = {key: [value] for key, value in given.items() if key != "ranks"}
    try:
        found = cases(program, name, ranks=[given["ranks"]] if "ranks" in given else None, params=rest)
    except SchedError:
        return {}
    missing = {key: value for key, value in found[0].items() if key not in given} if len(found) == 1 else {}
    return missing if all(hasattr(value, "shape") for value in missing.values()) else {}
