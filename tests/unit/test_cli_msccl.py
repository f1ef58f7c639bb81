"""Every command takes MSCCL XML where it takes a schedule."""

import gzip
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import schedlang
from schedlang.diagnostics import SchedError, error
from schedlang.loading import load_table, parameters_of
from schedlang.ready import is_msccl, is_ready, looks_ready
from schedlang.survey import survey_tables
from schedlang.verify import verify
from tests.msccl_text import algo, block, gpu, nop, step
from tests.sarif_schema import SCHEMA

NAME = "swap.xml"
CASES = Path(__file__).parents[3] / "shared" / "cases" / "msccl"


def swap(*, last=0, told=1, **attributes):
    """An all-reduce on two ranks, in place and out of place: halves are exchanged and added, then the sums exchanged,
    by a second block. ``last``: where rank 1 puts the sum that it receives; ``told``: whether it tells that it has
    added."""
    ranks = []
    for r in range(2):
        ranks.append(gpu(r, [
            block(0, send=1 - r, recv=1 - r, steps=[
                step("s", ("i", 1 - r)), step("rrc", ("i", r), ("o", r), hasdep=told if r else 1)]),
            block(1, send=1 - r, recv=1 - r, chan=1, steps=[
                step("s", ("o", r), dep=(0, 1)), step("r", ("o", 1 - r), ("o", last if r else 1))])]))
    return algo(ranks, chunks=2, name="swap", **{"inplace": 1, "outofplace": 1, **attributes})


def ring(extra=0, **attributes):
    """An all-gather on three ranks that each pass on what they receive, once they have sent their own part, and
    ``extra`` times in vain: all of these, and what is passed on, must be in flight at once."""
    ranks = []
    for r in range(3):
        again = [step("s", ("i", 0), ("o", r)) for _ in range(extra)]
        dropped = [step("r", ("i", 0), ("o", (r - 1) % 3)) for _ in range(extra)]
        ranks.append(gpu(r, [block(0, send=(r + 1) % 3, recv=(r - 1) % 3, steps=[
            step("cpy", ("i", 0), ("o", r)), step("s", ("i", 0), ("o", r)), *again,
            step("rcs", ("i", 0), ("o", (r - 1) % 3)), *dropped, step("r", ("i", 0), ("o", (r - 2) % 3))])]))
    return algo(ranks, chunks=3, coll="allgather", name="ring", **{"inplace": 0, "outofplace": 1, **attributes})


def fan(root=1, **attributes):
    """A broadcast on three ranks, from ``root`` only."""
    others = [r for r in range(3) if r != root]
    ranks = [gpu(r, [block(0, recv=root, steps=[step("r", ("i", 0), ("o", 0))])]) for r in others]
    sends = [block(k, send=r, steps=[step("s", ("i", 0), ("o", 0))]) for k, r in enumerate(others)]
    ranks.insert(root, gpu(root, sends))
    return algo(ranks, coll="broadcast", name="fan", proto="Simple", **attributes)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    return tmp_path


@pytest.fixture
def write(folder):
    def to(name, text):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return name

    return to


def lines_of(text, *words):
    """The numbers of the lines of a text that have all the words."""
    return [number for number, line in enumerate(text.splitlines(), 1) if all(word in line for word in words)]


# ---- verify ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["swap.xml", "swap.xml.gz", "SWAP.XML", "swap.gz"])
def test_both_uses_of_a_file_are_proved(name, write, call):
    status, out, err = call("verify", write(name, swap()))
    assert (status, err) == (0, "")
    assert f"ok  {name}::swap  ranks 2, inplace true, false (2 cases)" in out
    assert "LL keeps 8 messages in flight per connection; 1 is enough" in out
    assert out.splitlines()[-1] == ("Deadlock is judged with 8 messages in flight per connection (LL), all else with "
                                    "unlimited buffering.")


@pytest.mark.parametrize(("attributes", "given", "cases"), [
    ({}, [], [True, False]), ({}, ["-p", "inplace=false"], [False]), ({}, ["-p", "inplace=true,false"], [True, False]),
    ({"outofplace": 0}, [], [True]), ({"inplace": 0}, [], [False]), ({"outofplace": None}, [], [True]),
    ({"outofplace": 0}, ["-p", "inplace=false,true"], [True]), ({}, ["--ranks", "2..9"], [True, False]),
    ({}, ["--ranks", "2", "-p", "inplace=true"], [True])])
def test_the_cases_are_those_that_the_file_is_for_and_that_are_asked_for(attributes, given, cases, write, call):
    status, out, _ = call("verify", write(NAME, swap(**attributes)), "--format", "json", *given)
    (report,) = json.loads(out)["schedules"]
    assert status == 0 and [case["values"] for case in report["cases"]] == [{"ranks": 2, "inplace": v} for v in cases]


