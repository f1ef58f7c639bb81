"""Source from tables: loops over the ranks but for some, and waits whose order says nothing."""

import random

import numpy as np
import pytest

from schedlang.diff.operations import difference
from schedlang.expand import expand, load_text
from schedlang.ir.loops.formulas import Affine, Lookup, Modular
from schedlang.lift.check import Renamed, same
from schedlang.lift.formulas import Among, Single, fitted
from schedlang.lift.others import fitted_in, left_out
from schedlang.ops import Op
from tests.lifted import body, comes_back
from tests.renaming import in_other_words

ALL_PAIRS = """
schedule all_pairs():
    ranks 6
    collective allreduce(sum)
    chunks ranks
    buffer landing[ranks - 1]
    for r in 0..ranks:
        for p in 0..ranks:
            if p != r:
                stream p:
                    on r:
                        send data[p] to p
                        recv landing[p if p < r else p - 1] from p
                        record landed[p]
        stream sums:
            on r:
                for i in 0..ranks:
                    wait landed[(5 * i + r) % ranks] if (5 * i + r) % ranks != r
                for s in 0..ranks - 1: reduce landing[s] into data[r]
"""


def table_of(text):
    program = load_text(text)
    table, found = expand(program, program.main(None))
    assert table is not None, found
    return table


def test_all_pairs_are_recognised_at_once():
    assert body(comes_back(in_other_words(table_of(ALL_PAIRS), random.Random(1)))) == [
        "for r in 0..ranks:",
        "    for p in 0..ranks:",
        "        if p != r:",
        "            let slot = p if p < r else p - 1",
        "            stream slot + 5 * r:",
        "                on r:",
        "                    send data[p] to p",
        "                    recv other1[slot] from p",
        "                    record landed[slot]",
        "stream local:",
        "    for r in 0..ranks:",
        "        on r:",
        "            for s in 0..ranks - 1:",
        "                wait landed[s]",
        "            for s in 0..ranks - 1:",
        "                reduce other1[s] into data[r]"]


def test_what_a_root_sends_to_the_others():
    text = body(comes_back(table_of("""
schedule fan():
    ranks 5
    collective broadcast(3)
    for p in 0..ranks: send data[0] from 3 to p if p != 3
""")))
    assert text == ["for p in 0..ranks: send data[0] from 3 to p if p != 3"]


def waiting(order):
    """A table in which a rank waits for two events, in an order, then copies."""
    waits = "\n".join(f"        on 0: {what}" for what in order)
    return table_of(f"""
schedule s():
    ranks 2
    collective custom
    buffer data[2]
    stream a:
        on 0: record one
    stream b:
        on 0:
            copy data[1] into data[0]
            record two
    stream c:
{waits}
""")


FIRST, SECOND, COPY = "wait one", "wait two", "copy data[0] into data[1]"


@pytest.mark.parametrize("order, alike", [
    ((SECOND, FIRST, COPY), True), ((FIRST, COPY, SECOND), False), ((SECOND, COPY, FIRST), False),
    ((FIRST, FIRST, COPY), False), ((COPY, SECOND, FIRST), False)])
def test_only_the_order_of_waits_without_anything_between_is_free(order, alike):
    one, other = waiting((FIRST, SECOND, COPY)), waiting(order)
    events = [-1 if e == -1 else (one.events[e], one.event_indices[e]) for e in one.event.tolist()]
    chan = [-1 if c == -1 else one.streams[c] for c in one.chan.tolist()]
    names = Renamed([one.streams[k] for k in one.stream], chan, events, [b.name for b in one.buffers])
    assert same(one, names, one)
    assert same(one, names, other) == alike
    assert (difference(one, other) == ()) == alike
    assert (one.op == Op.WAIT).sum() == 2


def others(world, out):
    """The ranks that are not among ``out(r)``, for each rank."""
    return np.array([[p for p in range(world) if p not in out(r)] for r in range(world)])


@pytest.mark.parametrize("out, told", [
    (lambda r: {r}, ["r"]), (lambda r: {r, (r + 2) % 7}, ["r", "(r + 2) % 7"]), (lambda r: {3}, ["3"]),
    (lambda r: {r, int(r == 0)}, ["r", "0 + (1 if r == 0 else 0)"])])
def test_which_ranks_are_left_out(out, told):
    ranks = np.arange(7)
    found = left_out(others(7, out), 7, ranks, {}, lambda v: fitted(v, ranks))
    assert [f.text(["r"]) for f in found] == told


@pytest.mark.parametrize("x", [
    np.arange(7)[None, :].repeat(7, 0),                             # none is left out
    others(7, lambda r: {r})[:, ::-1],                              # not in order
    others(7, lambda r: {(3 * r * r + r // 2) % 7}),                # no formula
    others(7, lambda r: {0, 1, 2, 3})])                             # more than half
def test_where_there_is_no_loop_over_the_others(x):
    ranks = np.arange(7)
    assert left_out(x, 7, ranks, {}, lambda v: fitted(v, ranks)) is None


@pytest.mark.parametrize("value, kind, text", [
    (lambda r, p: 3 * p - r + 1, Affine, "3 * p - r + 1"),
    (lambda r, p: 8 * (p - (p > r)) + r, Among, "r + 8 * (p if p < r else p - 1)"),
    (lambda r, p: 4 * ((p - r) % 7) + 1, Modular, None),
    (lambda r, p: (r - p) % 7, Modular, None),
    (lambda r, p: (r == 0) * 2 + p, Single, None),
    (lambda r, p: (r + 3) % 7, Modular, None),
    (lambda r, p: (p * p + r) % 5, Lookup, None)])
def test_formulas_over_the_others(value, kind, text):
    ranks, x = np.arange(7), others(7, lambda r: {r})
    values = np.asarray(value(ranks[:, None], x)).astype(np.int64)
    formula = fitted_in(values, ranks, 7, {1: x}, lambda v: fitted(v, ranks))
    assert isinstance(formula, kind)
    assert (formula([ranks[:, None], x]) == values).all()
    assert text is None or formula.text(["r", "p"]) == text
