"""The language's text: reading it, its tree, writing it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import cast

from schedlang.diagnostics import Diagnostic, SchedError, error
from schedlang.files import read_text as read
from schedlang.source import Source, Span
from schedlang.syntax import tables
from schedlang.syntax.builder import Builder
from schedlang.syntax.lexer import Tokens, lex
from schedlang.syntax.parser import run
from schedlang.syntax.tree import Expr, File

__all__ = ["format_file", "parse", "parse_value", "read"]


def parse(source: Source) -> tuple[File | None, list[Diagnostic]]:
    """The tree of a text, or None and the syntax errors found (at most 20), in the order of their places."""
    if found := re.match(r"\s*(\{)\s*[\"}]", source.text):
        return None, [error("SL101", "this is JSON, not the text of a schedule", Span(source, *found.span(1)),
                            help="op tables, whose names end in .json, are for verify, run, show and compile; only a "
                                 ".sched file can be imported or formatted")]
    if found := re.match(r"\s*(<)[?!A-Za-z]", source.text):
        return None, [error("SL101", "this is XML, not the text of a schedule", Span(source, *found.span(1)),
                            help="let the name of an MSCCL file end in .xml: then verify, run, show, diff and compile "
                                 "take it, and --target sched makes a schedule of it; only a .sched file can be "
                                 "imported or formatted")]
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
