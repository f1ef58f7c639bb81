"""Findings in used schedules: every one shows the `use` that brought the operation in, whoever finds it."""

import re

import numpy as np
import pytest

from schedlang.diagnostics import SchedError, Severity, error
from schedlang.expand import expand, load_text
from schedlang.interpret.engine import backend
from schedlang.ir.origin import at_row, origin_text, uses
from schedlang.ir.table import NONE
from schedlang.verify import verify

OUTER = """schedule outer():
    collective {collective}
    ranks 4
    {declared}
    for g in [1]:
        use inner(k=2) on [g, 3, 0]
schedule inner(ranks, k):
    collective {collective}
"""
USED = "in `inner`, used here with k = 2, ranks = 3, where g = 1; its ranks 0, 1, 2 are 1, 3, 0 here"

TWO_STREAMS = """stream x: send data[0] from 0 to 1
stream y: send data[0] from 2 to 1"""
CROSSED = """on 0:
    send data[0] to 1
    recv data[0] from 1
on 1:
    send data[0] to 0
    recv data[0] from 0"""
SHARED = """buffer tmp[2]
stream x:
    chan 0
    send data[0] from 0 to 1 into tmp[0]
stream y:
    chan 0
    send data[0] from 0 to 1 into tmp[1]"""
CHAIN = "step:\n    send data[0] from 0 to 1\n    send data[0] from 1 to 2"
ROUND = "step:\n    for r in 0..ranks: send data[0] from r to (r + 1) % ranks"

FAULTS = [
    # found by the expander
    ("SL222", "allreduce(sum)", "", "send data[0] from 0 to k + 1"),
    ("SL224", "allreduce(sum)", "", "for r in 0..2: send data[0] from 0 to r"),
    ("SL207", "allreduce(sum)", "", "require ranks > 7"),
    # by the rules of the table
    ("SL306", "allreduce(sum)", "", "wait never on 1"),
    ("SL307", "allreduce(sum)", "", "record twice on 1\nrecord twice on 1"),
    # by the order
    ("SL301", "allreduce(sum)", "", "on 0: send data[0] to 1"),
    ("SL302", "allreduce(sum)", "", "on 0: recv data[0] from 1"),
    ("SL303", "allreduce(sum)", "chunks 2", "chunks 2\non 0: send data[0:2] to 1\non 1: recv data[0] from 0"),
    ("SL304", "allreduce(sum)", "", SHARED),
    ("SL305", "allreduce(sum)", "", CROSSED),
    ("SL308", "barrier", "send data[0] from 2 to 1", ROUND),
    ("SL401", "allreduce(sum)", "", TWO_STREAMS),
    # by the values
    ("SL402", "allreduce(sum)", "", "step:\n    send data[0] from 0 to 1\n    send data[0] from 2 to 1"),
    ("SL403", "allreduce(sum)", "", "buffer tmp[1]\ncopy tmp[0] into data[0] on 1"),
    ("SL501", "allreduce(sum)", "", "send data[0] from 0 to 1"),
    ("SL502", "allreduce(sum)", "", "for i in 0..2: reduce data[0] from 0 to 1"),
    ("SL503", "allreduce(sum)", "chunks 2", "chunks 2\nreduce data[1] from 0 to 1 into data[0]"),
    ("SL603", "allreduce(sum)", "chunks 3", "chunks 3\n" + CHAIN),
]


def expanded(collective, declared, body):
    inner = "".join(f"    {line}\n" for line in body.split("\n"))
    text = OUTER.format(collective=collective, declared=declared) + inner
    return expand(load_text(text, "o.sched"), "outer")


@pytest.mark.parametrize(("code", "collective", "declared", "body"), FAULTS, ids=[f[0] for f in FAULTS])
def test_a_finding_in_a_used_schedule_shows_the_use(code, collective, declared, body):
    table, findings = expanded(collective, declared, body)
    early = table is None
    if not early:
        findings = verify(table).diagnostics
    found = next(d for d in findings if d.code == code and d.location.line > 8)
    use = next(n for n in found.notes if "used here" in n.message)
    # what the expander finds, it finds in the used schedule, and nothing of the world outside is told
    assert use.message == (USED.split(";")[0] if early else USED)
    assert (use.location.file, use.location.line, use.location.column) == ("o.sched", 6, 9)
    assert use.location.text == "use inner(k=2) on [g, 3, 0]"
    if not early and found.severity == Severity.ERROR and code not in ("SL306", "SL307", "SL308"):
        said = " ".join([found.message, *(n.message for n in found.notes)])
        assert re.search(r"\(line \d+(, \w+=\d+)*; used in line 6, g=1\)", said), said


