"""Parameters: what they are bound to, and which values `verify` tries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from schedlang.diagnostics import Diagnostic, SchedError, error
from schedlang.expand.declare import LARGEST, Declarations, RecursionInDeclarations, Root
from schedlang.expand.evaluate import Evaluator
from schedlang.expand.frame import Fail, Frame, fail, shown_at
from schedlang.expand.lists import from_plain, size
from schedlang.expand.program import Module, did_you_mean
from schedlang.expand.values import POISON, Interval, Items, KindMismatch, Value, as_items, at, kind, longest
from schedlang.expand.walk import names_in
from schedlang.ops import COLLECTIVES
from schedlang.source import Span
from schedlang.syntax import tree as t

MAX_CASES = 100_000
LONGEST_LIST = 1 << 20
"""How many elements a list may have that a parameter is bound to."""
DEFAULT_RANKS = range(2, 9)
"""What `verify` tries where neither the file nor the caller says anything."""


def bound(schedule: t.Schedule, module: Module, evaluate: Evaluator, given: Mapping[str, Value]) -> dict[str, Value]:
    """All parameters with their values, given or by default. Raises Fail SL206."""
    names: dict[str, Value] = {}
    frame = Frame(1, names=names)
    known = [p.name for p in schedule.params]
    for name in given:
        if name not in known:
            raise fail("SL206", f"schedule `{schedule.name}` has no parameter `{name}`", schedule.name_span, frame,
                       help=did_you_mean(name, known) or _parameters_text(known))
    for p in schedule.params:
        default = evaluate(p.default, Frame(1, names=dict(names)), module) if p.default is not None else None
        value = given.get(p.name)
        if value is None:
            if default is None:
                raise fail(
                    "SL206", f"schedule `{schedule.name}` needs a value for its parameter `{p.name}`", p.span, frame
                )
            value = default
        elif default is not None and kind(value) != kind(default):
            article = "an" if kind(default) == "integer" else "a"
            raise fail(
                "SL206",
                f"parameter `{p.name}` is {article} {kind(default)}, and it is given {shown_at(value, 0)}",
                p.span,
                frame,
            )
        if p.name in ("ranks", "chunks"):
            if isinstance(value, bool) or not isinstance(value, int):
                raise fail("SL206", f"`{p.name}` must be an integer, not {shown_at(value, 0)}", p.span, frame)
            if not 1 <= value <= LARGEST:
                raise fail("SL206", f"`{p.name}` is {value}; it must be at least 1" + (
                    f" and at most {LARGEST:,}" if value > 1 else ""), p.span, frame)
        names[p.name] = listed(value, p.span, frame)
    return names


def listed(value: Value, span: Span, frame: Frame) -> Value:
    """A value as it may be given to a parameter: a list is written out, and bounded. Raises Fail SL208."""
    if isinstance(value, (Interval, Items)):
        elements = size(value) if isinstance(value, Items) else longest(value)
        if elements > LONGEST_LIST:
            raise fail(
                "SL208", f"a list of {elements:,.0f} elements is too long for a parameter", span, frame, final=True
            )
        return as_items(value, frame.n)
    return value


def _parameters_text(known: list[str]) -> str:
    return "its parameters are: " + ", ".join(known) if known else "it has no parameters"


def converted(schedule: t.Schedule, given: Mapping[str, Any]) -> dict[str, Value]:
    """Parameter values from a caller, as values of the language. Raises SchedError SL206."""
    values = {}
    for name, value in given.items():
        try:
            values[name] = from_plain(value)
        except (KindMismatch, TypeError, OverflowError) as why:
            text = "a list holds values of one kind" if isinstance(why, KindMismatch) else str(why)
            raise SchedError(
                error("SL206", f"parameter `{name}` has no usable value: {text}", schedule.name_span)
            ) from None
    return values


# ---- the values that `verify` tries --------------------------------------------------------------------------------


def assignments(schedule: t.Schedule, module: Module, ranks: Sequence[int] | None,
                given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """See :func:`schedlang.expand.cases`. Raises SchedError."""
    known_parameters(schedule, given)
    choices = {k: list(v) if isinstance(v, (list, range)) else [v] for k, v in given.items()}
    sized = any(p.name == "ranks" for p in schedule.params)
    counts = choices.get(counts_argument(schedule) or "", [])
    if ranks is None and "ranks" not in choices:
        ranks = sorted({n for n in map(ranks_of_counts, counts) if n}) or None
    if ranks is not None and sized:
        if "ranks" in choices:
            raise SchedError(
                error("SL206", "`ranks` is given twice: as the world size and as a parameter", schedule.name_span)
            )
        choices["ranks"] = list(ranks)
    found: list[dict[str, Any]] = []
    worlds: set[int] = set()
    try:
        for values in _products(schedule, module, choices):
            size = values["ranks"] if "ranks" in values else world(schedule, module, values)
            if size is not None:
                worlds.add(size)
                values = {"ranks": size, **values}
            if ranks is None or sized or size is None or size in ranks:
                found.append(with_counts(schedule, values, size))
            if len(found) > MAX_CASES:
                raise SchedError(error("SL208", f"more than {MAX_CASES:,} combinations of parameters to try",
                                       schedule.name_span, help="give some of them with -p"))
    except Fail as why:
        raise SchedError(why.findings) from None
    if ranks is not None and not sized and worlds and not found:
        raise other_world(schedule, ranks, worlds)
    if not found:
        raise nothing_to_try(schedule)
    return found


def known_parameters(schedule: t.Schedule, given: Iterable[str]) -> None:
    """Raises SchedError SL206 for a name that is none of the schedule's parameters."""
    known = [p.name for p in schedule.params]
    for name in given:
        if name not in known:
            raise SchedError(error("SL206", f"schedule `{schedule.name}` has no parameter `{name}`", schedule.name_span,
                                   help=did_you_mean(name, known) or _parameters_text(known)))


