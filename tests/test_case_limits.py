"""The reports on tests/cases along the ways that only large worlds take: limits of next to nothing change no word of
them but how values were compared."""

import re
from importlib import import_module

import pytest

from tests.property.test_small_limits import LIMITS, PATHS
from tests.test_case_reports import GOLDEN, report
from tests.test_cases import CASES

COMPARED = re.compile(r"exact = .*\n|doubt = .*\n|(?<=proved|failed) \((?:exactly|by fingerprints; [^)]*)\)")


@pytest.mark.parametrize("ways", PATHS)
def test_the_reports_are_the_same(ways: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, limits in [*LIMITS.items(), *PATHS[ways].items()]:
        for name, value in limits.items():
            if name != "ENOUGH":       # a search for races that ends early finds fewer of them
                monkeypatch.setattr(import_module(f"schedlang.{module}"), name, value)
    for path in CASES:
        monkeypatch.chdir(path.parent)
        # Several passes over the chunks find what they find in another order.
        said, golden = (sorted(COMPARED.sub("", text).splitlines()) for text in (
            "".join(report(path)), (GOLDEN / f"{path.stem}.txt").read_text(encoding="utf-8")))
        assert said == golden, path.stem
