"""What docs/ci.md has people paste, and the hooks that we offer to pre-commit, work."""

import importlib
import re
import shlex
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from schedlang.cli import main
from tests.unit.test_docs import ROOT, blocks

PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
HOOKS = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
COMMAND = re.compile(r"^\s*(?:- )?(?:run: |entry: )?(schedlang .*)$", re.M)


def hooks(text):
    """The hooks of a file, each as its keys and values; the files that we have need no more of YAML."""
    items = re.split(r"^ *- (?=id: )", text, flags=re.M)[1:]
    return [dict(line.strip().split(": ", 1) for line in item.splitlines() if ": " in line) for item in items]


def known(entry):
    """Whether a command line names a command of ours and options that it has."""
    program, name, *rest = shlex.split(entry)
    command = importlib.import_module(f"schedlang.cli.{name}").command
    options = {option for parameter in command.params for option in parameter.opts}
    return program == "schedlang" and name in main.COMMANDS and {r for r in rest if r.startswith("-")} <= options


@pytest.fixture
def schedules(tmp_path, monkeypatch, shipped):
    """A project with a folder of schedules, as the current folder."""
    (tmp_path / "schedules").mkdir()
    shutil.copy(shipped, tmp_path / "schedules")
    shutil.copy(shipped.parents[1] / "broadcast" / "binomial.sched", tmp_path / "schedules")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "schedules"


COMMANDS = sorted({line for block in blocks(PAGE, "yaml") + blocks(PAGE, "make") for line in COMMAND.findall(block)})


def test_every_command_line_was_found():
    assert COMMANDS == [
        "schedlang fmt", "schedlang fmt --check schedules", "schedlang verify --format concise",
        "schedlang verify schedules", "schedlang verify schedules --format github",
        "schedlang verify schedules --format json --output schedlang.json",
        "schedlang verify schedules --format sarif --output schedlang.sarif"]


@pytest.mark.parametrize("line", COMMANDS)
def test_what_is_pasted_runs(line, schedules, capsys):
    words = shlex.split(line)[1:]
    if "schedules" not in words:        # the entry of a hook, to which pre-commit adds the files
        words += [str(path) for path in schedules.iterdir()]
    assert known(line) and main.main(words) == 0
    assert capsys.readouterr().err in ("", "2 files unchanged\n")
    (schedules / "faulty.sched").write_text("schedule faulty(ranks):\n    collective broadcast(0)\n  \n    chunks 1\n")
    assert main.main([*words, "schedules/faulty.sched"] if "schedules" not in words else words) == (
        0 if words[0] == "fmt" and "--check" not in words else 1)


@pytest.mark.parametrize("block", [*blocks(PAGE, "yaml"), HOOKS], ids=lambda b: b.split("\n")[0])
def test_pasted_yaml_has_the_form_of_yaml(block):
    line = re.compile(r"(?: {2})*(?:- )?(?:#.*|[\w-]+:(?: (?![\s:]).*)?|[\w${(][^:]*)")
    assert all(line.fullmatch(text) for text in block.splitlines()), block
    depths = [len(text) - len(text.lstrip(" ")) for text in block.splitlines()]
    assert all(after - before <= 2 for before, after in pairwise(depths))


def test_the_hooks_are_real():
    found = hooks(HOOKS)
    assert [hook["id"] for hook in found] == ["schedlang-fmt", "schedlang-verify"]
    for hook in found:
        assert known(hook["entry"]) and hook["language"] == "python" and hook["name"] == hook["entry"].split(" --")[0]
        assert re.search(hook["files"], "a/x.sched") and not re.search(hook["files"], "a/x.sched.txt")
    # Several processes at once would write their reports into each other.
    assert [hook.get("require_serial") for hook in found] == [None, "true"]


def test_the_page_shows_the_hooks_as_they_are():
    remote, local = (hooks(block) for block in blocks(PAGE, "yaml") if "pre-commit" in block)
    assert [hook["id"] for hook in remote] == [hook["id"] for hook in hooks(HOOKS)]
    assert local == [{**{k: v for k, v in hook.items() if k != "description"}, "language": "system"}
                     for hook in hooks(HOOKS)]


def test_a_hook_finds_what_is_wrong(schedules, capsys):
    fmt, verify = (shlex.split(hook["entry"])[1:] for hook in hooks(HOOKS))
    path = Path("schedules/ring.sched")
    path.write_text(path.read_text().replace("    ", "  "))
    before = path.read_text()
    assert main.main([*fmt, str(path)]) == 0 and path.read_text() != before
    assert main.main([*verify, str(path)]) == 0
    path.write_text(path.read_text().replace("send", "reduce"))
    capsys.readouterr()
    assert main.main([*verify, str(path)]) == 1 and "schedules/ring.sched:" in capsys.readouterr().out
