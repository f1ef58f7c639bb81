"""Findings as they read in Python: printed, raised, looked at."""

import subprocess
import sys

import pytest

import schedlang
from schedlang.diagnostics import Note, SchedError, error, warning
from schedlang.source import Place, Source, Span

SOURCE = Source("a/x.sched", "schedule x(ranks):\n    send data[9] from 0 to 1\n")
AT = Span(SOURCE, SOURCE.text.index("data"), SOURCE.text.index(" from"))


def test_a_finding_prints_as_plain_text():
    finding = error("SL210", "chunk 9 of data, which has 8", AT, help="count from 0", count=1200,
                    notes=[Note("declared here", Place("b.json", 3)), Note("where r = 0")])
    assert str(finding) == ("a/x.sched:2:10: error[SL210] bad-use: chunk 9 of data, which has 8 "
                            "(and 1,199 more like it)\n  note: b.json:3:1: declared here\n  note: where r = 0\n"
                            "  help: count from 0")
    assert str(warning("SL602", "nothing reads it")) == "warning[SL602] shorter-part: nothing reads it"


def test_what_is_raised_says_how_to_mend_it():
    findings = [error("SL201", "no k", AT, help="call it j"), error("SL806", "no -q", notes=[Note("there is -p")])]
    assert str(SchedError(findings)) == ("a/x.sched:2:10: error[SL201] unknown-name: no k\n  help: call it j\n"
                                         "error[SL806] bad-option: no -q\n  note: there is -p")


def test_a_place_is_shown_by_line_and_column():
    assert repr(AT) == "<a/x.sched:2:10 to 2:17>"
    assert "x.sched:2:10" in repr(error("SL201", "no k", AT)) and "schedule" not in repr(error("SL201", "no k", AT))
    assert repr(SOURCE) == "Source(path='a/x.sched')"


def test_printing_needs_nothing_else():
    code = "import sys; from schedlang.diagnostics import error; str(error('SL201', 'no k')); " \
           "assert not any(m.startswith('schedlang.render') for m in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_load_raises_can_be_read(tmp_path):
    path = tmp_path / "few.sched"
    path.write_text("schedule few(ranks):\n    collective allreduce(sum)\n    chunk 4\n")
    with pytest.raises(SchedError, match=r"few\.sched:3:5: error\[SL101\] syntax-error: .*\n.*help: ") as caught:
        schedlang.load(path, ranks=2)
    assert all("help" in str(d) for d in caught.value.diagnostics)
