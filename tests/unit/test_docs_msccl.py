"""What docs/msccl.md shows is what happens: its files are written, its commands run, in one folder, in their order."""

import re
import shlex
from pathlib import Path

import pytest
from generators import examples

from schedlang.cli.main import main
from schedlang.codes import CODES
from schedlang.ready import read_ready
from tests.unit.test_ci import COMMAND, HOOKS, hooks, known
from tests.unit.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "msccl.md"
TEXT = PAGE.read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.M | re.S)


def mended(text):
    """The file that hangs, changed as its finding says: rank 1 tells that it has added."""
    silent = re.compile(r'(type="rrc" .*hasdep=)"0"')
    assert len(silent.findall(text)) == 1
    return silent.sub(r'\1"1"', text)


@pytest.fixture
def shown_files(tmp_path):
    """The files of the page, and the mended one, in the current folder."""
    with examples._inside(str(tmp_path)):
        for _, name, body in FENCE.findall(TEXT):
            if name:
                Path(name).write_text(body, encoding="utf-8")
        Path("mended.xml").write_text(mended(Path("swap.xml").read_text()))
        yield tmp_path


def test_the_page_shows_what_happens(shown_files, update):
    """A console block is commands, each followed by all that it prints; Python runs."""
    commands = 0

    def shown(fence):
        nonlocal commands
        language, name, body = fence.groups()
        if language == "python":
            assert examples._python(body, {}).status == 0
        if name is not None or language != "console":
            return fence[0]
        done = [examples._command(line) for line in body.splitlines() if line.startswith("$ ")]
        commands += len(done)
        return "```console\n" + "".join(f"{run.text}\n{run.output}{chr(10) * bool(run.output)}" for run in done) + "```"

    made = FENCE.sub(shown, TEXT)
    assert commands >= 4
    if update:
        PAGE.write_text(made, encoding="utf-8")
    assert made == TEXT or update, "if this is meant: pytest tests/unit/test_docs_msccl.py --update"


def test_what_is_proved_is_told_by_real_codes():
    assert {code for code in re.findall(r"SL\d{3}", TEXT)} <= CODES.keys()


@pytest.mark.parametrize("name", [name for _, name, _ in FENCE.findall(TEXT) if name and name.endswith(".xml")])
def test_the_files_of_the_page_say_what_they_are_for(name, tmp_path):
    """Readers take them as a pattern: nothing of them is unknown or left out."""
    text = next(body for _, there, body in FENCE.findall(TEXT) if there == name)
    (tmp_path / name).write_text(text, encoding="utf-8")
    ready = read_ready(str(tmp_path / name))
    assert ready.notes({}) == () and ready.choices["inplace"] == (True, False)


@pytest.mark.parametrize("line", sorted({line for block in blocks(TEXT, "yaml") for line in COMMAND.findall(block)}))
def test_what_is_pasted_runs(line, shown_files, capsys):
    Path("msccl").mkdir()
    Path("msccl/mended.xml").write_text(Path("mended.xml").read_text())
    words = shlex.split(line)[1:]
    assert known(line) and main(words) == 0
    Path("msccl/swap.xml").write_text(Path("swap.xml").read_text())
    capsys.readouterr()
    assert main(words) == 1 and "::error file=msccl/swap.xml,line=" in capsys.readouterr().out


def test_the_hook_is_one_of_ours():
    (hook,) = (hook for block in blocks(TEXT, "yaml") if "hooks:" in block for hook in hooks(block))
    assert hook["id"] in {ours["id"] for ours in hooks(HOOKS)}
    for name, taken in (("msccl/a.xml", True), ("msccl/deep/a.xml.gz", True), ("other/a.xml", False),
                        ("msccl/a.sched", False)):
        assert (re.search(hook["files"], name) is not None) == taken
