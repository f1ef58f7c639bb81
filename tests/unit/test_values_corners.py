"""The parts of the value proofs one by one, each against a plain account of what it must say: conditions, records,
walks, histories."""

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from schedlang.ir.build import table_from_rows
from schedlang.ir.locations import Locations
from schedlang.ir.table import NONE, Buffer, Collective, Ensures
from schedlang.ops import Op
from schedlang.verify.matching import match
from schedlang.verify.steps import steps
from schedlang.verify.timing.order import order
from schedlang.verify.values import carriers as carriers_module
from schedlang.verify.values.carriers import Carriers, carriers
from schedlang.verify.values.conditions import conditions
from schedlang.verify.values.explanations import _brought, contributions
from schedlang.verify.values.history import History, Value
from schedlang.verify.values.needs import needs, receivers_without_store
from schedlang.verify.values.records import PRIME, Fingerprints, Sets, Traces, Trees, bits
from schedlang.verify.values.repeats import Watched
from schedlang.verify.values.shapes import Shapes
from schedlang.verify.values.walk import ADD, OPERATE, PASS, PUT, READ, Program, Walk, backwards
from tests.unit.test_values import build

# Conditions


def said(table):
    """What the conditions say, by (buffer, rank, chunk): the contribution a place starts with, those that it must end
    with, its length, and whether it is known to be empty."""
    found = conditions(table)
    places = [(table.buffers[b].name, r, k) for b, r, k in map(found.locations.where, range(found.locations.total))]
    start = {places[at]: int(c) for at, c in zip(found.initial_at, found.initial)}
    assert [places[found.origin(c)] for c in start.values()] == [*start]
    assert [*zip(*(x.tolist() for x in found.origins([*start.values()])))] == [
        found.locations.where(int(at)) for at in found.initial_at]
    end = {places[at]: found.expected(i) for i, at in enumerate(found.results)}
    lengths = None if found.lengths is None else dict(zip(places, found.lengths.tolist()))
    assert found.ranks == table.ranks and found.contributions == found.classes * table.ranks
    return found, start, end, lengths, {places[at] for at in found.empty}


def everyones(n, of_class):
    return [of_class * n + r for r in range(n)]


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("name", ["allreduce", "reduce", "broadcast"])
def test_conditions_of_whole_buffers(name, inplace, n, m):
    root = None if name == "allreduce" else n - 1
    before, after = ("data", "data") if inplace else ("input", "output")
    found, start, end, lengths, empty = said(build(
        name, n, [], m, None if name == "broadcast" else "sum", root, inplace, scratch=[("tmp", 2)]))
    starting = [root] if name == "broadcast" else range(n)
    assert start == {(before, r, c): c * n + r for r in starting for c in range(m)}
    ending = [root] if name == "reduce" else range(n)
    assert end == {(after, r, c): [c * n + root] if name == "broadcast" else everyones(n, c)
                   for r in ending for c in range(m)}
    assert found.classes == m and not found.unordered and not empty
    assert (lengths is None) == (m == 1)
    for (buffer, _, chunk), length in (lengths or {}).items():
        assert length == (NONE if buffer == "tmp" else chunk)


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("name", ["allgather", "gather", "reduce_scatter", "scatter", "alltoall"])
def test_conditions_of_blocks(name, inplace, n, m):
    if name == "alltoall" and inplace:
        return
    root = n - 1 if name in ("gather", "scatter") else None
    found, start, end, lengths, empty = said(build(
        name, n, [], n * m, "sum" if name == "reduce_scatter" else None, root, inplace, scratch=[("tmp", 2)]))
    before, after = ("data", "data") if inplace else ("input", "output")
    pairs = [(p, k) for p in range(n) for k in range(m)]        # the parts of all blocks
    if name in ("allgather", "gather"):
        assert start == {(before, r, r * m + k if inplace else k): (r * m + k) * n + r for r, k in pairs}
        assert end == {(after, r, q * m + k): [(q * m + k) * n + q] for q, k in pairs
                       for r in ([root] if name == "gather" else range(n))}
    elif name == "alltoall":
        assert start == {(before, r, p * m + k): (p * m + k) * n + r for r in range(n) for p, k in pairs}
        assert end == {(after, p, r * m + k): [(p * m + k) * n + r] for r in range(n) for p, k in pairs}
    else:
        assert start == {(before, r, p * m + k): (p * m + k) * n + r for p, k in pairs
                         for r in ([root] if name == "scatter" else range(n))}
        assert end == {(after, p, p * m + k if inplace else k):
                       [(p * m + k) * n + root] if name == "scatter" else everyones(n, p * m + k) for p, k in pairs}
    assert found.classes == n * m and not found.unordered and not empty
    assert (lengths is None) == (m == 1)
    for (buffer, _, chunk), length in (lengths or {}).items():
        assert length == (NONE if buffer == "tmp" else chunk % m)


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("counts", [[[3, 0, 2], [1, 1, 1], [0, 5, 4]], [[0] * 3] * 3, [[2] * 3] * 3])
@pytest.mark.parametrize(("name", "inplace"), [
    ("alltoallv", False), ("allgatherv", False), ("reduce_scatterv", False), ("allgatherv", True),
    ("reduce_scatterv", True)])
