"""The language's text: reading it, its tree, writing it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import cast

from schedlang.diagnostics import Diagnostic, SchedError, error
from schedlang.files import read_file
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
        data = read_file(path)
    except (OSError, ValueError) as e:  # ValueError: a NUL in the path
        why = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise SchedError(error("SL105", f"cannot read {path}: {why}", help=_instead(path, e))) from None
    try:
        return Source(path, data.decode("utf-8-sig"))
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise SchedError(error("SL105", f"{path} is not UTF-8 text: line {line} has the byte 0x{data[e.start]:02x}",
                               help="save the file as UTF-8")) from None


def _instead(path: str, why: Exception) -> str | None:
    """What to name where a path cannot be read."""
    if isinstance(why, IsADirectoryError):
        return "name a file in it, or all of them to `verify` or `fmt`"
    if path == "-" and isinstance(why, FileNotFoundError):
        return "only `fmt` takes - for the standard input; elsewhere it is /dev/stdin"
    return None


def parse(source: Source) -> tuple[File | None, list[Diagnostic]]:
    """The tree of a text, or None and the syntax errors found (at most 20), in the order of their places."""
    if found := re.match(r"\s*(\{)\s*[\"}]", source.text):
        return None, [error("SL101", "this is JSON, not the text of a schedule", Span(source, *found.span(1)),
                            help="op tables, whose names end in .json, are for verify, run, show and compile; only a "
                                 ".sched file can be imported or formatted")]
    tokens = lex(source)
    file, diagnostics = _parse(tokens, "file")
    return (replace(file, comments=tuple(tokens.comments)) if isinstance(file, File) else None), diagnostics


def parse_value(text: str, label: str) -> Expr:
    """The value in ``text``, for example that of ``-p k=...``; ``label`` stands for the path in messages. Raises
    SchedError with the syntax errors found."""
    value, diagnostics = _parse(lex(Source(label, text), inline=True), "value")
    if diagnostics:
        raise SchedError(diagnostics)
    return cast("Expr", value)


def format_file(file: File) -> str:
    """The text of a tree in the usual layout; see :mod:`schedlang.syntax.format`."""
    from schedlang.syntax.format import format_file

    return format_file(file)


def _parse(tokens: Tokens, start: str) -> tuple[File | Expr | None, list[Diagnostic]]:
    table = tables.load()
    if not tokens.diagnostics:
        builder = Builder(tokens.source)
        made: File | Expr | None = run(table, tokens, builder, start)
        if made is not None:
            from schedlang.syntax.limits import findings

            wrong = findings(made, tokens, builder)
            return (None, wrong) if wrong else (made, [])
    from schedlang.syntax.recover import errors

    return None, errors(table, tokens, start)
