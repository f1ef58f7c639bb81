"""The rules an op table obeys. Every pass may rely on them after :func:`check` found nothing.

``form``: the shape of the table itself (a breach is SL107, and for a table that came from a schedule a bug of ours).
``faults``: what a schedule's author can get wrong: ranks (SL222, SL224), bounds (SL221), events (SL306, SL307), and a
world too large to follow (SL208).
Not here: a step that writes a location twice, which depends on what the operations do there (``verify/steps.py``).
"""

from __future__ import annotations

from schedlang.diagnostics import Diagnostic
from schedlang.ir.legal.faults import faults
from schedlang.ir.legal.form import form
from schedlang.ir.table import OpTable

__all__ = ["check", "faults", "form"]


def check(table: OpTable) -> list[Diagnostic]:
    """All breaches of the rules, one finding for each rule and source statement."""
    return form(table) or faults(table)
