"""`use`: other schedules inlined, each expanded once and placed wherever it is used."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from schedlang.diagnostics import Note
from schedlang.expand.declare import LARGEST
from schedlang.expand.frame import Frame, fail, shown_all, shown_at
from schedlang.expand.inlined import Inlined
from schedlang.expand.lists import chosen
from schedlang.expand.parameters import listed
from schedlang.expand.program import did_you_mean
from schedlang.expand.rows import Block, Part
from schedlang.expand.statements import CHAN, MAIN, STREAM, Statements, Where, cell, nested
from schedlang.expand.values import (
    Array,
    Col,
    Interval,
    Items,
    Value,
    as_items,
    is_uniform,
    key,
    lengths_of,
    runs,
    spread,
    take_one,
)
from schedlang.ir.place import Placement, placed_sites
from schedlang.ir.table import NONE, Buffer, OpTable, Use
from schedlang.ir.words import counted, shown
from schedlang.ops import Op
from schedlang.syntax import tree as t


def use(run: Statements, s: t.Use, frame: Frame) -> Part | None:
    """The rows of a `use` over a frame. Raises Fail."""
    frame = run.guarded(s.condition, frame)
    if not frame.n:
        return None
    on: Interval | Items = Interval(0, run.ranks) if s.on is None else run.evaluate.list(s.on, frame, run.module)
    if s.on is not None:
        on = run.evaluate.written(on, s.on.span, frame)
    arguments = _arguments(run, s, frame)
    parts: list[Part] = []
    for group in _alike(frame, [_length(on), *arguments.values()]):
        values = {k: _first(group, v) for k, v in arguments.items()}
        made = _copies(run, s, group, _group_value(group, frame, on), values)
        if made is not None:
            parts.append(made)
    return Block(frame, parts)


def _group_value(group: Frame, frame: Frame, value: Value) -> Any:
    return value if group is frame else group.lifted(value)


def _length(on: Interval | Items) -> int | Col:
    length = lengths_of(on)
    return length if isinstance(length, int) else Col(length)


def _first(group: Frame, value: Value) -> Value:
    """A value that is the same in all turns of a group, as a uniform one."""
    if is_uniform(value):
        return value
    return take_one(value, int(group.index[0]) if group.outer is not None and not group.same else 0)


def _alike(frame: Frame, values: list[Value]) -> list[Frame]:
    """The frame cut into turns in which all values are the same."""
    varying = [v for v in values if not is_uniform(v)]
    if not varying:
        return [frame]
    code = np.zeros(frame.n, np.int64)
    for v in varying:
        if isinstance(v, Col):
            _, inverse = np.unique(v.data, return_inverse=True)
        else:
            seen: dict[Any, int] = {}
            inverse = np.array([seen.setdefault(key(take_one(v, i)), len(seen)) for i in range(frame.n)])
        _, code = np.unique(code * (int(inverse.max()) + 1) + inverse, return_inverse=True)
    first = np.full(int(code.max()) + 1, frame.n)
    np.minimum.at(first, code, np.arange(frame.n))
    return [frame.where(code == g) for g in np.argsort(first).tolist()]


def _arguments(run: Statements, s: t.Use, frame: Frame) -> dict[str, Value]:
    """The arguments by parameter. Passing a matrix on is no look into it: see ``Collective.counts_read``."""
    schedule, _ = run.module.schedule(s.schedule, s.span)
    names = [p.name for p in schedule.params]
    given: dict[str, Value] = {}
    for i, a in enumerate(s.arguments):
        name = a.name
        if name is None:
            if i >= len(names):
                raise fail(
                    "SL206",
                    f"`{s.schedule}` has {counted(len(names), 'parameter')}, and here are "
                    f"{len(s.arguments)}",
                    a.span,
                    frame,
                )
            name = names[i]
        if name not in names:
            raise fail("SL206", f"`{s.schedule}` has no parameter `{name}`", a.span, frame,
                       help=did_you_mean(name, names) or "its parameters are: " + ", ".join(names))
        if name in given:
            raise fail("SL206", f"parameter `{name}` is given twice", a.span, frame)
        reads = frame.reads if isinstance(a.value, t.Name) else None
        before = set(reads) if reads is not None else set()
        given[name] = listed(run.evaluate(a.value, frame, run.module), a.span, frame)
        if reads is not None and isinstance(a.value, t.Name) and a.value.id not in before:
            reads.discard(a.value.id)
    return given


def _is_for(s: t.Use, schedule: t.Schedule, size: Value, q: int, frame: Frame) -> None:
    """Raises Fail SL210 where the `ranks` given to a schedule is not the number of ranks it is used on."""
    if size == q or isinstance(size, bool) or not isinstance(size, int):
        return
    names = [p.name for p in schedule.params]
    a = next(a for i, a in enumerate(s.arguments) if a.name == "ranks" or (a.name is None and names[i] == "ranks"))
    other = next((name for name in names if name != "ranks"), None) if a.name is None else None
    raise fail("SL210", f"by this argument `{s.schedule}` is for {counted(size, 'rank')}, and it is used "
               f"on {q}{_without_on(s)}", a.span, frame,
               help="`ranks` can be left out: it is the number of ranks that it is used on"
               + (f"; another parameter goes by its name, `{other}={a.span.text}`" if other else ""))


def _without_on(s: t.Use) -> str:
    """Reminds of an `on` that may have been forgotten, to follow a number of ranks."""
    return ", all there are, as there is no `on`" if s.on is None else ""


def _copies(run: Statements, s: t.Use, frame: Frame, on: Interval | Items, arguments: dict[str, Value]) -> Part | None:
    """Copies of one table, one a turn."""
    schedule, module = run.module.schedule(s.schedule, s.span)
    on = as_items(on, frame.n)
    size = lengths_of(on)
    q = size if isinstance(size, int) else int(size[0])
    if not q:
        raise fail("SL210", f"`{s.schedule}` is used on no ranks", s.on.span if s.on is not None else s.span, frame)
    if any(p.name == "ranks" for p in schedule.params):
        _is_for(s, schedule, arguments.setdefault("ranks", q), q, frame)
    table = run.expansions.used(schedule, module, arguments, s, frame)
    if table.ranks != q:
        raise fail(
            "SL210",
            f"`{s.schedule}` is for {counted(table.ranks, 'rank')} here, and it is used on {q}{_without_on(s)}",
            s.on.span if s.on is not None else s.span,
            frame,
        )
    ranks = _rank_map(run, s, frame, on, q)
    _fits(run, s, table, frame)
    if table.collective.counts_read:
        run.counts_read = True
    if not len(table):
        return None
    run.count_rows(frame.n * len(table), s.span, frame)
    buffers, offsets, factors = _buffers(run, s, table, frame)
    color, colors = _colors(ranks)
    private = any(b.role == "scratch" for b in table.buffers) or bool(table.events)
    names = [f"{s.schedule}#{run.copies + c + 1}." for c in range(colors)]
    run.copies += colors if private else 0
    most = int(factors.max())
    scratch = np.full((colors, len(table.buffers)), NONE, np.int32)
    for i, b in enumerate(table.buffers):
        if b.role == "scratch":
            if b.chunks * most > LARGEST:
                raise fail(
                    "SL208", f"`{b.name}` of `{s.schedule}` would have {b.chunks * most:,} chunks", s.span, frame
                )
            for c in range(colors):
                scratch[c, i] = len(run.buffers)
                run.buffers.append(Buffer(names[c] + b.name, b.chunks * most, b.place))
                run.index[names[c] + b.name] = len(run.buffers) - 1
    buffers = np.where(buffers == NONE, scratch[color], buffers)
    events = np.array([[run.events.setdefault((prefix + e, i), len(run.events))
                        for e, i in zip(table.events, table.event_indices, strict=True)] for prefix in names],
                      np.int32).reshape(colors, len(table.events))[color]
    site = run.site(s.span, frame)
    run.sites[site] = replace(run.sites[site], use=Use(s.schedule, shown_all(arguments), ranks, on=s.on is not None))
    base = len(run.sites) + np.arange(frame.n) * len(table.sites)
    streams, chans = _streams(run, table, frame)
    by = Placement(
        ranks,
        streams,
        chans,
        buffers.astype(np.int32),
        offsets.astype(np.int32),
        factors.astype(np.int32),
        events,
        base.astype(np.int32),
        site,
    )
    for copy in range(frame.n):
        run.sites += placed_sites(table, by, copy)
    _exist(run, s, table, by, frame)
    return Inlined(frame, table, by)


def _rank_map(run: Statements, s: t.Use, frame: Frame, on: Items, q: int) -> Array:
    """Where each rank of the used schedule lies, a row a turn. Raises Fail SL222, SL210."""
    span = s.on.span if s.on is not None else s.span
    items = spread(on, frame.n)
    assert isinstance(items, Items)
    if not isinstance(items.content, Col) or items.content.data.dtype.kind not in "iu":
        raise fail("SL203", f"`{span.text}` is no list of ranks", span, frame)
    content = items.content
    flat = chosen(content, runs(np.asarray(items.start), np.asarray(items.length)))
    assert isinstance(flat, Col)
    ranks = flat.data.reshape(frame.n, q)
    if s.on is None:
        return ranks.astype(np.int32, copy=False)

    def listed_at(turn: int) -> str:
        text = shown_at(on, turn)
        return "" if text == span.text else f": `{span.text}` is {text}"

    wrong = np.asarray((ranks < 0) | (ranks >= run.ranks))
    if wrong.any():
        bad = np.asarray(wrong.any(1))
        raise fail(
            "SL222",
            lambda i: f"rank {int(ranks[i][wrong[i]][0])} is not among the ranks 0 to {run.ranks - 1}" + listed_at(i),
            span,
            frame,
            bad,
        )
    ordered = np.sort(ranks, 1)
    twice = np.asarray(ordered[:, 1:] == ordered[:, :-1])
    if twice.any():
        raise fail("SL210", lambda i: f"rank {int(ordered[i, 1:][twice[i]][0])} stands twice among the ranks that "
                   f"`{s.schedule}` is used on{listed_at(i)}", span, frame, np.asarray(twice.any(1)))
    return ranks.astype(np.int32, copy=False)


def _fits(run: Statements, s: t.Use, table: OpTable, frame: Frame) -> None:
    outer = run.declared.collective
    assert outer is not None
    if outer.op is None and ((table.op == Op.REDUCE) | (table.op == Op.REDUCE_RECV)).any():
        raise fail("SL210", f"`{s.schedule}` reduces, and {outer.name} has no operator to reduce with", s.span, frame,
                   help="name it: `collective custom(sum)`" if outer.name == "custom" else None)
    if table.collective.name == "barrier" and outer.name != "barrier":
        raise fail(
            "SL210",
            f"`{s.schedule}` is a barrier, which moves no data and has no place in a schedule for {outer.name}",
            s.span,
            frame,
            help="order within a rank is made with `record` and `wait`, between ranks with transfers",
        )


# ---- buffers -------------------------------------------------------------------------------------------------------


def _buffers(run: Statements, s: t.Use, table: OpTable, frame: Frame) -> tuple[Array, Array, Array]:
    """Which buffer each buffer of the table is (NONE: scratch of its own), the chunk it begins at, the scale; a row a
    turn.
    """
    bound = _bindings(run, s, table, frame)
    buffers = np.full((frame.n, len(table.buffers)), NONE, np.int64)
    offsets = np.zeros((frame.n, len(table.buffers)), np.int64)
    factors: Array | None = None
    for i, b in enumerate(table.buffers):
        if b.role == "scratch":
            continue
        where, span = bound[b.name]
        length = np.broadcast_to(np.asarray(cell(where.length), np.int64), (frame.n,))
        buffers[:, i] = where.buffer
        offsets[:, i] = cell(where.start)
        if not b.chunks:
            continue
        bad = (length % b.chunks != 0) | (length == 0)
        if bad.any():
            given = ", ".join(f"{p} = {shown(v)}" for p, v in table.params.items()
                              if p != "ranks" and isinstance(v, int))
            name = f"`{b.name}` of `{s.schedule}`" + (f" with {given}" if given else "")
            there = run.buffers[where.buffer].name
            raise fail("SL210", lambda k, b=b, there=there, name=name, length=length: (  # type: ignore[misc]
                f"the {counted(b.chunks, 'chunk')} of {name} cannot be spread evenly over "
                f"{int(length[k])} of `{there}`"), span, frame, bad, help=f"give it a multiple of {b.chunks} chunks",
                notes=[] if s.on is not None else [
                    Note(f"`{s.schedule}` is used on {counted(run.ranks, 'rank')}{_without_on(s)}")])
        scale = length // b.chunks
        if factors is not None and (scale != factors).any():
            before = factors
            raise fail(
                "SL210",
                lambda k, b=b, scale=scale, before=before: (  # type: ignore[misc]
                    f"a chunk of `{b.name}` would be {int(scale[k])} chunks and a chunk of the other buffer "
                    f"{int(before[k])}; all must be the same"
                ),
                span,
                frame,
                scale != factors,
            )
        factors = scale
    return buffers, offsets, np.ones(frame.n, np.int64) if factors is None else factors


def _bindings(run: Statements, s: t.Use, table: OpTable, frame: Frame) -> dict[str, tuple[Where, Any]]:
    own = [b.name for b in table.buffers if b.role != "scratch"]
    bound: dict[str, tuple[Where, Any]] = {}
    for b in s.bindings:
        inner = b.inner
        if inner is None:
            if own != ["data"]:
                raise fail("SL210", f"`{s.schedule}` works in " + " and ".join(f"`{n}`" for n in own)
                           + ", so the slice must say for which", b.span, frame,
                           help="write `for " + ", ".join(f"{n}={b.outer.span.text}" for n in own[:2]) + "`")
            inner = "data"
        if inner not in own:
            raise fail("SL210", f"`{s.schedule}` has no buffer `{inner}`", b.span, frame, help=did_you_mean(inner, own))
        if inner in bound:
            raise fail("SL210", f"buffer `{inner}` is bound twice", b.span, frame)
        bound[inner] = run.where(b.outer, frame), b.span
    for name in own:
        if name not in bound:
            index = run.index.get(name)
            if index is None:
                raise fail(
                    "SL210",
                    f"`{s.schedule}` works in `{name}`, and there is no such buffer here",
                    s.span,
                    frame,
                    help=f"say where it is: `for {name}=BUFFER[a:b]`",
                )
            whole = t.Loc(s.span, name, t.Int(s.span, 0), None)
            bound[name] = Where(index, 0, run.buffers[index].chunks, whole), s.span
    return bound


def _exist(run: Statements, s: t.Use, table: OpTable, by: Placement, frame: Frame) -> None:
    """Raises Fail SL221 where a copy touches a buffer on a rank that has it not."""
    for i in range(len(table.buffers)):
        touching = np.unique(table.rank[(table.buffer == i) | (table.from_buffer == i)])
        for index in np.unique(by.buffers[:, i]).tolist():
            buffer = run.buffers[index]
            if buffer.only is None:
                continue
            ranks = by.ranks[:, touching]
            wrong = (ranks != buffer.only) & (by.buffers[:, i] == index)[:, None]
            if wrong.any():
                raise fail(
                    "SL221",
                    lambda k, ranks=ranks, wrong=wrong, buffer=buffer: (  # type: ignore[misc]
                        f"`{s.schedule}` uses `{buffer.name}` on rank {int(ranks[k][wrong[k]][0])}; it exists at the "
                        f"root only, which is rank {buffer.only}"
                    ),
                    s.span,
                    frame,
                    wrong.any(1),
                )


def _colors(ranks: Array) -> tuple[Array, int]:
    """A number for each copy so that copies that share a rank differ, and how many numbers there are."""
    n = len(ranks)
    if n == 1 or len(np.unique(ranks)) == ranks.size:
        return np.zeros(n, np.int64), 1
    last = np.zeros(int(ranks.max()) + 1, np.int64)
    color = np.empty(n, np.int64)
    for i in range(n):
        color[i] = last[ranks[i]].max()
        last[ranks[i]] = color[i] + 1
    return color, int(color.max()) + 1


def _streams(run: Statements, table: OpTable, frame: Frame) -> tuple[Array, Array]:
    """What the streams of the table are, as streams and as chans; a row a turn."""
    current, chan = frame.lookup(STREAM), frame.lookup(CHAN)
    assert isinstance(current, (int, Col)) and isinstance(chan, (int, Col))
    now = np.broadcast_to(np.asarray(cell(current)), (frame.n,))
    found, which = np.unique(now, return_inverse=True)
    known = list(run.streams)
    streams = np.array([[index if name == MAIN else run.stream_id(nested(known[index], name)) for name in table.streams]
                        for index in found.tolist()], np.int32)[which]
    chans = streams.copy()
    if MAIN in table.streams:
        i = table.streams.index(MAIN)
        explicit = np.broadcast_to(np.asarray(cell(chan)), (frame.n,))
        chans[:, i] = np.where(explicit == NONE, now, explicit)
    return streams, chans
