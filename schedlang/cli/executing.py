"""What commands share that execute schedules."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from schedlang.diagnostics import SchedError, error

if TYPE_CHECKING:
    from schedlang.backend import Place

PATIENCE = 1.0
"""Seconds after which a run shows a progress bar."""
GRACE = 5.0
"""Seconds that other processes of a machine leave the first to say what is wrong."""


@contextmanager
def said_once(place: Place | None) -> Iterator[None]:
    """Of many processes that do the same, one on each machine says what is wrong, and each what only it knows.

    The others do not end before it: torchrun, or whoever started them, would end it before it has spoken. Those that
    are still there after GRACE seconds speak themselves, since the first did not."""
    from schedlang.backend import OnOneRank

    try:
        yield
    except SchedError as failure:
        if place is not None and place.local and not isinstance(failure, OnOneRank):
            time.sleep(GRACE)
        raise


@contextmanager
def within_memory() -> Iterator[None]:
    """Where memory runs out here, it is for arrays."""
    try:
        yield
    except MemoryError:
        raise SchedError(error("SL802", "arrays of this size on all ranks do not fit into memory",
                               help="take fewer elements or ranks")) from None


@contextmanager
def progress_bar() -> Iterator[Callable[[float], None] | None]:
    """A function to report progress to: a bar on the terminal, once a run takes longer than PATIENCE."""
    if not sys.stderr.isatty():
        yield None
        return
    begun, bar, task = time.monotonic(), None, None

    def report(fraction: float) -> None:
        nonlocal bar, task
        if bar is None:
            if time.monotonic() - begun < PATIENCE or fraction >= 1:
                return
            from rich.console import Console
            from rich.progress import Progress

            bar = Progress(console=Console(stderr=True), transient=True)
            task = bar.add_task("running", total=1.0)
            bar.start()
        assert task is not None
        bar.update(task, completed=fraction)

    try:
        yield report
    finally:
        if bar is not None:
            bar.stop()


def in_bytes(number: int) -> str:
    """A size for people: ``1.5 MiB``."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size:
            return f"{number / size:.4g} {unit}"
    return f"{number} byte{'s' * (number != 1)}"


def short_time(time_: float) -> str:
    """Seconds for people: ``12.3 ms``."""
    return f"{time_:.3f} s" if time_ >= 1 else f"{time_ * 1e3:.3g} ms" if time_ >= 1e-3 else f"{time_ * 1e6:.3g} us"
