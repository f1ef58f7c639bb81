"""The rules of the format: the elements of a file become a plan, or complaints.

Rules are checked in stages, each on what the ones before it found right; all complaints of a stage are made. What only
some runtime demands (limits, sizes, what is divisible) is not looked at here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from schedlang.diagnostics import Diagnostic, Note, note
from schedlang.ir.table import NONE, Array
from schedlang.msccl.complaints import Complaints
from schedlang.msccl.parse import ALGO, BLOCK, COPY, GPU, MAY_BE, STEP, Elements
from schedlang.msccl.places import attribute_span, shown, tag_span
from schedlang.msccl.plan import Kind, Plan, Space
from schedlang.msccl.tally import Tally, Word
from schedlang.ops import MAX_OPS

PROTOCOLS = ("Simple", "LL", "LL128")
COLLECTIVES = ("allreduce", "allgather", "alltoall", "reduce", "broadcast", "reduce_scatter", "reducescatter", "custom",
               "send", "recv", "gather", "scatter", "alltoallv")
OPERATORS = ("sum", "prod", "min", "max", "nop")
KINDS = tuple(kind.name.lower() for kind in Kind)
SPACES = ("i", "o", "s")

MOST_CHUNKS = 1 << 16
"""How many chunks a buffer may have: offsets have 16 bits in every runtime."""

LONGEST_NAME = 255
"""In characters; no runtime reads longer ones."""

_INT32, _INT64 = (1 << 31) - 1, (1 << 63) - 1
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_REMARKS = 10
"""How many notes there are at most on what is not understood."""

USES_SOURCE = np.array([kind in (Kind.S, Kind.CPY, Kind.RE, Kind.RRC, Kind.RRS, Kind.RRCS) for kind in Kind])
USES_TARGET = np.array([kind in (Kind.R, Kind.CPY, Kind.RE, Kind.RCS, Kind.RRC, Kind.RRCS) for kind in Kind])
SENDS = np.array([kind in (Kind.S, Kind.RCS, Kind.RRS, Kind.RRCS) for kind in Kind])
RECEIVES = np.array([kind in (Kind.R, Kind.RCS, Kind.RRC, Kind.RRS, Kind.RRCS) for kind in Kind])


def plan_of(elements: Elements, complaints: Complaints) -> Plan:
    """The plan. Raises SchedError (SL108, SL208, SL221) with what is wrong."""
    return _Rules(elements, complaints).plan()


class _Rules:
    def __init__(self, elements: Elements, complaints: Complaints) -> None:
        self.elements, self.complaints, self.source = elements, complaints, complaints.source

    def plan(self) -> Plan:
        e = self.elements
        self.algo()
        gpu = self.numbers(e.gpus, GPU, e.gpu_at, {"id": (0, _INT32)}, (0, MOST_CHUNKS))
        block = self.numbers(e.blocks, BLOCK, e.block_at, {"id": (0, _INT32)}, (NONE, _INT32))
        step = self.numbers(e.steps, [n for n in STEP if n not in ("type", "srcbuf", "dstbuf")], e.step_at, {
            "s": (0, _INT32), "srcoff": (-_INT32, _INT32), "dstoff": (-_INT32, _INT32), "cnt": (0, _INT32),
            "hasdep": (0, 1)}, (NONE, _INT32))
        copy = self.copies_written()
        kind = self.choices(e.steps, "type", KINDS, "a kind of step", e.step_at)
        space = {name: self.choices(e.steps, name, SPACES, "a buffer", e.step_at) for name in ("srcbuf", "dstbuf")}
        self.complaints.stop()

        # From here on ranks, blocks and steps are in the order of their numbers.
        rank_order = self.ranks(gpu["id"])
        self.gpu_at = e.gpu_at[rank_order]
        gpu = {name: column[rank_order] for name, column in gpu.items()}
        rank = np.empty(len(rank_order), np.int32)
        rank[rank_order] = np.arange(len(rank_order))
        self.block_rank = rank[e.block_gpu]
        order = self.blocks(block["id"])
        self.block_rank, self.block_at = self.block_rank[order], e.block_at[order]
        block = {name: column[order] for name, column in block.items()}
        self.block_id = block["id"]
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order))
        self.block = place[e.step_block]
        self.step_at = e.step_at
        if (np.diff(self.block) < 0).any():
            order = np.argsort(self.block, kind="stable")
            self.block, self.step_at, kind = self.block[order], self.step_at[order], kind[order]
            step = {name: column[order] for name, column in step.items()}
            space = {name: column[order] for name, column in space.items()}
        self.s = step["s"]
        self.first = np.searchsorted(self.block, np.arange(len(self.block_rank) + 1))
        self.steps()
        self.peers(block)
        self.connection("send", "sends to", block["send"], block["chan"])
        self.connection("recv", "receives from", block["recv"], block["chan"])
        self.complaints.stop()

        self.operations(kind, step["cnt"], block)
        self.dependencies(step["depid"], step["deps"])
        self.complaints.stop()

        sizes = self.sizes(gpu)
        for used, buffer, offset in ((USES_SOURCE, "srcbuf", "srcoff"), (USES_TARGET, "dstbuf", "dstoff")):
            self.bounds(np.flatnonzero(used[kind]), space[buffer], step[offset], step["cnt"], sizes, offset)
        copy_rank = rank[e.copy_gpu]
        self.copied("i_off", Space.INPUT, copy_rank, copy["i_off"], copy["cnt"], sizes)
        self.copied("o_off", Space.OUTPUT, copy_rank, copy["o_off"], copy["cnt"], sizes)
        self.complaints.stop()

        by_rank = np.argsort(copy_rank, kind="stable")
        chan = np.maximum(block["chan"], 0)
        return Plan(
            source=self.source, name=self.name, proto=e.algo["proto"], channels=self.number["nchannels"],
            chunks=self.number["nchunksperloop"], ranks=self.number["ngpus"], coll=e.algo["coll"],
            inplace=bool(self.number["inplace"]),
            outofplace=bool(self.number["outofplace"]) if "outofplace" in self.number else None,
            min_bytes=self.number.get("minBytes"), max_bytes=self.number.get("maxBytes"), redop=self.redop,
            attributes=e.algo, at=e.algo_at,
            i_chunks=gpu["i_chunks"], o_chunks=gpu["o_chunks"], s_chunks=gpu["s_chunks"], gpu_at=self.gpu_at,
            block_rank=self.block_rank, block_id=block["id"], send=block["send"], recv=block["recv"], chan=chan,
            block_at=self.block_at,
            block=self.block, s=self.s, kind=kind, src_space=space["srcbuf"], dst_space=space["dstbuf"],
            src_offset=step["srcoff"], dst_offset=step["dstoff"], count=np.where(kind == Kind.NOP, 0, step["cnt"]),
            dep_block=step["depid"], dep_step=step["deps"], has_dep=step["hasdep"].astype(bool), step_at=self.step_at,
            copy_rank=copy_rank[by_rank], copy_input=copy["i_off"][by_rank], copy_output=copy["o_off"][by_rank],
            copy_count=copy["cnt"][by_rank], copy_at=e.copy_at[by_rank], remarks=self.remarks())

    # What is written --------------------------------------------------------------------------------------------------

    def algo(self) -> None:
        """The attributes of the <algo>; numbers in ``number``."""
        algo, at = self.elements.algo, self.elements.algo_at
        ranges = {"nchannels": (1, _INT32), "nchunksperloop": (1, MOST_CHUNKS), "ngpus": (1, _INT32), "inplace": (0, 1),
                  "outofplace": (0, 1), "minBytes": (0, _INT64), "maxBytes": (0, _INT64)}
        self.number: dict[str, int] = {}
        for name in (*ALGO, *MAY_BE):
            if name not in algo:
                if name in ALGO and name != "name":
                    self.complaints.add(f"<algo> has no {name}", at, help=_ALGO_HELP[name])
            elif name in ranges:
                if why := _wrong(name, algo[name], *ranges[name]):
                    self.complaints.add(why, at, name, help=_ALGO_HELP[name])
                else:
                    self.number[name] = int(algo[name])
        for name, known in (("proto", PROTOCOLS), ("coll", COLLECTIVES)):
            if name in algo and algo[name] not in known:
                what = "protocol" if name == "proto" else "collective"
                self.complaints.add(f"{name}={shown(algo[name])} is no {what}", at, name,
                                    help=_instead(algo[name], known))
        self.name = algo.get("name") or Path(self.source.path).name.partition(".")[0] or "algo"
        if len(self.name) > LONGEST_NAME or not self.name.isprintable():
            self.complaints.add(f"name={shown(self.name)} is no name", at, "name",
                                help=f"a name has at most {LONGEST_NAME} printable characters")
        self.redop = algo["redop"] if algo.get("redop") in OPERATORS else None

    def numbers(self, tally: Tally, names: Sequence[str], at: Array, ranges: dict[str, tuple[int, int]],
                usual: tuple[int, int]) -> dict[str, Array]:
        """The numbers (int32) in some attributes of elements; each has a range of its own or the ``usual`` one."""
        columns = {}
        for name in names:
            column = tally.columns[name]
            words, codes = column.words, column.codes
            wrong = [_wrong(name, word, *ranges.get(name, usual)) for word in words]
            if any(wrong):
                self.written(wrong, codes, at, name)
                columns[name] = np.zeros(len(codes), np.int32)
            else:
                columns[name] = np.array([int(word or 0) for word in words], np.int32)[codes]
        return columns

    def written(self, wrong: Sequence[str | None], codes: Array, at: Array, name: str) -> None:
        """Complains of an attribute of elements: ``wrong`` says what is wrong with each word."""
        bad = np.array([why is not None for why in wrong], bool)
        self.complaints.each(np.flatnonzero(bad[codes]), at, lambda row: wrong[codes[row]] or "", name,
                             help=_HELP[name])

    def choices(self, tally: Tally, name: str, known: Sequence[str], what: str, at: Array) -> Array:
        """Which of the ``known`` words stand in an attribute of elements (int8)."""
        column = tally.columns[name]
        words, codes = column.words, column.codes
        place = {word: i for i, word in enumerate(known)}
        bad = np.array([word not in place for word in words], bool)
        if bad.any():
            wrong = np.flatnonzero(bad[codes])
            first = words[codes[wrong[at[wrong].argmin()]]]
            said = [_lacking(name, word) or f"{name}={shown(word or '')} is not {what}" for word in words]
            self.complaints.each(wrong, at, lambda row: said[codes[row]], name, help=_instead(first or "", known))
        return np.array([place.get(word or "", 0) for word in words], np.int8)[codes]

    def copies_written(self) -> dict[str, Array]:
        e = self.elements
        if not e.copies.at:
            return {name: np.empty(0, np.int32) for name in COPY}
        found = self.numbers(e.copies, ("i_off", "o_off"), e.copy_at, {}, (0, _INT32))
        words, codes = e.copies.columns["cnt"].words, e.copies.columns["cnt"].codes
        wrong = [_wrong("cnt", word or "1", 1, _INT32) for word in words]       # without it, one chunk is copied
        self.written(wrong, codes, e.copy_at, "cnt")
        found["cnt"] = np.array([1 if why else int(word or 1) for word, why in zip(words, wrong, strict=True)],
                                np.int32)[codes]
        return found

    # Numbers of ranks, blocks and steps -------------------------------------------------------------------------------

    def ranks(self, ids: Array) -> Array:
        """The order of the ranks in the file: each is there once."""
        ranks, e = self.number["ngpus"], self.elements
        order = np.argsort(ids, kind="stable")
        twice = order[1:][ids[order[1:]] == ids[order[:-1]]]
        self.complaints.each(twice, e.gpu_at, lambda row: f"rank {ids[row]} is there already", "id",
                             help="each rank has one <gpu>")
        self.complaints.each(np.flatnonzero(ids >= ranks), e.gpu_at,
                             lambda row: f'id="{ids[row]}", but ngpus="{ranks}"', "id",
                             help=f"ranks are numbered from 0 to {ranks - 1}")
        if len(ids) != ranks and not len(twice):
            there = np.zeros(len(ids) + 1, bool)
            there[ids[ids <= len(ids)]] = True
            lost = int(there.argmin())
            which = f"; there is none for rank {lost}" if lost < ranks else ""
            self.complaints.add(f'ngpus="{ranks}", but there are {len(ids)} <gpu>{which}', e.algo_at, "ngpus",
                                help="ngpus is the number of ranks, and each has one <gpu>")
        self.complaints.stop()
        return order

    def blocks(self, ids: Array) -> Array:
        """The order of the blocks, by rank and id: those of a rank are numbered without gaps."""
        at, rank = self.elements.block_at, self.block_rank
        order = np.lexsort((ids, rank))
        rank, ids = rank[order], ids[order]
        new = np.append(True, rank[1:] != rank[:-1])[: len(rank)]
        number = np.arange(len(rank)) - np.maximum.accumulate(np.where(new, np.arange(len(rank)), 0))
        twice = ~new & (ids == np.roll(ids, 1))
        gap = (ids != number) & ~twice & (new | (np.roll(ids, 1) == number - 1))
        self.complaints.each(np.flatnonzero(twice), at[order], lambda i: f"block {ids[i]} of rank {rank[i]} is there "
                             "already", "id", help="the blocks of a rank are numbered from 0, each differently")
        if not twice.any():
            self.complaints.each(np.flatnonzero(gap), at[order], lambda i: f"rank {rank[i]} has a block {ids[i]}, but "
                                 f"no block {number[i]}", "id",
                                 help="the blocks of a rank are numbered from 0 without gaps")
        self.complaints.stop()
        return order

    def steps(self) -> None:
        """Steps are numbered by their place in the block."""
        place = np.arange(len(self.s)) - self.first[self.block]
        wrong = np.flatnonzero(self.s != place)
        if len(wrong):
            _, first = np.unique(self.block[wrong], return_index=True)      # the rest of the block follows from it
            wrong = wrong[first]
        self.complaints.each(wrong, self.step_at, lambda i: f's="{self.s[i]}", but this is step {place[i]} of '
                             f"{self.of_block(int(self.block[i]))}", "s",
                             help="the steps of a block are numbered from 0, in the order in which they stand there")

    # Peers and connections --------------------------------------------------------------------------------------------

    def peers(self, block: dict[str, Array]) -> None:
        for name in ("send", "recv"):
            self.peer(name, block[name])
        chan, alone = block["chan"], (block["send"] == NONE) & (block["recv"] == NONE)
        self.complaints.each(np.flatnonzero((chan < 0) & ~alone), self.block_at,
                             lambda i: f'chan="{chan[i]}" in a block with a peer', "chan", help=_HELP["chan"])

    def peer(self, name: str, peer: Array) -> None:
        ranks = self.number["ngpus"]
        self.complaints.each(np.flatnonzero(peer >= ranks), self.block_at,
                             lambda i: f'{name}="{peer[i]}", but ngpus="{ranks}"', name,
                             help=f"a peer is a rank from 0 to {ranks - 1}, or -1 for none")
        self.complaints.each(np.flatnonzero(peer == self.block_rank), self.block_at,
                             lambda i: f'{name}="{peer[i]}", but that is this rank itself', name,
                             help="within a rank nothing is sent; copy with a step of type cpy")

    def connection(self, name: str, does: str, peer: Array, chan: Array) -> None:
        """One block sends on a connection, and one receives."""
        rank, at = self.block_rank, self.block_at
        rows = np.flatnonzero(peer != NONE)
        rows = rows[np.lexsort((at[rows], chan[rows], peer[rows], rank[rows]))]
        a, b = rows[:-1], rows[1:]
        again = (rank[a] == rank[b]) & (peer[a] == peer[b]) & (chan[a] == chan[b])
        earlier = dict(zip(b[again].tolist(), a[again].tolist(), strict=True))

        def notes(i: int) -> list[Note]:
            return [Note(f"{self.of_block(earlier[i])} does, too",
                         attribute_span(self.source, int(at[earlier[i]]), name))]

        self.complaints.each(
            b[again], at, lambda i: f"{self.of_block(i)} {does} rank {peer[i]} on channel {chan[i]}, as another block "
            "does", name, notes=notes, help="messages on a connection go in one order, so one block sends and one "
            "receives; give the other another chan")

    # Steps ------------------------------------------------------------------------------------------------------------

    def operations(self, kind: Array, count: Array, block: dict[str, Array]) -> None:
        self.peered("sends", kind, SENDS, "send", block["send"])
        self.peered("receives", kind, RECEIVES, "recv", block["recv"])
        self.complaints.each(np.flatnonzero((count < 1) & (kind != Kind.NOP)), self.step_at,
                             lambda i: f'cnt="{count[i]}" in a step of type {KINDS[kind[i]]}', "cnt",
                             help="cnt is how many chunks the step moves, at least 1; only a nop has 0")

    def peered(self, does: str, kind: Array, kinds: Array, name: str, peer: Array) -> None:
        """The blocks of the steps that are of certain kinds have a peer."""
        lost = np.flatnonzero(kinds[kind] & (peer[self.block] == NONE))
        self.complaints.each(lost, self.step_at, lambda i: f"a step of type {KINDS[kind[i]]} {does}, but "
                             f'{self.of_block(int(self.block[i]))} has {name}="-1"', "type",
                             help=f"give the block the rank that it {does.rstrip('s')}s "
                             f"{'to' if name == 'send' else 'from'}: {name}")

    def dependencies(self, block: Array, step: Array) -> None:
        at, rank = self.step_at, self.block_rank[self.block]
        begins = np.searchsorted(self.block_rank, np.arange(self.number["ngpus"] + 1))
        number = np.diff(begins)[rank]      # the blocks of the rank
        some = block != NONE
        lost = some & (block >= number)
        self.complaints.each(np.flatnonzero(lost), at, lambda i: f'depid="{block[i]}", but rank {rank[i]} has '
                             + _blocks(int(number[i])), "depid", help=_HELP["depid"])
        target = np.where(some & ~lost, begins[rank] + block, 0)
        steps = np.diff(self.first)[target] if len(self.block_rank) else np.zeros(len(block), np.int64)
        late = some & ~lost & (step >= steps)
        self.complaints.each(np.flatnonzero(late), at, lambda i: f'deps="{step[i]}", but '
                             f"{self.of_block(int(target[i]))} has {_steps(int(steps[i]))}", "deps", help=_HELP["deps"])

    # Buffers ----------------------------------------------------------------------------------------------------------

    def sizes(self, gpu: dict[str, Array]) -> Array:
        """How many chunks each rank's buffers have, [rank, space].

        Scratch has what is declared. Input and output have what the collective gives them, or less where less is
        declared; 0 means that nothing is declared. Of a collective that we know nothing of they have what is declared.
        """
        chunks, ranks, coll = self.number["nchunksperloop"], self.number["ngpus"], self.elements.algo["coll"]
        part = -(-chunks // ranks)
        most = {"allreduce": (chunks, chunks), "alltoall": (chunks, chunks), "reduce": (chunks, chunks),
                "broadcast": (chunks, chunks), "allgather": (part, chunks), "reduce_scatter": (chunks, part),
                "reducescatter": (chunks, part)}.get(coll)
        found = np.empty((ranks, len(Space)), np.int64)
        found[:, Space.SCRATCH] = gpu["s_chunks"]
        for i, (space, name) in enumerate(((Space.INPUT, "i_chunks"), (Space.OUTPUT, "o_chunks"))):
            declared = gpu[name]
            if most is not None:
                found[:, space] = np.where(declared > 0, np.minimum(declared, most[i]), most[i])
            else:
                usual = chunks * ranks if coll in ("gather", "scatter") else chunks
                found[:, space] = np.where(declared > 0, declared, usual)
        if found.sum() > MAX_OPS:
            self.complaints.add(f"{ranks} ranks with {int(found.sum())} chunks in all are more than {MAX_OPS}",
                                self.elements.algo_at, "nchunksperloop", code="SL208",
                                help="verify a smaller world, or fewer instances")
            self.complaints.stop()
        return found

    def bounds(self, rows: Array, space: Array, offset: Array, count: Array, sizes: Array, name: str) -> None:
        """The steps ``rows`` stay within their buffers."""
        rank = self.block_rank[self.block]
        size = sizes[rank, space]
        wrong = (offset < 0) | (offset.astype(np.int64) + count > size)
        self.complaints.each(rows[wrong[rows]], self.step_at, lambda i: _outside(
            offset[i], count[i], space[i], rank[i], size[i]), name, code="SL221", help=_BOUNDS_HELP)

    def copied(self, name: str, space: Space, rank: Array, offset: Array, count: Array, sizes: Array) -> None:
        """Copies stay within a buffer."""
        size = sizes[rank, space]
        self.complaints.each(np.flatnonzero(offset.astype(np.int64) + count > size), self.elements.copy_at,
                             lambda i: _outside(offset[i], count[i], space, rank[i], size[i]), name, code="SL221",
                             help=_BOUNDS_HELP)

    # Words ------------------------------------------------------------------------------------------------------------

    def of_block(self, block: int) -> str:
        return f"block {self.block_id[block]} of rank {self.block_rank[block]}"

    def remarks(self) -> tuple[Diagnostic, ...]:
        """Notes on what was left out, in the order in which it stands there first."""
        e = self.elements
        found: list[tuple[int, Diagnostic]] = []
        for name in e.algo.keys() - {*ALGO, *MAY_BE}:
            found.append(self.left_out(name, "algo", e.algo_at, 1, [n for n in MAY_BE if n not in e.algo]))
        if "redop" in e.algo and self.redop is None:
            at = attribute_span(self.source, e.algo_at, "redop")
            text = f"redop={shown(e.algo['redop'])} is no operator of MSCCL's, and is left out"
            found.append((at.start, note("SL615", text, at, help=_instead(e.algo["redop"], OPERATORS))))
        for tag, tally in (("gpu", e.gpus), ("tb", e.blocks), ("step", e.steps), ("copy", e.copies)):
            for name, (count, place) in tally.strange.items():
                found.append(self.left_out(name, tag, place, count, []))
        for (tag, outer), (count, place) in e.strange.items():
            text = f"<{tag}> in {outer} is not part of the format, and is left out{_times(count)}"
            found.append((place, note("SL615", text, tag_span(self.source, place),
                                      help="the runtimes leave it out as well")))
        found.sort(key=lambda entry: entry[0])
        notes = [entry[1] for entry in found[:_REMARKS]]
        if rest := found[_REMARKS:]:
            notes.append(note("SL615", f"{len(rest):,} other names are not part of the format either",
                              rest[0][1].location, help="the runtimes leave them out as well"))
        return tuple(notes)

    def left_out(self, name: str, tag: str, at: int, count: int, near: Sequence[str]) -> tuple[int, Diagnostic]:
        text = f"{_short(name)} of <{tag}> is not part of the format, and is left out{_times(count)}"
        place = attribute_span(self.source, at, name)
        close = _near(name, near, 0.85)
        help = f"did you mean {close}?" if close else "the runtimes leave it out as well"
        return place.start, note("SL615", text, place, help=help)


def _wrong(name: str, word: Word, low: int, high: int) -> str | None:
    """What is wrong with a number that is written somewhere."""
    if word is None:
        return _lacking(name, word)
    if not _NUMBER.fullmatch(word):
        long = len(word) > 19 and word.lstrip("+-").isdecimal()
        return f"{name}={shown(word)} is {'too large' if long else 'not a whole number'}"
    if not low <= int(word) <= high:
        return f"{name}={shown(word)} is too {'small' if int(word) < low else 'large'}; it can be {low} to {high}"
    return None


def _lacking(name: str, word: Word) -> str | None:
    return f"{name} is missing" if word is None else None


def _instead(word: str, known: Sequence[str]) -> str:
    close = _near(word, known)
    return (f"did you mean {close}? " if close else "") + f"there are {', '.join(known[:-1])} and {known[-1]}"


def _near(word: str, known: Sequence[str], least: float = 0.6) -> str | None:
    """The known word that is most like another one, whatever its case."""
    from difflib import get_close_matches

    lower = {name.lower(): name for name in known}
    return next((lower[name] for name in get_close_matches(word[:64].lower(), lower, 1, least)), None)


def _outside(offset: int, count: int, space: int, rank: int, size: int) -> str:
    what = f"chunk {offset}" if count == 1 else f"chunks {offset} to {int(offset) + int(count) - 1}"
    return f"{what} of the {Space(space).name.lower()} of rank {rank}, which has {_number(size, 'chunk')}"


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _blocks(count: int) -> str:
    return f"the blocks 0 to {count - 1} only" if count > 1 else "one block only, 0"


def _steps(count: int) -> str:
    return f"the steps 0 to {count - 1} only" if count > 1 else "one step only, 0" if count else "no steps"


def _times(count: int) -> str:
    return f" ({count:,} times)" if count > 1 else ""


def _short(name: str) -> str:
    return name if len(name) <= 40 and name.isprintable() else shown(name)


_BOUNDS_HELP = ("offset and cnt together stay within the buffer: i_chunks, o_chunks and s_chunks of its <gpu>, and "
                "nchunksperloop")

_ALGO_HELP = {
    "proto": 'write proto="Simple", "LL" or "LL128"',
    "nchannels": "nchannels is 1 more than the largest chan",
    "nchunksperloop": "nchunksperloop is how many chunks the whole buffer has, the input of an allreduce, the output "
                      f"of an allgather: 1 to {MOST_CHUNKS}",
    "ngpus": "ngpus is the number of ranks",
    "coll": f"write one of {', '.join(COLLECTIVES)}",
    "inplace": 'write inplace="1" where input and output may be one buffer, else "0"',
    "outofplace": 'write outofplace="1" where input and output may be two buffers, else "0"',
    "minBytes": "minBytes is the least number of bytes that the file is for",
    "maxBytes": "maxBytes is the largest number of bytes that the file is for",
}

_HELP = {
    "id": "ranks, and the blocks of each, are numbered from 0",
    "i_chunks": f"the chunks of the input, 0 to {MOST_CHUNKS}; 0 where it is not used",
    "o_chunks": f"the chunks of the output, 0 to {MOST_CHUNKS}; 0 where it is not used",
    "s_chunks": f"the chunks of the scratch buffer, 0 to {MOST_CHUNKS}",
    "send": "the rank that the block sends to, or -1",
    "recv": "the rank that the block receives from, or -1",
    "chan": "channels are numbered from 0",
    "s": "the steps of a block are numbered from 0",
    "srcoff": "the first chunk that is read; -1 where nothing is",
    "dstoff": "the first chunk that is written; -1 where nothing is",
    "cnt": "cnt is how many chunks the step moves",
    "depid": "depid is a block of the same rank whose step is waited for, or -1",
    "deps": "deps is the step of block depid that is waited for, or -1",
    "hasdep": 'write hasdep="1" where another step waits for this one, else "0"',
    "i_off": "the chunk of the input that is copied",
    "o_off": "the chunk of the output that it is copied to",
}
