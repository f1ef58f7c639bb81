"""How to mend a syntax error, where the slip can be guessed. Each hint is a function of the line's words and the place
of the unfitting one; the first that has something to say is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from schedlang.syntax import tables
from schedlang.syntax.lexer import Tokens

Hint = Callable[[Sequence[str], int, Set[str]], str | None]

_FOREIGN = {
    "def": "a function is written: fn NAME(x) = EXPRESSION",
    "function": "a function is written: fn NAME(x) = EXPRESSION",
    "lambda": "a function is written: fn NAME(x) = EXPRESSION",
    "while": "a loop has a known number of turns: for i in 0..n:",
    "class": "a file holds imports, functions and schedules",
    "return": "a function is one expression: fn NAME(x) = EXPRESSION",
    "pass": "a block holds at least one statement",
    "elseif": "write elif",
    "elsif": "write elif",
    "assert": 'write: require CONDITION, "text"',
    "receive": "write recv",
    "var": "write let",
    "const": "write let",
    "parallel": "operations posted together stand in a step:",
}


def hint(tokens: Tokens, line: int, k: int, acceptable: Set[str]) -> str | None:
    """How to mend the line that begins with token ``line`` and goes wrong at token k, where the literals ``acceptable``
    could stand; None where nothing can be guessed."""
    end = tokens.kinds.index(tables.load().number[tables.NEWLINE], k)
    words = [*tokens.texts[line:end], ""]
    return next((h for h in (make(words, k - line, acceptable) for make in _HINTS) if h), None)


def _foreign(words: Sequence[str], k: int, acceptable: Set[str]) -> str | None:
    return _FOREIGN.get(words[k]) if k == 0 or words[k - 1] == ":" else None


def _assignment(words: Sequence[str], k: int, acceptable: Set[str]) -> str | None:
    if k == 0 and words[1:2] == ["="] and words[0].isidentifier():
        inside = "let" in acceptable
        return f"bind a name with: let {words[0]} = ..." if inside else "functions stand here: fn NAME(x) = EXPRESSION"
    if k == 0 and words[2:3] == ["="] and words[1] in ("+", "-", "*", "//", "%", "|", "&", "^"):
        return "a name is bound once, with let, and never changes"
    return None


def _equals(words: Sequence[str], k: int, acceptable: Set[str]) -> str | None:
    if words[k] == "=" and "==" in acceptable:
        return 'compare with "=="'
    return None


def _else_if(words: Sequence[str], k: int, acceptable: Set[str]) -> str | None:
    if words[k] == "if" and k and words[k - 1] == "else":
        return 'write "elif"'
    if words[k] == "else" and k and "if" in words[:k]:
        return "a conditional expression stands in parentheses here: (a if c else b)"
    if words[k] in ("else", "elif") and k == 0:
        return f'"{words[k]}" goes with an "if" of the same indentation'
    return None


def _logic(words: Sequence[str], k: int, acceptable: Set[str]) -> str | None:
    if k and words[k] == words[k - 1] and words[k] in "&|" and words[k]:
        return 'write "and"' if words[k] == "&" else 'write "or"'
    return None


def _arrow(words: Sequence[str], k: int, acceptable: Set[str]) -> str | None:
    if words[k : k + 2] in (["-", ">"], ["=", ">"]) or (k and words[k - 1] + words[k] in ("->", "=>")):
        return "write: send X from R to P"
    return None


def _order_of_parts(words: Sequence[str], k: int, acceptable: Set[str]) -> str | None:
    before = words[:k]
    if words[k] == "from" and "to" in before:
        return "the sender comes first: send X from R to P"
    if words[k] in ("to", "from") and "into" in before:
        return '"into" comes last: send X from R to P into Y'
    if words[k] == "to" and "recv" in before:
        return "recv is one rank's own view; both ends together are written: send X from R to P"
    if words[k] == "on" and "if" in before:
        return '"if" comes last'
    if words[k] == "to" and "copy" in before:
        return "copy stays on one rank: copy X into Y on R"
    return None


def _ranges(words: Sequence[str], k: int, acceptable: Set[str]) -> str | None:
    if words[k] == ".." and "*" in acceptable:
        return "put the range in parentheses: (a..b)"
    if words[k] == ":" and "]" in acceptable:
        return "only buffers have slices; a part of a list is [xs[i] for i in a..b]"
    if words[k] in (":", "]") and k and words[k - 1] in (":", "[") and "(" in acceptable:
        return "a slice names both ends: data[a:b]"
    if words[k] == "for" and "[" in words[:k] and "for" in words[:k]:
        return "a list comprehension has one for"
    return None


def _outside(words: Sequence[str], k: int, acceptable: Set[str]) -> str | None:
    if k == 0 and "schedule" in acceptable and "send" not in acceptable and words[0] not in ("else", "elif"):
        near = _near(words[0], acceptable)
        return near or "statements stand inside a schedule, indented"
    return None


def _taken(words: Sequence[str], k: int, acceptable: Set[str]) -> str | None:
    reserved = words[k].isidentifier() and words[k] in tables.load().literals
    if reserved and "ranks" in acceptable and "let" not in acceptable:
        return f'"{words[k]}" is a word of the language and cannot be a name'
    return None


def _colon(words: Sequence[str], k: int, acceptable: Set[str]) -> str | None:
    if acceptable == {":"} or (":" in acceptable and words[k] == ""):
        return 'the line that opens a block ends with ":"' if words[k] == "" else f'put ":" before "{words[k]}"'
    return None


def _spelling(words: Sequence[str], k: int, acceptable: Set[str]) -> str | None:
    return _near(words[k], acceptable)


def _near(word: str, acceptable: Set[str]) -> str | None:
    if not word.isidentifier() or word in tables.load().literals:
        return None
    from difflib import get_close_matches  # costs time to import, needed here only

    close = get_close_matches(word.lower(), sorted(a for a in acceptable if a.isidentifier()), 1)
    return f'did you mean "{close[0]}"?' if close else None


_HINTS: tuple[Hint, ...] = (
    _foreign, _assignment, _equals, _else_if, _logic, _arrow, _order_of_parts, _ranges, _outside, _taken, _spelling,
    _colon)
