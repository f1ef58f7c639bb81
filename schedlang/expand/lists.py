"""Lists over turns: made, joined, indexed, merged; see :mod:`schedlang.expand.values` for what they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from schedlang.expand.values import (
    EMPTY,
    INT64,
    Array,
    Col,
    Interval,
    Items,
    KindMismatch,
    Value,
    as_items,
    bounds,
    column,
    described,
    fitting,
    is_uniform,
    kind,
    lengths_of,
    runs,
    spread,
    take_one,
)


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
