"""What several subcommands share: exit codes, printing findings, option values, finding the schedule that was named."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from schedlang.codes import CODES, FAULTY, UNUSABLE
from schedlang.diagnostics import Diagnostic, SchedError, Severity, error

if TYPE_CHECKING:
    from schedlang.expand import Value
    from schedlang.ir.table import OpTable

EXIT_CLEAN, EXIT_FINDINGS, EXIT_UNUSABLE = 0, FAULTY, UNUSABLE

_Command = TypeVar("_Command", bound=Callable[..., Any])


def exit_code(diagnostics: Iterable[Diagnostic]) -> int:
    """The exit status the findings ask for: 2 where one says that the input could not be used, else 1 where one is an
    error, else 0."""
    return max((CODES[d.code].exit if d.code in CODES else EXIT_UNUSABLE
                for d in diagnostics if d.severity == Severity.ERROR), default=EXIT_CLEAN)


def show(diagnostics: Iterable[Diagnostic], *, format: str = "full", err: bool = False) -> None:
    """Prints findings for people: those that are a command's result to standard output, those that say why there is no
    result to standard error (``err``)."""
    from schedlang.render.style import wants_color
    from schedlang.render.terminal import render

    color = wants_color(sys.stderr if err else sys.stdout)
    click.echo(render(diagnostics, format="concise" if format == "concise" else "full", color=color), nl=False, err=err,
               color=color)


def bad_option(message: str, help: str | None = None) -> SchedError:
    """The error for an option or argument that cannot be used."""
    return SchedError(error("SL806", message, help=help))


# ---- options -------------------------------------------------------------------------------------------------------


def value_options(command: _Command) -> _Command:
    """``-p NAME=VALUE``, ``--op`` and ``--max-ops``, as ``parameters``, ``op`` and ``max_ops``."""
    for option in (
        click.option("--max-ops", type=click.IntRange(min=1), metavar="N",
                     help="Refuse expansions of more than N operations or loop turns (default 2^28)."),
        click.option("--op", metavar="OP", help="Reduce with OP instead of the schedule's own operator."),
        click.option("-p", "--param", "parameters", multiple=True, metavar="NAME=VALUE",
                     help="A parameter: an integer, true, false, a list, a name, or @FILE.json or @FILE.csv."),
    ):
        command = option(command)
    return command


def parameters(texts: Sequence[str], option: str = "-p") -> dict[str, list[Value]]:
    """``-p`` options by name, each as the list of its values: one, unless written ``1..4`` or ``1,2,4``. ``option``:
    what it is called, where not -p.

    Raises SchedError (SL806) for text that is no value.
    """
    values: dict[str, list[Value]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", name):
            raise bad_option(f"{option} {text}: expected NAME=VALUE", help=f"for example {option} channels=2")
        if name in values:
            raise bad_option(f"{option} {name} is given twice",
                             help=f"several values are written {option} {name}=1,2 or {option} {name}=1..3")
        values[name] = _values(value.strip(), f"{option} {name}")
    return values


def single(values: dict[str, list[Value]], option: str = "-p") -> dict[str, Value]:
    """Parameters that must have one value each."""
    for name, choices in values.items():
        if len(choices) != 1:
            raise bad_option(f"{option} {name} has {len(choices)} values, and this command takes one",
                             help="`schedlang verify` takes several")
    return {name: choices[0] for name, choices in values.items()}


def _values(text: str, label: str) -> list[Value]:
    if text.startswith("@"):
        from schedlang.cli.counts import read_counts

        return [read_counts(Path(text[1:]), label)]
    if text.lower().endswith((".csv", ".json")):
        raise bad_option(f"{label}={text} is the name of a file", help=f"{label}=@{text} reads counts from it")
    if match := re.fullmatch(r"(-?[0-9]{1,18})\s*\.\.\s*(-?[0-9]{1,18})", text):
        return list(_bounded(range(int(match[1]), int(match[2])), label, text))
    if re.fullmatch(r"-?\w+(\s*,\s*-?\w+)+", text):
        return [_value(part.strip(), label) for part in text.split(",")]
    return [_value(text, label)]


def _value(text: str, label: str) -> Value:
    """One value. Texts of the commonest kinds need no parser."""
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", text):
        return text
    from schedlang.expand import constant_value
    from schedlang.syntax import parse_value

    return constant_value(parse_value(text, label))


def rank_counts(text: str | None) -> list[int] | None:
    """``--ranks``: ``8``, a half-open range ``2..64``, or ``2,4,8``. Raises SchedError (SL806)."""
    if text is None:
        return None
    if re.search(r"[0-9]{10}", text):
        raise bad_option(f"--ranks {text}: that many ranks cannot be followed", help="take a smaller world")
    if match := re.fullmatch(r"\s*([0-9]{1,9})\s*\.\.\s*([0-9]{1,9})\s*", text):
        counts = list(_bounded(range(int(match[1]), int(match[2])), "--ranks", text))
    elif re.fullmatch(r"\s*[0-9]{1,9}\s*(,\s*[0-9]{1,9}\s*)*", text):
        counts = [int(part) for part in text.split(",")]
    else:
        raise bad_option(f"--ranks {text}: expected a number, a range or a list",
                         help="for example --ranks 8, --ranks 2..9 (2 to 8) or --ranks 2,4,8")
    if 0 in counts:
        raise bad_option(f"--ranks {text}: a schedule has at least 1 rank")
    return counts


def one_rank_count(text: str | None) -> int | None:
    """``--ranks`` where a command takes one size only."""
    counts = rank_counts(text)
    if counts is not None and len(counts) != 1:
        raise bad_option(f"--ranks {text}: this command takes one size", help="`schedlang verify` takes several")
    return counts[0] if counts else None


def _bounded(values: range, label: str, text: str) -> range:
    if not values:
        raise bad_option(f"{label} {text}: the range is empty; its end does not belong to it")
    if len(values) > 1_000_000:
        raise bad_option(f"{label} {text}: more than a million values")
    return values


def a_range(text: str | None, label: str) -> range | None:
    """``A..B`` (half-open, either end may be missing) or one number; None for none. Raises SchedError (SL806)."""
    if text is None:
        return None
    if match := re.fullmatch(r"([0-9]{0,9})\.\.([0-9]{0,9})", text):
        return range(int(match[1] or 0), int(match[2] or 1_000_000_000))
    if re.fullmatch(r"[0-9]{1,9}", text):
        return range(int(text), int(text) + 1)
    raise bad_option(f"{label} {text}: expected a number or a range", help=f"for example {label} 3 or {label} 0..4")


# ---- files -------------------------------------------------------------------------------------------------


def named_dtype(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    """The callback of an option that names a dtype: what NCCL calls otherwise gets its name here."""
    if text is None:
        return None
    from schedlang.running.dtypes import NCCL

    return NCCL.get(text.lower(), text)


def load_table(target: str, *, ranks: str | None, texts: Sequence[str], op: str | None,
               max_ops: int | None) -> tuple[OpTable, list[Diagnostic]]:
    """The op table that the options ask for, see :func:`schedlang.loading.load_table`."""
    from schedlang import loading

    return loading.load_table(target, ranks=one_rank_count(ranks), params=single(parameters(texts)), op=op,
                              max_ops=max_ops, make_up_counts=True)


def output_file(path: str | None, *read: str | None) -> str | None:
    """The file that ``--output`` names; None for the standard output, which ``-`` is, too. Raises SchedError (SL806)
    where it is one of the files that are ``read``: the result would stand where what it is made from was."""
    if path is None or path == "-":
        return None
    if not path:
        raise bad_option("--output: the name is empty", help="name a file")
    for source in read:
        if source and os.path.isfile(path) and os.path.isfile(source) and os.path.samefile(path, source):
            raise bad_option(f"--output {path}: this file is read here, and would be lost", help="name another file")
    return path


def put(text: str, output: str | None) -> None:
    """A command's result: to the file ``output``, as :func:`write_text`; None: to the standard output."""
    if output is not None:
        write_text(output, text)
    elif text:
        click.echo(text, nl=False, color=True)


def write_text(path: str, text: str) -> None:
    """Writes a file as a whole or not at all, see :func:`schedlang.files.write_file`. What is no text, as the name of a
    file may be, is written as a question mark. Raises SchedError (SL807)."""
    from schedlang.files import write_file

    write_file(path, lambda file: file.write(text.encode("utf-8", "replace")))
