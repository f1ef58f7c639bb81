"""Reading MSCCL XML.

Text becomes elements (``parse``), these become a plan (``build``), and that has to obey the rules of the format
(``rules``). Files may be packed (``unpack``).
"""

from __future__ import annotations

from schedlang.msccl.build import plan_of
from schedlang.msccl.complaints import Complaints
from schedlang.msccl.parse import parse
from schedlang.msccl.plan import Plan
from schedlang.msccl.rules import check
from schedlang.msccl.unpack import read_source
from schedlang.source import Source


def read(path: str) -> Plan:
    """The plan in a file: MSCCL XML, packed by gzip or not, whatever its name.

    Raises SchedError: SL105 where the file cannot be read as text, SL108 where it breaks the rules of the format, SL208
    where it is too large, SL221 where a step reaches outside of its buffer.
    """
    return _plan(read_source(path))


def loads(text: str, path: str) -> Plan:
    """The plan in a text. ``path`` is what messages call it. Raises SchedError as :func:`read` does, but for SL105."""
    return _plan(Source(path, text))


def _plan(source: Source) -> Plan:
    complaints = Complaints(source)
    plan = plan_of(parse(source, complaints), complaints)
    check(plan, complaints)
    return plan
