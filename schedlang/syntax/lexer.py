"""Text to tokens: words, literals, marks, and what line ends and indentation mean. As in Python, a logical line goes on
inside brackets, and an indentation deeper than the one before opens a block.

A character that the language does not have is reported here and becomes a token ``ERROR``, which no rule accepts; at
most one finding a logical line, so that one slip gives one message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache

from schedlang.diagnostics import Diagnostic, error
from schedlang.source import Source, Span
from schedlang.syntax import tables
from schedlang.syntax.tree import Comment

ERROR = -1
MAX_DEPTH = 100
"""how deep brackets, and expressions, may nest: what walks a tree may recurse"""
MAX_BLOCKS = 50
MAX_INT = 2**63 - 1

OPENING = {"(": ")", "[": "]"}
STARTERS = frozenset(
    ("schedule", "fn", "import", "let", "require", "send", "recv", "reduce", "copy", "record", "wait", "ensure", "use",
     "step", "stream", "elif"))
"""Words that start a line and never stand in brackets: where one starts a line there, a bracket was left open."""


@dataclass(slots=True)
class Tokens:
    """The tokens of a text as parallel lists: terminal number, text, and the offsets of the first and past the last
    character. Line ends and indentation have no text and stand at the end of the token before them."""

    source: Source
    kinds: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    long_lines: bool = False
    """whether a logical line has more than ``MAX_DEPTH`` tokens, so that its expressions may be too deep"""

    def span(self, k: int) -> Span:
        return Span(self.source, self.starts[k], self.ends[k])


@cache
def _pattern() -> tuple[re.Pattern[str], dict[str, int], dict[str, int], list[int]]:
    """The regular expression for one token, the numbers of words and of marks by spelling, and for each of its first
    groups the number of the terminal that it is."""
    table = tables.load()
    regexes = {t.name: t.pattern for t in table.terminals if t.kind == "regex"}
    ignored = {t.name: t.pattern for t in table.terminals if t.kind == "ignore"}
    words = {t.pattern: table.number[t.name] for t in table.terminals if t.kind == "word"}
    marks = {t.pattern: table.number[t.name] for t in table.terminals if t.kind == "mark"}
    groups = (
        regexes["NAME"],
        "|".join(re.escape(m) for m in sorted(marks, key=len, reverse=True)),
        r"\r?\n",
        regexes["INT"] + r"(?!\w|\.[0-9])",
        regexes["DOC"],
        rf'(?!""")(?:{regexes["STRING"]})',
        ignored["COMMENT"],
        r"[0-9]\w*(?:\.[0-9]\w*)?",  # what looks like a number and is none
        r'"""[\s\S]*|"[^\n]*'  # text without its closing quotes
        r"|'''[\s\S]*?'''",  # a docstring of Python's
        rf"(?!{ignored['SPACE']})[\s\S]",
    )
    of_group = [0, 0, 0, 0, table.number["INT"], table.number["DOC"], table.number["STRING"]]
    return re.compile(f"(?:{ignored['SPACE']})?(?:{'|'.join(f'({g})' for g in groups)})"), words, marks, of_group


_NAME, _MARK, _LINE_END, _INT, _DOC, _STRING, _COMMENT, _NOT_NUMBER, _OPEN_TEXT, _STRANGE = range(1, 11)


