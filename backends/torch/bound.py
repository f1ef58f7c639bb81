"""A plan for one size: elements in place of chunks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from schedlang.backends.torch.plan import Plan
from schedlang.backends.torch.tasks import STAGING, Instruction, Kind, Place
from schedlang.ir.layout import Layout
from schedlang.ir.table import NONE, OpTable
from schedlang.ops import COLLECTIVES
from schedlang.running.binding import ends, index_of
from schedlang.running.executable import divisors

TOKEN = 1
"""A barrier moves no elements, but its messages must go: each has one of the executor's own."""


class Span(NamedTuple):
    """Elements ``start..stop`` of a buffer (its index) or of the staging memory (STAGING)."""

    buffer: int
    start: int
    stop: int


class Step(NamedTuple):
    """As :class:`~.tasks.Instruction`, of elements; fields that a kind does not use hold anything."""

    kind: Kind
    row: int
    target: Span
    source: Span
    operand: Span
    peer: int
    tag: int
    message: int


class Share(NamedTuple):
    """Elements of a result and by how many ranks an average divides them."""

    span: Span
    divisor: int


@dataclass(frozen=True, eq=False)
class Bound:
    """What a rank does for one size. ``sizes``: the elements of each buffer on this rank. ``staging``: the elements
    of the staging memory. ``messages``: how many messages there are. ``results``: what the collective leaves here.
    ``written``: which buffers are written."""

    steps: tuple[Step, ...]
    sizes: tuple[int, ...]
    staging: int
    messages: int
    results: tuple[Share, ...]
    written: frozenset[int]


def bind(plan: Plan, layout: Layout) -> Bound:
    """Raises SchedError (SL802) where, with these sizes, a value would move into a part too short for it."""
    return _Binding(plan, layout).bound()


class _Binding:
    def __init__(self, plan: Plan, layout: Layout) -> None:
        self.plan, self.layout, self.table = plan, layout, layout.table
        self.token = COLLECTIVES[self.table.collective.name].family == "barrier"
        self.even = self.token or _all_equal(layout)
        self.values = None if self.even else plan.execution.values(self.table)
        if self.values is not None:
            self.values.require_fit(layout)
        self.part = TOKEN if self.token else layout.part
        self.slots = np.cumsum([0, *(n * self.part for n in plan.slots)]).tolist()

    def bound(self) -> Bound:
        numbers: dict[tuple[int, int], int] = {}
        steps: list[Step] = []
        for instruction in self.plan.instructions:
            for k, (length, target, source, operand) in enumerate(self._pieces(instruction)):
                message = NONE
                if instruction.message != NONE:
                    message = numbers.setdefault((instruction.message, k), len(numbers))
                steps.append(Step(instruction.kind, instruction.row, _span(instruction.target, target, length),
                                  _span(instruction.source, source, length),
                                  _span(instruction.operand, operand, length), instruction.peer, instruction.tag,
                                  message))
        return Bound(tuple(steps), self._sizes(), self.slots[-1], len(numbers), tuple(self._results()),
                     self.plan.written)

    def _sizes(self) -> tuple[int, ...]:
        if self.token:
            return tuple(b.chunks * TOKEN for b in self.table.buffers)
        return tuple(int(self.layout.count(b)[self.plan.rank]) for b in range(len(self.table.buffers)))

    def _results(self) -> list[Share]:
        """See :attr:`Bound.results`."""
        table, found = self.table, []
        if self.token:
            return []
        for name, chunks in ends(table)[self.plan.rank].items():
            b = index_of(table, name)
            starts = self.layout.starts(b, self.plan.rank).tolist()
            for first, stop, divisor in _shares(table, b, self.plan.rank, chunks):
                found.append(Share(Span(b, starts[first], starts[stop]), divisor))
        return found

    def _pieces(self, x: Instruction) -> list[tuple[int, int, int, int]]:
        """The length, and the start in target, source and operand, of each run of elements that is in one piece in all
        of them; of messages, in the places that the table names at both ends: so both cut alike."""
        count = int(self.table.count[x.row])
        lengths = [self.part] * count
        if self.values is not None:
            lengths = self.values.lengths(self.layout, x.row, count)
        if x.kind in (Kind.COPY, Kind.REDUCE):
            cutting = [self._starts(p, lengths) for p in (x.target, x.source, x.operand) if p is not None]
        else:
            cutting = [self._nominal(row, lengths) for row in (x.row, int(self.plan.execution.partner[x.row]))]
        target, source, operand = (self._starts(p, lengths) for p in (x.target, x.source, x.operand))
        runs: list[list[int]] = []              # [first chunk, elements]
        for k, length in enumerate(lengths):
            if not length:
                continue
            if runs and all(c[k] == c[runs[-1][0]] + runs[-1][1] for c in cutting):
                runs[-1][1] += length
            else:
                runs.append([k, length])
        return [(length, target[k], source[k], operand[k]) for k, length in runs]

    def _starts(self, place: Place | None, lengths: list[int]) -> list[int]:
        """Where each chunk of a place starts; in a slot they lie side by side."""
        if place is None or place.buffer == STAGING:
            first = 0 if place is None else self.slots[place.first]
            return [first + n for n in np.cumsum([0, *lengths[:-1]]).tolist()]
        return self._chunks(place.buffer, self.plan.rank, place.first, place.chunks)

    def _nominal(self, row: int, lengths: list[int]) -> list[int]:
        buffer = int(self.table.buffer[row])
        if buffer == NONE:
            return self._starts(None, lengths)
        return self._chunks(buffer, int(self.table.rank[row]), int(self.table.chunk[row]), len(lengths))

    def _chunks(self, buffer: int, rank: int, chunk: int, count: int) -> list[int]:
        if self.token:
            return list(range(chunk * TOKEN, (chunk + count) * TOKEN, TOKEN))
        starts: list[int] = self.layout.starts(buffer, rank)[chunk : chunk + count].tolist()
        return starts


def _span(place: Place | None, start: int, length: int) -> Span:
    return Span(NONE, 0, 0) if place is None else Span(place.buffer, start, start + length)


def _all_equal(layout: Layout) -> bool:
    """Whether all chunks of all buffers have one length, so that every value has it."""
    for b in range(len(layout.table.buffers)):
        for rank in range(layout.table.ranks) if layout.per_rank else (0,):
            if (np.diff(layout.starts(b, rank)) != layout.part).any():
                return False
    return True


def _shares(table: OpTable, buffer: int, rank: int, chunks: range) -> list[tuple[int, int, int]]:
    """Runs of chunks of a result with one divisor: (first, stop, divisor)."""
    divisor = divisors(table, buffer, rank, chunks)
    cuts = [0, *(np.flatnonzero(np.diff(divisor)) + 1).tolist(), len(divisor)]
    return [(chunks.start + a, chunks.start + b, int(divisor[a])) for a, b in pairwise(cuts)]
