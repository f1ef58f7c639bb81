"""The shipped all-reduces: rounds, bytes, messages and scratch of their closed forms, over many ranks.

n = bytes of the whole vector. Closed forms: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005; double trees: Sanders,
Speck, Träff, Parallel Computing 35(12), 2009; Swing: arXiv 2401.09356. What folding costs is counted out at its test.
"""

from fractions import Fraction

import numpy as np
import pytest

from schedlang.expand import expand, load_program
from schedlang.ops import Op
from schedlang.verify import Verdict, verify
from tests.closed_forms import EXAMPLES, bytes_sent, log, share, verdict

MANY = (*range(1, 18), 23, 31, 32, 33)
POWERS = (1, 2, 4, 8, 16, 32, 64)


def floor_log(p: int) -> int:
    """log2 p, rounded down."""
    return p.bit_length() - 1


def fold(p: int) -> int:
    """Folding in the ranks beyond a power of two waits two rounds more where there are any."""
    return 0 if p & (p - 1) == 0 else 1


def least(p: int) -> Fraction:
    """The fewest bytes an all-reduce can send: 2 (p - 1) / p."""
    return 2 * Fraction(p - 1, p)


def halves(p: int) -> Fraction:
    """Halving-doubling: with P the power of two below p, a rank of a pair sends half of the buffer to the other, then
    works on the other half as one of P, which is (P - 1) / P, and sends half of the result: 1/2 + (P - 1) / P + 1/2.
    """
    power = 1 << floor_log(p)
    return least(p) if p == power else 1 + Fraction(power - 1, power)


def double_tree_bytes(p: int) -> Fraction:
    """A rank inside one tree sends half of the buffer up and to two children, and half up the other tree; only from 4
    ranks on is there one that has two children and is no root.
    """
    return {1: Fraction(0), 2: Fraction(1), 3: Fraction(3, 2)}.get(p, Fraction(2))


def double_tree_rounds(p: int, k: int) -> int:
    """k chunks follow each other; the last goes up floor(log2 p) edges and down as many."""
    return k + 2 * floor_log(p) - 1 if p > 1 else 0


#                     worlds, rounds, most bytes sent (as many are received), most over one link, messages
CLOSED_FORMS = {
    "ring": (MANY, lambda p: 2 * (p - 1), least, least, lambda p: 2 * p * (p - 1)),
    "bidirectional_ring": (
        MANY, lambda p: 2 * (p - 1), least, lambda p: least(p) / (1 if p == 2 else 2), lambda p: 4 * p * (p - 1)),
    "halving_doubling": (
        MANY, lambda p: 2 * floor_log(p) + 2 * fold(p), halves, lambda p: p > 1,
        lambda p: 2 * (1 + fold(p)) * (1 << floor_log(p)) * floor_log(p) + 4 * (p - (1 << floor_log(p)))),
    "recursive_doubling": (
        MANY, lambda p: floor_log(p) + 2 * fold(p), lambda p: floor_log(p) + fold(p), lambda p: p > 1,
        lambda p: (1 << floor_log(p)) * floor_log(p) + 2 * (p - (1 << floor_log(p)))),
    "binomial_tree": (MANY, lambda p: 2 * log(p), log, lambda p: p > 1, lambda p: 2 * (p - 1)),
    "all_pairs": (
        MANY, lambda p: 2 * (p > 1), least, lambda p: Fraction(2 * (p > 1), p), lambda p: 2 * p * (p - 1)),
    "all_pairs_one_shot": (
        MANY, lambda p: p > 1, lambda p: p - 1, lambda p: p > 1, lambda p: p * (p - 1)),
    "swing": (POWERS, lambda p: 2 * log(p), least, lambda p: p > 1, lambda p: 2 * p * log(p)),
    "swing::swing_latency": (POWERS, log, log, lambda p: p > 1, lambda p: p * log(p)),
}