def test_conditions_of_parts_of_their_own_lengths(name, inplace, counts, read):
    n = 3
    sizes = np.array(counts if name == "alltoallv" else counts[0])
    found, start, end, lengths, empty = said(build(
        name, n, [], n, "sum" if name == "reduce_scatterv" else None, inplace=inplace, counts=sizes.tolist(),
        counts_read=read, scratch=[("tmp", 1)]))
    before, after = ("data", "data") if inplace else ("input", "output")

    def part(place):
        """Which part of the matrix or list a place holds; None: of none, it is scratch."""
        buffer, rank, chunk = place
        if buffer == "tmp":
            return None
        if name == "alltoallv":
            return (rank, chunk) if buffer == "input" else (chunk, rank)
        short = buffer == ("input" if name == "allgatherv" else "output")
        return (rank,) if short else (chunk,)

    if name == "alltoallv":
        assert start == {(before, r, p): p * n + r for r in range(n) for p in range(n)}
        right = {(after, p, r): [p * n + r] for r in range(n) for p in range(n)}
    elif name == "allgatherv":
        assert start == {(before, r, r if inplace else 0): r * n + r for r in range(n)}
        right = {(after, r, p): [p * n + p] for r in range(n) for p in range(n)}
    else:
        assert start == {(before, r, p): p * n + r for r in range(n) for p in range(n)}
        right = {(after, p, p if inplace else 0): everyones(n, p) for p in range(n)}
    none = {place for place in lengths if (sizes.max() if part(place) is None else sizes[part(place)]) == 0}
    assert empty == (none if read else set())
    assert end == {place: held for place, held in right.items() if place not in empty}
    assert found.classes == n and found.unordered is not read
    for place, length in lengths.items():
        if part(place) is None:
            assert length == NONE
        elif read:      # by how much it is shorter than the longest
            assert length == sizes.max() - sizes[part(place)]
    if not read:        # equal where they are one part, whichever it is
        of = {}
        for place, length in lengths.items():
            if part(place) is not None:
                assert of.setdefault(part(place), length) == length
        assert len({*of.values()}) == len(of) == sizes.size


def ensured(places, sources):
    """``places``: (buffer, rank, chunk) each; ``sources``: a list of such for each of them."""
    columns = [np.array(x) for x in zip(*places)]
    every = [np.array(x) for x in zip(*(s for some in sources for s in some))]
    return Ensures(*columns, np.cumsum([0, *map(len, sources)]), *every, location=(None,) * len(places))


def test_conditions_of_custom():
    """Classes are counted on through `input` and `data`, in the order of the buffers; scratch starts with nothing."""
    scratch = [("tmp", 2), ("data", 3), ("input", 2)]
    ensures = ensured([(0, 1, 0), (1, 0, 2), (2, 1, 1)], [[(2, 0, 1)], [(1, 0, 0), (2, 1, 0)], [(1, 1, 2)]])
    found, start, end, lengths, empty = said(build("custom", 2, [], scratch=scratch, ensures=ensures, op="sum"))
    assert start == {**{("data", r, k): k * 2 + r for r in range(2) for k in range(3)},
                     **{("input", r, k): (3 + k) * 2 + r for r in range(2) for k in range(2)}}
    assert end == {("tmp", 1, 0): [4 * 2], ("data", 0, 2): [0, 3 * 2 + 1], ("input", 1, 1): [2 * 2 + 1]}
    assert (found.classes, lengths, empty) == (5, None, set())
    assert [*zip(found.expected_class.tolist(), found.expected_rank.tolist())] == [(4, 0), (0, 0), (2, 1)]
    found, others, end, *_ = said(build("custom", 2, [], scratch=scratch))
    assert (others, end, found.classes) == (start, {}, 5)


