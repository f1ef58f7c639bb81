"""Ranks that do not mean the same are told so, all of them, before any payload moves."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import schedlang.torch as sched
from schedlang.backends.torch import handshake
from schedlang.backends.torch.header import EMPTY, SIZE, Header, merged, require_equal, require_equal_counts
from schedlang.backends.torch.wire import NcclWire
from schedlang.diagnostics import SchedError
from schedlang.fitting import choose
from schedlang.ir.digest import digest
from schedlang.ir.table import Collective
from tests import nccl_double
from tests.cuda_double import Torch

HEADER = Header(3, "allreduce", "sum", "float32", -1, 1024, bytes(range(16)), "ring(channels=1)")


def told(*headers: Header) -> str:
    with pytest.raises(SchedError) as failure:
        require_equal(headers)
    found = failure.value.diagnostics[0]
    assert found.code == "SL812"
    return found.message


def test_a_header_keeps_what_it_says():
    assert Header.unpack(HEADER.pack(7)) == (7, HEADER) and len(HEADER.pack(7)) == SIZE
    long = replace(HEADER, title="é" * 100)
    assert Header.unpack(long.pack(0)) == (0, replace(long, title="é" * 72))
    require_equal([HEADER, replace(HEADER, title="another name of it")])


def test_what_differs_is_named():
    assert told(HEADER, HEADER, replace(HEADER, elements=1000), replace(HEADER, op="max")) == (
        "the ranks do not agree on call 3 of the group, allreduce: rank 0 has 1024 elements; rank 2 has 1000 elements")
    assert "rank 0 has op sum, dtype float32; rank 1 has op max, dtype int32" in told(
        HEADER, replace(HEADER, op="max", dtype="int32"))
    assert "rank 0 has root none; rank 1 has root 2" in told(HEADER, replace(HEADER, root=2))
    assert "rank 0 has collective allreduce; rank 1 has collective barrier" in told(
        HEADER, replace(HEADER, collective="barrier", op="", elements=0, title="dissemination()", digest=bytes(16)))
    assert "on a call of the group, allreduce: rank 0 has call 3 of the group; rank 1 has call 4 of the group" in told(
        HEADER, replace(HEADER, sequence=4))
    other = replace(HEADER, digest=bytes(16), title="ring(channels=2)")
    assert "rank 0 has the schedule ring(channels=1); rank 1 has the schedule ring(channels=2)" in told(HEADER, other)
    assert f"rank 1 has the schedule ring(channels=1) with the digest {bytes(16).hex()}" in told(
        HEADER, replace(other, title=HEADER.title))


@pytest.mark.parametrize("size", range(1, 8))
def test_every_rank_learns_of_the_same_two(size):
    """Dissemination, for all ways in which ranks may fall into two or three camps."""
    camps = [replace(HEADER, elements=n) for n in range(3)]
    few = [(0,) * (size - 1) + (1,), (0, 2, 1, 0, 2, 0, 1)[:size]]
    for kinds in itertools.product(range(3), repeat=size) if size < 6 else few:
        known = [(camps[kind].pack(rank), EMPTY) for rank, kind in enumerate(kinds)]
        distance = 1
        while distance < size:
            known = [merged(*known[r], *known[(r - distance) % size]) for r in range(size)]
            distance *= 2
        first = next((r for r, kind in enumerate(kinds) if kind != kinds[0]), None)
        wanted = (camps[kinds[0]].pack(0), EMPTY if first is None else camps[kinds[first]].pack(first))
        assert known == [wanted] * size


def test_counts_that_differ_at_both_ends():
    sent = np.array([[1, 2], [3, 4]])
    require_equal_counts(sent, sent.copy(), HEADER)
    with pytest.raises(SchedError, match="rank 0 sends 2 elements to rank 1, which expects 5"):
        require_equal_counts(sent, np.array([[1, 5], [0, 4]]), HEADER)


def test_a_digest_is_of_what_is_done():
    ring, wanted = "schedlang:allreduce/ring.sched", Collective("allreduce")
    one, two = choose(ring, wanted, 4), choose((ring, {"channels": 2}), wanted, 4)
    assert one.digest == choose((ring, {"channels": 1}), wanted, 4).digest != two.digest
    assert (one.title, two.title) == ("ring(channels=1)", "ring(channels=2)")
    assert digest(one.table.with_columns(name="circle")) == one.digest
    assert digest(one.table.with_columns(peer=one.table.peer[::-1])) != one.digest
    v = Collective("alltoallv", counts=np.ones((4, 4), np.int64))
    assert choose("schedlang:alltoallv/bruck.sched", v, 4).relays
    assert not choose("schedlang:alltoallv/pairwise.sched", v, 4).relays


@pytest.mark.parametrize("size", range(2, 6))
@pytest.mark.parametrize("seed", range(4))
def test_over_nccl_each_round_is_one_batch(size, seed, monkeypatch):
    """On a communicator that works in order no rank waits for one that waits for it."""
    class OnDevice(Torch):
        def zeros(self, *shape: Any, **how: Any) -> torch.Tensor:
            return nccl_double.device(torch.zeros(*shape, **how))

    monkeypatch.setattr(handshake, "torch", OnDevice())
    world = nccl_double.World(size, seed=seed, haste=seed / 4, serial=seed % 2 == 1)
    counts = np.arange(size * size).reshape(size, size)

    def rank(me: int) -> tuple[list[list[int]], str]:
        mine = handshake.Handshake(NcclWire(None, world.dist))
        mine.agree(HEADER)
        found = mine.counts(HEADER, counts[me].tolist(), counts[:, me].tolist())
        with pytest.raises(SchedError) as failure:
            mine.agree(replace(HEADER, op="max") if me == size - 1 else HEADER)
        return found.tolist(), failure.value.diagnostics[0].message

    for found, message in world.run(rank):
        assert found == counts.tolist() and f"rank 0 has op sum; rank {size - 1} has op max" in message


# Over processes: what one rank does differently, and what all are told.
DIFFERENT: dict[str, tuple[Any, Any, str]] = {
    "elements": (lambda x: sched.all_reduce(x[:4]), lambda x: sched.all_reduce(x[:3]),
                 "rank 0 has 4 elements; rank 2 has 3 elements"),
    "dtype of equal bytes": (lambda x: sched.all_reduce(x), lambda x: sched.all_reduce(x.view(torch.int32)),
                             "rank 0 has dtype float32; rank 2 has dtype int32"),
    "operator": (lambda x: sched.all_reduce(x), lambda x: sched.all_reduce(x, dist.ReduceOp.MAX),
                 "rank 0 has op sum; rank 2 has op max"),
    "schedule": (lambda x: sched.all_reduce(x, schedule="schedlang:allreduce/ring.sched"),
                 lambda x: sched.all_reduce(x, schedule=("schedlang:allreduce/ring.sched", {"channels": 2})),
                 "rank 0 has the schedule ring(channels=1); rank 2 has the schedule ring(channels=2)"),
    "root": (lambda x: sched.broadcast(x, 0), lambda x: sched.broadcast(x, 1),
             "rank 0 has root 0, the schedule binomial_broadcast(root=0); rank 2 has root 1, "),
    "collective": (lambda x: sched.all_reduce(x), lambda x: sched.barrier(),
                   "rank 0 has collective allreduce; rank 2 has collective barrier"),
    "counts": (lambda x: sched.all_to_all_single(x, x.clone(), [2, 2, 2], [2, 2, 2]),
               lambda x: sched.all_to_all_single(x, x.clone(), [1, 3, 2], [2, 2, 2]),
               "rank 0 sends 2 elements to rank 2, which expects 1"),
}


def different(names: list[str], check: str) -> list[str]:
    told = []
    for name in names:
        most, one, _ = DIFFERENT[name]
        x = torch.full((6,), 1.0)
        with pytest.raises(SchedError) as failure:
            (one if dist.get_rank() == 2 else most)(x)
        assert x.tolist() == [1.0] * 6                      # no payload has moved
        told.append(failure.value.diagnostics[0].message)
    y = torch.ones(2)
    sched.all_reduce(y, check=check)                        # and the group is as good as before
    return [*told, str(y.tolist())]


def test_a_difference_is_refused_on_every_rank(world):
    names = list(DIFFERENT)
    got = world(3).run(different, names, "every")
    assert got[0] == got[1] == got[2] and got[0][-1] == "[3.0, 3.0]"
    for name, message in zip(names, got[0], strict=False):
        assert DIFFERENT[name][2] in message, (name, message)


def at_first() -> list[str]:
    """Without checks at every call, the schedules are compared at the first one."""
    given = "schedlang:allgather/ring.sched" if dist.get_rank() else "schedlang:allgather/bruck.sched"
    with pytest.raises(SchedError) as failure:
        sched.all_gather_single(torch.empty(2), torch.ones(1), schedule=given, check="off")
    return [failure.value.diagnostics[0].message]


def test_the_first_call_with_a_schedule_is_compared_in_any_case(world):
    message = world(2).run(at_first)[1][0]
    assert "rank 0 has the schedule bruck_all_gather(inplace=false); rank 1 has the schedule ring_all_gather" in message
