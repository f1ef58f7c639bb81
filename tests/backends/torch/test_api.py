"""The collectives of schedlang.torch against those of torch.distributed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

import schedlang.torch as sched
from schedlang.source import LIBRARY

OPERATORS = {"sum": dist.ReduceOp.SUM, "prod": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN,
             "max": dist.ReduceOp.MAX}
KINDS = ("allreduce", "reduce", "broadcast", "allgather", "reduce_scatter", "gather", "scatter", "alltoall",
         "alltoallv", "barrier")
SIZED = {"hierarchical": {"nodes": 2, "gpus": 2}, "hierarchical3": {"racks": 1, "nodes": 2, "gpus": 2},
         "torus": {"rows": 2, "columns": 2}, "two_tier": {"host": [0, 1, 0, 1]}}


def mine(n: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Values of this rank; integers small enough that products of 4 are exact in all dtypes."""
    generator = torch.Generator().manual_seed(seed * 100 + dist.get_rank())
    if dtype.is_floating_point:
        return torch.randn(n, generator=generator).to(dtype)
    return torch.randint(0, 3, (n,), generator=generator).to(dtype)


def both(kind: str, how: dict[str, Any], n: int, dtype: torch.dtype, op: Any, root: int) -> list[tuple[Any, Any]]:
    """What the schedule gives, and what torch gives, of the same inputs."""
    size, rank = dist.get_world_size(), dist.get_rank()
    if kind in ("allreduce", "reduce", "broadcast"):
        call, args = {"allreduce": ("all_reduce", {"op": op}), "reduce": ("reduce", {"dst": root, "op": op}),
                      "broadcast": ("broadcast", {"src": root})}[kind]
        a, b = mine(n, dtype), mine(n, dtype)
        getattr(sched, call)(a, **args, **how)
        getattr(dist, call)(b, **args)
        if kind == "reduce" and rank != root:
            b = mine(n, dtype)              # which Gloo overwrites, and we do not
        return [(a, b)]
    if kind in ("allgather", "reduce_scatter", "alltoall", "alltoallv"):
        long, short = n * size, n
        if kind == "allgather":
            x, shape = mine(short, dtype), long
            calls = [lambda f, y: f.all_gather_single(y, x)]
        elif kind == "reduce_scatter":
            x, shape = mine(long, dtype), short
            calls = [lambda f, y: f.reduce_scatter_single(y, x, op=op)]
        elif kind == "alltoall":
            x, shape = mine(long, dtype), long
            calls = [lambda f, y: f.all_to_all_single(y, x)]
        else:
            counts = [[(s * 3 + d * n) % 5 for d in range(size)] for s in range(size)]
            sends, receives = counts[rank], [row[rank] for row in counts]
            x, shape = mine(sum(sends), dtype), sum(receives)
            calls = [lambda f, y: f.all_to_all_single(y, x, receives, sends)]
        kept, a, b = x.clone(), torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)
        calls[0](_With(how), a)
        calls[0](dist, b)
        return [(a, b), (x, kept)]
    if kind == "gather":
        x = mine(n, dtype)
        lists = [[torch.zeros_like(x) for _ in range(size)] if rank == root else None for _ in range(2)]
        sched.gather(x, lists[0], dst=root, **how)
        dist.gather(x, lists[1], dst=root)
        return list(zip(*lists)) if rank == root else []
    if kind == "scatter":
        lists = [[mine(n, dtype, seed) for seed in range(size)] if rank == root else None for _ in range(2)]
        a, b = torch.zeros(n, dtype=dtype), torch.zeros(n, dtype=dtype)
        sched.scatter(a, lists[0], src=root, **how)
        dist.scatter(b, lists[1], src=root)
        return [(a, b), *(zip(*lists) if rank == root else [])]
    sched.barrier(**how)
    return []


class _With:
    """schedlang.torch with further arguments."""

    def __init__(self, how: dict[str, Any]) -> None:
        self.how = how

    def __getattr__(self, name: str) -> Any:
        return lambda *a, **b: getattr(sched, name)(*a, **b, **self.how)


def same(kind: str, cases: list[tuple[dict[str, Any], int, torch.dtype, str, int]]) -> list[str]:
    """Where the schedule and torch differ by more than the rounding of another order of additions."""
    wrong = []
    for how, n, dtype, op, root in cases:
        for k, (a, b) in enumerate(both(kind, how, n, dtype, OPERATORS[op], root)):
            if dtype.is_floating_point and op in ("sum", "prod"):
                tolerance = 4 * torch.finfo(dtype).eps * dist.get_world_size()
                fine = torch.allclose(a.double(), b.double(), rtol=tolerance, atol=tolerance * 8)
            else:
                fine = torch.equal(a, b)
            if not fine:
                wrong.append(f"{kind} {how} {n} {dtype} {op} {root} [{k}]: {a.tolist()} != {b.tolist()}")
    return wrong


