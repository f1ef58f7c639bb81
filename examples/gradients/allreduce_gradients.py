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
    mean = sum(np.asarray(g, np.float64) for g in mine) / ring.ranks
    size = sum(np.abs(np.asarray(g, np.float64)) for g in mine) / ring.ranks
    error = max(float(np.max(np.abs(np.asarray(a) - mean))) for a in averaged)
    allowed = (ring.ranks + 1) * 2.0**-24 * size + 1e-45    # three additions and a division round; one to spare
    assert all(np.all(np.abs(np.asarray(a) - mean) <= allowed) for a in averaged), "the average is wrong"
    assert all(np.array_equal(np.asarray(a), np.asarray(averaged[0])) for a in averaged), "ranks hold different bits"
    print(f"largest difference from the float64 mean: {error:.2e}; all ranks hold the same bits")


if __name__ == "__main__":
    main()
