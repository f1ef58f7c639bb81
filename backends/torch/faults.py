"""When a message does not come: who waits for whom, and on whom all of them wait in the end.

Each rank that waits for long says in the store what it waits for. So one that gives up can follow the others to the
rank at the end of the chain, which waits for nobody: it has died, is stopped, or never made the call. Nothing of this
costs anything while messages come.
"""

from __future__ import annotations

import atexit
import json
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol
from weakref import WeakSet, ref

from schedlang.diagnostics import Note, SchedError, error
from schedlang.ir.origin import at_row, came_from
from schedlang.ir.table import NONE, OpTable
from schedlang.ir.words import row_text, step_text

TICK = 0.5
"""Seconds after which a rank looks whether it still waits for the same; with short timeouts, less."""

PATIENCE = 2.0
"""Seconds that a rank which gives up takes to find the end of the chain, at most."""


FOR_GOOD = -1
"""In place of how often a rank has said what it waits for: it has given up."""


class Store(Protocol):
    """What is used of torch.distributed's stores."""

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str) -> bytes: ...

    def check(self, keys: list[str]) -> bool: ...

    def add(self, key: str, amount: int) -> int: ...


@dataclass(frozen=True)
class Wait:
    """A rank waits for ``peer``, in a row of the table; NONE: before the first one, to compare what both mean.
    ``elsewhere``: in another call than the one that is spoken of, so that its row says nothing here."""

    peer: int
    row: int
    elsewhere: bool = False


class Doing(Protocol):
    """What a rank is at. ``at``: the number of the step. ``waits``: for whom; None: for nobody."""

    at: int

    def waits(self) -> Wait | None: ...


class Watch:
    """Says in the store what its rank waits for, while that takes long."""

    def __init__(self, store: Store, name: str, rank: int, timeout: timedelta | None) -> None:
        self._store, self._name, self.rank = store, name, rank
        seconds = timeout.total_seconds() if timeout is not None else 10 * TICK
        self._tick = min(TICK, seconds / 8)
        self.patience = min(PATIENCE, seconds / 2)
        self._lock = threading.Lock()
        self._life = 0                      # a name serves again where groups are destroyed and made anew
        self._calls = 0
        self._met = False
        self._doing: tuple[int, Doing] | None = None
        self._said = 0
        self.given_up = False
        self._thread: threading.Thread | None = None

    def meet(self, doing: Doing) -> None:
        """A call begins, with what comes before its schedule."""
        self._calls += 1
        self._met = True
        self._do(doing)

    def begin(self, doing: Doing) -> None:
        """The schedule of a call begins: of the one that ranks have met for, or without that of a new one."""
        if not self._met:
            self._calls += 1
        self._do(doing)

    def _do(self, doing: Doing) -> None:
        if self._thread is None:
            with suppress(RuntimeError):    # the store is gone: then nobody can be told anything
                self._life = self._store.add(f"schedlang/{self._name}/lives/{self.rank}", 1)
            self._thread = threading.Thread(target=_look, args=(ref(self), self._tick), daemon=True,
                                            name="schedlang-watch")
            _looking.add(self._thread)
            self._thread.start()
        self.given_up = False
        self._doing = self._calls, doing

    def end(self) -> None:
        """It is over, but not because a rank is lost: then others may still want to know what this one waited for."""
        self._doing, self._met = None, False

    def state(self) -> tuple[int, int, int] | None:
        """Which call, which part of it and which step the rank is at."""
        doing = self._doing
        return None if doing is None else (doing[0], id(doing[1]), doing[1].at)

    def say(self, last: bool = False) -> None:
        """Put into the store what the rank waits for now. Each time it is said anew, so that others can tell it from
        the word of a rank that is stopped; ``last``: for good, the rank has given up."""
        with self._lock:
            doing, self.given_up = self._doing, self.given_up or last
            if doing is not None:
                waits = doing[1].waits()
                self._said = FOR_GOOD if self.given_up else self._said + 1
                text = "" if waits is None else json.dumps([doing[0], waits.peer, waits.row, self._said])
                self._store.set(self._key(self.rank), text)

    def take_back(self) -> None:
        """The rank waits for that no longer."""
        with self._lock:
            self._store.set(self._key(self.rank), "")

    def _key(self, rank: int) -> str:
        return f"schedlang/{self._name}/{self._life}/{rank}"

    def chain(self, mine: Wait) -> tuple[dict[int, Wait], bool]:
        """What each rank waits for, from this one on to the end of the chain; and whether the store has answered. It
        takes a few seconds at most, even where the store is on a machine that is dead."""
        found = {self.rank: mine}
        answered = threading.Event()
        thread = threading.Thread(target=self._follow, args=(self._calls, found, answered), daemon=True)
        thread.start()
        known = 0
        while known < len(found):               # it gets on
            known = len(found)
            thread.join(2 * self.patience)
        return dict(found), answered.is_set()

    def _follow(self, call: int, found: dict[int, Wait], answered: threading.Event) -> None:
        at, calls = self.rank, {self.rank: call}        # in which call each of them waits
        try:
            self.say(last=True)
            while found[at].peer not in found:
                at = found[at].peer
                said = self._read(at)
                if said is None:
                    break
                its, waits = said
                if calls.get(waits.peer, its) > its:    # it got what it waited for: that rank has gone on since
                    break
                calls[at], found[at] = its, waits if its == call else Wait(waits.peer, NONE, elsewhere=True)
        except RuntimeError:        # the store is gone, with the rank that had it; what is known by now must do
            return
        answered.set()

    def _read(self, rank: int) -> tuple[int, Wait] | None:
        """In which call another rank waits, and for what, by its own word: if it says so while it is listened to, or
        has said so for good. It may still be about to."""
        key, end, before = self._key(rank), time.monotonic() + self.patience, ""
        while True:
            with self._lock:
                text = self._store.get(key).decode() if self._store.check([key]) else ""
            if text:
                call, peer, row, said = json.loads(text)
                if said == FOR_GOOD or before not in ("", text):
                    return call, Wait(peer, row)
            before = before or text
            if time.monotonic() > end:
                return None
            time.sleep(0.05)


