"""Which of several files a runtime takes for a call, and what their ranges of sizes leave out or cover twice."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from schedlang.diagnostics import Diagnostic, Note, Severity, error, note, warning
from schedlang.msccl.accept import Request, ends, factor, faults, reasons, size_range, unloaded, usable
from schedlang.msccl.phrases import attribute, range_text
from schedlang.msccl.plan import Plan
from schedlang.msccl.runtimes import Runtime

Range = tuple[int, int | None]

_ALWAYS = ("SL701", "SL702")
"""Reasons that stay what they are where another file is taken; the rest say that a file is for other calls."""


@dataclass(frozen=True)
class Choice:
    """What is run for a call of ``collective`` on ``ranks``, ``inplace`` or not: the file ``plan``, or None: the
    runtime's own algorithm."""

    collective: str
    ranks: int
    inplace: bool
    plan: Plan | None

    @property
    def call(self) -> str:
        """In words."""
        return f"{self.collective} of {self.ranks:,} ranks {'in place' if self.inplace else 'out of place'}"


@dataclass(frozen=True)
class Answer:
    """What a runtime does with files: the findings of each, in its order; where a call was described, what is run."""

    plans: tuple[Plan, ...]
    findings: tuple[tuple[Diagnostic, ...], ...]
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class _File:
    """A file, and what is wrong with it by itself."""

    plan: Plan
    faults: Sequence[Diagnostic]

    @property
    def loaded(self) -> bool:
        return not any(unloaded(fault) for fault in self.faults)


def answer(plans: Sequence[Plan], runtime: Runtime, request: Request, inplace: bool | None,
           stray: str | None = None) -> Answer:
    """Would the runtime take the files, that it is given in this order (see :func:`ordered`)?

    ``stray``: the first file of their folder that is no MSCCL file, at which the reading ends.
    ``inplace``: the calls that are asked about; None: both, as far as the files are for them. All collectives and
    numbers of ranks that there are files for are looked at. Where no file is taken for a call, each says why not; where
    one is, those that it keeps from being taken say so. What no choice of files mends, such as too few channels, is
    said in any case; so is which files are never taken. Where no size is asked about, notes say what the ranges of
    sizes leave out or cover twice.
    """
    files = [_File(plan, faults(plan, runtime)) for plan in plans]
    found = [list(file.faults) for file in files]
    packed = [at for at, file in enumerate(files) if file.plan.source.path.lower().endswith(".gz")]
    if packed:
        found[packed[0]].append(_packed(files[packed[0]].plan, runtime, len(packed)))
    for at, last in _unread(files, runtime, stray):
        found[at].append(_after(files[at].plan, last, runtime))
        files[at] = replace(files[at], faults=found[at])
    loaded = 0
    for at, file in enumerate(files):
        loaded += file.loaded
        if file.loaded and loaded > runtime.files:
            found[at].append(_too_many(file.plan, runtime))
            files[at] = replace(file, faults=found[at])
    choices = []
    for call, members in _calls(files, runtime, request, inplace):
        why = {at: reasons(files[at].plan, runtime, request, call.inplace) for at in members}
        fit = [at for at in members if not why[at] and files[at].loaded]
        if fit:
            call = replace(call, plan=files[fit[0]].plan)
        if request.size is not None:
            choices.append(call)
            for at in fit[1:]:
                found[at].append(_beaten(files[at].plan, files[fit[0]].plan, call, runtime))
        for at in members:
            found[at] += [d for d in why[at] if not fit or d.code in _ALWAYS]
        for at, more in _ranges([(at, files[at].plan) for at in members if files[at].loaded], call, runtime):
            if request.size is None or more.severity != Severity.NOTE:
                found[at].append(more)
    return Answer(tuple(plans), tuple(tuple(_once(these)) for these in found), tuple(choices))


def ordered(paths: Sequence[str], runtime: Runtime) -> list[str]:
    """The files of one folder, or those that are named, in the order in which the runtime reads them: by name, byte for
    byte (older releases: as the file system lists them), or as they are given."""
    if not runtime.folder:
        return list(paths)
    return sorted(paths, key=lambda path: os.fsencode(os.path.basename(path)))


def _calls(files: Sequence[_File], runtime: Runtime, request: Request,
           inplace: bool | None) -> Iterator[tuple[Choice, list[int]]]:
    """The calls that there are files for, and the files of each, in order."""
    members: dict[tuple[str, int], list[int]] = {}
    for at, file in enumerate(files):
        plan = file.plan
        members.setdefault((plan.coll.replace("_", ""), request.ranks or plan.ranks), []).append(at)
    for (collective, ranks), here in members.items():
        ways = [way for way in (True, False) if any(usable(files[at].plan, runtime, way) for at in here)]
        for way in ways if inplace is None else [inplace]:
            # Of those asked for without a word, files that are not for this placement are none.
            yield Choice(collective, ranks, way, None), [
                at for at in here if inplace is not None or usable(files[at].plan, runtime, way)]


def _unread(files: Sequence[_File], runtime: Runtime, stray: str | None) -> Iterator[tuple[int, str]]:
    """The files that are never read, since reading ends at another one, and that one's path."""
    last = None
    for at, file in enumerate(files):
        path = file.plan.source.path
        if last is None and stray is not None and ordered([path, stray], runtime)[0] == stray:
            last = stray
        if last is not None:
            yield at, last
        elif any(map(ends, file.faults)):
            last = path


