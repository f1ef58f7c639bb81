"""How to mend a syntax error, where the slip can be guessed. Each hint is a function of the line's words and the place
of the unfitting one; the first that has something to say is used."""

from __future__ import annotations

from collections.abc import Callable, Set
from itertools import accumulate

from schedlang.syntax import tables
from schedlang.syntax.lexer import Tokens


class Line(list[str]):
    """The words of a line, and an empty one for its end."""

    def __init__(self, tokens: Tokens, first: int, end: int) -> None:
        super().__init__([*tokens.texts[first:end], ""])
        self._text = tokens.source.text
        self._starts, self._ends = tokens.starts[first:end], tokens.ends[first:end]

    def written(self, a: int, b: int) -> str:
        """The text of the words from a up to b; "..." where there are none or many."""
        b = min(b, len(self) - 1)
        text = self._text[self._starts[a] : self._ends[b - 1]] if a < b else "..."
        return text if len(text) <= 40 and "\n" not in text else "..."


Hint = Callable[[Line, int, Set[str]], str | None]

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
    "print": "nothing is printed while a schedule expands; `schedlang show FILE` draws who holds what",
}
_INSTEAD_OF_EQUALS = {
    "chunks": "write: chunks {}",
    "ranks": "write: ranks {}",
    "buffer": "write: buffer NAME[{}]",
    "collective": "write: collective NAME({})",
    "verify": "write: verify NAME in [{}]",
    "chan": "write: chan {}",
}
"""Declarations that are written without "=", by their first word."""


def hint(tokens: Tokens, line: int, k: int, acceptable: Set[str]) -> str | None:
    """How to mend the line that begins with token ``line`` and goes wrong at token k, where the literals ``acceptable``
    could stand; None where nothing can be guessed."""
    end = tokens.kinds.index(tables.load().number[tables.NEWLINE], k)
    words = Line(tokens, line, end)
    return next((h for h in (make(words, k - line, acceptable) for make in _HINTS) if h), None)


def _use(words: Line, k: int, acceptable: Set[str]) -> str | None:
    """The parts of a `use`: their order, and how buffers are bound."""
    at = next((i for i in range(k - 1, -1, -1) if words[i] == "use"), None)
    if at is None:
        return None
    before = words[at + 1 : k]
    if before == ["reversed"] and words[k].isidentifier():
        return f'"reversed" comes last: use {words[k]}(...) reversed'
    if acceptable == {"("} and len(before) == 1:
        return f"arguments stand in parentheses, also where there are none: use {before[0]}()"
    depths = accumulate((word in ("[", "(")) - (word in ("]", ")")) for word in before)
    bindings = any(word == "for" and not depth for word, depth in zip(before, depths, strict=True))
    if ("reversed" in before and words[k] in ("on", "for")) or (bindings and words[k] == "on"):
        return "the order of the parts is: use S(...) on [...] for X[a:b] reversed"
    if not bindings:
        return None
    if acceptable == {"="}:
        return f"a buffer of {before[0]} is bound by its name: {words[k - 1]}=X[a:b]"
    if {"=", "["} <= acceptable and words[k - 1].isidentifier():
        return f"say which chunks: for {words[k - 1]}[a:b]; without a for, buffers are bound whole, by their names"
    if words[k - 1] == "]" and (words[k] == "," or words[k].isidentifier()):
        return 'put "," between two buffers' if "," in acceptable else (
            "several buffers are bound by their names: for input=X[a:b], output=Y[c:d]")
    return None


def _one_each(words: Line, k: int, acceptable: Set[str]) -> str | None:
    """Several of what a line has one of."""
    if words[k] == "," and "on" in words[:k] and words[0] == "buffer":
        return "one place is for all buffers of the line, and ends it; those elsewhere stand on a line of their own"
    if words[k] == "," and words[0] == "stream" and k == 2:
        return f"a block is for one stream: write stream {words[1]}: and then the next one; they run side by side"
    if words[k] == "," and "]" in acceptable and (at := _subscript(words, k)) is not None:
        name, first, second = words[at - 1], words.written(at + 1, k), words.written(k + 1, _closing(words, k))
        return (f"one chunk is {name}[i], several are {name}[a:b]" if ":" in {*acceptable, *words[at:k]} else
                f"indices stand in brackets of their own: {name}[{first}][{second}]")
    if words[k] == ":" and words[0] == "for" and "if" in words[:k] and "else" in acceptable:
        condition = words.written(k - words[k::-1].index("if") + 1, k)
        return f"a loop has no condition; open its block with: if {condition}:"
    return None


