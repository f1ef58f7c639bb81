"""The steps of an MSCCL file as rows of an op table.

A thread block is a lane. A step becomes, each in a lane step of its own: the wait for what it depends on, its
operation, and the record of its end where a block waits for that. What dependencies mean, and why one turn of the
runtime's outer loop stands for all: docs/decisions/0008.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from schedlang.ir.table import COLUMNS, DTYPES, NONE, Array, Buffer, Collective, Site, Unlooped
from schedlang.msccl.plan import Kind, Plan, Space
from schedlang.ops import COLLECTIVES, Op

COPIES = "copies"
"""The stream, and the event, of the oldest dialect's copies."""

_OP = {Kind.S: Op.SEND, Kind.R: Op.RECV, Kind.CPY: Op.COPY, Kind.RE: Op.REDUCE, Kind.RCS: Op.RECV,
       Kind.RRC: Op.REDUCE_RECV, Kind.RRS: Op.REDUCE_RECV, Kind.RRCS: Op.REDUCE_RECV}
_FIRST = np.array([_OP.get(kind, NONE) for kind in Kind], np.int8)
"""The row that each kind of step becomes, or the first of its two."""

_FUSED = np.array([kind in (Kind.RCS, Kind.RRS, Kind.RRCS) for kind in Kind])
_FROM = np.array([kind in (Kind.CPY, Kind.RE, Kind.RRC, Kind.RRS, Kind.RRCS) for kind in Kind])
"""Which kinds read a place besides the one they name as theirs."""


@dataclass(frozen=True)
class Places:
    """Where the file's buffers lie: ``buffer[space]`` is the table's buffer, and chunk k of a space on rank r is its
    chunk ``k + r * shift[space]``."""

    buffer: Array
    shift: Array

    @classmethod
    def of(cls, plan: Plan, collective: Collective, chunks: int, buffers: Sequence[Buffer], inplace: bool) -> Places:
        """In place, what a rank has of the short buffer is its own block of the one that there is."""
        at = {b.name: i for i, b in enumerate(buffers)}
        own = [at["data"]] * 2 if inplace else [at["input"], at["output"]]
        shift = np.zeros(len(Space), np.int64)
        long = COLLECTIVES[collective.name].long
        if inplace and long in ("input", "output"):
            shift[Space.OUTPUT if long == "input" else Space.INPUT] = chunks // plan.ranks
        return cls(np.array([*own, at.get("scratch", NONE)], np.int32), shift)

    def at(self, rank: Array, space: Array | int, offset: Array) -> tuple[Array, Array]:
        """Buffer and chunk of places as the file names them."""
        return self.buffer[space], offset + rank * self.shift[space]


def rows(plan: Plan, places: Places) -> dict[str, Any]:
    """The fields of the table that rows make: the columns, streams, events, sites.

    Rows stand block by block, before them the copies; streams are ``tb0`` ..., then ``copies``, then the connections
    by the numbers of their channels. Event ``tb3[5]`` is the end of step 5 of block 3.
    """
    return _Rows(plan, places).fields()


