"""What a runtime does with MSCCL files, as text, as JSON and as findings for other tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from schedlang.diagnostics import Diagnostic, Severity
from schedlang.ir.words import counted
from schedlang.msccl.asked import Judged
from schedlang.render import json
from schedlang.render.listed import Listed
from schedlang.render.style import Style, one_line
from schedlang.render.terminal import render


def text(judged: Judged, *, full: bool, style: Style, width: int) -> str:
    """The findings, and which file runs for which call. Not ``full``: without notes."""
    shown = [d for d in judged.diagnostics if full or d.severity != Severity.NOTE]
    findings = render(shown, format="full" if full else "concise", color=style.color, width=width) if shown else ""
    return findings + ("\n" if findings and full else "") + "".join(f"{line}\n" for line in _lines(judged, style))


def _lines(judged: Judged, style: Style) -> Iterator[str]:
    files = list(judged.files)
    if not files:
        return
    kept = judged.taken == len(files)
    what, number = _counted(judged, len(files))
    tag = style("ok", "ok") if kept else style("warning", "IN PART") if number else style("error", "REFUSED")
    yield f"{tag}  {style('bold', one_line(judged.asked.text))}: {what}"
    faulty = {id(plan) for plan, found in files if _faulty(found)}
    for answer in judged.answers:
        for choice in answer.choices:
            what = "no file, but the runtime's own algorithm"
            if choice.plan is not None:
                what = choice.plan.source.path + (", and goes wrong" if id(choice.plan) in faulty else "")
            yield f"    {one_line(choice.call)}: {one_line(what)}"


def _faulty(found: Sequence[Diagnostic]) -> bool:
    return any(d.severity == Severity.ERROR for d in found)


def _counted(judged: Judged, files: int) -> tuple[str, int]:
    """In short, and of how many that is. Of a file that another one spares for a call nothing is said, so where a size
    is given calls are counted, and else files."""
    if files == 1:
        return ("runs the file" if judged.taken else "does not run the file"), judged.taken
    faulty = {id(plan) for plan, found in judged.files if _faulty(found)}
    choices = [choice for answer in judged.answers for choice in answer.choices]
    if judged.asked.request.size is not None and choices:
        served = sum(choice.plan is not None and id(choice.plan) not in faulty for choice in choices)
        return f"a file runs for {served:,} of {counted(len(choices), 'kind')} of call", served
    return f"nothing speaks against {judged.taken} of {files} files", judged.taken


def document(judged: Judged) -> dict[str, Any]:
    """The key ``runtime`` of the JSON document of ``schedlang verify``."""
    asked = judged.asked
    return {
        "name": asked.runtime.name, "size": asked.request.size, "dtype": asked.request.dtype,
        "channels": asked.request.channels, "ranks": asked.request.ranks, "inplace": asked.inplace,
        "files": [{"file": plan.source.path, "schedule": plan.name,
                   "ok": not _faulty(found),
                   "diagnostics": [json.diagnostic(d) for d in found]} for plan, found in judged.files],
        "choices": [{"collective": choice.collective, "ranks": choice.ranks, "inplace": choice.inplace,
                     "file": choice.plan.source.path if choice.plan is not None else None}
                    for answer in judged.answers for choice in answer.choices],
        "diagnostics": [json.diagnostic(d) for d in judged.strays],
    }


def findings(judged: Judged) -> Iterator[Listed]:
    """The findings with their files, for formats that list them."""
    for plan, found in judged.files:
        for d in found:
            yield Listed(d, plan.source.path, plan.name, judged.asked.values)
    for d in judged.strays:
        yield Listed(d)
