"""The shipped schedules with counts, run on real arrays: empty parts, empty ranks, and one rank that has everything."""

from pathlib import Path

import numpy as np
import pytest

from schedlang.backends.numpy import backend
from schedlang.expand import expand, load_program
from schedlang.interpret import backend as interpreter
from schedlang.ir.layout import Layout
from schedlang.ir.table import OpTable
from schedlang.running import reference
from tests.backends.worlds import assert_same_bits, some_inputs

EXAMPLES = Path(__file__).parents[2] / "examples"
VECTOR = ["allgatherv/direct", "allgatherv/ring", "reduce_scatterv/direct", "reduce_scatterv/ring"]
MATRIX = [("alltoallv/bruck", {}), ("alltoallv/direct", {}), ("alltoallv/pairwise", {}),
          ("alltoallv/hierarchical", {"nodes": 2, "gpus": 3}),
          ("alltoallv/hierarchical", {"nodes": 3, "gpus": 2}), ("alltoallv/hierarchical", {"nodes": 6, "gpus": 1})]


def test_no_schedule_is_left_out() -> None:
    shipped = {str(p.relative_to(EXAMPLES).with_suffix("")) for p in EXAMPLES.glob("*v/*.sched")}
    assert shipped == {*VECTOR, *(file for file, _ in MATRIX)}


def table_for(file: str, counts: list, **params: object) -> OpTable:
    program = load_program(str(EXAMPLES / f"{file}.sched"))
    table, findings = expand(program, program.main(None), ranks=len(counts), params={"counts": counts, **params})
    assert table is not None, findings
    return table


def assert_right(table: OpTable, counts: np.ndarray) -> None:
    """Equal to the interpreter, bit for bit, and to the reference; and of the lengths that the counts say."""
    for dtype in (np.float32, np.int8):
        inputs = some_inputs(table, Layout(table, None), dtype)
        outputs = backend.run(table, inputs, op=None)
        assert_same_bits(outputs, interpreter.run(table, inputs, op=None))
        assert reference.compare(table, inputs, outputs).ok
        lengths = [len(here["output"]) for here in outputs]
        name = table.collective.name
        assert lengths == {"alltoallv": lambda: counts.sum(0).tolist(), "reduce_scatterv": lambda: counts.tolist(),
                           "allgatherv": lambda: [int(counts.sum())] * len(counts)}[name]()


@pytest.mark.parametrize("file", VECTOR)
@pytest.mark.parametrize("counts", [[0], [5], [0, 0, 0], [0, 7, 0], [1000, 0, 1], [0, 3, 0, 3, 0],
                                    [9, 1, 0, 4, 4, 257]])
def test_vector(file: str, counts: list[int]) -> None:
    assert_right(table_for(file, counts), np.array(counts))


SENDER, DEST = np.arange(6)[:, None], np.arange(6)[None, :]
RAMP = 5 * SENDER + 3 * DEST + 1
MATRICES = {
    "nothing": 0 * RAMP,
    "one sends all": 50 * (SENDER == 4) + 0 * DEST,
    "one receives all": 50 * (DEST == 1) + 0 * SENDER,
    "one part is all": 999 * ((SENDER == 5) & (DEST == 2)),
    "an empty row and column": RAMP * (SENDER != 3) * (DEST != 3),
    "an empty row, another empty column": RAMP * (SENDER != 0) * (DEST != 5),
    "nothing for oneself": RAMP * (SENDER != DEST),
    "only for oneself": RAMP * (SENDER == DEST),
    "uneven": RAMP ** 2 % 37,
}


@pytest.mark.parametrize("shape", MATRICES)
@pytest.mark.parametrize(("file", "params"), MATRIX, ids=lambda v: v if isinstance(v, str) else "x".join(
    map(str, v.values())))
def test_matrix(file: str, params: dict[str, int], shape: str) -> None:
    counts = MATRICES[shape]
    table = table_for(file, counts.tolist(), **params)
    assert_right(table, counts)


def test_single_rank_all_to_all_v() -> None:
    for count in (0, 3):
        for file, params in (("alltoallv/bruck", {}), ("alltoallv/direct", {}), ("alltoallv/pairwise", {}),
                             ("alltoallv/hierarchical", {"nodes": 1, "gpus": 1})):
            assert_right(table_for(file, [[count]], **params), np.array([[count]]))
