"""The tags of messages, and which message of its tag each one is.

A flag holds one number for each source, destination and tag, and it only rises. So messages of one tag must follow one
another at both ends, wherever the lanes stand: all their sends on one lane, all their receives on one, each one posted
before the next is and taken before the next is. All connections of one `chan` have one tag, which they share with those
of other chans that connect no ranks that it connects. Where messages of a connection do not follow one another they are
spread over as few further tags as it takes, counted for each source and destination.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from schedlang.ir.table import Array


@dataclass(frozen=True, eq=False)
class Messages:
    """All messages, a place each in columns (int64), sorted by connection and first-in first-out within it.

    ``connection``; ``pair``: source * ranks + destination; ``chan``; ``count``: chunks. Of its send ``send_lane``,
    ``send_phase`` (phases rise along a lane), ``fused`` (bool): whether it is passed on; of its receive ``take_lane``,
    ``take_phase``.
    """

    connection: Array
    pair: Array
    chan: Array
    count: Array
    send_lane: Array
    send_phase: Array
    fused: Array
    take_lane: Array
    take_phase: Array

    def follows(self, one: Array | int, other: Array | int) -> Array:
        """Whether messages ``one`` and the later ``other`` of their connection may have one tag.

        In one phase, messages are taken slice by slice side by side: that of fewer chunks is there first. So are those
        that are passed on sent.
        """
        posted = (self.send_phase[one] < self.send_phase[other]) | (
            (self.send_phase[one] == self.send_phase[other]) & ~self.fused[one])
        taken = (self.take_phase[one] < self.take_phase[other]) | (
            (self.take_phase[one] == self.take_phase[other]) & (self.count[one] <= self.count[other]))
        same = (self.send_lane[one] == self.send_lane[other]) & (self.take_lane[one] == self.take_lane[other])
        return np.asarray(same & posted & taken)


def tags(messages: Messages) -> tuple[Array, Array]:
    """The tag of each message, and its index among those of its source, destination and tag (int64)."""
    m = messages
    colour = _colours(m.pair, m.chan)
    tag = colour[m.chan]
    rows = np.arange(len(tag))
    together = m.connection[1:] == m.connection[:-1]
    torn = np.zeros(len(tag), bool)
    torn[1:] = together & ~m.follows(rows[:-1], rows[1:])
    if torn.any():
        more: defaultdict[int, int] = defaultdict(lambda: int(colour.max()) + 1)
        starts = np.flatnonzero(np.concatenate([[True], ~together]))
        bad = np.logical_or.reduceat(torn, starts)
        for k, (start, stop) in enumerate(pairwise([*starts.tolist(), len(tag)])):
            if bad[k]:
                _spread(m, tag, range(start, stop), more)
    order = np.lexsort((rows, tag, m.pair))
    new = np.ones(len(tag), bool)
    new[1:] = (tag[order[1:]] != tag[order[:-1]]) | (m.pair[order[1:]] != m.pair[order[:-1]])
    index = np.empty(len(tag), np.int64)
    index[order] = rows - np.maximum.accumulate(np.where(new, rows, 0))
    return tag, index


def _colours(pair: Array, chan: Array) -> Array:
    """For each chan a small number, so that chans that connect the same two ranks have different ones."""
    pair = np.unique(pair, return_inverse=True)[1].reshape(-1)
    pairs, chans = int(pair.max(initial=-1)) + 1, int(chan.max(initial=-1)) + 1
    colour = np.zeros(chans, np.int64)
    if chans < 2:
        return colour
    both = np.unique(chan * pairs + pair)
    taken: list[Array] = []                         # by colour, which pairs are
    for c, mine in enumerate(np.split(both % pairs, np.searchsorted(both // pairs, np.arange(1, chans)))):
        while colour[c] < len(taken) and taken[colour[c]][mine].any():
            colour[c] += 1
        if colour[c] == len(taken):
            taken.append(np.zeros(pairs, bool))
        taken[colour[c]][mine] = True
    return colour


def _spread(m: Messages, tag: Array, rows: range, more: defaultdict[int, int]) -> None:
    """Gives each message of a connection the first tag whose last message it may follow. ``more``: the next further tag
    of each source and destination."""
    pair = int(m.pair[rows.start])
    last: dict[int, int] = {}
    for row in rows:
        for known, before in last.items():
            if m.follows(before, row):
                tag[row] = known
                break
        else:
            if last:
                tag[row] = more[pair]
                more[pair] += 1
        last[int(tag[row])] = row