class _Rows:
    """``rank`` (a step each), ``first`` (a block each, and one more): its first step. ``waits``: the steps that depend
    on one; ``ends``: the step whose end each of them waits for; ``lost``: where nothing tells that end, and ``ends``
    is the step that is named. ``held``: the first steps of blocks that copies come before."""

    def __init__(self, plan: Plan, places: Places) -> None:
        self.plan, self.places, self.size = plan, places, len(plan.kind)
        self.rank = plan.block_rank[plan.block]
        self.first = np.searchsorted(plan.block, np.arange(len(plan.block_rank) + 1))
        self.waits = np.flatnonzero(plan.dep_block != NONE)
        self.ends, self.lost = self._awaited()
        self.held = np.zeros(self.size, bool)
        if len(plan.copy_rank):
            begins = self.first[:-1][self.first[:-1] < self.first[1:]]
            self.held[begins] = np.isin(self.rank[begins], plan.copy_rank)

    def _awaited(self) -> tuple[Array, Array]:
        """A wait ends with the first step, from the one named on, that tells its end; -1 names the first, since a flag
        of an earlier turn is too small."""
        plan = self.plan
        block = np.searchsorted(plan.block_rank, self.rank[self.waits]) + plan.dep_block[self.waits]
        tells = np.where(plan.has_dep & (plan.kind != Kind.NOP), np.arange(self.size), self.size)
        following = np.append(np.minimum.accumulate(tells[::-1])[::-1], self.size)
        named = self.first[block] + np.maximum(plan.dep_step[self.waits], 0)
        found = following[named]
        lost = found >= self.first[block + 1]
        return np.where(lost, named, found), lost

    def fields(self) -> dict[str, Any]:
        plan, kind = self.plan, self.plan.kind
        blocks = int(plan.block_id.max(initial=NONE)) + 1
        chans, chan = np.unique(plan.chan, return_inverse=True)
        self.streams = (*(f"tb{k}" for k in range(blocks)), COPIES, *map(str, chans.tolist()))
        self.chan = (chan + (blocks + 1)).astype(np.int32)

        waits, acts, recorded = np.zeros(self.size, bool), kind != Kind.NOP, np.zeros(self.size, bool)
        waits[self.waits] = True
        recorded[self.ends[~self.lost]] = True
        moments = self.held.astype(np.int32) + waits + acts + recorded      # the lane steps that a step becomes
        number = moments + _FUSED[kind]                                     # and its rows
        copies = self._copies(blocks)
        head = len(copies["op"])
        row = np.cumsum(number) - number + head
        step = np.cumsum(moments) - moments
        step -= step[self.first[plan.block]]

        self.columns = {c: np.full(head + int(number.sum()), _NOTHING.get(c, NONE), DTYPES[c]) for c in COLUMNS[:-1]}
        for name, column in self.columns.items():
            column[:head] = copies.get(name, _NOTHING.get(name, NONE))
            if name in ("rank", "stream", "site"):
                own = {"rank": self.rank, "stream": plan.block_id[plan.block], "site": np.arange(self.size)}[name]
                column[head:] = np.repeat(own, number)
        held = np.flatnonzero(self.held)
        last = step + moments - 1
        ends, index = np.unique(self.ends, return_inverse=True)
        events, which = self._events(ends)
        self._put(row[held], op=Op.WAIT, step=step[held], event=len(events))
        self._put((row + self.held)[self.waits], op=Op.WAIT, step=(step + self.held)[self.waits], event=which[index])
        told = np.flatnonzero(recorded)
        self._put((row + number - 1)[told], op=Op.RECORD, step=last[told], event=which[np.searchsorted(ends, told)])
        before = self.held.astype(np.int32) + waits
        self._operations(row + before, step + before)
        return {**self.columns, "streams": self.streams, "sites": Sites(plan),
                "events": (*(f"tb{block}" for block, _ in events), COPIES),
                "event_indices": (*((s,) for _, s in events), (0,))}

    def _put(self, row: Array, **cells: Any) -> None:
        for name, values in cells.items():
            self.columns[name][row] = values

    def _events(self, ends: Array) -> tuple[list[tuple[int, int]], Array]:
        """The events of some steps' ends, as (block, step), and which of them each is."""
        plan = self.plan
        names = np.stack([plan.block_id[plan.block[ends]], plan.s[ends]], 1).reshape(-1, 2)
        found, which = np.unique(names, axis=0, return_inverse=True)
        return [(b, s) for b, s in found.tolist()], which.reshape(-1).astype(np.int32)

    def _operations(self, row: Array, step: Array) -> None:
        plan, kind = self.plan, self.plan.kind
        acts = np.flatnonzero(kind != Kind.NOP)
        row, step, kind, rank, block = row[acts], step[acts], kind[acts], self.rank[acts], plan.block[acts]
        source = self.places.at(rank, plan.src_space[acts], plan.src_offset[acts])
        target = self.places.at(rank, plan.dst_space[acts], plan.dst_offset[acts])
        sends = kind == Kind.S
        buffer, chunk = (np.where(sends, s, t) for s, t in zip(source, target, strict=True))
        nowhere = kind == Kind.RRS
        buffer[nowhere], chunk[nowhere] = NONE, 0
        self._put(row, op=_FIRST[kind], step=step, buffer=buffer, chunk=chunk, count=plan.count[acts])
        reads = np.flatnonzero(_FROM[kind])
        self._put(row[reads], from_buffer=source[0][reads], from_chunk=source[1][reads])
        comes = np.flatnonzero((_FIRST[kind] == Op.RECV) | (_FIRST[kind] == Op.REDUCE_RECV))
        self._put(row[comes], peer=plan.recv[block[comes]], chan=self.chan[block[comes]])
        plain = np.flatnonzero(sends)
        self._put(row[plain], peer=plan.send[block[plain]], chan=self.chan[block[plain]])
        fused = np.flatnonzero(_FUSED[kind])
        self._put(row[fused] + 1, op=Op.SEND, step=step[fused], buffer=buffer[fused], chunk=chunk[fused],
                  count=plan.count[acts][fused], peer=plan.send[block[fused]], chan=self.chan[block[fused]],
                  of=row[fused])

    def _copies(self, stream: int) -> dict[str, Any]:
        """The cells of the copies, one after another on each rank, and of the records that follow them there."""
        plan, size = self.plan, len(self.plan.copy_rank)
        ranks = np.unique(plan.copy_rank)
        by = np.argsort(np.append(plan.copy_rank, ranks), kind="stable")     # a record follows its rank's copies
        rank = np.append(plan.copy_rank, ranks)[by]
        copy = by < size
        k = by[copy]
        cells: dict[str, Any] = {name: np.full(len(by), _NOTHING.get(name, NONE), np.int64)
                                 for name in ("buffer", "chunk", "count", "from_buffer", "from_chunk", "event", "site")}
        cells["buffer"][copy], cells["chunk"][copy] = self.places.at(rank[copy], Space.OUTPUT, plan.copy_output[k])
        cells["from_buffer"][copy], cells["from_chunk"][copy] = self.places.at(
            rank[copy], Space.INPUT, plan.copy_input[k])
        cells["count"][copy] = plan.copy_count[k]
        cells["site"][copy] = self.size + k
        cells["site"][~copy] = cells["site"][np.flatnonzero(~copy) - 1] if size else 0
        cells["event"][~copy] = len(self._events(np.unique(self.ends))[0])
        return {**cells, "op": np.where(copy, Op.COPY, Op.RECORD), "rank": rank, "stream": stream,
                "step": np.arange(len(by)) - np.searchsorted(rank, rank)}


_NOTHING = {"chunk": 0, "count": 0, "turn": 0}
"""What the columns hold in rows that have no such thing, where that is not NONE."""


class Sites(Unlooped):
    """Where rows come from: a site for each step, then one for each copy, made when somebody asks for it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def __len__(self) -> int:
        return len(self.plan.kind) + len(self.plan.copy_rank)

    @overload
    def __getitem__(self, index: int) -> Site: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Site]: ...
    def __getitem__(self, index: int | slice) -> Site | Sequence[Site]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        plan, steps = self.plan, len(self.plan.kind)
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        if index >= steps:
            return Site(plan.span(int(plan.copy_at[index - steps])), called="copies")
        block = int(plan.block[index])
        called = f"block {int(plan.block_id[block])}, step {int(plan.s[index])}"
        return Site(plan.span(int(plan.step_at[index])), called=called)
