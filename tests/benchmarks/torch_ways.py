"""What the ways to a schedule cost over Gloo, side by side in one run; see docs/performance.md.

    torchrun --nproc-per-node 4 -m tests.benchmarks.torch_ways [PAIRS]

The same ring all-reduce (a): as an emitted file, against a loop written by hand with dist.isend and dist.irecv, which
posts receives two steps ahead; (b): through the c10d backend, against the direct call in the same group; (c): with
``check="every"``, against ``check="off"``. Each pair runs one after the other, now one first and now the other; a time
is that of the rank that took longest. Prints the CSV form of ``schedlang bench``. It judges nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from statistics import median
from types import ModuleType

import torch
import torch.distributed as dist

import schedlang
import schedlang.torch
from schedlang.backends.torch.emit import source
from schedlang.running.pairs import Row, as_csv, ratio
from schedlang.torch import Options, Rule

RING = "schedlang:allreduce/ring.sched"
SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20)

Call = Callable[[], object]


def by_hand(data: torch.Tensor) -> Call:
    """A ring for any number of ranks that divides the size."""
    rank, n = dist.get_rank(), dist.get_world_size()
    chunk, landing = list(data.chunk(n)), list(torch.empty_like(data).chunk(n))
    left, right, steps = (rank - 1) % n, (rank + 1) % n, 2 * n - 2

    def receive(k: int) -> object:
        return dist.irecv(landing[k] if k < n - 1 else chunk[(rank - k + n - 1) % n], left)

    def run() -> None:
        coming = [receive(k) for k in range(min(2, steps))]
        sent = []
        for k in range(steps):
            if k + 2 < steps:
                coming.append(receive(k + 2))
            sent.append(dist.isend(chunk[(rank - k + (k >= n - 1) * n) % n], right))
            coming[k].wait()
            if k < n - 1:
                chunk[(rank - k - 1) % n].add_(landing[k])
        for work in sent:
            work.wait()

    return run


def emitted(data: torch.Tensor) -> Call:
    made = ModuleType("ring")
    exec(source(schedlang.load(RING, ranks=dist.get_world_size()).table), made.__dict__)
    return lambda: made.ring(data)


def timed(pair: tuple[Call, Call], pairs: int) -> tuple[list[float], list[float]]:
    """Seconds of each, on the rank that took longest."""
    times = torch.zeros(2, pairs, dtype=torch.float64)
    for turn in range(-2, pairs):
        for which in (turn % 2, 1 - turn % 2):
            dist.barrier()
            begun = time.perf_counter()
            pair[which]()
            if turn >= 0:
                times[which, turn] = time.perf_counter() - begun
    dist.all_reduce(times, dist.ReduceOp.MAX)
    what, against = times.tolist()
    return what, against


def main(pairs: int) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    torch.set_num_threads(1)
    n = dist.get_world_size()
    ours = dist.new_group(backend="schedlang", pg_options=Options(table=(Rule("allreduce", RING),)))
    rows = []
    for size in SIZES:
        data = torch.zeros(size // 4 // n * n)

        def direct(check: str, data: torch.Tensor = data) -> Call:
            return lambda: schedlang.torch.all_reduce(data, group=ours, schedule=RING, check=check)

        def by_group(data: torch.Tensor = data) -> object:
            return dist.all_reduce(data, group=ours)

        ways = {("emitted file", "loop by hand"): (emitted(data), by_hand(data)),
                ("c10d backend", "direct call"): (by_group, direct("every")),
                ("check every", "check off"): (direct("every"), direct("off"))}
        for (what, against), pair in ways.items():
            for way in pair:
                data.fill_(dist.get_rank() + 1)
                way()
                assert (data == n * (n + 1) / 2).all(), what
            data.zero_()
            times, others = timed(pair, pairs)
            algbw = data.nbytes / median(times)
            rows.append(Row("torch", "allreduce", "sum", "float32", n, data.nbytes, what, against, pairs, median(times),
                            median(others), *ratio(times, others), algbw, algbw * 2 * (n - 1) / n))
    if dist.get_rank() == 0:
        sys.stdout.write(as_csv(rows))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
