"""Which accesses race: of random tables all pairs of accesses are looked at, one by one."""

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from schedlang.ir.table import NONE, Buffer, Transport
from schedlang.ops import Op
from schedlang.verify import races
from schedlang.verify.matching import match
from schedlang.verify.sends import Sends
from schedlang.verify.timing import reach
from schedlang.verify.timing.order import order
from schedlang.verify.timing.reach import Reach
from tests.tables import allreduce
from tests.unit.order_oracle import random_table
from tests.unit.test_transport import exchanges

BUFFERS = (Buffer("data", 5, role="data"), Buffer("tmp", 4))


def touched(table, row):
    """The chunks that a row reads and those that it writes, as (buffer, chunk)."""
    op, count = Op(table.op[row]), int(table.count[row])
    here = {(int(table.buffer[row]), int(table.chunk[row]) + k) for k in range(count)}
    there = {(int(table.from_buffer[row]), int(table.from_chunk[row]) + k) for k in range(count)}
    if op >= Op.RECORD:
        return set(), set()
    reads = here if op is Op.SEND and table.of[row] == NONE else there if op not in (Op.SEND, Op.RECV) else set()
    writes = here if op is not Op.SEND and table.buffer[row] != NONE else set()
    return reads, writes


def racing(table, order, reach):
    """All pairs of rows that race, by the places where they do."""
    lanes, rows = order.matching.lanes, [r for r in range(len(table)) if order.posted[r] != NONE]
    both = {row: touched(table, row) for row in rows}
    found = {}
    for a in rows:
        for b in rows:
            if a >= b or table.rank[a] != table.rank[b] or lanes.lane[a] == lanes.lane[b]:
                continue
            (reads, writes), (other_reads, other_writes) = both[a], both[b]
            at = (writes & (other_reads | other_writes)) | (reads & other_writes)
            if at and not reach.ordered(lanes.node[[a, b]] + 1, lanes.node[[b, a]]).any():
                found[a, b] = at
    return found


@pytest.mark.parametrize("sends", [Sends(), Sends(0, 0), Sends(1, 1)], ids=str)
@pytest.mark.parametrize(("rows", "block", "dense"), [(1 << 16, 1 << 20, 1 << 26), (3, 4, 0), (3, 2, 1 << 26)])
def test_what_races(rows, block, dense, sends, monkeypatch):
    """Something is told where something races, and what is told does; of what goes away with another race the one that
    leaves the least room."""
    for name, value in (("ROWS", rows), ("BLOCK", block), ("DENSE", dense)):
        monkeypatch.setattr(races, name, value)
    random, seen = Random(5), Counter()
    for _ in range(40):
        table = random_table(random, statements=random.randrange(2, 8), ranks=2, streams=3, chunks=3)
        count = np.where(table.op < Op.RECORD, np.array([random.choice([1, 1, 2]) for _ in range(len(table))]), 0)
        table = table.with_columns(count=count.astype(np.int32), buffers=BUFFERS)
        done = order(table, match(table), sends)
        reach = Reach(table, done)
        due, lanes = racing(table, done, reach), done.matching.lanes
        told = races.check(table, done)
        assert bool(told) == bool(due)
        for d in told:
            first, second = d.witness["first"], d.witness["second"]
            place = [b.name for b in BUFFERS].index(d.witness["buffer"]), d.witness["chunk"]
            assert place in due[min(first, second), max(first, second)] and d.witness["rank"] == table.rank[first]
            # No access between the two, in the lane of either, races with the other.
            for a, b in due:
                if place in due[a, b] and second in (a, b):
                    other = a if b == second else b
                    assert (lanes.lane[other] != lanes.lane[first] or other > second or
                            lanes.node[other] <= lanes.node[first])
        seen[bool(due)] += 1
    assert min(seen.values()) > 5 and len(seen) == 2, seen


@pytest.mark.parametrize(("rows", "block"), [(1 << 16, 1 << 20), (3, 4), (3, 2), (5, 1)])
def test_accesses_in_pieces(rows, block, monkeypatch):
    """Each row once for each of what it reads and writes, whatever the pieces."""
    monkeypatch.setattr(races, "ROWS", rows)
    monkeypatch.setattr(races, "BLOCK", block)
    random = Random(2)
    for _ in range(20):
        table = random_table(random, statements=8, ranks=2, streams=3, chunks=3)
        count = np.where(table.op < Op.RECORD, np.array([random.choice([1, 1, 2]) for _ in range(len(table))]), 0)
        table = table.with_columns(count=count.astype(np.int32))
        found = Counter((int(r), (int(b), int(c) + k), write) for *columns, write in races._blocks(table)
                        for r, b, c, n in zip(*columns) for k in range(n))
        due = Counter((r, place, write) for r in range(len(table)) for write in (False, True)
                      for place in touched(table, r)[write])
        assert found == due


def arrival(table, done):
    """For each row the node from which on its message can be there; NONE where nothing is known of that."""
    lanes, partner = done.matching.lanes, done.matching.partner
    size = Counter(int(lanes.node[row]) for row in range(len(table)) if table.of[row] == NONE)
    found = []
    for row in range(len(table)):
        node = int(lanes.node[row])
        if Op(table.op[row]) not in (Op.RECV, Op.REDUCE_RECV) or size[node] != 1:
            found.append(NONE)
            continue
        send = int(partner[row])
        passes_on = table.of[send] != NONE and size[int(lanes.node[send])] == 1 and done.sends.depth != 0
        found.append(int(lanes.node[send]) + passes_on)
    return found, size


