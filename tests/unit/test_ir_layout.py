"""Sizes and offsets against the plain definition, element by element."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedlang.diagnostics import SchedError
from schedlang.ir.buffers import standard_buffers
from schedlang.ir.build import table_from_rows
from schedlang.ir.layout import Layout, divide
from schedlang.ir.table import Buffer, Collective


def table(collective, ranks, chunks=1, scratch=(), buffers=None):
    made = standard_buffers(collective, ranks, chunks) if buffers is None else buffers
    return table_from_rows([], ranks=ranks, chunks=chunks, collective=collective,
                           buffers=(*made, *(Buffer(n, c) for n, c in scratch)))


def dealt(elements, parts):
    """Lengths of parts when elements are dealt out one by one."""
    lengths = [0] * parts
    for i in range(elements):
        lengths[i % parts] += 1
    return lengths


@given(st.integers(0, 60), st.integers(1, 12))
def test_whole_buffers_are_dealt_out(elements, chunks):
    layout = Layout(table(Collective("allreduce", "sum"), 3, chunks, [("tmp", 2)]), elements)
    lengths = dealt(elements, chunks)
    assert layout.length(0, np.arange(chunks)).tolist() == lengths
    assert layout.offset(0, np.arange(chunks)).tolist() == [sum(lengths[:i]) for i in range(chunks)]
    assert layout.count(0).tolist() == [elements] * 3
    assert layout.part == max(lengths) and layout.count(1).tolist() == [2 * max(lengths)] * 3
    assert layout.starts(1).tolist() == [0, max(lengths), 2 * max(lengths)]
    assert layout.length(0, 0, count=chunks) == elements


@given(st.integers(0, 20), st.integers(1, 5), st.integers(1, 4), st.booleans())
def test_each_block_is_dealt_out_by_itself(block, ranks, per_block, inplace):
    elements = block * ranks
    layout = Layout(table(Collective("allgather", inplace=inplace), ranks, ranks * per_block), elements)
    long = 0 if inplace else 1
    assert np.diff(layout.starts(long)).tolist() == dealt(block, per_block) * ranks
    assert layout.offset(long, np.arange(ranks) * per_block).tolist() == [r * block for r in range(ranks)]
    if not inplace:
        assert np.diff(layout.starts(0)).tolist() == dealt(block, per_block)
        assert layout.count(0).tolist() == [block] * ranks
    assert layout.inputs.tolist() == [block] * ranks and layout.outputs.tolist() == [elements] * ranks


def test_it_divides_as_torch_does():
    torch = pytest.importorskip("torch")
    for elements in range(30):
        for parts in range(1, 9):
            expected = [len(t) for t in torch.tensor_split(torch.zeros(elements), parts)]
            assert divide(elements, parts).tolist() == expected


def test_the_root_alone_has_the_long_side():
    layout = Layout(table(Collective("gather", root=2, inplace=False), 3, 6), 12)
    assert layout.count(0).tolist() == [4, 4, 4] and layout.count(1).tolist() == [0, 0, 12]
    assert layout.inputs.tolist() == [4, 4, 4] and layout.outputs.tolist() == [0, 0, 12]
    layout = Layout(table(Collective("scatter", root=0), 3, 3), 12)
    assert layout.inputs.tolist() == [12, 0, 0] and layout.outputs.tolist() == [4, 4, 4]
    assert Layout(table(Collective("broadcast", root=1), 3), 5).inputs.tolist() == [0, 5, 0]
    assert Layout(table(Collective("reduce", "sum", root=1), 3), 5).outputs.tolist() == [0, 5, 0]


def test_counts_say_how_long_parts_are():
    counts = np.array([[1, 2, 0], [3, 0, 4], [5, 6, 7]])
    layout = Layout(table(Collective("alltoallv", inplace=False, counts=counts), 3, 3, [("tmp", 1)]), None)
    assert layout.per_rank and layout.part == 7 and layout.elements == 28
    for source in range(3):
        for target in range(3):
            assert layout.length(0, target, source) == layout.length(1, source, target) == counts[source, target]
            assert layout.offset(0, target, source) == counts[source, :target].sum()
            assert layout.offset(1, source, target) == counts[:source, target].sum()
    assert layout.count(0).tolist() == layout.inputs.tolist() == [3, 7, 18]
    assert layout.count(1).tolist() == layout.outputs.tolist() == [9, 8, 11]
    assert layout.count(2).tolist() == [7, 7, 7]
    with pytest.raises(ValueError, match="which rank"):
        layout.offset(0, 0)
    gather = Layout(table(Collective("allgatherv", inplace=False, counts=np.array([2, 0, 3])), 3, 3), 5)
    assert [int(gather.length(0, 0, r)) for r in range(3)] == [2, 0, 3]
    assert gather.starts(1, 2).tolist() == [0, 2, 2, 5]
    assert gather.inputs.tolist() == [2, 0, 3] and gather.outputs.tolist() == [5, 5, 5]
    scatter = Layout(table(Collective("reduce_scatterv", "sum", inplace=True, counts=np.array([2, 0, 3])), 3, 3), None)
    assert scatter.starts(0).tolist() == [0, 2, 2, 5] and scatter.outputs.tolist() == [2, 0, 3]


def test_custom_chunks_are_all_alike():
    buffers = (Buffer("tmp", 4), Buffer("input", 3, role="input"), Buffer("output", 5, role="output"))
    layout = Layout(table(Collective("custom"), 2, 1, buffers=buffers), 12)
    assert layout.starts(0).tolist() == [0, 4, 8, 12, 16] and layout.starts(2)[-1] == 20
    assert layout.inputs.tolist() == [12, 12] and layout.outputs.tolist() == [20, 20]


def test_a_barrier_has_no_elements():
    layout = Layout(table(Collective("barrier"), 2), 1 << 70)
    assert layout.count(0).tolist() == [0, 0] and layout.outputs.tolist() == [0, 0]


@pytest.mark.parametrize("collective, ranks, chunks, elements, says", [
    (Collective("allreduce", "sum"), 2, 3, -1, "-1 elements"),
    (Collective("allreduce", "sum"), 2, 3, 1 << 63, "2^63"),
    (Collective("allreduce", "sum"), 2, 3, None, "needs an element count"),
    (Collective("allgather", inplace=False), 3, 3, 10, "3 equal blocks"),
    (Collective("alltoall", inplace=False), 3, 3, 11, "input and output"),
    (Collective("allgatherv", inplace=False, counts=np.array([2, 1])), 2, 2, 4, "add up to 3"),
    (Collective("allgatherv", inplace=False, counts=np.array([1 << 62, 1 << 62])), 2, 2, None, "more than 64 bits"),
])
def test_what_does_not_fit_is_said(collective, ranks, chunks, elements, says):
    with pytest.raises(SchedError) as e:
        Layout(table(collective, ranks, chunks), elements)
    (d,) = e.value.diagnostics
    assert d.code == "SL802" and says in d.message


def test_the_nearest_sizes_are_named():
    with pytest.raises(SchedError) as e:
        Layout(table(Collective("allgather", inplace=False), 3, 3), 10)
    assert e.value.diagnostics[0].help == "the nearest that do are 9 and 12"


def test_64_bits():
    big = (1 << 62) + 3
    layout = Layout(table(Collective("allreduce", "sum"), 4, 4), big)
    assert [int(x) for x in layout.starts(0)] == [0, *(big // 4 * i + min(i, 3) for i in (1, 2, 3)), big]
    layout = Layout(table(Collective("reduce_scatter", "sum", inplace=False), 4, 8), 1 << 62)
    assert int(layout.starts(0)[-1]) == 1 << 62 and int(layout.offset(0, 7)) == 7 * (1 << 59)
    with pytest.raises(SchedError, match="scratch tmp"):
        Layout(table(Collective("allreduce", "sum"), 4, 4, [("tmp", 9)]), big)
    shape = [Buffer("input", 1, role="input"), Buffer("output", 3, role="output"), Buffer("tmp", 4)]
    custom = table(Collective("custom"), 2, 1, buffers=shape)
    assert int(Layout(custom, 1 << 60).starts(2)[-1]) == 1 << 62
    for elements, name in ((1 << 61, "scratch tmp"), (1 << 62, "3 chunks of output")):
        with pytest.raises(SchedError, match=name):
            Layout(custom, elements)
