"""The values of the language, over many loop turns at once.

An expression is evaluated over the n turns of a frame. Its value is *uniform* (the same in every turn: int, bool,
str, or a list that is) or *per turn* (a :class:`Col`, or a list with array bounds). Nothing here knows the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def from_plain(value: Any) -> Value:
    """A value from Python ints, bools, strings, (nested) lists and arrays.

    Raises KindMismatch for a list of mixed kinds, TypeError for anything else, OverflowError beyond 64 bits.
    """
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, np.integer)):
        if not INT64[0] <= value <= INT64[1]:
            raise OverflowError(f"{value} is beyond 64 bits")
        return int(value)
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.ndarray):
        value = value.tolist() if value.ndim else [value.item()]
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{type(value).__name__} is no kind of value")
    return items_of([from_plain(v) for v in value], 1)


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


def merge(parts: Sequence[tuple[Array, Value]], n: int) -> Value:
    """One value over n turns from values over parts of them. Raises KindMismatch."""
    values = [v for _, v in parts]
    kinds = {kind(v) for v in values}
    if len(kinds) > 1:
        raise KindMismatch(*(described(v) for v in values[:2]))
    first = values[0]
    if not isinstance(first, (Col, Interval, Items)) and all(type(v) is type(first) and v == first for v in values):
        return first
    if kinds == {"list"}:
        if all(isinstance(v, Interval) for v in values):
            ends = [_merge_columns([(i, getattr(v, end)) for i, v in parts], n) for end in ("lo", "hi")]
            return Interval(ends[0], ends[1])
        lists = [as_items(v, len(i)) for i, v in parts]
        content, offsets = joined([x.content for x in lists])
        start, length = np.zeros(n, np.int64), np.zeros(n, np.int64)
        for (index, _), x, offset in zip(parts, lists, offsets, strict=True):
            start[index], length[index] = np.asarray(x.start) + offset, x.length
        return Items(start, length, content)
    return _merge_columns(parts, n)


def _merge_columns(parts: Sequence[tuple[Array, Any]], n: int) -> Col:
    if any(kind(v) == "name" for _, v in parts):
        data = np.empty(n, object)
    elif kind(parts[0][1]) == "boolean":
        data = np.empty(n, np.bool_)
    else:
        lo, hi = min(bounds(v)[0] for _, v in parts), max(bounds(v)[1] for _, v in parts)
        data = np.empty(n, fitting(lo, hi))
        for index, v in parts:
            data[index] = v.data if isinstance(v, Col) else v
        return Col(data, lo, hi)
    for index, v in parts:
        data[index] = v.data if isinstance(v, Col) else v
    return Col(data)


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


def joined(contents: Sequence[Col | Items | None]) -> tuple[Col | Items | None, list[int]]:
    """Several contents one after the other, and where each begins. Raises KindMismatch."""
    offsets, total, real = [], 0, []
    for c in contents:
        offsets.append(total)
        if c is not None:
            real.append(c)
            total += len(c.data) if isinstance(c, Col) else len(np.atleast_1d(c.start))
    if not real:
        return None, offsets
    if len(real) == 1:
        return real[0], offsets
    kinds = {("list" if isinstance(c, Items) else kind(c)) for c in real}
    if len(kinds) > 1:
        raise KindMismatch(*sorted(kinds))
    if all(c is real[0] for c in real[1:]):
        return real[0], [0] * len(contents)
    if isinstance(real[0], Col):
        cols = [c for c in real if isinstance(c, Col)]
        return Col(np.concatenate([c.data for c in cols]), min(c.lo for c in cols), max(c.hi for c in cols)), offsets
    lists = [c for c in real if isinstance(c, Items)]
    content, inner = joined([c.content for c in lists])
    start = np.concatenate([np.asarray(c.start, np.int64) + o for c, o in zip(lists, inner, strict=True)])
    return Items(start, np.concatenate([np.asarray(c.length, np.int64) for c in lists]), content), offsets


def chosen(content: Col | Items | None, index: Array) -> Col | Items | None:
    """The elements ``index`` of a content."""
    if content is None:
        return None
    if isinstance(content, Col):
        return Col(content.data[index], content.lo, content.hi)
    return Items(np.asarray(content.start)[index], np.asarray(content.length)[index], content.content)


def items_of(values: Sequence[Value], n: int) -> Items:
    """The list ``[v0, v1, ...]`` over n turns. Raises KindMismatch."""
    k = len(values)
    if not k:
        return EMPTY
    kinds = {kind(v) for v in values}
    if len(kinds) > 1:
        a = values[0]
        raise KindMismatch(described(a), described(next(v for v in values if kind(v) != kind(a))))
    if n > 1 and all(is_uniform(v) for v in values):
        n = 1
    columns = [spread(v, n) for v in values]
    if isinstance(columns[0], Col):
        cols = [c for c in columns if isinstance(c, Col)]
        content: Col | Items = Col(
            np.stack([c.data for c in cols], 1).ravel(), min(c.lo for c in cols), max(c.hi for c in cols)
        )
    else:
        lists = [c for c in columns if isinstance(c, Items)]
        inner, offsets = joined([c.content for c in lists])
        starts = np.stack([np.asarray(c.start) + o for c, o in zip(lists, offsets, strict=True)], 1).ravel()
        content = Items(starts, np.stack([np.asarray(c.length) for c in lists], 1).ravel(), inner)
    return Items(0 if n == 1 else np.arange(n) * k, k, content)


def element(v: Interval | Items, index: int | Col) -> Value:
    """The elements at an index known to be inside."""
    if isinstance(v, Interval):
        if isinstance(v.lo, int) and isinstance(index, int):
            return v.lo + index
        lo = v.lo.data.astype(np.int64) if isinstance(v.lo, Col) else v.lo
        return column(np.asarray(lo + (index.data if isinstance(index, Col) else index)))
    where = v.start + (index.data if isinstance(index, Col) else index)
    assert v.content is not None
    if isinstance(where, np.ndarray):
        return chosen(v.content, where) or EMPTY
    return take_one(v.content, where)


def elements(value: Interval | Items, each: int | None, n: int, total: int) -> Value:
    """The elements of the lists of n turns as one value over their ``total`` elements; ``each``: how many every list
    has, None where they differ.
    """
    found: Value | None
    if each is not None:
        one = as_items(value, n)
        if isinstance(one.start, int):
            if total == 1:
                return take_one(one.content or EMPTY, one.start)
            index = np.arange(one.start, one.start + each)
            found = chosen(one.content, index if n == 1 else np.tile(index, n))
        else:
            found = chosen(one.content, (one.start[:, None] + np.arange(each)).ravel())
    else:
        length = np.asarray(lengths_of(value))
        if isinstance(value, Interval):
            lo = value.lo.data.astype(np.int64) if isinstance(value.lo, Col) else value.lo
            found = column(runs(lo, length))
        else:
            found = chosen(value.content, runs(value.start, length))
    assert found is not None
    return take_one(found, 0) if total == 1 else found


def appended(a: Items, b: Items, n: int) -> Items:
    """The list ``a + b`` over n turns. Raises KindMismatch."""
    if is_uniform(a) and is_uniform(b):
        n = 1
    if isinstance(a.length, int) and a.length == 0:
        return b
    if isinstance(b.length, int) and b.length == 0:
        return a
    if n == 1:
        content, _ = joined([_cut(a), _cut(b)])
        assert isinstance(a.length, int) and isinstance(b.length, int)
        return Items(0, a.length + b.length, content)
    content, offsets = joined([a.content, b.content])
    x, y = spread(a, n), spread(b, n)
    assert isinstance(x, Items) and isinstance(y, Items)
    starts = np.stack([np.asarray(x.start) + offsets[0], np.asarray(y.start) + offsets[1]], 1).ravel()
    lengths = np.stack([np.asarray(x.length), np.asarray(y.length)], 1).ravel()
    flat = chosen(content, runs(starts, lengths))
    total = lengths[::2] + lengths[1::2]
    return Items(np.cumsum(total) - total, total, flat)


def _cut(v: Items) -> Col | Items | None:
    """The content of a uniform list, cut down to the list."""
    assert isinstance(v.start, int) and isinstance(v.length, int)
    here = slice(v.start, v.start + v.length)
    if isinstance(v.content, Items):
        return Items(np.asarray(v.content.start)[here], np.asarray(v.content.length)[here], v.content.content)
    return Col(v.content.data[here], v.content.lo, v.content.hi) if v.content is not None else None


def size(v: Items) -> float:
    """How many elements the largest list of all turns has, those of its inner lists included. Inner lists share what
    they hold, so a list that is short to make can be endless to read."""
    return float(_sizes(v).max(initial=0.0))


def _sizes(lists: Items) -> Array:
    start, length = np.asarray(lists.start), np.asarray(lists.length)
    if not isinstance(lists.content, Items):
        return length.astype(np.float64)
    inner = np.concatenate([[0.0], np.cumsum(_sizes(lists.content))])
    return np.asarray(length + inner[start + length] - inner[start])


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
