"""What all ranks must see alike: one legal execution of the table, and the tag of every message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from weakref import finalize

import numpy as np

from schedlang.backends.torch.causes import Causes
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.running.executable import legal_order
from schedlang.running.values import Values, follow
from schedlang.verify.timing.connections import Matching

T = TypeVar("T")


class PerTable(Generic[T]):
    """What is made of a table once, and forgotten with it: it must not hold the table itself."""

    def __init__(self, make: Callable[[OpTable], T]) -> None:
        self._make = make
        self._made: dict[int, T] = {}

    def __call__(self, table: OpTable) -> T:
        found = self._made.get(id(table))
        if found is None:
            found = self._made[id(table)] = self._make(table)
            finalize(table, self._made.pop, id(table), None)
        return found


@dataclass(frozen=True, eq=False)
class Execution:
    """A legal execution: ``posted``, ``ready``, ``done`` (a row each) as :class:`~schedlang.verify.timing.order.Order`
    describes them. ``partner``: the other end of a transfer. ``tag`` (a row each): messages of one source, destination
    and tag are posted in one order at both ends; NONE for rows that are no transfers. ``tags``: how many there are.
    """

    posted: Array
    ready: Array
    done: Array
    partner: Array
    tag: Array
    tags: int
    _values: list[Values] = field(default_factory=list)
    _causes: list[Causes] = field(default_factory=list)

    def values(self, table: OpTable) -> Values:
        """Where the lengths of values come from; ``table`` is the one that this was made of."""
        if not self._values:
            self._values.append(follow(table, self.partner, self.posted, self.ready, self.done))
        return self._values[0]

    def causes(self, table: OpTable) -> Causes:
        """What has arrived before a message is sent; ``table`` is the one that this was made of."""
        if not self._causes:
            self._causes.append(Causes(table, self.partner, self.posted, self.ready, self.done))
        return self._causes[0]


def _execution(table: OpTable) -> Execution:
    pairs, when = legal_order(table)
    tag, tags = _tags(table, pairs, when.ready)
    return Execution(when.posted, when.ready, when.done, pairs.partner, tag, tags)


def _abreast(table: OpTable) -> Execution:
    return _execution(table.with_columns(number=None) if len(table.streams) > 1 else table)


def _tags(table: OpTable, pairs: Matching, ready: Array) -> tuple[Array, int]:
    """The chan is a message's tag, but where a fused send would be overtaken by a later message of its connection: it
    waits for what it passes on, the later one does not. Then every message of that connection has a tag of its own."""
    tags = max(1, len(table.streams))
    tag = np.where(pairs.partner == NONE, NONE, table.chan).astype(np.int64)
    if int(table.of.max(initial=NONE)) == NONE:
        return tag, tags
    ends = pairs.connections
    overtaken = np.zeros(len(ends.sends), bool)
    moment = ready[ends.sends].astype(np.int64) * 2 + (table.of[ends.sends] != NONE)
    overtaken[1:] = (moment[1:] < moment[:-1]) & (ends.of_send[1:] == ends.of_send[:-1])
    where = np.flatnonzero(np.isin(ends.of_send, ends.of_send[overtaken]))
    sends = ends.sends[where]
    tag[sends] = tag[pairs.partner[sends]] = tags + np.arange(len(sends))
    return tag, tags + len(sends)


execution = PerTable(_execution)
"""``execution(table)``: made once a table. Raises SchedError where the table cannot be executed to its end."""

abreast = PerTable(_abreast)
"""As :data:`execution`, but streams go on side by side: in the order of the source they may follow one another."""
