"""What statements are apart from their numbers, and the numbers they have."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from schedlang.ir.table import NONE


class Field(IntEnum):
    """The numbers of a statement. Those that it does not have are 0."""

    SOURCE = 0
    """who sends, or acts: of statements that name both ends"""
    PEER = 1
    """the other rank"""
    ONWARD = 2
    """to whom what arrives is passed on"""
    AT = 3
    """the first chunk of ``buffer``"""
    COUNT = 4
    OTHER = 5
    """the first chunk of ``other``"""
    CHAN = 6
    """the number of the connection, where it changes from statement to statement"""
    WITH = 7
    """of an event: the rank that the recording lane exchanges messages with, its own where there is none"""
    LANE = 8
    """of an event: which of the recording lanes of one rank"""
    TURN = 9
    """of an event: which of the records of that lane"""


RANKED = (Field.SOURCE, Field.PEER, Field.ONWARD, Field.WITH)

LOST = 1 << 30
"""In place of a sort of event: nothing records it."""

AFTER = ("ready", "sent", "landed", "summed", "copied")
"""What events are called: by what the lane that records them has done last."""

WORDS = {
    Field.SOURCE: "source", Field.PEER: "peer", Field.ONWARD: "onward", Field.AT: "chunk", Field.COUNT: "count",
    Field.OTHER: "origin", Field.CHAN: "link", Field.WITH: "partner", Field.LANE: "awaited", Field.TURN: "turn"}
"""What a list of a field's values is called."""


@dataclass(frozen=True)
class Kind:
    """How a statement is written. ``word``: ``send``, ``recv``, ``reduce`` (receive and combine), ``copy``, ``add``
    (a local reduce), ``record`` or ``wait``. ``buffer``: what a send reads, what all others write; ``other``: what a
    copy or local reduce reads, the operand of a reduce where it is not ``buffer``, and where the receiver puts it if
    ``both`` ends are written at once. ``passes``: what arrives is sent on; ``keeps``: it is stored. ``event``: its
    sort, LOST where nothing records it."""

    word: str
    buffer: int = NONE
    other: int = NONE
    passes: bool = False
    keeps: bool = True
    both: bool = False
    event: int = NONE
