"""Ranks as processes on this machine: what they are asked to do, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from schedlang.diagnostics import Diagnostic


@dataclass(frozen=True)
class Job:
    """``task``: ``module:function`` that each of ``ranks`` processes calls with its place among them (what that is, the
    leader says) and ``arguments``. ``device``: ``cpu``, ``cuda``, or None: what the leader prefers. ``timeout``:
    seconds that one waits for another. ``leader``: ``module:function`` that the process calls which starts the ranks,
    with the number of a pipe: see :func:`schedlang.running.ranks.lead.lead`."""

    task: str
    arguments: tuple[Any, ...]
    ranks: int
    device: str | None
    timeout: float
    leader: str


@dataclass(frozen=True)
class Told:
    """Something that a rank says while it works."""

    value: Any


@dataclass(frozen=True)
class Done:
    """What the task returned."""

    result: Any


@dataclass(frozen=True)
class Failed:
    """The findings that the task raised; ``bug``: instead of them the type and text of another exception."""

    findings: tuple[Diagnostic, ...]
    bug: str | None = None


@dataclass(frozen=True)
class Lost:
    """A process that ended by itself: its exit status (a signal's number below 0), and what it said last."""

    status: int
    said: str