def test_conditions_of_barriers():
    found, start, end, lengths, empty = said(build("barrier", 3, []))
    assert start == {("data", r, 0): r for r in range(3)}
    assert (end, lengths, empty, found.classes) == ({}, None, set(), 1)


# Words


@pytest.mark.parametrize(("ids", "words"), [
    ([], "nothing"),
    ([7], "chunk 2 of data from rank 1"),
    ([0, 2, 1], "chunk 0 of data from ranks 0 to 2"),
    ([3, 0], "chunk 0 of data from rank 0 and chunk 1 of data from rank 0"),
    ([0, 4, 8, 1], "chunk 0 of data from ranks 0, 1, chunk 1 of data from rank 1 and chunk 2 of data from rank 2"),
    ([0, 4, 8, 9], "chunk 0 of data from rank 0, chunk 1 of data from rank 1 and 2 more chunks"),
])
def test_contributions_in_words(ids, words):
    assert contributions(conditions(build("allreduce", 3, [], 5, "sum")), ids) == words


def test_contributions_of_two_buffers_in_words():
    """By the names of the buffers, then the chunks."""
    found = conditions(build("custom", 2, [], scratch=[("input", 2), ("data", 1)]))
    assert contributions(found, [2, 0, 1, 4]) == (
        "chunk 0 of data from rank 0, chunk 0 of input from ranks 0, 1 and chunk 1 of input from rank 0")


# Records


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(("ranks", "classes"), [(1, 1), (3, 2), (63, 2), (64, 2), (65, 3)])
def test_sets(ranks, classes, whole):
    sets = Sets(ranks, classes, whole=whole)
    every = np.arange(ranks * classes)

    def members(words):
        return {64 * k + b for k, word in enumerate(map(int, words[1:])) for b in range(64) if word >> b & 1}

    words = sets.initial(every)
    assert words.shape == (len(every), sets.width) and sets.width == 1 + -(-(len(every) if whole else ranks) // 64)
    for c in every.tolist():
        assert members(words[c]) == {c if whole else c % ranks}
        assert int(words[c, 0]) == (1 if whole else c // ranks + 1)
    assert bits(words[:, 1:]).tolist() == [1] * len(every)
    rng = random.Random(ranks)
    for _ in range(20):
        of_class = rng.randrange(classes)
        pool = every.tolist() if whole else everyones(ranks, 0)
        a, b = (rng.sample(pool, rng.randint(1, len(pool))) for _ in range(2))
        a, b = ([c if whole else of_class * ranks + c for c in x] for x in (a, b))
        into, other = np.zeros((1, sets.width), np.uint64), np.zeros((1, sets.width), np.uint64)
        for x, some in ((into, a), (other, b)):
            for c in some:
                sets.combine(x, sets.initial(np.array([c])))
        sets.combine(into, other)
        assert not sets.mixed and int(bits(into[:, 1:])[0]) == len({*a, *b})
        assert members(into[0]) == {c if whole else c % ranks for c in (*a, *b)}
        assert int(into[0, 0]) == (1 if whole else of_class + 1)
    if whole:
        return
    assert members([0, *sets.everyone()]) == {*range(ranks)}
    if classes > 1:
        sets.combine(words[:1], np.zeros((1, sets.width), np.uint64))       # made of something uninitialised
        assert not sets.mixed
        sets.combine(words[:1], words[ranks:ranks + 1])
        assert sets.mixed


@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 8])
def test_fingerprints_are_sums_of_elements(ranks):
    holds = Fingerprints(ranks, 3, np.random.default_rng(ranks))
    every = np.arange(3 * ranks)
    element = holds.of(every).tolist()
    assert all(0 <= e < PRIME for e in element) and len({*element}) == len(element)
    assert holds.initial(every).tolist() == [[e] for e in element]
    assert holds.sums().tolist() == [sum(element[c] for c in everyones(ranks, k)) % PRIME for k in range(3)]
    lists = [[0], [], [3 * ranks - 1, 0], [*range(3 * ranks)] * 2]
    starts = np.cumsum([0, *map(len, lists)])
    sums = holds.sums_of(starts, np.array([c for some in lists for c in some]))
    assert sums.tolist() == [sum(element[c] for c in some) % PRIME for some in lists]
    assert holds.sums_of(np.zeros(1, np.int64), np.zeros(0, np.int64)).tolist() == []
    into = holds.initial(every)
    holds.combine(into, holds.initial(every[::-1].copy()))
    assert into[:, 0].tolist() == [(a + b) % PRIME for a, b in zip(element, element[::-1])]


