"""``schedlang fmt``: the usual layout."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from schedlang.cli.common import EXIT_CLEAN, EXIT_FINDINGS, EXIT_UNUSABLE, bad_option, show, write_text
from schedlang.diagnostics import SchedError
from schedlang.render.style import one_line
from schedlang.source import Source
from schedlang.syntax import format_file, parse, read

STDIN = "-"


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 where a file would change.")
@click.option("--diff", is_flag=True, help="Write nothing; show what would change.")
def command(paths: tuple[str, ...], check: bool, diff: bool) -> int:
    """Put schedule files into the usual layout.

    PATH is a file, a folder (all .sched files in it) or - (from standard input to standard output). Comments and
    meaning stay. A file that cannot be read is reported and left alone.

    Exit status: 0; 1 with --check where a file would change; 2 where a file cannot be read.
    """
    changed = same = broken = 0
    for path in _files(paths):
        if path == STDIN and sys.stdin is None:
            raise bad_option("-: the standard input is closed")
        try:
            source = Source("<stdin>", sys.stdin.buffer.read().decode("utf-8-sig")) if path == STDIN else read(path)
            text = _formatted(source)
        except UnicodeDecodeError:
            raise bad_option("the standard input is not UTF-8 text") from None
        except SchedError as failure:
            show(failure.diagnostics, err=True)
            broken += 1
            continue
        differs = text != source.text
        changed, same = changed + differs, same + (not differs)
        if diff:
            click.echo(_difference(source, text), nl=False)
        if path == STDIN and not check and not diff:
            click.echo(text, nl=False)
        elif differs and check and not diff:
            click.echo(f"would format {one_line(source.path)}")
        elif differs and not check and not diff:
            _replace(path, text)
            click.echo(f"formatted {one_line(path)}")
    if paths != (STDIN,):
        click.echo(_summary(changed, same, broken, "would change" if check or diff else "formatted"), err=True)
    return EXIT_UNUSABLE if broken else EXIT_FINDINGS if check and changed else EXIT_CLEAN


def _files(paths: Sequence[str]) -> list[str]:
    """The files that are named, each once, those of a folder in the order of their names."""
    files: dict[str, None] = {}
    for path in paths:
        if not path:
            raise bad_option("PATH: the path is empty", help="name a file or a folder")
        if path == STDIN or not os.path.isdir(path):
            files[path] = None
            continue
        inside = sorted(str(p) for p in Path(path).rglob("*.sched") if p.is_file())
        if not inside:
            raise bad_option(f"{path} holds no .sched file")
        files.update(dict.fromkeys(inside))
    return list(files)


def _formatted(source: Source) -> str:
    """The text in the usual layout, with the line ends it has. Raises SchedError where it does not parse."""
    file, diagnostics = parse(source)
    if file is None:
        raise SchedError(diagnostics)
    text = format_file(file)
    if parse(Source(source.path, text))[0] != file:
        raise AssertionError(f"formatting {source.path} would change its meaning; it is left as it is")
    first = source.line(1)
    return text.replace("\n", "\r\n") if source.text.startswith(first + "\r\n") else text


def _difference(source: Source, text: str) -> str:
    from difflib import unified_diff

    def lines(of: str) -> list[str]:
        return [line + "\n" for line in of.removesuffix("\n").split("\n")] if of else []

    name = one_line(source.path)
    return "".join(unified_diff(lines(source.text), lines(text), name, name))


def _replace(path: str, text: str) -> None:
    """Write a file as a whole, behind its links and with the permissions it has. Raises SchedError SL807."""
    real = os.path.realpath(path)
    mode = os.stat(real).st_mode & 0o7777
    write_text(real, text)
    os.chmod(real, mode)


def _summary(changed: int, same: int, broken: int, done: str) -> str:
    counts = ((changed, done), (same, "unchanged"), (broken, "unreadable"))
    return ", ".join(f"{n} {'file' if n == 1 else 'files'} {what}" for n, what in counts if n)
