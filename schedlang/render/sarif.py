"""Findings in SARIF 2.1.0, the format of OASIS for results of static analysis, which code scanning services read."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from schedlang.codes import CODES, GROUPS
from schedlang.diagnostics import Diagnostic, Note, Severity
from schedlang.render.json import location, plain
from schedlang.render.listed import Listed, relative
from schedlang.render.style import clean
from schedlang.source import SHIPPED, Location, Source, Span, on_disk
from schedlang.version import __version__

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

FINGERPRINT = "schedlangFinding/v1"
"""The key of our fingerprints; another recipe will have another number."""

_ROOT = "%SRCROOT%"
_LIBRARY = "%SCHEDLANG%"
_EXITS = ("clean", "findings", "unusable input")


def document(findings: Iterable[Listed], *, status: int, root: str, sends: str) -> dict[str, Any]:
    """The log of one run of ``schedlang verify``, with the findings in the order given.

    ``status``: the exit status. ``root``: the folder that file names are relative to. A finding without a file, as that
    a path of the command line does not exist, is a notification of the run: a result has to lie in a file.
    """
    findings = list(findings)
    results = [f for f in findings if f.diagnostic.location is not None or f.file is not None]
    rules = sorted({f.diagnostic.code for f in findings})
    severest = {code: max(f.diagnostic.severity for f in findings if f.diagnostic.code == code) for code in rules}
    invocation: dict[str, Any] = {
        "executionSuccessful": status < 2, "exitCode": status, "exitCodeDescription": _EXITS[status]}
    if len(results) < len(findings):
        invocation["toolExecutionNotifications"] = [
            {"associatedRule": {"id": f.diagnostic.code, "index": rules.index(f.diagnostic.code)},
             "level": str(f.diagnostic.severity), "message": {"text": _message(f, root)}}
            for f in findings if f not in results]
    return {
        "$schema": SCHEMA, "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "schedlang", "version": __version__, "semanticVersion": __version__,
                                "rules": [_rule(code, severest[code]) for code in rules]}},
            "columnKind": "unicodeCodePoints",
            "originalUriBaseIds": _bases(results),
            "invocations": [invocation],
            "results": [_result(f, rules.index(f.diagnostic.code), mark, root)
                        for f, mark in zip(results, fingerprints(results), strict=True)],
            "properties": {"sends": sends},
        }],
    }


def _bases(results: Iterable[Listed]) -> dict[str, Any]:
    """What addresses of files are relative to. Where shipped schedules lie is nobody's business."""
    places = [at for f in results for at in (f.at, *(note.location for note in _notes(f))) if at is not None]
    bases = {_ROOT: "The root of the checkout."}
    if any(_shipped(at.file) for at in places) or any(f.file and _shipped(f.file) for f in results if f.at is None):
        bases[_LIBRARY] = "The folder of the schedules that are shipped with schedlang."
    return {name: {"description": {"text": text}} for name, text in bases.items()}


def _shipped(name: str) -> bool:
    return name != on_disk(name)


def _rule(code: str, severest: Severity) -> dict[str, Any]:
    about = CODES[code]
    group = next(title for title, codes in GROUPS.items() if about in codes)
    first = " ".join(about.detail.partition("\n\n")[0].split())
    return {
        "id": code, "name": about.name,
        "shortDescription": {"text": about.summary}, "fullDescription": {"text": first},
        "help": {"text": f"{about.detail}\n\nHow to mend it: {about.mend}",
                 "markdown": f"{about.detail}\n\n**How to mend it**\n\n{about.mend}"},
        "defaultConfiguration": {"level": str(severest)},
        "properties": {"tags": [group]},
    }


def _result(finding: Listed, rule: int, fingerprint: str, root: str) -> dict[str, Any]:
    d = finding.diagnostic
    place: dict[str, Any] = {"physicalLocation": _physical(finding.at, finding.file, root)}
    if finding.schedule is not None:
        place["logicalLocations"] = [{"name": finding.schedule, "kind": "function"}]
    result: dict[str, Any] = {
        "ruleId": d.code, "ruleIndex": rule, "level": str(d.severity),
        "message": {"text": _message(finding, root)}, "locations": [place],
        "partialFingerprints": {FINGERPRINT: fingerprint}, "occurrenceCount": d.count,
    }
    related = [{"id": number, "message": {"text": clean(note.message)},
                "physicalLocation": _physical(note.location, None, root)}
               for number, note in enumerate(_notes(finding), 1) if note.location is not None]
    if related:
        result["relatedLocations"] = related
    properties: dict[str, Any] = {"values": plain(finding.values)} if finding.values else {}
    if finding.values:
        properties |= {"casesAlike": finding.alike, "casesTried": finding.tried}
    if d.witness:
        properties["witness"] = plain(d.witness)
    if properties:
        result["properties"] = properties
    return result