@pytest.mark.parametrize(("given", "code", "said"), [
    (["--ranks", "4"], "SL206", "swap.xml is an MSCCL file for 2 ranks, not 4"),
    (["--ranks", "3..9"], "SL206", "for 2 ranks, not 3"),
    (["-p", "inplace=7"], "SL206", "expanded already with inplace = true or false, not 7"),
    (["-p", "chunks=2"], "SL206", "without a parameter chunks"),
    (["-p", "root=0"], "SL206", "without a parameter root"),
    (["-p", "ranks=3"], "SL206", "expanded already with ranks = 2, not 3")])
@pytest.mark.parametrize("command", [["verify"], ["run"], ["show"], ["compile", "--target", "json"]])
def test_what_a_file_does_not_have_is_refused(command, given, code, said, write, call):
    if "3..9" in given and command != ["verify"]:
        given = ["--ranks", "3"]
    status, out, err = call(*command, write(NAME, swap()), *given)
    assert status == 2 and f"error[{code}]" in out + err and said in out + err
    assert (out + err).count("error[") == 1


def test_a_name_is_that_of_the_algorithm(write, call):
    assert call("verify", write(NAME, swap()) + "::swap")[0] == 0
    status, out, _ = call("verify", NAME + "::swop")
    assert status == 2 and "error[SL212]" in out and "swap.xml holds the schedule swap, not swop" in out


def test_an_operator_replaces_that_of_the_file(write, call):
    assert call("verify", write(NAME, swap()), "--op", "max")[0] == 0
    status, out, _ = call("verify", write("ring.xml", ring()), "--op", "max")
    assert status == 2 and "ring is for allgather, which reduces nothing" in out
    status, out, _ = call("verify", NAME, "ring.xml", "--op", "max")
    assert status == 0 and out.count("nothing is reduced, so --op max changes nothing here") == 1
    status, out, _ = call("verify", NAME, "--op", "most")
    assert status == 2 and "there is no reduction operator most" in out and "nothing is reduced" not in out
    table, _ = load_table(write("prod.xml", swap(redop="prod")))
    assert table.operator == "prod"


def test_a_finding_is_at_the_line_of_its_step(write, call):
    text = swap(told=0)
    (line,) = lines_of(text, 'type="s"', 'srcoff="1"', 'depid="0"')
    status, out, _ = call("verify", write(NAME, text), "--format", "concise")
    assert status == 1 and out.startswith(f"swap.xml:{line}:7: error[SL306] never-recorded: ")
    assert "FAULTY  swap.xml::swap  ranks 2, inplace true, and 1 more of 2 cases: 1 error" in out
    out = call("verify", NAME)[1]
    assert f' {line} |       <step s="0" type="s"' in out and 'help: set hasdep="1" on step 1 of block 0' in out


def test_a_compressed_file_goes_by_its_path_and_the_lines_of_its_text(write, call):
    text = swap(last=1)
    (line,) = lines_of(text, 'type="r"', 'srcoff="0"')
    status, out, _ = call("verify", write("swap.xml.gz", text), "-p", "inplace=true", "--format", "json")
    (case,) = json.loads(out)["schedules"][0]["cases"]
    found = {d["code"]: d for d in case["diagnostics"]}
    tag = text.splitlines()[line - 1]
    assert status == 1 and found["SL503"]["file"] == "swap.xml.gz" and case["values"] == {"ranks": 2, "inplace": True}
    assert (found["SL503"]["line"], found["SL503"]["column"]) == (line, tag.index("<") + 1)
    assert (found["SL503"]["end_line"], found["SL503"]["end_column"]) == (line, len(tag) + 1)


