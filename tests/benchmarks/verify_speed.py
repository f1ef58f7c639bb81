"""How fast `schedlang verify` is: whole processes, CPU seconds and peak memory, as the table of docs/performance.md.

    python -m tests.benchmarks.verify_speed [RUNS]

Prints the median of RUNS (default 5) runs after one that is not counted. It judges nothing.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

COMMANDS = [
    ("ring", "examples/allreduce/ring.sched --ranks 8 -p channels=1"),
    ("ring", "examples/allreduce/ring.sched --ranks 128 -p channels=1"),
    ("ring", "examples/allreduce/ring.sched --ranks 1024 -p channels=1"),
    ("ring, each rank's own view", "tests/benchmarks/own_ring.sched --ranks 1024"),
    ("ring, 4 channels", "examples/allreduce/ring.sched --ranks 256 -p channels=4"),
    ("halving-doubling", "examples/allreduce/halving_doubling.sched --ranks 1024"),
    ("all-pairs two-shot", "examples/allreduce/all_pairs.sched --ranks 64"),
    ("pairwise all-to-all", "examples/alltoall/pairwise.sched --ranks 256"),
    ("hierarchical", "examples/allreduce/hierarchical.sched -p nodes=128 -p gpus=8"),
    ("staged chain", "examples/broadcast/staged_chain.sched --ranks 256 -p k=16"),
    ("all shipped schedules", "examples"),
]


def once(command: str) -> tuple[float, float]:
    """CPU seconds and peak MB of one run."""
    words = [sys.executable, "-m", "schedlang", "verify", *command.split(), "--format", "concise"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(words)} ended with status {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main(runs: int) -> None:
    print("| schedule | `schedlang verify` | CPU s | of them least, most | peak MB |")
    print("|---|---|---|---|---|")
    for name, command in COMMANDS:
        once(command)
        cpu, peak = zip(*(once(command) for _ in range(runs)), strict=True)
        seconds = f"{statistics.median(cpu):.2f} | {min(cpu):.2f}, {max(cpu):.2f}"
        print(f"| {name} | `{command}` | {seconds} | {max(peak):.0f} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