def _notes(finding: Listed) -> list[Note]:
    d = finding.diagnostic
    return [*d.notes, *([Note("found here", d.location)] if finding.user is not None else [])]


def _message(finding: Listed, root: str) -> str:
    """All that is said of a finding. A note that has a place links to it: ``[ring.sched:7](1)``, the location with that
    id."""
    d = finding.diagnostic
    lines = [finding.message, *([finding.case] if finding.case else [])]
    for number, note in enumerate(_notes(finding), 1):
        at = note.location
        link = f" ([{_shown(at.file, root)}:{at.line}]({number}))" if at is not None else ""
        lines.append(f"note: {clean(note.message)}{link}")
    if d.help:
        lines.append(f"help: {clean(d.help)}")
    return "\n".join(lines)


def _shown(file: str, root: str) -> str:
    """A file's name as the text of a link."""
    return clean(relative(file, root) or file).replace("[", "\\[").replace("]", "\\]")


def _physical(at: Location | None, file: str | None, root: str) -> dict[str, Any]:
    """A place in a file; without a location the file."""
    name = at.file if at is not None else file
    assert name is not None
    inside = relative(name, root)
    physical: dict[str, Any] = {"artifactLocation": (
        {"uri": quote(os.fsencode(inside)), "uriBaseId": _ROOT} if inside is not None else
        {"uri": quote(name.removeprefix(SHIPPED)), "uriBaseId": _LIBRARY} if _shipped(name) else
        {"uri": "file:///" + quote(os.fsencode(os.path.abspath(name).replace(os.sep, "/").lstrip("/")))})}
    if at is not None:
        # SARIF counts as we do: lines and columns from 1, and the end is the first column behind the region.
        where = location(at)
        keys = {"startLine": "line", "startColumn": "column", "endLine": "end_line", "endColumn": "end_column"}
        region = {name: where[key] for name, key in keys.items() if where[key] is not None}
        if not isinstance(at, Span) and at.column == 1:
            del region["startColumn"]       # only the line is known
        physical["region"] = region
    return physical


def fingerprints(findings: Sequence[Listed]) -> list[str]:
    """What tells that findings of two runs are the same one: 32 hexadecimal digits each, no two alike in a file.

    Made from the code; the schedule that was verified; the text of the line, its blanks normalised; which of the lines
    with this text it is; how many characters other than blanks stand before the place; and a number for findings that
    are alike in all of this. So it stays where lines are added elsewhere, the file moves, is verified from another
    folder, or for other sizes. Of a line that is known by its number only, as in a JSON table, the number counts; of
    a finding without a place nothing but the code and the schedule.
    """
    earlier: Counter[tuple[str | None, ...]] = Counter()
    texts: dict[Source, list[tuple[str, int]]] = {}
    made = []
    for finding in findings:
        d = finding.diagnostic
        key = (d.code, finding.schedule, *_line(d, texts))
        name = d.location.file if d.location is not None else finding.file
        here = (name and (relative(name, os.sep) or name), *key)        # a file may be named in several ways
        number = earlier[here]
        earlier[here] += 1
        text = "\0".join(str(part) for part in (*key, number))
        made.append(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32])
    return made


def _line(d: Diagnostic, texts: dict[Source, list[tuple[str, int]]]) -> tuple[str, ...]:
    """What a finding's line is known by. ``texts``: of the sources that have been seen, see :func:`_lines`."""
    at = d.location
    if not isinstance(at, Span):
        return (f"line {at.line}",) if at is not None else ()
    source, (number, column) = at.source, at.source.position(at.start)
    if source not in texts:
        texts[source] = _lines(source)
    text, before = texts[source][number - 1]
    return text, str(before), str(len("".join(source.line(number)[:column - 1].split())))


def _lines(source: Source) -> list[tuple[str, int]]:
    """Each line with its blanks normalised, and how many before it read alike."""
    seen: Counter[str] = Counter()
    found = []
    for line in source.text.split("\n"):
        text = " ".join(line.split())
        found.append((text, seen[text]))
        seen[text] += 1
    return found
