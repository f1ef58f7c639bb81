"""Which send goes with which receive: first-in first-out on every connection (source, destination, chan)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from schedlang.diagnostics import Diagnostic
from schedlang.ir.table import Array


@dataclass(frozen=True)
class Matching:
    """The pairing of a table's transfers.

    ``partner`` (int32, a row each): the receive of a send, the send of a receive; NONE where there is none and for rows
    that are no transfers. Also pairs that differ in size are partners. ``message`` (int32, a row each): which message
    of its connection the transfer is, counted from 0 at its own end; NONE for rows that are no transfers.
    ``diagnostics``: SL301, SL302, SL303, SL304. ``numbered``: `table.number` was checked and proves the pairing: it is
    constant in a lane's step, rises along every lane, and is equal at both ends of every pair.
    """

    partner: Array
    diagnostics: tuple[Diagnostic, ...]
    numbered: bool

    @cached_property
    def message(self) -> Array:
        raise NotImplementedError