def _foreign(words: Line, k: int, acceptable: Set[str]) -> str | None:
    return _FOREIGN.get(words[k]) if k == 0 or words[k - 1] == ":" else None


def _assignment(words: Line, k: int, acceptable: Set[str]) -> str | None:
    if k == 0 and words[1:2] == ["="] and words[0].isidentifier():
        inside = "let" in acceptable
        return f"bind a name with: let {words[0]} = ..." if inside else "functions stand here: fn NAME(x) = EXPRESSION"
    if k == 0 and words[2:3] == ["="] and words[1] in ("+", "-", "*", "//", "%", "|", "&", "^"):
        return "a name is bound once, with let, and never changes"
    return None


def _equals(words: Line, k: int, acceptable: Set[str]) -> str | None:
    if words[k] == "=" and words[0] in _INSTEAD_OF_EQUALS and 1 <= k <= 2:
        how = _INSTEAD_OF_EQUALS[words[0]].format(words.written(k + 1, len(words)))
        return how.replace("NAME", words[1]) if k == 2 else how
    if words[k] == "=" and words[0] == "for" and k == 2:
        return f"write: for {words[1]} in ..."
    if words[k] == "=" and "==" in acceptable:
        return 'compare with "=="'
    return None


def _else_if(words: Line, k: int, acceptable: Set[str]) -> str | None:
    if words[k] == "if" and k and words[k - 1] == "else":
        return 'write "elif"'
    if words[k] == "else" and k and "if" in words[:k]:
        return "a conditional expression stands in parentheses here: (a if c else b)"
    if words[k] in ("else", "elif") and k == 0:
        return f'"{words[k]}" goes with an "if" of the same indentation'
    return None


def _logic(words: Line, k: int, acceptable: Set[str]) -> str | None:
    if k and words[k] == words[k - 1] and words[k] in "&|" and words[k]:
        return 'write "and"' if words[k] == "&" else 'write "or"'
    return None


def _arrow(words: Line, k: int, acceptable: Set[str]) -> str | None:
    if words[k : k + 2] in (["-", ">"], ["=", ">"]) or (k and words[k - 1] + words[k] in ("->", "=>")):
        return "write: send X from R to P"
    return None


def _order_of_parts(words: Line, k: int, acceptable: Set[str]) -> str | None:
    before = words[:k]
    if words[k] == "into" and "from" in before and "recv" in before:
        return "a receive names where it stores at once: recv Y from R"
    if words[k] == "into" and "from" not in before and "to" in before and "then" not in before:
        return ("both ends together are written: send X from R to P into Y; in a rank's own view the other rank has "
                "recv Y")
    if words[k] == "from" and "to" in before:
        return "the sender comes first: send X from R to P"
    if words[k] in ("to", "from") and "into" in before:
        return '"into" comes last: send X from R to P into Y'
    if words[k] == "to" and "recv" in before:
        return "recv is one rank's own view; both ends together are written: send X from R to P"
    if words[k] == "on" and "to" in before and {"send", "reduce"} & set(before) and "on" not in acceptable:
        return "the ranks are those of from and to; a stream is a block round the statement: stream NAME:"
    if words[k] == "on" and "if" in before:
        return '"if" comes last'
    if words[k] == "to" and "copy" in before:
        return "copy stays on one rank: copy X into Y on R"
    return None


def _forward(words: Line, k: int, acceptable: Set[str]) -> str | None:
    if "then" not in words[: k + 1]:
        return None
    if words[k] == "then" and k == 0:
        return '"then send to Q" ends the statement that brings the value: send X from R to P then send to Q'
    if words[k - 1] == "then" and "send" in acceptable:
        return ("what is passed on is sent: then send to Q; to reduce at Q, write a second statement: "
                "reduce X from P to Q")
    if words[k] == "from":
        return "the rank that passes the value on is the one before: then send to Q"
    return None


def _chunks(words: Line, k: int, acceptable: Set[str]) -> str | None:
    """A buffer without the chunks that are meant, or with a range of them written as one of numbers."""
    if words[0] == "buffer" and acceptable == {"["}:
        size = words[k + 1] if words[k] == "(" and words[k + 2 : k + 3] == [")"] else "n"
        return f"say how many chunks it has: {words[k - 1]}[{size}]"
    if acceptable == {"["} and k and words[k - 1].isidentifier():
        name = words[k - 1]
        return f"say which chunks: {name}[i] is one, {name}[0:n] the first n"
    if words[k] == "(" and "[" in acceptable and k and words[k - 1].isidentifier():
        return f"indices stand in square brackets: {words[k - 1]}[{words.written(k + 1, _closing(words, k + 1))}]"
    if words[k] == ".." and "]" in acceptable and (at := _subscript(words, k)) is not None:
        name = words[at - 1]
        lower, upper = words.written(at + 1, k), words.written(k + 1, _closing(words, k))
        if ":" in acceptable:
            return f"a slice is written {name}[{lower}:{upper}]"
        return f"only buffers have slices; a part of a list is [{name}[i] for i in {lower}..{upper}]"
    return None


