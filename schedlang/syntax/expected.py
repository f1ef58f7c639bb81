"""In words: what could have stood where the text went wrong, and what stood there."""

from __future__ import annotations

from collections.abc import Sequence

from schedlang.syntax.lexer import Tokens
from schedlang.syntax.tables import DEDENT, END, INDENT, NEWLINE, Tables, Terminal

_NAMES = {
    "NAME": "a name",
    "INT": "an integer",
    "STRING": 'text in "quotes"',
    "DOC": "a docstring",
    NEWLINE: "the end of the line",
    INDENT: "an indented block",
    DEDENT: "the end of the block",
    END: "the end of the file",
}
_GUARDED = frozenset(("send", "recv", "reduce", "copy", "record", "wait", "use", "ensure"))
"""Statements that may end with an `if`; elsewhere an `if` after an expression makes it a conditional one."""
_MAY_CONTINUE = frozenset((
    "+", "-", "*", "//", "%", "**", "<<", ">>", "&", "|", "^", "==", "!=", "<", "<=", ">", ">=", "and", "or", "[", "("))
"""What can always follow an operand: true, and no help."""
_MUST_CONTINUE = frozenset(("==",))
"""What a statement needs after an operand, where nothing else is left: `ensure X on R == ...`."""
_BEGIN_EXPRESSION = frozenset(("true", "false", "not", "-", "+", "~", "(", "["))


def phrase(acceptable: Sequence[Terminal], statement: Sequence[str]) -> str:
    """What could stand next, after the tokens ``statement`` of this line: ``":" or "if"``, ``a name``, ..."""
    names = {t.name for t in acceptable}
    left = [t for t in acceptable if t.kind != "line" or t.name == NEWLINE]
    if INDENT in names:
        return _NAMES[INDENT]
    words: list[str] = []
    if {"send", "copy", "let"} <= {t.pattern for t in left}:
        words, left = ["a statement"], []
    elif "schedule" in {t.pattern for t in left}:
        left = [t for t in left if t.name != NEWLINE]
    elif "NAME" in names:
        expression = "INT" in names
        words = ["an expression" if expression else "a name"]
        left = [t for t in left if t.name not in ("NAME", "INT") and not _could_be_name(t)
                and not (expression and t.pattern in _BEGIN_EXPRESSION)]
    elif any(t.pattern == "+" for t in left):
        left = _after_operand(left, statement)
    words += [f'"{t.pattern}"' if t.kind in ("word", "mark") else _NAMES[t.name] for t in left]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


def _could_be_name(t: Terminal) -> bool:
    return t.kind == "word" and t.pattern not in _BEGIN_EXPRESSION


def _after_operand(acceptable: list[Terminal], statement: Sequence[str]) -> list[Terminal]:
    kept = [t for t in acceptable if t.pattern not in _MAY_CONTINUE]
    ends = any(t.name == NEWLINE for t in kept)
    head = next((w for w in reversed(statement) if w in _GUARDED), None)
    drop = set()
    comprehension = "for" in statement and any(t.pattern == "]" for t in kept)
    if not comprehension and not (ends and head):
        drop.add("if")
    if ".." in statement or not {"for", "verify"} & set(statement):
        drop.add("..")
    sure = [t for t in kept if t.pattern not in drop]
    return sure or kept or [t for t in acceptable if t.pattern in _MUST_CONTINUE] or acceptable


def found(table: Tables, tokens: Tokens, k: int) -> str:
    """What token k is: its text in quotes, or a description."""
    text = tokens.texts[k].split("\n")[0]
    if not text:
        return _NAMES[table.terminals[tokens.kinds[k]].name]
    text = text if len(text) <= 40 else text[:37] + "..."
    return text if text.startswith('"') else f'"{text}"'
