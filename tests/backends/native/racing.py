"""Runs a kernel under ThreadSanitizer: `python -m tests.backends.native.racing KERNEL THREADS SEED [FAULT...]`.

libtsan must have been loaded before all else (`sanitized` says how). Says on standard output `right` or `wrong`, and
why it ended early if it did; what the sanitizer finds is on standard error.
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


def main(name: str, threads: str, seed: str, *faults: str) -> None:
    """Three launches, with delays at flags."""
    kernel = ALL[name]
    world = World(kernel, 4, 20_000, blocks=2, slices=2, faults=faults, flags=THREAD_SANITIZER)
    right = True
    for launch in range(3):
        values = np.random.default_rng(launch).integers(-9, 9, (4, 20_000)).astype(np.float32)
        world.fill(values)
        if world.launch(threads=int(threads), looks=300, yields=200, delays=4, delay=200, seed=3 * int(seed) + launch,
                        timeout=3):
            print(world.stop)
            break
        right &= np.array_equal(world.result(), expected(kernel, values))
    print("right" if right else "wrong")


if __name__ == "__main__":
    main(*sys.argv[1:])
