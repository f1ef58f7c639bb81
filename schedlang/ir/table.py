"""The op table: a schedule, expanded, as a struct of NumPy arrays. One row an operation; ``id`` = position = row order.

Columns that hold one value throughout may be zero-stride broadcasts (see :func:`constant`): read them like any array,
never write to a table's columns in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from schedlang.diagnostics import Diagnostic
from schedlang.ops import COLLECTIVES, Op
from schedlang.source import Location

Array = np.ndarray[Any, Any]

NONE = -1
"""What an integer column holds where a row has no such thing (no peer, no buffer, no event ...)."""


def constant(value: int, rows: int, dtype: Any = np.int32) -> Array:
    """A column of ``rows`` equal values that takes no memory."""
    return np.broadcast_to(np.array(value, dtype), (rows,))


def chosen(which: Array, start: int = 0) -> Array | slice:
    """The places, counted from ``start``, where ``which`` (bool) holds; a slice where that is all of them or every
    second one, as where sends and receives take turns: columns are then read where they stand, not gathered."""
    size, some = len(which), int(np.count_nonzero(which))
    if some == size:
        return slice(start, start + size)
    if 2 * some == size:
        for first in (0, 1):
            if which[first::2].all():
                return slice(start + first, start + size, 2)
    return np.flatnonzero(which) + start


def spaced(rows: Array) -> Array | slice:
    """The same rows, as a slice where they rise evenly."""
    if len(rows) < 2:
        return rows
    first, last, apart = int(rows[0]), int(rows[-1]), int(rows[1]) - int(rows[0])
    if apart < 1 or last - first != apart * (len(rows) - 1):
        return rows
    for at in range(0, len(rows) - 1, PIECE):
        if not (np.diff(rows[at : at + PIECE + 1]) == apart).all():
            return rows
    return slice(first, last + 1, apart)


PIECE = 1 << 16
"""Rows looked at together: few enough for the caches, so that temporaries cost next to nothing."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer every rank has (or only ``only``: the root's side of gather and scatter).

    ``chunks``: its size in chunks. ``role``: ``data``, ``input``, ``output`` (of the collective; what an `ensure`
    speaks of in `custom` has role ``scratch`` unless it is called data, input or output) or ``scratch``.
    """

    name: str
    chunks: int
    place: str = "device"
    role: str = "scratch"
    only: int | None = None


@dataclass(frozen=True)
class Ensures:
    """The postcondition of a `custom` collective, one entry a location.

    Entry i: chunk ``chunk[i]`` of buffer ``buffer[i]`` on ``rank[i]`` must hold the reduction of the initial values
    ``source_*[starts[i]:starts[i + 1]]`` (one source: that very value).
    """

    buffer: Array
    rank: Array
    chunk: Array
    starts: Array
    source_buffer: Array
    source_rank: Array
    source_chunk: Array
    location: tuple[Location | None, ...] = ()


@dataclass(frozen=True)
class Collective:
    """What a schedule implements: a key of ``ops.COLLECTIVES`` and its arguments.

    ``counts``: int64, (ranks, ranks) for alltoallv, (ranks,) for the other v-collectives. ``counts_read``: the source
    reads the matrix, so a proof holds for this one only.
    """

    name: str
    op: str | None = None
    root: int | None = None
    inplace: bool = True
    counts: Array | None = None
    ensures: Ensures | None = None
    counts_read: bool = False
    location: Location | None = None


@dataclass(frozen=True)
class Use:
    """What a `use` statement brings in: a schedule, its arguments by parameter as one writes them, and where its ranks
    lie: its rank q is, in turn t of the statement, rank ``ranks[t, q]``. ``on``: the statement says so itself.
    """

    schedule: str
    arguments: Mapping[str, str]
    ranks: Array
    on: bool = True


@dataclass(frozen=True)
class Site:
    """A place in the source that made rows, in one evaluation of the loops round it.

    ``names`` are the loop variables from the outermost in; ``values[k]`` is the value of the k-th: an int where it is
    the same in all turns, else an array over the turns. ``parent``: the `use` statement that brought this site in, as
    (site number, turn). ``location`` is None only for rows made by a program without saying where. ``use``: what the
    place brings in, where it is a `use` statement. ``called``: what the source itself calls the place of its rows in
    their rank, where that says more than stream and step: ``block 3, step 5``.
    """

    location: Location | None
    names: tuple[str, ...] = ()
    values: tuple[int | Array, ...] = ()
    parent: tuple[int, int] | None = None
    use: Use | None = None
    called: str | None = None

    def loop_values(self, turn: int) -> dict[str, int]:
        """The values of the loop variables in one turn, outermost first."""
        return {n: int(v) if isinstance(v, (int, np.integer)) else int(v[turn])
                for n, v in zip(self.names, self.values, strict=True)}


class Unlooped(Sequence[Site]):
    """Sites of which none has loop values: those of a format without loops, made one by one when somebody asks."""


@dataclass(frozen=True, slots=True)
class Transport:
    """What a table was written for: ``depth`` messages are in flight on a connection at most (at least 1), and a
    message of several chunks may go as one or in pieces, down to single chunks, each of which then counts. Messages are
    copied on their way: once one has arrived, what was sent may be written, and only then it is stored.

    ``name``: what it is called, as in ``LL``.
    """

    name: str
    depth: int


TRANSPORTS = {t.name: t for t in (Transport("Simple", 2), Transport("LL", 8), Transport("LL128", 8))}
"""The protocols of MSCCL's runtimes."""


