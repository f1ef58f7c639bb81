"""Which schedule the process group `schedlang` takes for a call: a table of collectives and ranges of sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from schedlang.fitting import DEFAULTS, Given
from schedlang.ir.digest import digest
from schedlang.ops import COLLECTIVES
from schedlang.schedule import Schedule

INNER = ("gloo", "nccl")
"""The backends that carry the messages, and what has no schedule."""

LOCAL = (None, "native")
"""What takes the place of messages among ranks of one machine."""


@dataclass(frozen=True)
class Rule:
    """Calls of a collective (a key of ``ops.COLLECTIVES``) go by ``schedule``; None: to the inner backend.

    ``least``, ``below``: for so many bytes, of the whole collective: of its long buffer, where it has one. ``ranks``:
    only in groups of so many ranks; ``least_ranks``: of so many or more.
    """

    collective: str
    schedule: Given | None
    least: int = 0
    below: int | None = None
    ranks: int | None = None
    least_ranks: int = 1

    def __post_init__(self) -> None:
        if self.collective not in COLLECTIVES:
            raise ValueError(f"there is no collective {self.collective}: choose one of {', '.join(COLLECTIVES)}")
        if COLLECTIVES[self.collective].family == "vector" and (self.least or self.below is not None):
            raise ValueError(f"{self.collective} has another size on each rank, so its rules have no range of sizes")

    def fits(self, collective: str, size: int, ranks: int) -> bool:
        """Whether it is for such a call."""
        return (self.collective == collective and self.least <= size and (self.below is None or size < self.below)
                and self.ranks in (None, ranks) and ranks >= self.least_ranks)

    def __str__(self) -> str:
        sizes = "" if not self.least and self.below is None else f", {self.least}..{self.below or ''} bytes"
        ranks = f", at least {self.least_ranks} ranks" if self.least_ranks > 1 else ""
        ranks = ranks if self.ranks is None else f", {self.ranks} ranks"
        return f"{self.collective}{sizes}{ranks}: {named(self.schedule) if self.schedule else 'the inner backend'}"


def named(given: Given) -> str:
    """A schedule as somebody gave it, in words."""
    if isinstance(given, Schedule):
        return repr(given)
    if isinstance(given, tuple):
        return f"{given[0]} with {', '.join(f'{key}={value}' for key, value in given[1].items())}"
    return str(given)


def _default() -> tuple[Rule, ...]:
    return tuple(Rule(name, f"schedlang:{some.file}", below=some.below, least_ranks=some.ranks)
                 for name, shipped in DEFAULTS.items() for some in shipped)


@dataclass
class Options:
    """What ``torch.distributed.init_process_group("schedlang", pg_options=...)`` takes.

    ``inner``: the backend that carries messages, `gloo` or `nccl`. ``local``: `native`: where all ranks of a group are
    on one machine, schedules run as kernels on memory that the ranks share, without messages; calls with counts still
    go by messages, and so do all of a group that has ranks on several machines. ``table``: the first rule that fits a
    call decides; a call that none fits goes to the inner backend. ``check``, ``verify``: as for every collective of
    :mod:`schedlang.torch`. Groups made later have the options of the first, unless they are given their own.
    """

    inner: str = "gloo"
    local: str | None = None
    table: Sequence[Rule] = field(default_factory=_default)
    check: str = "every"
    verify: bool = True
    _timeout: timedelta = timedelta(minutes=30)     # torch sets it

    def __post_init__(self) -> None:
        if self.inner not in INNER:
            raise ValueError(f"inner must be one of {', '.join(INNER)}, not {self.inner!r}")
        if self.local not in LOCAL:
            raise ValueError(f'local must be "native" or None, not {self.local!r}')
        if self.local is not None and self.inner != "gloo":
            raise ValueError(f'local="{self.local}" is for tensors on the CPU, and so for inner="gloo"')

    def choose(self, collective: str, size: int, ranks: int) -> Given | None:
        """The schedule for a call; None: the inner backend's own."""
        for rule in self.table:
            if rule.fits(collective, size, ranks):
                return rule.schedule
        return None

    def words(self) -> list[str]:
        """All of it in words, the same on two ranks only where they mean the same; schedules by their digest."""
        rules = [f"{rule} {digest(rule.schedule.table).hex()}" if isinstance(rule.schedule, Schedule) else str(rule)
                 for rule in self.table]
        return [f"inner={self.inner}", f"local={self.local}", f"check={self.check}", f"verify={self.verify}", *rules]