def test_the_formats_for_other_tools(write, call):
    text = swap(told=0)
    (line,) = lines_of(text, 'type="s"', 'srcoff="1"', 'depid="0"')
    write(NAME, text)
    status, out, _ = call("verify", NAME, "--format", "github")
    assert status == 1 and f"::error file=swap.xml,line={line},endLine={line},col=7," in out
    assert "%0Ain swap with ranks 2, inplace true; 1 more of 2 cases fail alike" in out
    status, out, _ = call("verify", NAME, "--format", "sarif")
    document = json.loads(out)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert status == 1
    (result,) = document["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "swap.xml" and place["region"]["startLine"] == line
    assert result["properties"]["values"] == {"ranks": 2, "inplace": True} and result["properties"]["casesAlike"] == 2
    call("verify", NAME, "--format", "sarif", "-o", "a.sarif")
    assert json.loads(Path("a.sarif").read_text()) == document
    status, _, err = call("verify", NAME, "-o", NAME)
    assert status == 2 and "swap.xml: this file is read here" in err and Path(NAME).read_text() == text


def test_what_was_not_understood_is_said_once_a_file(write, call):
    write(NAME, swap(colour="red"))
    status, out, _ = call("verify", NAME)
    assert status == 0 and out.count("note[SL615]") == 1 and "colour" in out and "(2 cases)" in out
    assert "SL615" not in call("verify", NAME, "--format", "concise")[1]
    assert call("verify", NAME, "--format", "github")[1].count("::notice ") == 1
    (report,) = json.loads(call("verify", NAME, "--format", "json")[1])["schedules"]
    assert [d["code"] for d in report["diagnostics"]] == ["SL615"]
    assert not any(d["code"] == "SL615" for case in report["cases"] for d in case["diagnostics"])
    write(NAME, swap(colour="red", last=1))             # both uses fail, each in its own way
    out = call("verify", NAME)[1]
    assert out.count("note[SL615]") == 1 and out.count("FAULTY") == 2


def test_deadlock_is_judged_by_the_protocol_and_by_whatever_is_asked_for(write, call):
    write("ring.xml", ring())
    assert "2 are enough" in call("verify", "ring.xml")[1]
    status, out, _ = call("verify", "ring.xml", "--sends", "rendezvous", "--format", "concise")
    assert status == 1 and "error[SL305]" in out
    write("deep.xml", ring(extra=1))
    status, out, _ = call("verify", "deep.xml")
    assert status == 0 and "LL keeps 8 messages in flight per connection; 3 are enough" in out
    write("deep.xml", ring(extra=1, proto="Simple"))
    status, out, _ = call("verify", "deep.xml")
    assert status == 1 and "error[SL305]" in out
    assert "Deadlock is judged with 2 messages in flight per connection (Simple), all else" in out
    assert call("verify", "deep.xml", "--sends", "buffered=3")[0] == 0
    assert "All judged with --sends buffered=3." in call("verify", "deep.xml", "--sends", "buffered=3")[1]
    status, out, _ = call("verify", "deep.xml", "--sends", "LL")
    assert status == 0 and "Deadlock is judged with 8 messages in flight per connection (LL), all else" in out


def test_a_file_that_is_read_and_wrong_counts_as_faulty(write, call):
    write("swap.xml", swap())
    write("far.xml", str(swap()).replace('srcoff="1"', 'srcoff="9"', 1))
    status, out, _ = call("verify", "swap.xml", "far.xml")
    assert status == 1 and "error[SL221]" in out and "1 of 2 schedules are right\n" in out
    write("odd.xml", str(swap()).replace('srcoff="1"', 'srcoff="x"', 1))
    status, out, _ = call("verify", "swap.xml", "far.xml", "odd.xml")
    assert status == 2 and "1 of 2 schedules are right; 1 file could not be used\n" in out


@pytest.mark.parametrize("low, high, told", [
    (2048, 1024, True), (1024, 1024, False), (2048, 0, False), (None, 1, False)])
def test_a_range_without_sizes_is_told_without_a_runtime(write, call, low, high, told):
    status, out, _ = call("verify", write(NAME, swap(minBytes=low, maxBytes=high)))
    assert status == 0 and ("warning[SL703]" in out) == told
    assert ("no size is from minBytes, 2 KiB, up to maxBytes, 1 KiB, so no runtime" in out) == told


def test_a_name_with_colons_that_is_a_file(write, call):
    write("a::b.xml", swap())
    for command in (["verify"], ["show"], ["compile", "--target", "json"]):
        assert call(*command, "a::b.xml")[0] == 0
    assert call("verify", "a::b.xml::swap")[0] == 2
    assert schedlang.load("a::b.xml").name == "swap"


def test_where_nothing_is_promised_that_is_told(write, call):
    out = call("verify", write(NAME, swap(coll="custom")))[1]
    assert "nothing is promised of the results, so none is judged" in out
    assert "nothing is promised" not in call("verify", write(NAME, swap()))[1]
    write("none.sched", "schedule none():\n    ranks 2\n    collective custom\n    buffer input[1], output[1]\n"
                        "    send input[0] from 0 to 1 into output[0]\n")
    document = json.loads(call("verify", "none.sched", "--format", "json")[1])
    (case,) = document["schedules"][0]["cases"]
    said = {"name": "postcondition", "state": "proved", "detail": "nothing is promised of the results"}
    assert case["facts"]["nothing_promised"] and said in case["proofs"]


def test_source_of_a_file_is_judged_and_run_by_a_protocol(write, call):
    write("deep.xml", ring(extra=1, proto="Simple"))
    assert call("compile", "deep.xml", "--target", "sched", "-o", "deep.sched")[0] == 0
    for command in ("verify", "run"):
        for model, status in (("default", 1), ("Simple", 1), ("LL", 0), ("LL128", 0), ("simple", 2)):
            assert call(command, "deep.sched", "--sends", model)[0] == status
    document = json.loads(call("verify", "deep.sched", "--sends", "LL", "--format", "json")[1])
    assert document["sends"] == "LL" and document["schedules"][0]["cases"][0]["facts"]["transport"] == "LL"


def test_of_several_protocols_each_is_named(write, call, shipped):
    write("a.xml", swap())
    write("b.xml", ring(proto="Simple"))
    status, out, _ = call("verify", "a.xml", "b.xml", str(shipped), "--ranks", "2..4")
    assert status == 0 and "3 of 3 schedules are right" in out
    assert out.splitlines()[-1] == (
        "Deadlock is judged with 8 messages in flight per connection (LL) or with 2 messages in flight per connection "
        "(Simple) or without buffering (others), all else with unlimited buffering.")


def test_what_is_useless_in_one_use_only_is_left_out(write, call):
    """Each rank copies its own part, which in place is where it belongs."""
    write("ring.xml", ring(inplace=1))
    status, out, _ = call("verify", "ring.xml", "--format", "json")
    assert status == 0 and [case["diagnostics"] for case in json.loads(out)["schedules"][0]["cases"]] == [[], []]
    status, out, _ = call("verify", "ring.xml", "-p", "inplace=true", "--format", "concise")
    assert status == 0 and out.count("warning[SL608] there-already") == 3


def line(kind):
    """An all-reduce on three ranks: 0 and 1 add on the way to 2, by a step of that kind on rank 1; then 2 sends the
    sum to both, which on rank 1 overwrites what that step has stored."""
    return algo([
        gpu(0, [block(0, send=1, recv=2, steps=[step("s", ("i", 0)), step("r", dst=("o", 0))])]),
        gpu(1, [block(0, send=2, recv=0, steps=[step(kind, ("i", 0), ("o", 0), hasdep=1)]),
                block(1, recv=2, chan=1, steps=[step("r", dst=("o", 0), dep=(0, 0))])]),
        gpu(2, [block(0, recv=1, steps=[step("rrc", ("i", 0), ("o", 0), hasdep=1)]),
                block(1, send=0, steps=[step("s", ("o", 0), dep=(0, 0))]),
                block(2, send=1, chan=1, steps=[step("s", ("o", 0), dep=(0, 0))])])], name="line")


def test_what_is_useless_is_told_in_the_words_of_the_format(write, call):
    status, out, _ = call("verify", write("line.xml", line("rrcs")))
    assert status == 0 and "warning[SL607] never-read" in out
    assert "help: rrs in place of rrcs does the same, and stores nothing" in out
    status, out, _ = call("verify", write("line.xml", line("rrs")))
    assert status == 0 and "SL607" not in out
    text = swap()
    lines, (place,) = text.splitlines(), lines_of(text, 'type="r"', 'srcoff="0"')
    lines.insert(place, lines[place - 1].replace('s="1" type="r"', 's="2" type="cpy"').replace('"i"', '"o"'))
    status, out, _ = call("verify", write("twice.xml", "\n".join(lines)))
    assert status == 0 and f"twice.xml:{place + 1}:7: warning[SL608]" in out and "help: leave the step out" in out


def test_what_rcs_stores_is_never_useless(write):
    """It cannot pass anything on without."""
    write("gather.xml", algo([
        gpu(0, [block(0, send=1, steps=[step("s", ("i", 0))])]),
        gpu(1, [block(0, send=2, recv=0, steps=[step("rcs", dst=("s", 0))]),
                block(1, send=2, chan=1, steps=[step("s", ("i", 0))])], s=1),
        gpu(2, [block(0, recv=1, steps=[step("r", dst=("o", 0))]),
                block(1, recv=1, chan=1, steps=[step("r", dst=("o", 1))]),
                block(2, steps=[step("cpy", ("i", 0), ("o", 2))])])],
        coll="gather", chunks=3, inplace=0, outofplace=1))
    table, _ = load_table("gather.xml", params={"root": 2})
    as_it_is = verify(replace(table, told=None))
    assert as_it_is.ok and [d.code for d in as_it_is.diagnostics] == ["SL607"]
    assert verify(table).ok and verify(table).diagnostics == ()


def test_what_is_missing_is_told_in_the_words_of_the_format(write, call):
    write(NAME, swap(last=1))
    out = call("verify", NAME)[1]
    assert "help: carry it there before the end; where other contributions are to stay, add it: rrc, rrcs or re" in out
    assert "help: receive, copy or add it there: look for a step that is missing, or has another dstoff" in out
    text = line("rrs").replace('type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="0"',
                               'type="r" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="0"')
    assert text != line("rrs")
    write("line.xml", text.replace('s_chunks="0"', 's_chunks="1"').replace('inplace="1" outofplace="0"',
                                                                         'inplace="0" outofplace="1"'))
    status, out, _ = call("verify", "line.xml")
    assert status == 1 and "help: let this step store what it passes on: rrcs in place of rrs" in out


def test_a_root_is_assumed_or_given(write, call):
    write("fan.xml", fan())
    status, out, _ = call("verify", "fan.xml")
    assert status == 1 and out.count("note[SL606]") == 1 and "-p root=R" in out
    status, out, _ = call("verify", "fan.xml", "-p", "root=1")
    assert status == 0 and "SL606" not in out and "ranks 3, inplace true, root 1" in out
    status, out, _ = call("verify", "fan.xml", "-p", "root=0..3", "--format", "json")
    assert [case["status"] for case in json.loads(out)["schedules"][0]["cases"]] == ["faulty", "ok", "faulty"]
    for text, said in (("3", "the root is rank 3"), ("true", "must be one integer"), ("[1]", "must be one integer"),
                       ("x", "must be one integer")):
        status, out, _ = call("verify", "fan.xml", "-p", f"root={text}")
        assert status == 2 and "error[SL206]" in out and said in out
    assert schedlang.load("fan.xml", root=np.int64(1)).verify().ok
    assert parameters_of("fan.xml") == ("inplace", "root")


def test_a_use_that_cannot_be_is_a_verdict(write, call):
    """Out of place nothing overlaps; in place a copy overlaps itself, in whatever order its threads go."""
    ranks = [gpu(r, [block(0, send=1 - r, recv=1 - r, steps=[step("s", ("i", 0), cnt=3)]),
                     block(1, steps=[step("cpy", ("i", 0), ("o", 1), cnt=2)])]) for r in range(2)]
    write("copy.xml", algo(ranks, chunks=3, inplace=1, outofplace=1))
    status, out, _ = call("verify", "copy.xml", "--format", "json")
    (report,) = json.loads(out)["schedules"]
    assert status == 1 and [case["status"] for case in report["cases"]] == ["faulty", "faulty"]
    assert [d["code"] for d in report["cases"][0]["diagnostics"]] == ["SL401"] * 2
    assert "SL401" not in [d["code"] for d in report["cases"][1]["diagnostics"]]


def test_each_table_is_made_when_it_is_its_turn():
    """So that no two are held at once."""
    turns = []

    def make(values):
        turns.append(("made", values["k"]))
        raise SchedError(error("SL401", "no"))

    report = survey_tables([{"k": 1}, {"k": 2}], make, "s", file="f", progress=lambda at, v: turns.append((at, v["k"])))
    assert turns == [(0, 1), ("made", 1), (1, 2), ("made", 2)] and report.status == "faulty"


def test_of_an_unknown_collective_no_result_is_judged_and_that_is_not_hidden(write, call):
    write("ring.xml", ring().replace('coll="allgather"', 'coll="custom"'))
    for format in ("full", "concise"):
        status, out, _ = call("verify", "ring.xml", "--format", format)
        assert status == 0 and out.count("warning[SL615]") == 1 and "no result is judged" in out
    status, out, err = call("run", "ring.xml", "--check")
    assert status == 0 and "warning[SL615]" in err and "check   nothing to compare" in out


# ---- folders ---------------------------------------------------------------------------------------------------------


def test_a_folder_has_what_looks_like_an_algorithm(write, call, folder):
    write("a/good.xml", swap())
    write("a/packed.xml.gz", swap(told=0))
    write("a/licence.xml", "<!-- " + "x" * 5000 + " -->\n" + ring())
    write("a/topology.xml", '<system version="1"><cpu numaid="0"/></system>')
    write("a/topology.xml.gz", '<system version="1"><cpu numaid="0"/></system>')
    write("a/notes.gz", "nothing of ours")
    write("a/counts.json", "[1, 2]")
    (folder / "a/wide.xml").write_bytes(f'<?xml version="1.0" encoding="utf-16"?>\n{swap()}'.encode("utf-16"))
    os.mkfifo("a/pipe.xml")
    (folder / "a/deep.xml").mkdir()
    status, out, _ = call("verify", "a", "--format", "json")
    told = {report["file"]: report["status"] for report in json.loads(out)["schedules"]}
    assert status == 1 and told == {
        "a/good.xml": "ok", "a/packed.xml.gz": "faulty", "a/licence.xml": "ok", "a/wide.xml": "ok"}
    assert json.loads(out)["diagnostics"] == []


def test_a_broken_file_of_a_folder_is_told_of(write, call, folder):
    write("a/good.xml", swap())
    packed = gzip.compress(swap().encode())
    (folder / "a/cut.xml.gz").write_bytes(packed[:-20])
    (folder / "a/torn.xml.gz").write_bytes(packed[:10] + b"\xff" * 40)
    status, out, _ = call("verify", "a", "--format", "json")
    document = json.loads(out)
    assert status == 2 and [report["file"] for report in document["schedules"]] == ["a/good.xml"]
    said = " ".join(d["message"] for d in document["diagnostics"])
    assert "a/cut.xml.gz" in said and "a/torn.xml.gz" in said


def test_a_folder_without_any_says_what_there_could_be(write, call):
    write("a/topology.xml", "<system/>")
    status, out, _ = call("verify", "a")
    assert status == 2 and "there is no schedule in a" in out and "MSCCL files in .xml or .xml.gz" in out


def test_what_cannot_be_opened_is_not_looked_at(folder):
    assert not looks_ready(folder / "no.xml") and not looks_ready(folder / "no.sched")
    assert is_ready("A.XML.GZ") and is_msccl("a.gz") and not is_msccl("a.json") and not is_ready("xml")


# ---- files that are something else -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "content", "code", "said"), [
    ("empty.xml", b"", "SL108", "empty"), ("topo.xml", b"<system/>", "SL108", "not an MSCCL file"),
    ("table.xml", b'{"format": "schedlang-ops"}', "SL108", "not XML"),
    ("x.json", b"<algo/>", "SL107", "not an op table"),
    ("x.sched", b"<algo/>", "SL101", "this is XML"), ("x", b"<algo/>", "SL101", "this is XML"),
    ("x.sched", gzip.compress(b"<algo/>", mtime=0), "SL105", "x.sched is compressed, not text"),
    ("x.json.gz", gzip.compress(b"{}", mtime=0), "SL105", "x.json.gz is compressed, which only MSCCL XML may be"),
    ("x.sched.gz", gzip.compress(b"schedule", mtime=0), "SL105", "gunzip -k x.sched.gz"),
    ("x.xml.gz", gzip.compress(b"<algo/>", mtime=0)[:-9], "SL105", "x.xml.gz")])
