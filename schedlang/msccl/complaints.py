"""What is wrong with an MSCCL file: findings at tags and attributes, collected, and never a flood of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from schedlang.diagnostics import Diagnostic, Note, SchedError, error
from schedlang.ir.table import Array
from schedlang.msccl.places import attribute_span, tag_span
from schedlang.source import Source

_EACH = 3
"""How often a rule is reported at a place of its own; the last one counts the rest."""

_MOST = 20
"""How many findings there are at most."""


class Complaints:
    """The findings on one file, in the order in which they were found."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: list[Diagnostic] = []

    @property
    def full(self) -> bool:
        """Whether no more findings are taken."""
        return len(self.found) >= _MOST

    def add(self, message: str, at: int, attribute: str | None = None, *, help: str, code: str = "SL108",
            notes: Sequence[Note] = (), count: int = 1) -> None:
        """A finding at a tag, or at an attribute of it."""
        if not self.full:
            place = tag_span(self.source, at) if attribute is None else attribute_span(self.source, at, attribute)
            self.found.append(error(code, message, place, help=help, notes=notes, count=count))

    def each(self, wrong: Array, at: Array, says: Callable[[int], str], attribute: str | None = None, *, help: str,
             code: str = "SL108", notes: Callable[[int], Sequence[Note]] = lambda _: ()) -> None:
        """A finding for each of the entries ``wrong`` (their indices) of what begins at ``at``, in the order in which
        they stand in the file; the last of those that are said counts the others."""
        rows = wrong[at[wrong].argsort(kind="stable")].tolist()
        for i, row in enumerate(rows[:_EACH]):
            self.add(says(row), int(at[row]), attribute, help=help, code=code, notes=notes(row),
                     count=len(rows) - i if i == _EACH - 1 else 1)

    def stop(self) -> None:
        """Raises SchedError where there is a finding."""
        if self.found:
            raise SchedError(self.found)
