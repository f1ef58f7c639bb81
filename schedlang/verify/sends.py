"""How much a connection holds: the model of completion that a proof uses."""

from __future__ import annotations

import re
from dataclasses import dataclass

from schedlang.diagnostics import SchedError, error
from schedlang.ir.table import TRANSPORTS, OpTable, Transport


@dataclass(frozen=True, slots=True)
class Sends:
    """How long a send waits for its receive.

    ``deadlock_depth``: how many messages a connection holds where deadlock is judged; ``depth``: in all other proofs.
    0: none (rendezvous); None: without limit. ``transport``: what carries the messages where the model is all that this
    does: they go whole or in pieces, and are copied on their way (see :class:`schedlang.ir.table.Transport`).
    """

    deadlock_depth: int | None = 0
    depth: int | None = None
    transport: Transport | None = None

    @classmethod
    def parse(cls, text: str) -> Sends:
        """The model written ``rendezvous``, ``buffered=N``, ``unlimited``, ``default``, or as the transport is called:
        ``LL``, ``LL128``, ``Simple``. SchedError SL806 for other text."""
        if text in _MODELS:
            return _MODELS[text]
        found = re.fullmatch(r"buffered=(\d{1,9})", text)
        if found and int(found[1]) > 0:
            return cls(int(found[1]), int(found[1]))
        meant = next((name for name in _MODELS if name.lower() == text.lower()), None)
        raise SchedError(error(
            "SL806", f"{text!r} is no model of sends",
            help=f"did you mean {meant}?" if meant is not None else
            "write rendezvous, buffered=N with N at least 1, unlimited, or the name of a protocol: "
            f"{', '.join(TRANSPORTS)}; without the option deadlock is judged without buffering and all else with "
            "unlimited buffering"))

    @classmethod
    def on(cls, transport: Transport) -> Sends:
        """What a transport does: deadlock is judged with what it offers, and all else with unlimited buffering, so that
        a clean verdict holds for all that offer more."""
        return cls(transport.depth, None, transport)

    def __str__(self) -> str:
        if self == DEFAULT:
            return "default"
        if self.transport is not None:
            return self.transport.name
        if self.deadlock_depth != self.depth:
            return f"{_spelling(self.deadlock_depth)} for deadlock, {_spelling(self.depth)} for all else"
        return _spelling(self.depth)


def _spelling(depth: int | None) -> str:
    return "unlimited" if depth is None else f"buffered={depth}" if depth else "rendezvous"


DEFAULT = Sends()
"""Deadlock judged without buffering, all else with unlimited buffering: a clean verdict then holds on every
transport."""

_MODELS = {"default": DEFAULT, "rendezvous": Sends(0, 0), "unlimited": Sends(None, None),
           **{name: Sends.on(transport) for name, transport in TRANSPORTS.items()}}


def resolve(table: OpTable, sends: Sends) -> tuple[OpTable, Sends]:
    """The table and the model that it is judged by: the default means its own transport, where it was written for one,
    and a model that is a transport takes the place of that."""
    if sends.transport is not None:
        return table.with_columns(transport=sends.transport), sends
    return table, Sends.on(table.transport) if table.transport is not None and sends == DEFAULT else sends


def depth_words(depth: int | None, thing: str = "message") -> str:
    """A depth in words, for messages: "without buffering", "with 2 messages in flight per connection" ..."""
    if depth is None:
        return "with unlimited buffering"
    if depth == 0:
        return "without buffering"
    return f"with {depth} {thing}{'s' if depth > 1 else ''} in flight per connection"
