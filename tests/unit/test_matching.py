"""Which send goes with which receive, and whether numbers of source steps say so: against a plain account."""

from collections import Counter, defaultdict
from random import Random

import numpy as np
import pytest

from schedlang.ir.build import table_from_rows
from schedlang.ir.table import NONE, Buffer, Collective, Site
from schedlang.ops import Op
from schedlang.verify import matching
from schedlang.verify.matching import SHOWN, match, numbers_rise
from schedlang.verify.timing.lanes import Lanes


def source_steps(random):
    """A table of a few source steps, each of transfers and copies of three ranks; both ends of a transfer stand side by
    side, or sends first, or in any order."""
    rows, at = [], Counter()
    crossed = random.random() < 0.2
    for number in range(random.randint(1, 4)):
        used, step = set(), []
        for _ in range(random.randint(1, 3)):
            source, target = random.sample(range(3), 2)
            stream = random.choice("ab")
            common = dict(buffer="data", chunk=0, stream=stream, chan="ab"[(stream == "b") ^ crossed])
            step += [dict(op="send", rank=source, peer=target, **common),
                     dict(op=random.choice(["recv", "reduce_recv"]), rank=target, peer=source, **common)]
            if random.random() < 0.15:
                step.append(dict(op="copy", rank=source, buffer="data", chunk=1, from_buffer="data", from_chunk=2,
                                 stream=stream))
        if (way := random.random()) < 0.3:
            step.sort(key=lambda row: row["op"] != "send")
        elif way < 0.4:
            random.shuffle(step)
        for row in step:
            lane = row["rank"], row["stream"]
            rows.append(dict(row, step=at[lane], count=1, number=number))
            used.add(lane)
        at.update(dict.fromkeys(used, 1))
    if random.random() < 0.2:
        random.shuffle(rows)
    for _ in range(random.choice([0, 0, 1, 2])):
        random.choice(rows)["count"] += random.choice([1, 2])
    for _ in range(random.choice([0, 0, 0, 1])):
        random.choice(rows)["number"] += random.choice([-1, 1, 1])
    if random.random() < 0.1 and len(rows) > 1:
        rows.remove(random.choice(rows))
    table = table_from_rows(rows, ranks=3, chunks=6, collective=Collective("allreduce", "sum"),
                            buffers=[Buffer("data", 6, role="data")])
    return table.with_columns(number=np.array([row["number"] for row in rows], np.int32),
                              sites=(Site(None),) * len(rows), site=np.arange(len(rows), dtype=np.int32))


def paired(table):
    """The partner of each row, first-in first-out on each connection; NONE: it has none."""
    ends = defaultdict(lambda: ([], []))
    for row in sorted(range(len(table)), key=lambda r: (table.step[r], r)):
        op, here, there = Op(table.op[row]), int(table.rank[row]), int(table.peer[row])
        if op is Op.SEND:
            ends[here, there, int(table.chan[row])][0].append(row)
        elif op in (Op.RECV, Op.REDUCE_RECV):
            ends[there, here, int(table.chan[row])][1].append(row)
    partner = [NONE] * len(table)
    for sends, receives in ends.values():
        for send, receive in zip(sends, receives):
            partner[send], partner[receive] = receive, send
    return partner


def rising(table):
    """Whether every step of every lane has one number that is larger than those before it, none below 0."""
    lanes = defaultdict(lambda: defaultdict(set))
    for row in range(len(table)):
        lanes[table.rank[row], table.stream[row]][table.step[row]].add(int(table.number[row]))
    for steps in lanes.values():
        numbers = [n for _, n in sorted(steps.items())]
        if any(len(n) > 1 for n in numbers) or [*map(min, numbers)] != sorted({*map(min, numbers)}):
            return False
    return int(table.number.min()) >= 0


def neighbours(table):
    """Whether each send stands right before its receive, with one number and one channel, that of its stream."""
    transfers = np.flatnonzero(table.op <= Op.REDUCE_RECV).tolist()
    sends = [row for row in transfers if table.op[row] == Op.SEND]
    return transfers == [row for send in sends for row in (send, send + 1)] and all(
        table.rank[row] == table.peer[row + 1] and table.peer[row] == table.rank[row + 1]
        and table.chan[row] == table.chan[row + 1] == table.stream[row] == table.stream[row + 1]
        and table.number[row] == table.number[row + 1] for row in sends)


@pytest.mark.parametrize("block", [1 << 16, 4])
def test_pairs_of_source_steps(block, monkeypatch):
    monkeypatch.setattr(matching, "BLOCK", block)
    random, seen = Random(3), Counter()
    for _ in range(250):
        table = source_steps(random)
        partner, found, rises = paired(table), match(table), rising(table)
        assert found.partner.tolist() == partner and numbers_rise(table, Lanes(table)) == rises
        side_by_side = neighbours(table)
        assert matching._alternate(table) == (side_by_side and bool((table.op <= Op.REDUCE_RECV).all()))
        assert not rises or (matching._neighbours(table) is not None) == side_by_side
        transfers = [row for row in range(len(table)) if table.op[row] <= Op.REDUCE_RECV]
        alone = [row for row in transfers if partner[row] == NONE]
        assert found.numbered == (rises and not alone and all(
            table.number[row] == table.number[partner[row]] for row in transfers))
        differ = [(row, partner[row]) for row in transfers if table.op[row] == Op.SEND and partner[row] != NONE
                  and table.count[row] != table.count[partner[row]]]
        told = [d for d in found.diagnostics if d.code == "SL303"]
        assert [(d.witness["send"], d.witness["receive"], d.count) for d in told] == [(*pair, 1) for pair in differ]
        lonely = [(d.code, d.witness["row"], d.count) for d in found.diagnostics if d.code in ("SL301", "SL302")]
        assert lonely == [(code, row, 1) for code in ("SL301", "SL302") for row in alone
                          if (table.op[row] == Op.SEND) == (code == "SL301")]
        seen.update(numbered=found.numbered, rises=rises and not found.numbered, falls=not rises, differ=bool(differ),
                    alone=bool(alone), alternate=matching._alternate(table) and rises,
                    neighbours=rises and not matching._alternate(table) and matching._neighbours(table) is not None)
    assert min(seen.values()) > 5 and len(seen) == 7, seen


