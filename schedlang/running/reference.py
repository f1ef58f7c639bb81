"""What a collective must yield, computed plainly from the inputs, and how far a run may be from it.

Arrays are those of :class:`schedlang.backend.Backend`: NumPy's, one-dimensional, by buffer name and rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from ml_dtypes import finfo

from schedlang.ir.table import Array, OpTable
from schedlang.ops import COLLECTIVES, REDUCE_OPS
from schedlang.running.binding import Bound, bind, ends, starts
from schedlang.running.dtypes import Dtype, accumulator

BLOCK = 1 << 20
"""Elements compared at a time, so that memory stays small."""

UFUNCS: dict[str, Callable[..., Any]] = {
    "sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum,
    "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor,
}


@dataclass(frozen=True, slots=True)
class At:
    """Elements of a rank's array, from ``start`` on."""

    rank: int
    buffer: str
    start: int


@dataclass(frozen=True, slots=True)
class Term:
    """``length`` elements that must equal the reduction of the sources (one source: a copy) at each of the targets."""

    sources: tuple[At, ...]
    targets: tuple[At, ...]
    length: int


@dataclass(frozen=True)
class Comparison:
    """How a run's results compare with the reference.

    ``largest``: the largest absolute error of an element. ``share``: the largest error as a share of its bound (0
    where all are exact). ``wrong``: how many elements exceed their bound. ``worst``: where the worst of them is, with
    its value, the expected one and the bound. ``unjudged``: elements whose partial sums may overflow the dtype, of
    which nothing is said.
    """

    largest: float = 0.0
    share: float = 0.0
    wrong: int = 0
    unjudged: int = 0
    compared: int = 0
    worst: tuple[At, float, float, float] | None = None

    @property
    def ok(self) -> bool:
        """Whether no element is wrong."""
        return self.wrong == 0


def terms(table: OpTable, bound: Bound) -> Iterator[Term]:
    """What the collective demands, for the sizes in ``bound``: of every result element exactly one term speaks."""
    name, n = table.collective.name, table.ranks
    family = COLLECTIVES[name].family
    if family == "custom":
        yield from _ensured(table, bound)
        return
    if family == "barrier":
        return
    before, after = _names(starts(table)), _names(ends(table))
    root = table.collective.root or 0
    everyone = range(n)

    def sources(ranks: Sequence[int], start: int) -> tuple[At, ...]:
        return tuple(At(r, before, start) for r in ranks)

    def targets(ranks: Sequence[int], start: int) -> tuple[At, ...]:
        return tuple(At(r, after, start) for r in ranks)

    if family == "whole":
        yield Term(sources([root] if name == "broadcast" else everyone, 0),
                   targets([root] if name == "reduce" else everyone, 0), bound.elements)
        return
    counts = _counts(table, bound)
    if name.startswith("alltoall"):
        leaves = np.cumsum(counts, axis=1) - counts             # [s, d]: where part d starts in the input of s
        lands = np.cumsum(counts, axis=0) - counts              # [s, d]: where part s starts in the output of d
        for s in everyone:
            for d in everyone:
                yield Term(sources([s], int(leaves[s, d])), targets([d], int(lands[s, d])), int(counts[s, d]))
        return
    for r, (length, start) in enumerate(zip(counts.tolist(), (np.cumsum(counts) - counts).tolist(), strict=True)):
        if name.startswith("reduce_scatter"):
            yield Term(sources(everyone, start), targets([r], 0), length)
        elif name == "scatter":
            yield Term(sources([root], start), targets([r], 0), length)
        else:
            yield Term(sources([r], 0), targets([root] if name == "gather" else everyone, start), length)


def expected(table: OpTable, inputs: Sequence[Mapping[str, Array]], op: str | None = None) -> list[dict[str, Array]]:
    """The results of the collective in the form a back end returns them: floats in float64, other dtypes in themselves,
    wrapping round as they do. What no ``ensure`` of a `custom` collective names is 0.

    Raises SchedError (SL801..803) where the inputs do not fit.
    """
    bound = bind(table, inputs)
    wide = np.dtype(np.float64) if bound.dtype.kind == "f" else bound.dtype.numpy
    return _assembled(table, inputs, bound, op or table.collective.op, wide)