def _look(watch: ref[Watch], tick: float) -> None:
    """Now and then, while the watch is there: has its rank gone on?"""
    before: tuple[int, int, int] | None = None
    said = False
    while not _over.wait(tick):
        mine = watch()
        if mine is None:
            return
        now = mine.state()
        try:
            if mine.given_up:
                said = False                    # what was said for good stays
            elif now is not None and now == before:
                mine.say()
                said = True
            elif said:
                mine.take_back()
                said = False
        except RuntimeError:                    # the store is gone, and nobody can be told any more
            return
        before = now
        del mine


_looking: WeakSet[threading.Thread] = WeakSet()
_over = threading.Event()


def _at_exit() -> None:
    """A thread that comes back from the store's C++ code while the interpreter ends would end the process by a signal.
    Not so one that never does: the store may be on a machine that is dead."""
    _over.set()
    for thread in [*_looking]:
        thread.join(PATIENCE)


atexit.register(_at_exit)


def lost(table: OpTable | None, rank: int, waits: Mapping[int, Wait], cause: str, answered: bool = True,
         call: str = "") -> SchedError:
    """The error (SL813) of a rank that has given up. ``waits``: for this rank and those that it waits for, as far as
    known, what each waits for. ``cause``: what torch says. ``answered``: whether the store did. ``table``: None for a
    call without a schedule. ``call``: the call in words, where its schedule has not begun."""
    mine = waits[rank]
    notes, chain = [], [rank]
    at = mine.peer
    while at in waits and at not in chain:
        chain.append(at)
        there = waits[at]
        where = "in another call of the group" if there.elsewhere else _where(table, there.row, "its call")
        notes.append(Note(f"rank {at} waits for rank {there.peer}: {where}",
                          None if table is None or there.row == NONE else table.origin(there.row)[0]))
        at = there.peer
    circle = at in chain
    if circle:
        last = f"the ranks {', '.join(map(str, chain[chain.index(at):]))} wait for each other"
    elif answered:
        last = f"rank {at} waits for nobody: it has ended, is stopped, hangs elsewhere, or did not make this call"
    else:
        last = f"of rank {at} nothing is known: the store does not answer, it may have ended with its rank"
    if circle and mine.row != NONE:
        help = "see what `schedlang verify` says of the schedule; the process group cannot be used any more"
    else:
        same = ", and whether it makes this call with the same `check`" * (mine.row == NONE)
        help = f"see what has become of rank {at}{same}; the process group cannot be used any more"
    found = error(
        "SL813", f"rank {rank} waits in vain for rank {mine.peer}: {_where(table, mine.row, call)}", None,
        notes=[*notes, Note(last), Note(f"torch says: {cause}")], help=help,
        rank=rank, peer=mine.peer, step=0 if table is None or mine.row == NONE else int(table.step[mine.row]),
        row=mine.row, chain=chain, end=None if circle else at)
    return SchedError(found if table is None else at_row(found, table, mine.row))


def _where(table: OpTable | None, row: int, call: str) -> str:
    if row == NONE or table is None:
        return f"the header of {call}, before step 0"
    return f"{row_text(table, row)}, {step_text(table, row)}{came_from(table, row)}"


def first_line(failure: BaseException) -> str:
    """What an exception says, without the addresses of what it went through."""
    lines: Sequence[str] = str(failure).strip().splitlines() or [type(failure).__name__]
    return lines[0].rpartition("] ")[2] if lines[0].startswith("[") and "] " in lines[0] else lines[0]


def store_of(group: Any) -> tuple[Store, str] | None:
    """The store through which a process group's ranks met, and a name of the group that all of them have."""
    import torch.distributed as dist

    if not dist.is_initialized():
        return None
    store: Store = dist.distributed_c10d._get_default_store()
    return store, str(group.group_name)
