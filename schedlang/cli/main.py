"""The ``schedlang`` command: finds the subcommand, and turns whatever goes wrong into findings and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, TextIO

import click

from schedlang.cli.common import EXIT_CLEAN, EXIT_FINDINGS, EXIT_UNUSABLE, exit_code, show
from schedlang.diagnostics import Diagnostic, SchedError, error

EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
EXIT_BUG = 70

COMMANDS = {
    "verify": "Prove schedules right, or show what is wrong with them.",
    "run": "Execute a schedule on real arrays.",
    "bench": "Time schedules against what they are to replace.",
    "show": "Draw step by step who holds what.",
    "diff": "Compare two schedules: do they do the same, and what does each cost?",
    "compile": "Write a schedule in another form.",
    "fmt": "Put schedule files into the usual layout.",
    "explain": "Say what a finding means and how to mend it.",
}
"""The subcommands, with their one-line help; ``schedlang.cli.NAME:command`` is imported only when it is called."""


class NoSuchCommand(click.UsageError):
    """A subcommand that does not exist."""

    def __init__(self, name: str, ctx: click.Context) -> None:
        super().__init__(f"no such command: {name}", ctx)
        self.name = name


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            raise NoSuchCommand(name, ctx)
        command: click.Command = importlib.import_module(f"schedlang.cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        from schedlang.version import __version__

        click.echo(f"schedlang {__version__}")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def group() -> None:
    """A language for schedules of collective communication: write one, prove it, run it.

    Exit status: 0 clean, 1 findings, 2 unusable input.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status; ``arguments`` without the program's name, default sys.argv."""
    if sys.stderr is None:      # closed by whoever called; there is nobody to complain to
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # for the rest of the process
    if sys.stdout is None:
        return _unwritable("it is closed")
    try:
        # An output encoding that lacks a character must not end a run; a replacement mark is better than nothing.
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _quiet(sys.stdout)      # whoever read our output has gone
        return EXIT_BROKEN_PIPE
    except OSError as failure:  # those about a file are findings by now
        _quiet(sys.stdout)
        return _unwritable(failure.strerror or str(failure))
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED


def _unwritable(why: str) -> int:
    """Says that the output cannot be written, as far as that can be said."""
    try:
        show([error("SL807", f"cannot write to the standard output: {why}")], err=True)
        sys.stderr.flush()
    except OSError:
        _quiet(sys.stderr)
    return EXIT_UNUSABLE


def _quiet(stream: TextIO) -> None:
    """Points a stream that fails elsewhere, so that the interpreter's last flush does not fail, too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _dispatch(arguments: Sequence[str] | None) -> int:
    try:
        # Not click's own main(): that ends the process with status 1 when the reader of our output has gone.
        with group.make_context("schedlang", list(sys.argv[1:] if arguments is None else arguments)) as context:
            result: Any = group.invoke(context)
        return result if isinstance(result, int) else EXIT_CLEAN
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except SchedError as failure:
        show(failure.diagnostics, err=True)
        return exit_code(failure.diagnostics) or EXIT_UNUSABLE
    except click.exceptions.NoArgsIsHelpError as failure:
        click.echo(failure.ctx.get_help() if failure.ctx else failure.format_message(), err=True)
        return EXIT_UNUSABLE
    except click.UsageError as failure:
        show([_usage(failure)], err=True)
        return EXIT_UNUSABLE
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.ClickException as failure:
        show([error("SL806", failure.format_message())], err=True)
        return EXIT_UNUSABLE
    except MemoryError:
        show([error("SL208", "there is not enough memory for this schedule", help="try fewer ranks or chunks")],
             err=True)
        return EXIT_UNUSABLE
    except (BrokenPipeError, KeyboardInterrupt, SystemExit):
        raise
    except OSError as failure:
        if failure.filename is None:
            raise
        show([error("SL105", f"cannot use {failure.filename}: {failure.strerror}")], err=True)
        return EXIT_UNUSABLE
    except Exception:
        traceback.print_exc()
        click.echo("\nThis is a bug in schedlang. Please report it with the lines above and, if you can, the schedule.",
                   err=True)
        return EXIT_BUG


def _usage(failure: click.UsageError) -> Diagnostic:
    path = failure.ctx.command_path if failure.ctx is not None else "schedlang"
    help = f"`{path} --help` lists the options"
    if isinstance(failure, click.NoSuchOption):
        near = get_close_matches(failure.option_name, failure.possibilities or (), n=1, cutoff=0)
        message = f"{path} has no option {failure.option_name}"
        if near:
            help = f"did you mean {near[0]}? {help}"
    elif isinstance(failure, click.MissingParameter) and failure.param is not None:
        message = f"{path} needs {failure.param.get_error_hint(failure.ctx) if failure.ctx else failure.param.name}"
    elif isinstance(failure, NoSuchCommand):
        near = get_close_matches(failure.name, COMMANDS, n=1)
        message = f"schedlang has no command {failure.name}"
        help = (f"did you mean {near[0]}? " if near else "") + f"there are {', '.join(COMMANDS)}"
    else:
        text = failure.format_message().rstrip(".")
        message = f"{path}: {text[:1].lower()}{text[1:]}"
    return error("SL806", message, help=help)


def run() -> None:
    """The entry point of the installed command: runs it and ends the process with its exit status."""
    sys.exit(main())


assert (EXIT_CLEAN, EXIT_FINDINGS, EXIT_UNUSABLE) == (0, 1, 2)
