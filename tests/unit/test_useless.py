"""How SL607 and SL608 are said: how much of a statement, how grave, and of which sizes. What they are said of:
tests/property/test_useless.py and tests/cases."""

import json

import numpy as np
import pytest

from schedlang.cli.main import main
from schedlang.diagnostics import Severity
from schedlang.expand import expand, load_text
from schedlang.ir.table import NONE
from schedlang.ops import Op
from schedlang.verify import verify

GATHER = """schedule gather_all(ranks, rounds=0):
    collective allgather inplace
    verify ranks in 1..6, rounds in [{rounds}]
    for s in 0..rounds:
        step:
            for r in 0..ranks:
                send data[(r - s) % ranks] from r to (r + 1) % ranks if ranks > 1
"""


def said(text, ranks=4, **params):
    table, findings = expand(load_text(text), text.split("(")[0].split()[1], ranks=ranks, params=params)
    assert table is not None, findings
    verdict = verify(table)
    assert verdict.ok, verdict.diagnostics
    return [d for d in verdict.diagnostics if d.code in ("SL607", "SL608")]


@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_rounds_too_many(ranks):
    assert said(GATHER.format(rounds=0), ranks, rounds=ranks - 1) == []
    (found,) = said(GATHER.format(rounds=0), ranks, rounds=ranks + 1)
    assert (found.code, found.severity, found.count) == ("SL608", Severity.WARNING, 2 * ranks)
    notes = [n.message for n in found.notes]
    assert f"of the {(ranks + 1) * ranks} operations that this statement makes, {2 * ranks} are useless so" in notes
    assert "2 steps of the schedule do nothing else" in notes
    assert found.witness["steps"] == 2 and not found.witness["statement"]


def test_of_a_table_that_does_not_know_its_steps_none_are_counted():
    table, findings = expand(load_text(GATHER.format(rounds=0)), "gather_all", ranks=3, params={"rounds": 4})
    assert table is not None, findings
    (found,) = (d for d in verify(table.with_columns(number=None)).diagnostics if d.code == "SL608")
    assert found.witness["steps"] == 0 and not any("nothing else" in n.message for n in found.notes)


def test_what_some_get_again_in_a_step_that_others_need_is_a_note():
    text = """schedule some(ranks):
    collective allgather inplace
    step:
        for r in 0..ranks:
            for p in 0..ranks: send data[r] from r to p if r != p and not (r == 0 and p == 1)
    step:
        for p in 1..ranks: send data[0] from 0 to p
"""
    (found,) = said(text)
    assert (found.code, found.severity, found.count) == ("SL608", Severity.NOTE, 2)


def test_a_statement_that_is_useless_as_a_whole():
    text = """schedule all_of_it(ranks):
    collective broadcast(0)
    buffer old[1]
    for r in 1..ranks: send data[0] from 0 to r into old[0]
    for r in 1..ranks: send data[0] from 0 to r
"""
    (found,) = said(text)
    assert found.code == "SL607" and found.help == "leave the statement out" and found.count == 3
    assert "is written, and nothing reads it or needs it at the end" in found.message
    assert found.witness["statement"] and found.witness["rank"] == 1 and found.witness["buffer"] == "old"


def test_of_a_slice_that_is_needed_in_part_nothing_is_said():
    text = """schedule part(ranks):
    collective broadcast(0)
    chunks 2
    for r in 1..ranks: send data[0:2] from 0 to r
    for r in 1..ranks: send data[1] from 0 to r
"""
    (found,) = said(text)
    assert found.code == "SL608" and found.location.line == 5       # what came before is there, whole


def test_of_a_slice_that_comes_whole_what_came_before_is_not_needed():
    text = """schedule part(ranks):
    collective broadcast(0)
    chunks 2
    for r in 1..ranks: send data[1] from 0 to r
    for r in 1..ranks: send data[0:2] from 0 to r
"""
    (found,) = said(text)       # not that half of the second is there already
    assert found.code == "SL607" and found.location.line == 4 and found.count == 3


def test_of_what_is_passed_on_whole_a_store_that_is_needed_in_part_is_needed():
    """Rank 2 needs both chunks, rank 1 keeps one of them; what it stores would be useless only as a whole."""
    text = """schedule passed_on(ranks):
    collective custom
    buffer input[2], data[2]
    ensure data[0] on 1 == input[0] on 0
    ensure data[1] on 1 == input[1] on 1
    for c in 0..2: ensure data[c] on 2 == input[c] on 0
    send input[0:2] from 0 to 1 into data[0:2] then send to 2 into data[0:2]
    copy input[{chunks}] into data[{chunks}] on 1
"""
    assert said(text.format(chunks="1"), 3) == []
    (found,) = said(text.replace("input[0] on 0", "input[0] on 1", 1).format(chunks="0:2"), 3)
    assert (found.code, found.location.line) == ("SL607", 7)


