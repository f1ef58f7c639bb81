"""Tables without some of their operations, against the same done row by row; and when what is left is in order."""

from random import Random

import numpy as np
import pytest

from schedlang.diagnostics import Severity
from schedlang.ir import legal
from schedlang.ir.table import NONE
from schedlang.ops import Op
from schedlang.verify import verify
from schedlang.verify.matching import match
from schedlang.verify.removal import settled, without
from schedlang.verify.sends import Sends
from tests.tables import ring
from tests.unit.order_oracle import random_table
from tests.unit.test_verify_corners import case

RECEIVES = (Op.RECV, Op.REDUCE_RECV)


def rows(table):
    kept = ("op", "rank", "stream", "step", "buffer", "chunk", "count", "peer", "chan", "of", "event", "site")
    return [{c: int(getattr(table, c)[i]) for c in kept} for i in range(len(table))]


def expected(table, gone, unstored):
    """What :func:`without` says, row by row."""
    old, new = rows(table), {}
    for i, row in enumerate(old):
        if gone[i]:
            continue
        new[i] = row
        if unstored[i] or (row["of"] != NONE and unstored[row["of"]]):
            row |= {"buffer": NONE, "chunk": 0}
    place = {i: k for k, i in enumerate(new)} | {NONE: NONE}
    lanes = {}
    for row in new.values():
        lanes.setdefault((row["rank"], row["stream"]), set()).add(row["step"])
    return [row | {"of": place[row["of"]], "step": sorted(lanes[row["rank"], row["stream"]]).index(row["step"])}
            for row in new.values()]


@pytest.mark.parametrize("streams", [1, 3])
def test_what_is_left(streams):
    random, left, fused = Random(streams), 0, 0
    for _ in range(150):
        table = random_table(random, statements=8, streams=streams)
        partner = match(table).partner
        gone, unstored = np.zeros((2, len(table)), bool)
        feeding = set(table.of.tolist())
        for i in np.flatnonzero(np.isin(table.op, RECEIVES)).tolist():
            if i not in feeding and random.random() < 0.4:
                gone[[i, partner[i]]] = True
            elif table.op[i] == Op.RECV and random.random() < 0.5:
                unstored[i] = True
                fused += i in feeding
        found = without(table, gone, unstored)
        assert rows(found) == expected(table, gone, unstored)
        assert {getattr(found, c).dtype for c in ("step", "buffer", "chunk", "of")} == {np.dtype(np.int32)}
        assert legal.check(found.with_columns(buffer=table.buffer[~gone], chunk=table.chunk[~gone])) == []
        left += len(found)
    assert fused > 20 and left > 500


def test_of_a_table_that_goes_as_a_whole_nothing_is_left():
    table = ring(3)
    found = without(table, np.ones(len(table), bool), np.zeros(len(table), bool))
    assert len(found) == 0 and settled(found, Sends())
    again = without(found, np.zeros(0, bool), np.zeros(0, bool))
    assert len(again) == 0


@pytest.mark.parametrize(("name", "ranks", "sends"), [
    ("cycle_needs_depth_1", 4, {"default": False, "rendezvous": False, "buffered=1": True, "unlimited": True}),
    ("unmatched_send", 2, dict.fromkeys(["default", "rendezvous", "buffered=1", "unlimited"], False)),
    ("down_overtakes_up", 2, dict.fromkeys(["default", "rendezvous", "buffered=1", "unlimited"], False)),
])
def test_what_is_in_order(name, ranks, sends):
    assert {model: settled(case(name, ranks), Sends.parse(model)) for model in sends} == sends


def test_a_table_is_in_order_where_verify_says_so_of_the_model():
    random, differ = Random(1), 0
    for _ in range(250):
        table = random_table(random, statements=5, ranks=2, shared_chan=True, fused=False, swaps=0)
        fine = {}
        for model in ("default", "rendezvous"):
            sends = Sends.parse(model)
            found = [d.code for d in verify(table, sends=sends).diagnostics if d.severity == Severity.ERROR]
            fine[model] = not [code for code in found if code in ("SL301", "SL302", "SL303", "SL304", "SL305", "SL401")]
            assert settled(table, sends) == fine[model]
        differ += len(set(fine.values())) > 1
    assert differ > 0
