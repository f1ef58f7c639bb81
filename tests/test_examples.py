"""Every shipped schedule: proved over a range of worlds, with the rounds and bytes of its closed form.

Closed forms: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005; n = bytes of the whole vector, most bytes sent by a rank.
"""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from schedlang.expand import cases, expand, load_program
from schedlang.verify import verify
from tests.closed_forms import EXAMPLES, bytes_sent, log, verdict

FILES = sorted(EXAMPLES.rglob("*.sched"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(EXAMPLES)))
def test_its_own_verify_line(path: Path) -> None:
    program = load_program(str(path))
    for name in program.names:
        for case in cases(program, name, ranks=None, params={}):
            given = dict(case)
            ranks = given.pop("ranks", None)
            table, findings = expand(program, name, ranks=ranks, params=given)
            assert table is not None, findings
            v = verify(table)
            assert v.ok, (case, v.diagnostics)
            assert v.facts["agreement"] in (True, None), case


def fold(p: int) -> int:
    """Recursive doubling with folding sends once more and waits two rounds more where p is no power of two."""
    return 0 if p & (p - 1) == 0 else 1


CLOSED_FORMS = {
    "allreduce/ring.sched": (range(1, 13), lambda p: 2 * (p - 1), lambda p: 2 * Fraction(p - 1, p)),
    "allreduce/halving_doubling.sched": ((1, 2, 4, 8, 16, 32), lambda p: 2 * log(p), lambda p: 2 * Fraction(p - 1, p)),
    "allreduce/recursive_doubling.sched": (
        range(1, 20), lambda p: p.bit_length() - 1 + 2 * fold(p), lambda p: p.bit_length() - 1 + fold(p)),
    "allreduce/all_pairs.sched": (range(1, 13), lambda p: 2 * (p > 1), lambda p: 2 * Fraction(p - 1, p)),
    "allgather/ring.sched": (range(1, 13), lambda p: p - 1, lambda p: Fraction(p - 1, p)),
    "reduce_scatter/ring.sched": (range(1, 13), lambda p: p - 1, lambda p: Fraction(p - 1, p)),
    "alltoall/pairwise.sched": (range(1, 13), lambda p: p - 1, lambda p: Fraction(p - 1, p)),
    "broadcast/binomial.sched": (range(1, 20), log, log),
}


@pytest.mark.parametrize("file", CLOSED_FORMS)
def test_closed_form(file: str) -> None:
    worlds, rounds, sent = CLOSED_FORMS[file]
    for p in worlds:
        v = verdict(file, p)
        assert v.ok
        assert (v.facts["rounds"], bytes_sent(v)) == (rounds(p), sent(p)), p


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_ring_channels_change_neither(channels: int) -> None:
    v = verdict("allreduce/ring.sched", 5, channels=channels)
    assert (v.facts["rounds"], bytes_sent(v)) == (8, Fraction(8, 5))


@pytest.mark.parametrize("file", ["allgather/ring.sched", "reduce_scatter/ring.sched"])
@pytest.mark.parametrize("p", [1, 2, 5, 8])
def test_in_place_form(file: str, p: int) -> None:
    v = verdict(file, p, inplace=True)
    assert v.ok
    assert (v.facts["rounds"], bytes_sent(v)) == (p - 1, Fraction(p - 1, p))


@pytest.mark.parametrize(("nodes", "gpus"), [(1, 1), (1, 4), (4, 1), (2, 2), (3, 4), (4, 3)])
def test_hierarchical(nodes: int, gpus: int) -> None:
    """Rings inside and between: 2 (g - 1) + 2 (N - 1) rounds; 2 n (p - 1) / p bytes."""
    v = verdict("allreduce/hierarchical.sched", nodes=nodes, gpus=gpus)
    assert v.ok
    p = nodes * gpus
    assert (v.facts["rounds"], bytes_sent(v)) == (2 * (gpus - 1) + 2 * (nodes - 1), 2 * Fraction(p - 1, p))


@pytest.mark.parametrize(("p", "k"), [(1, 4), (2, 1), (4, 8), (6, 3)])
def test_staged_chain(p: int, k: int) -> None:
    """A pipeline of p - 1 hops, k chunks: a rank sends n; the last chunk follows the first k - 1 rounds later."""
    v = verdict("broadcast/staged_chain.sched", p, k=k)
    assert v.ok
    assert bytes_sent(v) == (p > 1)
    assert v.facts["rounds"] == (p - 2 + k if p > 1 else 0)
    # An inner rank bounces each chunk twice, the ends once.
    assert v.facts["peak_scratch"] == k * min(p - 1, 2)


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


@pytest.mark.parametrize("p", [1, 2, 5])
def test_pairwise_v(p: int) -> None:
    counts = np.arange(p * p).reshape(p, p) % 4
    v = verdict("alltoallv/pairwise.sched", p, counts=counts)
    assert v.ok
    most = max(int(row.sum() - row[r]) for r, row in enumerate(counts))
    assert (v.facts["rounds"], v.facts["sent_most"]) == (p - 1, f"{most} elements")
