"""The parts of the value proofs one by one, each against a plain account of what it must say: conditions, records,
walks, histories."""

import random
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from schedlang.ir.table import NONE, Ensures
from schedlang.verify.values.carriers import Carriers
from schedlang.verify.values.conditions import conditions
from schedlang.verify.values.explanations import _brought, contributions
from schedlang.verify.values.history import History, Value
from schedlang.verify.values.records import PRIME, Fingerprints, Sets, Traces, Trees, bits
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


@pytest.mark.parametrize("m", [1, 3])
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


@pytest.mark.parametrize("m", [1, 3])
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
    many = np.array([[numbers[tree]] for tree in numbers], np.uint64)
    into = many.copy()
    shapes.combine(into, many[::-1].copy())
    for row, a, b in zip(into[:, 0].tolist(), numbers, [*numbers][::-1]):
        assert shapes.terms[row] == terms(a) + terms(b)
        assert {shapes.left[row], shapes.right[row]} == {numbers[a], numbers[b]}


# Walks


def column(x, width=np.int64):
    return np.array(x, width)


def some_carriers(rng, places, carriers, fused):
    """Carriers at random, of which no two write one place in one level unless they add in turn, and their events in the
    order that Carriers promises, one by one: (level, event, turn, carrier, place)."""
    rows = []
    for _ in range(carriers):
        reads = rng.randrange(8)
        lands = reads + rng.randrange(3)
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
    return found, sorted(events)


def one_by_one(program, batches):
    return [(event, int(c), int(w)) for event, who, where in batches for c, w in zip(who, where)]


@pytest.mark.parametrize("fused", [False, True])
def test_programs_and_walks(fused):
    """The events of random carriers in their order, and what a walk over them finds, against one event after the
    other."""
    rng, n, seen = random.Random(3), 9, set()
    for k in range(60):
        carriers, events = some_carriers(rng, n, k // 2, fused)
        program = Program.of(carriers)
        batches = [(e, program.who[e][a:b], program.where[e][a:b]) for e, a, b in program.batches]
        assert one_by_one(program, batches) == [(e, c, w) for _, e, _, c, w in events]
        assert len(batches) == len({event[:3] for event in events})
        assert one_by_one(program, [*backwards(program)][::-1]) == one_by_one(program, batches)
        start = sorted(rng.sample(range(n), rng.randint(1, n)))
        conditions_ = SimpleNamespace(locations=SimpleNamespace(total=n), initial_at=column(start),
                                      initial=column([2 * s for s in start]), empty=column([]))
        sets = Sets(2 * n, 1, whole=True)
        walk = Walk(program, [sets], conditions_)
        reads = walk.run()

        # A value is (how many, which), or None where there is none yet, or () where it was made from none.
        cells = {s: (1, {2 * s}) for s in start}
        moved, operands, unset = {}, {}, []

        def look(event, c, w, cells=cells, unset=unset):
            if w not in cells:
                unset.append((c, event, w))
                return ()
            return cells[w]

        def plus(a, b):
            return (a[0] + b[0], a[1] | b[1]) if a and b else ()

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
                cells[w] = arrives(c) if event == PUT else plus(look(event, c, w), moved[c])
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
    assert seen == {READ, PUT, ADD, "unset"} | ({OPERATE, PASS} if fused else set())


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