class _Lexer:
    def __init__(self, source: Source, inline: bool) -> None:
        self.out = Tokens(source)
        self.source = source
        self.inline = inline  # line ends mean nothing: the text is one value
        number = tables.load().number
        self.newline, self.indent, self.dedent, self.end = (
            number[n] for n in (tables.NEWLINE, tables.INDENT, tables.DEDENT, tables.END))
        self.indents = [""]
        self.tolerated: tuple[str, int] | None = None  # a wrong indentation that was reported already, and its level
        self.brackets: list[tuple[str, int]] = []  # the open ones: spelling and offset
        self.reported = False  # whether this logical line has a finding already
        self.line_begin = 0  # number of the first token of the logical line

    def report(self, code: str, message: str, start: int, end: int, help: str | None = None) -> None:
        if not self.reported:
            self.out.diagnostics.append(error(code, message, Span(self.source, start, end), help=help))
            self.reported = True

    def emit(self, kind: int, text: str, start: int, end: int) -> None:
        out = self.out
        out.kinds.append(kind)
        out.texts.append(text)
        out.starts.append(start)
        out.ends.append(end)

    def emit_line(self, kind: int) -> None:
        at = self.out.ends[-1] if self.out.ends else 0
        self.emit(kind, "", at, at)

    def strange(self, code: str, message: str, start: int, end: int, help: str | None = None) -> None:
        self.report(code, message, start, end, help)
        self.emit(ERROR, self.source.text[start:end], start, end)

    def run(self) -> Tokens:
        text = self.source.text
        pattern, words, marks, of_group = _pattern()
        out, kinds, texts, starts, ends = self.out, self.out.kinds, self.out.texts, self.out.starts, self.out.ends
        name_number = tables.load().number["NAME"]
        brackets = self.brackets
        begin = 1 if text.startswith("\ufeff") else 0  # a byte order mark is no part of the text
        line_start, fresh = begin, True  # fresh: no token on this line yet
        strange_end = -1
        for m in pattern.finditer(text, begin):
            group = m.lastindex or 0
            start, end = m.span(group)
            if group == _LINE_END:
                if strange_end == start and text[start - 1] == "\\":
                    continue  # whoever wrote the backslash meant the line to go on
                if not fresh and not brackets and not self.inline:
                    self.end_line()
                line_start, fresh = end, True
                continue
            if group == _COMMENT:
                comment = m[group].rstrip()
                out.comments.append(Comment(Span(self.source, start, start + len(comment)), comment))
                continue
            word = m[group]
            if fresh:
                fresh = False
                if not brackets and not self.inline:
                    if not self.measure(text[line_start:start], start, end):
                        break
                elif brackets and word in STARTERS:
                    self.left_open()
                    if not self.measure(text[line_start:start], start, end):
                        break
            if group == _NAME:
                kinds.append(words.get(word, name_number))
                texts.append(word)
                starts.append(start)
                ends.append(end)
            elif group == _MARK:
                kinds.append(marks[word])
                texts.append(word)
                starts.append(start)
                ends.append(end)
                if word in "([":
                    brackets.append((word, start))
                    if len(brackets) > MAX_DEPTH:
                        self.strange("SL104", f"brackets nest more than {MAX_DEPTH} deep", start, end,
                                     "name the inner parts with let")
                elif word in ")]" and brackets:
                    self.close(word)
            elif group == _STRANGE:
                if strange_end != start:  # a run of strange characters is one finding
                    self.strange("SL103", *_about_character(text, start))
                strange_end = end
            elif group == _NOT_NUMBER:
                self.strange("SL103", *_about_number(word, start))
            elif group == _OPEN_TEXT:
                if word.startswith("'"):
                    self.strange("SL103", "text in single quotes", start, start + 3, _DOC_HINT)
                elif word.startswith('"""'):
                    self.strange("SL103", "this docstring is never closed", start, start + 3, 'close it with """')
                else:
                    end = start + len(word.rstrip())
                    self.strange("SL103", "this text is never closed", start, end, 'close it with "')
            else:
                self.literal(group, of_group[group], word, start, end)
        else:
            self.finish()
            return out
        self.brackets.clear()
        self.finish()
        return out

    def literal(self, group: int, kind: int, word: str, start: int, end: int) -> None:
        if group == _INT:
            digits = word.replace("_", "")
            if len(digits) > 1 and digits[0] == "0":
                return self.strange("SL103", "an integer does not start with 0", start, end)
            if len(digits) > 19 or int(digits) > MAX_INT:
                return self.strange("SL103", f"an integer is at most {MAX_INT}", start, end)
        elif group == _STRING and "\\" in word:
            bad = re.search(r"\\[^\"\\nt]", re.sub(r"\\\\", "__", word))
            if bad:
                at = start + bad.start()
                return self.strange("SL103", f'text has no escape "{bad[0]}"', at, at + 2, "write \\\\ for a backslash")
        self.emit(kind, word, start, end)

    def end_line(self) -> None:
        self.emit_line(self.newline)
        if len(self.out.kinds) - self.line_begin > MAX_DEPTH:
            self.out.long_lines = True
        self.line_begin = len(self.out.kinds)
        self.reported = False

    def measure(self, indent: str, start: int, end: int) -> bool:
        """Compare a line's indentation with the blocks it may belong to; whether reading can go on."""
        top = self.indents[-1]
        if indent == top:
            return True
        if self.tolerated == (indent, len(self.indents)):
            return True
        self.tolerated = None
        if indent.startswith(top):
            self.indents.append(indent)
            self.emit_line(self.indent)
            if len(self.indents) > MAX_BLOCKS:
                self.strange("SL104", f"blocks nest more than {MAX_BLOCKS} deep", start, end,
                             "move the inner part to a schedule of its own and use it")
                return False
            return True
        known = indent in self.indents
        mixed = not known and not top.startswith(indent)
        # An indentation between two blocks counts as the inner one's, unless the line can only stand outermost.
        outermost = self.source.text[start:end] in ("schedule", "fn", "import")
        while len(self.indents) > 1 and _width(self.indents[-1]) > _width(indent):
            if not known and not outermost and _width(self.indents[-2]) < _width(indent):
                break
            self.indents.pop()
            self.emit_line(self.dedent)
        if not known:
            self.tolerated = (indent, len(self.indents))
            if mixed:
                self.report("SL102", "this line mixes tabs and spaces in another way than the lines above it", start,
                            end, "indent with four spaces")
            else:
                above = " or ".join(map(str, sorted({_width(i) for i in [*self.indents[-2:], top] if i != indent})))
                self.report("SL102", f"this line is indented by {_width(indent)}, which fits no block above it", start,
                            end, f"the blocks above are indented by {above}")
            self.reported = False  # what the line says is judged on its own
        return True

    def close(self, word: str) -> None:
        """A closing bracket closes its partner, and what was opened after that: the parser says so if it is wrong."""
        if any(OPENING[b] == word for b, _ in self.brackets):
            while OPENING[self.brackets.pop()[0]] != word:
                pass

    def left_open(self) -> None:
        bracket, at = self.brackets[-1]
        self.strange("SL101", f'"{bracket}" is never closed', at, at + 1, f'close it with "{OPENING[bracket]}"')
        self.brackets.clear()
        self.end_line()

    def finish(self) -> None:
        if self.brackets:
            self.left_open()
        elif self.inline or len(self.out.kinds) > self.line_begin:
            self.end_line()
        for _ in self.indents[1:]:
            self.emit_line(self.dedent)
        self.emit_line(self.end)


