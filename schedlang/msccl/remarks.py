"""Notes on what an MSCCL file has that is not part of the format, and is left out."""

from __future__ import annotations

from collections.abc import Sequence

from schedlang.diagnostics import Diagnostic, note
from schedlang.msccl.parse import ALGO, MAY_BE, Elements
from schedlang.msccl.places import attribute_span, shown, tag_span
from schedlang.msccl.written import OPERATORS, instead, near
from schedlang.source import Source

_MOST = 10
"""How many notes there are; one more tells of the rest."""

_HELP = "the runtimes leave it out as well"


def remarks(e: Elements, source: Source) -> tuple[Diagnostic, ...]:
    """The notes (SL615), one a name, in the order in which they stand in the text first."""
    names = [("algo", name, 1, e.algo_at) for name in e.algo if name not in ALGO and name not in MAY_BE]
    for tag, tally in (("gpu", e.gpus), ("tb", e.blocks), ("step", e.steps), ("copy", e.copies)):
        names += [(tag, name, count, at) for name, (count, at) in tally.strange.items()]
    elements = [(tag, outer, count, at) for (tag, outer), (count, at) in e.strange.items()]
    names.sort(key=lambda entry: entry[-1])
    elements.sort(key=lambda entry: entry[-1])

    found = [_attribute(source, *entry, [n for n in MAY_BE if n not in e.algo]) for entry in names[:_MOST]]
    found += [_element(source, *entry) for entry in elements[:_MOST]]
    if "redop" in e.algo and e.algo["redop"] not in OPERATORS:
        at = attribute_span(source, e.algo_at, "redop")
        text = f"redop={shown(e.algo['redop'])} is not an operator of MSCCL, and is left out"
        found.append((at.start, note("SL615", text, at, help=instead(e.algo["redop"], OPERATORS))))
    found.sort(key=lambda entry: entry[0])
    notes = [told for _, told in found[:_MOST]]
    others = len(names) + len(elements) - _MOST
    if others > 0:
        notes.append(note("SL615", f"{others:,} other names are not part of the format either",
                          help="the runtimes leave them out as well"))
    return tuple(notes)


def _attribute(source: Source, tag: str, name: str, count: int, at: int,
               optional: Sequence[str]) -> tuple[int, Diagnostic]:
    place = attribute_span(source, at, name)
    close = near(name, optional, 0.85) if tag == "algo" else None
    text = f"{short(name)} of <{tag}> is not part of the format, and is left out{_times(count)}"
    return place.start, note("SL615", text, place, help=f"did you mean {close}?" if close else _HELP)


def _element(source: Source, tag: str, outer: str, count: int, at: int) -> tuple[int, Diagnostic]:
    text = f"<{tag}> in {outer} is not part of the format, and is left out{_times(count)}"
    return at, note("SL615", text, tag_span(source, at), help=_HELP)


def short(name: str) -> str:
    """A name in a message: not too long, and printable."""
    return name if len(name) <= 40 and name.isprintable() else shown(name)


def _times(count: int) -> str:
    return f" ({count:,} times)" if count > 1 else ""