def _once(found: Sequence[Diagnostic]) -> Iterator[Diagnostic]:
    """Without what is the same for calls in place and out of place."""
    seen = set()
    for d in found:
        key = d.code, d.location and (d.location.file, d.location.line, d.location.column), d.message
        if key not in seen:
            seen.add(key)
            yield d


def _packed(plan: Plan, runtime: Runtime, count: int) -> Diagnostic:
    return note("SL707", f"{runtime.title} reads no compressed files; this is about what is in it", plan.span(plan.at),
                count=count, help="unpack it where the runtime is to find it", runtime=runtime.name)


def _after(plan: Plan, last: str, runtime: Runtime) -> Diagnostic:
    return error("SL707", f"{runtime.title} never reads this file: it stops at {last}, which comes before",
                 plan.span(plan.at), help="mend that one, or take it out of the folder", runtime=runtime.name,
                 last=last, unloaded=True)


def _too_many(plan: Plan, runtime: Runtime) -> Diagnostic:
    return error("SL701", f"{runtime.title} keeps {runtime.files:,} files, and ignores this one and all after it",
                 plan.span(plan.at), help="name those that you need first", runtime=runtime.name, unloaded=True)


def _beaten(plan: Plan, winner: Plan, call: Choice, runtime: Runtime) -> Diagnostic:
    return note("SL708", f"for {call.call} {runtime.title} takes {winner.source.path}, which comes first",
                plan.span(plan.at), notes=[Note("this one is taken", winner.span(winner.at))], runtime=runtime.name,
                winner=winner.source.path)


# ---- ranges of sizes -------------------------------------------------------------------------------------------


def _ranges(members: Sequence[tuple[int, Plan]], call: Choice, runtime: Runtime) -> Iterator[tuple[int, Diagnostic]]:
    """What is to say of files for one call, each with the place of its file: those that are never taken, then overlaps,
    then gaps."""
    known = [(at, plan, sizes) for at, plan in members
             if plan.ranks == call.ranks and usable(plan, runtime, call.inplace)
             and (sizes := size_range(plan, runtime)) is not None and (sizes[1] is None or sizes[0] < sizes[1])]
    for nth, (at, plan, sizes) in enumerate(known):
        twice = [(other, common) for _, other, theirs in known[:nth]
                 if (common := _common(sizes, theirs)) is not None]
        # An earlier file takes all that this one could where its chunks divide this one's.
        instead = [(other, common) for other, common in twice if plan.chunks % other.chunks == 0]
        if instead and not _left(sizes, [common for _, common in instead]):
            first = instead[0][0]
            yield at, warning("SL708", f"{runtime.title} never takes the file for {call.call}: files that come first "
                              f"are for {range_text(*sizes)}, too", attribute(plan, "maxBytes"),
                              notes=[Note("this one comes first", attribute(first, "maxBytes"))],
                              help="narrow the range of one of them, or change the order" + (
                                  ", which is that of their names" if runtime.folder else ""), runtime=runtime.name,
                              winner=first.source.path)
        elif twice:
            other, common = twice[0]
            yield at, note("SL710", f"for {call.call} two files are for {range_text(*common)}: {runtime.title} takes "
                           "the other one, which comes first, wherever its chunks divide the size",
                           attribute(plan, "minBytes"), notes=[Note("the other one", attribute(other, "maxBytes"))],
                           count=len(twice), runtime=runtime.name, low=common[0], end=common[1],
                           other=other.source.path)
    yield from _gaps(known, call, runtime)


def _gaps(known: Sequence[tuple[int, Plan, Range]], call: Choice, runtime: Runtime) -> Iterator[tuple[int, Diagnostic]]:
    """Sizes that lie between those that files are for."""
    end: int | None = None
    last: Plan | None = None
    for at, plan, sizes in sorted(known, key=lambda one: one[2][0]):
        if last is not None and end is None:
            return          # up to any size
        unit = factor(plan)
        if last is not None and end is not None and -(-end // unit) * unit < sizes[0]:
            yield at, note("SL709", f"for {call.call} no file is for {range_text(end, sizes[0])}: {runtime.title} runs "
                           "its own algorithm there, without a word", attribute(plan, "minBytes"),
                           notes=[Note("the sizes below", attribute(last, "maxBytes"))], runtime=runtime.name, low=end,
                           end=sizes[0])
        if last is None or (end is not None and (sizes[1] is None or sizes[1] > end)):
            end, last = sizes[1], plan


def _common(a: Range, b: Range) -> Range | None:
    """What lies in both."""
    low = max(a[0], b[0])
    end = b[1] if a[1] is None else a[1] if b[1] is None else min(a[1], b[1])
    return (low, end) if end is None or low < end else None


def _left(sizes: Range, covered: Sequence[Range]) -> bool:
    """Whether some of a range lies in none of others."""
    low = sizes[0]
    for start, end in sorted(covered, key=lambda one: one[0]):
        if start > low:
            return True
        if end is None:
            return False
        low = max(low, end)
    return sizes[1] is None or low < sizes[1]
