"""The rules that colour the language, in both forms."""

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from pygments.token import Error

from schedlang.cli.main import main
from schedlang.editors import textmate
from schedlang.editors.pygments import SchedLexer
from schedlang.editors.rules import Kind, Region, states
from schedlang.editors.words import words
from schedlang.ops import BUILTINS, COLLECTIVES, REDUCE_OPS
from schedlang.syntax import tables

TEXT = '''\
import "ring.sched"                                       # more
fn half(n) = n // 2 if is_pow2(n) else max(n, 1)

schedule pair(ranks, only=true):
    """Swap,
    and sum."""
    collective custom(sum)
    chunks max(
        ranks, 1)
    buffer input[1], tmp[half(2)] on host
    for host in 0..ranks:
        stream copy:
            send input[0] from host to only then send to only only
            record done[host] on host if only and not false
    use pair() on [
        ranks] for input=tmp[0:1] reversed
    ensure input[0] on 0 == sum(input[0] on 0..2)
'''
EXPECTED = {
    "IMPORT": "import", "STRING": '"ring.sched"', "COMMENT": "# more", "DECLARATION": "fn schedule buffer",
    "NAME": "n n n n ranks only ranks half ranks input host only only host host only ranks input tmp input input",
    "FUNCTION": "half", "OPERATOR": "= // = = ==", "NUMBER": "2 1 1 1 2 0 0 0 1 0 0 0 0 2",
    "CONTROL": "if else for if for",
    "BUILTIN": "is_pow2 max max", "SCHEDULE": "pair pair", "CONSTANT": "true false",
    "COLLECTIVE": "custom", "REDUCTION": "sum sum",
    "VARIABLE": "input tmp host", "LABEL": "copy done", "RANGE": ".. ..", "WORD_OPERATOR": "in and not",
    "STATEMENT": "collective chunks on host stream send from to then send to only record on use on reversed ensure "
                 "on on",
}


def test_a_text_with_everything():
    lines = [(kind, text) for _, kind, text in SchedLexer().get_tokens_unprocessed(TEXT)]
    for name, expected in EXPECTED.items():
        found = [text for kind, text in lines if str(kind) == f"Token.{Kind[name].pygments}"
                 or str(kind) == f"Token.Literal.{Kind[name].pygments}"]
        assert " ".join(found) == expected, name
    assert {k.name for k in Kind} - EXPECTED.keys() == {"DOC", "PUNCTUATION", "ERROR"}
    doc = "".join(text for kind, text in lines if str(kind) == "Token.Literal.String.Doc")
    assert doc == '"""Swap,\n    and sum."""'


@pytest.mark.parametrize("text, wrong", [
    ("let x = 0x1f + 1.5", ["0x1f", "1.5"]), ('import "ring', ['"ring']), ("let half = ranks / 2;", ["/", ";"]),
    ("'one'", ["'", "'"]), ("a . b", ["."]), ("0..4 + 1_000", []), ('""', []), ('"""open', [])])
def test_what_the_language_does_not_have_is_an_error(text, wrong):
    assert [piece for _, kind, piece in SchedLexer().get_tokens_unprocessed(text) if kind is Error] == wrong


def test_a_bracket_that_was_left_open_ends_where_a_statement_starts():
    text = "schedule s(ranks):\n    chunks max(ranks, [1\n    send data[0] from 0 to 1\n    ranks 4\n"
    kinds = [kind for _, kind, piece in SchedLexer().get_tokens_unprocessed(text) if piece == "ranks"]
    assert [str(kind) for kind in kinds] == ["Token.Name", "Token.Name", "Token.Keyword"]


def test_every_word_has_its_place():
    w = words()
    literals = {t.pattern for t in tables.load().terminals if t.kind == "word"}
    assert w.reserved | w.soft == literals
    assert len(w.reserved) + len(w.starting) + len(w.placing) + len(w.trailing) == len(literals)
    assert "send" in w.labelling and "for" not in w.labelling and w.placing == {"device", "host"}
    assert {"ranks", "chunks"} <= w.starting and "reversed" in w.trailing


@pytest.mark.parametrize("word", ["send", "ranks", "and", *COLLECTIVES, *REDUCE_OPS, *BUILTINS])
def test_words_of_all_tables_reach_the_textmate_grammar(word):
    assert re.search(rf"[(|:]{word}[|)]", json.dumps(textmate.build()))


def test_the_committed_grammar_is_made_from_the_rules():
    assert textmate.FILE.read_text(encoding="utf-8") == textmate.dumps(), "run: python -m schedlang.editors.textmate"


def test_the_textmate_grammar_is_whole():
    grammar = json.loads(textmate.dumps())
    assert grammar["scopeName"] == "source.sched" and grammar["fileTypes"] == ["sched"]
    included, patterns = set(), []

    def walk(value):
        if isinstance(value, list):
            for item in value:
                walk(item)
        elif isinstance(value, dict):
            included.update([value["include"]] if "include" in value else [])
            patterns.extend((value[k], value) for k in ("match", "begin", "end") if k in value)
            for item in value.values():
                walk(item)

    walk(grammar)
    assert included == {f"#{name}" for name in grammar["repository"]}
    assert len(patterns) > 40
    for pattern, rule in patterns:
        groups = re.compile(pattern).groups
        for where in ("captures", "beginCaptures", "endCaptures"):
            if pattern == rule.get({"captures": "match", "beginCaptures": "begin", "endCaptures": "end"}[where]):
                assert all(int(n) <= groups for n in rule.get(where, {}))


def test_each_pattern_says_the_kind_of_each_of_its_groups():
    for rules in states().values():
        for rule in rules:
            if isinstance(rule, str):
                assert rule in states()
                continue
            for match in [rule.begin, rule.end] if isinstance(rule, Region) else [rule]:
                assert len(match.kinds) == max(1, re.compile(match.pattern).groups), match.pattern


def test_pygments_finds_the_lexer_where_schedlang_is_installed():
    points = [p for p in metadata.entry_points(group="pygments.lexers") if p.name == "sched"]
    if not points:
        pytest.skip("schedlang is not installed here, so it has no entry points")
    assert points[0].load() is SchedLexer


def test_no_command_imports_pygments(shipped):
    code = ("import sys; from schedlang.cli.main import main; main(sys.argv[1:]); "
            "sys.exit('schedlang.editors' in sys.modules or 'pygments' in sys.modules)")
    for command in (["verify", str(shipped), "--ranks", "3"], ["explain", "SL305"], ["fmt", "--check", str(shipped)]):
        done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)


def test_the_problem_matcher_of_the_page_on_editors_reads_findings(tmp_path, capsys):
    page = (Path(__file__).parents[2] / "docs" / "editors.md").read_text(encoding="utf-8")
    (tasks,) = re.findall(r"^```json\n(.*?)^```", page, re.M | re.S)
    pattern = json.loads(tasks)["tasks"][0]["problemMatcher"]["pattern"]
    (tmp_path / "x.sched").write_text("schedule x(ranks):\n    collective broadcast(0)\n    send data[0] from 0 to 0\n")
    main(["verify", str(tmp_path / "x.sched"), "--ranks", "2", "--format", "concise"])
    found = re.search(pattern["regexp"], capsys.readouterr().out, re.M)
    assert [found[pattern[k]] for k in ("file", "line", "severity", "code")] == [
        str(tmp_path / "x.sched"), "3", "error", "SL224"]
    for written in re.findall(r"^cat > (?:package|language)\.json <<'END'\n(.*?)^END$", page, re.M | re.S):
        json.loads(written)
