"""Verifying a schedule for many values of its parameters, and the tables of a file that holds such."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from schedlang.codes import CODES, UNUSABLE
from schedlang.diagnostics import Diagnostic, Note, SchedError, Severity
from schedlang.report import Case, Report, Status

if TYPE_CHECKING:
    from schedlang.expand import Program
    from schedlang.ir.table import OpTable


def survey(program: Program, name: str, cases: Sequence[Mapping[str, Any]], *, file: str, op: str | None = None,
           max_ops: int | None = None, made_up: tuple[str, ...] = (),
           progress: Callable[[int, Mapping[str, Any]], None] | None = None, **how: Any) -> Report:
    """Expands and verifies one schedule of a program for each of the given values (see ``expand.cases``).

    Values that a `require` excludes are skipped, unless it excludes all: then each is unusable. ``progress`` is called
    before each case, with its position and its values. ``how``: see :func:`judge`.
    """
    told = cases if progress is None else _told(cases, progress)
    found = tuple(_cases(program, name, told, op, max_ops, how))
    if all(case.status == "skipped" for case in found):
        found = tuple(replace(case, status="unusable") for case in found)
    return Report(file, name, _weighed(found), made_up)


def survey_tables(cases: Sequence[Mapping[str, Any]], make: Callable[[Mapping[str, Any]], OpTable], name: str, *,
                  file: str, progress: Callable[[int, Mapping[str, Any]], None] | None = None, **how: Any) -> Report:
    """Verifies the tables that ``make`` gives for the given values; where it raises SchedError, that is the verdict.
    What is useless in some of them only is left out. ``progress`` and ``how`` as for :func:`survey`."""
    told = cases if progress is None else _told(cases, progress)
    return Report(file, name, _needed(tuple(_tables(told, make, how))))


def _tables(cases: Iterable[Mapping[str, Any]], make: Callable[[Mapping[str, Any]], OpTable],
            how: Mapping[str, Any]) -> Iterator[Case]:
    for values in cases:
        try:
            table = make(values)
        except SchedError as failure:
            yield Case(values, _unexpanded(failure.diagnostics), failure.diagnostics)
        else:
            yield judge(table, values, **how)


def _told(cases: Iterable[Mapping[str, Any]],
          progress: Callable[[int, Mapping[str, Any]], None]) -> Iterator[Mapping[str, Any]]:
    for position, values in enumerate(cases):
        progress(position, values)
        yield values


def judge(table: OpTable, values: Mapping[str, Any], earlier: Iterable[Diagnostic] = (), **how: Any) -> Case:
    """The verdict on one table; ``earlier`` are findings from before there was one. ``how``: the options of
    :func:`schedlang.verify.verify`; None: its default."""
    from schedlang.verify import verify

    verdict = verify(table, **{option: value for option, value in how.items() if value is not None})
    return Case(values, "ok" if verdict.ok else "faulty", (*earlier, *verdict.diagnostics),
                verdict.proofs, verdict.facts, verdict.model)


def _cases(program: Program, name: str, cases: Iterable[Mapping[str, Any]], op: str | None, max_ops: int | None,
           how: Mapping[str, Any]) -> Iterator[Case]:
    from schedlang.loading import expand_case

    for values in cases:
        table, findings = expand_case(program, name, values, op=op, max_ops=max_ops)
        if table is None:
            yield Case(values, _unexpanded(findings), tuple(findings))
        else:
            yield judge(table, values, findings, **how)


_USELESS = ("SL607", "SL608")
_OTHERS_NEED_IT = "other sizes need it: let a trailing `if`, or where the loop ends, depend on the size, or let it be"


def _weighed(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """The cases; what is useless for some sizes only is noted there, and no reason for a warning: the same lines serve
    the other sizes."""
    judged, often = _useless(cases)

    def weighed(d: Diagnostic) -> Diagnostic:
        times = often.get(_place(d), 0)
        if d.code not in _USELESS or times == judged:
            return d
        told = Note(f"so in {times} of the {judged} cases with several ranks")
        return replace(d, severity=Severity.NOTE, notes=(*d.notes, told), help=_OTHERS_NEED_IT)

    if all(times == judged for times in often.values()):
        return cases
    return tuple(replace(case, diagnostics=tuple(map(weighed, case.diagnostics))) for case in cases)


def _needed(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """The cases without what is useless in some of them only, such as a copy to where a value is already, in place."""
    judged, often = _useless(cases)
    return tuple(replace(case, diagnostics=tuple(
        d for d in case.diagnostics if d.code not in _USELESS or often.get(_place(d), 0) == judged)) for case in cases)


def _useless(cases: Iterable[Case]) -> tuple[int, Counter[tuple[Any, ...]]]:
    """How many cases with several ranks are right, and in how many of them what stands at each place is useless."""
    judged = [case for case in cases if case.status == "ok" and case.values.get("ranks") != 1]
    return len(judged), Counter(place for case in judged for place in {
        _place(d) for d in case.diagnostics if d.code in _USELESS})


def _place(d: Diagnostic) -> tuple[Any, ...]:
    return d.code, *((d.location.file, d.location.line, d.location.column) if d.location is not None else ())


def _unexpanded(findings: Iterable[Diagnostic]) -> Status:
    errors = [d.code for d in findings if d.severity == Severity.ERROR]
    if errors and all(code == "SL207" for code in errors):
        return "skipped"
    return "unusable" if any(CODES[code].exit == UNUSABLE for code in errors) else "faulty"