def shipped(kind: str, size: int) -> list[dict[str, Any]]:
    """All shipped schedules of a collective that there are for a number of ranks, in place and out of place."""
    found: list[dict[str, Any]] = [{}]
    for path in sorted((LIBRARY / kind).glob("*.sched")):
        text = path.read_text()
        if "require is_pow2(ranks)" in text and size not in (1, 2, 4, 8):
            continue
        file = f"schedlang:{kind}/{path.name}"
        params = {key: value if size == 4 else [*range(size)] if isinstance(value, list) else 1 if i else size
                  for i, (key, value) in enumerate(SIZED.get(path.stem, {}).items())}
        given: list[Any] = [(file, params) if params else file]
        if "inplace=false" in text:
            given.append((file, {"inplace": True}))
        if path.stem == "swing":
            given.append(f"{file}::swing_latency")
        found += [{"schedule": one} for one in given]
    return found


def checked(world: Any, size: int, kind: str) -> int:
    """Compare all shipped schedules of a collective; how many there are."""
    schedules = shipped(kind, size)
    for k, how in enumerate(schedules):
        root = 0 if "staged" in str(how) else (k + 1) % size
        cases = [(how, 13, torch.float32, "sum", root), (how, 2 * size * k % 7, torch.int32, "sum", root),
                 (how, 5, torch.float64, "max", root), (how, 6, torch.int64, "prod", root)]
        if kind in ("broadcast", "allgather", "gather", "scatter", "alltoall", "alltoallv", "barrier"):
            cases = cases[:2]
        assert world(size).run(same, kind, cases) == [[]] * size
    return len(schedules)


@pytest.mark.parametrize("kind", KINDS)
def test_every_shipped_schedule_gives_what_torch_gives(world, kind):
    assert checked(world, 4, kind) >= 2


@pytest.mark.parametrize("size", [1, 3])
def test_the_schedules_that_are_taken_if_none_is_named(world, size):
    for kind in KINDS:
        cases = [({}, n, torch.float32, "sum", size - 1) for n in (0, 1, 7)]
        assert world(size).run(same, kind, cases) == [[]] * size


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_every_shipped_schedule_gives_what_torch_gives_at_other_sizes(world, kind, size):
    checked(world, size, kind)


def others(dtype: torch.dtype, op: str) -> bool:
    """A dtype, or an operator, that Gloo's own all-reduce does not take: against sums in one process."""
    ranks = range(dist.get_world_size())
    every = [torch.tensor([1, 2, 3, r + 2, 5 * r], dtype=torch.int64) for r in ranks]
    value = every[dist.get_rank()].to(dtype)
    wanted = {"sum": lambda s: s.sum(0), "bor": lambda s: s[0] | s[1], "bxor": lambda s: s[0] ^ s[1],
              "avg": lambda s: s.sum(0) / len(s)}[op](torch.stack(every))
    sched.all_reduce(value, {"sum": dist.ReduceOp.SUM, "bor": dist.ReduceOp.BOR, "bxor": dist.ReduceOp.BXOR,
                             "avg": dist.ReduceOp.AVG}[op])
    return bool((value.double() == wanted.to(dtype).double()).all())


def test_dtypes_and_operators_beyond_those_of_gloo(world):
    cases = [(torch.int16, "sum"), (torch.uint16, "sum"), (torch.bfloat16, "sum"), (torch.float16, "avg"),
             (torch.int32, "avg"), (torch.uint8, "bor"), (torch.int64, "bxor")]
    for case in cases:
        assert world(2).run(others, *case) == [True, True], case


def moved_and_complex() -> list[bool]:
    rank = dist.get_rank()
    value = torch.tensor([1 + 2j, 3 - 1j]) * (rank + 1)
    sched.all_reduce(value)
    eighth = torch.full((3,), rank, dtype=torch.float8_e4m3fn)
    sched.broadcast(eighth, src=1)
    truth = torch.tensor([rank == 0])
    sched.broadcast(truth, src=0)
    twice = torch.empty(4, dtype=torch.complex64)
    sched.all_to_all_single(twice, torch.arange(4).to(torch.complex64) + 10 * rank, [1, 3][rank:] + [1, 3][:rank],
                            [1, 3] if rank == 0 else [3, 1])
    wanted = [0, 10, 11, 12] if rank == 0 else [1, 2, 3, 13]
    return [value.tolist() == [3 + 6j, 9 - 3j], eighth.float().tolist() == [1, 1, 1], truth.tolist() == [True],
            twice.real.tolist() == wanted]


def test_complex_numbers_and_dtypes_that_only_move(world):
    assert world(2).run(moved_and_complex) == [[True] * 4] * 2


