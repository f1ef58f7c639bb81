"""What all tests share."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="rewrite what is recorded (README) from what happens")


@pytest.fixture(scope="session")
def update(request: pytest.FixtureRequest) -> bool:
    """Whether recorded output is to be rewritten instead of compared."""
    return bool(request.config.getoption("--update"))


@pytest.fixture(scope="session")
def shipped() -> Path:
    """The ring all-reduce that ships."""
    return ROOT / "examples" / "allreduce" / "ring.sched"