@pytest.mark.parametrize("command", [["verify"], ["run"], ["show"], ["compile", "--target", "json"],
                                     ["diff", "good.xml"]])
def test_what_is_no_msccl_file_is_one_clear_error(command, name, content, code, said, folder, write, call):
    write("good.xml", swap())
    (folder / name).write_bytes(content)
    status, out, err = call(*command, name)
    assert status == 2 and f"error[{code}]" in out + err and said in out + err and (out + err).count("error[") == 1


def test_a_folder_is_no_file_whatever_its_name(folder, call):
    (folder / "x.xml").mkdir()
    for command in (["run"], ["show"], ["compile", "--target", "json"]):
        status, _, err = call(*command, "x.xml")
        assert status == 2 and "cannot read x.xml: Is a directory" in err
    assert "there is no schedule in x.xml" in call("verify", "x.xml")[1]


def test_a_pipe_is_read_once(folder, call):
    os.mkfifo("pipe.xml")
    writer = threading.Thread(target=Path("pipe.xml").write_text, args=(swap(),))
    writer.start()
    try:
        assert call("verify", "pipe.xml")[0] == 0
    finally:
        writer.join(10)
    assert not writer.is_alive()


def test_a_device_has_no_end(folder, call):
    os.symlink("/dev/zero", "zero.xml")
    status, out, _ = call("verify", "zero.xml")
    assert status == 2 and "it is a device" in out


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind the superuser")
def test_a_file_that_may_not_be_read(write, call):
    os.chmod(write(NAME, swap()), 0)
    status, out, _ = call("verify", NAME)
    assert status == 2 and "cannot read swap.xml: Permission denied" in out


