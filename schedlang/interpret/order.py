"""In which order possible events happen."""

from __future__ import annotations

import random
from collections import deque
from enum import Enum
from typing import Protocol

from schedlang.interpret.program import Lane, Operation


class Kind(Enum):
    """The kinds of event."""

    POST = "a lane begins its next step"
    READ = "an operation reads its sources"
    FINISH = "an operation is done"
    WRITE = "a done operation's result lands"
    COMPLETE = "a step ends: what has not been read is read, what has not landed lands"


Event = tuple[Kind, Lane, Operation | None]


class Order(Protocol):
    """A bag of possible events. ``reads_at_once``: a step reads at its post, else at any time before its end.
    ``writes_at_end``: a step's results land at its end, else any time after the operation is done."""

    reads_at_once: bool
    writes_at_end: bool

    def add(self, event: Event) -> None: ...

    def pick(self) -> Event | None:
        """Take out the next event to happen; None where there is none."""


class InOrder:
    """First possible, first to happen."""

    reads_at_once = True
    writes_at_end = True

    def __init__(self) -> None:
        self._events: deque[Event] = deque()

    def add(self, event: Event) -> None:
        self._events.append(event)

    def pick(self) -> Event | None:
        return self._events.popleft() if self._events else None


class Random:
    """Any event, each as likely as the others."""

    reads_at_once = False
    writes_at_end = False

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._events: list[Event] = []

    def add(self, event: Event) -> None:
        self._events.append(event)

    def pick(self) -> Event | None:
        if not self._events:
            return None
        i = self._random.randrange(len(self._events))
        self._events[i], self._events[-1] = self._events[-1], self._events[i]
        return self._events.pop()


class Adversarial:
    """Each lane and each kind of event has a random weight; the heaviest event happens first, so that some lane, and
    the reads, completions or writes of all, are delayed as long as anything else can happen. Now and then a weight
    changes."""

    reads_at_once = False
    writes_at_end = False
    CHANGE = 0.02
    """How likely a weight changes, at each event."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._events: list[Event] = []
        self._lanes: dict[int, float] = {}
        self._kinds: dict[Kind, float] = {}

    def add(self, event: Event) -> None:
        self._events.append(event)

    def _weight(self, event: Event) -> float:
        kind, lane, _ = event
        for weights, key in ((self._kinds, kind), (self._lanes, lane.index)):
            if key not in weights:
                weights[key] = self._random.random()  # type: ignore[index]
        return self._kinds[kind] + self._lanes[lane.index]

    def pick(self) -> Event | None:
        if not self._events:
            return None
        if self._lanes and self._random.random() < self.CHANGE:
            self._lanes[self._random.choice(list(self._lanes))] = self._random.random()
        i = max(range(len(self._events)), key=lambda i: self._weight(self._events[i]))
        return self._events.pop(i)