def verify_ranges(schedule: t.Schedule) -> dict[str, t.VerifyRange]:
    """The values of the `verify` line, by parameter. Raises SchedError SL201: see :func:`used_too_early`."""
    line = next((s for s in schedule.body if isinstance(s, t.VerifyStmt)), None)
    if line is None:
        return {}
    found = used_too_early(line, frozenset(p.name for p in schedule.params))
    if found:
        raise SchedError(found)
    return {r.name: r for r in line.ranges}


def used_too_early(line: t.VerifyStmt, known: frozenset[str]) -> list[Diagnostic]:
    """SL201 for values of a `verify` line that are made of a known name which does not stand before them there."""
    found: list[Diagnostic] = []
    earlier: set[str] = set()
    for r in line.ranges:
        late = sorted((names_in(r.values) & known) - earlier)
        if late:
            found.append(error(
                "SL201", f"`{late[0]}` has no value here: values may be made of the names before them on the line",
                r.values.span, help=f"begin the line with it: `verify {late[0]} in ...`"))
        earlier.add(r.name)
    return found


class OtherWorld(SchedError):
    """No values make a world of the size that is wanted; of another size they may."""


def other_world(schedule: t.Schedule, wanted: Sequence[int], worlds: Iterable[int]) -> OtherWorld:
    """The error for a world size, of those ``wanted``, that is computed and never comes out; ``worlds`` do."""
    line = next(s for s in schedule.body if isinstance(s, t.RanksStmt))
    asked, there = " or ".join(map(str, wanted)), ", ".join(map(str, sorted(worlds)[:20]))
    if not _made_of_parameters(schedule, line.value):
        return OtherWorld(error(
            "SL206", f"`{schedule.name}` is for {there} ranks, as its `{line.span.text}` says, not for {asked}",
            line.span, help="leave out --ranks; for a schedule of any size make `ranks` a parameter instead"))
    return OtherWorld(error(
        "SL206", f"no values of `{schedule.name}` make a world of {asked} ranks; those tried make: {there}",
        schedule.name_span,
        help="its world size is computed: give its parameters with -p, or add them to its `verify` line"))


def _made_of_parameters(schedule: t.Schedule, value: t.Expr) -> bool:
    """Whether an expression at the top of a schedule depends on a parameter, also through a `let`."""
    lets = {s.name: s.value for s in schedule.body if isinstance(s, t.Let)}
    seen: set[str] = set()
    left = set(names_in(value))
    while left:
        name = left.pop()
        seen.add(name)
        left |= (names_in(lets[name]) if name in lets else set()) - seen
    return bool(seen & {p.name for p in schedule.params})


