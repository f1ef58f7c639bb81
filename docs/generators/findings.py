"""The findings: a page each, and a table of all."""

from __future__ import annotations

from generators.examples import FOLDER, example
from schedlang.codes import CODES, FAULTY, GROUPS, Code


def pages() -> dict[str, str]:
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
    status = "1: the schedule is faulty" if code.exit == FAULTY else "2: the input cannot be used"
    return "\n".join([
        f"# {code.code} {code.name}", "",
        f"*{code.summary}* As an error it ends a command with status {status}.", "",
        *_paragraphs(code.detail),
        "## How to mend it", "", *_paragraphs(code.mend), *_example(code)]) + "\n"


def _example(code: Code) -> list[str]:
    if not (FOLDER / f"{code.code}.md").exists():       # a test demands one; a page without is better than no pages
        return []
    wrong, mended = example(code.code)
    return ["## An example", "", wrong.markdown, "", "## The example, mended", "", mended.markdown]


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
    if code[0].startswith("{"):
        return "json"
    return "none" if code[0].startswith("schedlang ") or any("..." in line for line in code) else "sched"
