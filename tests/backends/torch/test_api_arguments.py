"""What the collectives of schedlang.torch do not take: torch's exceptions, with its words, and ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import schedlang
import schedlang.torch as sched

MAX = dist.ReduceOp.MAX


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


# Each: the call, torch's exception, and words of its message. All are refused before anything is sent.
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a list": (lambda: sched.all_reduce([1]), TypeError,
               r"Invalid function argument. Expected parameter `tensor` of type torch.Tensor"),
    "no list": (lambda: sched.scatter(ones(2), (ones(2), ones(2))), TypeError,
                r"Expected parameter `scatter_list` of type List\[torch.Tensor\]"),
    "a list of numbers": (lambda: sched.gather(ones(2), [1, 2]), TypeError, r"with elements of type"),
    "a transposed tensor": (lambda: sched.all_reduce(ones(3, 2).t()), ValueError, "Tensors must be contiguous"),
    "an output with gaps": (lambda: sched.all_gather_single(ones(4, 2)[:, :1], ones(2)), ValueError,
                            "Tensors must be contiguous"),
    "a tensor that is to be negated": (lambda: sched.all_reduce(torch._neg_view(ones(3))), ValueError,
                                       "must not be lazily negated"),
    "a sparse tensor": (lambda: sched.all_reduce(torch.eye(2).to_sparse()), ValueError, "Tensors must be dense"),
    "another device": (lambda: sched.broadcast(torch.ones(2, device="meta"), 0), RuntimeError,
                       "No backend type associated with device type meta"),
    "bits of floats": (lambda: sched.all_reduce(ones(2), dist.ReduceOp.BOR), RuntimeError,
                       "Cannot use ReduceOp.BOR with non-integral dtype"),
    "the largest complex number": (lambda: sched.all_reduce(ones(2, dtype=torch.complex64), MAX), ValueError,
                                   "all_reduce does not support ReduceOp.MAX on complex tensors"),
    "an operator by name": (lambda: sched.reduce(ones(2), 0, "sum"), TypeError,
                            "op must be a torch.distributed.Reduce"),
    "a scaled sum": (lambda: sched.all_reduce(ones(2), dist._make_nccl_premul_sum(2.0)), RuntimeError,
                     "Cannot use ReduceOp.PREMUL_SUM"),
    "a short output": (lambda: sched.all_gather_single(ones(3), ones(2)), ValueError,
                       "output tensor size must be equal to world_size times input tensor size: 3 elements and 2 x 2"),
    "another dtype": (lambda: sched.all_gather_single(ones(4), ones(2, dtype=torch.int32)), TypeError,
                      "output tensor must have the same type as input tensor"),
    "a long output": (lambda: sched.reduce_scatter_single(ones(3), ones(4)), ValueError,
                      "input tensor must be the same size as output size times world size"),
    "another dtype of blocks": (lambda: sched.reduce_scatter_single(ones(2), ones(4, dtype=torch.int32)), TypeError,
                                "input tensor must be the same type as the output tensor"),
    "mixed dtypes": (lambda: sched.all_to_all_single(ones(2), ones(2, dtype=torch.int32)), ValueError,
                     "Invalid usage of tensors with different dtypes"),
    "odd rows": (lambda: sched.all_to_all_single(ones(3), ones(3)), RuntimeError,
                 "Tensor's dim 0 does not divide equally across group size"),
    "unequal tensors": (lambda: sched.all_to_all_single(ones(4), ones(2)), RuntimeError, "must be equal"),
    "too few splits": (lambda: sched.all_to_all_single(ones(4), ones(4), [4], [2, 2]), RuntimeError,
                       "Number of tensor splits not equal to group size"),
    "splits that miss a row": (lambda: sched.all_to_all_single(ones(4), ones(4), [2, 2], [2, 1]), RuntimeError,
                               "Split sizes doesn't match total dim 0 size"),
    "a negative split": (lambda: sched.all_to_all_single(ones(4), ones(4), [5, -1], [2, 2]), RuntimeError,
                         "Split sizes doesn't match total dim 0 size"),
    "no root": (lambda: sched.broadcast(ones(2)), ValueError, "Must specify global_rank or group_rank"),
    "two roots": (lambda: sched.reduce(ones(2), 0, group_dst=0), ValueError,
                  "Can't specify both group_rank and global_rank"),
    "a root that is not there": (lambda: sched.broadcast(ones(2), 7), RuntimeError, "broadcast: invalid root rank: 7"),
    "a check that is not there": (lambda: sched.all_reduce(ones(2), check="once"), ValueError, 'check must be "every"'),
    "a number for a schedule": (lambda: sched.all_reduce(ones(2), schedule=3), TypeError,
                                "schedule must be a path, "),
}


def refused(name: str) -> str | None:
    call, kind, words = REFUSED[name]
    with pytest.raises(kind, match=words):
        call()
    return None


def all_refused(names: list[str]) -> list[Any]:
    return [refused(name) for name in names]


def test_what_torch_refuses_too(world):
    world(2).run(all_refused, list(REFUSED))


def lists() -> None:
    """Those of gather and scatter, on the root and elsewhere."""
    here = dist.get_rank() == 0
    two = [ones(2), ones(2)]
    for call, word in ((sched.gather, "destination"), (sched.scatter, "source")):
        if here:
            with pytest.raises(ValueError, match=f"must be specified on {word} rank"):
                call(ones(2))
            with pytest.raises(RuntimeError, match="list size should be 2, same as size of the process"):
                call(ones(2), two[:1])
            with pytest.raises(RuntimeError, match=r"invalid tensor size at index 1 \(expected \(2,\), got \(3,\)\)"):
                call(ones(2), [ones(2), ones(3)])
        else:
            with pytest.raises(ValueError, match=f"must NOT be specified on non-{word} ranks"):
                call(ones(2), two)


def test_lists(world):
    world(2).run(lists)


def unfit(broken: str) -> list[str]:
    """Schedules that do not serve the call; the same words on all ranks, which then go on."""
    told = []
    ring = schedlang.load("schedlang:allreduce/ring.sched", ranks=4)
    calls: list[Callable[[], Any]] = [
        lambda: sched.all_gather_single(ones(4), ones(2), schedule="schedlang:allreduce/ring.sched"),
        lambda: sched.all_reduce(ones(2), schedule=ring),
        lambda: sched.broadcast(ones(2), 1, schedule="schedlang:broadcast/staged_chain.sched"),
        lambda: sched.all_reduce(ones(2), schedule=broken),
        lambda: sched.all_reduce(ones(2), schedule=("schedlang:allreduce/ring.sched", {"color": 2})),
        lambda: sched.all_reduce(ones(2, dtype=torch.bool)),
    ]
    for call in calls:
        with pytest.raises(schedlang.SchedError) as failure:
            call()
        told.append(failure.value.diagnostics[0].code + " " + failure.value.diagnostics[0].message)
    half = ones(2)
    sched.all_reduce(half, schedule=broken, verify=False)
    return [*told, str(half.tolist())]


def test_schedules_that_do_not_serve_the_call(world, tmp_path):
    file = tmp_path / "half.sched"
    file.write_text("schedule half(ranks):\n    collective allreduce(sum)\n    reduce data[0] from 0 to 1\n")
    told = world(2).run(unfit, str(file))
    assert [line.split(" ")[0] for line in told[0][:-1]] == ["SL816", "SL816", "SL816", "SL501", "SL206", "SL803"]
    assert told[0][0] == "SL816 ring is for allreduce, not for allgather"
    assert told[0][1] == "SL816 ring is for 4 ranks, but the group has 2"
    assert told[0][2] == "SL816 staged_chain has root 0, but the call's is rank 1 of the group"
    assert told[0][:-1] == told[1][:-1]
    assert [line[-1] for line in told] == ["[1.0, 1.0]", "[2.0, 2.0]"]      # unproved, as it was asked for


def alone() -> list[Any]:
    """A call that one rank refuses by itself: its next one meets what the others have begun, and all are told why."""
    rank, told = dist.get_rank(), []
    for wrong in (lambda: sched.all_reduce(ones(3, 2).t()), lambda: sched.broadcast(ones(3, 2), 9),
                  lambda: sched.functional.all_reduce([1])):
        if rank == 1:
            with pytest.raises((ValueError, RuntimeError, TypeError)):
                wrong()
            call: Callable[[], Any] = sched.barrier
        else:
            def call() -> Any:
                return sched.all_reduce(ones(6))
        with pytest.raises(schedlang.SchedError) as failure:
            call()
        found = failure.value.diagnostics[0]
        told.append([found.code, *(note.message for note in found.notes)])
        x = ones(2)
        sched.all_reduce(x)                 # together again; and what was refused before is no news any more
        assert x.tolist() == [2, 2]
        with pytest.raises(schedlang.SchedError) as failure:
            sched.all_reduce(ones(2 + rank))
        assert not failure.value.diagnostics[0].notes
    return told


def test_a_call_that_one_rank_refuses(world):
    first, second = world(2).run(alone)
    said = "rank 1 refused a call by itself before: {}; others may have made it"
    assert first == second == [
        ["SL812", said.format("ValueError: Tensors must be contiguous")],
        ["SL812", said.format("RuntimeError: broadcast: invalid root rank: 9")],
        ["SL812", said.format("TypeError: Invalid function argument. Expected parameter `tensor` of type "
                              "torch.Tensor")]]