def nothing_to_try(schedule: t.Schedule) -> SchedError:
    """The error for a `verify` line whose lists are empty."""
    return SchedError(error("SL206", f"the `verify` line of `{schedule.name}` leaves no values to try",
                            schedule.name_span, help="give values with --ranks and -p, or add some to the line"))


def _products(schedule: t.Schedule, module: Module, choices: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """All combinations: what is given, else the `verify` line, else the default, else 2..9 ranks."""
    ranges = verify_ranges(schedule)
    evaluate = Evaluator(MAX_CASES)
    params = {p.name: p for p in schedule.params}
    order = [*(name for name in ranges if name in params), *(name for name in params if name not in ranges)]

    def rest(i: int, values: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if i == len(order):
            yield {p: values[p] for p in params if p in values}
            return
        name = order[i]
        for value in _choices(name, values):
            yield from rest(i + 1, values if value is None else {**values, name: value})

    def _choices(name: str, values: dict[str, Any]) -> list[Any]:
        if name in choices:
            return choices[name]
        if name in ranges:
            frame = Frame(1, names={k: from_plain(v) for k, v in values.items()})
            evaluate.turns = 0
            listed = evaluate.list(ranges[name].values, frame, module)
            tried = at(evaluate.written(listed, ranges[name].values.span, frame), 0)
            assert isinstance(tried, list)
            return tried
        if params[name].default is not None:
            return [None]  # left to expansion
        if name == "ranks":
            return list(DEFAULT_RANKS)
        if _is_counts(schedule, name):
            return [None]  # made when the world size is known
        raise fail("SL206", f"schedule `{schedule.name}` needs values for its parameter `{name}`", params[name].span,
                   Frame(1), help="give it with -p, or add it to a `verify` line")

    return rest(0, {})


def _is_counts(schedule: t.Schedule, name: str) -> bool:
    return counts_argument(schedule) == name


def counts_argument(schedule: t.Schedule) -> str | None:
    """The parameter that is the `counts` of the collective, where that is a plain name."""
    for s in schedule.body:
        if isinstance(s, t.CollectiveStmt) and s.name in COLLECTIVES:
            arguments = list(COLLECTIVES[s.name].arguments)
            for i, a in enumerate(s.arguments):
                if "counts" in (a.name, arguments[i] if a.name is None and i < len(arguments) else None) and isinstance(
                        a.value, t.Name):
                    return a.value.id
    return None


def ranks_of_counts(counts: Any) -> int:
    """For how many ranks some counts are; 0 where they are none."""
    return len(counts) if isinstance(counts, (list, tuple)) or (
        isinstance(counts, np.ndarray) and counts.ndim) else 0


def with_counts(schedule: t.Schedule, values: dict[str, Any], world: int | None) -> dict[str, Any]:
    """The values with counts made up where the schedule needs some and has none: uneven, with zeros, always the
    same.
    """
    name = counts_argument(schedule)
    param = next((p for p in schedule.params if p.name == name), None)
    if name is None or param is None or name in values or param.default is not None or world is None:
        return values
    collective = next(s.name for s in schedule.body if isinstance(s, t.CollectiveStmt))
    r = np.arange(world)
    counts = (3 * r[:, None] + 5 * r[None, :] + 1) % 7 if collective == "alltoallv" else (3 * r + 1) % 5
    return {**values, name: counts.astype(np.int64)}


def world(schedule: t.Schedule, module: Module, values: Mapping[str, Any]) -> int | None:
    """The world size that values lead to; None where it cannot be worked out, which expansion will explain."""
    evaluate = Evaluator(MAX_CASES)
    missing = counts_argument(schedule)         # nothing that the size may depend on
    try:
        unknown: dict[str, Value] = {p.name: POISON for p in schedule.params if p.name == missing and p.default is None}
        names = bound(schedule, module, evaluate, unknown | converted(schedule, values))
        return Declarations(schedule, module, evaluate, Root(names), None).ranks
    except (Fail, KeyError, RecursionInDeclarations):
        return None
