"""Which shipped schedule serves a call that names none."""

import numpy as np
import pytest

from schedlang.fitting import DEFAULTS, choose, default
from schedlang.ir.reverse import reverse
from schedlang.ir.table import Collective
from schedlang.ops import COLLECTIVES

KIB, MIB = 1 << 10, 1 << 20
TRANSPOSED = ("allgather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter", "alltoall", "alltoallv")
"""The collectives whose gradients take the reversed schedule."""


@pytest.mark.parametrize("collective, ranks, size, file", [
    ("allreduce", 4, 4, "allreduce/ring"), ("allreduce", 7, 256 * KIB - 4, "allreduce/ring"),
    ("allreduce", 8, 256 * KIB - 4, "allreduce/halving_doubling"), ("allreduce", 8, 256 * KIB, "allreduce/ring"),
    ("allreduce", 16, 0, "allreduce/halving_doubling"), ("allreduce", 16, 64 * MIB, "allreduce/ring"),
    ("allgather", 2, 512 * KIB - 1, "allgather/bruck"), ("allgather", 2, 512 * KIB, "allgather/ring"),
    ("broadcast", 3, 4 * MIB - 1, "broadcast/binomial"), ("broadcast", 3, 4 * MIB, "broadcast/scatter_allgather"),
    ("reduce_scatter", 8, 1, "reduce_scatter/ring"), ("alltoall", 8, 64 * MIB, "alltoall/direct"),
    ("alltoallv", 8, 0, "alltoallv/direct"), ("barrier", 1, 0, "barrier/dissemination"),
])
def test_what_is_taken(collective, ranks, size, file):
    assert default(collective, ranks, size) == f"schedlang:{file}.sched"


def test_each_collective_that_a_library_calls_has_one_for_every_call():
    assert set(DEFAULTS) == set(COLLECTIVES) - {"custom"}
    for collective, shipped in DEFAULTS.items():
        assert (shipped[-1].below, shipped[-1].ranks) == (None, 1), collective
        assert COLLECTIVES[collective].family != "vector" or len(shipped) == 1, "its ranks have sizes of their own"


@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 8, 12])
@pytest.mark.parametrize("collective", DEFAULTS)
def test_it_fits_any_group(collective, ranks):
    kind = COLLECTIVES[collective]
    counts = np.ones((ranks,) * (1 + (kind.long == "both")), np.int64) if kind.family == "vector" else None
    wanted = Collective(collective, root=ranks - 1 if kind.rooted else None, counts=counts)
    for file in sorted({default(collective, ranks, size) for size in (0, 1 * MIB, 64 * MIB)}):
        table = choose(file, wanted, ranks).table       # proved
        if collective in TRANSPOSED:
            assert reverse(table).ranks == ranks, "gradients go back through it"
