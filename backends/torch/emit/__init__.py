"""A schedule as one Python file that needs only torch: `schedlang compile FILE --target torch`.

``turns`` puts what several streams do into one order, ``split`` takes fused operations apart, ``body`` writes the
streams with their loops, ``early`` says whether receives may stand ready, ``head`` writes the rest of what is different
from file to file, and ``check`` reads the steps again and compares. ``engine.py``, ``values.py`` and ``harness.py`` are
copied in as they stand: what executes steps, and the test of itself, which ``trial`` gives something to compare with.
"""

from __future__ import annotations

import re
from keyword import iskeyword
from pathlib import Path

from schedlang.backends.torch.emit.body import STARTS, WIDTHS, Body, Names
from schedlang.backends.torch.emit.check import compare
from schedlang.backends.torch.emit.head import IMPORTS, Head
from schedlang.backends.torch.emit.trial import trial
from schedlang.backends.torch.emit.turns import in_turns
from schedlang.codegen.expressions import Tables
from schedlang.codegen.words import VARIABLES, identifier
from schedlang.diagnostics import SchedError, Severity
from schedlang.ir.loops import lanes
from schedlang.ir.table import NONE, OpTable
from schedlang.verify import verify

__all__ = ["source"]

RULER = "# " + "-" * 117
_COPIED = ("engine.py", "values.py", "harness.py")


def source(table: OpTable, file: str | None = None) -> str:
    """The file for a schedule, which is proved right first. ``file``: what it will be called; None: like its function.

    Raises SchedError: the findings where the schedule is not right on connections that hold no message, as those of
    NCCL and Gloo do not; SL808 where its messages have no order in which one process could exchange them.
    """
    # What a format says of its own transport does not help here: NCCL and Gloo hold no messages.
    compiled = table.with_columns(transport=None)
    verdict = verify(compiled)
    if not verdict.ok:
        raise SchedError([d for d in verdict.diagnostics if d.severity is Severity.ERROR])
    even = any(d.code == "SL602" for d in verdict.diagnostics)
    table, turns = in_turns(compiled)
    found = lanes(table)
    taken = _reserved()
    buffers = {i: identifier(b.name, "buffer", taken, iskeyword) for i, b in enumerate(table.buffers) if b.chunks}
    used = sorted({program.stream for program in found.programs})
    name = identifier(table.name, "schedule", taken, iskeyword)
    streams = {s: "steps" if len(used) == 1 else identifier(table.streams[s], "stream", taken, iskeyword) for s in used}
    chans = {int(c): table.streams[int(c)] for c in sorted(set(table.chan[table.chan != NONE].tolist()))}
    names = Names(buffers, streams, chans)
    body = Body(table, names, turns, Tables())
    functions = [list(body.stream(s, [p for p in found.programs if p.stream == s])) for s in used]
    head = Head(compiled, table, names, name, turns, even, file)
    literals = [line for lines in body.tables.made.values() for line in lines]
    parts = [[*head.opening(), "", *head.constants()], literals, *functions, head.streams(), head.function()]
    compare(table, names, _joined([literals, *functions]), turns)
    engine, values, harness = map(_copied, _COPIED)
    return _joined([*parts, engine, values, [RULER, "# The test of itself.", "", *trial(head)], harness]) + "\n"


def _joined(parts: list[list[str]]) -> str:
    return "\n\n\n".join("\n".join(part) for part in parts if part)


def _reserved() -> set[str]:
    """The names that what is copied in has for itself, and those of variables."""
    text = "\n".join(line for name in _COPIED for line in _copied(name))
    names = re.findall(r"^(?:def|class) (\w+)|^([A-Z]\w*)\b", text, re.MULTILINE)
    imported = re.findall(r"^(?:from [\w.]+ )?import (.*)$", IMPORTS, re.MULTILINE)
    words = {"rank", "steps", "tensor", "group", "op", "part", "elements", "starts", "counts", "dist", "torch", "trial",
             "range", "max", "map", "row", "name", "at", "count", "device", "own", "cuts", "on_gpu", *VARIABLES,
             *WIDTHS, *STARTS}
    return {*words, *filter(None, (name for pair in names for name in pair)),
            *(word for line in imported for word in line.split(", "))}


def _copied(name: str) -> list[str]:
    """The text of a module here, from its ruler on."""
    lines = (Path(__file__).parent / name).read_text("utf-8").splitlines()
    return lines[lines.index(RULER) :]
