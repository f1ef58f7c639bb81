"""The ways that only large worlds take, taken by small ones: with limits of next to nothing, ``verify`` says the same
as the interpreter."""

from importlib import import_module

import pytest

from tests.campaign import campaign, shipped_tables
from tests.property.test_lane_programs import nothing_differs

LIMITS = {
    "expand.rows": {"DENSE": 0, "CELLS": 1},
    "ir.legal.blocks": {"BLOCK": 3},
    "ir.legal.lanes": {"BLOCK": 3},
    "verify.agreement": {"BLOCK": 5},
    "verify.barrier": {"WORDS": 1},
    "verify.dataflow": {"BLOCK": 5, "STATE_LIMIT": 0, "TRAFFIC_LIMIT": 0},
    "verify.deadlock": {"STARTS": 1, "WORK": 1},
    "verify.facts": {"BLOCK": 16},
    "verify.lengths": {"BLOCK": 16},
    "verify.matching": {"BLOCK": 16},
    "verify.races": {"BLOCK": 3, "ROWS": 16, "DENSE": 0, "ENOUGH": 1},
    "verify.steps": {"BLOCK": 16},
    "verify.timing.reach": {"CELLS": 1},
    "verify.timing.rounds": {"BLOCK": 16},
    "verify.values.carriers": {"BLOCK": 16},
    "verify.values.walk": {"BLOCK": 16},
}
"""Small values of the numbers above which something is done otherwise, or piece by piece, by module."""

PATHS = {
    "NumPy": {"verify.timing.graph": {"SMALL": 0, "THIN": 0}, "verify.timing.order": {"FEW": 0, "WIDE": 0}},
    "plain Python": {"verify.timing.graph": {"SMALL": 1 << 30}, "verify.timing.order": {"FEW": 0, "WIDE": 1 << 30}},
}


@pytest.fixture(params=PATHS)
def small(request, monkeypatch):
    for module, limits in [*LIMITS.items(), *PATHS[request.param].items()]:
        for name, value in limits.items():
            assert isinstance(getattr(import_module(f"schedlang.{module}"), name), int)
            monkeypatch.setattr(import_module(f"schedlang.{module}"), name, value)


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
