"""Colours and widths of a terminal, by hand: importing a library for it would cost more than a small verify run."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from typing import TextIO

TAB = 4
"""Columns a tab stands for in shown source lines."""

_BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Overrides that could show a line in another order than it is read in."""

_SGR = {"error": "1;31", "warning": "1;33", "note": "1;36", "ok": "1;32", "help": "1;32", "bold": "1", "dim": "2",
        "changed": "1;32", "line": "1;34"}


def wants_color(stream: TextIO | None = None) -> bool:
    """Whether to colour what goes to ``stream`` (default: standard output): on a terminal, unless NO_COLOR is set.

    FORCE_COLOR overrules the terminal, NO_COLOR overrules both.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    stream = sys.stdout if stream is None else stream
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def terminal_width(default: int = 120) -> int:
    """The columns of the terminal, at least 40; ``default`` where there is none."""
    return max(40, shutil.get_terminal_size((default, 24)).columns)


class Style:
    """Wraps text in colours, or leaves it as it is."""

    def __init__(self, color: bool) -> None:
        self.color = color

    def __call__(self, kind: str, text: str) -> str:
        return f"\x1b[{_SGR[kind]}m{text}\x1b[0m" if self.color and text else text


def char_width(char: str, column: int = 0) -> int:
    """How many columns a character takes on a terminal when it starts in ``column``."""
    if char == "\t":
        return TAB - column % TAB
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def width(text: str) -> int:
    """The columns of a text without tabs, colours or line ends."""
    return sum(map(char_width, text))


def printable(char: str, column: int = 0) -> str:
    """A character as it may be sent to a terminal: tabs as spaces, control characters as a visible stand-in."""
    if char == "\t":
        return " " * char_width(char, column)
    category = unicodedata.category(char)
    if category == "Cc":
        code = ord(char)
        return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"
    return "\ufffd" if category in ("Cs", "Co") or char in _BIDI else char


def clean(text: str) -> str:
    """A text without control characters, line ends kept."""
    return "\n".join(map(one_line, text.split("\n")))


def one_line(text: str) -> str:
    """A text, such as a file's name, without control characters, so also without line ends."""
    return "".join(map(printable, text))
