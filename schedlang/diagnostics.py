"""A finding as data. Passes collect findings; only ``render`` writes them, only ``cli`` makes an exit code of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from schedlang.codes import CODES
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

    def __str__(self) -> str:
        return f"note: {_where(self.location)}{self.message}"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding.

    ``code`` is a key of :data:`schedlang.codes.CODES`. ``message`` says what and why, ``help`` how to mend it.
    ``count`` is how many equal findings (on other ranks, chunks or loop turns) this one stands for, itself included.
    ``witness`` holds the finding's facts for programs: plain JSON values only. ``str()`` gives the finding as plain
    text: ``file:line:col: severity[code] name: message``, then lines with the notes and the help.
    """

    code: str
    severity: Severity
    message: str
    location: Location | None = None
    notes: tuple[Note, ...] = ()
    help: str | None = None
    count: int = 1
    witness: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        more = f" (and {self.count - 1:,} more like it)" if self.count > 1 else ""
        name = f" {CODES[self.code].name}" if self.code in CODES else ""
        lines = [f"{_where(self.location)}{self.severity}[{self.code}]{name}: {self.message}{more}",
                 *map(str, self.notes)]
        if self.help:
            lines.append(f"help: {self.help}")
        return "\n  ".join(lines)


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
        super().__init__("\n".join(map(str, self.diagnostics)))


def _where(at: Location | None) -> str:
    return f"{at.file}:{at.line}:{at.column}: " if at is not None else ""
