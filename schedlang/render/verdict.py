"""Verdicts as text and as JSON: what holds, for which values, and what does not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from schedlang.diagnostics import Diagnostic, Severity
from schedlang.ir.words import number_text
from schedlang.render import json
from schedlang.render.style import Style, one_line
from schedlang.render.terminal import render, summary
from schedlang.report import Case, Failure, Report

FORMAT, VERSION = "schedlang-verify", 1

MOST_FAILURES = 3
"""Of how many kinds of failure the smallest case is shown."""

MOST_LINES = 3
"""In how many further lines of each, errors are named."""


def text(report: Report, *, full: bool, style: Style, width: int) -> str:
    """One schedule's verdicts: the findings of the smallest case of each kind of failure, or where there is none the
    warnings, each with a line that says what holds; with ``full`` also the facts."""
    return "".join(f"{line}\n" for line in _lines(report, full, style, width))


def _lines(report: Report, full: bool, style: Style, width: int) -> Iterator[str]:
    name = style("bold", one_line(f"{report.file}::{report.schedule}"))

    def findings(shown: Sequence[Diagnostic]) -> Iterator[str]:
        if shown:
            yield render(shown, format="full" if full else "concise", color=style.color, width=width).rstrip("\n")
            if full:
                yield ""

    proved, skipped = report.with_status("ok"), report.with_status("skipped")
    failures = report.failures
    yield from findings([d for d in report.notes if full or d.severity == Severity.WARNING])
    for failure in failures[:MOST_FAILURES]:
        case = failure.smallest
        yield from findings(case.diagnostics)
        tag = style("error", case.status.upper())
        alike, tried = len(failure.cases), len(report.cases) - len(skipped)
        others = f", and {alike - 1} more of {tried} cases" if alike > 1 else (
            f", alone of {tried} cases" if tried > 1 else "")
        if sum(other.smallest.status == case.status for other in failures) > 1:
            others += f" with {' and '.join(case.codes)}"
        values = values_text([case.values])
        yield f"{tag}  {name}{values and f'  {values}'}{others}: {summary(case.diagnostics)}"
        yield from (f"    {line}" for line in _elsewhere(failure))
        if full:
            yield from (f"    {line}" for line in _not_judged(case))
    for failure in failures[MOST_FAILURES:]:
        alike, case = len(failure.cases), failure.smallest
        yield (f"    {' and '.join(case.codes)} besides in {alike} case{'s' * (alike > 1)}, the first with "
               f"{values_text([case.values])}")
    if not failures:
        yield from findings([d for _, d in report.remarks if full or d.severity == Severity.WARNING])
        count = f" ({len(proved)} cases)" if len(proved) > 1 else ""
        yield f"{style('ok', 'ok')}  {name}  {values_text([c.values for c in proved])}{count}".rstrip()
    if report.made_up:
        names = ", ".join(report.made_up)
        yield f"    {names} made up, uneven and with zeros; give yours with -p {report.made_up[0]}=@FILE"
    if report.unused_op is not None:
        yield f"    nothing is reduced, so --op {report.unused_op} changes nothing here"
    yield from (f"    {line}" for line in _skipped(skipped, report.cases))
    largest = report.largest
    if full and largest is not None and not failures:
        if len(proved) > 1:
            yield f"    with {values_text([largest.values])}:"
        yield from (f"    {line}" for line in facts_text(largest.facts))


def _elsewhere(failure: Failure) -> Iterator[str]:
    """Where else the errors of cases that fail alike lie: a line for each line, as far as these are few."""
    here, others = failure.smallest.diagnostics, failure.elsewhere
    files = {d.location.file for d in here if d.location is not None}
    for case, d in others[:MOST_LINES]:
        at = d.location
        assert at is not None
        where = f"line {at.line}" + ("" if {at.file} == files else f" of {one_line(at.file)}")
        yield f"{d.code} also in {where}, first with {values_text([case.values])}"
    if (left := len(others) - MOST_LINES) > 0:
        yield f"and in {left} more line{'s' * (left > 1)}"


def _skipped(skipped: Iterable[Case], cases: Iterable[Case]) -> Iterator[str]:
    """Which cases a `require` excludes: a line for each reason. All of their values are listed where these stand for
    no other case as well, else one case."""
    reasons: dict[str, list[Case]] = {}
    for case in skipped:
        reasons.setdefault(one_line(case.diagnostics[0].message), []).append(case)
    for why, these in reasons.items():
        values = [case.values for case in these]
        span = {name: {repr(v[name]) for v in values if name in v} for name in values[0]}
        inside = sum(all(repr(value) in span.get(name, ()) for name, value in case.values.items()) for case in cases)
        yield (f"skipped {values_text(values)}: {why}" if inside == len(these) else
               f"skipped {len(these)} cases, the first with {values_text(values[:1])}: {why}")


def values_text(cases: Sequence[Mapping[str, Any]]) -> str:
    """The values of some cases: ``ranks 2 to 9, channels 1, 2``. Counts go by their shape."""
    names = dict.fromkeys(name for values in cases for name in values)
    parts = []
    for name in names:
        distinct = list({repr(values[name]): values[name] for values in cases if name in values}.values())
        parts.append(f"{name} {_several(distinct)}")
    return ", ".join(parts)


def _several(values: list[Any]) -> str:
    if len(values) > 2 and all(type(v) is int for v in values):
        values = sorted(values)
        if values == list(range(values[0], values[-1] + 1)):
            return f"{values[0]} to {values[-1]}"
    if len(values) > 1 and all(hasattr(v, "shape") for v in values):
        return f"({len(values)} sets)"
    texts = [_brief(v) for v in values]
    return ", ".join(texts) if len(texts) <= 8 else ", ".join([*texts[:6], "...", texts[-1]])


def _brief(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    shape = getattr(value, "shape", None)
    if shape:
        return f"({' x '.join(map(str, shape))})"
    written = str(value)
    return written if len(written) <= 40 else written[:37] + "..."


def facts_text(facts: Mapping[str, Any]) -> Iterator[str]:
    """What a clean schedule costs and gives, in words, beside what no schedule can go below."""

    def least(name: str, how: str = "") -> str:
        return f" ({how}at least {facts[name]})" if facts.get(name) is not None else ""

    def many(name: str, thing: str) -> str:
        return f"{facts[name]:,} {thing}{'s' * (facts[name] != 1)}"

    if "rounds" in facts:
        yield (f"{many('rounds', 'round')}{least('rounds_bound', 'with one message at a time ')}, "
               f"{many('messages', 'message')} over {many('links', 'link')}")
    if "sent_most" in facts:
        yield (f"sent by a rank: {facts['sent_most']}{least('sent_bound')}; received: {facts['received_most']}"
               f"{least('received_bound')}; over one link: {facts['link_most']}")
        if "n" in facts:
            yield f"n: {facts['n']} on a rank"
    if "transport" in facts:
        yield _depth_text(facts)
    elif facts.get("least_depth"):
        yield f"needs {many('least_depth', 'message')} in flight per connection"
    if facts.get("peak_scratch"):
        yield f"scratch in use on a rank: {many('peak_scratch', 'chunk')}"
    if "nothing_promised" in facts:
        yield "nothing is promised of the results, so none is judged"
    if facts.get("agreement") is not None:
        yield ("all ranks get the same bits" if facts["agreement"] else
               "ranks may get different bits: they add in different orders")
    if "largest_input" in facts:
        held = f", held in {facts['accumulate']} meanwhile" if "accumulate" in facts else ""
        ones = f"; ones give {number_text(facts['ones'])}" if "ones" in facts else ""
        right = "" if facts.get("ones") == facts.get("ones_due") else f" instead of {number_text(facts['ones_due'])}"
        safe = f"inputs up to {number_text(facts['largest_input'])} cannot overflow"
        safe = safe if facts["largest_input"] else "all inputs but 0 can overflow"
        yield f"in {facts['dtype']}{held}: {safe}{ones}{right}"
    elif "dtype" in facts:
        yield f"in {facts['dtype']}: nothing is added up, so nothing overflows or is rounded"
    if facts.get("exact") is False:
        yield f"checked with random fingerprints: a wrong result passes with a probability below {facts['doubt']}"


def _depth_text(facts: Mapping[str, Any]) -> str:
    """How much buffering a schedule needs, beside what the transport it was written for has."""
    least, whole = facts["least_depth"], facts.get("least_depth_whole", facts["least_depth"])
    has = f"{facts['transport']} keeps {facts['transport_depth']} messages in flight per connection"
    enough = f"{whole} {'is' if whole == 1 else 'are'} enough" if whole else "it would go through without buffering"
    most = "at most " if facts.get("least_depth_exact") is False else ""
    return f"{has}; {enough}" + (f", {most}{least} where messages go chunk by chunk" if least != whole else "")


def _not_judged(case: Case) -> Iterator[str]:
    """The proofs that were not made because of what was found, and why."""
    reasons: dict[str, list[str]] = {}
    for proof in case.proofs:
        if proof.state == "not judged" and proof.detail:
            reasons.setdefault(proof.detail, []).append(proof.name)
    for why, names in reasons.items():
        yield f"not judged: {', '.join(names)} ({why})"


def document(reports: Iterable[Report], diagnostics: Iterable[Diagnostic], sends: str) -> dict[str, Any]:
    """The JSON document of ``schedlang verify --format json``."""
    reports, diagnostics = list(reports), list(diagnostics)
    failed = any(d.severity == Severity.ERROR for d in diagnostics)
    return {
        "format": FORMAT, "version": VERSION, "ok": not failed and all(s.ok for s in reports), "sends": sends,
        "schedules": [{
            "file": s.file, "schedule": s.schedule, "ok": s.ok, "status": s.status,
            "cases": [{"values": dict(c.values), "status": c.status, "facts": dict(c.facts),
                       "proofs": [{"name": p.name, "state": p.state, "detail": p.detail} for p in c.proofs],
                       "diagnostics": [json.diagnostic(d) for d in c.diagnostics]} for c in s.cases],
            "diagnostics": [json.diagnostic(d) for d in s.notes],
        } for s in reports],
        "diagnostics": [json.diagnostic(d) for d in diagnostics],
    }
