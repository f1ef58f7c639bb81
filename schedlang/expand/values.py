"""The values of the language, over many loop turns at once.

An expression is evaluated over the n turns of a frame. Its value is *uniform* (the same in every turn: int, bool,
str, or a list that is) or *per turn* (a :class:`Col`, or a list with array bounds). Nothing here knows the tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

INT32 = (-(1 << 31), (1 << 31) - 1)
INT64 = (-(1 << 63), (1 << 63) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Col:
    """One scalar a turn: ``data`` is int32, int64, bool or, for symbols, object.

    ``lo`` and ``hi`` bound the integers from outside (not always tightly): what they prove needs no look at the data.
    """

    data: Array
    lo: int = 0
    hi: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """The integers lo..hi as a list that is not written out; empty where hi <= lo."""

    lo: int | Col
    hi: int | Col


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """A list a turn: elements ``content[start : start + length]``.

    ``start`` and ``length`` are ints where they are the same in every turn. ``content`` holds the elements of all
    lists: a Col, for lists of lists an Items with array starts, None where all lists are empty.
    """

    start: int | Array
    length: int | Array
    content: Col | Items | None


class Poison:
    """What a name is bound to after its definition failed: using it fails without a second finding."""


POISON = Poison()

Scalar = int | bool | str
Value = Scalar | Col | Interval | Items | Poison


class KindMismatch(Exception):
    """Values of two kinds where one kind is needed; ``args`` are their descriptions."""


EMPTY = Items(0, 0, None)


def column(data: Array, lo: int | None = None, hi: int | None = None) -> Col:
    """A column with exact bounds where none are given."""
    if data.dtype.kind not in "iu":
        return Col(data)
    if lo is None or hi is None:
        lo, hi = (int(data.min()), int(data.max())) if len(data) else (0, 0)
    return Col(data, lo, hi)


def fitting(lo: int, hi: int) -> Any:
    """The smallest dtype used for integers in lo..hi (inclusive)."""
    return np.int32 if INT32[0] <= lo and hi <= INT32[1] else np.int64


def bounds(v: int | Col) -> tuple[int, int]:
    """The least and largest value that v can have."""
    return (v.lo, v.hi) if isinstance(v, Col) else (v, v)


def kind(v: Value) -> str:
    """``integer``, ``boolean``, ``name`` (a symbol) or ``list``."""
    if isinstance(v, Col):
        return {"b": "boolean", "O": "name"}.get(v.data.dtype.kind, "integer")
    if isinstance(v, bool):
        return "boolean"
    if isinstance(v, int):
        return "integer"
    return "name" if isinstance(v, str) else "list"


def described(v: Value) -> str:
    """The kind with its article, for messages."""
    word = kind(v)
    return ("an " if word == "integer" else "a ") + word


def is_uniform(v: Value) -> bool:
    """Whether a value is held as one that is the same in every turn."""
    if isinstance(v, Interval):
        return isinstance(v.lo, int) and isinstance(v.hi, int)
    if isinstance(v, Items):
        return isinstance(v.start, int) and isinstance(v.length, int)
    return not isinstance(v, Col)


def at(v: Value, turn: int) -> Any:
    """The value in one turn: int, bool, str or a list of those. Long lists are not for messages: see
    :func:`schedlang.ir.words.shown`."""
    one = take_one(v, turn)
    if isinstance(one, Interval):
        assert isinstance(one.lo, int) and isinstance(one.hi, int)
        return list(range(one.lo, one.hi))
    if isinstance(one, Items):
        return plain(one)
    return one


def plain(v: Items) -> list[Any]:
    """A uniform list as Python lists."""
    if v.content is None:
        return []
    assert isinstance(v.start, int) and isinstance(v.length, int)
    if isinstance(v.content, Col):
        return list(v.content.data[v.start : v.start + v.length].tolist())
    return [plain(one) for one in (take_one(v.content, i) for i in range(v.start, v.start + v.length))
            if isinstance(one, Items)]


# ---- choosing turns ------------------------------------------------------------------------------------------------


def take_one(v: Value, turn: int) -> Value:
    """The value in one turn, as a uniform value."""
    if isinstance(v, Col):
        return v.data[turn] if v.data.dtype.kind == "O" else v.data[turn].item()  # type: ignore[no-any-return]
    if isinstance(v, Interval):
        lo, hi = take_one(v.lo, turn), take_one(v.hi, turn)
        assert isinstance(lo, int) and isinstance(hi, int)
        return Interval(lo, hi)
    if isinstance(v, Items):
        return Items(v.start if isinstance(v.start, int) else int(v.start[turn]),
                     v.length if isinstance(v.length, int) else int(v.length[turn]), v.content)
    return v


def _bound(v: int | Col, index: Array) -> int | Col:
    return Col(v.data[index], v.lo, v.hi) if isinstance(v, Col) else v


def take(v: Value, index: Array) -> Value:
    """The value over the turns ``index`` (of which there are at least two)."""
    if isinstance(v, Col):
        return Col(v.data[index], v.lo, v.hi)
    if isinstance(v, Interval):
        return Interval(_bound(v.lo, index), _bound(v.hi, index))
    if isinstance(v, Items):
        return Items(v.start if isinstance(v.start, int) else v.start[index],
                     v.length if isinstance(v.length, int) else v.length[index], v.content)
    return v


def spread(v: Value, n: int) -> Col | Items:
    """A value over n turns with nothing uniform left at its top: a Col, or Items with array starts and lengths."""
    if isinstance(v, Col):
        return v
    if isinstance(v, bool):
        return Col(np.broadcast_to(np.array(v), (n,)))
    if isinstance(v, int):
        return Col(np.broadcast_to(np.array(v, fitting(v, v)), (n,)), v, v)
    if isinstance(v, str):
        data = np.empty(n, object)
        data[:] = v
        return Col(data)
    v = as_items(v, n)
    return Items(np.broadcast_to(np.asarray(v.start, np.int64), (n,)),
                 np.broadcast_to(np.asarray(v.length, np.int64), (n,)), v.content)


# ---- lists ---------------------------------------------------------------------------------------------------------


def runs(starts: int | Array, lengths: Array) -> Array:
    """The numbers starts[i], starts[i] + 1, ... (lengths[i] of them), one run after the other."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)


