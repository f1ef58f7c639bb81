"""Gradients through collectives: in one process with the ranks stacked, and across processes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

import schedlang
from schedlang.diagnostics import SchedError
from schedlang.torch import functional

STACKED = {
    "allreduce/ring": (2, (3,)), "allreduce/halving_doubling": (3, (2,)), "allgather/bruck": (3, (1, 2)),
    "reduce_scatter/pairwise": (2, (2, 2)), "broadcast/binomial": (3, (2,)), "reduce/binomial": (3, (2,)),
    "alltoall/direct": (2, (2, 2)), "gather/direct": (3, (1,)), "scatter/direct": (3, (3,)),
}


def values(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed), requires_grad=True)


@pytest.mark.parametrize("name", STACKED)
def test_gradients_with_the_ranks_stacked(name):
    ranks, shape = STACKED[name]
    schedule = schedlang.load(f"schedlang:{name}.sched", ranks=ranks)

    def through(x: torch.Tensor) -> torch.Tensor:
        return functional.stacked(x, schedule)

    x = values(ranks, *shape)
    assert torch.autograd.gradcheck(through, x) and torch.autograd.gradgradcheck(through, x)


@pytest.mark.parametrize("name", ["allreduce/ring", "reduce_scatter/ring", "reduce/direct"])
def test_gradients_of_averages_with_the_ranks_stacked(name):
    schedule = schedlang.load(f"schedlang:{name}.sched", ranks=2).with_op("avg")
    x = values(2, 4)
    assert torch.allclose(functional.stacked(x, schedule)[0].sum(), schedule(x.detach())[0].sum())
    assert torch.autograd.gradcheck(lambda x: functional.stacked(x, schedule), x)


def test_the_way_back_can_be_named_with_the_ranks_stacked():
    there = schedlang.load("schedlang:allgather/ring.sched", ranks=2)
    back = schedlang.load("schedlang:reduce_scatter/pairwise.sched", ranks=2)
    x = values(2, 3)
    functional.stacked(x, there, backward=back).backward(torch.ones(2, 6, dtype=torch.float64))
    assert x.grad is not None and x.grad.tolist() == [[2.0] * 3] * 2


def test_what_cannot_be_used_with_the_ranks_stacked():
    there = schedlang.load("schedlang:allgather/ring.sched", ranks=2)
    x = values(2, 3)
    words = r"must be a schedlang.Schedule, not str: schedlang.load\(FILE, ranks=2\) makes one"
    with pytest.raises(TypeError, match=f"schedule {words}"):
        functional.stacked(x, "schedlang:allgather/ring.sched")
    with pytest.raises(TypeError, match=f"backward {words}"):
        functional.stacked(x, there, backward="schedlang:reduce_scatter/ring.sched")
    with pytest.raises(SchedError, match=r"SL801.*ring_all_gather has 2 ranks, but there are inputs for 3"):
        functional.stacked(values(3, 3), there)
    for name, ranks, why in (("allreduce/ring", 2, "is for allreduce, not for reduce_scatter"),
                             ("reduce_scatter/ring", 3, "is for 3 ranks, but the group has 2")):
        other = schedlang.load(f"schedlang:{name}.sched", ranks=ranks)
        with pytest.raises(SchedError, match=f"SL816.*{why}"):
            functional.stacked(x, there, backward=other)
    there = schedlang.load("schedlang:broadcast/binomial.sched", ranks=2, root=1)
    back = [schedlang.load("schedlang:reduce/direct.sched", ranks=2, root=root) for root in (0, 1)]
    with pytest.raises(SchedError, match=r"SL816.*has root 0, but the call's is rank 1"):
        functional.stacked(x, there, backward=back[0])
    functional.stacked(x, there, backward=back[1]).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[0.0] * 3, [2.0] * 3]


@pytest.mark.parametrize("op", ["max", "min", "prod"])
def test_what_is_not_linear_has_no_gradient_with_the_ranks_stacked(op):
    schedule = schedlang.load("schedlang:allreduce/ring.sched", ranks=2).with_op(op)
    result = functional.stacked(values(2, 3), schedule)
    with pytest.raises(RuntimeError, match=f"allreduce with {op} has no gradient: only sums and averages are linear"):
        result.sum().backward()


# Across processes -----------------------------------------------------------------------------------------------------


def products(size: int, rank: int, name: str, arguments: dict[str, Any], rows: int, wanted: int) -> tuple[float, float]:
    """This rank's parts of <A x, y> and <x, A' y>."""
    x = values(rows, 2, seed=rank)
    y = values(wanted, 2, seed=50 + rank).detach()
    result = getattr(functional, name)(x, **arguments)
    assert result.shape == y.shape
    result.backward(y)
    assert x.grad is not None
    return (result * y).sum().item(), (x * x.grad).sum().item()


def transposes() -> list[str]:
    """Maps whose way back is not their transpose: <A x, y> = <x, A' y>, summed over all ranks."""
    size, rank = dist.get_world_size(), dist.get_rank()
    counts = [[(2 * s + d) % 3 for d in range(size)] for s in range(size)]
    sends, receives = counts[rank], [row[rank] for row in counts]
    avg, uneven = {"op": dist.ReduceOp.AVG}, {"input_split_sizes": sends, "output_split_sizes": receives}
    ring = {"schedule": "schedlang:allgather/ring.sched"}
    cases = [
        ("all_reduce", {}, 4, 4), ("all_reduce", avg, 4, 4), ("reduce", {"dst": 1}, 4, 4),
        ("reduce", {"dst": 1, **avg}, 4, 4), ("broadcast", {"src": 2}, 4, 4), ("all_gather_single", {}, 2, 2 * size),
        ("all_gather_single", ring, 2, 2 * size), ("reduce_scatter_single", {}, 2 * size, 2),
        ("reduce_scatter_single", avg, 2 * size, 2), ("all_to_all_single", {}, 2 * size, 2 * size),
        ("gather", {"dst": 1}, 2, 2 * size), ("scatter", {"src": 2}, 2 * size, 2),
        ("gather", {"group_dst": 2, "schedule": "schedlang:gather/binomial.sched"}, 2, 2 * size),
        ("scatter", {"schedule": "schedlang:scatter/binomial.sched",
                     "backward": "schedlang:gather/direct.sched"}, 2 * size, 2),
        ("all_to_all_single", uneven, sum(sends), sum(receives)),
        ("all_to_all_single", {**uneven, "schedule": "schedlang:alltoallv/bruck.sched",    # which has no reverse
                               "backward": "schedlang:alltoallv/pairwise.sched"}, sum(sends), sum(receives)),
        ("all_gather_single", {"schedule": ("schedlang:allgather/pat.sched", {"inplace": True})}, 2, 2 * size),
    ]
    wrong = []
    for name, arguments, rows, wanted in cases:
        there = torch.tensor(products(size, rank, name, arguments, rows, wanted), dtype=torch.float64)
        dist.all_reduce(there)
        if not torch.allclose(there[0], there[1]):
            wrong.append(f"{name} {arguments}: {there.tolist()}")
    return wrong


