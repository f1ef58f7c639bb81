"""What ranks stand on that we start ourselves on this machine: nothing but their numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from schedlang.running.ranks import Job
from schedlang.running.ranks.lead import lead


@dataclass(frozen=True)
class Standing:
    """A rank. ``tell`` hands something to whoever wants the ranks."""

    rank: int
    tell: Callable[[Any], None]


class _Native:
    """See :class:`schedlang.running.ranks.lead.Ground`."""

    def prepare(self, job: Job) -> None:
        """All there is to import, the job has brought."""

    def meet(self) -> None:
        """They know each other by the memory that they share."""

    def place(self, rank: int, job: Job, told: None, tell: Callable[[Any], None]) -> Standing:
        return Standing(rank, tell)


def main(number: int) -> None:
    """The life of the process that starts the ranks; ``number``: see :func:`schedlang.running.ranks.lead.lead`."""
    lead(number, _Native())