def _assembled(table: OpTable, inputs: Sequence[Mapping[str, Array]], bound: Bound, op: str | None,
               dtype: np.dtype[Any]) -> list[dict[str, Array]]:
    outputs: list[dict[str, Array]] = [
        {name: np.zeros(int(bound.lengths_of(name, r, chunks).sum()), dtype) for name, chunks in here.items()}
        for r, here in enumerate(ends(table))]
    for term in terms(table, bound):
        if len(term.sources) == 1:
            at = term.sources[0]
            value = inputs[at.rank][at.buffer][at.start : at.start + term.length]
        else:
            value, _ = _reduced(term, inputs, 0, term.length, op, bound.dtype)
        for at in term.targets:
            outputs[at.rank][at.buffer][at.start : at.start + term.length] = value
    return outputs


def compare(table: OpTable, inputs: Sequence[Mapping[str, Array]], outputs: Sequence[Mapping[str, Array]],
            op: str | None = None, accumulate: str | None = None) -> Comparison:
    """Compare the results of a run with the reference, element by element.

    Integers and booleans, and whatever is only moved or compared, must be equal. For the sum of k floats, in whatever
    order, rounded to unit roundoff u at each addition, the error is at most (k - 1) u sum(abs(x)) (Jeannerod and
    Rump, Improved error bounds for inner products in floating-point arithmetic, SIAM J. Matrix Anal. Appl. 34, 2013;
    to first order Higham, Accuracy and Stability of Numerical Algorithms, section 4.2). For a product it is at most g
    abs(prod(x)) with g = (k - 1) u / (1 - (k - 1) u) (Higham, lemma 3.1), and what is lost where a factor falls below
    the normal range. An average rounds once more. The reference's own rounding is allowed for in the same way.
    """
    bound = bind(table, inputs)
    op = op or table.collective.op
    held = accumulator(accumulate, bound.dtype)
    tally = _Tally()
    kind = COLLECTIVES[table.collective.name]
    if kind.family != "custom" and (table.ranks == 1 or not kind.reduces):
        wanted = _assembled(table, inputs, bound, op, bound.dtype.numpy)        # many small copies, compared together
        for r, here in enumerate(wanted):
            for name, array in here.items():
                for start in range(0, len(array), BLOCK):
                    value = array[start : start + BLOCK].astype(np.float64 if bound.dtype.kind == "f" else array.dtype)
                    got = outputs[r][name][start : start + BLOCK]
                    tally.add(At(r, name, start), got, value, np.zeros(len(value)), 0.0, bound.dtype)
        return tally.result()
    for term in terms(table, bound):
        for start in range(0, term.length, BLOCK):
            stop = min(term.length, start + BLOCK)
            value, size = _reduced(term, inputs, start, stop, op, bound.dtype)
            allowed = _allowed(len(term.sources), value, size, op, bound.dtype, held)
            for at in term.targets:
                got = outputs[at.rank][at.buffer][at.start + start : at.start + stop]
                tally.add(At(at.rank, at.buffer, at.start + start), got, value, size, allowed, bound.dtype)
    return tally.result()


def _reduced(term: Term, inputs: Sequence[Mapping[str, Array]], start: int, stop: int, op: str | None,
             dtype: Dtype) -> tuple[Array, Array]:
    """The reduction of elements ``start..stop`` of a term, and what bounds partial results (sums of absolute values, or
    products of those above 1); for other dtypes than floats the latter is of no account."""
    parts = [inputs[at.rank][at.buffer][at.start + start : at.start + stop] for at in term.sources]
    combine = UFUNCS[op or "sum"]
    wide = np.float64 if dtype.kind == "f" else dtype.numpy
    value = parts[0].astype(wide)
    size = np.abs(value) if dtype.kind == "f" else value
    with np.errstate(all="ignore"):
        if dtype.kind == "f" and op == "prod":
            size = np.maximum(size, 1)
        for part in parts[1:]:
            x = part.astype(wide)
            combine(value, x, out=value)
            if dtype.kind == "f" and op in ("sum", "avg"):
                size += np.abs(x)
            elif dtype.kind == "f" and op == "prod":
                size *= np.maximum(np.abs(x), 1)
        if op is not None and REDUCE_OPS[op].divides:
            value = value / len(parts) if dtype.kind == "f" else _truncated(value, len(parts))
    return value, size


def _truncated(value: Array, by: int) -> Array:
    wide = value.astype(np.uint64 if value.dtype.kind == "u" else np.int64)
    quotient = wide // wide.dtype.type(by)
    if value.dtype.kind == "i":
        quotient += (wide < 0) & (quotient * by != wide)
    return quotient.astype(value.dtype)


