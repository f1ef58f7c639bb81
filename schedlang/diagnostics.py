"""A finding as data. Passes collect findings; only ``render`` writes them, only ``cli`` makes an exit code of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from schedlang.source import Location


class Severity(IntEnum):
    """How much a finding weighs. Only errors make a verdict faulty."""

    NOTE = 0
    WARNING = 1
    ERROR = 2

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Note:
    """A further place or fact that belongs to a finding, for example one step of a cycle."""

    message: str
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding.

    ``code`` is a key of :data:`schedlang.codes.CODES`. ``message`` says what and why, ``help`` how to mend it.
    ``count`` is how many equal findings (on other ranks, chunks or loop turns) this one stands for, itself included.
    ``witness`` holds the finding's facts for programs: plain JSON values only.
    """

    code: str
    severity: Severity
    message: str
    location: Location | None = None
    notes: tuple[Note, ...] = ()
    help: str | None = None
    count: int = 1
    witness: Mapping[str, Any] = field(default_factory=dict)


def error(code: str, message: str, location: Location | None = None, *, notes: Sequence[Note] = (),
          help: str | None = None, count: int = 1, **witness: Any) -> Diagnostic:
    """An error; keyword arguments that are left over become the witness."""
    return Diagnostic(code, Severity.ERROR, message, location, tuple(notes), help, count, witness)


def warning(code: str, message: str, location: Location | None = None, *, notes: Sequence[Note] = (),
            help: str | None = None, count: int = 1, **witness: Any) -> Diagnostic:
    """A warning; see :func:`error`."""
    return Diagnostic(code, Severity.WARNING, message, location, tuple(notes), help, count, witness)


def note(code: str, message: str, location: Location | None = None, *, notes: Sequence[Note] = (),
         help: str | None = None, count: int = 1, **witness: Any) -> Diagnostic:
    """A note; see :func:`error`."""
    return Diagnostic(code, Severity.NOTE, message, location, tuple(notes), help, count, witness)


class SchedError(Exception):
    """What a library call raises when it cannot go on: the findings that say why are in ``diagnostics``."""

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = (
            (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics))
        super().__init__("\n".join(f"{_where(d)}{d.code}: {d.message}" for d in self.diagnostics))


def _where(d: Diagnostic) -> str:
    at = d.location
    return f"{at.file}:{at.line}:{at.column}: " if at is not None else ""