def judged(example: str, ranks: int | None = None, **params: object) -> Verdict:
    """The verdict on an all-reduce, FILE or FILE::NAME, that must be right, give all ranks the same bits and need no
    buffering.
    """
    file, _, name = example.partition("::")
    if name:
        program = load_program(str(EXAMPLES / f"allreduce/{file}.sched"))
        table, findings = expand(program, name, ranks=ranks, params=params)
        assert table is not None, findings
        v = verify(table)
    else:
        v = verdict(f"allreduce/{file}.sched", ranks, **params)
    assert v.ok
    assert v.facts["agreement"] is True
    assert v.facts["least_depth"] == 0
    return v


@pytest.mark.parametrize("example", CLOSED_FORMS)
def test_closed_form(example: str) -> None:
    worlds, rounds, sent, link, messages = CLOSED_FORMS[example]
    for p in worlds:
        v = judged(example, p)
        assert v.facts["rounds"] == rounds(p), p
        assert (bytes_sent(v), share(v, "received_most"), share(v, "link_most")) == (sent(p), sent(p), link(p)), p
        assert v.facts["messages"] == messages(p), p
        assert v.facts["peak_scratch"] == (p if example == "all_pairs_one_shot" and p > 1 else 0), p


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_ring_channels_change_neither(channels: int) -> None:
    v = judged("ring", 5, channels=channels)
    assert (v.facts["rounds"], bytes_sent(v)) == (8, Fraction(8, 5))


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8, 13])
def test_binomial_tree_from_any_root(p: int) -> None:
    for root in range(p):
        v = judged("binomial_tree", p, root=root)
        assert (v.facts["rounds"], bytes_sent(v), v.facts["messages"]) == (2 * log(p), log(p), 2 * (p - 1))


@pytest.mark.parametrize("k", [1, 2, 4, 7, 64])
def test_double_tree(k: int) -> None:
    for p in MANY if k < 64 else (1, 2, 13, 16):
        v = judged("double_tree", p, k=k)
        assert v.facts["rounds"] == double_tree_rounds(p, k), p
        assert (bytes_sent(v), share(v, "received_most")) == (double_tree_bytes(p), double_tree_bytes(p)), p
        assert v.facts["messages"] == 4 * k * (p - 1), p
        assert v.facts["peak_scratch"] == 0