def _subscript(words: Line, k: int) -> int | None:
    """Where the bracket opens that token k stands in, if it is one after a name."""
    depth = 0
    for at in range(k - 1, 0, -1):
        depth += (words[at] in ("]", ")")) - (words[at] in ("[", "("))
        if depth < 0:
            after_name = words[at - 1].isidentifier() and words[at - 1] not in ("in", "if", "on")
            return at if words[at] == "[" and after_name else None
    return None


def _closing(words: Line, k: int) -> int:
    """Where the bracket closes that token k stands in; the end of the line where none does."""
    depth = 0
    for at in range(k, len(words)):
        depth += (words[at] in ("[", "(")) - (words[at] in ("]", ")"))
        if depth < 0:
            return at
    return len(words) - 1


def _ranges(words: Line, k: int, acceptable: Set[str]) -> str | None:
    if words[k] == ".." and "*" in acceptable:
        return "put the range in parentheses: (a..b)"
    if words[k] == ":" and "]" in acceptable:
        return "only buffers have slices; a part of a list is [xs[i] for i in a..b]"
    if words[k] in (":", "]") and k and words[k - 1] in (":", "[") and "(" in acceptable:
        return "a slice names both ends: data[a:b]"
    if words[k] == "for" and "[" in words[:k] and "for" in words[:k]:
        return "a list comprehension has one for"
    return None


def _outside(words: Line, k: int, acceptable: Set[str]) -> str | None:
    if k == 0 and "schedule" in acceptable and "send" not in acceptable and words[0] not in ("else", "elif"):
        near = _near(words[0], acceptable)
        return near or "statements stand inside a schedule, indented"
    return None


def _taken(words: Line, k: int, acceptable: Set[str]) -> str | None:
    reserved = words[k].isidentifier() and words[k] in tables.load().literals
    if reserved and "ranks" in acceptable and "let" not in acceptable:
        return f'"{words[k]}" is a word of the language and cannot be a name'
    return None


def _colon(words: Line, k: int, acceptable: Set[str]) -> str | None:
    if acceptable == {":"} or (":" in acceptable and words[k] == ""):
        return 'the line that opens a block ends with ":"' if words[k] == "" else f'put ":" before "{words[k]}"'
    return None


def _call(words: Line, k: int, acceptable: Set[str]) -> str | None:
    if k == 0 and words[1:2] == ["("] and words[0].isidentifier() and "use" in acceptable:
        near = _near(words[0], acceptable, 0.75)
        return near or f"a function stands in an expression; a schedule is used: use {words[0]}(...)"
    return None


def _missing(words: Line, k: int, acceptable: Set[str]) -> str | None:
    if words[k] == "==" and acceptable == {"on"} and words[0] == "ensure":
        return "say on which rank: ensure X on R == Y on P"
    if words[0] == "ensure" and k and words[k - 1] == "==":
        return "the right side is made of initial values: X on R, or sum(X on RANKS)"
    if words[k].startswith('"') and "," in acceptable and words[0] == "require":
        return 'put "," before the text'
    return None


def _docstring(words: Line, k: int, acceptable: Set[str]) -> str | None:
    if k == 0 and words[0].startswith('"') and "send" in acceptable:
        return 'a docstring is the first line of a schedule and stands in """three double quotes"""'
    return None


def _spelling(words: Line, k: int, acceptable: Set[str]) -> str | None:
    return _near(words[k], acceptable)


def _near(word: str, acceptable: Set[str], cutoff: float = 0.6) -> str | None:
    if len(word) < 2 or not word.isidentifier() or word in tables.load().literals:
        return None
    from difflib import get_close_matches  # costs time to import, needed here only

    close = get_close_matches(word.lower(), sorted(a for a in acceptable if a.isidentifier()), 1, cutoff)
    return f'did you mean "{close[0]}"?' if close else None


_HINTS: tuple[Hint, ...] = (
    _use, _one_each, _foreign, _assignment, _equals, _else_if, _logic, _arrow, _forward, _order_of_parts, _chunks,
    _ranges, _outside, _docstring, _missing, _call, _taken, _spelling, _colon)
