"""The ways that only large worlds take, taken by small ones: with limits of next to nothing, ``verify`` says the same
as the interpreter."""

import pytest

from schedlang.expand import rows
from schedlang.ir.legal import blocks, lanes
from schedlang.verify import barrier, dataflow, deadlock, races
from schedlang.verify.timing import graph, order, reach
from tests.campaign import campaign, shipped_tables
from tests.property.test_lane_programs import nothing_differs

LIMITS = [(races, "BLOCK", 3), (races, "DENSE", 0), (races, "ENOUGH", 1), (dataflow, "STATE_LIMIT", 0),
          (dataflow, "TRAFFIC_LIMIT", 0), (barrier, "WORDS", 1), (reach, "CELLS", 1), (deadlock, "STARTS", 1),
          (deadlock, "WORK", 1), (rows, "DENSE", 0), (rows, "CELLS", 1), (blocks, "BLOCK", 3), (lanes, "BLOCK", 3)]

PATHS = {"NumPy": [(graph, "SMALL", 0), (graph, "THIN", 0), (order, "FEW", 0), (order, "WIDE", 0)],
         "plain Python": [(graph, "SMALL", 1 << 30), (order, "FEW", 0), (order, "WIDE", 1 << 30)]}


@pytest.fixture(params=PATHS)
def small(request, monkeypatch):
    for module, name, value in [*LIMITS, *PATHS[request.param]]:
        assert isinstance(getattr(module, name), int)
        monkeypatch.setattr(module, name, value)


def test_on_programs(small):
    nothing_differs(80, 3)


def test_on_mutants(small):
    figures = campaign(300, 4, shipped_tables())
    print("\n".join(figures.lines()))
    assert not figures.disagreements


@pytest.mark.nightly
def test_on_many(small):
    nothing_differs(3_000, 5)
    figures = campaign(5_000, 6, shipped_tables())
    assert not figures.disagreements