def test_the_way_back_is_the_transpose(world):
    assert world(3).run(transposes) == [[]] * 3


def convention() -> list[Any]:
    """The gradient is that of the sum of all ranks' losses; results are new tensors."""
    size, rank = dist.get_world_size(), dist.get_rank()
    x = torch.tensor([1.0 + rank], requires_grad=True)
    y = functional.all_reduce(x)                            # y = x0 + x1 + x2 on every rank
    (y * (rank + 1)).sum().backward()                       # the losses: y, 2 y, 3 y; their sum: 6 y
    z = torch.tensor([1.0 + rank], requires_grad=True)
    root = functional.reduce(z, 0)
    (root ** 2).sum().backward()
    twice = torch.tensor([2.0], requires_grad=True)
    gathered = functional.all_gather_single(twice ** 3)
    first, = torch.autograd.grad(gathered.sum(), twice, create_graph=True)
    first.sum().backward()                                  # of 3 ranks' losses, each the sum of 8 + 8 + 8
    waves = torch.tensor([1 + 1j], requires_grad=True)
    functional.all_reduce(waves).abs().sum().backward()
    scalar = functional.all_gather_single(torch.tensor(float(rank)))
    parts = functional.gather(torch.tensor([float(rank)]), 1)
    dealt = functional.scatter(torch.arange(size) + 10 * rank, 2)
    assert (parts.tolist(), dealt.tolist()) == ([0, 1, 2] if rank == 1 else [0, 0, 0], [20 + rank])
    return [x.item(), y.item(), x.grad.item(), root.item(), z.grad.item(), first.item(), twice.grad.item(),
            round(abs(waves.grad.item()), 4), scalar.tolist(), size]


def test_the_gradient_is_that_of_the_sum_of_all_losses(world):
    got = world(3).run(convention)
    for rank, (x, y, gradient, root, to_root, first, second, wave, scalar, _) in enumerate(got):
        assert (x, y, gradient) == (1 + rank, 6, 6)
        assert (root, to_root) == ((6, 12) if rank == 0 else (0, 12))
        assert (first, second) == (3 * 12, 3 * 12)
        assert wave == 3 and scalar == [0, 1, 2]


