"""Transfers, local operations, record and wait: the statements that make rows."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from schedlang.expand.frame import Frame, fail
from schedlang.expand.rows import Rows
from schedlang.expand.statements import RANK, Statements, Where, cell, cell_at
from schedlang.expand.values import Col, bounds
from schedlang.ir.table import NONE
from schedlang.ir.words import counted
from schedlang.ops import Op
from schedlang.source import Span
from schedlang.syntax import tree as t

Move = t.Transfer | t.OwnSend | t.OwnRecv | t.Local | t.EventStmt
Int = int | Col


def move(run: Statements, s: Move, frame: Frame, in_step: bool) -> Rows | None:
    """The rows of one statement over a frame. Raises Fail."""
    frame = run.guarded(s.condition, frame)
    if not frame.n:
        return None
    leaf = Rows(frame, _width(s), own_step=not in_step)
    if _sliced(s):
        if not _fill(run, s, leaf):
            return None
        run.count_rows(leaf.frame.n * leaf.width, s.span, frame)
    else:
        run.count_rows(frame.n * leaf.width, s.span, frame)
        run.later(lambda: _filled(run, s, leaf))
    return leaf


def _filled(run: Statements, s: Move, leaf: Rows) -> None:
    made = _fill(run, s, leaf)
    assert made


def _width(s: Move) -> int:
    """How many rows a statement makes a turn."""
    own = isinstance(s, (t.OwnSend, t.OwnRecv, t.Local, t.EventStmt))
    return (1 if own else 2) + (1 if own else 2) * len(getattr(s, "forwards", ()))


def _sliced(s: Move) -> bool:
    """Whether a statement may make no rows in some turn."""
    return isinstance(s, (t.Transfer, t.Local)) and s.what.stop is not None


def _fill(run: Statements, s: Move, leaf: Rows) -> bool:
    """Works out the rows of a statement; False where there are none. Raises Fail."""
    frame = leaf.frame
    match s:
        case t.Transfer():
            made = _transfer(run, s, frame)
        case t.OwnSend():
            made = _own_send(run, s, frame)
        case t.OwnRecv():
            made = _own_recv(run, s, frame)
        case t.Local():
            made = _local(run, s, frame)
        case _:
            made = frame, [_event(run, s, frame)]
    if made is None:
        return False
    leaf.frame, leaf.rows = made
    leaf.site = run.site(s.span, leaf.frame)
    return True


Made = tuple[Frame, list[dict[str, Any]]] | None


def _transfer(run: Statements, s: t.Transfer, frame: Frame) -> Made:
    what = run.where(s.what, frame)
    places = [run.where(s.into, frame) if s.into is not None else what]
    for f in s.forwards:
        places.append(run.where(f.into, frame) if f.into is not None else places[-1])
    ranks = [run.rank(e, frame) for e in (s.source, s.target, *(f.target for f in s.forwards))]
    spans = [s.target.span, *(f.target.span for f in s.forwards)]
    for source, target, span in zip(ranks, ranks[1:], spans, strict=False):
        _not_self(source, target, span, frame)
    equal_lengths(what, places, frame)
    if s.kind == "reduce":
        _combines(run, s.span, frame)
    _exists(run, what, ranks[0], frame)
    for place, rank, after in zip(places, ranks[1:], [*s.forwards, None], strict=True):
        if not (after is not None and after.only and s.kind == "send"):
            _exists(run, place, rank, frame)
    frame, lift = nonempty(what, frame)
    if not frame.n:
        return None
    stream, chan = run.connection(frame)
    count = lift(what.length)
    common = {"stream": stream, "chan": chan, "count": count}
    ranks_ = [lift(r) for r in ranks]
    rows: list[dict[str, Any]] = [{"op": Op.SEND, "rank": ranks_[0], "peer": ranks_[1], "buffer": what.buffer,
                                   "chunk": lift(what.start), **common}]
    for hop, place in enumerate(places):
        forward = s.forwards[hop] if hop < len(s.forwards) else None
        reduces = s.kind == "reduce" and hop == 0
        stores = forward is None or not forward.only
        start = lift(place.start)
        at = {"buffer": place.buffer, "chunk": start} if stores else {"buffer": NONE, "chunk": 0}
        rows.append({"op": Op.REDUCE_RECV if reduces else Op.RECV, "rank": ranks_[hop + 1], "peer": ranks_[hop],
                     **at, **({"from_buffer": place.buffer, "from_chunk": start} if reduces else {}), **common})
        if forward is not None:
            rows.append(
                {"op": Op.SEND, "rank": ranks_[hop + 1], "peer": ranks_[hop + 2], **at, "of": len(rows) - 1, **common}
            )
    return frame, rows


def _own_send(run: Statements, s: t.OwnSend, frame: Frame) -> Made:
    rank = frame.lookup(RANK)
    assert isinstance(rank, (int, Col))
    what = run.where(s.what, frame)
    target = run.rank(s.target, frame)
    _not_self(rank, target, s.target.span, frame)
    _not_empty(what, frame)
    _exists(run, what, rank, frame)
    stream, chan = run.connection(frame)
    return frame, [
        {
            "op": Op.SEND,
            "rank": cell(rank),
            "peer": cell(target),
            "buffer": what.buffer,
            "chunk": cell(what.start),
            "count": cell(what.length),
            "stream": stream,
            "chan": chan,
        }
    ]


def _own_recv(run: Statements, s: t.OwnRecv, frame: Frame) -> Made:
    rank = frame.lookup(RANK)
    assert isinstance(rank, (int, Col))
    what = run.where(s.what, frame)
    source = run.rank(s.source, frame)
    _not_self(rank, source, s.source.span, frame)
    forward = s.forwards[0] if s.forwards else None
    target = run.rank(forward.target, frame) if forward is not None else 0
    if forward is not None:
        _not_self(rank, target, forward.target.span, frame)
    _not_empty(what, frame)
    into = run.where(s.into, frame) if s.into is not None else what
    equal_lengths(what, [into], frame)
    stores, reduces = forward is None or not forward.only, s.kind == "reduce"
    if reduces:
        _combines(run, s.span, frame)
    if stores or reduces:
        _exists(run, what, rank, frame)
    if into is not what:
        _exists(run, into, rank, frame)
    stream, chan = run.connection(frame)
    common = {"rank": cell(rank), "count": cell(what.length), "stream": stream, "chan": chan,
              "buffer": into.buffer if stores else NONE, "chunk": cell(into.start) if stores else 0}
    operand = {"from_buffer": what.buffer, "from_chunk": cell(what.start)} if reduces else {}
    rows = [{"op": Op.REDUCE_RECV if reduces else Op.RECV, "peer": cell(source), **operand, **common}]
    if forward is not None:
        rows.append({"op": Op.SEND, "peer": cell(target), "of": 0, **common})
    return frame, rows


def _local(run: Statements, s: t.Local, frame: Frame) -> Made:
    what, into = run.where(s.what, frame), run.where(s.into, frame)
    own = s.rank is None
    rank = frame.lookup(RANK) if s.rank is None else run.rank(s.rank, frame)
    assert isinstance(rank, (int, Col))
    equal_lengths(what, [into], frame)
    if own:
        _not_empty(what, frame)
    if s.kind == "reduce":
        _combines(run, s.span, frame)
    for place in (what, into):
        _exists(run, place, rank, frame)
    frame, lift = nonempty(what, frame)
    if not frame.n:
        return None
    stream, _ = run.connection(frame)
    return frame, [{"op": Op.COPY if s.kind == "copy" else Op.REDUCE, "rank": lift(rank), "stream": stream,
                    "buffer": into.buffer, "chunk": lift(into.start), "count": lift(what.length),
                    "from_buffer": what.buffer, "from_chunk": lift(what.start)}]


def _event(run: Statements, s: t.EventStmt, frame: Frame) -> dict[str, Any]:
    rank = frame.lookup(RANK) if s.rank is None else run.rank(s.rank, frame)
    assert isinstance(rank, (int, Col))
    indices = [run.evaluate.integer(e, frame, run.module) for e in s.event.indices] or [0]
    stream, _ = run.connection(frame)
    return {
        "op": Op.RECORD if s.kind == "record" else Op.WAIT,
        "rank": cell(rank),
        "stream": stream,
        "chunk": 0,
        "count": 0,
        "event": _event_ids(run, s.event.name, indices, frame.n),
    }


def _event_ids(run: Statements, name: str, indices: list[Int], n: int) -> Any:
    """The event of each turn, as a cell."""
    ids = run.events
    if all(isinstance(i, int) for i in indices):
        return ids.setdefault((name, tuple(cell(i) for i in indices)), len(ids))
    table = np.stack([np.broadcast_to(np.asarray(cell(i), np.int64), (n,)) for i in indices], 1)
    if table.shape[1] == 1:
        found, which = np.unique(table[:, 0], return_inverse=True)
        found = found[:, None]
    else:
        found, which = np.unique(table, axis=0, return_inverse=True)
    known = np.array([ids.setdefault((name, tuple(index)), len(ids)) for index in found.tolist()], np.int32)
    return known[which.ravel()]


# ---- checks --------------------------------------------------------------------------------------------------------


_NO_TRANSFER = "let the loop, or a trailing `if`, leave this one out; `copy X into Y on r` moves data inside a rank"


def _not_self(source: Int, target: Int, span: Span, frame: Frame) -> None:
    if isinstance(source, int) and isinstance(target, int):
        if source == target:
            raise fail(
                "SL224",
                f"rank {source} sends to itself",
                span,
                frame,
                help=_NO_TRANSFER,
            )
        return
    (a0, a1), (b0, b1) = bounds(source), bounds(target)
    if a1 < b0 or b1 < a0:
        return
    bad = np.asarray(cell(source) == cell(target))
    if bad.any():
        raise fail("SL224", lambda i: f"rank {cell_at(source, i)} sends to itself", span, frame, bad,
                   help=_NO_TRANSFER)


def equal_lengths(what: Where, places: list[Where], frame: Frame) -> None:
    """Raises Fail SL303 where a place has another number of chunks than ``what``."""
    for place in places:
        if place is what or (isinstance(what.length, int) and what.length == place.length):
            continue
        bad = np.broadcast_to(np.asarray(cell(what.length) != cell(place.length)), (frame.n,))
        if bad.any():
            raise fail("SL303", lambda i, place=place: (  # type: ignore[misc]
                f"`{what.node.span.text}` is {counted(cell_at(what.length, i), 'chunk')} and "
                f"`{place.node.span.text}` is {counted(cell_at(place.length, i), 'chunk')}"),
                place.node.span, frame, bad, help="both sides of a move have the same number of chunks")


def _not_empty(what: Where, frame: Frame) -> None:
    if bounds(what.length)[0] <= 0:
        bad = what.length.data == 0 if isinstance(what.length, Col) else None
        if bad is None or bad.any():
            raise fail(
                "SL221",
                f"`{what.node.span.text}` is empty, which a rank's own view does not allow",
                what.node.span,
                frame,
                bad,
                help="leave the operation out with a trailing `if`",
            )


def _combines(run: Statements, span: Span, frame: Frame) -> None:
    collective = run.declared.collective
    if collective is not None and collective.op is None:
        hint = "name it: `collective custom(sum)`" if collective.name == "custom" else "write `send`, or `copy`"
        raise fail(
            "SL204",
            f"`reduce` combines with the operator of the collective, and {collective.name} has none",
            span,
            frame,
            help=hint,
        )


def _exists(run: Statements, place: Where, rank: Int, frame: Frame) -> None:
    """Raises Fail SL221 where a rank has no such buffer."""
    buffer = run.buffers[place.buffer]
    if buffer.only is None:
        return
    bad = np.broadcast_to(np.asarray(cell(rank) != buffer.only) & (np.asarray(cell(place.length)) > 0), (frame.n,))
    if bad.any():
        raise fail(
            "SL221",
            lambda i: (
                f"`{buffer.name}` on rank {cell_at(rank, i)}: it exists at the root only, which is rank {buffer.only}"
            ),
            place.node.span,
            frame,
            bad,
        )


def nonempty(what: Where, frame: Frame) -> tuple[Frame, Any]:
    """The turns in which a slice holds anything, and how to bring a value there as a cell."""
    if isinstance(what.length, int):
        return (frame, cell) if what.length else (Frame(0, frame, index=np.zeros(0, np.int64)), cell)
    if what.length.lo > 0:
        return frame, cell
    mask = what.length.data > 0
    if mask.all():
        return frame, cell
    kept = frame.where(mask)
    return kept, lambda v: cell(cast("Int", kept.lifted(v)))


