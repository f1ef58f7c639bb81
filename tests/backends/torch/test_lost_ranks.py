"""Ranks that die or stop in calls of schedlang.torch, and in a training over the process group `schedlang`.

All others end within the timeout, with an error that names the rank they waited for, the step, its line, and the end of
the chain.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from datetime import timedelta
from signal import SIGKILL, SIGSTOP
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import schedlang.torch as sched
from schedlang.diagnostics import SchedError
from schedlang.torch import Options, Rule
from tests.backends.torch.dying import fatal

TIMEOUT = 5.0
RANKS = 3
RING = "schedlang:allreduce/ring.sched"


def impatient(**how: Any) -> Any:
    """A group that takes its time to connect, and later has little of it."""
    group = dist.new_group(timeout=timedelta(seconds=60), **how)
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=TIMEOUT), group)
    return group


def told(call: Callable[[], Any]) -> tuple[str, float]:
    """What a call raises, or the next one where this one needed nothing more of the lost rank, and after how many
    seconds."""
    for _ in range(2):
        begun = time.monotonic()
        try:
            call()
        except (SchedError, RuntimeError) as failure:
            return str(failure), time.monotonic() - begun
    raise AssertionError("nothing was raised")


def by_calls(who: int, after: int, signal: int, later: bool) -> tuple[str, float]:
    """Two all-reduces over Gloo's group, the second of which rank ``who`` does not survive."""
    group = impatient()
    x = torch.ones(50_000)

    def call() -> None:
        work = sched.all_reduce(x, group=group, schedule=RING, async_op=later)
        if work is not None:
            work.wait()

    call()
    wire = fatal(group)
    if dist.get_rank() == who:
        wire.arm(after, signal)
    return told(call)


def by_training(who: int, after: int, signal: int, _: bool) -> tuple[str, float]:
    """A training with DDP whose third step rank ``who`` does not survive."""
    options = Options(table=[Rule("allreduce", RING)])
    group = impatient(backend="schedlang", pg_options=options)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(40, 60), nn.Linear(60, 40)), process_group=group,
                                              bucket_cap_mb=0.005)

    def step() -> None:
        net(torch.ones(2, 40)).sum().backward()

    for _ in range(2):                      # after the first one DDP sorts its buckets anew, and says so to all ranks
        step()
    wire = fatal(group)
    if dist.get_rank() == who:
        wire.arm(after, signal)
    return told(step)


def check(world: Any, what: Callable[..., Any], who: int, after: int, signal: int, later: bool = False) -> None:
    pool = world(RANKS)
    pool.start(what, [(who, after, signal, later)] * RANKS)
    outcomes = pool.collect(without=[who])
    pool.close()
    for rank, got in enumerate(outcomes):
        if rank == who:
            continue
        assert isinstance(got, tuple), got
        text, seconds = got
        assert "[SL813] rank-lost" in text, text
        assert re.search(rf"rank {rank} waits in vain for rank [0-{RANKS - 1}]: ", text), text
        assert re.search(r"allreduce/ring.sched:\d+:\d+: error", text), text            # the line
        assert re.search(r"(, |before )step \d+", text), text
        assert f"rank {who} waits for nobody" in text, text
        assert seconds < TIMEOUT + 6, text


@pytest.mark.parametrize("what,who,after,signal,later", [
    (by_calls, 1, 6, SIGKILL, False), (by_calls, 0, 9, SIGSTOP, True), (by_training, 2, 7, SIGKILL, False),
    (by_training, 1, 1, SIGSTOP, False)])
def test_a_rank_that_is_lost(world, what, who, after, signal, later):
    check(world, what, who, after, signal, later)


@pytest.mark.nightly
@pytest.mark.parametrize("signal", [SIGKILL, SIGSTOP])
@pytest.mark.parametrize("who", range(RANKS))
@pytest.mark.parametrize("what,later", [(by_calls, False), (by_calls, True), (by_training, False)])
def test_every_rank_at_several_moments(world, what, later, who, signal):
    posts = 12          # a rank posts 4 messages for a header, and 8 for the ring
    for after in sorted(random.Random(who).sample(range(posts), 3)):
        check(world, what, who, after, signal, later)
