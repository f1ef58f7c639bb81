"""A value keeps its length as it moves: moves into a part that is shorter for some element count (SL602), and how much
the sends of a v-collective send."""

from __future__ import annotations

import numpy as np

from schedlang.diagnostics import Diagnostic, warning
from schedlang.ir.legal.blocks import BLOCK
from schedlang.ir.origin import at_row, came_from
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ops import Op
from schedlang.verify import collapse, words
from schedlang.verify.values.carriers import Carriers
from schedlang.verify.values.conditions import Conditions
from schedlang.verify.values.walk import Program, Walk


def shorter_parts(table: OpTable, program: Program, conditions: Conditions) -> list[Diagnostic]:
    """SL602 for each statement that moves a value into a part that may be shorter, or combines values of different
    lengths. The values are known to be right, so every value read has a length."""
    lengths = conditions.lengths
    if lengths is None or len(program.carriers) == 0 or _in_place(program.carriers, lengths):
        return []
    walk = _Lengths(program, conditions, lengths)
    walk.run()
    return [*_found(table, conditions, program.carriers, walk.shorter, moved=True),
            *_found(table, conditions, program.carriers, walk.unequal, moved=False)]


def _in_place(c: Carriers, lengths: Array) -> bool:
    """Whether every move stays among places of one length: then so does every value."""
    if c.parent is not None or c.operand is not None or int(c.target.min()) == NONE:
        return False
    for start in range(0, len(c), BLOCK):
        block = slice(start, start + BLOCK)
        length = lengths[c.source[block]]
        if int(length.min()) == NONE or not np.array_equal(length, lengths[c.target[block]]):
            return False
    return True


class _Held:
    """The length of a value; where different ones are combined, the longer. ``of``: of each initial value, in the order
    of the conditions."""

    width = 1

    def __init__(self, conditions: Conditions, of: Array) -> None:
        self.of = np.zeros(conditions.contributions, np.uint64)
        self.of[conditions.initial] = of

    def initial(self, contributions: Array) -> Array:
        lengths: Array = self.of[contributions]
        return lengths[:, None]

    def combine(self, into: Array, other: Array) -> None:
        np.minimum(into, other, out=into)


class _Lengths(Walk):
    """A walk that knows the length of every value, and collects (carrier, location) where it does not fit."""

    def __init__(self, program: Program, conditions: Conditions, lengths: Array) -> None:
        super().__init__(program, [_Held(conditions, lengths[conditions.initial_at])], conditions)
        self.lengths, self.unordered = lengths, conditions.unordered
        self.shorter: list[tuple[Array, Array]] = []
        self.unequal: list[tuple[Array, Array]] = []

    def landing(self, who: Array, where: Array, brought: Array, stored: Array) -> None:
        there, value = self.lengths[where], brought[:, 1].astype(np.int64)
        bad = (there != NONE) & ((value != there) if self.unordered else (value < there))
        if bad.any():
            self.shorter.append((who[bad], where[bad]))

    def combine(self, who: Array, into: Array, other: Array) -> Array:
        bad = into[:, 1] != other[:, 1]
        if bad.any():
            self.unequal.append((who[bad], self.program.carriers.target[who[bad]]))
        return super().combine(who, into, other)


class _Elements(Walk):
    """A walk that knows how many elements every value has."""

    def __init__(self, program: Program, conditions: Conditions, counts: Array) -> None:
        rank, part = conditions.initial % conditions.ranks, conditions.initial // conditions.ranks
        own = counts[rank, part] if counts.ndim == 2 else counts[part]
        super().__init__(program, [_Held(conditions, own)], conditions)
        self.sent = np.zeros(len(program.carriers), np.int64)

    def leaving(self, who: Array, values: Array) -> None:
        self.sent[who] = values[:, 1]


def elements(table: OpTable, program: Program, conditions: Conditions, counts: Array) -> Array:
    """How many elements each send of a v-collective with these counts sends (int64, one a send, in row order)."""
    walk = _Elements(program, conditions, counts)
    walk.run()
    of_row = np.bincount(program.carriers.sender, walk.sent, minlength=len(table)).astype(np.int64)
    sent: Array = of_row[table.op == Op.SEND]
    return sent


def _found(table: OpTable, conditions: Conditions, c: Carriers, where: list[tuple[Array, Array]], *, moved: bool
           ) -> list[Diagnostic]:
    if not where:
        return []
    carrier, place = (np.concatenate(x) for x in zip(*where, strict=True))
    row, first = np.unique(c.receiver[carrier].astype(np.int64), return_index=True)
    found = []
    for index, count in collapse.by_statement(table, row):
        r, at = int(row[index]), int(place[first[index]])
        name = conditions.locations.name(at) if at != NONE else f"rank {int(table.rank[r])}"
        said = came_from(table, r)
        if moved:
            message = f"{name} is, for some sizes, shorter than the value that comes there: {words.operation(table, r)}"
        else:
            message = f"at {name} values of different lengths (for some sizes) meet: {words.operation(table, r)}"
        found.append(at_row(warning(
            "SL602", f"{message}{said}", count=count, rows=[r],
            help="this is right only for sizes that make the parts equal; move values between places of one chunk "
                 "index, or through scratch, which holds the longest part"), table, r))
    return found
