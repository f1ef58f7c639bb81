"""The findings: what each means and how to mend it."""

from __future__ import annotations

from schedlang.codes import FAULTY, GROUPS


def pages() -> dict[str, str]:
    lines: list[str] = []
    for title, codes in GROUPS.items():
        lines += [f"## {title}", ""]
        for code in codes:
            status = "1, the schedule is faulty" if code.exit == FAULTY else "2, the input cannot be used"
            lines += [f"({code.code})=", f"### {code.code} {code.name}", "",
                      f"*{code.summary}* As an error it ends a command with status {status}.", "",
                      *_paragraphs(code.detail), "**How to mend it.**", "", *_paragraphs(code.mend)]
    return {"findings.md": "\n".join(lines) + "\n"}


def _paragraphs(text: str) -> list[str]:
    """Text with indented examples as Markdown."""
    lines: list[str] = []
    for block in text.split("\n\n"):
        if block.startswith("    "):
            lines += ["```none", *(line[4:] for line in block.split("\n")), "```", ""]
        else:
            lines += [block, ""]
    return lines