def lex(source: Source, *, inline: bool = False) -> Tokens:
    """The tokens of a text, with what cannot be read in ``diagnostics``. ``inline``: the text is one value, on however
    many lines."""
    return _Lexer(source, inline).run()


def _width(indent: str) -> int:
    return len(indent.expandtabs(4))


_INSTEAD = {
    "–": "-", "—": "-", "−": "-", "×": "*", "·": "*", "÷": "//", "…": "..", "“": '"', "”": '"', "„": '"', "«": '"',
    "»": '"', "‘": '"', "’": '"', "≤": "<=", "≥": ">=", "≠": "!=", "∧": "and", "∨": "or", "¬": "not", "⊕": "^",
    "→": "from R to P", "∈": "in", "（": "(", "）": ")", "［": "[", "］": "]", "：": ":", "，": ",",
}
_DOC_HINT = 'a docstring stands in three double quotes: """..."""'
_HINTS = {
    "/": "division of integers is //",
    ".": "a range is written a..b; there are no other dots",
    "!": 'write "not"',
    "'": 'text stands in double quotes: "..."',
    ";": "one statement a line",
    "\\": "a line goes on inside brackets only",
    "{": "lists stand in [...]; there are no braces",
    "}": "lists stand in [...]; there are no braces",
    "\r": "lines end with a line feed, or with carriage return and line feed",
    "\ufeff": "a byte order mark may stand at the start of a file only",
}


def _about_character(text: str, start: int) -> tuple[str, int, int, str | None]:
    c = text[start]
    if c == "'":
        closing = text.find("'", start + 1)
        line_end = text.find("\n", start)
        end = closing + 1 if closing >= 0 and (line_end < 0 or closing < line_end) else start + 1
        begins_line = not text[text.rfind("\n", 0, start) + 1 : start].strip()
        return "text in single quotes", start, end, _DOC_HINT if begins_line else _HINTS[c]
    shown = f'"{c}"' if c.isprintable() and not c.isspace() else "the character"
    code = "" if "!" <= c <= "~" else f" (U+{ord(c):04X})"
    help = _HINTS.get(c)
    if c in _INSTEAD:
        help = f"write {_INSTEAD[c]}"
    elif c.isspace() and c not in _HINTS:
        help = "use a plain space"
    elif c.isalnum():
        help = "names are made of the letters a to z, digits and _"
    return f"{shown}{code} has no meaning here", start, start + 1, help


def _about_number(word: str, start: int) -> tuple[str, int, int, str | None]:
    end = start + len(word)
    if "." in word:
        return f'"{word}" is not an integer', start, end, "values are integers; a range is written a..b"
    if word[:2].lower() in ("0x", "0b", "0o"):
        return f'"{word}" is not a decimal integer', start, end, _decimal(word)
    return f'"{word}" is neither an integer nor a name', start, end, "a name does not start with a digit"


def _decimal(word: str) -> str | None:
    try:
        return f"write {int(word, 0)}"
    except ValueError:
        return None
