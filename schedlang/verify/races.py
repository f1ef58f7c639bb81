"""No two lanes of a rank access one location in no settled order, one of them writing (language.md, Semantics 7 and
8)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from schedlang.diagnostics import Diagnostic, Note, error
from schedlang.ir.layout import Layout
from schedlang.ir.locations import Locations
from schedlang.ir.origin import at_row, came_from
from schedlang.ir.table import NONE, Array, OpTable, chosen
from schedlang.ir.words import chunks_text
from schedlang.ops import Op
from schedlang.verify import collapse, words
from schedlang.verify.sends import depth_words
from schedlang.verify.timing.lanes import Lanes, fused_sends
from schedlang.verify.timing.order import Order
from schedlang.verify.timing.reach import Reach

BLOCK = 1 << 20
"""About so many accesses to chunks are looked at together."""

ROWS = 1 << 16
"""Rows looked at together: few enough for the caches."""

DENSE = 1 << 26
"""Up to so many locations there is an array over all of them."""

SHOWN = 16
"""So many pairs of statements that race are described one by one; the last one counts those left out."""

ENOUGH = 4096
"""A search through other ranks stops after so many races."""


@dataclass(frozen=True)
class Pairs:
    """Accesses to be ordered, one entry each: rows ``first`` and ``second`` of two lanes of one rank, and the location,
    as a number (rank, buffer, chunk); whether it is the first's writing and the second's that counts."""

    first: Array
    second: Array
    location: Array
    first_writes: Array
    second_writes: Array

    def take(self, which: Array) -> Pairs:
        """Some of them."""
        return Pairs(self.first[which], self.second[which], self.location[which], self.first_writes[which],
                     self.second_writes[which])

    def by_row(self) -> Pairs:
        """The same, the row that comes first in the table as the first."""
        swap = self.first > self.second
        return Pairs(np.minimum(self.first, self.second), np.maximum(self.first, self.second), self.location,
                     np.where(swap, self.second_writes, self.first_writes),
                     np.where(swap, self.first_writes, self.second_writes))


def check(table: OpTable, order: Order, reach: Reach | None = None) -> list[Diagnostic]:
    """SL401, one finding for each pair of source statements that race; ``count`` is in how many places they do.

    Witnesses come first: a rank with one lane has no race, lanes that touch disjoint locations have none.
    """
    if table.collective.name == "barrier":  # its tokens, and parts as long as the longest, have no elements
        return []
    pairs = candidates(table, order)
    if pairs is None:
        return []
    pairs = _with_elements(table, pairs)
    node, reach = order.matching.lanes.node, reach or Reach(table, order)
    enough = ENOUGH if table.transport is None else len(pairs.first) + 1
    unordered, judged = reach.some_unordered(node[pairs.first] + 1, node[pairs.second], enough)
    racing = pairs.take(unordered)
    if table.transport is not None:
        racing = _by_messages(table, order, reach, racing)
    return _findings(table, order, reach, racing, judged) if len(racing.first) else []


def _by_messages(table: OpTable, order: Order, reach: Reach, races: Pairs) -> Pairs:
    """Without the pairs that messages order, as a transport copies them: what has arrived has been read, so the first
    is over when what it read has been received; and nothing is stored before it has arrived."""
    lanes, partner = order.matching.lanes, order.matching.partner
    taker = np.where(table.op == Op.SEND, partner, NONE)    # who receives what a row sends, or what is passed on of it
    fused = fused_sends(table)
    taker[table.of[fused]] = partner[fused]
    first, second = races.first, races.second
    sent = ~races.first_writes & (taker[first] != NONE) & _alone(table, lanes)[lanes.node[first]]
    arrives = _arrival(table, order)[second]
    over = (lanes.node[first] + 1, np.where(sent, lanes.node[taker[first]] + 1, NONE))
    begins = (lanes.node[second], np.where(races.second_writes, arrives, NONE))
    racing = np.ones(len(first), bool)
    for end, begin in ((1, 0), (0, 1), (1, 1)):
        these = np.flatnonzero(racing & (over[end] != NONE) & (begins[begin] != NONE))
        racing[these] = ~reach.across(over[end][these], begins[begin][these])
    return races.take(racing)


def _alone(table: OpTable, lanes: Lanes) -> Array:
    """Whether a step is one operation (bool, by node). Of steps with more, messages show nothing."""
    return np.bincount(lanes.node[table.of == NONE], minlength=lanes.nodes) == 1


def _arrival(table: OpTable, order: Order) -> Array:
    """For each row that receives, alone in its step, the node from which on its message can be there; NONE for others.
    A plain send is posted then; what is passed on is done, where it is one operation and not just handed through."""
    lanes, node = order.matching.lanes, order.matching.lanes.node
    alone = _alone(table, lanes)
    found = np.full(len(table), NONE, np.int32)
    rows = np.flatnonzero(((table.op == Op.RECV) | (table.op == Op.REDUCE_RECV)) & alone[node])
    send = order.matching.partner[rows]
    passes_on = (table.of[send] != NONE) & alone[node[send]] & (order.sends.depth != 0)
    found[rows] = node[send] + passes_on
    return found


def candidates(table: OpTable, order: Order) -> Pairs | None:
    """The pairs of accesses whose order has to be shown: if these are ordered, all conflicting accesses are.

    In a legal execution, each read comes after the last write of its location, and before the next one; each write
    comes after the write before it. Order is transitive, so these few pairs decide. None where there is nothing to
    show. An access begins with its step; what a transport brings, though, is stored once it has arrived.
    """
    lanes = order.matching.lanes
    if int(lanes.per_rank(table.ranks).max(initial=0)) < 2 or _apart(table, lanes):
        return None
    places, shared = Locations(table.ranks, table.buffers), None
    if places.total <= DENSE:
        shared = _shared(table, order, places)
        if not shared.any():
            return None
    found = []
    posted = stored = order.posted
    if table.transport is not None:
        posted, stored = 4 * posted.astype(np.int64), _stored(table, order)
    for *block, write in _blocks(table):
        row, location = _touched(table, places, *block)
        keep = order.posted[row] != NONE
        if shared is not None:
            keep &= shared[location]
        row, location = row[keep], location[keep]
        found.append((row, location, np.full(len(row), write), (stored if write else posted)[row]))
    row, location, writes, begin = (np.concatenate(column) for column in zip(*found, strict=True))
    return _adjacent(order, lanes.node, row, location, writes, begin)


def _stored(table: OpTable, order: Order) -> Array:
    """When each row begins to store, in quarters of a level: with its step, at 0; once its message has arrived, that
    being posted, at 1; or passed on, at 2. All of that comes after whatever is over before it, and before the next
    level."""
    arrives = _arrival(table, order)
    found = 4 * order.posted.astype(np.int64)
    rows = np.flatnonzero(arrives != NONE)
    send = order.matching.partner[rows]
    passed = arrives[rows] != order.matching.lanes.node[send]
    arrived = np.where(passed, 4 * order.done[send].astype(np.int64) + 2, found[send] + 1)
    found[rows] = np.maximum(found[rows] + 1, arrived)
    return found


def _apart(table: OpTable, lanes: Lanes) -> bool:
    """Whether the lanes of each rank keep to ranges of chunks that do not meet: the first to the last chunk that a lane
    names, all buffers side by side."""
    streams = len(table.streams)
    first, last = _named(table, table.stream, streams)      # of each stream on all ranks: cheaper, and mostly enough
    used = np.flatnonzero(last != NONE)
    used = used[np.argsort(first[used])]
    if (first[used[1:]] > last[used[:-1]]).all():
        return True
    first, last = _named(table, lanes.lane, len(lanes.start))
    used = lanes.used[last[lanes.used] != NONE]
    by = used[np.lexsort((first[used], lanes.rank[used]))]
    together = lanes.rank[by[1:]] == lanes.rank[by[:-1]]
    return bool((first[by[1:]] > last[by[:-1]])[together].all())


def _named(table: OpTable, owner: Array, owners: int) -> tuple[Array, Array]:
    """The first and the last chunk, all buffers side by side, that the rows of each owner name; the last is NONE where
    they name none. ``owner``: one a row."""
    offset = np.cumsum([0, *(b.chunks for b in table.buffers)], dtype=np.int64)
    first, last = np.full(owners, offset[-1]), np.full(owners, NONE, np.int64)
    for start in range(0, len(table), ROWS):
        rows = slice(start, start + ROWS)
        mine, count, buffer, chunk = owner[rows], table.count[rows], table.buffer[rows], table.chunk[rows]
        other, source = table.from_buffer[rows], table.from_chunk[rows]
        one = bool((mine == mine[0]).all())
        for some, at, begin in ((buffer != NONE, buffer, chunk),
                                ((other != NONE) & ((other != buffer) | (source != chunk)), other, source)):
            if not some.any():
                continue
            which = chosen(some)
            low = offset[at[which]] + begin[which]
            high = low + (count[which] - 1)
            if one:
                first[mine[0]] = min(int(first[mine[0]]), int(low.min()))
                last[mine[0]] = max(int(last[mine[0]]), int(high.max()))
            else:
                own = mine[which].astype(np.int64)
                np.minimum.at(first, own, low)
                np.maximum.at(last, own, high)
    return first, last


def _adjacent(order: Order, node: Array, row: Array, location: Array, writes: Array, begin: Array) -> Pairs | None:
    """Of the accesses given, those pairs that decide; two accesses of one step that begin together count as one."""
    by = np.lexsort((row, node[row], begin, location))
    row, location, writes, begin = row[by], location[by], writes[by], begin[by]
    new = np.ones(len(row), bool)
    new[1:] = (node[row[1:]] != node[row[:-1]]) | (location[1:] != location[:-1]) | (begin[1:] != begin[:-1])
    start = np.flatnonzero(new)
    if not len(start):
        return None
    wrote = np.logical_or.reduceat(writes, start)
    group = np.cumsum(new) - 1
    shown = row[start]  # the row that stands for the step: its first write, else its first read
    writing = np.flatnonzero(writes)[::-1]
    shown[group[writing]] = row[writing]
    place = location[start]
    index = np.arange(len(start))
    here = np.searchsorted(place, place)  # the first access of the location
    last = np.maximum.accumulate(np.where(wrote, index, NONE))
    last = np.concatenate([[NONE], last[:-1]])  # the last write before each access, of this or an earlier location
    after_write = np.flatnonzero(last >= here)
    following = np.minimum.accumulate(np.where(wrote, index, len(start))[::-1])[::-1]
    following = np.concatenate([following[1:], [len(start)]])  # the next write after each access
    before_write = np.flatnonzero(~wrote & (following < len(start)))
    before_write = before_write[place[following[before_write]] == place[before_write]]
    first = np.concatenate([last[after_write], before_write])
    second = np.concatenate([after_write, following[before_write]])
    lane = order.matching.lanes.lane[shown]
    differ = lane[first] != lane[second]
    first, second = first[differ], second[differ]
    return Pairs(shown[first], shown[second], place[first], wrote[first], wrote[second]) if len(first) else None


def accesses(table: OpTable, start: int = 0,
             stop: int | None = None) -> Iterator[tuple[Array, Array, Array, Array, bool]]:
    """All accesses of the rows from ``start`` to ``stop``, as (rows, buffer, chunk, count, whether they write), kind by
    kind."""
    op = table.op[start:stop]
    sends = np.flatnonzero((op == Op.SEND) & (table.of[start:stop] == NONE)) + start
    yield sends, table.buffer[sends], table.chunk[sends], table.count[sends], False
    operands = np.flatnonzero((op == Op.REDUCE_RECV) | (op == Op.COPY) | (op == Op.REDUCE)) + start
    yield operands, table.from_buffer[operands], table.from_chunk[operands], table.count[operands], False
    stores = np.flatnonzero((op > Op.SEND) & (op < Op.RECORD) & (table.buffer[start:stop] != NONE)) + start
    yield stores, table.buffer[stores], table.chunk[stores], table.count[stores], True


def _blocks(table: OpTable) -> Iterator[tuple[Array, Array, Array, Array, bool]]:
    """All accesses, in pieces of a bounded number of rows and of chunks (or of one row)."""
    for start in range(0, len(table), ROWS):
        for row, buffer, chunk, count, write in accesses(table, start, start + ROWS):
            if not len(row):
                continue
            if int(count.max()) * len(row) <= BLOCK:
                yield row, buffer, chunk, count, write
                continue
            total = np.cumsum(count, dtype=np.int64)
            cuts = np.searchsorted(total, np.arange(BLOCK, int(total[-1]), BLOCK)).tolist()
            for a, b in pairwise(sorted({0, *cuts, len(row)})):
                yield row[a:b], buffer[a:b], chunk[a:b], count[a:b], write


def _touched(table: OpTable, places: Locations, row: Array, buffer: Array, chunk: Array,
             count: Array) -> tuple[Array, Array]:
    """The rows, each as often as it has chunks, and the location of each of those."""
    first = places.at(buffer, table.rank[row], chunk)
    if not len(row) or int(count.max()) == 1:
        return row, first
    spread = np.repeat(np.arange(len(row)), count)
    within = np.arange(len(spread)) - np.repeat(np.cumsum(count, dtype=np.int64) - count, count)
    return row[spread], first[spread] + within


def _shared(table: OpTable, order: Order, places: Locations) -> Array:
    """Which locations several lanes touch, one of them writing (bool, by location)."""
    lane = order.matching.lanes.lane
    owner = np.full(places.total, NONE, np.int32)
    shared, written = np.zeros(places.total, bool), np.zeros(places.total, bool)
    for *block, write in _blocks(table):
        these, location = _touched(table, places, *block)
        mine, before = lane[these], owner[location]
        shared[location[(before != mine) & (before != NONE)]] = True    # met in an earlier block
        owner[location] = mine
        shared[location[owner[location] != mine]] = True                # met later in this one
        if write:
            written[location] = True
    return shared & written


def _with_elements(table: OpTable, pairs: Pairs) -> Pairs:
    """Without parts that have no elements: they are never accessed. Which they are is known where a proof holds for one
    matrix of counts only."""
    if not table.collective.counts_read:
        return pairs
    buffer, rank, chunk = Locations(table.ranks, table.buffers).apart(pairs.location)
    kept = Layout(table, None).length(buffer, chunk, rank) > 0
    return pairs.take(kept)


def _findings(table: OpTable, order: Order, reach: Reach, races: Pairs, judged: bool) -> list[Diagnostic]:
    """One finding for each pair of source statements; the earliest race is the one shown. The access that comes first
    in the source is taken to be meant to come first."""
    races = _telling(order, races.by_row())
    by = np.lexsort((races.location, order.posted[races.second]))
    statement = collapse.statements(table)
    kinds = statement[table.site[races.first[by]]] * len(statement) + statement[table.site[races.second[by]]]
    _, first, counts = np.unique(kinds, return_index=True, return_counts=True)
    findings = []
    for index, count in collapse.shown(sorted(zip(first.tolist(), counts.tolist(), strict=True)), SHOWN):
        k = int(by[index])
        earlier, second, location = int(races.first[k]), int(races.second[k]), int(races.location[k])
        if table.transport is None:     # else messages may order what is later
            earlier = _latest(table, order, reach, earlier, second, location)
        findings.append(_finding(table, order, earlier, second, location, count, judged))
    return findings


def _telling(order: Order, races: Pairs) -> Pairs:
    """Without the races that go away with another: of several with one access on the one side, and on the other
    accesses of one lane, only the one that leaves the least room counts."""
    lane, node = order.matching.lanes.lane, order.matching.lanes.node
    for latest in (True, False):
        fixed, other = (races.second, races.first) if latest else (races.first, races.second)
        by = np.lexsort((-node[other] if latest else node[other], lane[other], fixed, races.location))
        keep = np.ones(len(by), bool)
        same = [column[by][1:] == column[by][:-1] for column in (lane[other], fixed, races.location)]
        keep[1:] = ~np.logical_and.reduce(same)
        races = races.take(by[keep])
    return races


def _latest(table: OpTable, order: Order, reach: Reach, first: int, second: int, location: int) -> int:
    """The last access that races with ``second``, of those in the lane of ``first`` before it in the source."""
    lanes, places = order.matching.lanes, Locations(table.ranks, table.buffers)
    rows, writes = [], []
    for row, buffer, chunk, count, write in accesses(table):
        near = (row < second) & (lanes.lane[row] == lanes.lane[first]) & (lanes.node[row] > lanes.node[first])
        row, found = _touched(table, places, row[near], buffer[near], chunk[near], count[near])
        rows.append(row[found == location])
        writes.append(np.full(len(rows[-1]), write))
    row, wrote = np.concatenate(rows), np.concatenate(writes)
    buffer_there, _, chunk_there = places.where(location)
    if _does(table, second, buffer_there, chunk_there) == "reads":
        row = row[wrote]
    after = np.full(len(row), lanes.node[second] + 1)
    row = row[(order.posted[row] != NONE) & ~reach.ordered(after, lanes.node[row])]
    return int(row[np.argmax(lanes.node[row])]) if len(row) else first


def _finding(table: OpTable, order: Order, first: int, second: int, location: int, count: int,
             judged: bool) -> Diagnostic:
    buffer, rank, chunk = Locations(table.ranks, table.buffers).where(location)
    where = chunks_text(table, buffer, chunk)
    stream = [table.streams[int(table.stream[row])] for row in (first, second)]
    does = [_does(table, row, buffer, chunk) for row in (first, second)]
    notes = [collapse.note(table, first, "one access: "), collapse.note(table, second, "the other: ")]
    if table.op[first] == Op.SEND and table.transport is None:
        notes.append(Note("that the message has arrived does not show that the sender is done with its buffer: only "
                          "the stream of the send knows"))
    if not judged:
        notes.append(Note("the search stopped here; there may be more races"))
    return at_row(error(
        "SL401",
        f"nothing orders two accesses to {where} on rank {rank} ({depth_words(order.sends.depth)}): "
        f"{words.operation(table, first)} on stream {stream[0]}{came_from(table, first)} {does[0]} it, "
        f"{words.operation(table, second)} on stream {stream[1]}{came_from(table, second)} {does[1]} it",
        notes=notes,
        help=f"record an event on stream {stream[0]} of rank {rank} after \"{words.operation(table, first)}\" and wait "
             f"for it on stream {stream[1]} before \"{words.operation(table, second)}\"; or use another buffer",
        count=count, rank=rank, buffer=table.buffers[buffer].name, chunk=chunk, first=first, second=second),
        table, second, first)


def _does(table: OpTable, row: int, buffer: int, chunk: int) -> str:
    """``reads`` or ``writes``: the most that a row does with a location."""
    low, count = int(table.chunk[row]), int(table.count[row])
    writes = (table.op[row] != Op.SEND and table.buffer[row] == buffer and low <= chunk < low + count)
    return "writes" if writes else "reads"
