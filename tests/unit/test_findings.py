"""Every finding has an example that shows it, and one that is mended; they are on the pages of the documentation."""

import os
import re
from pathlib import Path

import pytest
from generators import examples, findings

from schedlang.codes import CODES
from schedlang.source import Source
from schedlang.syntax import format_file, parse

WRITTEN = {path.stem for path in examples.FOLDER.glob("SL*.md")}


def test_every_code_has_an_example():
    lacking, unknown = sorted(CODES.keys() - WRITTEN), sorted(WRITTEN - CODES.keys())
    assert not lacking, (
        f"no example of {', '.join(lacking)}: write docs/findings/{lacking[0]}.md, which shows a schedule that gives "
        "this finding, the command, and the same mended; docs/findings/README.md says how, SL305.md there is one")
    assert not unknown, f"examples of codes that do not exist: {', '.join(unknown)}"


@pytest.mark.parametrize("code", sorted(WRITTEN & CODES.keys()))
def test_an_example_shows_its_finding_and_the_mended_one_is_clean(code):
    wrong, mended = examples.example(code)
    shown = wrong.runs[-1]
    assert f"[{code}]" in shown.output, f"the last command before `## Mended` does not give {code}:\n{shown.output}"
    if f"error[{code}]" in shown.output:
        assert shown.status == CODES[code].exit, shown.output
    else:
        assert shown.status == 0, f"{code} is a remark here, but the command fails:\n{shown.output}"
    assert mended.runs
    for run in mended.runs:
        assert run.status == 0, f"mended, {run.text} ends with status {run.status}:\n{run.output}"
        assert code not in run.output, f"mended, {run.text} still gives {code}:\n{run.output}"


@pytest.mark.parametrize("code", sorted(WRITTEN & CODES.keys()))
def test_a_mended_schedule_has_the_usual_layout(code):
    _, mended = (examples.FOLDER / f"{code}.md").read_text(encoding="utf-8").split("## Mended\n")
    for name, body in re.findall(r"^```sched (\S+)\n(.*?)^```$", mended, re.M | re.S):
        file, wrong = parse(Source(name, body))
        assert file is not None, wrong
        assert format_file(file) == body


def test_an_example_leaves_no_trace():
    here, before = os.getcwd(), dict(os.environ)
    examples.example("SL305")
    assert (os.getcwd(), dict(os.environ)) == (here, before)
    assert not Path("shift.sched").exists()


@pytest.mark.parametrize("text, why", [
    ("```console\n$ schedlang --version\n```\n", "no line `## Mended`"),
    ("```console\n$ rm ring.sched\n```\n## Mended\n", "not a command of schedlang"),
    ("```sched\nschedule s(): ...\n```\n## Mended\n", "without the name of a file"),
])
def test_an_example_that_is_not_written_as_it_should_be(text, why, tmp_path, monkeypatch):
    monkeypatch.setattr(examples, "FOLDER", tmp_path)
    (tmp_path / "SL101.md").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(why)):
        examples.example("SL101")


def test_the_pages():
    table = findings._table()
    assert all(f"`{code} <generated/findings/{code}>`" in table for code in CODES)
    page = findings._page(CODES["SL305"])
    assert page.startswith("# SL305 deadlock\n") and page.count("\n## ") == 3
    assert ":caption: shift.sched" in page and "error[SL305]" in page and "\nok  shift.sched::shift  ranks 4\n" in page
