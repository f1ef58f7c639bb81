"""What commands share that execute schedules."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from schedlang.diagnostics import SchedError, error

PATIENCE = 1.0
"""Seconds after which a run shows a progress bar."""
GRACE = 5.0
"""Seconds that other processes of a machine leave the first to say what is wrong."""
IN_ONE_PROCESS = (None, "numpy", "interpret", "cupy")
"""Back ends whose ranks are one process; None: the default."""


class OnRanks(click.Command):
    """A command that many processes may be given, a rank each. What is wrong, with its options or later, one of them on
    each machine says, and each what only it knows."""

    def make_context(self, info_name: str | None, args: list[str], parent: click.Context | None = None,
                     **extra: Any) -> click.Context:
        with _said_once(_backend(args) if _has_backends(self) else "torch"):
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _said_once(ctx.params.get("backend_name", "torch")):
            return super().invoke(ctx)


def _has_backends(command: click.Command) -> bool:
    return any(option.name == "backend_name" for option in command.params)


def _backend(words: Sequence[str]) -> str | None:
    """What `--backend` has in a command line, whatever else is wrong with it."""
    for word, following in zip(words, (*words[1:], None), strict=True):
        if word == "--backend":
            return following
        if word.startswith("--backend="):
            return word.removeprefix("--backend=")
    return None


@contextmanager
def _said_once(backend: str | None) -> Iterator[None]:
    """The other ranks do not end before the first of their machine: torchrun, or whoever started them, would end it
    before it has spoken. Those that are still there after GRACE seconds speak themselves, since the first did not."""
    from schedlang.backend import OnOneRank

    try:
        yield
    except (SchedError, click.ClickException) as failure:
        if backend not in IN_ONE_PROCESS and not isinstance(failure, OnOneRank) and _local_rank():
            time.sleep(GRACE)
        raise


def _local_rank() -> int:
    """This process's rank among those of its machine, as far as the variables of torchrun say, right or wrong."""
    if os.environ.get("WORLD_SIZE"):
        for name in ("LOCAL_RANK", "RANK"):
            text = os.environ.get(name, "")
            if text.isdecimal():
                return int(text)
    return 0


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
