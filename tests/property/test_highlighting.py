"""Whatever the text: Pygments keeps all of it, and where it parses, colours each token as the parser reads it."""

from bisect import bisect_right
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pygments.token import Comment, Error, Keyword, Name, Number, Operator, Punctuation, String

from schedlang.editors.pygments import SchedLexer
from schedlang.editors.rules import kind_of_word
from schedlang.source import Source
from schedlang.syntax import format_file, parse, tables
from schedlang.syntax.lexer import lex
from tests.programs import programs
from tests.trees import files

ROOT = Path(__file__).parents[2]
FILES = [p for folder in ("examples", "tests/cases") for p in sorted((ROOT / folder).rglob("*.sched"))]
LEXER = SchedLexer()


def coloured(text):
    """The pieces of a text as (offset, type, text)."""
    pieces = list(LEXER.get_tokens_unprocessed(text))
    assert "".join(piece for _, _, piece in pieces) == text
    assert [at for at, _, _ in pieces] == [0, *accumulate(len(piece) for _, _, piece in pieces)][:-1]
    return pieces


def names(tokens):
    """Which of the tokens of a text that parses are names, by number: found by running the automaton of the parser."""
    table = tables.load()
    as_names = [n for n, r in enumerate(table.rules) if table.nonterminals[r.origin] in ("soft", "keyword")]
    found = {k for k, kind in enumerate(tokens.kinds) if kind == table.number["NAME"]}
    states, k = [table.starts["file"]], 0
    while (action := table.actions[states[-1]][tokens.kinds[k]]) != tables.ACCEPT:
        if action > 0:
            states.append(action - 1)
            k += 1
            continue
        rule = table.rules[-1 - action]
        if -1 - action in as_names:
            found.add(k - 1)
        del states[len(states) - rule.length:]
        states.append(table.gotos[states[-1]][rule.origin])
    return found


def kind_matches(terminal, is_name, kind):
    if is_name:
        return kind in Name or kind is Keyword.Type     # a collective is a name to the parser
    match terminal.name:
        case "INT":
            return kind is Number.Integer
        case "STRING":
            return kind is String.Double
        case "DOC":
            return kind is String.Doc
    if terminal.kind == "word":
        return str(kind) == f"Token.{kind_of_word(terminal.pattern).pygments}"
    return kind in Punctuation if terminal.pattern in "()[],:" else kind in Operator and kind is not Operator.Word


def check(text):
    pieces = coloured(text)
    source = Source("<text>", text)
    file, _ = parse(source)
    if file is None:
        return
    assert not [p for p in pieces if p[1] in Error]
    starts = [at for at, _, _ in pieces]
    tokens = lex(source)
    names_here = names(tokens)
    for k, terminal in enumerate(tables.load().terminals[kind] for kind in tokens.kinds):
        if terminal.kind == "line":
            continue
        at, kind, piece = pieces[bisect_right(starts, tokens.starts[k]) - 1]
        where = (tokens.span(k).line, tokens.span(k).column, tokens.texts[k], kind)
        assert kind_matches(terminal, k in names_here, kind), where
        if terminal.name != "DOC":
            assert (at, piece) == (tokens.starts[k], tokens.texts[k]), where
    comments = [(at, piece.rstrip()) for at, kind, piece in pieces if kind in Comment]
    assert comments == [(c.span.start, c.text) for c in tokens.comments]


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_every_file_is_coloured_as_it_is_read(path):
    check(path.read_text(encoding="utf-8"))


@settings(deadline=None, max_examples=50)
@given(files)
def test_every_tree_is_coloured_as_it_is_read(file):
    check(format_file(file))


@settings(deadline=None, max_examples=50)
@given(programs())
def test_every_program_is_coloured_as_it_is_read(program):
    check(program)


@given(st.text(st.characters()) | st.lists(st.sampled_from(
    ["schedule s():\n", "    ", "\n", " ", "(", "[", '"""', '"', "#", "..", "0", "1.5", "only", "send", "collective",
     "allreduce", "buffer", "on", "host", "ensure", "sum", "=", "'", "é", "\r\n", "\ufeff"])).map("".join))
def test_any_text_is_kept(text):
    coloured(text)
