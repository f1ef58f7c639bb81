"""The rules that a plan obeys, whatever the runtime: complaints of those that it breaks.

They come in stages, each about what the ones before found right. What only some runtime demands (limits, sizes, what
divides) is not looked at here.
"""

from __future__ import annotations

import numpy as np

from schedlang.diagnostics import Note
from schedlang.ir.table import NONE, Array
from schedlang.msccl.complaints import Complaints
from schedlang.msccl.places import attribute_span
from schedlang.msccl.plan import Kind, Plan, Space
from schedlang.msccl.written import HELP, KINDS

READS = np.array([kind in (Kind.S, Kind.CPY, Kind.RE, Kind.RRC, Kind.RRS, Kind.RRCS) for kind in Kind])
"""Which kinds use their srcbuf and srcoff."""

WRITES = np.array([kind in (Kind.R, Kind.CPY, Kind.RE, Kind.RCS, Kind.RRC, Kind.RRCS) for kind in Kind])
"""Which kinds use their dstbuf and dstoff."""

SENDS = np.array([kind in (Kind.S, Kind.RCS, Kind.RRS, Kind.RRCS) for kind in Kind])
RECEIVES = np.array([kind in (Kind.R, Kind.RCS, Kind.RRC, Kind.RRS, Kind.RRCS) for kind in Kind])

MOST_LOCATIONS = 1 << 24
"""How many chunks the buffers of all ranks may have: 85 ranks with three buffers as long as offsets reach, 10,000 with
1,600 chunks each. A file of a few lines that asks for the most takes some seconds and less than 2 GB."""

MOST_MOVED = 1 << 24
"""How many chunks all steps together may receive or copy: each is followed by itself, for up to 90 bytes. The
largest file known moves 11,520."""


def check(plan: Plan, complaints: Complaints) -> None:
    """Raises SchedError where a rule is broken: SL108; SL221 where a step reaches outside of its buffer; SL208 where
    the world or what is moved in it is too large to follow."""
    rules = _Rules(plan, complaints)
    rules.numbering()
    rules.peers("send", plan.send)
    rules.peers("recv", plan.recv)
    complaints.stop()
    rules.connections("send", "sends to", plan.send)
    rules.connections("recv", "receives from", plan.recv)
    rules.peered("sends to", SENDS, "send", plan.send)
    rules.peered("receives from", RECEIVES, "recv", plan.recv)
    rules.counts()
    rules.dependencies()
    complaints.stop()
    size = sizes(plan)
    rules.world(size)
    complaints.stop()
    rules.bounds("srcoff", READS, plan.src_space, plan.src_offset, size)
    rules.bounds("dstoff", WRITES, plan.dst_space, plan.dst_offset, size)
    rules.copies("i_off", Space.INPUT, plan.copy_input, size)
    rules.copies("o_off", Space.OUTPUT, plan.copy_output, size)
    complaints.stop()
    rules.work()
    complaints.stop()


