"""The worlds that tests run in."""

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

from schedlang.diagnostics import SchedError, error
from tests.backends.torch.pool import Failure, Raised, Silent


def total(mine: int) -> tuple[int, int, torch.Tensor]:
    value = torch.full((3,), mine, dtype=torch.bfloat16)
    dist.all_reduce(value)
    return dist.get_rank(), os.getpid(), value


def refuse(who: int) -> int:
    if dist.get_rank() == who:
        raise SchedError(error("SL801", "no", rank=who))
    return who


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def test_a_world_is_used_again(world):
    first = world(3).each(total, [(1,), (2,), (4,)])
    again = world(3).run(total, mine=1)
    assert [rank for rank, _, _ in first] == [0, 1, 2] and all(value.tolist() == [7.0] * 3 for _, _, value in first)
    assert [pid for _, pid, _ in first] == [pid for _, pid, _ in again] == world(3).pids
    assert all(value.tolist() == [3.0] * 3 for _, _, value in again)


def test_what_a_rank_raises_is_told_and_the_world_is_not_used_again(world):
    pool = world(2)
    with pytest.raises(Failure, match=r"rank 1: .*(?s:.)*in refuse(?s:.)*SL801") as failure:
        pool.run(refuse, 1)
    fine, raised = failure.value.outcomes
    assert fine == 1 and isinstance(raised, Raised) and raised.type == "SchedError"
    assert raised.findings[0].witness == {"rank": 1}
    assert world(2) is not pool and world(2).run(refuse, 7) == [7, 7]


def test_a_killed_and_a_stopped_rank_do_not_answer(world):
    pool = world(3)
    pool.start(sleep, [(60.0,), (60.0,), (0.0,)])
    os.kill(pool.pids[0], signal.SIGKILL)
    os.kill(pool.pids[1], signal.SIGSTOP)
    begun = time.monotonic()
    assert pool.collect(timeout=1.0) == [Silent(-signal.SIGKILL), Silent(None), None]
    assert time.monotonic() - begun < 5
    assert world(3) is not pool and world(3).run(refuse, 9) == [9, 9, 9]
