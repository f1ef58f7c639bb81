"""Repetition in a sequence, folded into loops: structure only, no numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LONGEST = 256
"""The longest body, in steps and inner loops, that is looked for."""


@dataclass(frozen=True)
class Leaf:
    """The step at position ``at`` of the sequence."""

    at: int


@dataclass(frozen=True)
class Repeat:
    """``body`` repeated ``count`` times; its leaves are those of the first time. ``length``: steps of one time."""

    count: int
    body: tuple[Leaf | Repeat, ...]
    length: int


def fold(tokens: list[int]) -> list[Leaf | Repeat]:
    """The sequence as loops: wherever a body of tokens follows itself, shortest bodies first."""
    kinds: dict[object, int] = {}

    def kind(key: object) -> int:
        return kinds.setdefault(key, len(kinds))

    nodes: list[Leaf | Repeat] = [Leaf(i) for i in range(len(tokens))]
    names = np.array([kind(("step", t)) for t in tokens], np.int64)
    lengths = [1] * len(tokens)
    period = 1
    while period <= min(LONGEST, len(nodes) // 2):
        same = (names[period:] == names[:-period]).view(np.int8)
        edges = np.flatnonzero(np.diff(same, prepend=np.int8(0), append=np.int8(0))).tolist()
        runs = [run for run in zip(edges[::2], edges[1::2], strict=True) if run[1] - run[0] >= period]
        if not runs:
            period += 1
            continue
        new_nodes: list[Leaf | Repeat] = []
        new_names: list[int] = []
        new_lengths: list[int] = []
        at = 0
        for start, stop in runs:
            start = max(start, at)  # what stands before is part of the run before
            if stop - start < period:
                continue
            count = (stop - start) // period + 1
            length = sum(lengths[start : start + period])
            new_nodes += [*nodes[at:start], Repeat(count, tuple(nodes[start : start + period]), length)]
            new_names += [*names[at:start].tolist(), kind((count, tuple(names[start : start + period].tolist())))]
            new_lengths += [*lengths[at:start], count * length]
            at = start + count * period
        nodes, lengths = new_nodes + nodes[at:], new_lengths + lengths[at:]
        names = np.array([*new_names, *names[at:].tolist()], np.int64)
        period = 1
    return nodes
