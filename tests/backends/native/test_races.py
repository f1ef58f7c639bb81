"""ThreadSanitizer finds nothing in what lanes do, and finds each mistake that may be put in."""

import re
import subprocess
import sys

import pytest

from tests.backends.native.kernels import ALL
from tests.backends.native.racing import ROOT, sanitized

ENVIRONMENT = sanitized()
FAULTS = {
    "RELAXED_READY": "a flag is set without release",
    "NO_SETTLE": "nobody waits until a message has been taken",
    "NO_WAIT": "a message is taken before it is ready",
    "NO_BARRIER": "the threads of a block do not meet",
    "EARLY_RESET": "flags are set back when a launch begins",
}

pytestmark = pytest.mark.skipif(ENVIRONMENT is None, reason="the C++ compiler has no ThreadSanitizer")


def races(name: str, threads: int, *faults: str) -> tuple[int, str]:
    """How many the sanitizer reports in three launches, and what has become of them."""
    done = subprocess.run([sys.executable, "-m", "tests.backends.native.racing", name, str(threads), "0", *faults],
                          env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stderr.count("WARNING: ThreadSanitizer: data race"), done.stdout + done.stderr


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", ALL)
def test_clean(name, threads):
    found, said = races(name, threads)
    assert said == "right\n" and not found


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["rotate", "streams"])         # where each of them matters
def test_faults_are_found(name, fault):
    """In blocks of several threads, as a missing barrier does nothing in blocks of one."""
    found, said = races(name, 3, fault)
    assert found, said


def test_faults_are_those_that_there_are():
    text = (ROOT / "backends" / "cuda" / "lane.cuh").read_text()
    assert set(re.findall(r"SCHEDLANG_FAULT_(\w+)", text)) == set(FAULTS)
