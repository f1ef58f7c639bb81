"""The shipped schedules but the all-reduces: rounds, bytes and scratch of their closed forms.

Closed forms: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005; n = bytes of the whole vector, most bytes sent by a rank.
"""

from fractions import Fraction

import numpy as np
import pytest

from tests.closed_forms import bytes_sent, log, verdict

CLOSED_FORMS = {
    "allgather/ring.sched": (range(1, 13), lambda p: p - 1, lambda p: Fraction(p - 1, p)),
    "reduce_scatter/ring.sched": (range(1, 13), lambda p: p - 1, lambda p: Fraction(p - 1, p)),
    "alltoall/pairwise.sched": (range(1, 13), lambda p: p - 1, lambda p: Fraction(p - 1, p)),
    "broadcast/binomial.sched": (range(1, 20), log, log),
    "reduce/binomial.sched": (range(1, 20), log, lambda p: Fraction(p > 1)),
}


@pytest.mark.parametrize("file", CLOSED_FORMS)
def test_closed_form(file: str) -> None:
    worlds, rounds, sent = CLOSED_FORMS[file]
    for p in worlds:
        v = verdict(file, p)
        assert v.ok
        assert (v.facts["rounds"], bytes_sent(v)) == (rounds(p), sent(p)), p


@pytest.mark.parametrize("file", ["allgather/ring.sched", "reduce_scatter/ring.sched"])
@pytest.mark.parametrize("p", [1, 2, 5, 8])
def test_in_place_form(file: str, p: int) -> None:
    v = verdict(file, p, inplace=True)
    assert v.ok
    assert (v.facts["rounds"], bytes_sent(v)) == (p - 1, Fraction(p - 1, p))


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
