"""Whole columns at once: the steps of lanes, rows as slices, and what busy lanes show of the longest chain."""

import numpy as np
import pytest

from schedlang.expand import rows as expand_rows
from schedlang.ir.table import PIECE, chosen, spaced
from schedlang.verify import races
from schedlang.verify.matching import match
from schedlang.verify.timing import rounds
from schedlang.verify.timing.lanes import Lanes
from schedlang.verify.timing.order import order
from tests.tables import allreduce, ring


def counted_one_by_one(rank, stream, number):
    seen, found = {}, []
    for lane, at in zip(zip(rank.tolist(), stream.tolist(), strict=True), number.tolist(), strict=True):
        step, last = seen.get(lane, (-1, None))
        seen[lane] = (step + (at != last), at)
        found.append(seen[lane][0])
    return found


@pytest.mark.parametrize("cells", [4, 16, 64])
def test_steps_of_lanes(cells, monkeypatch):
    monkeypatch.setattr(expand_rows, "CELLS", cells)
    rng = np.random.default_rng(cells)
    for turn in range(150):
        size, ranks, streams = int(rng.integers(0, 200)), int(rng.integers(1, 6)), int(rng.integers(1, 4))
        rank = rng.integers(0, ranks, size).astype(np.int32)
        stream = np.repeat(rng.integers(0, streams, size // 20 + 1), 20)[:size].astype(np.int32)
        begins = rng.random(size) < rng.choice([0.1, 0.5, 0.9])
        if turn % 3:        # each run of a stream begins a source step
            begins[1:] |= stream[1:] != stream[:-1]
        begins[:1] = True
        number = (np.cumsum(begins, dtype=np.int32) - 1) * np.int32(20 if turn % 5 == 0 else 1)
        found = expand_rows.lane_steps(rank, stream, number, ranks, streams)
        assert found.dtype == np.int32 and found.tolist() == counted_one_by_one(rank, stream, number)


@pytest.mark.parametrize("which, found", [
    ([1, 1, 1], slice(7, 10)), ([1, 0, 1, 0], slice(7, 11, 2)), ([0, 1, 0, 1], slice(8, 11, 2)), ([], slice(7, 7)),
    ([1, 1, 0, 0], [7, 8]), ([0, 0, 0], []), ([0, 1, 1], [8, 9])])
def test_rows_that_are_chosen(which, found):
    got = chosen(np.array(which, bool), 7)
    assert got == found if isinstance(found, slice) else got.tolist() == found
    assert np.arange(20)[got].tolist() == [7 + k for k, one in enumerate(which) if one]


@pytest.mark.parametrize("rows, evenly", [
    ([], False), ([3], False), ([3, 4, 5], True), ([3, 5, 7], True), ([5, 4, 3], False), ([3, 3], False),
    ([3, 4, 6], False), ([3, 5, 4, 9], False), ([0, 2, 3, 6], False)])
def test_rows_that_rise_evenly(rows, evenly):
    got = spaced(np.array(rows, np.int32))
    assert isinstance(got, slice) == evenly
    assert np.arange(10)[got].tolist() == rows


def test_rows_that_rise_evenly_but_far_on():
    rows = np.arange(0, 4 * PIECE, 2)
    assert spaced(rows) == slice(0, 4 * PIECE - 1, 2)
    rows[PIECE + 5] += 1
    assert spaced(rows) is rows


def busy(table):
    matched = match(table)
    found = order(table, matched)
    assert found.numbered and found.complete
    seen, worked_out = rounds._busy(table, matched, found), rounds._by_number(table, matched, found)
    assert seen in (None, worked_out) and rounds.critical_path(table, matched, found) == worked_out
    return seen


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_lanes_that_are_always_busy(channels):
    table = ring(5, channels=channels)
    assert busy(table) == 8
    assert busy(table.with_columns(number=3 * table.number)) == 8       # levels without rows count nothing


def test_what_busy_lanes_do_not_show():
    table = ring(5, channels=2)
    assert busy(table.with_columns(chan=1 - table.stream)) is None              # messages cross streams
    assert busy(chain(copied=True)) is None                                     # a local step counts nothing
    assert busy(chain(copied=False)) is None                                    # no rank has two of the four levels


def chain(copied):
    """From rank to rank in steps of their own, two ranks in each; with ``copied`` the last one copies what came."""
    rows, number = [], []
    for rank in range(4):
        at = {"buffer": "data", "chunk": 0}
        rows += [{"op": "send", "rank": rank, "peer": rank + 1, "step": min(rank, 1), **at},
                 {"op": "recv", "rank": rank + 1, "peer": rank, "step": 0, **at}]
        number += [rank, rank]
    if copied:
        rows.append({"op": "copy", "rank": 4, "step": 1, "buffer": "s", "chunk": 0,
                     "from_buffer": "data", "from_chunk": 0})
        number.append(4)
    table = allreduce(rows, 5, scratch=[("s", 1)])
    return table.with_columns(number=np.array(number, np.int32))


@pytest.mark.parametrize("rows", [3, 8, 1 << 16])
@pytest.mark.parametrize("chunk, apart", [
    (lambda t: t.chunk, True),                                              # each stream has its own chunks
    (lambda t: np.where(t.stream == 0, t.chunk, t.chunk - 1), False),
    # The streams of a rank keep apart, though those of different ranks do not.
    (lambda t: (t.rank + 5 * (t.stream + t.rank) % 10).astype(np.int32), True)])
def test_streams_that_keep_apart(rows, chunk, apart, monkeypatch):
    monkeypatch.setattr(races, "ROWS", rows)
    table = ring(5, channels=2)
    table = table.with_columns(chunk=chunk(table).astype(np.int32))
    table = table.with_columns(from_chunk=np.where(table.from_buffer == 0, table.chunk, -1).astype(np.int32))
    assert races._apart(table, Lanes(table)) == apart
