"""What a kernel is told of sizes is what `Layout` says."""

import random

import numpy as np
import pytest

from schedlang.backends.cuda.arguments import MOST_SLICES, sizes
from schedlang.diagnostics import SchedError
from schedlang.ir.build import table_from_rows
from schedlang.ir.layout import Layout
from schedlang.ir.table import Buffer, Collective
from schedlang.ops import COLLECTIVES
from tests import strategies, tables
from tests.backends.worlds import some_layout


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_cuts_are_those_of_the_layout(collective):
    rng = random.Random(collective)
    for _ in range(60):
        table = strategies.working_table(rng, collective, True)
        table = table.with_columns(buffers=(*table.buffers, Buffer("staging", rng.randrange(4))))
        layout = some_layout(table, rng)
        found = sizes(layout, 4)
        for rank in range(table.ranks):
            for b, buffer in enumerate(table.buffers):
                cut = found.cuts[rank * len(table.buffers) + b if found.per_rank else b]
                starts = layout.starts(b, rank)
                assert [cut.start(c) for c in range(buffer.chunks + 1)][:-1] == starts[:-1].tolist()
                assert [cut.length(c) for c in range(buffer.chunks)] == np.diff(starts).tolist()
        assert len(found.cuts) == len(table.buffers) * (table.ranks if layout.per_rank else 1)


def test_values_by_class():
    """The class of a value: its chunk of the collective; of all-to-all-v source and destination; else the rank."""
    rng = random.Random(0)
    for collective in ("allreduce", "allgather", "reduce_scatter"):
        for _ in range(20):
            table = strategies.working_table(rng, collective, True)
            layout = some_layout(table, rng)
            cut = sizes(layout, 4).values
            assert sum(cut.length(c) for c in range(table.chunks)) == layout.elements
    for collective in ("alltoallv", "allgatherv", "reduce_scatterv"):
        table = strategies.working_table(rng, collective, True)
        counts = table.collective.counts
        cut = sizes(Layout(table, None), 4).values
        assert [cut.length(c) for c in range(counts.size)] == counts.ravel().tolist()


@pytest.mark.parametrize("elements", [1, 1000, 1 << 20, 1 << 45, (1 << 63) - 1])
def test_slices_cover_the_longest_chunk(elements):
    table = tables.ring(4)
    found = sizes(Layout(table, elements), 1)
    longest = -(-elements // 4)
    assert found.slice * found.slices >= longest > found.slice * (found.slices - 1)
    assert found.slices * int(table.count.max()) <= MOST_SLICES
    assert found.slice == max(1, -(-longest // found.slices)), 'all alike, so that all blocks have work in each'


def _message(chunks):
    rows = [{"op": op, "rank": rank, "peer": 1 - rank, "stream": "main", "step": 0, "buffer": "data", "chunk": 0,
             "count": chunks} for rank, op in enumerate(("send", "recv"))]
    return table_from_rows(rows, ranks=2, collective=Collective("broadcast"), chunks=chunks, name="long",
                           buffers=(Buffer("data", chunks, role="data"),))


@pytest.mark.parametrize("chunks,each", [(7, 599_185), (11, 1_000_003), (1 << 19, 5), (MOST_SLICES, 1)])
def test_no_message_has_more_slices_than_flags_can_count(chunks, each):
    """Also where the chunks of a message do not divide the most."""
    found = sizes(Layout(_message(chunks), chunks * each), 1, 1)
    assert found.slices * chunks <= MOST_SLICES and found.slice * found.slices >= each


def test_more_chunks_than_flags_can_count_are_refused():
    with pytest.raises(SchedError, match="1,048,575 chunks at once") as caught:
        sizes(Layout(_message(MOST_SLICES + 1), MOST_SLICES + 1), 1)
    assert caught.value.diagnostics[0].code == "SL802"