def _allowed(k: int, value: Array, size: Array, op: str | None, dtype: Dtype, held: Dtype) -> Array | float:
    """The largest error an element may have."""
    if dtype.kind != "f" or k == 1 or op not in ("sum", "avg", "prod"):
        return 0.0
    least = float(finfo(dtype.numpy).smallest_subnormal)
    each = held.roundoff + 2.0**-53                             # of the run, and of the reference
    last = dtype.roundoff if held != dtype else 0.0             # rounding once from the accumulator
    with np.errstate(all="ignore"):
        if op == "prod":
            small = (k - 1) * each
            share = small / (1 - small) if small < 1 else np.inf
            return np.asarray((share + last * (1 + share)) * np.abs(value) + k * least * size)
        by = k if op == "avg" else 1
        inner = (k - 1) * each * size / by
        again = dtype.roundoff if op == "avg" else last
        return np.asarray(inner + (again + 2.0**-53) * (np.abs(value) + inner) + least)


class _Tally:
    def __init__(self) -> None:
        self.largest = self.share = 0.0
        self.wrong = self.unjudged = self.compared = 0
        self.worst: tuple[At, float, float, float] | None = None
        self._excess = 0.0

    def add(self, at: At, got: Array, value: Array, size: Array, allowed: Array | float, dtype: Dtype) -> None:
        self.compared += len(got)
        if dtype.kind != "f":
            self._exact(at, got, value)
            return
        got = got.astype(np.float64)
        with np.errstate(all="ignore"):
            error = np.abs(got - value)
            same = (got == value) | (np.isnan(got) & np.isnan(value))
            error[same] = 0.0
            open_ = ~same & (size > dtype.largest) & (np.isfinite(value) | ~np.isfinite(got))
            error[open_] = 0.0
            error[np.isnan(error)] = np.inf
            self.unjudged += int(open_.sum())
            over = (error > allowed) | np.isinf(error)
            share = np.where(error > 0, error / np.maximum(allowed, np.finfo(float).tiny), 0.0)
            share[np.isinf(error)] = np.inf
        if not len(error):
            return
        self.largest = max(self.largest, float(error.max()))
        self.share = max(self.share, float(share.max()))
        self.wrong += int(over.sum())
        self._note(at, share, over, got, value, allowed)

    def _exact(self, at: At, got: Array, value: Array) -> None:
        over = got != value
        if not over.any():
            return
        error = np.abs(got.astype(object) - value.astype(object)) if len(got) <= BLOCK // 16 else np.abs(
            got.astype(np.float64) - value.astype(np.float64))
        self.largest = max(self.largest, float(error.max()))
        self.share = np.inf
        self.wrong += int(over.sum())
        self._note(at, np.where(over, np.inf, 0.0), over, got, value, 0.0)

    def _note(self, at: At, share: Array, over: Array, got: Array, value: Array, allowed: Array | float) -> None:
        if not over.any() or (self.worst is not None and float(share.max()) <= self._excess):
            return
        i = int(share.argmax())
        self._excess = float(share[i])
        limit = float(np.broadcast_to(np.asarray(allowed), share.shape)[i])
        self.worst = At(at.rank, at.buffer, at.start + i), float(got[i]), float(value[i]), limit

    def result(self) -> Comparison:
        return Comparison(self.largest, self.share, self.wrong, self.unjudged, self.compared, self.worst)


def _names(ranges: Sequence[Mapping[str, range]]) -> str:
    return next(name for here in ranges for name in here)


def _counts(table: OpTable, bound: Bound) -> Array:
    """The elements of each block: a list over ranks, or of all-to-all a matrix [source, destination]."""
    if table.collective.counts is not None:
        return np.asarray(table.collective.counts, np.int64)
    n = table.ranks
    block = bound.elements // n
    return np.full((n, n) if table.collective.name == "alltoall" else n, block, np.int64)


def _ensured(table: OpTable, bound: Bound) -> Iterator[Term]:
    ensures = table.collective.ensures
    if ensures is None:
        return
    part = bound.layout.part                                    # in `custom` all chunks have one length
    names = [b.name for b in table.buffers]

    def places(rank: Array, buffer: Array, chunk: Array) -> list[At]:
        columns = (rank.tolist(), buffer.tolist(), chunk.tolist())
        return [At(r, names[b], c * part) for r, b, c in zip(*columns, strict=True)]

    sources = places(ensures.source_rank, ensures.source_buffer, ensures.source_chunk)
    targets = places(ensures.rank, ensures.buffer, ensures.chunk)
    for target, (first, last) in zip(targets, pairwise(ensures.starts.tolist()), strict=True):
        yield Term(tuple(sources[first:last]), (target,), part)
