"""Whatever the text: findings inside it or a tree that can be laid out, and never an exception."""

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedlang.diagnostics import SchedError
from schedlang.source import Source
from schedlang.syntax import format_file, parse, parse_value, tables
from schedlang.syntax.recover import MAX_ERRORS

ROOT = Path(__file__).parent.parent.parent
FILES = [p for folder in ("examples", "tests/cases") for p in sorted((ROOT / folder).rglob("*.sched"))]
TEXTS = [p.read_text(encoding="utf-8") for p in FILES]
CODES = {"SL101", "SL102", "SL103", "SL104"}

WORDS = [t.pattern for t in tables.load().terminals if t.kind in ("word", "mark")]
pieces = st.sampled_from([
    *WORDS, "a", "data[0]", "0", "17", '"text"', '"""doc"""', "# note", "\n", "\n    ", "\n        ", "\n  ", "\n\t",
    "\r\n", " ", "\\", "é", "\0", "\ufeff", '"', '"""', "'", "1.5", "0x1f", "007", "9" * 30, "..", ".", "=", "&&",
    "schedule s():\n    "])


def check(text):
    source = Source("<fuzz>", text)
    file, diagnostics = parse(source)
    assert (file is None) == bool(diagnostics)
    assert len(diagnostics) <= MAX_ERRORS
    places = []
    for d in diagnostics:
        assert d.code in CODES
        assert 0 <= d.location.start <= d.location.end <= len(text)
        line = source.text.split("\n")[d.location.line - 1]  # the line exists
        assert 1 <= d.location.column <= len(line) + 1
        places.append((d.location.line, d.location.column))
    assert places == sorted(places)
    if file is not None:
        laid_out = format_file(file)
        again, _ = parse(Source("<fuzz>", laid_out))
        assert again == file
        assert Counter(c.text for c in again.comments) == Counter(c.text for c in file.comments)
        assert format_file(again) == laid_out


@given(st.text(st.characters()))
def test_any_text(text):
    check(text)


def shape(text):
    """A text as the parser sees it, to whom one name, number or string is like another."""
    spelt = "|".join(w for w in WORDS if w.isidentifier())
    text = re.sub(r"\b[0-9]+\b", "1", re.sub(r'"[^"]*"', '""', text))
    return re.sub(rf"\b(?!(?:{spelt})\b)[A-Za-z_]\w*", "x", text)


def beginnings():
    """The beginnings of statements, one of each shape, and the token that follows."""
    found = {}
    for text in TEXTS:
        for line in re.sub(r'"""[^"]*"""|#.*', "", text).split("\n"):
            tokens = line.replace("[", " [ ").replace("(", " ( ").split()
            for k in range(len(tokens) + 1 if line.startswith("    ") and tokens else 0):
                begun, after = " ".join(tokens[:k]), " ".join(tokens[k : k + 1])
                found.setdefault((shape(begun), shape(after)), (begun, after))
    return [*found.values()]


@pytest.mark.parametrize("intruder", ["=", "..", "(", "into", '"text"'])
def test_a_word_that_does_not_belong_after_each_word_of_each_statement(intruder):
    for begun, after in beginnings():
        check(f"schedule s(ranks):\n    {begun} {intruder} {after}\n")


@given(st.lists(pieces, max_size=40))
def test_any_order_of_tokens(parts):
    check("".join(parts))


@given(st.lists(pieces, max_size=40).map(" ".join))
def test_any_value(text):
    try:
        parse_value(text, "-p k")
    except SchedError as e:
        assert {d.code for d in e.diagnostics} <= CODES


@st.composite
def mutants(draw):
    """A shipped text with a few pieces deleted, doubled, moved or put in."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 4))):
        a = draw(st.integers(0, len(text)))
        b = draw(st.integers(a, min(a + 30, len(text))))
        text = draw(st.sampled_from([
            text[:a] + text[b:],
            text[:b] + text[a:b] + text[b:],
            text[:a] + draw(pieces) + text[b:],
            text[:a] + draw(pieces) + text[a:],
            text[:a] + text[a:b].swapcase() + text[b:],
        ]))
    return text


@given(mutants())
def test_mutants_of_shipped_files(text):
    check(text)


@st.composite
def rearranged(draw):
    """The lines of a shipped text, some of them moved, dropped, re-indented or with a comment behind them."""
    lines = draw(st.sampled_from(TEXTS)).split("\n")
    for _ in range(draw(st.integers(1, 6))):
        k = draw(st.integers(0, len(lines) - 1))
        change = draw(st.sampled_from(["drop", "move", "in", "out", "tab", "comment", "blank", "note"]))
        if change == "drop" and len(lines) > 1:
            del lines[k]
        elif change == "move":
            lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(k))
        elif change == "in":
            lines[k] = " " * draw(st.integers(1, 5)) + lines[k]
        elif change == "out":
            lines[k] = lines[k][draw(st.integers(1, 5)):]
        elif change == "tab":
            lines[k] = lines[k].replace("    ", "\t")
        elif change == "comment":
            lines[k] += " " * draw(st.integers(0, 9)) + "# note"
        elif change == "note":
            lines.insert(k, " " * draw(st.integers(0, 13)) + "# on its own")
        elif change == "blank":
            lines[k:k] = [""] * draw(st.integers(1, 3))
    return draw(st.sampled_from(["\n", "\r\n"])).join(lines)


@given(rearranged())
def test_rearranged_lines(text):
    check(text)


@st.composite
def broken(draw):
    """A shipped text with line ends and comments put inside its brackets, where they mean nothing."""
    text, out, depth = draw(st.sampled_from(TEXTS)), [], 0
    for k, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        out.append(c)
        quoted = '"' in text[text.rfind("\n", 0, k) + 1 : k]
        if depth > 0 and c in "([, " and not quoted and draw(st.integers(0, 9)) == 0:
            out.append(draw(st.sampled_from(["\n", "\n        ", "  # why\n   ", "\n# own line\n"])))
    return "".join(out)


@given(broken())
def test_line_ends_inside_brackets(text):
    check(text)