def refusals() -> None:
    """What has no gradient, or no reverse, or does not fit."""
    x = torch.ones(2, requires_grad=True)
    for op in (dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT):
        result = functional.all_reduce(x, op)
        with pytest.raises(RuntimeError, match="has no gradient: only sums and averages are linear"):
            result.sum().backward()
    functional.all_reduce(x.detach(), dist.ReduceOp.MAX)
    for one in (functional.reduce_scatter_single, functional.scatter):
        with pytest.raises(ValueError, match=r"the first dimension of \(3,\) does not divide by 2"):
            one(torch.ones(3))
    with pytest.raises(RuntimeError, match="Number of tensor splits not equal to group size"):
        functional.all_to_all_single(torch.ones(2), input_split_sizes=[1, 1])
    with pytest.raises(TypeError, match="Expected parameter `tensor` of type"):
        functional.broadcast([1], 0)
    with pytest.raises(RuntimeError, match="No backend type associated with device type meta"):
        functional.all_reduce(torch.ones(2, device="meta"))
    with pytest.raises(TypeError, match="colour"):
        functional.all_reduce(torch.ones(2), colour="red")


def no_way_back() -> str:
    """Bruck's all-to-all goes there; a gradient needs another schedule, and is told so where it is asked for."""
    x = torch.ones(4, requires_grad=True)
    how = {"input_split_sizes": [2, 2], "output_split_sizes": [2, 2], "schedule": "schedlang:alltoallv/bruck.sched"}
    functional.all_to_all_single(x.detach(), **how)
    with pytest.raises(SchedError) as failure:
        functional.all_to_all_single(x, **how)
    functional.all_to_all_single(x, backward="schedlang:alltoallv/direct.sched", **how).sum().backward()
    found = failure.value.diagnostics[0]
    assert len(failure.value.diagnostics) == 1 and found.location is not None and x.grad.tolist() == [1] * 4
    return f"{found.code} {found.message}; {found.help}"


def test_a_gradient_through_what_has_no_reverse(world):
    first, second = world(2).run(no_way_back)
    assert first == second and first.startswith("SL211 no gradient goes back through bruck_all_to_all_v: ")
    assert first.endswith('; name a schedule for the way back, such as backward="schedlang:alltoallv/direct.sched", '
                          "or give it a tensor that needs no gradient: x.detach()")


def test_what_has_no_gradient(world):
    world(2).run(refusals)


def without_reverse(file: str) -> list[Any]:
    """A schedule without a reverse serves forward, and backward where another is named for the way back."""
    functional.all_gather_single(torch.ones(2), schedule=file)
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(SchedError, match="SL211"):
        functional.all_gather_single(x, schedule=file)
    result = functional.all_gather_single(x, schedule=file, backward="schedlang:reduce_scatter/ring.sched")
    result.sum().backward()
    return x.grad.tolist()


def test_a_schedule_without_a_reverse(world, tmp_path):
    file = tmp_path / "twice.sched"
    file.write_text("""
schedule twice(ranks):
    collective allgather
    for r in 0..ranks:
        copy input[0] into output[r] on r
    for turn in 0..2:
        step:
            for r in 0..ranks:
                for p in 0..ranks:
                    send input[0] from r to p into output[r] if p != r
""")
    assert world(2).run(without_reverse, str(file)) == [[2.0, 2.0]] * 2


def compiled() -> dict[str, Any]:
    """Under torch.compile: whether the result is the same, and how many graphs and breaks there are."""
    from datetime import timedelta

    import torch._dynamo

    import schedlang.torch as sched

    group = dist.new_group(backend="schedlang", timeout=timedelta(seconds=60))

    def gradients(x: torch.Tensor) -> torch.Tensor:
        y = functional.all_reduce(x * 2)
        z = functional.all_gather_single(y + 1)
        return (z * z).sum()

    def side_by_side(x: torch.Tensor) -> torch.Tensor:
        return functional.gather(functional.scatter(x * 2)) + 1

    def in_place(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        sched.all_reduce(y)
        return y + 1

    def later(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        work = sched.all_reduce(y, async_op=True)
        assert work is not None
        work.wait()
        return y + 1

    def by_torch(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        dist.all_reduce(y, group=group)
        return y + 1

    def by_torch_later(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        dist.all_reduce(y, group=group, async_op=True).wait()
        return y + 1

    found: dict[str, Any] = {}
    for step in (gradients, side_by_side, in_place, later, by_torch, by_torch_later):
        torch._dynamo.reset()
        x = torch.ones(3, requires_grad=step is gradients)
        explained = torch._dynamo.explain(step)(x)
        same = torch.equal(step(x), torch.compile(step, backend="eager")(x))
        found[step.__name__] = [same, explained.graph_count, explained.graph_break_count]
    gradients(x := torch.ones(3, requires_grad=True)).backward()
    torch.compile(gradients, backend="eager")(y := torch.ones(3, requires_grad=True)).backward()
    return {**found, "the gradient": torch.equal(x.grad, y.grad)}


def test_under_torch_compile(world):
    """Each call is a break, and between two of them is a graph."""
    assert world(1).run(compiled) == [{
        "gradients": [True, 3, 2], "side_by_side": [True, 2, 1], "in_place": [True, 2, 1], "later": [True, 2, 1],
        "by_torch": [True, 1, 0], "by_torch_later": [True, 2, 1], "the gradient": True}]