def sizes(plan: Plan) -> Array:
    """How many chunks each rank's buffers have, [rank, space].

    Scratch has what is declared. Input and output have what the collective gives them, or less where less is declared;
    0 means that nothing is declared. Of a collective that does not say how long its buffers are they have what is
    declared, on this rank or else on some other.
    """
    chunks, ranks = plan.chunks, plan.ranks
    part = -(-chunks // ranks)
    known = {"allgather": (part, chunks), "reduce_scatter": (chunks, part), "reducescatter": (chunks, part),
             **dict.fromkeys(("allreduce", "alltoall", "reduce", "broadcast"), (chunks, chunks))}.get(plan.coll)
    found = np.empty((ranks, len(Space)), np.int64)
    found[:, Space.SCRATCH] = plan.s_chunks
    for space, declared in ((Space.INPUT, plan.i_chunks), (Space.OUTPUT, plan.o_chunks)):
        if known:
            most = known[space]
            found[:, space] = np.where(declared > 0, np.minimum(declared, most), most)
        else:       # of gather and scatter it is not certain which buffer nchunksperloop counts
            most = chunks * ranks if plan.coll in ("gather", "scatter") else int(declared.max()) or chunks
            found[:, space] = np.where(declared > 0, declared, most)
    return found


class _Rules:
    def __init__(self, plan: Plan, complaints: Complaints) -> None:
        self.plan, self.complaints = plan, complaints
        self.first = np.searchsorted(plan.block, np.arange(len(plan.block_rank) + 1))   # of each block, and the end
        self.rank = plan.block_rank[plan.block]

    def of_block(self, block: int) -> str:
        return f"block {self.plan.block_id[block]} of rank {self.plan.block_rank[block]}"

    def numbering(self) -> None:
        """Steps are numbered by their place in the block."""
        s, block = self.plan.s, self.plan.block
        place = np.arange(len(s)) - self.first[block]
        wrong = np.flatnonzero(s != place)
        wrong = wrong[np.unique(block[wrong], return_index=True)[1]]        # the rest of a block follows from it
        self.complaints.each(wrong, self.plan.step_at, lambda i: f's="{s[i]}", but this is step {place[i]} of '
                             f"{self.of_block(block[i])}", "s", help=HELP["s"])

    def peers(self, name: str, peer: Array) -> None:
        """Peers are other ranks of the world."""
        plan, ranks = self.plan, self.plan.ranks
        self.complaints.each(np.flatnonzero(peer >= ranks), plan.block_at,
                             lambda i: f'{name}="{peer[i]}", but ngpus="{ranks}"', name,
                             help=f"a peer is a rank from 0 to {ranks - 1}, or -1 for none")
        self.complaints.each(np.flatnonzero(peer == plan.block_rank), plan.block_at,
                             lambda i: f'{name}="{peer[i]}", but that is this rank itself', name,
                             help="within a rank nothing is sent: copy with a step of type cpy")

    def connections(self, name: str, does: str, peer: Array) -> None:
        """One block sends on a connection, and one receives."""
        rank, chan, at = self.plan.block_rank, self.plan.chan, self.plan.block_at
        rows = np.flatnonzero(peer != NONE)
        rows = rows[np.lexsort((at[rows], chan[rows], peer[rows], rank[rows]))]
        a, b = rows[:-1], rows[1:]
        again = (rank[a] == rank[b]) & (peer[a] == peer[b]) & (chan[a] == chan[b])
        earlier = dict(zip(b[again].tolist(), a[again].tolist(), strict=True))

        def notes(i: int) -> list[Note]:
            return [Note(f"{self.of_block(earlier[i])} does, too",
                         attribute_span(self.plan.source, int(at[earlier[i]]), name))]

        self.complaints.each(
            b[again], at, lambda i: f"{self.of_block(i)} {does} rank {peer[i]} on channel {chan[i]}, as another block "
            "does", name, notes=notes, help="messages on a connection go in one order, so one block sends and one "
            "receives; give this one another chan, or put its steps into the other")

    def peered(self, does: str, kinds: Array, name: str, peer: Array) -> None:
        """Blocks with steps of certain kinds have a peer for them."""
        plan = self.plan
        self.complaints.each(
            np.flatnonzero(kinds[plan.kind] & (peer[plan.block] == NONE)), plan.step_at,
            lambda i: f"a step of type {KINDS[plan.kind[i]]} {does} a peer, but {self.of_block(plan.block[i])} has "
            f'{name}="-1"', "type", help=f"{name} of the <tb> is the rank that it {does}")

    def counts(self) -> None:
        count, kind = self.plan.count, self.plan.kind
        self.complaints.each(np.flatnonzero((count < 1) & (kind != Kind.NOP)), self.plan.step_at,
                             lambda i: f'cnt="{count[i]}" in a step of type {KINDS[kind[i]]}', "cnt", help=HELP["cnt"])

    def dependencies(self) -> None:
        """What is waited for is there."""
        plan, block, step, rank = self.plan, self.plan.dep_block, self.plan.dep_step, self.rank
        begins = np.searchsorted(plan.block_rank, np.arange(plan.ranks + 1))
        blocks = np.diff(begins)[rank]
        lost = block >= blocks
        self.complaints.each(np.flatnonzero(lost), plan.step_at, lambda i: f'depid="{block[i]}", but rank {rank[i]} '
                             f"has {_numbered(blocks[i], 'block')}", "depid", help=HELP["depid"])
        there = np.flatnonzero((block != NONE) & ~lost)
        target = np.zeros(len(block), np.int64)
        target[there] = begins[rank[there]] + block[there]
        steps = np.diff(self.first)[target]
        late = there[np.maximum(step[there], 0) >= steps[there]]     # deps="-1" asks for any step that there is
        self.complaints.each(late, plan.step_at, lambda i: f'deps="{step[i]}", but '
                             f"{self.of_block(target[i])} has {_numbered(steps[i], 'step')}", "deps", help=HELP["deps"])

    def world(self, sizes: Array) -> None:
        if (total := int(sizes.sum())) > MOST_LOCATIONS:
            self.complaints.add(
                f"the buffers of the {self.plan.ranks:,} ranks have {total:,} chunks in all, more than "
                f"{MOST_LOCATIONS:,}",
                self.plan.at, "nchunksperloop", code="SL208", help="verify a smaller world, or one with fewer chunks")

    def work(self) -> None:
        moves = (WRITES | RECEIVES)[self.plan.kind]
        if (moved := int(self.plan.count[moves].sum() + self.plan.copy_count.sum())) > MOST_MOVED:
            self.complaints.add(f"the steps receive or copy {moved:,} chunks in all, more than {MOST_MOVED:,}",
                                self.plan.at, "nchunksperloop", code="SL208",
                                help="verify a file with fewer chunks, or fewer steps with a large cnt")

    def bounds(self, name: str, kinds: Array, space: Array, offset: Array, sizes: Array) -> None:
        """Steps of certain kinds stay within their buffers."""
        plan, rank = self.plan, self.rank
        size = sizes[rank, space]
        wrong = kinds[plan.kind] & ((offset < 0) | (offset.astype(np.int64) + plan.count > size))
        self.complaints.each(np.flatnonzero(wrong), plan.step_at,
                             lambda i: _outside(offset[i], plan.count[i], space[i], rank[i], size[i]), name,
                             code="SL221", help=_INSIDE)

    def copies(self, name: str, space: Space, offset: Array, sizes: Array) -> None:
        """The copies of the oldest dialect do."""
        plan = self.plan
        size = sizes[plan.copy_rank, space]
        self.complaints.each(np.flatnonzero(offset.astype(np.int64) + plan.copy_count > size), plan.copy_at,
                             lambda i: _outside(offset[i], plan.copy_count[i], space, plan.copy_rank[i], size[i]), name,
                             code="SL221", help=_INSIDE)


_INSIDE = ("offset and cnt together stay within the buffer: s_chunks of scratch; of input and output nchunksperloop, "
           "of the short one of all-gather and reduce-scatter nchunksperloop / ngpus; or i_chunks and o_chunks where "
           "these are less")


def _outside(offset: int, count: int, space: int, rank: int, size: int) -> str:
    what = f"chunk {offset}" if count == 1 else f"chunks {offset} to {int(offset) + int(count) - 1}"
    has = f"{size} chunks" if size > 1 else "one chunk" if size else "none"
    return f"{what} of the {Space(space).name.lower()} of rank {rank}, which has {has}"


def _numbered(count: int, what: str) -> str:
    return f"the {what}s 0 to {count - 1} only" if count > 1 else f"one {what} only, 0" if count else f"no {what}"
