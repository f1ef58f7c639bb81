"""How fast `schedlang verify` is: whole processes, CPU seconds and peak memory, as the table of docs/performance.md.

    python -m tests.benchmarks.verify_speed [RUNS [PART]]

Prints the median of RUNS (default 5) runs after one that is not counted, for the commands that have PART in them
(default: all). It judges nothing.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks import msccl_files

COMMANDS = [
    ("ring", "examples/allreduce/ring.sched --ranks 8 -p channels=1"),
    ("ring", "examples/allreduce/ring.sched --ranks 128 -p channels=1"),
    ("ring", "examples/allreduce/ring.sched --ranks 1024 -p channels=1"),
    ("ring", "examples/allreduce/ring.sched --ranks 4096 -p channels=1"),
    ("ring, each rank's own view", "tests/benchmarks/own_ring.sched --ranks 1024"),
    ("ring, 4 channels", "examples/allreduce/ring.sched --ranks 256 -p channels=4"),
    ("ring, 4 channels", "examples/allreduce/ring.sched --ranks 1024 -p channels=4"),
    ("ring, as a table of 60,024 lines", "FLAT"),
    ("ring, an MSCCL file of 31,744 steps", "RING"),
    ("all-pairs, an MSCCL file of 28,288 steps", "PAIRS"),
    ("halving-doubling", "examples/allreduce/halving_doubling.sched --ranks 1024"),
    ("double binary tree", "examples/allreduce/double_tree.sched --ranks 1024 -p k=4"),
    ("double binary tree", "examples/allreduce/double_tree.sched --ranks 1024 -p k=64"),
    ("all-pairs two-shot", "examples/allreduce/all_pairs.sched --ranks 64"),
    ("pairwise all-to-all", "examples/alltoall/pairwise.sched --ranks 256"),
    ("pairwise all-to-all", "examples/alltoall/pairwise.sched --ranks 1024"),
    ("direct all-to-all", "examples/alltoall/direct.sched --ranks 256"),
    ("direct all-to-all", "examples/alltoall/direct.sched --ranks 1024"),
    ("hierarchical", "examples/allreduce/hierarchical.sched -p nodes=128 -p gpus=8"),
    ("staged chain", "examples/broadcast/staged_chain.sched --ranks 256 -p k=16"),
    ("all shipped schedules", "examples"),
]
"""FLAT, RING and PAIRS stand for files that are written first."""

SCHEDLANG = [sys.executable, "-m", "schedlang"]


def flat(path: Path) -> None:
    """Write a ring on 123 ranks as a table in JSON, a line for each operation."""
    words = ["compile", "examples/allreduce/ring.sched", "--ranks", "123", "-p", "channels=1", "--target", "json", "-o"]
    subprocess.run([*SCHEDLANG, *words, str(path)], check=True, stdout=subprocess.DEVNULL)


def once(command: str) -> tuple[float, float]:
    """CPU seconds and peak MB of one run."""
    words = [*SCHEDLANG, "verify", *command.split(), "--format", "concise"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(words)} ended with status {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main(runs: int, only: str) -> None:
    print("| schedule | `schedlang verify` | CPU s | of them least, most | peak MB |")
    print("|---|---|---|---|---|")
    with TemporaryDirectory() as folder:
        names = {"FLAT": "ring.json", "RING": "ring.xml", "PAIRS": "pairs.xml"}
        files = {word: Path(folder) / name for word, name in names.items()}
        flat(files["FLAT"])
        files["RING"].write_text(msccl_files.ring(16, 64), encoding="utf-8")
        files["PAIRS"].write_text(msccl_files.all_pairs(16, 8, 4), encoding="utf-8")
        for name, command in COMMANDS:
            if only not in command:
                continue
            words, shown = (str(files[command]), files[command].name) if command in files else (command, command)
            once(words)
            cpu, peak = zip(*(once(words) for _ in range(runs)), strict=True)
            seconds = f"{statistics.median(cpu):.2f} | {min(cpu):.2f}, {max(cpu):.2f}"
            print(f"| {name} | `{shown}` | {seconds} | {max(peak):.0f} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5, sys.argv[2] if len(sys.argv) > 2 else "")