def test_what_is_missing_shows_the_use_that_brings_it_near():
    text = ("schedule inner(ranks):\n    collective allgather\n    for r in 0..ranks:\n"
            "        copy input[0] into output[r] on r\n"
            "        send input[0] from r to (r + 1) % ranks into output[r]\n"
            "schedule outer(ranks):\n    collective allgather\n    for g in 0..2:\n"
            "        use inner() on [2 * g, 2 * g + 1] for input=input[0:1], output=output[2 * g : 2 * g + 2]\n")
    table, _ = expand(load_text(text, "o.sched"), "outer", ranks=4)
    found, = [d for d in verify(table).diagnostics if d.code == "SL504"]
    assert [(n.message, n.location.line) for n in found.notes] == [
        ("chunk 0 of input from rank 2 comes as far as output[2] on rank 3 (line 5, r=0; used in line 9, g=1) and goes "
         "no further", 5),
        ("nearest to it, output[1] is written by rank 0, step 2: recv output[1] from rank 1 (line 5, r=1; used in "
         "line 9, g=0)", 5),
        ("in `inner`, used here with ranks = 2, where g = 1; its ranks 0, 1 are 2, 3 here", 9),
        ("in `inner`, used here with ranks = 2, where g = 0; its ranks 0, 1 are 0, 1 here", 9)]


@pytest.mark.parametrize(("on", "said"), [(" on 0..2", "; its ranks 0, 1 are 0, 1 here"), ("", "")])
def test_the_ranks_of_a_use_are_told_where_it_has_an_on(on, said):
    text = ("schedule inner(ranks):\n    collective allreduce(sum)\n    send data[0] from 0 to 1\n"
            f"schedule outer(ranks):\n    collective allreduce(sum)\n    use inner(){on}\n")
    table, _ = expand(load_text(text, "o.sched"), "outer", ranks=2)
    assert [n.message for n in uses(table, 0)] == [f"in `inner`, used here with ranks = 2{said}"]


def test_a_run_that_stops_shows_the_use():
    table, _ = expanded("allreduce(sum)", "", "buffer tmp[1]\ncopy tmp[0] into data[0] on 1")
    with pytest.raises(SchedError) as raised:
        backend.run(table, [{"data": np.zeros(4, np.float32)}] * 4, op="sum")
    found, = raised.value.diagnostics
    assert found.code == "SL403" and [n.message for n in found.notes] == [USED]


NESTED = """schedule leaf(ranks):
    collective broadcast(0)
    send data[0] from 0 to 1
schedule middle(ranks):
    collective broadcast(0)
    chunks 2
    for i in 0..2: use leaf() on [1, 0] for data[i:i + 1]
schedule top(ranks):
    collective broadcast(0)
    chunks 2
    for g in 0..2: use middle() on [2 * g + 1, 2 * g]
"""


def test_uses_within_uses_stand_innermost_first():
    table, _ = expand(load_text(NESTED, "n.sched"), "top", ranks=4)
    row = next(r for r in range(len(table)) if table.rank[r] == 2 and table.chunk[r] == 1)
    assert origin_text(table, [row]) == "line 3; used in line 7, i=1; used in line 11, g=1"
    assert [(n.location.line, n.message) for n in uses(table, row)] == [
        (7, "in `leaf`, used here with ranks = 2, where i = 1; its ranks 0, 1 are 1, 0 here"),
        (11, "in `middle`, used here with ranks = 2, where g = 1; its ranks 0, 1 are 3, 2 here")]


def test_several_rows_tell_each_use_once_and_share_what_they_have_in_common():
    table, _ = expand(load_text(NESTED, "n.sched"), "top", ranks=4)
    assert origin_text(table, range(len(table))) == "line 3; used in line 7; used in line 11"
    found = at_row(error("SL301", "x"), table, 0, 1)
    assert len(found.notes) == 2 and found.location.line == 3
    assert at_row(error("SL301", "x"), table, NONE).location.line == 8


def test_of_many_uses_within_uses_the_ends_are_told():
    text = ("schedule deep(ranks, n):\n    collective broadcast(0)\n    if n == 0: send data[0] from 0 to 1\n"
            "    if n > 0: use deep(n=n - 1)\n")
    table, _ = expand(load_text(text, "d.sched"), "deep", ranks=2, params={"n": 9})
    notes = [n.message for n in uses(table, 0)]
    assert notes == [*(f"in `deep`, used here with n = {n}, ranks = 2" for n in (0, 1, 2)), "... 5 more uses between",
                     "in `deep`, used here with n = 8, ranks = 2"]
    assert origin_text(table, [0]) == "line 3; used in line 4; used in line 4; ... 6 more; used in line 4"