def test_trees_are_told_apart():
    trees = Trees(3, 2, np.random.default_rng(1))
    leaves = [trees.initial(np.array([c])) for c in range(6)]

    def both(a, b):
        into = a.copy()
        trees.combine(into, b)
        return into

    a, b, c = leaves[:3]
    assert np.array_equal(both(a, b), both(b, a))
    different = [*leaves, both(a, b), both(both(a, b), c), both(a, both(b, c)), both(both(a, c), b), both(a, a)]
    assert len({x.tobytes() for x in different}) == len(different)
    assert len({int(word) for x in different for word in x.ravel()}) == 2 * len(different)


def test_a_trace_of_one_contribution():
    trace = Traces(4)
    held = trace.initial(np.array([3, 4, 5]))
    assert held.tolist() == [[0], [1], [0]]
    trace.combine(held, np.array([[1], [0], [0]], np.uint64))
    assert held.tolist() == [[1], [1], [0]]


def test_shapes():
    """Of random sums: equal numbers are equal shapes, and the value is that of the same sum of fractions."""
    rng, shapes = random.Random(2), Shapes()
    known = [(np.zeros((1, 1), np.uint64), ())]
    for _ in range(60):
        (a, left), (b, right) = rng.choice(known), rng.choice(known)
        into = a.copy()
        shapes.combine(into, b)
        known.append((into, tuple(sorted((left, right)))))
    numbers = {}
    for word, tree in known:
        assert numbers.setdefault(tree, int(word[0, 0])) == int(word[0, 0])
    assert len({*numbers.values()}) == len(numbers)

    def terms(tree):
        return sum(map(terms, tree)) if tree else 1

    inputs = np.array([1.0, 0.5, 3.0])
    values = shapes.values(inputs, lambda x, y: x + y)
    assert values.shape == (len(shapes), 3) and values.dtype == inputs.dtype
    for tree, number in numbers.items():
        assert shapes.terms[number] == terms(tree)
        assert [Fraction(v) for v in values[number]] == [Fraction(x) * terms(tree) for x in inputs]
    alike = np.full((5, 1), numbers[tree], np.uint64)
    shapes.combine(alike, alike[:1].copy())
    assert len({*alike.ravel().tolist()}) == 1 and shapes.terms[int(alike[0, 0])] == 2 * terms(tree)
    shapes.combine(alike[:0], alike[:0])
    many = np.array([[numbers[tree]] for tree in numbers], np.uint64)
    into = many.copy()
    shapes.combine(into, many[::-1].copy())
    for row, a, b in zip(into[:, 0].tolist(), numbers, [*numbers][::-1]):
        assert shapes.terms[row] == terms(a) + terms(b)
        assert {shapes.left[row], shapes.right[row]} == {numbers[a], numbers[b]}


# Walks


def column(x, width=np.int64):
    return np.array(x, width)


def some_of(rng, size):
    return column([rng.random() < 0.3 for _ in range(size)], bool)


