"""Memory of the executor's own, on the CPU."""

from __future__ import annotations

import mmap

import torch

HUGE = 2 << 20
"""Bytes of a huge page: smaller memory needs none."""


def zeros(elements: int, dtype: torch.dtype) -> torch.Tensor:
    """Zeros in one dimension. Large ones lie in huge pages, where the system has them: messages that go through memory
    once, and come back to it much later, then miss fewer entries of page tables."""
    size = elements * dtype.itemsize
    if size < HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(elements, dtype=dtype)
    try:
        pages = mmap.mmap(-1, size + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)     # the kernel gives zeros
        pages.madvise(mmap.MADV_HUGEPAGE)
    except OSError:                         # a kernel without them
        return torch.zeros(elements, dtype=dtype)
    whole = torch.frombuffer(pages, dtype=torch.uint8)
    first = -whole.data_ptr() % HUGE
    return whole[first : first + size].view(dtype)