def as_items(v: Value, n: int) -> Items:
    """A list written out. The caller has made sure that it is not too long."""
    if isinstance(v, Items):
        return v
    assert isinstance(v, Interval)
    if isinstance(v.lo, int) and isinstance(v.hi, int):
        if v.hi <= v.lo:
            return EMPTY
        return Items(0, v.hi - v.lo, Col(np.arange(v.lo, v.hi, dtype=fitting(v.lo, v.hi)), v.lo, v.hi - 1))
    length = np.broadcast_to(lengths_of(v), (n,))
    lo = v.lo.data.astype(np.int64) if isinstance(v.lo, Col) else v.lo
    start = np.cumsum(length) - length
    return Items(start, length, column(runs(lo, length)))


def lengths_of(v: Interval | Items) -> int | Array:
    """How long the list is: an int, or int64 a turn. Bounds further apart than 2^63 count as 2^62."""
    if isinstance(v, Items):
        return v.length
    if isinstance(v.lo, int) and isinstance(v.hi, int):
        return max(0, v.hi - v.lo)
    (lo0, lo1), (hi0, hi1) = bounds(v.lo), bounds(v.hi)
    lo = v.lo.data.astype(np.int64) if isinstance(v.lo, Col) else np.int64(v.lo)
    hi = v.hi.data.astype(np.int64) if isinstance(v.hi, Col) else np.int64(v.hi)
    if hi1 - lo0 <= INT64[1] and lo1 - hi0 <= INT64[1]:
        return np.asarray(np.maximum(hi - lo, 0))
    far = hi.astype(np.float64) - lo.astype(np.float64)
    return np.where(far > 2.0**61, 1 << 62, np.where(far < 1.0, 0, hi - lo))


def _longest(length: int | Array) -> int:
    return length if isinstance(length, int) else int(length.max(initial=0))


def longest(v: Interval | Items) -> int:
    """The length of the longest list of all turns."""
    return _longest(lengths_of(v))


def key(v: Value) -> Any:
    """A hashable stand-in for a uniform value; equal values have equal keys."""
    if isinstance(v, Interval):
        v = as_items(v, 1)
    if not isinstance(v, Items):
        return (kind(v), v)
    found: list[Any] = ["list"]         # the lengths of the lists of each depth, then what the innermost hold
    start, length = np.atleast_1d(v.start), np.atleast_1d(v.length).astype(np.int64)
    content = v.content
    while True:
        found.append(length.tobytes())
        if not length.any() or content is None:
            return tuple(found)
        index = runs(start, length)
        if isinstance(content, Col):
            data = content.data[index]
            return (*found, kind(content), tuple(data) if kind(content) == "name" else data.astype(np.int64).tobytes())
        start = np.asarray(content.start)[index]
        length = np.asarray(content.length)[index].astype(np.int64)
        content = content.content
