"""Makes the reference pages from the tables of the program; docs/conf.py calls it at every build. The end of
commands.md is made by `pytest tests/unit/test_docs.py --update`."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

import click

from schedlang.cli import main as command_line
from schedlang.codes import FAULTY, GROUPS
from schedlang.ops import BUILTINS, COLLECTIVES, REDUCE_OPS

GENERATED = Path(__file__).parent / "reference" / "generated"


def generate() -> None:
    """Writes all pages; a page that is already right is left alone, so that nothing is built twice."""
    GENERATED.mkdir(parents=True, exist_ok=True)
    for name, text in (("collectives.md", collectives()), ("findings.md", findings())):
        path = GENERATED / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def collectives() -> str:
    lines = ["## Collectives", "", "| collective | meaning |", "|---|---|"]
    for kind in COLLECTIVES.values():
        call = f"{kind.name}({', '.join(kind.arguments)})" if kind.arguments else kind.name
        lines.append(f"| `{call}` | {kind.doc} |")
    lines += ["", "## Operators", "", "| operator | meaning |", "|---|---|"]
    for op in REDUCE_OPS.values():
        lines.append(f"| `{op.name}` | {op.doc}{' (integers only)' if op.integers_only else ''} |")
    lines += ["", "## Built-in functions", "", "| function | value |", "|---|---|"]
    for function in BUILTINS.values():
        arguments = ", ".join("abc"[:function.arity]) + (", ..." if function.variadic else "")
        lines.append(f"| `{function.name}({arguments})` | {function.doc} |")
    return "\n".join(lines) + "\n"


def findings() -> str:
    lines: list[str] = []
    for title, codes in GROUPS.items():
        lines += [f"## {title}", ""]
        for code in codes:
            status = "1, the schedule is faulty" if code.exit == FAULTY else "2, the input cannot be used"
            lines += [f"({code.code})=", f"### {code.code} {code.name}", "",
                      f"*{code.summary}* As an error it ends a command with status {status}.", "",
                      *_paragraphs(code.detail), "**How to mend it.**", "", *_paragraphs(code.mend)]
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> list[str]:
    """Text with indented examples as Markdown."""
    lines: list[str] = []
    for block in text.split("\n\n"):
        if block.startswith("    "):
            lines += ["```none", *(line[4:] for line in block.split("\n")), "```", ""]
        else:
            lines += [block, ""]
    return lines


def options() -> str:
    """What `--help` says of each command. It stands at the end of commands.md, for readers of a clone; a test compares
    the two."""
    lines: list[str] = []
    parent = click.Context(command_line.group, info_name="schedlang")
    for name in command_line.COMMANDS:
        command = command_line.group.get_command(parent, name)
        assert command is not None
        arguments = [p.metavar or f"[{p.human_readable_name}]" for p in command.params if isinstance(p, click.Argument)]
        lines += ["", f"### schedlang {' '.join([name, *arguments])}", ""]
        for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
            lines += [*textwrap.wrap(" ".join(paragraph.split()), 128, break_on_hyphens=False), ""]
        lines += ["| option | |", "|---|---|"]
        lines += [_option(p) for p in command.params if isinstance(p, click.Option)]
    return "\n".join(lines[1:]) + "\n"


def _option(option: click.Option) -> str:
    choices = "\\|".join(option.type.choices) if isinstance(option.type, click.Choice) else ""
    spelling = f"{', '.join(option.opts)} {option.metavar or choices}".strip()
    return f"| `{spelling}` | {option.help or ''}{f' Default: {option.default}.' if option.show_default else ''} |"


if __name__ == "__main__":
    generate()
