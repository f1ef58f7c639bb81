"""all_gather and reduce_scatter with lists, of equal sizes and of others, by schedules: in the API, and in the process
group `schedlang`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

import schedlang
import schedlang.torch as sched
from schedlang.torch import Options

PLACED = """
schedule placed_gather(ranks, counts):
    collective allgatherv(counts) inplace
    step:
        for r in 0..ranks:
            for p in 0..ranks:
                send data[r] from r to p if p != r and counts[r] > 0

schedule placed_scatter(ranks, counts):
    collective reduce_scatterv(sum, counts) inplace
    step:
        for r in 0..ranks:
            for p in 0..ranks:
                reduce data[p] from r to p if p != r
"""


def mine(sizes: list[int], rank: int, dtype: torch.dtype) -> torch.Tensor:
    return (torch.arange(sum(sizes)) % 5 + rank + 1).to(dtype)


def gathered(sizes: list[int], dtype: torch.dtype, call: Any) -> bool:
    rank = dist.get_rank()
    parts = [torch.full((n,), -1).to(dtype) for n in sizes]
    tensor = mine(sizes, rank, dtype)[: sizes[rank]]
    kept = tensor.clone()
    call(parts, tensor)
    wanted = [mine(sizes, r, dtype)[:n] for r, n in enumerate(sizes)]
    return torch.equal(tensor, kept) and all(map(torch.equal, parts, wanted))


def scattered(sizes: list[int], dtype: torch.dtype, call: Any, op: Any = dist.ReduceOp.SUM) -> bool:
    rank, size = dist.get_rank(), dist.get_world_size()
    inputs = [part.clone() for part in mine(sizes, rank, dtype).split(sizes)]
    output = torch.full((sizes[rank],), -1).to(dtype)
    call(output, inputs, op)
    all_of = torch.stack([mine(sizes, r, dtype) for r in range(size)])
    wanted = {dist.ReduceOp.SUM: all_of.sum(0), dist.ReduceOp.MAX: all_of.amax(0)}[op].to(dtype)
    same = all(map(torch.equal, inputs, mine(sizes, rank, dtype).split(sizes)))
    return same and torch.equal(output, wanted.split(sizes)[rank])


SIZES = [[3, 3, 3], [4, 0, 7], [0, 1, 0], [0, 0, 0], [1, 2, 3]]


def by_calls(placed: str) -> list[str]:
    """What is wrong, by schedule and sizes."""
    wrong = []
    for turn, sizes in enumerate(SIZES):
        even = len(set(sizes)) == 1
        gathers: list[Any] = [{}, {"check": "off"}]
        scatters: list[Any] = [{}, {"check": "off"}]
        if not even:
            gathers += [{"schedule": f"schedlang:allgatherv/{name}.sched"} for name in ("direct", "ring")]
            scatters += [{"schedule": f"schedlang:reduce_scatterv/{name}.sched"} for name in ("direct", "ring")]
            gathers.append({"schedule": f"{placed}::placed_gather"})
            scatters.append({"schedule": f"{placed}::placed_scatter"})
        dtype = (torch.float32, torch.int16, torch.float64)[turn % 3]
        for how in gathers:
            if not gathered(sizes, dtype, lambda parts, x, how=how: sched.all_gather(parts, x, **how)):
                wrong.append(f"all_gather {sizes} {how}")
        for how in scatters:
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):
                if not scattered(sizes, dtype, lambda y, xs, op, how=how: sched.reduce_scatter(y, xs, op, **how), op):
                    wrong.append(f"reduce_scatter {sizes} {how} {op}")
    parts = [torch.empty(n, 2, dtype=torch.complex64) for n in (1, 2, 3)]
    rank = dist.get_rank()
    work = sched.all_gather(parts, torch.full((rank + 1, 2), rank * 1j), async_op=True)
    assert work is not None
    wanted = [torch.full((n, 2), (n - 1) * 1j) for n in (1, 2, 3)]
    if not all(map(torch.equal, work.get_future().wait(), wanted)):
        wrong.append("complex numbers, later")
    return wrong


def test_lists_of_any_sizes(world, tmp_path):
    file = tmp_path / "placed.sched"
    file.write_text(PLACED)
    assert world(3).run(by_calls, str(file)) == [[]] * 3


def over(options: Options | None, lists: list[list[int]]) -> list[Any]:
    """Lists by torch.distributed over a group with some options: whether they are right, and what went to Gloo."""
    rank, fine = dist.get_rank(), []
    group = dist.new_group(backend="schedlang", pg_options=options, timeout=timedelta(seconds=60))
    for sizes in lists:
        fine.append(gathered(sizes, torch.float32, lambda parts, x: dist.all_gather(parts, x, group=group)))
        fine.append(scattered(sizes, torch.float32, lambda y, xs, op: dist.reduce_scatter(y, xs, op, group=group)))
    wide = [torch.zeros(2, 2) for _ in range(3)]            # parts with gaps
    dist.all_gather([one[:, 1] for one in wide], torch.full((2,), rank + 1.0), group=group)
    fine.append([one.sum(0).tolist() for one in wide] == [[0, 2], [0, 4], [0, 6]])
    dist.barrier()
    dist.destroy_process_group(group)
    return [fine, dict(group.passed)]


def test_lists_over_the_process_group(world):
    assert world(3).run(over, None, SIZES[:2]) == [[[True] * 5, {}]] * 3
    passed = {"all_gather": 2, "reduce_scatter": 1}
    assert world(3).run(over, Options(table=()), SIZES[:1]) == [[[True] * 3, passed]] * 3


def refusals() -> list[str]:
    """Ranks that do not agree on sizes, and lists that are none."""
    rank, told = dist.get_rank(), []
    sizes = [1, 2 + rank]                   # rank 0 expects 2 elements of rank 1, which has 3
    for call in (lambda: sched.all_gather([torch.ones(n) for n in sizes], torch.ones(sizes[rank])),
                 lambda: sched.reduce_scatter(torch.ones(sizes[rank]), [torch.ones(n) for n in sizes])):
        with pytest.raises(schedlang.SchedError) as failure:
            call()
        told.append(failure.value.diagnostics[0].message)
    with pytest.raises(RuntimeError, match="all_gather: Incorrect output list size 1"):
        sched.all_gather([torch.ones(1)], torch.ones(1))
    with pytest.raises(RuntimeError, match=rf"tensor size at index {rank} \(expected \(5,\), got \({rank + 1},"):
        sched.reduce_scatter(torch.ones(5), [torch.ones(1), torch.ones(2)])
    with pytest.raises(ValueError, match="Invalid usage of tensors with different dtypes"):
        sched.all_gather([torch.ones(1), torch.ones(2).int()], torch.ones(1))
    with pytest.raises(TypeError, match="Expected parameter `input_list` of type List"):
        sched.reduce_scatter(torch.ones(1), torch.ones(2))
    with pytest.raises(schedlang.SchedError, match="is for allgather, not for allgatherv"):
        sched.all_gather([torch.ones(1), torch.ones(2)], torch.ones(1 + rank),
                         schedule="schedlang:allgather/ring.sched")
    return told


def test_sizes_that_differ_between_ranks(world):
    first, second = world(2).run(refusals)
    assert first == second == [
        "in call 1 of the group, allgatherv, rank 1 sends 3 elements to rank 0, which expects 2",
        "in call 2 of the group, reduce_scatterv, rank 0 sends 2 elements to rank 1, which expects 3"]
