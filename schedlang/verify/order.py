"""The order in which operations can happen: a legal execution of the whole table, as levels."""

from __future__ import annotations

from dataclasses import dataclass

from schedlang.ir.table import Array


@dataclass(frozen=True)
class Sends:
    """How long a send waits for its receive.

    ``rendezvous``: deadlock is judged with no buffering. ``depth``: how many messages a connection holds in all other
    proofs, and for deadlock where ``rendezvous`` is false; 0: none (rendezvous), None: without limit.
    """

    rendezvous: bool = True
    depth: int | None = None


DEFAULT = Sends()
"""Deadlock judged without buffering, all else with unlimited buffering: a clean verdict then holds on every transport."""


@dataclass(frozen=True)
class Order:
    """A legal execution of a table, one int32 a row: at level t = 0, 1, .. of ``levels``

    1. every row with ``posted == t`` reads (plain sends, copies, operands of reductions): memory as it stands;
    2. every fused send with ``ready == t`` passes on the value its receive yields: the message that arrived, combined
       with the operand the receive has read. The message that arrived was ready at t or before if its send is plain,
       strictly before t if that is fused too; so the fused sends of one level do not depend on each other;
    3. every row with ``done == t`` writes; several reductions of one step into one location in row order.

    ``posted <= ready <= done`` of the row itself, and the ``ready`` of a send is at most the ``done`` of its receive. All
    rows of one step of a lane have one ``posted`` and one ``done``. ``ready`` of a row that is no fused send is its ``posted``.
    The three may be one and the same array. ``complete``: the execution came to its end; where it did not (a deadlock, an
    operation without its partner), rows that were never posted or done have NONE there.
    ``numbered``: the levels are `table.number` (spread out where fused chains need room), which was checked.
    """

    posted: Array
    ready: Array
    done: Array
    levels: int
    complete: bool
    numbered: bool
