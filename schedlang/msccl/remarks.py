"""Notes on what an MSCCL file has that is not part of the format, and is left out."""

from __future__ import annotations

from collections.abc import Sequence

from schedlang.diagnostics import Diagnostic, note
from schedlang.msccl.parse import ALGO, MAY_BE, Elements
from schedlang.msccl.places import attribute_span, shown, tag_span
from schedlang.msccl.written import OPERATORS, instead, near
from schedlang.source import Source, Span

_MOST = 10
"""How many notes there are; one more tells of the rest."""

_HELP = "the runtimes leave it out as well"


def remarks(e: Elements, source: Source) -> tuple[Diagnostic, ...]:
    """The notes (SL615), one a name, in the order in which they stand in the text first."""
    attributes = [("algo", name, 1, e.algo_at) for name in e.algo if name not in ALGO and name not in MAY_BE]
    others = 0
    for tag, tally in (("gpu", e.gpus), ("tb", e.blocks), ("step", e.steps), ("copy", e.copies)):
        strange = tally.strange
        attributes += [(tag, name, count, strange.at[name]) for name, count in strange.count.items()]
        others += strange.others
    attributes.sort(key=lambda entry: entry[-1])
    optional = [name for name in MAY_BE if name not in e.algo]
    found = [_attribute(source, *entry, optional if entry[0] == "algo" else []) for entry in attributes[: _MOST + 1]]
    found += [(at, e.strange.count[name], _left_out(name, e.strange.count[name], tag_span(source, at)))
              for name, at in e.strange.at.items()]
    if "redop" in e.algo and e.algo["redop"] not in OPERATORS:
        place = attribute_span(source, e.algo_at, "redop")
        text = f"redop={shown(e.algo['redop'])} is not an operator of MSCCL, and is left out"
        found.append((place.start, 1, note("SL615", text, place, help=instead(e.algo["redop"], OPERATORS))))
    found.sort(key=lambda entry: entry[0])
    notes = [told for _, _, told in found[:_MOST]]
    others += e.strange.others + sum(entry[2] for entry in attributes[_MOST + 1 :]) + sum(
        count for _, count, _ in found[_MOST:])
    if others:
        notes.append(note("SL615", f"{others:,} more attributes and elements are not part of the format either",
                          help="the runtimes leave them out as well"))
    return tuple(notes)


def _attribute(source: Source, tag: str, name: str, count: int, at: int,
               optional: Sequence[str]) -> tuple[int, int, Diagnostic]:
    place = attribute_span(source, at, name)
    close = near(name, optional, 0.85)
    return place.start, count, _left_out(f"{short(name)} of <{tag}>", count, place,
                                         f"did you mean {close}?" if close else _HELP)


def _left_out(what: str, count: int, place: Span, help: str = _HELP) -> Diagnostic:
    often = f" ({count:,} times)" if count > 1 else ""
    return note("SL615", f"{what} is not part of the format, and is left out{often}", place, help=help)


def short(name: str) -> str:
    """A name in a message: not too long, and printable."""
    return name if len(name) <= 40 and name.isprintable() else shown(name)
