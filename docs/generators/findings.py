"""The findings: a page each, and a table of all."""

from __future__ import annotations

import re

from generators.examples import FOLDER, Part, example
from schedlang.codes import CODES, FAULTY, GROUPS, Code


def pages() -> dict[str, str]:
    """The table, and a page for each code."""
    return {"findings.md": _table(), **{f"findings/{code.code}.md": _page(code) for code in CODES.values()}}


def _table() -> str:
    lines: list[str] = []
    for title, codes in GROUPS.items():
        lines += [f"## {title}", "", "| code | name | |", "|---|---|---|"]
        lines += [f"| {{doc}}`{c.code} <generated/findings/{c.code}>` | `{c.name}` | {c.summary} |" for c in codes]
        lines += [""]
    lines += ["```{toctree}", ":hidden:", "", *(f"generated/findings/{code}" for code in CODES), "```"]
    return "\n".join(lines) + "\n"


def _page(code: Code) -> str:
    parts = example(code.code) if (FOLDER / f"{code.code}.md").exists() else None     # a test demands one
    lines = [f"# {code.code} {code.name}", "", f"*{code.summary}* {_weight(code, parts)}", ""]
    lines += [*_paragraphs(code.detail), "## How to mend it", "", *_paragraphs(code.mend)]
    if parts is not None:
        wrong, mended = parts
        lines += ["## An example", "", wrong.markdown, "", "## The example, mended", "", mended.markdown]
    return "\n".join(lines) + "\n"


def _weight(code: Code, parts: tuple[Part, Part] | None) -> str:
    """What the finding means for a command, by what it is in the example."""
    shown = re.search(rf"(warning|note)\[{code.code}\]", parts[0].runs[-1].output) if parts is not None else None
    if shown is not None:
        return f"It is a {shown[1]}, and leaves the exit status of a command as it is."
    return ("It ends a command with status "
            f"{'1: the schedule is faulty' if code.exit == FAULTY else '2: the input cannot be used'}.")


def _paragraphs(text: str) -> list[str]:
    """Text with indented examples as Markdown."""
    lines: list[str] = []
    for block in text.split("\n\n"):
        if block.startswith("    "):
            code = [line[4:] for line in block.split("\n")]
            lines += [f"```{{code-block}} {_language(code)}", ":force:", "", *code, "```", ""]
        else:
            lines += [block, ""]
    return lines


def _language(code: list[str]) -> str:
    plain = code[0].startswith(("schedlang ", "{")) or any("..." in line for line in code)
    return "none" if plain else "sched"
