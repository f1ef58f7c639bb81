"""The shipped schedules but the all-reduces: rounds, bytes, messages and scratch of their closed forms.

Closed forms: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005, van de Geijn's broadcast and the binomial trees among
them; two trees: Sanders, Speck, Träff, Parallel Computing 35(12), 2009. p ranks; bytes in n, those of the whole vector.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest

from schedlang.ir.table import Array
from schedlang.ops import Op
from schedlang.verify import Verdict
from tests.closed_forms import EXAMPLES, bytes_sent, log, share, verdict

Of = Callable[[int], int | Fraction]
ANY, POWERS = range(1, 20), (1, 2, 4, 8, 16, 32)


def none(p: int) -> int:
    return 0


def others(p: int) -> Fraction:
    """All blocks but the own one."""
    return Fraction(p - 1, p)


def block(p: int) -> Fraction:
    """One block, where there is another rank to send it to."""
    return Fraction(p > 1, p)


def half(p: int) -> Fraction:
    return Fraction(p // 2, p)


def everything(p: int) -> int:
    return int(p > 1)


def one(p: int) -> int:
    return int(p > 1)


def hops(p: int) -> int:
    return p - 1


def subtree(p: int) -> Fraction:
    """The largest subtree below the root of a binomial tree, in blocks: the last to join, which p cuts off, or the one
    before it."""
    if p < 3:
        return block(p)
    d = 1 << (log(p) - 1)
    return Fraction(max(p - d, d // 2), p)


def with_bits(p: int) -> Fraction:
    """Blocks that have a bit of their distance to go set, over all bits: p / 2 log2 p for a power of two."""
    return Fraction(sum(j.bit_count() for j in range(p)), p)


def some_roots(p: int) -> list[int]:
    return sorted({0, 1 % p, p // 2, p - 1})


@dataclass(frozen=True)
class Form:
    """What a schedule takes on p ranks: rounds; the most that a rank sends and receives and a link carries, in vectors;
    the most messages that a rank sends; the most scratch, in chunks."""

    worlds: Iterable[int]
    rounds: Of
    sent: Of
    received: Of
    link: Of
    messages: Of
    scratch: Of = none

    def holds(self, v: Verdict, p: int) -> None:
        assert v.ok
        assert v.facts["rounds"] == self.rounds(p), p
        traffic = bytes_sent(v), share(v, "received_most"), share(v, "link_most")
        assert traffic == (self.sent(p), self.received(p), self.link(p)), p
        assert v.facts["messages_most"] == self.messages(p), p
        assert v.facts["peak_scratch"] == self.scratch(p), p
        assert v.facts["least_depth"] == 0, p


RING = Form(ANY, hops, others, others, others, hops)
DOUBLING = Form(POWERS, log, others, others, half, log)
BRUCK = Form(ANY, log, others, others, subtree, log, scratch=lambda p: p)
PAT = Form(ANY, log, others, others, half, hops)
PAIRWISE = Form(ANY, hops, others, others, block, hops)

FORMS = {
    "allgather/bruck.sched": BRUCK,
    "allgather/pat.sched": PAT,
    "allgather/recursive_doubling.sched": DOUBLING,
    "allgather/ring.sched": RING,
    "reduce_scatter/bruck.sched": BRUCK,
    "reduce_scatter/halving.sched": DOUBLING,
    "reduce_scatter/pairwise.sched": PAIRWISE,
    "reduce_scatter/pat.sched": PAT,
    "reduce_scatter/recursive_doubling.sched": DOUBLING,
    "reduce_scatter/ring.sched": RING,
    "alltoall/bruck.sched": Form(ANY, log, with_bits, with_bits, half, log, scratch=lambda p: p + p // 2 * 2),
    "alltoall/direct.sched": Form(ANY, one, others, others, block, hops),
    "alltoall/pairwise.sched": PAIRWISE,
    "broadcast/binomial.sched": Form(ANY, log, log, everything, everything, log),
    "broadcast/scatter_allgather.sched": Form(
        ANY, lambda p: log(p) + p - 1, lambda p: 2 * others(p), everything, everything,
        lambda p: log(p) + p - 1),
    "reduce/binomial.sched": Form(ANY, log, everything, log, everything, one),
    "reduce/direct.sched": Form(ANY, one, everything, hops, everything, one),
    "gather/binomial.sched": Form(ANY, log, subtree, others, subtree, one, scratch=lambda p: p),
    "gather/direct.sched": Form(ANY, one, block, others, block, one),
    "scatter/binomial.sched": Form(ANY, log, others, subtree, subtree, log, scratch=lambda p: p),
    "scatter/direct.sched": Form(ANY, one, others, block, block, hops),
}


@pytest.mark.parametrize("file", FORMS)
def test_closed_form(file: str) -> None:
    for p in FORMS[file].worlds:
        FORMS[file].holds(verdict(file, p), p)


@pytest.mark.parametrize("file", [f for f in FORMS if f.split("/")[0] in ("broadcast", "reduce", "gather", "scatter")])
def test_every_root_costs_the_same(file: str) -> None:
    for p in (2, 3, 5, 8, 11):
        for root in some_roots(p):
            FORMS[file].holds(verdict(file, p, root=root), p)


@pytest.mark.parametrize("file", [f for f in FORMS if "inplace=" in (EXAMPLES / f).read_text()
                                  and f.split("/")[0] in ("allgather", "reduce_scatter")])
def test_in_place_costs_the_same(file: str) -> None:
    form = FORMS[file]
    if file == "reduce_scatter/bruck.sched":    # whose first message has one block to copy and the rest, if any, to add
        form = replace(form, messages=lambda p: log(p) + (p > 2 and p - (1 << log(p) - 1) > 1))
    alone = replace(form, scratch=none)         # with nobody to send to, nothing leaves its place
    for p in form.worlds:
        (form if p > 1 else alone).holds(verdict(file, p, inplace=True), p)


@pytest.mark.parametrize("file", ["gather/direct.sched", "scatter/direct.sched",
                                  "gather/binomial.sched", "scatter/binomial.sched"])
def test_in_place_needs_no_scratch(file: str) -> None:
    """And in a binomial tree the blocks of a subtree lie in two pieces where they go past the last rank."""
    form = FORMS[file]
    for p in (1, 2, 3, 6, 8, 11):
        for root in some_roots(p):
            v = verdict(file, p, root=root, inplace=True)
            assert v.ok
            assert (v.facts["rounds"], v.facts["peak_scratch"]) == (form.rounds(p), 0)
            assert (bytes_sent(v), share(v, "received_most")) == (form.sent(p), form.received(p))
            once = verdict(file, p, root=root).facts["messages"]
            assert once <= v.facts["messages"] <= once + log(p)


def pat_rounds(p: int, carry: int) -> int:
    """Rank r hands on the blocks of ranks r - m for every multiple m of 2 d below p - d, d = ..., 4, 2, 1."""
    distances = [1 << k for k in range(log(p))]
    return sum(-(-len(range(0, p - d, 2 * d)) // carry) for d in distances)


@pytest.mark.parametrize("file", ["allgather/pat.sched", "reduce_scatter/pat.sched"])
def test_pat_rounds_grow_as_messages_shrink(file: str) -> None:
    for p in (1, 2, 3, 8, 13, 16):
        assert (pat_rounds(p, 1), pat_rounds(p, max(1, p // 2))) == (p - 1, log(p))
        for carry in (1, 2, 3, 5, p):
            v = verdict(file, p, carry=carry)
            assert v.ok
            assert (v.facts["rounds"], bytes_sent(v)) == (pat_rounds(p, carry), others(p)), (p, carry)


def test_pat_staged_sends_one_message_a_round() -> None:
    for p in (1, 2, 3, 8, 13, 16):
        for carry in (1, 2, 3, p):
            for inplace in (False, True):
                v = verdict("allgather/pat.sched", p, carry=carry, staged=True, inplace=inplace)
                assert v.ok
                assert v.facts["rounds"] == v.facts["messages_most"] == pat_rounds(p, carry)
                assert v.facts["peak_scratch"] == 2 * min(carry, p // 2)


@pytest.mark.parametrize("k", [1, 2, 7])
def test_chain(k: int) -> None:
    """A pipeline of p - 1 hops, k chunks."""
    form = Form(range(1, 12), lambda p: (p - 2 + k) * one(p), everything, everything, everything, lambda p: k * one(p))
    for p in form.worlds:
        for root in some_roots(p):
            form.holds(verdict("broadcast/chain.sched", p, k=k, root=root), p)


@pytest.mark.parametrize("k", [1, 2, 7])
def test_double_tree(k: int) -> None:
    """The trees are log2 p deep (rounded up), and the last chunk starts k - 1 rounds after the first. A rank sends to
    at most two children of one tree, and the root to one in each: 2 k messages of n / 2 k."""
    form = Form((*range(1, 10), 12, 13, 16, 17), lambda p: (log(p) + k - 1) * one(p), everything, everything,
                lambda p: Fraction(one(p), 1 if p == 2 else 2), lambda p: 2 * k * one(p))
    for p in form.worlds:
        for root in {0, p // 2}:
            form.holds(verdict("broadcast/double_tree.sched", p, k=k, root=root), p)


@pytest.mark.parametrize(("p", "k"), [(1, 4), (2, 1), (4, 8), (6, 3)])
def test_staged_chain(p: int, k: int) -> None:
    """A pipeline of p - 1 hops, k chunks; an inner rank bounces each chunk twice, the ends once."""
    v = verdict("broadcast/staged_chain.sched", p, k=k)
    Form((), lambda p: (p - 2 + k) * one(p), everything, everything, everything, lambda p: k * one(p),
         scratch=lambda p: k * min(p - 1, 2)).holds(v, p)


WORLDS = [(1, 1), (1, 4), (4, 1), (2, 2), (3, 4), (4, 3), (5, 2)]


def network(v: Verdict, gpus: int) -> tuple[set[int], set[int]]:
    """How many messages each rank sends to other nodes, and the blocks in each of those messages."""
    t = v.table
    away = (t.op == Op.SEND) & (t.rank // gpus != t.peer // gpus)
    return set(np.bincount(t.rank[away], minlength=t.ranks).tolist()), set(t.count[away].tolist())


@pytest.mark.parametrize(("nodes", "gpus"), WORLDS)
def test_hierarchical_all_to_all(nodes: int, gpus: int) -> None:
    """1 + (N - 1) rounds; n (g - 1) / g inside the node, n (N - 1) / N outside, there in N - 1 messages of g blocks."""
    v = verdict("alltoall/hierarchical.sched", nodes=nodes, gpus=gpus)
    assert v.ok
    assert v.facts["rounds"] == (gpus > 1) + nodes - 1
    assert bytes_sent(v) == share(v, "received_most") == Fraction(gpus - 1, gpus) + Fraction(nodes - 1, nodes)
    assert network(v, gpus) == ({nodes - 1}, {gpus} if nodes > 1 else set())
    assert (v.facts["peak_scratch"], v.facts["least_depth"]) == (nodes * gpus, 0)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 7, 8, 16, 33])
def test_dissemination(p: int) -> None:
    """Everybody sends in each of log2 p rounds (rounded up); no bytes."""
    v = verdict("barrier/dissemination.sched", p)
    assert v.ok
    assert (v.facts["rounds"], v.facts["messages_most"], v.facts["messages"]) == (log(p), log(p), p * log(p))
    assert "sent_most" not in v.facts


@pytest.mark.parametrize("p", [1, 2, 3, 7, 16])
def test_scan(p: int) -> None:
    """Rank 0 sends in every one of the log2 p rounds, rounded up."""
    v = verdict("custom/scan.sched", p)
    assert v.ok
    assert (v.facts["rounds"], bytes_sent(v)) == (log(p), log(p))


@pytest.mark.parametrize("p", [2, 3, 8, 9])
def test_even_odd_shift(p: int) -> None:
    """Even ranks send first, then odd ones; each sends its buffer once."""
    v = verdict("custom/even_odd_shift.sched", p)
    assert v.ok
    assert (v.facts["rounds"], bytes_sent(v)) == (2, 1)


# Counts: every shape of unevenness that an expert layer can bring, and nothing at all.

def vectors(p: int) -> dict[str, Array]:
    rank = np.arange(p)
    return {"nothing": 0 * rank, "one has all": 9 * (rank == p // 2), "every other": 3 * (rank % 2), "a ramp": rank,
            "far apart": np.where(rank % 3 == 0, 10 ** 12, rank)}


def matrices(p: int) -> dict[str, Array]:
    s, d = np.arange(p)[:, None], np.arange(p)[None, :]
    ramp, at = s * p + d, p // 2
    return {"nothing": 0 * ramp, "one sends all": 9 * (s == at) + 0 * d, "one receives all": 9 * (d == at) + 0 * s,
            "one part is all": 9 * ((s == at) & (d == 0)), "an empty row and column": ramp * (s != at) * (d != at),
            "nothing for oneself": ramp * (s != d), "a ramp": ramp,
            "far apart": np.where((s + 2 * d) % 3 == 0, 10 ** 12, ramp)}


def elements(v: Verdict) -> tuple[int, int, int]:
    """The most that a rank sends and receives and that a link carries, in elements."""
    return tuple(int(v.facts[f].removesuffix(" elements")) for f in ("sent_most", "received_most", "link_most"))


@pytest.mark.parametrize("p", [1, 2, 3, 6, 9])
def test_one_vector_counts(p: int) -> None:
    """A ring carries all parts but the next rank's own over a link; direct, a part goes to p - 1 ranks. The reductions
    run the other way. Parts of no elements cost no bytes; rounds do not change."""
    for shape, counts in vectors(p).items():
        most, rest = int(counts.max()), int(counts.sum() - counts.min())
        if p == 1:
            most = rest = 0
        for name, figures in {
            "allgatherv/ring": (p - 1, (rest, rest, rest)),
            "reduce_scatterv/ring": (p - 1, (rest, rest, rest)),
            "allgatherv/direct": (one(p), ((p - 1) * most, rest, most)),
            "reduce_scatterv/direct": (one(p), (rest, (p - 1) * most, most)),
        }.items():
            v = verdict(f"{name}.sched", p, counts=counts)
            assert v.ok, (name, shape)
            assert (v.facts["rounds"], elements(v)) == figures, (name, shape)


@pytest.mark.parametrize("p", [1, 2, 5, 8])
def test_matrix_counts(p: int) -> None:
    for shape, counts in matrices(p).items():
        away = counts * (1 - np.eye(p, dtype=np.int64))
        figures = int(away.sum(1).max()), int(away.sum(0).max()), int(away.max())
        for name, rounds in {"pairwise": p - 1, "direct": one(p)}.items():
            v = verdict(f"alltoallv/{name}.sched", p, counts=counts)
            assert v.ok, (name, shape)
            assert (v.facts["rounds"], elements(v)) == (rounds, figures), (name, shape)


@pytest.mark.parametrize("p", [1, 2, 5, 8])
def test_bruck_matrix_counts(p: int) -> None:
    """A part whose distance to go has bit k set moves on in round k, having gone the bits below."""
    for shape, counts in matrices(p).items():
        moved = np.zeros((p, p), np.int64)       # moved[a][b]: from rank a to rank b
        for s, d in np.ndindex(p, p):
            far = (d - s) % p
            for k in range(far.bit_length()):
                if far >> k & 1:
                    at = s + far % (1 << k)
                    moved[at % p, (at + (1 << k)) % p] += counts[s, d]
        v = verdict("alltoallv/bruck.sched", p, counts=counts)
        assert v.ok, shape
        assert (v.facts["rounds"], v.facts["messages_most"]) == (log(p), log(p))
        assert elements(v) == (moved.sum(1).max(), moved.sum(0).max(), moved.max()), shape


@pytest.mark.parametrize(("nodes", "gpus"), WORLDS)
def test_hierarchical_matrix_counts(nodes: int, gpus: int) -> None:
    """A part goes to the GPU of its rail unless it is there, then to its node unless it is there."""
    p = nodes * gpus
    for shape, counts in matrices(p).items():
        rail = np.zeros((p, p), np.int64)       # rail[a][b]: from rank a to rank b
        for s in range(p):
            for d in range(p):
                between = s // gpus * gpus + d % gpus
                rail[s, between] += counts[s, d]
                rail[between, d] += counts[s, d]
        rail *= 1 - np.eye(p, dtype=np.int64)
        v = verdict("alltoallv/hierarchical.sched", nodes=nodes, gpus=gpus, counts=counts)
        assert v.ok, shape
        assert v.facts["rounds"] == (gpus > 1) + nodes - 1
        assert elements(v) == (rail.sum(1).max(), rail.sum(0).max(), rail.max()), shape
        assert network(v, gpus) == ({nodes - 1}, {gpus} if nodes > 1 else set())


def test_reversed_recursive_doubling_is_halving() -> None:
    """The same facts to the last, in place and out of place."""
    for p in POWERS:
        for inplace in (False, True):
            facts = [verdict(f"reduce_scatter/{name}.sched", p, inplace=inplace).facts
                     for name in ("halving", "recursive_doubling")]
            assert facts[0] == facts[1], (p, inplace)
