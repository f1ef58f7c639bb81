"""A rank that dies or stops: every other ends within the timeout, and says for whom all wait in the end."""

import random
import threading
from signal import SIGKILL, SIGSTOP

import pytest

from schedlang.backends.torch.faults import Wait, Watch, first_line, lost
from schedlang.backends.torch.plan import plan
from schedlang.backends.torch.tasks import Kind
from schedlang.diagnostics import Diagnostic
from schedlang.ir.table import NONE
from schedlang.verify.matching import match
from tests.backends.torch.dying import die
from tests.backends.torch.shipped import shipped

TIMEOUT = 5.0
"""Long enough for ranks that live, on a busy machine."""


def survivors(world, table, who: int, after: int, signal: int) -> dict[int, tuple[Diagnostic | None, float]]:
    pool = world(table.ranks)
    pool.start(die, [(table, who, after, signal, TIMEOUT)] * table.ranks)
    outcomes = pool.collect(without=[who])
    pool.close()
    assert pool.size - 1 == sum(isinstance(got, tuple) for got in outcomes), outcomes
    return {rank: got for rank, got in enumerate(outcomes) if rank != who}


def bereft(table, who: int, after: int) -> set[int]:
    """The ranks at the other end of what a rank has not posted when it dies; what others get may have come before."""
    posts = [i for i in plan(table, who).instructions if i.kind in (Kind.POST_SEND, Kind.POST_RECV)]
    return {int(table.peer[i.row]) for i in posts[after:]}


def check(world, table, who: int, after: int, signal: int) -> None:
    outcomes = survivors(world, table, who, after, signal)
    assert {rank for rank, (found, _) in outcomes.items() if found is not None} >= bereft(table, who, after)
    for found, seconds in outcomes.values():
        told = f"{found}\nafter {seconds} s"
        assert seconds < TIMEOUT + 5, told
        if found is None:
            continue
        facts = found.witness
        assert found.code == "SL813", told
        assert facts["end"] == who, told
        assert facts["chain"][0] == facts["rank"] != who, told
        assert f"rank {facts['rank']} waits in vain for rank {facts['peer']}: " in found.message, told
        assert f"step {facts['step']} (line " in found.message, told
        assert found.location is not None and found.location.line == table.origin(facts["row"])[0].line, told
        assert f"rank {who} waits for nobody" in str(found), told


@pytest.mark.parametrize("who,after,signal", [(0, 0, SIGKILL), (2, 7, SIGSTOP)])
def test_a_ring_that_loses_a_rank(world, who, after, signal):
    check(world, shipped("allreduce/ring.sched", "ring", 4), who, after, signal)


@pytest.mark.nightly
@pytest.mark.parametrize("signal", [SIGKILL, SIGSTOP])
@pytest.mark.parametrize("who", range(4))
@pytest.mark.parametrize("path,name", [("allreduce/ring.sched", "ring"),
                                       ("allreduce/halving_doubling.sched", "halving_doubling"),
                                       ("allreduce/double_tree.sched", "double_tree")])
def test_every_rank_at_several_moments(world, path, name, who, signal):
    table = shipped(path, name, 4)
    posts = int(((table.rank == who) & (table.peer >= 0)).sum())
    for after in sorted(random.Random(who).sample(range(posts), 3)):
        check(world, table, who, after, signal)


class Together:
    """A store in memory."""

    def __init__(self) -> None:
        self.said: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.said[key] = value

    def get(self, key: str) -> bytes:
        return self.said[key].encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.said for key in keys)

    def add(self, key: str, amount: int) -> int:
        self.said[key] = str(int(self.said.get(key, 0)) + amount)
        return int(self.said[key])


class Gone(Together):
    def check(self, keys: list[str]) -> bool:
        raise RuntimeError("Connection reset by peer")


class At:
    def __init__(self, peer: int, row: int) -> None:
        self.at, self._waits = 0, Wait(peer, row)

    def waits(self) -> Wait:
        return self._waits


