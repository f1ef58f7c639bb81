"""What the tests with torch share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.backends.torch.pool import Pool


class _Skipped(pytest.Module):
    """A test module that is not even imported."""

    def collect(self) -> Iterator[pytest.Item]:
        raise pytest.skip.Exception("torch is not installed", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return _Skipped.from_parent(parent, path=module_path) if find_spec("torch") is None else None


@pytest.fixture(scope="session")
def world() -> Iterator[Callable[[int], Pool]]:
    """``world(n)``: n worker processes that are one world, see pool.py; the same ones for all tests that ask for n."""
    from tests.backends.torch.pool import Pool

    pools: dict[int, Pool] = {}

    def of(size: int) -> Pool:
        if size in pools and not pools[size].fit:
            pools.pop(size).close()
        if size not in pools:
            pools[size] = Pool(size)
        return pools[size]

    yield of
    for pool in pools.values():
        pool.close()
