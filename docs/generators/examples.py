"""The examples of findings, docs/findings/CODE.md: reading them, running them, as Markdown. docs/findings/README.md
says how they are written."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from schedlang.cli.common import exit_code
from schedlang.cli.main import main
from schedlang.diagnostics import SchedError

FOLDER = Path(__file__).parents[1] / "findings"
WIDTH = 104
_FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.M | re.S)
_MENDED = "## Mended\n"


@dataclass(frozen=True)
class Run:
    """A command or a piece of Python that was run. ``status``: the exit status, of Python that raised SchedError what a
    command's would be. ``output``: what it printed on both standard streams."""

    text: str
    status: int
    output: str


@dataclass(frozen=True)
class Part:
    """The text of one half of an example, as Markdown with all outputs, and what ran in it."""

    markdown: str
    runs: tuple[Run, ...]


def example(code: str) -> tuple[Part, Part]:
    """The two halves, wrong and mended, of a code's example, run one after the other in one empty folder.

    Raises ValueError for an example that is not written as it should be.
    """
    text = (FOLDER / f"{code}.md").read_text(encoding="utf-8")
    halves = text.split(_MENDED)
    if len(halves) != 2:
        raise ValueError(f"docs/findings/{code}.md has no line `{_MENDED.strip()}`, or several")
    with tempfile.TemporaryDirectory() as folder, _inside(folder):
        names: dict[str, object] = {}
        wrong, mended = (_part(half, names) for half in halves)
    return wrong, mended


def _part(text: str, names: dict[str, object]) -> Part:
    runs: list[Run] = []

    def shown(fence: re.Match[str]) -> str:
        language, name, body = fence.groups()
        if name is not None:
            Path(name).write_text(body, encoding="utf-8")
            return _block(language, body, name)
        if language == "console":
            done = [_command(line) for line in body.splitlines()]
            runs.extend(done)
            return _block("none", "\n".join(f"{run.text}\n{run.output}" for run in done))
        if language == "python":
            run = _python(body, names)
            runs.append(run)
            return _block("python", body) + (f"\n\n{_block('none', run.output)}" if run.output else "")
        raise ValueError(f"a fence of {language} without the name of a file")

    return Part(_FENCE.sub(shown, text).strip(), tuple(runs))


def _block(language: str, body: str, caption: str | None = None) -> str:
    options = [":force:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join([f"```{{code-block}} {language}", *options, "", body.rstrip(), "```"])


def _command(line: str) -> Run:
    if not line.startswith("$ schedlang "):
        raise ValueError(f"not a command of schedlang: {line}")
    with _captured() as out:
        status = main(line.split()[2:])
    return Run(line, status, _wrapped(out.getvalue()))


def _python(body: str, names: dict[str, object]) -> Run:
    with _captured() as out:
        try:
            exec(body, names)
            status = 0
        except SchedError as failure:
            out.write(f"schedlang.diagnostics.SchedError: {failure}\n")
            status = exit_code(failure.diagnostics)
    return Run(body, status, _wrapped(out.getvalue()))


@contextlib.contextmanager
def _captured() -> Iterator[io.StringIO]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        yield out


@contextlib.contextmanager
def _inside(folder: str) -> Iterator[None]:
    """In another folder, in a terminal of ``WIDTH`` columns without colours."""
    here, before = os.getcwd(), dict(os.environ)
    os.environ.update(COLUMNS=str(WIDTH), NO_COLOR="1")
    os.environ.pop("FORCE_COLOR", None)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(before)


def _wrapped(text: str) -> str:
    """Long lines broken, but for lines of source and what underlines them."""
    lines: list[str] = []
    for line in text.rstrip().splitlines():
        if len(line) > WIDTH and not re.match(r" *\d* \|", line):
            indent = " " * (len(line) - len(line.lstrip()) + 4)
            lines += textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_long_words=False,
                                   break_on_hyphens=False)
        else:
            lines.append(line)
    return "\n".join(lines)
