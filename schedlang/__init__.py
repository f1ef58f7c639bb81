"""A language for schedules of collective communication: write one, prove it, run it.

``load`` reads a schedule, a :class:`Schedule` is called with the arrays of all ranks. What cannot be used or goes
wrong is a :class:`SchedError`, whose ``diagnostics`` say what, where and how to mend it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from schedlang.backend import Backend
    from schedlang.diagnostics import Diagnostic, SchedError
    from schedlang.ir.table import OpTable
    from schedlang.schedule import Schedule, load
    from schedlang.version import __version__

__all__ = ["Backend", "Diagnostic", "OpTable", "SchedError", "Schedule", "__version__", "load"]

_HOMES = {
    "Backend": "schedlang.backend",
    "Diagnostic": "schedlang.diagnostics",
    "OpTable": "schedlang.ir.table",
    "SchedError": "schedlang.diagnostics",
    "Schedule": "schedlang.schedule",
    "__version__": "schedlang.version",
    "load": "schedlang.schedule",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'schedlang' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
