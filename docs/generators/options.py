"""The list of commands and options at the end of commands.md. It is committed, for readers of a clone; `pytest
tests/unit/test_docs.py --update` writes it, and the same test compares."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator

import click

from schedlang.cli import main as command_line


def options() -> str:
    """What `--help` says of each command, as Markdown."""
    lines: list[str] = []
    for name, command in _commands("", command_line.group):
        arguments = [p.metavar or f"[{p.human_readable_name}]" for p in command.params if isinstance(p, click.Argument)]
        lines += ["", f"### schedlang {' '.join([name, *arguments])}", ""]
        for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
            lines += [*textwrap.wrap(" ".join(paragraph.split()), 128, break_on_hyphens=False), ""]
        lines += ["| option | |", "|---|---|"]
        lines += [_option(p) for p in command.params if isinstance(p, click.Option)]
    return "\n".join(lines[1:]) + "\n"


def _commands(before: str, group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """All commands that do something, by the words that one writes."""
    context = click.Context(group, info_name="schedlang")
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(f"{before}{name} ", command)
        else:
            yield before + name, command


def _option(option: click.Option) -> str:
    choices = "\\|".join(option.type.choices) if isinstance(option.type, click.Choice) else ""
    spelling = f"{', '.join([*option.opts, *option.secondary_opts])} {option.metavar or choices}".strip()
    return f"| `{spelling}` | {option.help or ''}{f' Default: {option.default}.' if option.show_default else ''} |"
