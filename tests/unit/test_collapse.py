"""Equal findings become one with a count; operations in words."""

from random import Random

import numpy as np
import pytest

from schedlang.ir.table import NONE, Site
from schedlang.source import Place
from schedlang.verify import collapse, words
from tests.tables import allreduce

PLACES = [None, None, Place("a.sched", 1), Place("a.sched", 1), Place("a.sched", 1, 5), Place("a.sched", 2),
          Place("b.sched", 1), None, Place("b.sched", 1)]


def placed(random, rows):
    """A table of so many rows whose sites lie at those places, and for each row which statement made it."""
    table = allreduce([dict(op="copy", rank=0, step=k, buffer="data", chunk=0, from_buffer="data", from_chunk=1)
                       for k in range(rows)], 1, chunks=2)
    site = np.array([random.randrange(len(PLACES)) for _ in range(rows)], np.int32)
    made = [site[r] if PLACES[site[r]] is None else PLACES.index(PLACES[site[r]]) for r in range(rows)]
    return table.with_columns(sites=tuple(Site(at) for at in PLACES), site=site), [int(m) for m in made]


def test_statements_are_places_in_files():
    table, _ = placed(Random(0), 1)
    assert collapse.statements(table).tolist() == [0, 1, 2, 2, 3, 4, 5, 6, 5]


def test_equal_findings():
    """Rows of one statement, beside rows of one statement or none; the first of each stands for them."""
    random = Random(1)
    for turn in range(200):
        table, made = placed(random, 30)
        size = random.randrange(0, 25)
        columns = [np.array([random.choice([*range(30), *[NONE] * 10]) for _ in range(size)], np.int64)
                   for _ in range(1 + turn % 3)]
        times = np.array([random.randint(1, 5) for _ in range(size)]) if turn % 2 else None
        groups = {}
        for k in range(size):
            key = tuple(NONE if column[k] == NONE else made[column[k]] for column in columns)
            first, count = groups.get(key, (k, 0))
            groups[key] = first, count + (1 if times is None else int(times[k]))
        assert collapse.by_statement(table, *columns, times=times) == sorted(groups.values())


@pytest.mark.parametrize(("numbers", "limit", "text"), [
    ([], 6, ""), ([3], 6, "3"), ([3, 4], 6, "3, 4"), ([5, 3, 4, 4], 6, "3 to 5"), ([0, 2, 4], 3, "0, 2, 4"),
    ([0, 2, 4], 2, "0, 2 and 1 more"), ([0, 1, 2, 4, 5, 7, 8, 9, 11], 2, "0 to 2, 4, 5 and 4 more"),
    ([0, 2, 4, 6, 8, 10], 6, "0, 2, 4, 6, 8, 10"), ([0, 2, 4, 6, 8, 10, 12, 13], 6, "0, 2, 4, 6, 8, 10 and 2 more")])
def test_numbers_in_words(numbers, limit, text):
    assert collapse.numbers(numbers, limit) == collapse.numbers(np.array(numbers, np.int64), limit) == text
    if limit == 6:
        assert collapse.numbers(numbers) == text


ROWS = [
    (dict(op="send", peer=1, buffer="data", chunk=0), "send data[0] to rank 1"),
    (dict(op="send", peer=1, buffer="data", chunk=1, count=2), "send data[1:3] to rank 1"),
    (dict(op="recv", peer=2, buffer="tmp", chunk=0), "recv tmp[0] from rank 2"),
    (dict(op="recv", peer=2, buffer=None), "recv from rank 2, storing nothing"),
    (dict(op="send", peer=1, of=3), "pass on to rank 1 what the fused receive yields"),
    (dict(op="reduce_recv", peer=1, buffer="data", chunk=0, count=2), "reduce data[0:2] from rank 1"),
    (dict(op="reduce_recv", peer=1, buffer="tmp", chunk=0, from_buffer="data", from_chunk=2),
     "reduce data[2] from rank 1 into tmp[0]"),
    (dict(op="reduce_recv", peer=1, buffer=None, from_buffer="data", from_chunk=2), "reduce data[2] from rank 1"),
    (dict(op="copy", buffer="tmp", chunk=0, from_buffer="data", from_chunk=1), "copy data[1] into tmp[0]"),
    (dict(op="reduce", buffer="data", chunk=1, from_buffer="tmp", from_chunk=0, count=2),
     "reduce tmp[0:2] into data[1:3]"),
    (dict(op="record", event="done", index=[0]), "record done"),
    (dict(op="wait", event="staged", index=[3, 0]), "wait staged[3, 0]"),
]


def test_operations_in_words():
    table = allreduce([dict(row, rank=0, step=min(k, 3) if k < 5 else k - 1, location=Place("x.sched", k + 1))
                       for k, (row, _) in enumerate(ROWS)], 3, chunks=4, scratch=[("tmp", 2)])
    for k, (_, text) in enumerate(ROWS):
        assert words.operation(table, k) == text
        assert words.sentence(table, k) == f"rank 0, step {min(k, 3) if k < 5 else k - 1}: {text} (line {k + 1})"
        note = collapse.note(table, k, "seen: ")
        assert (note.message, note.location) == (f"seen: {words.sentence(table, k)}", Place("x.sched", k + 1))
        assert collapse.note(table, k).message == words.sentence(table, k)


def test_the_last_statement_is_not_taken_for_none():
    table, _ = placed(Random(0), 2)
    table = table.with_columns(sites=(Site(None), Site(None)), site=np.array([0, 1], np.int32))
    assert collapse.by_statement(table, np.array([0, 1]), np.array([1, NONE])) == [(0, 1), (1, 1)]
