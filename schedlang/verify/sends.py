"""How much a connection holds: the model of completion that a proof uses."""

from __future__ import annotations

import re
from dataclasses import dataclass

from schedlang.diagnostics import SchedError, error


@dataclass(frozen=True, slots=True)
class Sends:
    """How long a send waits for its receive.

    ``rendezvous``: deadlock is judged with no buffering. ``depth``: how many messages a connection holds in all other
    proofs, and for deadlock where ``rendezvous`` is false. 0: none (rendezvous); None: without limit.
    """

    rendezvous: bool = True
    depth: int | None = None

    @classmethod
    def parse(cls, text: str) -> Sends:
        """The model written ``rendezvous``, ``buffered=N``, ``unlimited`` or ``default``. SchedError SL806 for other
        text."""
        if text == "default":
            return cls()
        if text == "rendezvous":
            return cls(True, 0)
        if text == "unlimited":
            return cls(False, None)
        found = re.fullmatch(r"buffered=(\d{1,9})", text)
        if found and int(found[1]) > 0:
            return cls(False, int(found[1]))
        raise SchedError(error(
            "SL806", f"{text!r} is no model of sends",
            help="write rendezvous, buffered=N with N at least 1, or unlimited; without the option deadlock is judged "
                 "without buffering and all else with unlimited buffering"))

    @property
    def deadlock_depth(self) -> int | None:
        """The depth for which deadlock is judged; 0: rendezvous, None: without limit."""
        return 0 if self.rendezvous else self.depth

    def __str__(self) -> str:
        if self == DEFAULT:
            return "default"
        return "unlimited" if self.depth is None else f"buffered={self.depth}" if self.depth else "rendezvous"


DEFAULT = Sends()
"""Deadlock judged without buffering, all else with unlimited buffering: a clean verdict then holds on every
transport."""


def depth_words(depth: int | None) -> str:
    """A depth in words, for messages: "without buffering", "with 2 messages in flight per connection" ..."""
    if depth is None:
        return "with unlimited buffering"
    if depth == 0:
        return "without buffering"
    return f"with {depth} message{'s' if depth > 1 else ''} in flight per connection"
