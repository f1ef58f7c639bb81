"""What each rank says of a call, and whether all say the same. Nothing here needs torch."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from schedlang.diagnostics import Note, SchedError, error
from schedlang.ir.table import NONE, Array

_FORM = struct.Struct("<qqqq16s24s16s16s144s112s")


@dataclass(frozen=True)
class Header:
    """What one rank says of a call. ``sequence``: which call of the group it is. ``root``: NONE where there is none.
    ``elements``: of the collective, NONE where ranks have their own numbers. ``digest``: of the schedule, whose
    ``title`` says it in words. ``refused``: why this rank refused a call by itself since the last one that all
    made; it may be the reason why it is not where others are, but makes no difference by itself."""

    sequence: int
    collective: str
    op: str
    dtype: str
    root: int
    elements: int
    digest: bytes
    title: str
    refused: str = ""

    def pack(self, rank: int) -> bytes:
        """The header of ``rank`` in bytes, always as many."""
        def text(value: str, most: int) -> bytes:
            return value.encode()[:most].decode(errors="ignore").encode()

        return _FORM.pack(rank, self.sequence, self.root, self.elements, self.digest, text(self.collective, 24),
                          text(self.op, 16), text(self.dtype, 16), text(self.title, 144), text(self.refused, 112))

    @staticmethod
    def unpack(data: bytes) -> tuple[int, Header]:
        """The rank and its header."""
        rank, sequence, root, elements, digest, *texts = _FORM.unpack(data)
        collective, op, dtype, title, refused = (text.rstrip(b"\0").decode() for text in texts)
        return rank, Header(sequence, collective, op, dtype, root, elements, digest, title, refused)

    def against(self, other: Header) -> tuple[list[str], list[str]]:
        """In words what this one has, and what the other has instead."""
        names = [f.name for f in fields(self) if getattr(self, f.name) != getattr(other, f.name)
                 and f.name != "refused"]
        if "collective" in names:           # then the rest differs because of it
            names = ["sequence", "collective"] if "sequence" in names else ["collective"]
        if "digest" not in names and "title" in names:
            names.remove("title")           # two names of what does the same
        if "digest" in names and self.title != other.title:
            names.remove("digest")
        return [self._said(name) for name in names], [other._said(name) for name in names]

    def _said(self, name: str) -> str:
        value = getattr(self, name)
        if name == "elements":
            return f"{value} elements"
        if name == "sequence":
            return f"call {value} of the group"
        if name == "title":
            return f"the schedule {value}"
        if name == "digest":
            return f"the schedule {self.title} with the digest {value.hex()}"
        return f"{name} {'none' if value in ('', NONE) else value}"


SIZE = _FORM.size
"""How many bytes a header has."""

EMPTY = b"\0" * SIZE
"""In place of a header where there is none."""


def merged(known: bytes, other: bytes, more: bytes, besides: bytes) -> tuple[bytes, bytes]:
    """Of the headers in two such pairs: that of the lowest rank, and that of the lowest rank that differs from it."""
    there = sorted({h for h in (known, other, more, besides) if h != EMPTY}, key=_rank)
    first = there[0]
    return first, next((h for h in there[1:] if _means(h) != _means(first)), EMPTY)


def _rank(header: bytes) -> int:
    return int.from_bytes(header[:8], "little")


MEANING = (8, struct.calcsize("<qqqq16s24s16s16s"))
"""Where in a header what all ranks must say alike begins and ends."""


def _means(header: bytes) -> bytes:
    """All but the rank, the name of the schedule, whose digest says what it does, and what was refused before."""
    return header[slice(*MEANING)]


def disagreement(known: bytes, other: bytes) -> SchedError:
    """What the headers of two ranks, in bytes, say differently."""
    (a, mine), (b, theirs) = Header.unpack(known), Header.unpack(other)
    has, instead = mine.against(theirs)
    call = f"call {mine.sequence} of the group" if mine.sequence == theirs.sequence else "a call of the group"
    notes = [Note(f"rank {rank} refused a call by itself before: {header.refused}; others may have made it")
             for rank, header in ((a, mine), (b, theirs)) if header.refused]
    return SchedError(error(
        "SL812", f"the ranks do not agree on {call}, {mine.collective}: rank {a} has {', '.join(has)}; rank {b} has "
        f"{', '.join(instead)}", notes=notes, ranks=[a, b],
        help="all ranks make the same calls in the same order, with the same schedule"))


def require_equal(headers: Sequence[Header]) -> None:
    """Raises SchedError (SL812) where not all ranks say the same; ``headers``: of each rank."""
    require_alike([header.pack(rank) for rank, header in enumerate(headers)])


def require_alike(headers: Sequence[bytes]) -> None:
    """As :func:`require_equal`, for headers in bytes."""
    first = _means(headers[0])
    if all(_means(header) == first for header in headers):
        return
    known, other = EMPTY, EMPTY
    for header in headers:
        known, other = merged(known, other, header, EMPTY)
    raise disagreement(known, other)


def require_equal_counts(sent: Array, received: Array, header: Header) -> None:
    """Raises SchedError (SL812) where ``sent[s, d]``, which rank s sends to rank d, is not ``received[s, d]``, which
    rank d expects."""
    wrong = np.argwhere(sent != received)
    if not len(wrong):
        return
    source, target = map(int, wrong[0])
    raise SchedError(error(
        "SL812", f"in call {header.sequence} of the group, {header.collective}, rank {source} sends "
        f"{sent[source, target]} elements to rank {target}, which expects {received[source, target]}",
        help="the input splits of one rank are the output splits of the others", ranks=[source, target],
        count=len(wrong)))
