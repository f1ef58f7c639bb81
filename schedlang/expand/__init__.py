"""Expansion: a parsed schedule and values for its parameters become an op table."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from schedlang.diagnostics import Diagnostic, SchedError, error
from schedlang.expand.choice import Choice, choices
from schedlang.expand.collective import combines as _combines
from schedlang.expand.evaluate import Evaluator
from schedlang.expand.expansion import Expansions, Failed
from schedlang.expand.frame import Fail, Frame
from schedlang.expand.parameters import OtherWorld, assignments, converted, listed, world
from schedlang.expand.program import Program, Texts, did_you_mean, load_program, load_text
from schedlang.expand.remarks import USELESS
from schedlang.expand.values import Array, Items, at
from schedlang.ir.table import OpTable
from schedlang.ops import MAX_OPS, REDUCE_OPS
from schedlang.syntax import tree as t

__all__ = [
    "Choice", "OtherWorld", "Program", "Texts", "Value", "cases", "choose", "combines", "constant_value", "expand",
    "load_program", "load_text",
]

Value = int | bool | str | list[Any] | Array
"""What a parameter can be given: an integer, a boolean, a name such as that of an operator, a list, a matrix of
counts.
"""

_T = TypeVar("_T")


def expand(program: Program, name: str, *, ranks: int | None = None, params: Mapping[str, Value] | None = None,
           op: str | None = None, max_ops: int = MAX_OPS) -> tuple[OpTable | None, list[Diagnostic]]:
    """The op table of a schedule of a program, and what was found on the way; None where that includes an error.

    ``name``: one of ``program.names``. ``ranks``: the world size; where the schedule computes it and the parameters
    given lead to another one, values are taken from its `verify` line. ``params``: values for its parameters, the
    others have their defaults. ``op`` replaces the operator of the collective. ``max_ops`` bounds the rows and the
    loop turns.
    """
    def run() -> tuple[OpTable | None, list[Diagnostic]]:
        try:
            return _expand(program, name, ranks, dict(params or {}), op, max_ops)
        except SchedError as why:
            return None, list(why.diagnostics)
        except Failed as why:
            return None, why.findings

    return _with_room(run, program.root.schedules.get(name))


def _expand(program: Program, name: str, ranks: int | None, params: dict[str, Value], op: str | None,
            max_ops: int) -> tuple[OpTable | None, list[Diagnostic]]:
    schedule = program.root.schedules[program.main(name)]
    if op is not None and op not in REDUCE_OPS:
        raise SchedError(error("SL206", f"there is no reduction operator `{op}`", schedule.name_span,
                               help=did_you_mean(op, list(REDUCE_OPS)) or "the operators are " + ", ".join(REDUCE_OPS)))
    max_ops = min(max_ops, (1 << 31) - 1)
    expansions = Expansions(max_ops)
    expansions.check(schedule, program.root)
    sized = any(p.name == "ranks" for p in schedule.params)
    if ranks is not None and sized:
        if params.get("ranks", ranks) != ranks:
            raise SchedError(
                error(
                    "SL206",
                    f"the parameter `ranks` is {params['ranks']}, but {ranks} ranks are asked for",
                    schedule.name_span,
                )
            )
        params["ranks"] = ranks
    elif ranks is not None:
        params = _for_world(schedule, program, ranks, params)
    try:
        try:
            table = expansions.table(schedule, program.root, converted(schedule, params), op)
        except Failed:
            if not expansions.shared:
                raise
            expansions = Expansions(max_ops, alone=True)
            table = expansions.table(schedule, program.root, converted(schedule, params), op)
    except Failed as why:
        return None, why.findings + [d for d in expansions.warnings if d.code not in USELESS]
    except MemoryError:
        return None, [error("SL208", "the expansion does not fit into memory", schedule.name_span)]
    if ranks is not None and table.ranks != ranks:
        return None, [
            error(
                "SL206",
                f"`{schedule.name}` is for {table.ranks} ranks with these parameters, not for {ranks}",
                schedule.name_span,
            )
        ]
    return table, expansions.warnings


def _for_world(schedule: t.Schedule, program: Program, ranks: int, params: dict[str, Value]) -> dict[str, Value]:
    """Parameters that lead to a world of ``ranks``: those given, and for the rest what the `verify` line has."""
    if world(schedule, program.root, params) == ranks:
        return params
    return next(choices(schedule, program.root, ranks, params)).values


def combines(program: Program, name: str) -> bool:
    """Whether a schedule of a program, one of ``program.names``, has an operator that another one can replace."""
    return _combines(program.root.schedules[name])


MAX_CHOICES = 100
"""How many cases that fit are looked at, until one is found that no `require` excludes."""


def choose(program: Program, name: str, *, ranks: int | None = None, params: Mapping[str, Value] | None = None,
           make_up_counts: bool = False) -> list[Choice]:
    """The first cases that fit what is given, at least one, the one that is meant first: see
    :func:`schedlang.expand.choice.choices`.

    With ``make_up_counts``, counts that are not given are made up as in :func:`cases`. Raises SchedError (SL2xx).
    """
    schedule = program.root.schedules[program.main(name)]

    def run() -> list[Choice]:
        try:
            Expansions(1).check(schedule, program.root)
        except Failed as why:
            raise SchedError(why.findings) from None
        return list(islice(choices(schedule, program.root, ranks, params or {}, make_up_counts=make_up_counts),
                           MAX_CHOICES))

    return _with_room(run, schedule)


def cases(program: Program, name: str, *, ranks: Sequence[int] | None = None,
          params: Mapping[str, Value | list[Value]] | None = None) -> list[dict[str, Value]]:
    """The parameter values that `verify` tries: one dict a case, with the world size under ``ranks`` (left out only
    where it cannot be worked out; expansion then says why).

    Values come from ``params`` (a list is a list of values to try, anything else one value), from ``ranks``, from the
    `verify` line, from the defaults. Without a `verify` line 2 to 8 ranks are tried. Where the schedule needs a
    matrix of counts and none is given, an uneven one with zeros is made up and stands in the case under its name.
    Where the world size is computed, ``ranks`` picks the cases that have it.

    Raises SchedError: SL206 (unknown parameter, parameter without values, no values for that world), SL2xx for the
    `verify` line itself.
    """
    schedule = program.root.schedules[program.main(name)]
    return _with_room(lambda: assignments(schedule, program.root, ranks, params or {}), schedule)


def constant_value(expr: t.Expr) -> Value:
    """The value of an expression that stands alone, such as that of ``-p k=[1, 2]``. A name that is no operator is
    itself.

    Raises SchedError: what is wrong with the expression (SL2xx).
    """
    if isinstance(expr, t.Name):
        return expr.id
    evaluate = Evaluator(MAX_OPS)
    try:
        value = listed(evaluate(expr, Frame(1), load_text("").root), expr.span, Frame(1))
        plain: Value = at(value, 0) if isinstance(value, Items) else value  # type: ignore[assignment]
        return plain
    except Fail as why:
        raise SchedError(why.findings) from None


_STACK = 256 << 20
_FRAMES = 200_000


def _with_room(run: Callable[[], _T], schedule: t.Schedule | None) -> _T:
    """Runs something that may recurse: as it is first, and where the stack is too small for it in a thread with a
    large one.
    """
    try:
        return run()
    except RecursionError:
        pass
    outcome: list[_T | BaseException] = []

    def inside() -> None:
        try:
            outcome.append(run())
        except BaseException as why:
            outcome.append(why)

    limit, size = sys.getrecursionlimit(), threading.stack_size(_STACK)
    try:
        sys.setrecursionlimit(max(limit, _FRAMES))
        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
        threading.stack_size(size)
    result = outcome[0]
    if isinstance(result, RecursionError):
        raise SchedError(error("SL209", "the schedule nests deeper than can be evaluated",
                               schedule.name_span if schedule is not None else None))
    if isinstance(result, BaseException):
        raise result
    return result
