"""What all tests share."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def shipped() -> Path:
    """The ring all-reduce that ships."""
    return ROOT / "examples" / "allreduce" / "ring.sched"
