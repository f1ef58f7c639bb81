"""Verdicts on one schedule for many values of its parameters, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from schedlang.diagnostics import Diagnostic, Severity

Status = Literal["ok", "faulty", "skipped", "unusable"]

_GROWING = ("SL613", "SL614")
"""What weighs the more the more ranks add up, and is found once a case, wherever the example of it stands."""


class Proof(Protocol):
    """One property: ``state`` is proved, failed or not judged, ``detail`` how, or why not."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def detail(self) -> str: ...


@dataclass(frozen=True)
class Case:
    """The verdict for one choice of values.

    ``values``: ``ranks`` and the parameters. ``status``: ``skipped`` where a `require` excludes these values,
    ``unusable`` where they cannot be used at all. ``proofs`` and ``facts`` are those of the verdict; empty where
    nothing was verified. ``model``: by how much buffering deadlock was judged, in words; empty where nothing was.
    """

    values: Mapping[str, Any]
    status: Status
    diagnostics: tuple[Diagnostic, ...]
    proofs: tuple[Proof, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the errors that were found, sorted."""
        return tuple(sorted({d.code for d in self.diagnostics if d.severity == Severity.ERROR}))


@dataclass(frozen=True)
class Report:
    """The verdicts on one schedule, in the order in which its cases were tried.

    ``notes``: what there is to say of the file as a whole, whatever its cases: no errors.
    ``made_up``: parameters that nobody gave a value, and that no value stands for in the schedule: counts.
    ``unused_op``: the operator that was asked for, where the schedule has none to replace.
    """

    file: str
    schedule: str
    cases: tuple[Case, ...]
    made_up: tuple[str, ...] = ()
    unused_op: str | None = None
    notes: tuple[Diagnostic, ...] = ()

    @property
    def status(self) -> Status:
        """``unusable`` where a case is, else ``faulty`` where a case is, else ``ok``."""
        found = {case.status for case in self.cases}
        return "unusable" if "unusable" in found else "faulty" if "faulty" in found else "ok"

    @property
    def ok(self) -> bool:
        """Whether every case is right, or skipped."""
        return self.status == "ok"

    def with_status(self, *statuses: str) -> list[Case]:
        """The cases of these statuses, in order."""
        return [case for case in self.cases if case.status in statuses]

    @property
    def failures(self) -> list[Failure]:
        """The cases that fail, those alike together: the kinds of faulty cases by their number of ranks, then the
        unusable ones."""
        kinds: dict[tuple[str, ...], list[Case]] = {}
        for status in ("faulty", "unusable"):
            for case in sorted(self.with_status(status), key=_ranks):
                kinds.setdefault((status, *case.codes), []).append(case)
        return [Failure(tuple(cases)) for cases in kinds.values()]

    @property
    def remarks(self) -> list[tuple[Case, Diagnostic]]:
        """What was found in the clean cases, each place once, with the first case that has it; what a dtype does to
        the results once, with the largest."""
        seen: dict[tuple[Any, ...], tuple[Case, Diagnostic]] = {}
        for case in self.with_status("ok"):
            for d in case.diagnostics:
                at = d.location
                if d.code in _GROWING:
                    key: tuple[Any, ...] = (d.code,)
                    if key in seen and _ranks(case) >= _ranks(seen[key][0]):
                        del seen[key]
                else:
                    key = d.code, at and (at.file, at.line, at.column)
                seen.setdefault(key, (case, d))
        return list(seen.values())

    @property
    def largest(self) -> Case | None:
        """The clean case whose facts stand for the others: of those with the most ranks the last one. None: no case is
        clean."""
        return max(reversed(self.with_status("ok")), key=_ranks, default=None)


def _ranks(case: Case) -> int:
    return int(case.values.get("ranks", 0))


@dataclass(frozen=True)
class Failure:
    """Cases of one status in which errors of the same codes were found, those with the fewest ranks first."""

    cases: tuple[Case, ...]

    @property
    def smallest(self) -> Case:
        """The case that is shown for all."""
        return self.cases[0]

    @property
    def elsewhere(self) -> list[tuple[Case, Diagnostic]]:
        """The errors in lines where the smallest case has none of that code, each with the first case that has it: the
        same fault seen at another place, or another fault of its kind."""
        lines: dict[tuple[Any, ...], tuple[Case, Diagnostic]] = {}
        for case in self.cases:
            for d in case.diagnostics:
                if d.severity == Severity.ERROR and d.location is not None:
                    lines.setdefault((d.code, d.location.file, d.location.line), (case, d))
        return [(case, d) for case, d in lines.values() if case is not self.smallest]
