"""The rules by which the text of a schedule is coloured, in the common subset of Pygments' and TextMate's forms: named
lists of regular expressions that Python and Oniguruma read alike, tried in order, and regions between two of them.

A soft word (``words``) stands for itself at the start of a statement, after an operand, or where only it can stand;
otherwise it is a name. Brackets are regions, since inside them no statement starts at a line's start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache

from schedlang.editors.words import words
from schedlang.ops import BUILTINS, COLLECTIVES, REDUCE_OPS
from schedlang.syntax import tables
from schedlang.syntax.lexer import STARTERS


class Kind(Enum):
    """What a piece of text is: its token type in Pygments and its scope in TextMate grammars."""

    COMMENT = "Comment.Single", "comment.line.number-sign"
    DOC = "String.Doc", "string.quoted.docstring"
    STRING = "String.Double", "string.quoted.double"
    NUMBER = "Number.Integer", "constant.numeric.integer"
    CONSTANT = "Keyword.Constant", "constant.language.boolean"
    IMPORT = "Keyword.Namespace", "keyword.control.import"
    DECLARATION = "Keyword.Declaration", "storage.type"
    CONTROL = "Keyword.Reserved", "keyword.control"
    STATEMENT = "Keyword", "keyword.other"
    WORD_OPERATOR = "Operator.Word", "keyword.operator.word"
    COLLECTIVE = "Keyword.Type", "support.type.collective"
    REDUCTION = "Name.Builtin.Pseudo", "support.constant.reduction"
    BUILTIN = "Name.Builtin", "support.function.builtin"
    SCHEDULE = "Name.Class", "entity.name.type.schedule"
    FUNCTION = "Name.Function", "entity.name.function"
    VARIABLE = "Name.Variable", "variable.other.definition"
    LABEL = "Name.Label", "entity.name.label"
    NAME = "Name", "variable.other"
    RANGE = "Operator.Range", "keyword.operator.range"
    OPERATOR = "Operator", "keyword.operator"
    PUNCTUATION = "Punctuation", "punctuation"
    ERROR = "Error", "invalid.illegal"

    @property
    def pygments(self) -> str:
        return self.value[0]

    @property
    def scope(self) -> str:
        return f"{self.value[1]}.sched"


@dataclass(frozen=True, slots=True)
class Match:
    """Text of one line; ``kinds``: one for the whole, or one for each group of the pattern (None: nothing)."""

    pattern: str
    kinds: tuple[Kind | None, ...]


@dataclass(frozen=True, slots=True)
class Region:
    """From ``begin`` to ``end``, over any number of lines; ``end`` is looked for before the rules of ``inside``, a name
    in :func:`states`."""

    name: str
    begin: Match
    inside: str
    end: Match


Rule = Match | Region
NAME = r"[A-Za-z_][A-Za-z_0-9]*"
_GAP = r"([ \t]+)"
_LINE_END = Match("$", (None,))
_DECLARATIONS = ("schedule", "fn", "let", "buffer")
_CONTROL = ("for", "if", "elif", "else")
_CONSTANTS = ("true", "false")
_WORD_OPERATORS = ("and", "or", "not", "in")
_BEFORE_OPERANDS = (Kind.CONTROL, Kind.STATEMENT, Kind.WORD_OPERATOR)
_SEPARATORS = ("(", ")", "[", "]", ",", ":")


def kind_of_word(word: str) -> Kind:
    """The kind of a word of the grammar where it is no name."""
    if word == "import":
        return Kind.IMPORT
    for some, kind in ((_DECLARATIONS, Kind.DECLARATION), (_CONTROL, Kind.CONTROL), (_CONSTANTS, Kind.CONSTANT),
                       (_WORD_OPERATORS, Kind.WORD_OPERATOR)):
        if word in some:
            return kind
    return Kind.STATEMENT


def any_of(texts: Iterable[str]) -> str:
    """A regular expression for one of some texts, the longer before its beginnings."""
    return f"(?:{'|'.join(re.escape(t) for t in sorted(texts, key=lambda t: (-len(t), t)))})"


@cache
def states() -> dict[str, tuple[str | Rule, ...]]:
    """The rules by name; a string among them stands for the rules of that name. A text begins in ``file``."""
    w = words()
    statement = r"(?:^|(?<=:))([ \t]*)"
    label = rf"(?!{any_of(w.reserved - w.labelling)}\b){NAME}"
    return {
        "file": ("declarations", "definitions", "soft", "ensure", "expression"),
        # declarations that begin with a soft word
        "declarations": (
            Region("collective",
                   Match(rf"{statement}(collective)\b(?:{_GAP}(?:({any_of(COLLECTIVES)})\b|({NAME})))?",
                         (None, Kind.STATEMENT, None, Kind.COLLECTIVE, Kind.NAME)),
                   "collective", _LINE_END),
            Region("buffer", Match(rf"{statement}(buffer)\b", (None, Kind.DECLARATION)), "buffer", _LINE_END),
            Match(rf"{statement}(chan)\b(?:{_GAP}({label}))?", (None, Kind.STATEMENT, None, Kind.LABEL)),
            Match(rf"{statement}({any_of(w.starting)})\b(?:{_GAP}({any_of(w.soft)})\b)?",
                  (None, Kind.STATEMENT, None, Kind.NAME)),
        ),
        "collective": (_brackets("(", ")", "reduction"), "soft", "expression"),
        "reduction": (Match(rf"\b{any_of(REDUCE_OPS)}\b(?![ \t]*[=(])", (Kind.REDUCTION,)), "expression"),
        "buffer": (
            Match(rf"\b(on){_GAP}({any_of(w.placing)})\b", (Kind.STATEMENT, None, Kind.STATEMENT)),
            Match(rf"\b{NAME}(?=[ \t]*\[)", (Kind.VARIABLE,)),
            "expression"),
        # a word and the name it defines
        "definitions": (
            Match(rf"\b(schedule){_GAP}({NAME})", (Kind.DECLARATION, None, Kind.SCHEDULE)),
            Match(rf"\b(fn){_GAP}({NAME})", (Kind.DECLARATION, None, Kind.FUNCTION)),
            Match(rf"\b(let){_GAP}({NAME})", (Kind.DECLARATION, None, Kind.VARIABLE)),
            Match(rf"\b(for){_GAP}({NAME})(?=[ \t]+in\b)", (Kind.CONTROL, None, Kind.VARIABLE)),
            Match(rf"\b(use){_GAP}({NAME})", (Kind.STATEMENT, None, Kind.SCHEDULE)),
            Match(rf"\b(step|stream|record|wait){_GAP}({label})",
                  (Kind.STATEMENT, None, Kind.LABEL)),
        ),
        # soft words: names after words that need an operand, otherwise themselves after an operand
        "soft": (
            *(Match(rf"\b({any_of(some)}){_GAP}({any_of(w.soft)})\b", (kind, None, Kind.NAME))
              for kind, some in _by_kind(w.reserved) if kind in _BEFORE_OPERANDS),
            Match(rf"(?<=[\w)\]]){_GAP}({any_of(w.trailing)})\b", (None, Kind.STATEMENT)),
        ),
        "ensure": (Region("ensure", Match(r"\b(ensure)\b", (Kind.STATEMENT,)), "ensured", _LINE_END),),
        "ensured": (Match(rf"\b{any_of(REDUCE_OPS)}(?=[ \t]*\()", (Kind.REDUCTION,)), "expression"),
        "docstring": (Match(r'[^"]+|"', (Kind.DOC,)),),
        "expression": (
            Region("docstring", Match('"""', (Kind.DOC,)), "docstring", Match('"""', (Kind.DOC,))),
            Match(_terminal("STRING"), (Kind.STRING,)),
            Match(r'"[^"\n]*', (Kind.ERROR,)),
            Match(_terminal("COMMENT"), (Kind.COMMENT,)),
            Match(rf"\b{_terminal('INT')}(?!\w|\.[0-9])", (Kind.NUMBER,)),
            Match(r"\b[0-9]\w*(?:\.[0-9]\w*)?", (Kind.ERROR,)),
            *(Match(rf"\b{any_of(some)}\b", (kind,)) for kind, some in _by_kind(w.reserved)),
            Match(rf"\b{any_of(BUILTINS)}(?=[ \t]*\()", (Kind.BUILTIN,)),
            Match(rf"\b{NAME}", (Kind.NAME,)),
            _brackets("(", ")", "expression"),
            _brackets("[", "]", "expression"),
            Match(r"\.\.", (Kind.RANGE,)),
            Match(any_of(_SEPARATORS), (Kind.PUNCTUATION,)),
            Match(any_of(w.marks - {"..", *_SEPARATORS}), (Kind.OPERATOR,)),
        ),
    }


def _brackets(opening: str, closing: str, inside: str) -> Region:
    """To the partner, or to a line that starts a statement: there the bracket was left open."""
    end = rf"({re.escape(closing)})|^(?=[ \t]*{any_of(STARTERS)}\b)"
    return Region(f"{inside} in {opening}{closing}", Match(re.escape(opening), (Kind.PUNCTUATION,)), inside,
                  Match(end, (Kind.PUNCTUATION,)))


def _by_kind(some: Iterable[str]) -> list[tuple[Kind, list[str]]]:
    kinds: dict[Kind, list[str]] = {}
    for word in sorted(some):
        kinds.setdefault(kind_of_word(word), []).append(word)
    return [(kind, kinds[kind]) for kind in Kind if kind in kinds]


def _terminal(name: str) -> str:
    pattern = next(t.pattern for t in tables.load().terminals if t.name == name)
    return pattern.replace("\n", r"\n")