def test_an_import_does_not_take_xml(write, call):
    write(NAME, swap())
    write("a.sched", 'import "swap.xml"\nschedule a(ranks):\n    collective barrier\n    use swap()\n')
    status, out, _ = call("verify", "a.sched", "--ranks", "2")
    assert status == 2 and "this is XML, not the text of a schedule" in out


# ---- --why -----------------------------------------------------------------------------------------------------------


def test_why_takes_lines_of_xml(write, call):
    text = swap()
    write(NAME, text)
    (adds,) = lines_of(text, 'type="rrc"', 'dstoff="1"')
    (sends,) = lines_of(text, 'type="s"', 'srcoff="1"', 'depid="0"')
    status, out, _ = call("verify", NAME, "--why", str(adds), f"{sends}@rank=1")
    assert status == 0 and "A is over before B begins:" in out
    assert f"A: rank 1, block 0, step 1: reduce data[1] from 0 on channel 0 (line {adds})" in out
    assert f"is waited for by rank 1, block 1, step 0: wait tb0[1] (line {sends})" in out
    status, out, _ = call("verify", NAME, "--why", f"{NAME}:{adds}@op=record", f"{sends}@op=wait")
    assert status == 0 and f"A: rank 1, block 0, step 1: record tb0[1] (line {adds})" in out
    status, out, _ = call("verify", NAME, "-p", "inplace=false", "--why", str(adds), str(sends))
    assert status == 0 and "swap with ranks 2, inplace false" in out and "output[1]" in out
    status, _, err = call("verify", NAME, "--why", "1", str(sends))
    assert status == 2 and "no operation of swap comes from there" in err


