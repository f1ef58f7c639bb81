"""The committed tables are those of the grammar, and a spoilt file does no harm."""

import json
import subprocess
import sys

import pytest
from lark.exceptions import GrammarError

from schedlang.syntax import generate, tables


@pytest.fixture
def fresh():
    tables.load.cache_clear()
    yield
    tables.load.cache_clear()


def test_the_committed_tables_are_made_from_the_grammar():
    made = generate.dumps(generate.build(tables.GRAMMAR.read_text(encoding="utf-8")))
    assert tables.FILE.read_text(encoding="utf-8") == made, "run: python -m schedlang.syntax.generate"


@pytest.mark.parametrize("spoil", [
    lambda text: "",
    lambda text: text[: len(text) // 2],
    lambda text: "[]",
    lambda text: text.replace('"grammar":"', '"grammar":"0'),
    lambda text: text.replace('"format":1', '"format":0'),
    None,
])
def test_spoilt_stale_or_missing_tables_are_built_anew(spoil, tmp_path, monkeypatch, fresh):
    good = tables.load()
    file = tmp_path / "tables.json"
    if spoil:
        file.write_text(spoil(tables.FILE.read_text(encoding="utf-8")), encoding="utf-8")
    monkeypatch.setattr(tables, "FILE", file)
    tables.load.cache_clear()
    again = tables.load()
    assert again.terminals == good.terminals
    assert again.actions == good.actions
    assert again.rules == good.rules


def test_line_ends_of_the_grammar_do_not_make_it_stale():
    text = tables.GRAMMAR.read_bytes()
    assert tables.digest(text.replace(b"\n", b"\r\n")) == tables.digest(text)
    assert tables.digest(text) == json.loads(tables.FILE.read_bytes())["grammar"]


def test_an_ambiguous_grammar_is_refused():
    grammar = tables.GRAMMAR.read_text(encoding="utf-8")
    ambiguous = grammar.replace('?binding: "let" name "=" range', '?binding: "let" name "=" range [guard]')
    assert ambiguous != grammar
    with pytest.raises(GrammarError, match="conflict"):
        generate.build(ambiguous)


def test_reading_a_file_imports_neither_lark_nor_numpy(shipped):
    code = ("import sys; from schedlang.syntax import parse, read\n"
            "assert parse(read(sys.argv[1]))[0]\n"
            "print([m for m in ('lark', 'numpy', 'rich', 'difflib') if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code, str(shipped)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
