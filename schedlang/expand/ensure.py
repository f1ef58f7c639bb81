"""The postcondition of a custom collective, collected from its `ensure` statements."""

from __future__ import annotations

from typing import Any

import numpy as np

from schedlang.expand.frame import Frame, fail
from schedlang.expand.moves import equal_lengths, nonempty
from schedlang.expand.statements import Statements, Where, cell
from schedlang.expand.values import Array, Col, Items, lengths_of, runs, spread
from schedlang.source import Span
from schedlang.syntax import tree as t


def ensure(run: Statements, s: t.Ensure, frame: Frame) -> None:
    """Collects what one statement says. Raises Fail."""
    frame = run.guarded(s.condition, frame)
    if not frame.n:
        return
    what, source = run.where(s.what, frame), run.where(s.value.what, frame)
    rank = run.rank(s.rank, frame)
    equal_lengths(what, [source], frame)
    if run.buffers[source.buffer].role not in ("data", "input"):
        raise fail(
            "SL205",
            f"the right side of an `ensure` speaks of what the ranks begin with; `{source.node.buffer}` begins "
            "with nothing",
            source.node.span,
            frame,
            help="only `input` and `data` have initial values",
        )
    if isinstance(s.value, t.EnsureOne):
        per: int | Array = 1
        ranks = np.broadcast_to(np.asarray(cell(run.rank(s.value.rank, frame))), (frame.n,))
    else:
        per, ranks = _ranks(run, s.value, frame)
    kept, lift = nonempty(what, frame)
    if not kept.n:
        return
    counts = np.broadcast_to(np.asarray(per), (frame.n,))
    if kept is not frame:
        starts = np.cumsum(counts) - counts
        ranks = ranks[runs(starts[kept.index], counts[kept.index])]
        counts = counts[kept.index]
    _add(run, what, source, lift, rank, ranks, counts, kept.n, s.span, frame)


def _ranks(run: Statements, value: t.EnsureMany, frame: Frame) -> tuple[Array, Array]:
    """How many ranks each turn names, and which, turn by turn."""
    listed = run.evaluate.list(value.ranks, frame, run.module)
    items = spread(run.evaluate.written(listed, value.ranks.span, frame), frame.n)
    assert isinstance(items, Items)
    counts = np.broadcast_to(np.asarray(lengths_of(items)), (frame.n,))
    if (counts == 0).any():
        raise fail("SL205", f"the {value.op} over no ranks is no value", value.ranks.span, frame, counts == 0)
    run.evaluate.count_turns(int(counts.sum()), value.ranks.span, frame)
    if not isinstance(items.content, Col) or items.content.data.dtype.kind not in "iu":
        raise fail("SL203", f"`{value.ranks.span.text}` is no list of ranks", value.ranks.span, frame)
    ranks = items.content.data[runs(np.asarray(items.start), counts)]
    turn = np.repeat(np.arange(frame.n), counts)
    for wrong, word in ((ranks < 0) | (ranks >= run.ranks), f"is not among the ranks 0 to {run.ranks - 1}"), \
            (_repeated(turn, ranks, run.ranks), "is named twice"):
        if wrong.any():
            i = int(np.argmax(wrong))
            bad = np.arange(frame.n) == turn[i]
            raise fail("SL222", f"rank {int(ranks[i])} {word}", value.ranks.span, frame, bad)
    return counts, ranks


def _repeated(turn: Array, ranks: Array, n: int) -> Array:
    """Which entries name a rank that its turn has named before."""
    code = turn * n + ranks
    order = np.argsort(code, kind="stable")
    again = np.zeros(len(code), np.bool_)
    again[order[1:]] = code[order[1:]] == code[order[:-1]]
    return again


def _add(
    run: Statements,
    what: Where,
    source: Where,
    lift: Any,
    rank: Any,
    ranks: Array,
    counts: Array,
    n: int,
    span: Span,
    frame: Frame,
) -> None:
    """One entry for each chunk of each turn."""
    lengths = np.broadcast_to(np.asarray(lift(what.length)), (n,)).astype(np.int64)
    total = int(lengths.sum())
    run.count_rows(total, span, frame)
    turn = np.repeat(np.arange(n), lengths)
    along = runs(0, lengths)

    def each(v: Any) -> Array:
        return np.broadcast_to(np.asarray(v), (n,))[turn].astype(np.int64)

    first = np.cumsum(counts) - counts
    chosen = runs(first[turn], counts[turn])
    per = counts[turn]
    source_chunk = np.repeat(each(lift(source.start)) + along, per)
    run.ensures.parts.append((
        np.full(total, what.buffer), each(lift(rank)), each(lift(what.start)) + along, per,
        np.full(len(chosen), source.buffer), ranks[chosen], source_chunk))
    run.ensures.spans.append((span, total))


def check_once(run: Statements) -> None:
    """Raises Fail SL205 where a location is ensured twice."""
    made = run.ensures.made()
    if made is None:
        return
    size = max(b.chunks for b in run.buffers) or 1
    code = (made.buffer.astype(np.int64) * run.ranks + made.rank) * size + made.chunk
    order = np.argsort(code, kind="stable")
    again = np.flatnonzero(code[order[1:]] == code[order[:-1]])
    if len(again):
        i = int(order[again + 1].min())
        where = made.location[i]
        assert where is not None
        buffer = run.buffers[int(made.buffer[i])].name
        raise fail(
            "SL205",
            f"chunk {int(made.chunk[i])} of `{buffer}` on rank {int(made.rank[i])} is ensured twice",
            where,
            run.declared.root,
        )