def test_of_a_fused_step_the_half_that_is_meant_is_said(write, call):
    text = ring()
    write("ring.xml", text)
    fused = lines_of(text, 'type="rcs"')
    status, _, err = call("verify", "ring.xml", "--why", str(fused[0]), str(fused[1]))
    assert status == 2 and f"{fused[0]}: 2 operations are called that" in err
    status, out, _ = call("verify", "ring.xml", "--why", f"{fused[0]}@op=send", f"{fused[1]}@op=recv")
    assert status in (0, 1) and "A: rank 0, block 0, step 2: " in out


# ---- the other commands ----------------------------------------------------------------------------------------------

TAKEN = ("note[SL606] chosen-values: `inplace` was not given, so inplace = true is taken; swap.xml is for inplace = "
         "false, too")


@pytest.mark.parametrize("command", [["run", "--check"], ["show"], ["compile", "--target", "json"],
                                     ["compile", "--target", "sched"]])
def test_one_use_is_taken_and_a_note_says_which(command, write, call):
    write(NAME, swap())
    status, out, err = call(*command, NAME)
    assert status == 0 and err.startswith(TAKEN) and err.count("note[") == 1 and out
    for given in ("true", "false"):
        assert call(*command, NAME, "-p", f"inplace={given}")[2] == ""
    assert call(*command, write("one.xml", swap(outofplace=0)))[2] == ""


