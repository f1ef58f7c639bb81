"""Every shipped schedule: proved over a range of worlds, with the rounds and bytes of its closed form.

Closed forms: Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005; n = bytes of the whole vector, most bytes sent by a rank.
"""

from fractions import Fraction
from pathlib import Path

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


@pytest.mark.parametrize(("nodes", "gpus"), [(1, 1), (1, 4), (4, 1), (2, 2), (3, 4), (4, 3)])
def test_hierarchical(nodes: int, gpus: int) -> None:
    """Rings inside and between: 2 (g - 1) + 2 (N - 1) rounds; 2 n (p - 1) / p bytes."""
    v = verdict("allreduce/hierarchical.sched", nodes=nodes, gpus=gpus)
    assert v.ok
    p = nodes * gpus
    assert (v.facts["rounds"], bytes_sent(v)) == (2 * (gpus - 1) + 2 * (nodes - 1), 2 * Fraction(p - 1, p))
