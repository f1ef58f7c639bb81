"""Sizes and lists in words, and places of a plan, for messages about what runtimes do."""

from __future__ import annotations

from collections.abc import Sequence

from schedlang.msccl.places import attribute_span
from schedlang.msccl.plan import Plan
from schedlang.source import Span


def attribute(plan: Plan, name: str, at: int | None = None) -> Span:
    """An attribute of the tag that begins at an offset (None: the algorithm's); the tag where it has none."""
    return attribute_span(plan.source, plan.at if at is None else at, name)


def size_text(size: int) -> str:
    """A size for people: ``4 MiB`` where it is whole, else ``40,959 bytes``."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size and not size % 1024**power:
            return f"{size // 1024**power:,} {unit}"
    return f"{size:,} byte{'s' * (size != 1)}"


def range_text(low: int, end: int | None) -> str:
    """The sizes from the first up to one before ``end`` (None: without an end)."""
    if end is None:
        return f"{size_text(low)} and more"
    return size_text(low) if end == low + 1 else f"{size_text(low)} to {size_text(end - 1)}"


def listed(words: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