@pytest.mark.parametrize("inplace", ["true", "false"])
@pytest.mark.parametrize("op", ["sum", "max"])
def test_run(inplace, op, write, call):
    status, out, _ = call("run", write(NAME, swap()), "-p", f"inplace={inplace}", "--op", op, "--check", "--json",
                          "--elements", "6")
    document = json.loads(out)
    assert status == 0 and document["check"]["ok"] and document["check"]["compared"] == 12
    assert document["params"] == {"inplace": inplace == "true"} and document["op"] == op


def test_run_proves_first_by_what_the_protocol_has(write, call):
    status, _, err = call("run", write(NAME, swap(told=0)), "-p", "inplace=true")
    assert status == 1 and "error[SL306]" in err and "hasdep" in err
    assert call("run", write("deep.xml", ring(extra=1)), "--check")[0] == 0
    status, _, err = call("run", write("deep.xml", ring(extra=1, proto="Simple")), "--check")
    assert status == 1 and "error[SL305]" in err
    assert call("run", "deep.xml", "--check", "--sends", "buffered=3")[0] == 0


def test_show_draws_it_and_its_findings(write, call):
    text = swap(last=1)
    write(NAME, text)
    status, out, _ = call("show", NAME, "-p", "inplace=false")
    assert status == 0 and out.startswith("FAULTY  SL504") and "swap: allreduce on 2 ranks, 4 steps" in out
    status, out, _ = call("show", NAME, "-p", "inplace=true", "--rank", "1")
    assert status == 0 and "stream tb1" in out and "recv data[1] from 0 on channel 1" in out
    status, out, _ = call("show", NAME, "-p", "inplace=true", "--format", "svg")
    assert status == 0 and "<svg " in out and "SL503" in out
    status, out, _ = call("show", NAME, "-p", "inplace=true", "--format", "html")
    (line,) = lines_of(text, 'type="r"', 'srcoff="0"')
    assert status == 0 and f"swap.xml:{line}:7" in out and '<a href="#step=3">step 3</a>' in out
    assert "\\u003cstep s=" in out, "the lines of the file stand beside"
    assert call("show", write("none.xml", swap(told=0)), "-p", "inplace=true", "--format", "html")[0] == 0


def test_a_table_is_compiled_and_is_the_same(write, call):
    write("ring.xml", ring(extra=1))
    assert call("compile", "ring.xml", "--target", "json", "-o", "ring.json")[0] == 0
    document = json.loads(Path("ring.json").read_text())
    assert document["transport"] == {"name": "LL", "depth": 8} and document["params"] == {"inplace": False}
    status, out, _ = call("verify", "ring.json")
    assert status == 0 and "(LL)" in out.splitlines()[-1] and "3 are enough" in out
    status, out, err = call("diff", "ring.xml", "ring.json", "--same", "operations")
    assert (status, err) == (0, "") and "the same operations" in out
    assert call("compile", "ring.xml", "--target", "sched", "-o", "made.sched")[0] == 0
    status, out, _ = call("verify", "made.sched", "--format", "concise")
    assert status == 1 and "error[SL305]" in out, "the language has no word for a protocol"
    for pair in (("ring.xml", "made.sched"), ("made.sched", "ring.json")):      # diff takes it from the other side
        assert call("diff", *pair, "--same", "operations")[0] == 0
    status, _, err = call("compile", "ring.xml", "--target", "json", "-o", "ring.xml")
    assert status == 2 and "this file is read here" in err


