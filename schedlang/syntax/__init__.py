"""The language's text: reading it, its tree, writing it."""

from __future__ import annotations

from dataclasses import replace

from schedlang.diagnostics import Diagnostic, SchedError, error
from schedlang.source import Source, Span
from schedlang.syntax import tables
from schedlang.syntax.builder import Builder
from schedlang.syntax.lexer import Tokens, lex
from schedlang.syntax.parser import run
from schedlang.syntax.tree import Expr, File

__all__ = ["format_file", "parse", "parse_value", "read"]


def read(path: str) -> Source:
    """The text of a file. Raises SchedError SL105 where it cannot be read or is not UTF-8."""
    try:
        with open(path, "rb") as f:
            data = f.read()
    except (OSError, ValueError) as e:  # ValueError: a NUL in the path
        why = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise SchedError(error("SL105", f"cannot read {path}: {why}")) from None
    try:
        return Source(path, data.decode("utf-8-sig"))
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise SchedError(error("SL105", f"{path} is not UTF-8 text: line {line} has the byte 0x{data[e.start]:02x}",
                               help="save the file as UTF-8")) from None


def parse(source: Source) -> tuple[File | None, list[Diagnostic]]:
    """The tree of a text, or None and every syntax error found (at most 20), in the order of their places."""
    tokens = lex(source)
    if not tokens.diagnostics:
        file = run(tables.load(), tokens, Builder(source), "file")
        if isinstance(file, File):
            return replace(file, comments=tuple(tokens.comments)), []
    from schedlang.syntax.recover import errors

    return None, errors(tables.load(), tokens, "file")


def parse_value(text: str, label: str) -> Expr:
    """The value in ``text``, for example of ``-p k=...``; ``label`` stands for the path in messages. Raises SchedError."""
    tokens = lex(Source(label, text), inline=True)
    raise NotImplementedError
