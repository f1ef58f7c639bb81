"""What all tests share."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says more of the machine than of the program.
settings.register_profile("schedlang", deadline=None)
settings.load_profile("schedlang")

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


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command line in this process: (exit status, standard output, standard error)."""
    from schedlang.cli.main import main

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(arguments)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return status, out, err

    return run