ORDERED = """schedule ordered(ranks):
    collective allreduce(sum)
    buffer token[1]
    stream a:
        reduce data[0] from 1 to 0
        reduce data[0] from 2 to 0
        send data[0] from 0 to 1
        record back on 1
        record gone on 2
    stream b:
        wait back on 1
        wait gone on 2
        send data[0] from 1 to 0 into token[0]
        send data[0] from 1 to 2 into token[0]
        send data[0] from 0 to 2
        step:
            send data[0] from 0 to 2
            send data[0] from 0 to 2 into token[0]
"""


def test_what_can_go_beside_a_message_that_is_needed_for_its_order():
    """That the message to rank 0 has come says that stream a is done there. Of the others one is useless, one comes
    again, and of the last, which stores nothing, nothing is said: it is there for its order."""
    table, findings = expand(load_text(ORDERED), "ordered", ranks=3)
    assert table is not None, findings
    last = int(np.flatnonzero(table.op == Op.RECV)[-1])
    buffer, chunk = table.buffer.copy(), table.chunk.copy()
    buffer[last], chunk[last] = NONE, 0
    verdict = verify(table.with_columns(buffer=buffer, chunk=chunk))
    assert verdict.ok and [(d.code, d.location.line, d.witness["steps"]) for d in verdict.diagnostics] == [
        ("SL607", 14, 1), ("SL608", 17, 0)]


def test_schedules_without_a_result_and_worlds_of_one_rank_are_not_judged():
    assert said("schedule none(ranks):\n    collective custom\n    buffer input[1], t[1]\n"
                "    copy input[0] into t[0] on 0\n") == []
    assert said("schedule one(ranks):\n    collective broadcast(0)\n    buffer t[1]\n    copy data[0] into t[0] on 0\n"
                "    copy t[0] into data[0] on 0\n", 1) == []


@pytest.mark.parametrize(("rounds", "severity", "cases"), [
    ("ranks", "warning", None), ("max(ranks - 1, 4)", "note", "so in 3 of the 4 cases with several ranks")])
def test_what_is_useless_for_some_sizes_only_is_noted(tmp_path, capsys, rounds, severity, cases):
    path = tmp_path / "gather_all.sched"
    path.write_text(GATHER.format(rounds=rounds))
    assert main(["verify", str(path), "--format", "json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)["schedules"]
    found = [d for case in report["cases"] for d in case["diagnostics"]]
    assert {(d["code"], d["severity"]) for d in found} == {("SL608", severity)}
    told = [n["message"] for n in found[0]["notes"] if n["message"].startswith("so in")]
    assert told == ([] if cases is None else [cases])
    assert found[0]["help"].startswith("let the loop" if cases is None else "other sizes need it: ")


USES = """schedule spread(ranks, again=false):
    collective broadcast(0)
    for r in 1..ranks: send data[0] from 0 to r
    if again:
        for r in 1..ranks: send data[0] from 0 to r

schedule outer(ranks):
    collective broadcast(0)
    {use}

schedule user(ranks):
    collective broadcast(0)
    use spread()
    use outer()
"""


@pytest.mark.parametrize(("use", "line", "helps"), [
    ("use spread()", None, ["leave out the `use` in line 14: nothing needs what it does"]),
    ("use spread(again=true)", None, ["leave out the `use` in line 14: nothing needs what it does"] * 2),
    ("use spread() on [0]", "    for t in 0..2: use spread(again=true)", [
        "leave out the `use` in line 15: nothing needs what it does"] * 2),
    ("send data[0] from 0 to 1", "    use outer()", ["leave the statement out"]),
])
def test_a_use_that_does_nothing_else_is_to_be_left_out(use, line, helps):
    text = USES.format(use=use) + (f"{line}\n" if line else "")
    table, findings = expand(load_text(text), "user", ranks=3)
    assert table is not None, findings
    assert [d.help for d in verify(table).diagnostics if d.code == "SL608"] == helps


def test_a_statement_that_other_sizes_need_is_not_to_be_left_out(tmp_path, capsys):
    path = tmp_path / "last.sched"
    path.write_text("""schedule last(ranks):
    collective broadcast(0)
    for r in 1..min(ranks, 4): send data[0] from 0 to r
    send data[0] from 0 to ranks - 1 if ranks > 1
    for r in 4..ranks - 1: send data[0] from 0 to r
""")
    assert main(["verify", str(path), "--ranks", "2..7"]) == 0
    some = capsys.readouterr().out
    assert "note[SL608]" in some and "so in 3 of the 5 cases" in some and "help: other sizes need it" in some
    assert main(["verify", str(path), "--ranks", "2..5"]) == 0
    every = capsys.readouterr().out
    assert "warning[SL608]" in every and "help: leave the statement out" in every
