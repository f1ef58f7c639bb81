"""Average the gradients of a ConvNeXt-Tiny over 4 virtual ranks with shipped all-reduces, and check the results."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from make_gradients import gradients, shapes

import schedlang
from schedlang.backend import find
from schedlang.running.binding import bind

SCHEDULES = Path(__file__).resolve().parent.parent / "allreduce"
RANKS = 4


def main() -> None:
    mine = gradients(RANKS)
    kind = "NumPy arrays from a fixed seed" if isinstance(mine[0], np.ndarray) else "torch tensors of a backward pass"
    print(f"{len(mine[0]):,} gradients in {len(shapes())} tensors on each of {RANKS} ranks: {kind}")
    mean, size = np.zeros((2, len(mine[0])))
    for gradient in map(np.asarray, mine):
        mean += gradient
        size += np.abs(gradient)
    for name, backend in (("ring", "numpy"), ("ring", "native"), ("all_pairs", "native")):
        schedule = schedlang.load(SCHEDULES / f"{name}.sched", ranks=RANKS)
        assert schedule.verify().ok
        try:
            find(backend)
        except schedlang.SchedError as missing:
            print(missing.diagnostics[0].message)
            continue
        results = [np.asarray(a) for a in schedule(mine, op="avg", backend=backend)]
        error = np.abs(results[0] - mean / RANKS)
        # Three additions and a division, each rounded to float32 (one more to spare, and the least number there is).
        assert np.all(error <= 5 * 2.0**-24 * (size / RANKS) + 1e-45), "the average is wrong"
        assert all(np.array_equal(other, results[0]) for other in results[1:]), "ranks hold different bits"
        seconds = moved(schedule.table, [np.asarray(m) for m in mine], find(backend))
        print(f"{name}, back end {backend}: {seconds * 1e3:.0f} ms, {mine[0].nbytes / seconds / 1e9:.2f} GB/s; largest "
              f"difference from the float64 mean {error.max():.2e}")


def moved(table, inputs, backend) -> float:
    """The seconds that the sums take, without the way of the arrays in and out where the back end can tell them apart:
    the shortest of five."""
    arrays = [{"data": array} for array in inputs]
    if hasattr(backend, "timed"):
        return min(backend.timed(table, arrays, bind(table, arrays), op="sum", repeat=5)[0])
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        backend.run(table, arrays, op="sum")
        times.append(time.perf_counter() - begun)
    return min(times)


if __name__ == "__main__":
    main()