def some_carriers(rng, places, carriers, kind):
    """Carriers at random: plain ones, some ``fused``, or ``instant`` ones; of which no two write one place in one level
    unless they add in turn. And their events in the order that Carriers promises, one by one: (level, event, turn,
    carrier, place)."""
    rows, fused = [], kind == "fused"
    for _ in range(carriers):
        reads = rng.randrange(8)
        lands = reads if kind == "instant" else reads + rng.randrange(3)
        rows.append([reads, rng.randint(reads, lands), rng.randint(reads, lands), lands, rng.randrange(places), NONE,
                     rng.randrange(places) if fused and rng.random() < 0.3 else NONE,
                     NONE if rng.random() < 0.2 else rng.randrange(places), False, 0])
    taken = {}
    for row in rows:
        lands, target = row[3], row[7]
        before = taken.setdefault((lands, target), [])
        row[8] = row[6] == NONE and target != NONE and rng.random() < 0.5
        if target != NONE and before and not (row[8] and all(r[8] for r in before)):
            row[7], row[8] = NONE, False
            continue
        row[9] = len(before) if row[8] else 0
        before.append(row)
    for k, row in enumerate(rows if fused else ()):
        ready = [j for j in range(carriers) if rows[j][5] == NONE and j != k and rows[j][1] <= row[2]]
        if ready and rng.random() < 0.3 and not any(r[5] == k for r in rows):
            row[5], row[4] = rng.choice(ready), NONE
            row[2] = max(row[2], rows[row[5]][0], rows[row[5]][1])
            row[3] = max(row[3], row[2])
            row[7], row[8] = NONE, False
    if kind == "instant":
        rows.sort(key=lambda row: row[0])
    events = []
    for k, (reads, operates, passes, lands, source, parent, operand, target, adds, turn) in enumerate(rows):
        if parent == NONE:
            events.append((reads, READ, 0, k, source))
        else:
            events.append((passes, PASS, 0, k, parent))
        if operand != NONE:
            events.append((operates, OPERATE, 0, k, operand))
        if target != NONE:
            events.append((lands, ADD if adds else PUT, turn if adds else 0, k, target))
    reads, operates, passes, lands, source, parent, operand, target, adds, turn = zip(*rows) if rows else [()] * 10
    none = column([0] * carriers)
    found = Carriers(column(source), column(parent) if any(p != NONE for p in parent) else None,
                     column(operand) if any(o != NONE for o in operand) else None, column(target),
                     column(adds, bool), column(turn) if any(turn) else None, none, none, column(reads),
                     column(operates), column(passes), column(lands), False)
    if kind == "instant":
        level = found.reads
        found = replace(found, operates=level, passes=level, lands=level, instant=True)
    return found, sorted(events)


def one_by_one(program, batches):
    return [(event, int(c), int(w)) for event, who, where in batches for c, w in zip(who, where)]