def test_diff_takes_the_size_from_the_file(write, call, shipped):
    write("ring.xml", ring())
    ring_of_ours = str(shipped.parents[1] / "allgather" / "ring.sched")
    status, out, err = call("diff", "ring.xml", ring_of_ours)
    assert (status, err) == (0, "") and "ranks 3" in out
    write(NAME, swap())
    status, out, err = call("diff", NAME, NAME, "-a", "inplace=true", "-b", "inplace=false")
    assert err == "" and "A  swap.xml::swap  ranks 2, inplace true" in out and "inplace false" in out
    status, out, err = call("diff", NAME, str(shipped))
    assert status == 0 and err.startswith(TAKEN)
    status, _, err = call("diff", NAME, str(shipped), "--ranks", "4")
    assert status == 2 and "for 2 ranks, not 4" in err


def test_from_python(write):
    write("swap.xml.gz", swap())
    both = schedlang.load("swap.xml.gz")
    assert (both.name, both.ranks, dict(both.params)) == ("swap", 2, {"inplace": True})
    apart = schedlang.load("swap.xml.gz", ranks=2, inplace=False)
    assert dict(apart.params) == {"inplace": False} and apart.verify().ok and apart.verify().model.startswith("LL: ")
    for schedule in (both, apart):
        outputs = schedule([np.arange(6.0), np.ones(6)])
        assert all((out == np.arange(6.0) + 1).all() for out in outputs)
    with pytest.raises(SchedError, match="not 3"):
        schedlang.load("swap.xml.gz", ranks=3)
    (found,) = schedlang.load(write(NAME, swap(told=0))).verify().diagnostics
    assert found.help == 'set hasdep="1" on step 1 of block 0'
    with pytest.raises(SchedError, match="hasdep"):
        schedlang.load(NAME)([np.ones(2), np.ones(2)])
    assert both.diff(apart).at_least("bits")


def test_every_operation_of_the_format_goes_through_every_command(write, call):
    """All-reduce on three ranks: sums go down the line by rrs and rrcs, results back up by rcs."""
    dep = {"dep": (0, 0)}
    text = algo([
        gpu(0, [block(0, send=1, steps=[step("s", ("i", 0))]),
                block(1, recv=1, chan=1, steps=[nop((0, 0)), step("r", dst=("s", 0), **dep),
                                                step("cpy", ("s", 0), ("o", 0))])], s=1),
        gpu(1, [block(0, send=2, recv=0, steps=[step("rrs", ("i", 0), ("i", 0), hasdep=1)]),
                block(1, send=0, recv=2, chan=1, steps=[step("rcs", dst=("o", 0), **dep)])]),
        gpu(2, [block(0, recv=1, steps=[step("r", dst=("s", 0)), step("re", ("i", 0), ("s", 0), hasdep=1)]),
                block(1, send=1, chan=1, steps=[step("cpy", ("s", 0), ("o", 0), dep=(0, 1)), step("s", ("o", 0))])],
            s=1)], chunks=1, inplace=1, outofplace=1).replace('hasdep="0"/>', 'hasdep="1"/>', 1)
    write("all.xml", text)
    status, out, _ = call("verify", "all.xml")
    assert status == 0, out
    for command in (["run", "--check"], ["show"], ["show", "--format", "html"], ["compile", "--target", "json"],
                    ["compile", "--target", "sched"], ["diff", "all.xml"]):
        assert call(*command, "all.xml")[0] == 0, command


@pytest.mark.parametrize("name", ["a2a2ll", "ag_hier_4_LL", "alltoall-8n-0-9kb"])
def test_real_files_go_through_every_command(name, call):
    path = CASES / f"{name}.xml.gz"
    if not path.exists():
        pytest.skip("there is no folder ../shared/cases with real files beside the project")
    file = str(path)
    status, out, _ = call("run", file, "--check", "--elements", "8192", "--json")
    assert status == 0 and json.loads(out)["check"]["ok"]
    assert call("show", file)[0] == call("show", file, "--rank", "3")[0] == 0
    for target in ("json", "sched"):
        assert call("compile", file, "--target", target, "-o", f"made.{target}")[0] == 0
        assert call("diff", file, f"made.{target}", "--same", "operations")[0] == 0


# ---- start-up --------------------------------------------------------------------------------------------------------


def test_verify_of_xml_needs_no_parser(write):
    """Nor anything else that is not needed for it: that is most of the time that a small file takes."""
    write(NAME, swap())
    code = ("import sys; from schedlang.cli.main import main; status = main(['verify', 'swap.xml'])\n"
            "print([m for m in sys.modules if m.split('.')[0] in ('lark', 'rich', 'ml_dtypes', 'pygments', 'torch') or "
            "m.startswith(('schedlang.syntax', 'schedlang.expand', 'schedlang.interpret', 'schedlang.running', "
            "'schedlang.backends', 'schedlang.lift', 'schedlang.msccl.runtimes', 'schedlang.diff'))], status)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[] 0"
