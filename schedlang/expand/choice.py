"""One case of a schedule: values for the parameters that somebody who runs or draws it left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from schedlang.diagnostics import SchedError, error
from schedlang.expand.evaluate import Evaluator
from schedlang.expand.frame import Fail, Frame
from schedlang.expand.lists import from_plain
from schedlang.expand.parameters import (
    MAX_CASES,
    converted,
    counts_argument,
    known_parameters,
    nothing_to_try,
    other_world,
    ranks_of_counts,
    verify_ranges,
    with_counts,
    world,
)
from schedlang.expand.program import Module
from schedlang.expand.values import Value, at
from schedlang.syntax import tree as t


@dataclass(frozen=True)
class Choice:
    """Values for one expansion: those given, and ``listed`` from the `verify` line; ``made_up`` are counts. Parameters
    in none of them have their defaults."""

    given: Mapping[str, Any]
    listed: Mapping[str, Any]
    made_up: Mapping[str, Any]

    @property
    def values(self) -> dict[str, Any]:
        """All of them together."""
        return {**self.given, **self.listed, **self.made_up}


def choices(schedule: t.Schedule, module: Module, ranks: int | None, given: Mapping[str, Any], *,
            make_up_counts: bool = False) -> Iterator[Choice]:
    """The cases that fit what is given, the one that is meant first.

    A parameter has the value that is given, else its default, else those of the `verify` line, one after another. Where
    the world size is computed and ``ranks`` asks for another than the defaults lead to, parameters with a default have
    those of the `verify` line as well. Where no number of ranks is given, but counts are, it is theirs.

    Raises SchedError SL206 where a parameter has no value, or none leads to ``ranks``; SL2xx for the `verify` line.
    """
    known_parameters(schedule, given)
    params = {p.name: p for p in schedule.params}
    if ranks is None and "ranks" not in given:
        ranks = ranks_of_counts(given.get(counts_argument(schedule) or "")) or None
    if "ranks" in params:
        if ranks is not None and given.get("ranks", ranks) != ranks:
            raise SchedError(error("SL206", "`ranks` is given twice: as the world size and as a parameter",
                                   schedule.name_span))
        given = dict(given) if ranks is None else {**given, "ranks": ranks}
        if "ranks" not in given and params["ranks"].default is None:
            raise SchedError(error("SL206", f"schedule `{schedule.name}` needs a number of ranks", params["ranks"].span,
                                   help="give it with --ranks N, in Python with ranks=N"))
    fitting, worlds = False, set()
    unknown: Choice | None = None
    for listed in _listed(schedule, module, given, vary=ranks is not None and "ranks" not in params):
        values = {**given, **listed}
        size = values["ranks"] if "ranks" in values else world(schedule, module, values)
        counts: Mapping[str, Any] = {}
        if make_up_counts:
            counts = {k: v for k, v in with_counts(schedule, values, size).items() if k not in values}
        choice = Choice(given, listed, counts)
        if ranks is None or "ranks" in params or size == ranks:
            fitting = True
            yield choice
        elif size is None:
            unknown = unknown or choice
        else:
            worlds.add(size)
    if fitting:
        return
    if unknown is not None and not worlds:
        yield unknown       # its expansion says what is wrong with it
        return
    if not worlds:
        raise nothing_to_try(schedule)
    assert ranks is not None
    raise other_world(schedule, [ranks], worlds)


def _listed(schedule: t.Schedule, module: Module, given: Mapping[str, Any], vary: bool) -> Iterator[dict[str, Any]]:
    """Values of the `verify` line for the parameters without another; with ``vary`` also for those with a default,
    after cases in which they have that."""
    ranges = verify_ranges(schedule)
    params = {p.name: p for p in schedule.params}
    order = [*(name for name in ranges if name in params), *(name for name in params if name not in ranges)]
    fixed = converted(schedule, given)
    evaluate = Evaluator(MAX_CASES)
    tried = 0

    def rest(i: int, names: dict[str, Value], listed: dict[str, Any]) -> Iterator[dict[str, Any]]:
        nonlocal tried
        if i == len(order):
            tried += 1
            if tried > MAX_CASES:
                raise SchedError(error("SL208", f"more than {MAX_CASES:,} combinations of parameters to try",
                                       schedule.name_span, help="give some of them with -p"))
            yield listed
            return
        name = order[i]
        default = params[name].default
        if name in fixed:
            yield from rest(i + 1, {**names, name: fixed[name]}, listed)
            return
        if default is not None:
            yield from rest(i + 1, _with(name, default, names), listed)
            if not vary:
                return
        if name in ranges:
            for value in _values(ranges[name], names):
                yield from rest(i + 1, {**names, name: from_plain(value)}, {**listed, name: value})
        elif default is None and counts_argument(schedule) == name:
            yield from rest(i + 1, names, listed)
        elif default is None:
            raise SchedError(error(
                "SL206", f"schedule `{schedule.name}` needs a value for its parameter `{name}`", params[name].span,
                help=f"give it with -p {name}=VALUE, in Python with {name}=VALUE, or add it to a `verify` line"))

    def _with(name: str, default: t.Expr, names: dict[str, Value]) -> dict[str, Value]:
        try:
            return {**names, name: evaluate(default, Frame(1, names=dict(names)), module)}
        except Fail:
            return names    # expansion, which has all names, works it out

    def _values(range_: t.VerifyRange, names: dict[str, Value]) -> list[Any]:
        frame = Frame(1, names=dict(names))
        evaluate.turns = 0
        try:
            found = at(evaluate.written(evaluate.list(range_.values, frame, module), range_.values.span, frame), 0)
        except Fail as why:
            raise SchedError(why.findings) from None
        assert isinstance(found, list)
        return found

    return rest(0, {}, {})
