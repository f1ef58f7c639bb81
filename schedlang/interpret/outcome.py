"""What came of a run: plain data. Rows are row ids of the table; a location is (rank, buffer, chunk)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from schedlang.interpret.conditions import Location
from schedlang.ir.table import Array


@dataclass(frozen=True)
class Blocked:
    """An operation that was begun and can never be done. ``waits_for``: rows, one of which would let it go on (empty:
    there is none). ``reason``: the same in words."""

    row: int
    waits_for: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class Race:
    """Two rows of two lanes that access a location, ``first`` or ``second`` or both writing it, with nothing to order
    them."""

    first: int
    second: int
    location: Location


@dataclass(frozen=True)
class Wrong:
    """A location of the result that ends with something else than it should.

    By numbers: ``expected`` and ``holds`` are arrays (None: uninitialised). By contributions: how often each initial
    location's value is contained, without those that are not.
    """

    location: Location
    expected: Array | Mapping[Location, int]
    holds: Array | Mapping[Location, int] | None


@dataclass(frozen=True)
class Outcome:
    """``finished``: every lane came to its end; where not, ``blocked`` says who waits for whom and the findings are
    those of the part that ran.

    ``outputs``: per rank, by buffer name, what the postcondition names (see :meth:`schedlang.backend.Backend.run`).
    ``unmatched``: rows of sends and receives that have no partner. ``mismatched``: (send, receive) whose sizes differ
    in chunks. ``misfits``: (row, location) where a value came to a shorter part, or values of two lengths were
    reduced. ``uninitialised``: (row, location) read before anything was written there. ``conflicts``: (first row,
    second row, location) where a step writes a location twice, not only by reductions. ``ambiguous``: (first row,
    second row) posted at one end of a connection by two lanes in no settled order. ``unordered``: (r, p) where rank r
    can end before rank p has begun (of a barrier). ``agreement``, of a run on contributions where all ranks have one
    result: whether they hold it from one tree of reductions, and so with the same bits.
    """

    sends: str
    finished: bool
    outputs: list[dict[str, Array]]
    blocked: tuple[Blocked, ...] = ()
    unmatched: tuple[int, ...] = ()
    mismatched: tuple[tuple[int, int], ...] = ()
    misfits: tuple[tuple[int, Location], ...] = ()
    uninitialised: tuple[tuple[int, Location], ...] = ()
    conflicts: tuple[tuple[int, int, Location], ...] = ()
    recorded_twice: tuple[int, ...] = ()
    never_recorded: tuple[int, ...] = ()
    ambiguous: tuple[tuple[int, int], ...] = ()
    races: tuple[Race, ...] = ()
    unordered: tuple[tuple[int, int], ...] = ()
    wrong: tuple[Wrong, ...] = ()
    agreement: bool | None = None
    memory: Mapping[Location, Array] = field(default_factory=dict)
    """Everything that was initialised at the end."""

    @property
    def clean(self) -> bool:
        """Whether the run showed nothing wrong."""
        return self.finished and not any((
            self.unmatched, self.mismatched, self.misfits, self.uninitialised, self.conflicts, self.recorded_twice,
            self.never_recorded, self.ambiguous, self.races, self.unordered, self.wrong))
