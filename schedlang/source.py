"""Text, files and spans. A span is two offsets; line and column are worked out only when somebody looks."""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

LIBRARY = Path(__file__).parent / "library"
"""Where the shipped schedules are: a link to the examples in a checkout, a folder of them where installed."""

SHIPPED = "schedlang:"
"""What the names of shipped schedules' files begin with: these say nothing of the machine, and can be shared."""


def shipped_name(path: str | Path) -> str:
    """What messages call a file in LIBRARY: ``schedlang:allreduce/ring.sched``; where one works in the checkout itself,
    so that the examples lie in the current folder, their path from there."""
    inside = os.path.relpath(path, LIBRARY)
    if LIBRARY.is_symlink():
        try:
            near = os.path.relpath(LIBRARY.resolve() / inside)
        except (OSError, ValueError):       # no current folder, or one on another drive
            near = os.pardir
        if near.split(os.sep)[0] != os.pardir:
            return near
    return SHIPPED + inside.replace(os.sep, "/")


def on_disk(name: str) -> str:
    """The path of a file by what messages call it: a shipped one's lies in LIBRARY, any other has it for its name."""
    if name.startswith(SHIPPED):
        path = LIBRARY / name.removeprefix(SHIPPED)
        if path.is_file():
            return str(path)
    return name


@dataclass(frozen=True, eq=False)
class Source:
    """One text to read from: ``path`` is what messages show (see :func:`shipped_name`), ``text`` its content."""

    path: str
    text: str = field(repr=False)

    @cached_property
    def _starts(self) -> list[int]:
        starts, at = [0], self.text.find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = self.text.find("\n", at + 1)
        return starts

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both counted from 1."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of a line (counted from 1), without its end; empty past the end of the text."""
        if not 1 <= number <= len(self._starts):
            return ""
        start = self._starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start : end if end >= 0 else len(self.text)].rstrip("\r")

    @property
    def folder(self) -> Path:
        """Where the paths of this source's imports start."""
        return Path(on_disk(self.path)).parent


@dataclass(frozen=True, slots=True)
class Span:
    """A piece ``text[start:end]`` of a source."""

    source: Source = field(compare=False)
    start: int
    end: int

    def __repr__(self) -> str:
        line, column = self.source.position(self.end)
        return f"<{self.file}:{self.line}:{self.column} to {line}:{column}>"

    @property
    def file(self) -> str:
        return self.source.path

    @property
    def line(self) -> int:
        """The line of its start, counted from 1."""
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        """The column of its start, counted from 1."""
        return self.source.position(self.start)[1]

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def to(self, other: Span) -> Span:
        """The span from the start of this one to the end of another."""
        return Span(self.source, self.start, other.end)


@dataclass(frozen=True, slots=True)
class Place:
    """A line known only by its number: what a table read from JSON has instead of a span."""

    file: str
    line: int
    column: int = 1


Location = Span | Place
