"""Mutants: tables with one thing changed. Any table will do: random ones, shipped schedules.

A mutant is legal in form (no gaps in the steps, fused sends with their receives), but may break another rule (a chunk
outside its buffer, an event recorded twice): see ``ir.legal.check``.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from schedlang.ir.table import COLUMNS, DTYPES, NONE, OpTable
from schedlang.ops import Op

Row = dict[str, int]
"""A row's columns by name, and its ``id``, to which ``of`` refers."""

TRANSFERS = (Op.SEND, Op.RECV, Op.REDUCE_RECV)


class Draft:
    """A table taken apart."""

    def __init__(self, table: OpTable, rng: random.Random) -> None:
        self.table, self.rng = table, rng
        columns = {c: a.tolist() for c, a in table.take(np.arange(len(table))).items()}
        self.rows: list[Row] = [{"id": i, **{c: cells[i] for c, cells in columns.items()}} for i in range(len(table))]

    def finish(self) -> OpTable:
        """The table of the rows as they now are: steps numbered anew, references mended or dropped."""
        place = {row["id"]: i for i, row in enumerate(self.rows)}
        steps: dict[tuple[int, int], dict[int, int]] = {}
        for lane, found in _group(self.rows, lambda r: (r["rank"], r["stream"])).items():
            steps[lane] = {s: i for i, s in enumerate(sorted({r["step"] for r in found}))}
        receives: dict[int, Row] = {}
        for row in self.rows:
            row["step"] = steps[row["rank"], row["stream"]][row["step"]]
            receives[row["id"]] = row
        taken: set[int] = set()
        for row in self.rows:
            receive = receives.get(row["of"])
            if row["of"] == NONE:
                continue
            if receive is None or row["of"] in taken or not _fits(row, receive):
                row["of"] = NONE
                if row["buffer"] == NONE:
                    row["buffer"] = 0
            else:
                taken.add(row["of"])
                row["buffer"], row["chunk"], row["count"] = receive["buffer"], receive["chunk"], receive["count"]
                row["of"] = place[row["of"]]
        columns = [c for c in COLUMNS if c in self.rows[0]]
        return self.table.with_columns(**{c: np.array([r[c] for r in self.rows], DTYPES[c]) for c in columns})

    # ---- finding things ----------------------------------------------------------------------------------------------

    def pick(self, *ops: Op) -> Row | None:
        found = [r for r in self.rows if r["op"] in ops]
        return self.rng.choice(found) if found else None

    def pairs(self) -> list[tuple[Row, Row]]:
        """All sends with their receives."""
        ends: dict[tuple[int, int, int], tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
        for row in sorted(self.rows, key=lambda r: r["step"]):
            if row["op"] == Op.SEND:
                ends[row["rank"], row["peer"], row["chan"]][0].append(row)
            elif row["op"] in TRANSFERS:
                ends[row["peer"], row["rank"], row["chan"]][1].append(row)
        return [p for sends, receives in ends.values() for p in zip(sends, receives, strict=False)]

    def pair(self) -> tuple[Row, Row] | None:
        """A send and its receive."""
        pairs = self.pairs()
        return self.rng.choice(pairs) if pairs else None

    def lane_steps(self) -> dict[tuple[int, int], list[list[Row]]]:
        """The steps of each lane, in order."""
        lanes = _group(self.rows, lambda r: (r["rank"], r["stream"]))
        return {lane: [found for _, found in sorted(_group(rows, lambda r: r["step"]).items())]
                for lane, rows in lanes.items()}

    def neighbours(self, records_too: bool) -> tuple[list[Row], list[Row]] | None:
        """Two steps of a lane, the second right after the first."""
        found = [(a, b) for steps in self.lane_steps().values() for a, b in pairwise(steps)
                 if records_too or all(r["op"] not in (Op.RECORD, Op.WAIT) for r in (*a, *b))]
        return self.rng.choice(found) if found else None

    def remove(self, *rows: Row) -> None:
        gone = {r["id"] for r in rows}
        self.rows = [r for r in self.rows if r["id"] not in gone]

    def insert_after(self, row: Row, copy: Row) -> None:
        """Put a copy in the step after its original's."""
        for other in self.rows:
            if (other["rank"], other["stream"]) == (row["rank"], row["stream"]) and other["step"] > row["step"]:
                other["step"] += 1
        at = next(i for i, r in enumerate(self.rows) if r is row)
        fresh = max(r["id"] for r in self.rows) + 1
        self.rows.insert(at + 1, {**copy, "id": fresh, "step": row["step"] + 1, "of": NONE})


def _group(rows: list[Row], key: Callable[[Row], object]) -> dict:  # type: ignore[type-arg]
    found = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return dict(found)


def _fits(send: Row, receive: Row) -> bool:
    return receive["op"] in (Op.RECV, Op.REDUCE_RECV) and all(send[c] == receive[c] for c in ("rank", "stream", "step"))


# ---- the mutations: each changes the draft, or returns False where there is nothing to change ------------------------


def drop_row(d: Draft) -> bool:
    row = d.pick(Op.SEND, Op.RECV, Op.REDUCE_RECV, Op.COPY, Op.REDUCE)
    if row is None:
        return False
    d.remove(row)
    return True


def drop_pair(d: Draft) -> bool:
    pair = d.pair()
    if pair is None:
        return False
    d.remove(*pair)
    return True


def duplicate_row(d: Draft) -> bool:
    row = d.pick(*Op)
    if row is None:
        return False
    d.insert_after(row, row)
    return True


def duplicate_pair(d: Draft) -> bool:
    pair = d.pair()
    if pair is None:
        return False
    for row in pair:
        if row["buffer"] == NONE:
            return False
    for row in pair:
        d.insert_after(row, row)
    return True


def redirect(d: Draft) -> bool:
    """One end of a transfer names another peer."""
    row = d.pick(*TRANSFERS)
    others = [r for r in range(d.table.ranks) if row is not None and r not in (row["rank"], row["peer"])]
    if row is None or not others:
        return False
    row["peer"] = d.rng.choice(others)
    return True


def redirect_pair(d: Draft) -> bool:
    """A transfer goes to another rank."""
    pair = d.pair()
    if pair is None:
        return False
    send, receive = pair
    lanes = [lane for lane in d.lane_steps() if lane[0] not in (send["rank"], receive["rank"])]
    if not lanes:
        return False
    lane = d.rng.choice(lanes)
    receive["rank"], receive["stream"] = lane
    receive["step"] = d.rng.randint(0, len(d.lane_steps()[lane]))
    _make_room(d, receive)
    send["peer"] = receive["rank"]
    return True


def _make_room(d: Draft, row: Row) -> None:
    """A step of its own for a row, before the one that has its number."""
    for other in d.rows:
        same_lane = (other["rank"], other["stream"]) == (row["rank"], row["stream"])
        if other is not row and same_lane and other["step"] >= row["step"]:
            other["step"] += 1


def shift_chunk(d: Draft) -> bool:
    """One end of a transfer, or a local operation, is off by one chunk."""
    row = d.pick(Op.SEND, Op.RECV, Op.REDUCE_RECV, Op.COPY, Op.REDUCE)
    if row is None or row["buffer"] == NONE:
        return False
    by = d.rng.choice([-1, 1])
    which = d.rng.choice(["chunk", "from_chunk"]) if row["from_buffer"] != NONE else "chunk"
    if row["op"] == Op.REDUCE_RECV and (row["buffer"], row["chunk"]) == (row["from_buffer"], row["from_chunk"]):
        row["from_chunk"] += by
        which = "chunk"
    row[which] += by
    return True


def shift_pair(d: Draft) -> bool:
    """A transfer moves the chunk beside the right one."""
    pair = d.pair()
    if pair is None:
        return False
    by = d.rng.choice([-1, 1])
    for row in pair:
        if row["buffer"] != NONE:
            row["chunk"] += by
        if row["from_buffer"] != NONE:
            row["from_chunk"] += by
    return True


def swap_steps(d: Draft) -> bool:
    found = d.neighbours(records_too=True)
    if found is None:
        return False
    first, second = found
    a, b = first[0]["step"], second[0]["step"]
    for row in first:
        row["step"] = b
    for row in second:
        row["step"] = a
    return True


def swap_far_steps(d: Draft) -> bool:
    lanes = [steps for steps in d.lane_steps().values() if len(steps) > 1]
    if not lanes:
        return False
    first, second = d.rng.sample(d.rng.choice(lanes), 2)
    a, b = first[0]["step"], second[0]["step"]
    for row in first:
        row["step"] = b
    for row in second:
        row["step"] = a
    return True


def merge_steps(d: Draft) -> bool:
    found = d.neighbours(records_too=False)
    if found is None:
        return False
    for row in found[1]:
        row["step"] = found[0][0]["step"]
    return True


def split_step(d: Draft) -> bool:
    """A row leaves its step, for one of its own right after it."""
    crowded = [s for steps in d.lane_steps().values() for s in steps if len(s) > 1]
    if not crowded:
        return False
    row = d.rng.choice(d.rng.choice(crowded))
    row["step"] += 1
    _make_room(d, row)
    return True


def send_to_reduce(d: Draft) -> bool:
    """A copy becomes a reduction, or the other way round."""
    row = d.pick(Op.RECV, Op.REDUCE_RECV, Op.COPY, Op.REDUCE)
    if row is None or row["buffer"] == NONE:
        return False
    if row["op"] == Op.RECV:
        row["op"], row["from_buffer"], row["from_chunk"] = Op.REDUCE_RECV, row["buffer"], row["chunk"]
    elif row["op"] == Op.REDUCE_RECV:
        row["op"], row["from_buffer"], row["from_chunk"] = Op.RECV, NONE, NONE
    else:
        row["op"] = Op.COPY if row["op"] == Op.REDUCE else Op.REDUCE
    return True


def move_step(d: Draft) -> bool:
    """A step goes to another stream of its rank; its connections stay."""
    lanes = d.lane_steps()
    steps = d.rng.choice(list(lanes.values()))
    step = d.rng.choice(steps)
    streams = [s for s in range(len(d.table.streams)) if s != step[0]["stream"]]
    if not streams:
        return False
    stream = d.rng.choice(streams)
    there = lanes.get((step[0]["rank"], stream), [])
    at = d.rng.choice([0, len(there), d.rng.randint(0, len(there))])
    for other in (r for s in there[at:] for r in s):
        other["step"] += 1
    number = there[at][0]["step"] - 1 if at < len(there) else (there[-1][0]["step"] + 1 if there else 0)
    for row in step:
        row["stream"], row["step"] = stream, number
    return True


def drop_wait(d: Draft) -> bool:
    row = d.pick(Op.WAIT)
    if row is None:
        return False
    d.remove(row)
    return True


def drop_event(d: Draft) -> bool:
    """A record goes, with all its waits."""
    row = d.pick(Op.RECORD)
    if row is None:
        return False
    d.remove(*(r for r in d.rows if (r["rank"], r["event"]) == (row["rank"], row["event"])))
    return True


def drop_record(d: Draft) -> bool:
    row = d.pick(Op.RECORD)
    if row is None:
        return False
    d.remove(row)
    return True


def change_count(d: Draft) -> bool:
    row = d.pick(Op.SEND, Op.RECV, Op.REDUCE_RECV, Op.COPY, Op.REDUCE)
    if row is None:
        return False
    row["count"] = max(1, row["count"] + d.rng.choice([-1, 1]))
    return True


def change_pair_count(d: Draft) -> bool:
    pair = d.pair()
    if pair is None:
        return False
    count = max(1, pair[0]["count"] + d.rng.choice([-1, 1]))
    for row in pair:
        row["count"] = count
    return True


def change_buffer(d: Draft) -> bool:
    row = d.pick(Op.SEND, Op.RECV, Op.REDUCE_RECV, Op.COPY, Op.REDUCE)
    if row is None or row["buffer"] == NONE or len(d.table.buffers) < 2:
        return False
    row["buffer"] = d.rng.randrange(len(d.table.buffers))
    return True


def change_chan(d: Draft) -> bool:
    """A transfer, or one end of it, uses another connection."""
    pair = d.pair()
    if pair is None or len(d.table.streams) < 2:
        return False
    chan = d.rng.randrange(len(d.table.streams))
    for row in pair if d.rng.random() < 0.7 else pair[:1]:
        row["chan"] = chan
    return True


def swap_rows(d: Draft) -> bool:
    """Two rows of a step change places: which sends and receives they pair with, and the order of sums."""
    crowded = [s for steps in d.lane_steps().values() for s in steps if len(s) > 1]
    if not crowded:
        return False
    a, b = d.rng.sample(d.rng.choice(crowded), 2)
    i, j = (next(k for k, r in enumerate(d.rows) if r is x) for x in (a, b))
    d.rows[i], d.rows[j] = d.rows[j], d.rows[i]
    return True


def fuse(d: Draft) -> bool:
    """A receive and a send of what it stores, in neighbouring steps or one step, become one operation."""
    candidates = []
    for steps in d.lane_steps().values():
        for a, b in zip(steps, [*steps[1:], []], strict=True):
            for receive in a:
                for send in (*a, *b):
                    alike = all(receive[c] == send[c] for c in ("buffer", "chunk", "count"))
                    plain = send["op"] == Op.SEND and send["of"] == NONE
                    if alike and plain and receive["op"] in (Op.RECV, Op.REDUCE_RECV):
                        candidates.append((receive, send))
    if not candidates:
        return False
    receive, send = d.rng.choice(candidates)
    send["step"], send["of"] = receive["step"], receive["id"]
    if d.rng.random() < 0.2:
        receive["buffer"], receive["chunk"] = NONE, 0
    return True


MUTATIONS: dict[str, Callable[[Draft], bool]] = {
    m.__name__: m for m in (
        drop_row, drop_pair, duplicate_row, duplicate_pair, redirect, redirect_pair, shift_chunk, shift_pair,
        swap_steps, swap_far_steps, merge_steps, split_step, send_to_reduce, move_step, drop_wait, drop_event,
        drop_record,
        change_count, change_pair_count, change_buffer, change_chan, swap_rows, fuse)
}
"""All mutations, by name."""


def mutate(table: OpTable, kind: str, rng: random.Random) -> OpTable | None:
    """``table`` with one mutation; None where it has nothing for it to change. A numbering that the table has stays as
    it was, right or wrong."""
    draft = Draft(table, rng)
    if not draft.rows or not MUTATIONS[kind](draft) or not draft.rows:
        return None
    return draft.finish()
