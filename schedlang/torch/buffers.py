"""Tensors of a call as the buffers of a schedule, in place or out of place. What is left out is the executor's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from schedlang.fitting import Chosen

Buffers = Callable[[Chosen], Mapping[str, torch.Tensor]]
"""This rank's buffers for a schedule, once it is known which."""


def whole(chosen: Chosen, source: torch.Tensor | None, target: torch.Tensor | None) -> Mapping[str, torch.Tensor]:
    """All-reduce, reduce and broadcast. ``source``, ``target``: None where the collective reads or leaves nothing."""
    if chosen.table.collective.inplace:
        if target is not None:
            return {"data": target}
        assert source is not None
        return {"data": source.clone()}         # of a rank that has no result: the schedule may use it as it likes
    found = {}
    if source is not None:
        found["input"] = source if target is None else source.clone()       # the two are one
    if target is not None:
        found["output"] = target
    return found


def gathered(chosen: Chosen, rank: int, source: torch.Tensor, target: torch.Tensor | None,
             sizes: Sequence[int] | None = None) -> Mapping[str, torch.Tensor]:
    """All-gather and gather. ``sizes``: the elements of each rank's block; None: all are equal."""
    if not chosen.table.collective.inplace:
        if target is None:
            return {"input": source}
        return {"input": apart(source, target), "output": target}
    data = target if target is not None else source.new_empty(source.numel() * chosen.table.ranks)
    own = block(data, chosen.table.ranks, rank, sizes)
    own.copy_(apart(source, own))
    return {"data": data}


class Scattered:
    """Reduce-scatter and scatter. ``source``: a list: of one block a rank; None where there is none. ``sizes``: as for
    :func:`gathered`."""

    def __init__(self, rank: int, ranks: int, source: torch.Tensor | list[torch.Tensor] | None,
                 target: torch.Tensor, sizes: Sequence[int] | None = None) -> None:
        self._rank, self._ranks, self._source, self._target = rank, ranks, source, target
        self._sizes = sizes
        self._data: torch.Tensor | None = None

    def buffers(self, chosen: Chosen) -> Mapping[str, torch.Tensor]:
        """What the schedule works in."""
        source, target = self._source, self._target
        long = torch.cat(source) if isinstance(source, list) else source
        if not chosen.table.collective.inplace:
            return {"output": target} if long is None else {"input": apart(long, target), "output": target}
        if long is None:
            long = target.new_empty(target.numel() * self._ranks)
        elif not isinstance(source, list):
            long = long.clone()                 # it is the caller's
        self._data = long
        return {"data": long}

    def finish(self) -> None:
        """The own block to where it is wanted."""
        if self._data is not None:
            self._target.copy_(block(self._data, self._ranks, self._rank, self._sizes))


def block(long: torch.Tensor, ranks: int, rank: int, sizes: Sequence[int] | None = None) -> torch.Tensor:
    """A rank's block of a tensor of one for each rank."""
    if sizes is None:
        size = long.numel() // ranks
        return long[rank * size : (rank + 1) * size]
    start = sum(sizes[:rank])
    return long[start : start + sizes[rank]]


def apart(source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """``source``, or where it shares memory with ``target`` a copy."""
    return source.clone() if overlap(source, target) else source


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two contiguous tensors share memory."""
    start, first = a.data_ptr(), b.data_ptr()
    return start < first + b.numel() * b.element_size() and first < start + a.numel() * a.element_size()
