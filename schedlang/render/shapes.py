"""What a drawing of a schedule consists of, as data: see :mod:`schedlang.render.timeline`. Lengths are pixels, y goes
down, the path of an arrow is SVG path data."""

from __future__ import annotations

from dataclasses import dataclass

CHIP_HEIGHT = 16


@dataclass(frozen=True, slots=True)
class Chip:
    """One or more operations of a lane in one step that read or write the same place.

    ``kind``: ``send``, ``recv``, ``reduce``, ``pass`` (received, passed on and not stored), ``copy`` and ``add``
    (within the rank) or ``stuck`` (waits for ever). ``chunk``: what colours it. ``step``: of the walk; for what is
    stuck the one after the last. x and y: its left end and its middle.
    """

    kind: str
    text: str
    chunk: int
    step: int
    rows: tuple[int, ...]
    x: float
    y: float
    width: float


@dataclass(frozen=True, slots=True)
class Arrow:
    """A message. ``path``: SVG path data, ``tip`` its end and ``back`` whether the head points to the left.

    ``rows``: the send and the receive. A message whose other end is not in the picture is a stub (``rows`` of one)
    without a tip.
    """

    reduces: bool
    chunk: int
    step: int
    rows: tuple[int, ...]
    path: str
    tip: tuple[float, float] | None
    back: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A record (``records``) or a wait; x and y: its middle."""

    records: bool
    row: int
    step: int
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Lane:
    """A stream of a rank."""

    stream: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Band:
    """A rank."""

    rank: int
    y: float
    height: float
    lanes: tuple[Lane, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A step of the walk; ``text`` is its heading."""

    step: int
    text: str
    x: float
    width: float


@dataclass(frozen=True)
class Timeline:
    """The whole drawing, without title and legend. ``links``: records and the waits for them, as (record, wait)."""

    width: float
    height: float
    bands: tuple[Band, ...]
    columns: tuple[Column, ...]
    chips: tuple[Chip, ...]
    arrows: tuple[Arrow, ...]
    marks: tuple[Mark, ...]
    links: tuple[tuple[Mark, Mark], ...]

    @property
    def kinds(self) -> set[str]:
        """The kinds of chips and marks that there are."""
        return {*(chip.kind for chip in self.chips), *("record" if mark.records else "wait" for mark in self.marks)}


def across(x1: float, y1: float, x2: float, y2: float) -> str:
    """From a chip to one on the right of the same column."""
    middle = (x1 + x2) / 2
    return f"M{_at(x1, y1)}" + _curve((middle, y1), (middle, y2), (x2, y2))


def back(start: Chip, end: Chip) -> tuple[str, tuple[float, float]]:
    """From the right end of one chip round to that of another; also where it ends."""
    x1, x2 = start.x + start.width, end.x + end.width
    far = max(x1, x2) + 26
    return f"M{_at(x1, start.y)}" + _curve((far, start.y), (far, end.y), (x2, end.y)), (x2, end.y)


def above(start: tuple[float, float] | None, gap: float, end: Chip, margin: float) -> str:
    """Through the gap above the band of the receiver; from the left edge where the start is not shown."""
    arrive = f"H{end.x - 26:.1f}" + _curve((end.x - 6, gap), (end.x - 22, end.y), (end.x, end.y))
    if start is None:
        return f"M{_at(margin, gap)}{arrive}"
    x, y = start
    return f"M{_at(x, y)}" + _curve((x + 20, y), (x + 4, gap), (x + 26, gap)) + arrive


def stub(start: Chip) -> str:
    """A short line away from a chip."""
    return f"M{_at(start.x + start.width, start.y)}h14"


def _curve(*points: tuple[float, float]) -> str:
    return "C" + " ".join(_at(x, y) for x, y in points)


def _at(x: float, y: float) -> str:
    return f"{x:.1f} {y:.1f}"