def test_statements_beyond_the_limit_count_with_the_last():
    rows = [dict(op="send", rank=0, peer=1, buffer="data", chunk=0, step=k, count=1 + k % 2) for k in range(20)]
    rows += [dict(op="recv", rank=1, peer=0, buffer="data", chunk=0, step=k, count=2 - k % 2) for k in range(20)]
    table = table_from_rows(rows, ranks=2, chunks=2, collective=Collective("allreduce", "sum"),
                            buffers=[Buffer("data", 2, role="data")])
    table = table.with_columns(sites=(Site(None),) * 40, site=np.arange(40, dtype=np.int32))
    found = match(table).diagnostics
    assert [(d.code, d.count) for d in found] == [("SL303", 1)] * (SHOWN - 1) + [("SL303", 20 - SHOWN + 1)]


def one_connection(sent, taken, sites):
    """Rank 0 sends messages of these sizes, rank 1 receives with those, all in one step; ``sites``: their
    statements."""
    rows = [dict(op="send", rank=0, peer=1, buffer="data", chunk=0, count=n) for n in sent]
    rows += [dict(op="recv", rank=1, peer=0, buffer="data", chunk=0, count=n) for n in taken]
    table = table_from_rows(rows, ranks=2, chunks=4, collective=Collective("allreduce", "sum"),
                            buffers=[Buffer("data", 4, role="data")])
    return table.with_columns(sites=(Site(None),) * len(rows), site=np.array(sites, np.int32))


@pytest.mark.parametrize("sites", [[0, 0, 1, 2], [0, 1, 2, 2]])
def test_each_two_statements_that_meet_are_told(sites):
    assert [(d.code, d.witness["send"], d.witness["receive"], d.count) for d in match(
        one_connection([1, 1], [2, 2], sites)).diagnostics] == [("SL303", 0, 2, 1), ("SL303", 1, 3, 1)]


@pytest.mark.parametrize(("sent", "taken", "meant"), [([1, 2], [2, 1], [1, 1]), ([1, 2], [2, 3], [0, 1])])
def test_a_receive_was_meant_for_another_where_the_sizes_say_so(sent, taken, meant):
    found = match(one_connection(sent, taken, range(4))).diagnostics
    assert [sum("probably meant" in n.message for n in d.notes) for d in found] == meant


def test_of_messages_that_none_receives_no_sizes_are_told():
    rows = [dict(op="send", rank=rank, peer=1 - rank, buffer="data", chunk=0, count=1 + rank) for rank in range(2)]
    table = table_from_rows(rows, ranks=2, chunks=2, collective=Collective("allreduce", "sum"),
                            buffers=[Buffer("data", 2, role="data")])
    assert [(d.code, d.count) for d in match(table).diagnostics] == [("SL301", 2)]


def test_which_operations_without_partner_are_told_together():
    """Those of a statement; statements that are all on one connection are told as one."""
    random, seen = Random(7), Counter()
    for _ in range(200):
        count = random.randint(1, 6)
        ends = [random.choice([(0, 1), (1, 0), (1, 2), (2, 0)]) for _ in range(count)]
        sites = [random.randrange(3) for _ in range(count)]
        table = table_from_rows(
            [dict(op="send", rank=a, peer=b, step=k, buffer="data", chunk=0, count=1) for k, (a, b) in enumerate(ends)],
            ranks=3, chunks=1, collective=Collective("allreduce", "sum"), buffers=[Buffer("data", 1, role="data")])
        table = table.with_columns(sites=(Site(None),) * 3, site=np.array(sites, np.int32))
        groups = defaultdict(list)
        for row, (end, site) in enumerate(zip(ends, sites)):
            alone = len({e for e, s in zip(ends, sites) if s == site}) == 1
            groups[end if alone else site].append(row)
        expected = sorted((rows[0], len(rows)) for rows in groups.values())
        assert matching._groups(table, np.arange(count)) == expected
        assert [(d.witness["row"], d.count) for d in match(table).diagnostics] == expected
        seen[len(expected)] += 1
    assert min(seen[k] for k in (1, 2, 3)) > 10, seen


def test_copies_between_messages_have_no_sizes_to_agree():
    """Every third row is a send, which stands right before its receive."""
    common = dict(buffer="data", chunk=0)
    rows = [row for k in range(2) for row in (
        dict(op="send", rank=0, peer=1, count=1, step=2 * k, **common),
        dict(op="recv", rank=1, peer=0, count=1, step=k, **common),
        dict(op="copy", rank=0, count=2 - k, step=2 * k + 1, from_buffer="data", from_chunk=2, **common))]
    table = table_from_rows(rows, ranks=2, chunks=4, collective=Collective("allreduce", "sum"),
                            buffers=[Buffer("data", 4, role="data")])
    found = match(table.with_columns(number=np.array([0, 0, 1, 2, 2, 3], np.int32)))
    assert found.numbered and found.diagnostics == () and found.partner.tolist() == [1, 0, NONE, 4, 3, NONE]
