"""Runs kernels under ThreadSanitizer: `python -m tests.backends.native.racing THREADS SEED KERNEL[,KERNEL] [FAULT]`.

libtsan must have been loaded before all else (`sanitized` says how). Says of each kernel on standard output whether it
was `right` or `wrong`, or why it ended early; what the sanitizer finds is on standard error.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from schedlang.backends.native.compiler import THREAD_SANITIZER, find
from tests.backends.native.kernels import ALL, World, expected

ROOT = Path(__file__).parents[3]


def sanitized() -> dict[str, str] | None:
    """An environment in which Python runs with ThreadSanitizer; None where the compiler has none."""
    said = subprocess.run([*find().command, "-print-file-name=libtsan.so"], capture_output=True, text=True, check=False)
    library = Path(said.stdout.strip())
    if not library.is_absolute() or not library.exists():
        return None
    return {**os.environ, "LD_PRELOAD": str(library.resolve()), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1", "TSAN_OPTIONS": "exitcode=0 report_signal_unsafe=0"}


def launched(name: str, threads: int, seed: int, faults: tuple[str, ...]) -> str:
    """What has become of three launches, with delays at flags."""
    kernel = ALL[name]
    world = World(kernel, 4, 20_000, blocks=2, slices=2, faults=faults, flags=THREAD_SANITIZER)
    right = True
    for launch in range(3):
        values = np.random.default_rng(launch).integers(-9, 9, (4, 20_000)).astype(np.float32)
        world.fill(values)
        if world.launch(threads=threads, looks=300, yields=200, delays=4, delay=200, seed=3 * seed + launch, timeout=3):
            return world.stop
        right &= np.array_equal(world.result(), expected(kernel, values))
    return "right" if right else "wrong"


if __name__ == "__main__":
    _, threads, seed, names, *faults = sys.argv
    for name in names.split(","):
        print(launched(name, int(threads), int(seed), tuple(faults)))