@dataclass(frozen=True)
class OpTable:
    """A schedule with values for its parameters, expanded. Row columns (all of one length):

    ======================== ====== ================================================================================
    ``op``                   int8   ``ops.Op``
    ``rank``                 int32  the rank that executes the row
    ``stream``               int32  index into ``streams``; a *lane* is (rank, stream)
    ``step``                 int32  from 0 without gaps in each lane; rows of one (lane, step) are posted together
    ``buffer, chunk, count`` int32  where: what a send reads, what all others write. buffer NONE: a receive that stores
                                    nothing. count >= 1. NONE, 0, 0 for record and wait
    ``peer``                 int32  the other rank of send, recv, reduce_recv; else NONE
    ``chan``                 int32  index into ``streams``: a connection is (source, destination, chan); NONE for others
    ``from_buffer/_chunk``   int32  the source of copy and reduce; the local operand of a reduce_recv (filled in even
                                    where it is the destination itself); else NONE
    ``of``                   int32  on a fused send: the receive (row id) of its step that it passes on; else NONE
                                    A fused send names in buffer/chunk the place its receive stores to (NONE, 0 where it
                                    stores nothing) and is never a read of that place
    ``event``                int32  index into ``events`` for record and wait; else NONE. Events are per rank: the pair
                                    (rank, event) is recorded once
    ``site, turn``           int32  where the row comes from: ``sites[site]`` in its turn ``turn``
    ``number``               int32  or None: the source step the row stands in, counted in source order over all ranks
                                    (a witness for proofs, itself to be checked); None where nothing is known
    ======================== ====== ================================================================================

    ``transport``: what it runs on, where that is known; None: it is to be right on any. ``told``: puts findings about
    its rows in the words of the format that it was read from, or leaves out what is none there; None: they are in the
    words of the language, or of the JSON form.
    """

    name: str
    ranks: int
    params: Mapping[str, Any]
    collective: Collective
    chunks: int
    buffers: tuple[Buffer, ...]
    streams: tuple[str, ...]
    events: tuple[str, ...]
    event_indices: tuple[tuple[int, ...], ...]
    sites: Sequence[Site]

    op: Array
    rank: Array
    stream: Array
    step: Array
    buffer: Array
    chunk: Array
    count: Array
    peer: Array
    chan: Array
    from_buffer: Array
    from_chunk: Array
    of: Array
    event: Array
    site: Array
    turn: Array
    number: Array | None = None
    location: Location | None = field(default=None, compare=False)
    transport: Transport | None = None
    told: Callable[[Iterable[Diagnostic]], Sequence[Diagnostic]] | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.op)

    @property
    def operator(self) -> str | None:
        """What contributions are combined by; `sum` where operations of a custom collective combine and it names none;
        None where nothing is combined."""
        if self.collective.op is not None or not COLLECTIVES[self.collective.name].reduces:
            return self.collective.op
        return "sum" if ((self.op == Op.REDUCE) | (self.op == Op.REDUCE_RECV)).any() else None

    def origin(self, row: int) -> tuple[Location | None, dict[str, int]]:
        """The source place of a row and the values of the loop variables round it, outermost first."""
        site = self.sites[int(self.site[row])]
        return site.location, site.loop_values(int(self.turn[row]))

    def origins(self, row: int) -> Iterator[tuple[Location | None, dict[str, int]]]:
        """As :meth:`origin`, followed by the `use` statements that brought the row in, innermost first."""
        for site, turn in self.turns_round(row):
            yield site.location, site.loop_values(turn)

    def turns_round(self, row: int) -> Iterator[tuple[Site, int]]:
        """The site of a row and its turn, followed by those of the `use` statements that brought it in, innermost
        first."""
        at: tuple[int, int] | None = (int(self.site[row]), int(self.turn[row]))
        while at is not None:
            site = self.sites[at[0]]
            yield site, at[1]
            at = site.parent

    def buffer_index(self, name: str) -> int | None:
        """The index of the buffer called ``name``, or None."""
        return next((i for i, b in enumerate(self.buffers) if b.name == name), None)

    def take(self, rows: Array) -> dict[str, Array]:
        """All columns at the given rows, by name (``number`` left out where there is none)."""
        return {c: getattr(self, c)[rows] for c in COLUMNS if getattr(self, c) is not None}

    def with_columns(self, **columns: Any) -> OpTable:
        """A table like this one with some fields replaced."""
        return replace(self, **columns)


COLUMNS: tuple[str, ...] = ("op", "rank", "stream", "step", "buffer", "chunk", "count", "peer", "chan", "from_buffer",
                            "from_chunk", "of", "event", "site", "turn", "number")
"""The names of the row columns, in order."""

assert set(COLUMNS) <= {f.name for f in fields(OpTable)}

DTYPES: dict[str, Any] = {c: np.int8 if c == "op" else np.int32 for c in COLUMNS}
