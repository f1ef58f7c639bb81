"""How an emitted file tests and times itself. Its text, from the line of dashes on, is copied into each of them;
nothing imports it. What it takes from the file round it: RANKS, UNIT, OPS, trial(), and what
values.py has.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from schedlang.backends.torch.emit.engine import RANKS
from schedlang.backends.torch.emit.values import combine, divide

UNIT = 1
OPS: tuple[str, ...] = ()
Trial = tuple[Callable[[], object], Callable[[], object], list[tuple[torch.Tensor, torch.Tensor]]]


def trial(elements: int, dtype: torch.dtype, device: torch.device, op: str) -> Trial:
    """What each file has of its own."""
    raise NotImplementedError


# ---------------------------------------------------------------------------------------------------------------------
# What follows is the same in every such file.

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32,
          torch.int64, torch.uint8)


def values(elements: int, dtype: torch.dtype, device: Any, op: str) -> torch.Tensor:
    """Small whole numbers, others on each rank: so that floats do not round, and results are equal to the last bit. For
    a product 1 and -1."""
    generator = torch.Generator().manual_seed(dist.get_rank() + 1)
    if op == "prod":
        numbers = 1 - 2 * torch.randint(0, 2, (elements,), generator=generator)
    else:
        numbers = torch.randint(0, 2 if dtype == torch.bfloat16 else 4, (elements,), generator=generator)
    return numbers.to(dtype).to(device)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


def native(op: str) -> Any:
    """torch's name for an operator; an average is its sum, divided by the one line that divides ours."""
    return {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.SUM, "prod": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN,
            "max": dist.ReduceOp.MAX, "band": dist.ReduceOp.BAND, "bor": dist.ReduceOp.BOR,
            "bxor": dist.ReduceOp.BXOR}[op]


def averaged(op: str, tensor: torch.Tensor) -> None:
    if op == "avg":
        divide(tensor, RANKS)


def ensure(wanted: Any, results: list[torch.Tensor], first: dict[str, torch.Tensor], part: int, op: str | None) -> None:
    """The results of a custom collective, from the first values of all ranks."""
    gathered = {}
    for name, tensor in first.items():
        gathered[name] = [torch.empty_like(tensor) for _ in range(RANKS)]
        dist.all_gather(gathered[name], tensor)
    for (_, _, sources), result in zip(wanted, results, strict=True):
        parts = [gathered[name][rank][at * part : (at + 1) * part] for name, rank, at in sources]
        result.copy_(parts[0])
        for more in parts[1:]:
            combine(op, result, more)
        if op == "avg":
            divide(result, len(parts))


def compared(sizes: list[int], device: torch.device) -> int:
    """Compare for some dtypes, operators and sizes; how many comparisons failed, on all ranks together."""
    wrong = made = 0
    left_out: dict[str, list[str]] = {}
    for dtype in DTYPES:
        for op in OPS:
            if dtype.is_floating_point and op in ("band", "bor", "bxor"):
                continue
            for elements in sizes:
                ours, theirs, pairs = trial(elements, dtype, device, op)
                try:
                    theirs()
                except (RuntimeError, TypeError, ValueError):  # torch or its back end cannot do it
                    left_out.setdefault(str(dtype).removeprefix("torch."), []).append(op)
                    break
                ours()
                made += 1
                wrong += sum(not torch.equal(a, b) for a, b in pairs)
    told = torch.tensor([wrong], device=device)
    dist.all_reduce(told)
    if dist.get_rank() == 0:
        say(f"{made} comparisons, {'all equal' if not told.item() else f'{told.item()} results differ'}"
              + "".join(f"; torch itself has no {', '.join(filter(None, ops)) or 'such collective'} of {name}"
                        for name, ops in left_out.items()))
    return int(told.item())


def timed(call: Callable[[], object], repeat: int, device: torch.device) -> float:
    """The median of the times of the slowest rank, in seconds."""
    times = []
    for turn in range(repeat + 1):
        dist.all_reduce(torch.zeros(1, device=device))
        if device.type == "cuda":
            torch.cuda.synchronize()
        begun = time.perf_counter()
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if turn:  # the first is to warm up
            times.append(time.perf_counter() - begun)
    slowest = torch.tensor(times, dtype=torch.float64, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest.median())


def main() -> None:
    options = argparse.ArgumentParser(description="Compare this schedule with torch's own collective, and time both.")
    sizes = [1 << n for n in range(12, 27, 2)]
    options.add_argument("--bytes", type=int, nargs="*", default=sizes, help="sizes to time")
    options.add_argument("--dtype", default="float32", help="of what is timed")
    options.add_argument("--repeat", type=int, default=10, help="times that each is run")
    chosen = options.parse_args()
    dtype = getattr(torch, chosen.dtype, None)
    if not isinstance(dtype, torch.dtype):
        options.error(f"--dtype {chosen.dtype}: torch has no such dtype")
    if chosen.repeat < 1:
        options.error(f"--repeat {chosen.repeat}: run each once at least")
    started = os.environ.get("WORLD_SIZE", "no")
    if started != str(RANKS):
        options.error(f"this schedule is for {RANKS} ranks, and torchrun has started {started} processes: start "
                      f"{RANKS} in all, on one machine by torchrun --nproc-per-node {RANKS} {sys.argv[0]}")
    local = int(os.environ.get("LOCAL_RANK", 0))
    on_gpus = torch.cuda.is_available() and torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    device = torch.device("cuda", local) if on_gpus else torch.device("cpu")
    if on_gpus:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpus else "gloo", device_id=device if on_gpus else None)
    wrong = compared([UNIT, 7 * UNIT, 1000 * UNIT], device)
    if dist.get_rank() == 0 and chosen.bytes:
        say(f"{'bytes':>12}{'ms':>12}{'torch ms':>12}{'ratio':>8}   median of {chosen.repeat}, the slowest rank's")
    for size in chosen.bytes:
        elements = max(1, size // dtype.itemsize // UNIT) * UNIT
        ours, theirs, _ = trial(elements, dtype, device, OPS[0])
        one, other = timed(ours, chosen.repeat, device), timed(theirs, chosen.repeat, device)
        if dist.get_rank() == 0:
            say(f"{elements * dtype.itemsize:12}{one * 1e3:12.3f}{other * 1e3:12.3f}{one / max(other, 1e-9):8.2f}")
    dist.destroy_process_group()
    raise SystemExit(wrong != 0)


if __name__ == "__main__":
    main()
