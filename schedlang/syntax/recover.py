"""All the syntax errors of a text. Used only where the parse has failed, so it may take its time: tokens are tried one
by one on the automaton's states alone; in the place of a line that does not fit, one is put that does.
"""

from __future__ import annotations

from collections.abc import Iterable

from schedlang.diagnostics import Diagnostic, error
from schedlang.source import Span
from schedlang.syntax.expected import found, phrase
from schedlang.syntax.hints import hint
from schedlang.syntax.lexer import ERROR, Tokens
from schedlang.syntax.tables import ACCEPT, DEDENT, END, INDENT, NEWLINE, Tables

MAX_ERRORS = 20

_HEADERS = {
    "schedule": ("schedule", "NAME", "(", ")", ":"),
    "for": ("for", "NAME", "in", "INT", ":"),
    "if": ("if", "true", ":"),
    "elif": ("elif", "true", ":"),
    "else": ("else", ":"),
    "step": ("step", ":"),
}
"""What stands in for a block's header that could not be read, by its first word."""
_STATEMENT = ("chunks", "INT", NEWLINE)
_FOREIGN_HEADERS = frozenset(("def", "class", "function"))
"""Words of other languages whose blocks hold nothing of this one."""


def errors(table: Tables, tokens: Tokens, start: str) -> list[Diagnostic]:
    """The findings of the lexer and the parser together, in the order of their places, at most ``MAX_ERRORS``."""
    reader = _Reader(table, tokens, table.starts[start])
    if start == "value":
        reader.value()
    else:
        reader.file()
    return sorted([*tokens.diagnostics, *reader.diagnostics], key=_place)[:MAX_ERRORS]


def _place(d: Diagnostic) -> int:
    return d.location.start if isinstance(d.location, Span) else 0


def advance(table: Tables, states: list[int], kind: int) -> list[int] | None:
    """The automaton's states after one more token; None where it does not fit."""
    states = states[:]
    while True:
        action = table.actions[states[-1]].get(kind)
        if action is None:
            return None
        if action > 0:
            states.append(action - 1)
            return states
        if action == ACCEPT:
            return states
        rule = table.rules[-1 - action]
        if rule.length:
            del states[-rule.length:]
        states.append(table.gotos[states[-1]][rule.origin])


class _Reader:
    def __init__(self, table: Tables, tokens: Tokens, start: int) -> None:
        self.table = table
        self.tokens = tokens
        self.states = [start]
        self.line_states = self.states  # before the first token of the line
        self.line = 0  # number of the first token of the line
        self.diagnostics: list[Diagnostic] = []
        self.newline, self.indent, self.dedent, self.end = (table.number[n] for n in (NEWLINE, INDENT, DEDENT, END))

    def report(self, code: str, message: str, span: Span, help: str | None = None) -> None:
        self.diagnostics.append(error(code, message, span, help=help))

    def try_all(self, states: list[int], words: Iterable[str]) -> list[int] | None:
        """The states after tokens given by their spelling or, where they have none, by their terminal's name."""
        for word in words:
            kind = self.table.literals.get(word, self.table.number.get(word, ERROR))
            after = advance(self.table, states, kind)
            if after is None:
                return None
            states = after
        return states

    def begin_line(self, k: int) -> None:
        self.line, self.line_states = k, self.states

    def value(self) -> None:
        for k, kind in enumerate(self.tokens.kinds):
            after = advance(self.table, self.states, kind)
            if after is None:
                self.unexpected(k, "the value")
                return
            self.states = after

    def file(self) -> None:
        kinds = self.tokens.kinds
        blocks: list[bool] = []  # for each indentation, whether it opened a block
        quiet = False  # whether the next indentation belongs to a line that was given up
        k = 0
        while len(self.diagnostics) < MAX_ERRORS:
            kind = kinds[k]
            after = advance(self.table, self.states, kind)
            if kind == self.indent:
                blocks.append(after is not None)
                if after is None and not quiet:
                    self.report("SL102", "this line is indented deeper than the one above, which opens no block",
                                self.tokens.span(k + 1))
                self.states = after or self.states
                quiet = False
            elif kind == self.dedent and not blocks.pop():
                pass
            elif after is not None:
                self.states = after
                if kind == self.end:
                    return
                if kind != self.newline and kind != self.dedent:
                    k += 1
                    continue
            elif self.no_block(k):
                if kind == self.dedent:
                    blocks.append(True)  # not closed yet
                continue
            else:
                foreign = self.tokens.texts[self.line] in _FOREIGN_HEADERS
                k = self.give_up(k)
                if foreign and kinds[k] == self.indent:
                    self.states = self.try_all(self.line_states, _STATEMENT) or self.line_states
                    k = self.after_block(k)
                quiet = kinds[k] == self.indent and advance(self.table, self.states, self.indent) is None
                self.begin_line(k)
                continue
            k += 1
            self.begin_line(k)

    def after_block(self, k: int) -> int:
        """The number of the token after the block that token k, an indentation, opens."""
        depth = 1
        while depth:
            k += 1
            depth += (self.tokens.kinds[k] == self.indent) - (self.tokens.kinds[k] == self.dedent)
        return k + 1

    def no_block(self, k: int) -> bool:
        """Where a block, or its first statement, is missing before token k: say so, and go on as if it were there."""
        if k != self.line:
            return False
        filled = self.try_all(self.states, (INDENT, *_STATEMENT, DEDENT))
        if filled is not None:
            colon = k - 2  # the header's colon and line end stand before
            self.report("SL102", "expected an indented block", self.tokens.span(colon),
                        "indent what belongs to it by four spaces")
        elif self.tokens.kinds[k] == self.dedent:
            filled = self.try_all(self.states, _STATEMENT)
            if filled is not None:
                self.report("SL101", "expected a statement, found the end of the block", self.tokens.span(k))
        if filled is None:
            return False
        self.states = filled
        self.begin_line(k)
        return True

    def give_up(self, k: int) -> int:
        """Report the line of the unfitting token k and put a fitting one in its place; the number of the next token."""
        kinds = self.tokens.kinds
        end = kinds.index(self.newline, k) if kinds[k] != self.newline else k
        if ERROR not in kinds[self.line:end]:
            self.unexpected(k)
        first = self.tokens.texts[self.line]
        opens_block = kinds[end + 1] == self.indent
        if first == "else" and self.tokens.texts[self.line + 1] == "if":
            first = "elif"
        header = _HEADERS.get(first, _HEADERS["step"])
        if opens_block:
            instead = [(*header, NEWLINE), (*_HEADERS["step"], NEWLINE), (*_HEADERS["schedule"], NEWLINE)]
        else:
            instead = [(*header, *_STATEMENT)] if first in ("if", "elif", "else") else []
            instead.append(_STATEMENT)
        fitting = (self.try_all(self.line_states, words) for words in instead)
        self.states = next((s for s in fitting if s is not None), self.line_states)
        return end + 1

    def unexpected(self, k: int, unit: str = "the line") -> None:
        if self.tokens.kinds[k] == ERROR:
            return
        acceptable = [t for n, t in enumerate(self.table.terminals) if advance(self.table, self.states, n) is not None]
        statement = self.tokens.texts[self.line:k]
        message = f"expected {phrase(acceptable, statement)}, found {found(self.table, self.tokens, k)}"
        message = message.replace("the end of the line", f"the end of {unit}")
        literals = {t.pattern for t in acceptable if t.kind in ("word", "mark")}
        self.report("SL101", message, self.tokens.span(k), hint(self.tokens, self.line, k, literals))