def racing_on_a_transport(table, done, reach):
    """All pairs of rows that race though messages order what they show."""
    lanes, partner = done.matching.lanes, done.matching.partner
    arrives, size = arrival(table, done)
    taker = {row: int(partner[row]) for row in range(len(table)) if table.op[row] == Op.SEND}
    taker |= {int(table.of[row]): int(partner[row]) for row in range(len(table)) if table.of[row] != NONE}

    def before(a, b, place):
        over, begins = [lanes.node[a] + 1], [lanes.node[b]]
        if place not in touched(table, a)[1] and a in taker and size[int(lanes.node[a])] == 1:
            over.append(lanes.node[taker[a]] + 1)
        if place in touched(table, b)[1] and arrives[b] != NONE:
            begins.append(arrives[b])
        return any(reach.across(np.array([x]), np.array([y]))[0] for x in over for y in begins)

    due = {pair: {at for at in places if not before(*pair, at) and not before(*pair[::-1], at)}
           for pair, places in racing(table, done, reach).items()}
    return {pair: places for pair, places in due.items() if places}


def test_what_races_on_a_transport():
    random, seen = Random(8), Counter()
    while min(seen[True], seen[False]) < 12:
        table = exchanges(random)
        matched = match(table)
        done = order(table, matched, Sends.on(table.transport))
        if matched.diagnostics or not done.complete:
            continue
        for sends in (Sends(0, 0), Sends(1, 1)):    # what is passed on at once is there when it is sent
            other = order(table, matched, sends)
            assert races._arrival(table, other).tolist() == arrival(table, other)[0]
        reach, arrives = Reach(table, done), arrival(table, done)[0]
        assert races._arrival(table, done).tolist() == arrives
        assert races._stored(table, done).tolist() == [
            4 * int(done.posted[row]) if at == NONE else
            max(4 * int(done.posted[row]) + 1, 4 * int(done.done[matched.partner[row]]) + 2
                if at != done.matching.lanes.node[matched.partner[row]] else
                4 * int(done.posted[matched.partner[row]]) + 1) for row, at in enumerate(arrives)]
        due, told = racing_on_a_transport(table, done, reach), races.check(table, done)
        assert bool(told) == bool(due)
        names = [b.name for b in table.buffers]
        for d in told:
            first, second = sorted((d.witness["first"], d.witness["second"]))
            assert (names.index(d.witness["buffer"]), d.witness["chunk"]) in due[first, second]
        seen[bool(due)] += 1


def raced(*rows):
    """What races in an all-reduce of two ranks over a transport; rows are (op, rank, stream, step, chunk, more)."""
    columns = [{"op": op, "rank": rank, "stream": stream, "step": step, "buffer": "data", "chunk": chunk, **more}
               | ({} if op == "copy" else {"peer": 1 - rank}) for op, rank, stream, step, chunk, more in rows]
    table = replace(allreduce(columns, 2, chunks=3, scratch=[("tmp", 1)]), transport=Transport("wire", 2))
    matched = match(table)
    assert not matched.diagnostics
    done = order(table, matched, Sends.on(table.transport))
    assert done.complete
    return [(d.code, d.witness["first"], d.witness["second"]) for d in races.check(table, done)]


COPY, ADD = {"from_buffer": "tmp", "from_chunk": 0}, {"from_buffer": "data", "from_chunk": 0}


def test_an_operand_may_be_read_before_the_message_is_there():
    """Stream b writes, and then asks for the message that stream a adds to what is written."""
    assert raced(("copy", 0, "b", 0, 0, COPY), ("send", 0, "b", 1, 1, {}), ("recv", 1, "b", 0, 1, {}),
                 ("send", 1, "b", 1, 0, {"chan": "a"}), ("reduce_recv", 0, "a", 0, 0, ADD)) == [("SL401", 0, 4)]


def test_that_a_message_was_sent_does_not_show_that_its_receiver_has_read_its_operand():
    """Rank 1 sends what stream a adds to chunk 0, then what stream b puts there."""
    assert raced(("send", 1, "b", 0, 1, {"chan": "a"}), ("send", 1, "b", 1, 2, {}), ("recv", 0, "b", 0, 0, {}),
                 ("reduce_recv", 0, "a", 0, 1, ADD)) == [("SL401", 2, 3)]


def test_on_a_transport_the_search_goes_on_to_its_end(monkeypatch):
    """What nothing on the rank orders may be ordered by messages: so it is with chunk 0, and not with chunk 1."""
    monkeypatch.setattr(races, "ENOUGH", 1)
    monkeypatch.setattr(reach, "CELLS", 1)
    assert raced(("send", 0, "a", 0, 0, {}), ("recv", 1, "a", 0, 2, {}), ("send", 1, "a", 1, 2, {"chan": "b"}),
                 ("recv", 0, "b", 1, 0, {}), ("copy", 0, "b", 0, 1, COPY), ("copy", 0, "c", 0, 1, COPY)) == [
        ("SL401", 4, 5)]