@pytest.mark.parametrize("p", [*MANY, 1000, 1023, 1024])
def test_no_rank_has_children_in_both_trees(p: int) -> None:
    table = judged("double_tree", p, k=1).table
    up = table.op == Op.REDUCE_RECV
    parents = [set(table.rank[up & (table.stream == s)].tolist()) for s in range(len(table.streams))]
    if p > 1:
        assert sorted(table.streams) == ["0", "1"]
        assert all(len(ranks) == p // 2 for ranks in parents)
        assert not parents[0] & parents[1]
        assert np.bincount(table.rank[up]).max() <= 2


def apart(here: np.ndarray, there: np.ndarray, n: int) -> np.ndarray:
    """How far places are apart on a ring of n."""
    way = (there - here) % n
    return np.minimum(way, n - way)


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
@pytest.mark.parametrize("columns", [1, 2, 3, 5])
def test_torus(rows: int, columns: int) -> None:
    """2 (X - 1) + 2 (Y - 1) rounds; 2 n (p - 1) / p bytes.

    A link of X in a ring carries (X - 1) / X of half the buffer one way in the reduce-scatter, and the other way in the
    all-gather, which also has the ring of the other half, 2 (X - 1) / X of a Y-th of it. In a ring of two both ways are
    one link.
    """
    p = rows * columns
    v = judged("torus", rows=rows, columns=columns)
    assert (v.facts["rounds"], bytes_sent(v)) == (2 * (rows - 1) + 2 * (columns - 1), least(p))

    def link(x: int, y: int) -> Fraction:
        one_way = Fraction(x - 1, x) / 2
        return (2 if x == 2 else 1) * one_way + 2 * one_way / y

    assert share(v, "link_most") == max(link(columns, rows), link(rows, columns))
    assert v.facts["peak_scratch"] == 0
    sends = v.table.op == Op.SEND
    here, there = v.table.rank[sends], v.table.peer[sends]
    vertical = apart(here // columns, there // columns, rows)
    assert set(zip(vertical.tolist(), apart(here % columns, there % columns, columns).tolist(), strict=True)) <= {
        (0, 1), (1, 0)}


@pytest.mark.parametrize("example", ["swing", "swing::swing_latency"])
def test_swing_partners(example: str) -> None:
    """Step s goes |1 - (-2)^(s + 1)| / 3 far, or the other way round the ring."""
    table = judged(example, 64).table
    sends = table.op == Op.SEND
    assert set(apart(table.rank[sends], table.peer[sends], 64).tolist()) == {1, 3, 5, 11, 21}


@pytest.mark.parametrize("name", ["swing", "swing_latency"])
def test_swing_is_for_powers_of_two(name: str) -> None:
    program = load_program(str(EXAMPLES / "allreduce/swing.sched"))
    table, findings = expand(program, name, ranks=6, params={})
    assert table is None
    assert [d.code for d in findings] == ["SL207"]
    assert f"{name} needs a power of two" in findings[0].message


def crossing(v: Verdict, group: int) -> Fraction:
    """The most a rank sends to ranks outside its group of so many consecutive ranks, in vectors."""
    table = v.table
    out = (table.op == Op.SEND) & (table.rank // group != table.peer // group)
    return Fraction(int(np.bincount(table.rank[out], table.count[out], 1).max()), table.chunks)


def between(nodes: int, tree: bool, k: int) -> tuple[int, Fraction]:
    """Rounds and bytes of the all-reduce between nodes."""
    if tree:
        return double_tree_rounds(nodes, k), double_tree_bytes(nodes)
    return 2 * (nodes - 1), least(nodes)


@pytest.mark.parametrize("tree_inside", [False, True])
@pytest.mark.parametrize("tree_between", [False, True])
@pytest.mark.parametrize(("nodes", "gpus"), [(1, 1), (1, 4), (4, 1), (2, 2), (3, 4), (4, 3), (7, 5)])
def test_hierarchical(nodes: int, gpus: int, tree_between: bool, tree_inside: bool) -> None:
    """Inside 2 (g - 1) rounds by rings, 2 log2 g by trees, and 2 (g - 1) / g bytes; a network card carries a g-th of
    what the all-reduce of all nodes does.
    """
    v = judged("hierarchical", nodes=nodes, gpus=gpus, tree_inside=tree_inside, tree_between=tree_between, k=3)
    rounds, network = between(nodes, tree_between, 3)
    inside = 2 * (log(gpus) if tree_inside else gpus - 1)
    assert v.facts["rounds"] == inside + rounds
    assert bytes_sent(v) == least(gpus) + network / gpus
    assert crossing(v, gpus) == network / gpus
    assert v.facts["peak_scratch"] == 0


@pytest.mark.parametrize("tree_between", [False, True])
@pytest.mark.parametrize(
    ("racks", "nodes", "gpus"),
    [(1, 1, 1), (1, 1, 3), (1, 3, 1), (3, 1, 1), (2, 2, 2), (1, 2, 4), (3, 2, 3), (2, 5, 2), (5, 3, 1), (4, 4, 4)])
def test_hierarchical3(racks: int, nodes: int, gpus: int, tree_between: bool) -> None:
    """2 rounds inside nodes, 2 (N - 1) between those of a rack, then those between racks. Each level reduces a share of
    the one below: a g-th leaves a node, an N-th of that a rack.
    """
    v = judged("hierarchical3", racks=racks, nodes=nodes, gpus=gpus, tree_between=tree_between, k=2)
    rounds, far = between(racks, tree_between, 2)
    assert v.facts["rounds"] == 2 * (gpus > 1) + 2 * (nodes - 1) + rounds
    assert crossing(v, gpus * nodes) == far / nodes / gpus
    assert crossing(v, gpus) == (least(nodes) + far / nodes) / gpus
    assert bytes_sent(v) == least(gpus) + (least(nodes) + far / nodes) / gpus
    if not tree_between:
        assert bytes_sent(v) == least(racks * nodes * gpus)
        # A pair of GPUs; a ring of nodes there and back, which with two nodes is one link; a ring of racks.
        assert share(v, "link_most") == max(
            Fraction(2 * (gpus > 1), gpus), (2 if nodes == 2 else 1) * least(nodes) / 2 / gpus,
            (least(racks) / nodes / gpus))
    assert v.facts["peak_scratch"] == 0


HOSTS = {
    "one host": [0, 0, 0], "one rank each": [0, 1, 2, 3, 4], "in order": [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3],
    "dealt round": [0, 1, 2, 3, 0, 1, 2, 3], "from the last one on": [2, 2, 1, 1, 0, 0],
    "of different sizes": [1, 0, 2, 2, 1, 2, 2, 1],
}


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("left_out", [(), (0,), (1, 3), (0, 1, 2)])
@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
def test_two_tier(host: list[int], left_out: tuple[int, ...], k: int) -> None:
    """A part takes a round inside the hosts, 2 (m - 1) round the m owners (with one, there and back), and one inside;
    the next part follows a round later. Of the m chunks of a part every owner sends m - 1 round the ring, twice; each
    other host sends one to every owner and gets one from each.
    """
    hosts = max(host) + 1
    owners = [h for h in reversed(range(hosts)) if h not in left_out] or [0]
    m, others = len(owners), hosts - len(owners)
    v = judged("two_tier", host=host, owners=owners, k=k)
    table, sends = v.table, v.table.op == Op.SEND
    here, there = np.array(host)[table.rank[sends]], np.array(host)[table.peer[sends]]
    out, into = (np.bincount(of[here != there], table.count[sends][here != there], hosts) for of in (here, there))
    for h in range(hosts):
        link = least(m) + Fraction(others, m) if h in owners else 1
        assert (Fraction(int(out[h]), table.chunks), Fraction(int(into[h]), table.chunks)) == (link, link), h
    inside, between = any(host.count(h) > 1 for h in range(hosts)), hosts > 1
    if inside and between:
        assert v.facts["rounds"] == k + 2 * max(m - 1, 1) + 1
    elif between:
        assert v.facts["rounds"] == k + 2 * max(m - 1, 1) - 1
    else:
        assert v.facts["rounds"] == min(2 * k, k + 3)      # there, and three rounds later back
    assert v.facts["messages"] == 2 * k * (len(host) - hosts + m * (m - 1) + m * others)
    assert v.facts["peak_scratch"] == 0


@pytest.mark.parametrize(("hosts", "gpus"), [(1, 4), (2, 1), (2, 2), (3, 4), (4, 3)])
def test_two_tier_sends_no_more_than_a_ring(hosts: int, gpus: int) -> None:
    """Where hosts have equally many ranks, all are owners, and every rank leads equally often."""
    p = hosts * gpus
    v = judged("two_tier", host=[r % hosts for r in range(p)], k=2 * gpus)
    assert (bytes_sent(v), share(v, "received_most")) == (least(p), least(p))


@pytest.mark.parametrize(("params", "told"), [
    ({"host": [0, 0, 2]}, "hosts are 0, 1, 2 and so on"), ({"host": [-1, 0, 1]}, "hosts are 0, 1, 2 and so on"),
    ({"host": [0, 1], "owners": []}, "owners are some of the hosts"),
    ({"host": [0, 1], "owners": [2]}, "owners are some of the hosts"),
    ({"host": [0, 1], "owners": [1, 1]}, "owners are some of the hosts"),
    ({"host": [0, 1], "k": 0}, "two_tier needs at least one part")])
def test_two_tier_refuses(params: dict[str, object], told: str) -> None:
    program = load_program(str(EXAMPLES / "allreduce/two_tier.sched"))
    table, findings = expand(program, "two_tier", ranks=None, params=params)
    assert table is None
    assert [d.code for d in findings] == ["SL207"]
    assert told in findings[0].message