def matrices() -> list[bool]:
    """Tensors of several dimensions, and those that share memory, as torch takes them."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = torch.arange(6.0).view(2, 3) + 100 * rank
    stacked, joined = torch.empty(size, 2, 3), torch.empty(2 * size, 3)
    sched.all_gather_into_tensor(stacked, mine)
    sched.all_gather_single(joined, mine, schedule="schedlang:allgather/ring.sched")
    wanted = torch.stack([torch.arange(6.0).view(2, 3) + 100 * r for r in range(size)])
    inside = torch.zeros(size, 2, 3)
    inside[rank] = mine
    sched.all_gather_single(inside, inside[rank])
    scattered = torch.arange(2.0 * size).view(size, 2).contiguous()
    sched.reduce_scatter_tensor(scattered[rank], scattered)
    rows = torch.empty(size, 3)
    sched.all_to_all_single(rows, torch.full((size, 3), float(rank)), [1] * size, [1] * size)
    same = torch.full((size,), float(rank))
    sched.all_to_all_single(same, same)
    return [torch.equal(stacked, wanted), torch.equal(joined.view_as(wanted), wanted), torch.equal(inside, wanted),
            scattered[rank].tolist() == [size * 2.0 * rank, size * (2.0 * rank + 1)],
            rows[:, 0].tolist() == [*range(size)], same.tolist() == [*range(size)]]


def test_tensors_of_several_dimensions_and_shared_memory(world):
    assert world(3).run(matrices) == [[True] * 6] * 3


def ahead() -> list[Any]:
    """Asynchronous calls keep their order, also among synchronous ones and in callbacks of futures."""
    size = dist.get_world_size()
    x, y = torch.ones(5), torch.empty(5 * size)
    first = sched.all_reduce(x, async_op=True)
    second = sched.all_gather_single(y, x, async_op=True)
    z = torch.ones(2)
    sched.all_reduce(z)                                     # after both
    over = [first.is_completed(), second.is_completed()]
    works = [sched.all_reduce(torch.ones(1), async_op=True) for _ in range(3)]
    seen = []

    def again(future: Any) -> torch.Tensor:
        more = future.value()[0].clone()
        sched.all_reduce(more)                              # in the lane's own thread, before what is queued
        seen.append(more.item())
        return more

    then = works[0].get_future().then(again)
    for work in works:
        assert work.wait() and work.is_success() and work.exception() is None
    return [over, y.tolist() == [size] * 5 * size, z.tolist(), then.wait().item(), seen, works[1].result()[0].item(),
            isinstance(first, dist.Work)]


def test_asynchronous_calls(world):
    assert world(3).run(ahead) == [[[True, True], True, [3, 3], 9, [9], 3, True]] * 3


def sub() -> list[Any]:
    """Groups of some ranks: roots are global ranks, or ranks of the group."""
    group = dist.new_group([2, 0])
    outside = dist.get_rank() == 1
    x = torch.tensor([float(dist.get_rank())])
    if outside:
        with pytest.warns(UserWarning, match="Running all_reduce on global rank 1 which does not belong"):
            assert sched.all_reduce(x, group=group) is None
        return [x.item()]
    sched.broadcast(x, src=2, group=group)
    sched.all_reduce(x, group=group)
    y = torch.tensor([float(dist.get_rank())])
    sched.broadcast(y, group_src=0, group=group)
    dist.barrier(group)
    dist.destroy_process_group(group)
    return [x.item(), y.item()]


def test_groups_of_some_ranks(world):
    assert world(3).run(sub) == [[4, 0], [1], [4, 0]]


def own_counts(file: str) -> list[bool]:
    """All-to-all with other counts at each call, by a schedule that looks at them, by one that relays, unchecked."""
    rank, size = dist.get_rank(), dist.get_world_size()
    fine = []
    for turn, how in enumerate(({"schedule": file}, {"schedule": file}, {"check": "off"}, {"check": "off"},
                                {"check": "off", "schedule": "schedlang:alltoallv/bruck.sched"})):
        counts = [[(s + 2 * d + turn) % 4 for d in range(size)] for s in range(size)]
        x = torch.cat([torch.full((counts[rank][d],), 10.0 * rank + d) for d in range(size)])
        y = torch.empty(sum(row[rank] for row in counts))
        sched.all_to_all_single(y, x, [row[rank] for row in counts], counts[rank], **how)
        fine.append(y.tolist() == [10.0 * s + rank for s in range(size) for _ in range(counts[s][rank])])
    return fine


def test_counts_that_change_from_call_to_call(world, tmp_path):
    file = tmp_path / "busy.sched"
    file.write_text("""
schedule busy(ranks, counts):
    # only what has elements is sent
    collective alltoallv(counts)
    step:
        for s in 0..ranks:
            copy input[s] into output[s] on s
            for d in 0..ranks:
                send input[d] from s to d into output[s] if s != d and counts[s][d] > 0
""")
    assert world(3).run(own_counts, str(file)) == [[True] * 5] * 3
