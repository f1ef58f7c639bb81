"""Findings as text and as JSON."""

import json
import time

import numpy as np
import pytest

from schedlang.diagnostics import Note, error, note, warning
from schedlang.render import json as as_json
from schedlang.render.style import clean, width
from schedlang.render.terminal import render, summary
from schedlang.render.verdict import facts_text
from schedlang.source import Place, Source, Span

TEXT = "schedule x(ranks):\n    send data[0] from 0 to 1\n    send data[1] from 1 to 0\n"
SOURCE = Source("a/x.sched", TEXT)


def span(part, source=SOURCE):
    start = source.text.index(part)
    return Span(source, start, start + len(part))


def lines(*findings, **options):
    return render(findings, color=False, width=80, **options).split("\n")


def test_full_finding():
    found = lines(error("SL305", "a circle", span("send data[0]"), help="post both",
                        notes=[Note("waits for the other", span("send data[1]")),
                               Note("the same", span("send data[0]"))],
                        count=63))
    assert found == [
        "a/x.sched:2:5: error[SL305] deadlock: a circle",
        " 2 |     send data[0] from 0 to 1",
        "   |     ^^^^^^^^^^^^",
        "  note: a/x.sched:3:5: waits for the other",
        " 3 |     send data[1] from 1 to 0",
        "   |     ^^^^^^^^^^^^",
        "  note: a/x.sched:2:5: the same",  # shown already: no second snippet
        "  and 62 more like it",
        "  help: post both",
        "",
    ]


def test_findings_are_separated_by_a_blank_line():
    assert lines(error("SL101", "a"), warning("SL601", "b")) == [
        "error[SL101] syntax-error: a", "", "warning[SL601] stream-used-once: b", ""]
    assert render([], color=False) == ""


def test_concise_is_one_line_a_finding():
    found = lines(error("SL305", "a circle\nof two", span("send data[0]"), count=3, help="x"),
                  note("SL603", "b"), format="concise")
    assert found == ["a/x.sched:2:5: error[SL305] deadlock: a circle of two (and 2 more like it)",
                     "note[SL603] staging-copy: b", ""]


def test_a_place_has_no_snippet():
    assert lines(error("SL107", "bad", Place("t.json", 7)))[0].startswith("t.json:7:1: error[SL107]")
    assert len(lines(error("SL107", "bad", Place("t.json", 7)))) == 2


def test_caret_under_tabs_and_wide_characters():
    source = Source("t", "\tlet 漢字 = bad\n")
    found = lines(error("SL201", "unknown", span("bad", source)))
    assert found[1] == " 1 |     let 漢字 = bad"
    assert width(found[2][:found[2].index("^")]) == width(found[1][:found[1].index("bad")])


@pytest.mark.parametrize("length", [90, 140, 100_000, 2_000_000])
@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_a_line_of_any_length_is_shown_round_the_place_and_at_once(length, share):
    """A file that a program has written may be a single line."""
    text = ("<abcdefgh>" * (length // 10))[:length]
    at = min(int(length * share) // 10 * 10, length - 10)
    found = error("SL103", "bad", Span(Source("f", text), at, at + 10))
    begun = time.process_time()
    for _ in range(50):
        _, line, under = render([found], color=False, width=100).splitlines()
    assert time.process_time() - begun < 0.5
    assert len(line) <= 100 and line[under.index("^"):under.rindex("^") + 1] == "<abcdefgh>"
    assert (line.startswith(" 1 | …"), line.endswith("…")) == (length > 100 and share > 0, length > 100 and share < 1)


def test_caret_at_the_end_of_the_text():
    end = Span(SOURCE, len(TEXT) - 1, len(TEXT) - 1)
    found = lines(error("SL101", "more expected", end))
    assert found[2].index("^") == len(found[1])


def test_a_span_of_several_lines_is_underlined_to_the_end_of_its_first():
    whole = Span(SOURCE, 0, len(TEXT))
    assert lines(error("SL205", "x", whole))[2] == "   | " + "^" * len("schedule x(ranks):")


def test_long_lines_are_cut_round_the_span():
    source = Source("t", "a" * 300 + "HERE" + "b" * 300)
    found = lines(error("SL101", "x", span("HERE", source)))
    assert len(found[1]) <= 80 and found[1].count("…") == 2
    at = found[2].index("^")
    assert found[1][at:at + 4] == "HERE" and found[2].count("^") == 4


def test_control_characters_never_reach_the_terminal():
    source = Source("t", "let x = \x1b[31m\u202e1\n")
    text = render([error("SL103", "bad \x1b[0m", Span(source, 8, 9))], color=False, width=80)
    assert "\x1b" not in text and "\u202e" not in text
    assert clean("a\x00b\nc") == "a\u2400b\nc"


def test_colours_only_when_asked(monkeypatch):
    finding = error("SL305", "a circle", span("send data[0]"))
    assert "\x1b[" in render([finding], color=True)
    assert "\x1b[" not in render([finding], color=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in render([finding])
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in render([finding])


def test_summary_counts_by_severity():
    assert summary([error("SL305", ""), error("SL305", ""), note("SL603", "")]) == "2 errors, 1 note"
    assert summary([]) == ""


def test_one_of_a_thing_is_no_plural():
    facts = {"sent_most": "n", "received_most": "n", "link_most": "n", "rounds": 1, "messages": 1, "links": 1,
             "peak_scratch": 1}
    assert [next(facts_text(facts)), list(facts_text(facts))[-1]] == [
        "1 round, 1 message over 1 link", "scratch in use on a rank: 1 chunk"]
    assert next(facts_text({**facts, "rounds": 2, "messages": 4096, "links": 0})) == (
        "2 rounds, 4,096 messages over 0 links")


def test_of_a_barrier_no_bytes_are_told():
    assert list(facts_text({"rounds": 2, "rounds_bound": 2, "messages": 8, "links": 8})) == [
        "2 rounds (with one message at a time at least 2), 8 messages over 8 links"]


def test_json_finding():
    finding = error("SL305", "a circle", span("send data[0]"), notes=[Note("n", Place("b", 3))], help="h", count=2,
                    rows=np.arange(2), depth=np.int32(3), share=float("inf"))
    document = json.loads(as_json.dumps({"d": as_json.diagnostic(finding)}))["d"]
    assert document == {
        "code": "SL305", "name": "deadlock", "severity": "error", "message": "a circle", "file": "a/x.sched", "line": 2,
        "column": 5, "end_line": 2, "end_column": 17, "help": "h", "count": 2,
        "notes": [{"message": "n", "file": "b", "line": 3, "column": 1, "end_line": None, "end_column": None}],
        "witness": {"rows": [0, 1], "depth": 3, "share": "inf"},
    }