def test_the_chain_is_followed_to_its_end():
    store = Together()
    watches = [Watch(store, "g", rank, None) for rank in range(3)]
    for watch in watches:
        watch.patience = 0.1
    for rank in (0, 1):
        watches[rank].begin(At(rank + 1, rank))
    watches[1].say(last=True)
    assert watches[0].chain(Wait(1, 0)) == ({0: Wait(1, 0), 1: Wait(2, 1)}, True)


def test_the_word_of_a_rank_that_is_stopped_does_not_count():
    """It waited for long, said so, went on, and was stopped before it could take that back."""
    store = Together()
    first, second = (Watch(store, "g", rank, None) for rank in (0, 1))
    first.patience = 0.2
    for watch in (first, second):
        watch.begin(At(watch.rank + 1, 7))
    second.say()
    assert first.chain(Wait(1, 7)) == ({0: Wait(1, 7)}, True)
    again = threading.Timer(0.1, second.say)                # one that is not stopped says so again and again
    again.start()
    assert first.chain(Wait(1, 7)) == ({0: Wait(1, 7), 1: Wait(2, 7)}, True)


def test_a_rank_that_waits_in_an_earlier_call_is_followed():
    """Rank 1 has got all it needs of rank 2 and goes on to the next call; rank 2 waits for rank 3 in the last."""
    store = Together()
    first, second = (Watch(store, "g", rank, None) for rank in (1, 2))
    first.patience = 0.1
    for watch in (first, second):
        watch.begin(At(watch.rank + 1, 7))
    second.say(last=True)
    first.end()
    first.meet(At(2, NONE))
    assert first.chain(Wait(2, NONE)) == ({1: Wait(2, NONE), 2: Wait(3, NONE, elsewhere=True)}, True)


def test_what_was_waited_for_does_not_count_once_it_has_come():
    """Rank 1's word is from a call that rank 0, which it waited for, has made to its end."""
    store = Together()
    first, second = (Watch(store, "g", rank, None) for rank in (0, 1))
    first.patience = 0.1
    for watch in (first, second):
        watch.begin(At(1 - watch.rank, 0))
    second.say(last=True)
    first.end()
    first.begin(At(1, 0))
    assert first.chain(Wait(1, 0)) == ({0: Wait(1, 0)}, True)


def test_a_store_that_is_gone_costs_no_time():
    watch = Watch(Gone(), "g", 0, None)
    watch.begin(At(1, 0))
    assert watch.chain(Wait(1, 0)) == ({0: Wait(1, 0)}, False)


def words(waits: dict[int, Wait], **how) -> str:
    return str(lost(shipped("allreduce/ring.sched", "ring", 4), 1, waits, "Timed out", **how).diagnostics[0])


def test_the_words():
    table = shipped("allreduce/ring.sched", "ring", 4)
    row = next(r for r in range(len(table)) if table.rank[r] == 1 and table.op[r] == 2)
    other = int(match(table).partner[row])
    text = words({1: Wait(0, row), 0: Wait(3, other)})
    assert "SL813] rank-lost: rank 1 waits in vain for rank 0: reduce-receive data" in text
    assert "rank 0 waits for rank 3: send data" in text
    assert "rank 3 waits for nobody: it has ended, is stopped, hangs elsewhere, or did not make this call" in text
    assert "torch says: Timed out" in text and "see what has become of rank 3" in text
    assert "the ranks 1, 0 wait for each other" in words({1: Wait(0, row), 0: Wait(1, other)})
    away = words({1: Wait(0, NONE), 0: Wait(3, NONE, elsewhere=True)}, call="call 3 of the group")
    assert "rank 1 waits in vain for rank 0: the header of call 3 of the group, before step 0" in away
    assert "rank 0 waits for rank 3: in another call of the group" in away
    assert "whether it makes this call with the same `check`" in away
    assert "the store does not answer" in words({1: Wait(0, row)}, answered=False)


def test_what_torch_says_goes_without_its_addresses():
    assert first_line(RuntimeError("[/pytorch/gloo/pair.cc:534] Connection closed by peer\nmore")) == (
        "Connection closed by peer")
    assert first_line(RuntimeError("")) == "RuntimeError"
