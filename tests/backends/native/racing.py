"""Runs kernels under ThreadSanitizer: `python -m tests.backends.native.racing THREADS SEED KERNEL[,KERNEL] [FAULT]`.

A kernel is one of `kernels`, or made of a shipped schedule, FILE::NAME. libtsan must have been loaded before all else
(`sanitized` says how). Says of each kernel on standard output whether it was `right` or `wrong`, or why it ended early;
what the sanitizer finds is on standard error.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np

from schedlang.backends.native import NativeBackend, Options
from schedlang.backends.native.compiler import THREAD_SANITIZER, find
from schedlang.backends.native.launching import Mode
from schedlang.backends.numpy import backend as plain
from schedlang.diagnostics import SchedError
from tests.backends.native.kernels import ALL, World, expected
from tests.backends.torch.shipped import shipped
from tests.backends.worlds import some_inputs, some_layout

ROOT = Path(__file__).parents[3]


def sanitized() -> dict[str, str] | None:
    """An environment in which Python runs with ThreadSanitizer; None where the compiler has none."""
    said = subprocess.run([*find().command, "-print-file-name=libtsan.so"], capture_output=True, text=True, check=False)
    library = Path(said.stdout.strip())
    if not library.is_absolute() or not library.exists():
        return None
    return {**os.environ, "LD_PRELOAD": str(library.resolve()), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1", "TSAN_OPTIONS": "exitcode=0 report_signal_unsafe=0"}


def of_shipped(path: str, name: str, threads: int, seed: int, faults: tuple[str, ...]) -> str:
    """What has become of three launches of a schedule, with delays at flags."""
    table = next(table for ranks in (3, 4, 5, 2, 6, 8, 1) if (table := shipped(path, name, ranks)) is not None)
    rng = random.Random(seed)
    mode = Mode(threads=threads, looks=300, yields=200, delays=4, delay=100, seed=seed)
    options = Options(mode=mode, blocks=2, slice_bytes=512, flags=THREAD_SANITIZER, faults=faults)
    back_end = NativeBackend(options=options)
    right = True
    for _ in range(3):
        inputs = some_inputs(table, some_layout(table, rng, most=3000), np.float32, rng.randrange(1000))
        wanted = plain.run(table, inputs, op=None)
        try:
            found = back_end.run(table, inputs, op=None)
        except SchedError as error:
            return str(error)
        right &= all(mine[b].tobytes() == other[b].tobytes() for mine, other in zip(found, wanted) for b in other)
    return "right" if right else "wrong"


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
        run = launched if name in ALL else of_shipped
        print(run(*name.split("::"), int(threads), int(seed), tuple(faults)))
