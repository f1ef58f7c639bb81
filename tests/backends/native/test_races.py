"""ThreadSanitizer finds nothing in what lanes do, and finds each mistake that may be put in."""

import re
import subprocess
import sys

import pytest

from tests.backends.native.kernels import ALL
from tests.backends.native.racing import ROOT, sanitized
from tests.backends.torch.shipped import SCHEDULES

ENVIRONMENT = sanitized()
FAULTS = {
    "RELAXED_READY": "a flag is set without release",
    "NO_SETTLE": "nobody waits until a message has been taken",
    "NO_WAIT": "a message is taken before it is ready",
    "NO_BARRIER": "the threads of a block do not meet",
    "EARLY_RESET": "flags are set back when a launch begins",
}

pytestmark = pytest.mark.skipif(ENVIRONMENT is None, reason="the C++ compiler has no ThreadSanitizer")


def races(threads: int, seed: int, names: str, *faults: str) -> tuple[int, str]:
    """How many the sanitizer reports in three launches of each kernel, and what has become of them."""
    module = "tests.backends.native.racing"
    done = subprocess.run([sys.executable, "-m", module, str(threads), str(seed), names, *faults],
                          env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stderr
    return done.stderr.count("WARNING: ThreadSanitizer: data race"), done.stdout + done.stderr


@pytest.mark.parametrize("threads", [1, 3])
def test_clean(threads):
    found, said = races(threads, 0, ",".join(ALL))
    assert said == "right\n" * len(ALL) and not found


def test_shipped():
    """Some with fused transfers, staging, streams and events."""
    names = ["allreduce/double_tree.sched::double_tree", "broadcast/staged_chain.sched::staged_chain",
             "allreduce/all_pairs.sched::all_pairs"]
    found, said = races(1, 0, ",".join(names))
    assert said == "right\n" * len(names) and not found


@pytest.mark.nightly
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("path, name", SCHEDULES, ids=[f"{p}::{n}" for p, n in SCHEDULES])
def test_every_shipped_schedule(path, name, threads):
    found, said = races(threads, 1, f"{path}::{name}")
    assert said == "right\n" and not found


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault):
    """In blocks of several threads, as a missing barrier does nothing in blocks of one."""
    found, said = races(3, 0, "streams", fault)
    assert found, said


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found_with_other_delays(fault, seed):
    for name in ("streams", "rotate"):                          # where each of them matters
        found, said = races(3, seed, name, fault)
        assert found, said


def test_faults_are_those_that_there_are():
    text = (ROOT / "backends" / "cuda" / "lane.cuh").read_text()
    assert set(re.findall(r"SCHEDLANG_FAULT_(\w+)", text)) == set(FAULTS)
