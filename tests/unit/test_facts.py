"""What a schedule costs, counted row by row in plain Python; and what no schedule goes below."""

from collections import Counter
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from schedlang.ir.build import table_from_rows
from schedlang.ir.table import Buffer, Collective
from schedlang.ops import Op
from schedlang.verify import facts, verify
from schedlang.verify.facts import Bounds, bounds, share, traffic
from tests.unit.test_values import build

ONE, TWO = Fraction(1), Fraction(2)


@pytest.mark.parametrize(("value", "text"), [
    (Fraction(0), "0"), (ONE, "n"), (TWO, "2 n"), (Fraction(7, 4), "7/4 n"), (Fraction(1, 2), "1/2 n")])
def test_shares_in_words(value, text):
    assert share(value) == text


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 9])
def test_bounds_of_all_collectives(ranks):
    log, one, others = (ranks - 1).bit_length(), Fraction(1, ranks), Fraction(ranks - 1, ranks)
    for name, sent, received in (
            ("allreduce", 2 * others, 2 * others), ("reduce", ONE, ONE), ("broadcast", ONE, ONE),
            ("reduce_scatter", others, others), ("allgather", others, others), ("alltoall", others, others),
            ("scatter", others, one), ("gather", one, others), ("barrier", 0, 0)):
        assert bounds(name, ranks) == Bounds(log, Fraction(0 if ranks == 1 else sent),
                                             Fraction(0 if ranks == 1 else received))
    for name in ("custom", "alltoallv", "allgatherv", "reduce_scatterv"):
        assert bounds(name, ranks) == Bounds(None, None, None)


def moving(random, ranks, most):
    """Random transfers of up to ``most`` chunks among a few of the ranks, and copies between them."""
    rows, some = [], random.sample(range(ranks), min(ranks, 4))
    for _ in range(random.randint(1, 30)):
        source, target = random.sample(some, 2)
        count = random.randint(1, most)
        ends = [dict(op="send", rank=source, peer=target), dict(op="recv", rank=target, peer=source)]
        for row in ends if random.random() < 0.8 else [dict(op="copy", rank=source, from_buffer="data", from_chunk=0)]:
            rows.append(dict(row, buffer="data", chunk=0, count=count, step=len(rows)))
    return rows


@pytest.mark.parametrize("block", [1 << 16, 3])
@pytest.mark.parametrize(("ranks", "most"), [(4, 1), (4, 3), (1_100, 1), (1_100, 3)])
def test_traffic_is_what_goes_over_the_links(ranks, most, block, monkeypatch):
    """Also of so many ranks that most links are not used; with lengths, too."""
    monkeypatch.setattr(facts, "BLOCK", block)
    random = Random(ranks + most)
    for _ in range(30):
        rows = moving(random, ranks, most)
        table = table_from_rows(rows, ranks=ranks, chunks=6, collective=Collective("allreduce", "sum"),
                                buffers=[Buffer("data", 6, role="data")])
        sends = np.flatnonzero(table.op == Op.SEND)
        lengths = np.array([random.randint(0, 9) for _ in sends], np.int64)
        for elements in (None, lengths):
            links, messages, sent, received = Counter(), Counter(), Counter(), Counter()
            for at, row in enumerate(sends.tolist()):
                source, target = int(table.rank[row]), int(table.peer[row])
                amount = int(table.count[row]) if elements is None else int(elements[at])
                links[source, target] += amount
                messages[source] += 1
                sent[source] += amount
                received[target] += amount

            def told(amount, elements=elements):
                return share(Fraction(amount, 6)) if elements is None else f"{amount} elements"

            bound = {f"{way}_bound": share(2 * Fraction(ranks - 1, ranks)) for way in ("sent", "received")}
            assert traffic(table, elements) == {
                **({"n": "the bytes of data"} if elements is None else {}), **bound,
                **{f"{way}_most": told(max(of.values(), default=0))
                   for way, of in (("sent", sent), ("received", received), ("link", links))},
                "sent_least": told(min(sent[r] for r in range(ranks))),
                "messages": messages.total(), "messages_most": max(messages.values(), default=0), "links": len(links)}


def test_bytes_of_a_table_without_buffers_are_not_counted():
    assert traffic(build("custom", 3, [])) == dict(messages=0, messages_most=0, links=0)


def test_bytes_of_v_collectives_are_left_out_where_lengths_are_not_known():
    counts = [1, 2, 3]
    table = build("allgatherv", 3, [[("send", "data", 0, 0, 1, "data", 0)]], chunks=3, counts=counts)
    assert traffic(table) == dict(messages=1, messages_most=1, links=1)
    assert traffic(table, np.array([4])) == dict(
        sent_most="4 elements", sent_least="0 elements", received_most="4 elements", link_most="4 elements", messages=1,
        messages_most=1, links=1)


def test_scratch_counts_where_there_is_nothing_else():
    table = build("custom", 2, [[("copy", "tmp", 0, 1, "tmp", 2)]], scratch=[("tmp", 3)])
    assert verify(table).facts["peak_scratch"] == 2