@pytest.mark.parametrize("kind", ["plain", "fused", "instant"])
def test_programs_and_walks(kind):
    """The events of random carriers in their order, and what a walk over them finds, against one event after the
    other."""
    rng, n, seen, repeated = random.Random(3), 9, set(), 0
    for k in range(120):
        carriers, events = some_carriers(rng, n, k // 4, kind)
        program = Program.of(carriers)
        batches = [(e, program.who[e][a:b], program.where[e][a:b]) for e, a, b in program.batches]
        assert one_by_one(program, batches) == [(e, c, w) for _, e, _, c, w in events]
        assert len(batches) == len({event[:3] for event in events})
        assert one_by_one(program, [*backwards(program)][::-1]) == one_by_one(program, batches)
        if k % 3 == 0:
            start = [*range(n)] if k % 2 else [w for w in range(n) if w != 4]
        elif k % 2:
            first = rng.randrange(n)
            start = [*range(first, rng.randint(first, n - 1) + 1)]
        else:
            start = rng.sample(range(n), rng.randint(1, n))
        empty = rng.sample([w for w in range(n) if w not in start], min(n - len(start), rng.randrange(3)))
        conditions_ = SimpleNamespace(locations=SimpleNamespace(total=n), initial_at=column(start),
                                      initial=column([2 * s for s in start]), empty=column(empty))
        sets = Sets(2 * n, 1, whole=True)
        walk = Walk(program, [sets], conditions_)
        reads = walk.run()

        watched = {tree: Watched(program, [Trees(2 * n, 1, np.random.default_rng(k)) if tree else sets], conditions_)
                   for tree in (False, True)}
        for walk_again in watched.values():
            walk_again.run()

        # A value is (how many, which, the tree of its sum), or () where it was made from a place without one.
        cells = {s: (1, {2 * s}, (2 * s,)) for s in start} | {w: (0, set(), ()) for w in empty}
        moved, operands, unset, again = {}, {}, [], {False: [], True: []}

        def look(event, c, w, cells=cells, unset=unset):
            if w not in cells:
                unset.append((c, event, w))
                return ()
            return cells[w]

        def plus(a, b):
            return (a[0] + b[0], a[1] | b[1], tuple(sorted((a[2], b[2]), key=repr))) if a and b else ()

        def arrives(c, moved=moved, operands=operands):
            return plus(operands[c], moved[c]) if c in operands else moved[c]

        for _, event, _, c, w in events:
            if event == READ:
                moved[c] = look(event, c, w)
            elif event == OPERATE:
                operands[c] = look(event, c, w)
            elif event == PASS:
                moved[c] = arrives(w)
            else:
                value = arrives(c) if event == PUT else plus(look(event, c, w), moved[c])
                if event == PUT and value and w not in empty and value[:2] == cells.get(w, ())[:2]:
                    again[False] += [c] if value[0] == 1 else []
                    again[True] += [c] if value == cells[w] else []
                cells[w] = value
        if not unset:
            assert {tree: sorted(walk_again.repeats.tolist()) for tree, walk_again in watched.items()} == {
                tree: sorted(some) for tree, some in again.items()}
            repeated += len(again[True])
        assert [*zip(reads.carrier.tolist(), reads.event.tolist(), reads.location.tolist())] == unset
        for w in range(n):
            count = float(walk.count[w])
            if w not in cells:
                assert np.isnan(count)
            elif not cells[w]:
                assert count == -np.inf
            else:
                assert count == cells[w][0] and int(bits(walk.state[w:w + 1, 2:])[0]) == len(cells[w][1])
        seen |= {event for _, event, *_ in events} | ({"unset"} if unset else set())
    assert repeated > 5
    assert seen == {READ, PUT, ADD, "unset"} | ({OPERATE, PASS} if kind == "fused" else set())


def test_counts_stay_where_they_no_longer_count():
    carriers, _ = some_carriers(random.Random(1), 3, 0, "plain")
    conditions_ = SimpleNamespace(locations=SimpleNamespace(total=3), initial_at=column([]), initial=column([]),
                                  empty=column([]))
    walk = Walk(Program.of(carriers), [], conditions_)
    counts = np.array([[1.0], [2.0 ** 52], [2.0 ** 53 - 1], [2.0 ** 53], [1e300]])
    into = walk.combine(column([0]), counts.view(np.uint64).copy(), counts.view(np.uint64).copy())
    assert into.view(np.float64)[:, 0].tolist() == [2.0, *[2.0 ** 53] * 4]


@pytest.mark.parametrize("kind", ["plain", "fused", "instant"])
def test_what_the_results_need(kind):
    """From the last event to the first, one after the other."""
    rng, n, seen = random.Random(4), 9, 0
    for k in range(80):
        carriers, events = some_carriers(rng, n, k // 3, kind)
        results, empty = rng.sample(range(n), 3), rng.sample(range(n), k % 3)
        conditions_ = SimpleNamespace(locations=SimpleNamespace(total=n), results=column(results), empty=column(empty))
        idle, moved, stored = (None if rng.random() < 0.4 else some_of(rng, len(carriers)) for _ in range(3))
        kept = [None if x is None else x.copy() for x in (idle, moved, stored)]
        found = needs(Program.of(carriers), conditions_, idle, moved, stored)
        assert all(a is b is None or np.array_equal(a, b) for a, b in zip((idle, moved, stored), kept))
        alive, wanted, has_stored = {*results}, [True] * len(carriers), [True] * len(carriers)
        has_moved = [False] * len(carriers) if moved is None else moved.tolist()
        for _, event, _, c, w in reversed(events):
            if event in (PUT, ADD):
                wanted[c] = w in alive or w in empty
                happens = event == ADD or idle is None or not idle[c]
                has_stored[c] = (wanted[c] and happens) or (stored is not None and bool(stored[c]))
                has_moved[c] |= has_stored[c]
                if event == PUT and happens:
                    alive.discard(w)
                elif event == ADD and stored is not None and has_stored[c]:
                    alive.add(w)
            elif event == PASS:
                has_moved[w] |= has_moved[c]
            elif has_moved[c]:
                alive.add(w)
        assert found.moved.tolist() == has_moved and found.stored.tolist() == has_stored
        assert found.wanted.tolist() == (has_stored if idle is None else wanted)
        passed_on = {w for _, event, _, _, w in events if event == PASS}
        assert receivers_without_store(Program.of(carriers)).tolist() == [
            target == NONE and c not in passed_on for c, target in enumerate(carriers.target.tolist())]
        seen += not all(has_stored)
    assert seen > 20


# Carriers


def some_steps(rng, ranks=3, chunks=4, simple=False):
    """A table of source steps at random, numbered or not, in any order: copies, local sums, messages of several chunks;
    some of which, where it is not ``simple``, are passed on, or added to what is in another place."""
    blocks, at = [], {}
    for _ in range(rng.randrange(1, 7)):
        used = set()
        blocks.append([])

        def emit(used=used, rows=blocks[-1], **row):
            used.add(row["rank"])
            rows.append(row | {"step": at.get(row["rank"], 0)})
            return rows[-1]

        for _ in range(rng.choice([1, 1, 1, 1, 2, 3])):
            count = min(rng.choice([1, 1, 2, 3]), chunks)

            def place(count=count):
                return rng.choice(["data", "tmp"]), rng.randrange(chunks - count + 1)

            if rng.random() < 0.3:
                (a, i), (b, j) = place(), place()
                emit(op=rng.choice(["copy", "reduce"]), rank=rng.randrange(ranks), buffer=b, chunk=j, from_buffer=a,
                     from_chunk=i, count=count)
                continue
            path = [rng.randrange(ranks)]
            for _ in range(1 if simple else rng.choice([1, 1, 2, 3])):
                path.append((path[-1] + rng.randrange(1, ranks)) % ranks)
            where, what = place(), {}
            for here, there in pairwise(path):
                emit(op="send", rank=here, peer=there, count=count,
                     **(what or {"buffer": where[0], "chunk": where[1]}))
                to, own = place(), place()
                row = dict(op=rng.choice(["recv", "reduce_recv"]), rank=there, peer=here, count=count, buffer=to[0],
                           chunk=to[1])
                if row["op"] == "reduce_recv":
                    own = own if rng.random() < 0.5 and not simple else to
                    row |= dict(from_buffer=own[0], from_chunk=own[1])
                if rng.random() < 0.2 and not simple:
                    row |= dict(buffer=None, chunk=0)
                    if row["op"] == "reduce_recv":
                        row |= dict(from_buffer=own[0], from_chunk=own[1])
                what = {"of": emit(**row)}
        for rank in used:
            at[rank] = at.get(rank, 0) + 1
    steps_ = [*enumerate(blocks)]
    if rng.random() < 0.5:
        rng.shuffle(steps_)
    rows = [row for _, block in steps_ for row in block]
    number = {id(row): k for k, row in enumerate(rows)}
    rows = [row | {"of": number[id(row["of"])]} if "of" in row else row for row in rows]
    table = table_from_rows(rows, ranks=ranks, chunks=chunks, collective=Collective("allreduce", "sum"),
                            buffers=[Buffer("data", chunks, role="data"), Buffer("tmp", chunks)])
    step_of = np.array([k for k, block in steps_ for _ in block], np.int32)
    return table.with_columns(number=step_of) if rng.random() < 0.6 else table


def one_carrier_after_another(table, matched, found):
    """Carriers row by row: (source, parent, operand, target, adds, turn, sender, receiver, reads, operates, passes,
    lands)."""
    where, rows, first, folded = Locations(table.ranks, table.buffers), [], {}, Counter()

    def at(row, buffer, chunk, part):
        return NONE if buffer[row] == NONE else int(where.at(buffer[row], table.rank[row], chunk[row] + part))

    passed = {*table.of.tolist()} - {NONE}
    for row in np.flatnonzero((table.op != Op.SEND) & (table.op < Op.RECORD)).tolist():
        op, local = table.op[row], table.op[row] in (Op.COPY, Op.REDUCE)
        send = row if local else int(matched.partner[row])
        own = (table.from_buffer[row], table.from_chunk[row]) == (table.buffer[row], table.chunk[row])
        first[row] = len(rows)
        for part in range(int(table.count[row])):
            if local:
                source = at(row, table.from_buffer, table.from_chunk, part)
            else:
                source = NONE if table.of[send] != NONE else at(send, table.buffer, table.chunk, part)
            takes = op == Op.REDUCE_RECV and (not own or row in passed)
            target, adds = at(row, table.buffer, table.chunk, part), op == Op.REDUCE or (op == Op.REDUCE_RECV and own)
            step = (table.rank[row], table.step[row], target)
            rows.append([source, (int(table.of[send]), part) if table.of[send] != NONE else NONE,
                         at(row, table.from_buffer, table.from_chunk, part) if takes else NONE, target, adds,
                         folded[step] if adds and target != NONE else 0, send, row, found.posted[send],
                         found.posted[row], found.ready[send], found.done[row]])
            folded[step] += adds
    for row in rows:
        if row[1] != NONE:
            row[1] = first[row[1][0]] + row[1][1]
    return [[int(x) for x in row] for row in rows]


def carried(table):
    """The carriers of a table, compared with those made one after another; what columns it needs not have; whether they
    had to be sorted. None where it is ill-formed."""
    matched = match(table)
    found = order(table, matched)
    before_after = conditions(table)
    held = steps(table, matched.lanes, before_after)
    if "SL402" in [d.code for d in held.diagnostics]:
        return None
    c = carriers(table, matched, found, before_after.locations, held)
    rows = one_carrier_after_another(table, matched, found)
    columns = [[*x] for x in zip(*rows)] if rows else [[] for _ in range(12)]
    plain = all(p == NONE for p in columns[1]), all(o == NONE for o in columns[2]), not any(columns[5])
    assert (c.parent is None, c.operand is None) == plain[:2] and (c.turn is None or not plain[2])
    assert c.instant == (plain[0] and plain[1] and columns[8] == columns[11])
    if c.instant:
        columns = [[*x] for x in zip(*sorted(rows, key=lambda row: row[8]))]
    said = [c.source, c.parent, c.operand, c.target, c.adds, c.turn, c.sender, c.receiver, c.reads, c.operates,
            c.passes, c.lands]
    for k, (got, want) in enumerate(zip(said, columns)):
        if k == 5 and got is None:
            assert not any(want)
        elif k == 5:    # of those that add
            assert [t for t, adds in zip(got.tolist(), columns[4]) if adds] == [
                t for t, adds in zip(want, columns[4]) if adds]
        elif not (k in (1, 10) and c.parent is None) and not (k in (2, 9) and c.operand is None):
            assert got.tolist() == want, k
    return c.instant, plain, c.instant and [r[8] for r in rows] != sorted(r[8] for r in rows)


@pytest.mark.parametrize("block", [1 << 20, 3])
def test_carriers(block, monkeypatch):
    monkeypatch.setattr(carriers_module, "BLOCK", block)
    rng, kinds = random.Random(9), Counter()
    for k in range(240):
        kinds[carried(some_steps(rng, chunks=2 + k % 5, simple=bool(k % 2)))] += 1
    del kinds[None]
    assert len(kinds) >= 7 and sum(many for (*_, resorted), many in kinds.items() if resorted) > 5, kinds
    # Two ranks add two chunks to rank 0's, in the second step, whose rows stand first.
    rows = [row for r in (1, 2) for row in (
        dict(op="send", rank=r, peer=0, step=1 if r == 1 else 0, buffer="data", chunk=0, count=2),
        dict(op="reduce_recv", rank=0, peer=r, step=0, buffer="data", chunk=0, count=2))]
    rows.append(dict(op="copy", rank=1, step=0, buffer="tmp", chunk=0, from_buffer="data", from_chunk=1, count=2))
    table = table_from_rows(rows, ranks=3, chunks=3, collective=Collective("allreduce", "sum"),
                            buffers=[Buffer("data", 3, role="data"), Buffer("tmp", 3)])
    table = table.with_columns(number=np.array([1, 1, 1, 1, 0], np.int32))
    assert carried(table) == (True, (True, True, False), True)


# Histories


def test_values_added_up():
    nothing, one, two = Value(), Value(0b01, 0, 5), Value(0b11, 0b10, (6, 7))
    assert one.plus(two) == Value(0b11, 0b11, (5, (6, 7)))
    assert two.plus(one) == Value(0b11, 0b11, ((6, 7), 5))
    assert nothing.plus(one) == one.plus(nothing) == one
    assert Value(0b100, 0b100, 1).plus(one) == Value(0b101, 0b100, (1, 5))
    assert one.plus(Value(0b100, 0b100, 1)) == Value(0b101, 0b100, (5, 1))


def test_bits_stand_for_contributions():
    past = History(0, contributions=[30, 3, *range(100, 110), 7])
    assert past.bits([7, 30, 999]) == 1 | 1 << 12
    assert past.ids(1 | 1 << 12) == [7, 30] and past.ids(0) == [] and past.ids(2) == [3]
    assert past.ids(past.bits([105, 3])) == [3, 105] and past.bits([]) == 0


@pytest.mark.parametrize(("mixes", "blamed"), [
    ([], 9),
    ([(1, 0b0001, 0b0010), (2, 0b0011, 0b0100)], 2),      # the first only adds up what belongs there
    ([(1, 0b0100, 0b1000), (2, 0b1100, 0b0001)], 2),      # and this what does not
    ([(1, 0b0001, 0b0110), (2, 0b0111, 0b1000)], 1),
    ([(1, 0b0110, 0b0001), (2, 0b0111, 0b1000)], 1),
    ([(1, 0b0100, 0b1000)], 9),
    ([(1, 0b0000, 0b1000), (2, 0b0000, 0b0001)], 9),
])
def test_who_brought_what_does_not_belong(mixes, blamed):
    assert _brought(SimpleNamespace(mixes=mixes), 0b1100, 9) == blamed
