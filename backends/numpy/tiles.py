"""Executing a plan on arrays, tile by tile.

Every move treats all elements of a chunk alike, so the whole schedule can be executed for elements ``x0..x0 + width``
of every chunk before the next ones: memory holds one *tile* of every location, small enough to stay in the
processor's cache where the world is small. Buffers of the caller are read once and results written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from schedlang.backend import Progress
from schedlang.backends.numpy.moves import Plan
from schedlang.backends.numpy.temporaries import spread
from schedlang.ir.table import NONE, Array
from schedlang.running.average import divide

Ufunc = Callable[..., Any]
Instruction = Callable[[], None]

UFUNCS: dict[str, Ufunc] = {
    "sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum,
    "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor,
}
ROUNDING = ("sum", "avg", "prod")
"""The operators whose results need rounding."""

TILE_BYTES = 4 << 20
ROW_BYTES = 32 << 10
"""A tile of all locations has about TILE_BYTES, unless a single move would then have less than ROW_BYTES ..."""
FEW_BYTES = 256
"""... or, where many moves are made by one call, a location less than FEW_BYTES."""
VIEWED_MOVES = 50_000
"""Up to so many moves, and from VIEWED_BYTES each, one call a move is faster than gathering and scattering."""
VIEWED_BYTES = 2048


@dataclass(frozen=True)
class Piece:
    """Consecutive locations and the array whose elements belong there.

    ``array`` (one-dimensional) holds ``lengths[i]`` elements for location ``first + i``, one after another.
    ``divisor``: what to divide results by, one number or one a location.
    """

    first: int
    lengths: Array
    array: Array
    divisor: int | Array | None = None


def execute(plan: Plan, inputs: Sequence[Piece], outputs: Sequence[Piece], moved: Array | None = None, *,
            held: np.dtype[Any], rounded: np.dtype[Any], op: str | None, progress: Progress | None = None) -> None:
    """Run ``plan``: reads the arrays of ``inputs``, fills those of ``outputs``.

    ``moved``: how many elements each move moves; None where every one moves as many as the longest part has. Values are
    held in dtype ``held``; after every operation they are rounded to ``rounded``.
    """
    longest = max((int(p.lengths.max(initial=0)) for p in (*inputs, *outputs)), default=0)
    if longest == 0:
        return
    each = held.itemsize * (float(plan.count.mean()) if len(plan) else 1.0)     # bytes of a move per element of a chunk
    views = len(plan) <= VIEWED_MOVES and longest * each >= VIEWED_BYTES
    fits = TILE_BYTES // (max(1, plan.locations + plan.temporaries) * held.itemsize)
    least = int(ROW_BYTES / each) if views else FEW_BYTES // held.itemsize
    width = max(1, min(longest, max(fits, least)))
    memory = np.zeros((plan.locations + plan.temporaries, width), held)
    combine = _combiner(op, held, rounded)
    program = list(_viewing(plan, memory, combine) if views else _gathering(plan, memory, combine))
    last = moved.tolist() if views and moved is not None else None      # the instructions are one a move
    loads, stores = [_Mover(p, memory) for p in inputs], [_Mover(p, memory) for p in outputs]
    with np.errstate(all="ignore"):             # overflow is a value too; what lies behind a part's end is nobody's
        for start in range(0, longest, width):
            if last is not None and start:
                kept = [k for k, end in enumerate(last) if end > start]
                program, last = [program[k] for k in kept], [last[k] for k in kept]
            for mover in loads:
                mover.load(start)
            for k, instruction in enumerate(program):
                instruction()
                if progress is not None and k % 256 == 255:
                    progress((start + width * k / len(program)) / longest)
            for mover in stores:
                mover.store(start)
            if progress is not None:
                progress(min(1.0, (start + width) / longest))


def _combiner(op: str | None, held: np.dtype[Any], rounded: np.dtype[Any]) -> Callable[[Array, Array, Array], None]:
    """``combine(a, b, out)`` for an operator."""
    ufunc = UFUNCS[op or "sum"]
    if held == rounded or op not in ROUNDING:
        return lambda a, b, out: ufunc(a, b, out=out)
    narrow: dict[tuple[int, ...], Array] = {}

    def combine(a: Array, b: Array, out: Array) -> None:
        ufunc(a, b, out=out)
        short = narrow.get(out.shape)
        if short is None:
            short = narrow[out.shape] = np.empty(out.shape, rounded)
        np.copyto(short, out, casting="unsafe")
        np.copyto(out, short)

    return combine


def _viewing(plan: Plan, memory: Array, combine: Callable[[Array, Array, Array], None]) -> Iterator[Instruction]:
    """One instruction a move, each on views of the memory."""
    def copy(target: Array, source: Array) -> Instruction:
        return lambda: np.copyto(target, source)

    def reduce(target: Array, operand: Array, source: Array) -> Instruction:
        return lambda: combine(operand, source, target)

    moves = zip(plan.target.tolist(), plan.operand.tolist(), plan.source.tolist(), plan.count.tolist(), strict=True)
    for target, operand, source, count in moves:
        to, what = memory[target : target + count], memory[source : source + count]
        yield copy(to, what) if operand == NONE else reduce(to, memory[operand : operand + count], what)


def _gathering(plan: Plan, memory: Array, combine: Callable[[Array, Array, Array], None]) -> Iterator[Instruction]:
    """One instruction for all moves of a group and kind: gather, combine, scatter."""
    target, owner = spread(plan.target, plan.count)
    source, _ = spread(plan.source, plan.count)
    operand, _ = spread(plan.operand, plan.count)
    operand = np.where(plan.operand[owner] == NONE, NONE, operand)
    group = plan.group[owner]
    turn = _turns(group, target)
    key = (group * (int(turn.max(initial=0)) + 1) + turn) * 2 + (operand != NONE)
    if (np.diff(key) < 0).any():
        order = np.argsort(key, kind="stable")
        key, target, source, operand = key[order], target[order], source[order], operand[order]
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(key)) + 1, [len(key)]]).tolist() if len(key) else [0]
    largest = int(np.diff(bounds).max(initial=0))
    left, right = np.empty((largest, memory.shape[1]), memory.dtype), np.empty((largest, memory.shape[1]), memory.dtype)

    def copy(to: Array, what: Array) -> Instruction:
        values = left[: len(to)]

        def move() -> None:
            np.take(memory, what, axis=0, out=values, mode="clip")
            memory[to] = values

        return move

    def reduce(to: Array, with_: Array, what: Array) -> Instruction:
        old, new = left[: len(to)], right[: len(to)]

        def move() -> None:
            np.take(memory, with_, axis=0, out=old, mode="clip")
            np.take(memory, what, axis=0, out=new, mode="clip")
            combine(old, new, old)
            memory[to] = old

        return move

    for a, b in pairwise(bounds):
        yield copy(target[a:b], source[a:b]) if operand[a] == NONE else reduce(target[a:b], operand[a:b], source[a:b])


def _turns(group: Array, target: Array) -> Array:
    """For every move, how many moves of its group before it write the same location."""
    order = np.lexsort((target, group))
    again = (np.diff(group[order], prepend=-1) == 0) & (np.diff(target[order], prepend=-1) == 0)
    if not again.any():
        return np.zeros(len(group), np.int64)
    position = np.arange(len(order))
    turn = np.empty(len(order), np.int64)
    turn[order] = position - np.maximum.accumulate(np.where(again, 0, position))
    return turn


class _Mover:
    """Carries one piece between the caller's array and the memory."""

    def __init__(self, piece: Piece, memory: Array) -> None:
        self.width = memory.shape[1]
        self.divisor = piece.divisor
        self.tile = memory[piece.first : piece.first + len(piece.lengths)]
        self.array = piece.array
        lengths = piece.lengths
        self.mask: Array | None = None
        self.runs: list[tuple[Array, Array]] = []       # (locations, elements), both (parts, length of each)
        starts = np.flatnonzero(np.diff(lengths, prepend=-1)).tolist()
        if len(starts) > 4 and int(lengths.max()) <= self.width:
            self.mask = np.arange(self.width) < lengths[:, None]
            return
        offset = 0
        for a, b in zip(starts, [*starts[1:], len(lengths)], strict=True):
            length = int(lengths[a])
            if length:
                elements = self.array[offset : offset + (b - a) * length].reshape(b - a, length)
                self.runs.append((self.tile[a:b], elements))
                offset += (b - a) * length

    def _pairs(self, start: int) -> Iterator[tuple[Array, Array]]:
        for locations, elements in self.runs:
            stop = min(start + self.width, elements.shape[1])
            if stop > start:
                yield locations[:, : stop - start], elements[:, start:stop]

    def load(self, start: int) -> None:
        if self.mask is not None:
            self.tile[self.mask] = self.array
        for locations, elements in self._pairs(start):
            np.copyto(locations, elements)

    def store(self, start: int) -> None:
        if self.divisor is not None:
            divide(self.tile, self.divisor)
        if self.mask is not None:
            np.copyto(self.array, self.tile[self.mask], casting="unsafe")
        for locations, elements in self._pairs(start):
            np.copyto(elements, locations, casting="unsafe")
