"""How much a connection holds: the model of completion that a proof uses."""

from __future__ import annotations

import re
from dataclasses import dataclass

from schedlang.diagnostics import SchedError, error
from schedlang.ir.table import Transport


@dataclass(frozen=True, slots=True)
class Sends:
    """How long a send waits for its receive.

    ``deadlock_depth``: how many messages a connection holds where deadlock is judged; ``depth``: in all other proofs.
    0: none (rendezvous); None: without limit.
    """

    deadlock_depth: int | None = 0
    depth: int | None = None

    @classmethod
    def parse(cls, text: str) -> Sends:
        """The model written ``rendezvous``, ``buffered=N``, ``unlimited`` or ``default``. SchedError SL806 for other
        text."""
        if text == "default":
            return cls()
        if text == "rendezvous":
            return cls(0, 0)
        if text == "unlimited":
            return cls(None, None)
        found = re.fullmatch(r"buffered=(\d{1,9})", text)
        if found and int(found[1]) > 0:
            return cls(int(found[1]), int(found[1]))
        raise SchedError(error(
            "SL806", f"{text!r} is no model of sends",
            help="write rendezvous, buffered=N with N at least 1, or unlimited; without the option deadlock is judged "
                 "without buffering and all else with unlimited buffering"))

    def __str__(self) -> str:
        if self == DEFAULT:
            return "default"
        if self.deadlock_depth != self.depth:
            return f"{_spelling(self.deadlock_depth)} for deadlock, {_spelling(self.depth)} for all else"
        return _spelling(self.depth)


def _spelling(depth: int | None) -> str:
    return "unlimited" if depth is None else f"buffered={depth}" if depth else "rendezvous"


DEFAULT = Sends()
"""Deadlock judged without buffering, all else with unlimited buffering: a clean verdict then holds on every
transport."""


def on(transport: Transport | None, sends: Sends) -> Sends:
    """The model for a table that was written for a transport: in place of the default, deadlock is judged with what
    that offers, and all else with unlimited buffering, so that a clean verdict holds for all that offer more."""
    return Sends(transport.depth) if transport is not None and sends == DEFAULT else sends


def its_own(transport: Transport | None, sends: Sends) -> bool:
    """Whether deadlock is judged with what the transport offers: messages of several chunks may then go in pieces."""
    return transport is not None and sends == Sends(transport.depth)


def depth_words(depth: int | None, thing: str = "message") -> str:
    """A depth in words, for messages: "without buffering", "with 2 messages in flight per connection" ..."""
    if depth is None:
        return "with unlimited buffering"
    if depth == 0:
        return "without buffering"
    return f"with {depth} {thing}{'s' if depth > 1 else ''} in flight per connection"
