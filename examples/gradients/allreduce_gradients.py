"""Average the gradients of a ConvNeXt-Tiny over 4 virtual ranks with the ring all-reduce, and check the result."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from make_gradients import gradients, shapes

import schedlang

RING = Path(__file__).resolve().parent.parent / "allreduce" / "ring.sched"


def main() -> None:
    ring = schedlang.load(RING, ranks=4)
    print(f"{ring.name}: {'proved right' if ring.verify().ok else 'faulty'} on {ring.ranks} ranks")
    mine = gradients(ring.ranks)
    kind = "NumPy arrays from a fixed seed" if isinstance(mine[0], np.ndarray) else "torch tensors of a backward pass"
    print(f"{len(mine[0]):,} gradients in {len(shapes())} tensors on each rank: {kind}")
    begun = time.perf_counter()
    averaged = ring(mine, op="avg")
    print(f"averaged in {time.perf_counter() - begun:.2f} s; the results are of type {type(averaged[0]).__name__}")
    results = [np.asarray(a) for a in averaged]
    assert all(np.array_equal(other, results[0]) for other in results[1:]), "ranks hold different bits"
    mean, size = np.zeros((2, len(mine[0])))
    for gradient in map(np.asarray, mine):
        mean += gradient
        size += np.abs(gradient)
    error = np.abs(results[0] - mean / ring.ranks)
    # Three additions and a division, each rounded to float32 (one more to spare, and the least number there is).
    assert np.all(error <= 5 * 2.0**-24 * (size / ring.ranks) + 1e-45), "the average is wrong"
    print(f"largest difference from the float64 mean: {error.max():.2e}; all ranks hold the same bits")


if __name__ == "__main__":
    main()
