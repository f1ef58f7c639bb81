"""`schedlang verify`, `show` and `compile` on schedules: many sizes, many files, and what orders two operations."""

import json
from pathlib import Path

import numpy as np
import pytest

import schedlang
from schedlang.cli import main
from schedlang.diagnostics import SchedError, Severity
from schedlang.loading import load_table

GOOD = """\
schedule good(ranks, k=3):
    require ranks != 3, "not for three"
    collective broadcast(0)
    chunks k
    verify ranks in 1..5, k in [1, 2]
    for r in 1..ranks:
        for i in 0..k:
            send data[i] from 0 to r
"""

FAULTY = """\
schedule short(ranks):
    collective broadcast(0)
    verify ranks in 1..6
    for r in 1..min(ranks, 3):
        send data[0] from 0 to r
"""

RACE = """\
schedule race(ranks):
    collective broadcast(0)
    buffer tmp[1]
    for r in 1..ranks:
        send data[0] from 0 to r
    stream a: send data[0] from 0 to 1 into tmp[0]
    stream b: send data[0] from 0 to 1 into tmp[0]
"""

CIRCLE = """\
schedule circle(ranks):
    collective custom
    buffer input[1], output[1]
    for r in 0..ranks:
        ensure output[0] on (r + 1) % ranks == input[0] on r
        on r:
            send input[0] to (r + 1) % ranks
            recv output[0] from (r - 1) % ranks
"""

ONE_SHOT = """\
schedule one_shot(ranks):
    collective allreduce(sum)
    step:
        for r in 0..ranks:
            for p in 0..ranks:
                reduce data[0] from r to p if p != r
"""


@pytest.fixture
def call(call, monkeypatch, tmp_path):
    """Runs the command line in an empty folder: (exit status, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    return call


def write(name, text):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return name


def report(out):
    document = json.loads(out)
    assert document["format"] == "schedlang-verify" and document["version"] == 1
    return document


def test_the_verify_line_says_what_is_tried_and_a_requirement_skips(call):
    status, out, err = call("verify", write("good.sched", GOOD))
    assert status == 0 and err == ""
    assert "ok  good.sched::good  ranks 1, 2, 4, k 1, 2 (6 cases)\n" in out
    assert "    skipped ranks 3, k 1, 2: not for three\n" in out
    assert "with ranks 4, k 2:" in out and "Deadlock is judged without buffering" in out


def test_given_values_replace_the_verify_line(call):
    status, out, _ = call("verify", write("good.sched", GOOD), "--ranks", "6", "-p", "k=1..4")
    assert status == 0 and "ranks 6, k 1 to 3 (3 cases)" in out


@pytest.mark.parametrize("ranks", ["3", "3,3"])
def test_a_requirement_that_leaves_nothing_is_unusable_input(call, ranks):
    status, out, _ = call("verify", write("good.sched", GOOD), "--ranks", ranks)
    assert status == 2 and "error[SL207]" in out and "UNUSABLE" in out and "skipped" not in out


def test_the_smallest_failing_size_is_shown_and_the_others_counted(call):
    status, out, _ = call("verify", write("short.sched", FAULTY))
    assert status == 1
    assert out.count("error[SL504]") == 1 and "data[0] on rank 3" in out
    assert "FAULTY  short.sched::short  ranks 4, and 1 more of 5 cases: 1 error" in out


def test_a_fault_of_some_sizes_does_not_hide_another_fault_of_others(call):
    custom = ("schedule hide(ranks):\n    collective custom\n    verify ranks in 1..8\n"
              "    buffer input[1], output[ranks if ranks != 4 else -1]\n    ensure output[0] on 0 == input[0] on 0\n"
              "    copy input[0] into output[ranks] on 0 if ranks == 5 or ranks == 6\n"
              "    copy input[0] into output[0] on 0 if ranks != 3\n")
    status, out, _ = call("verify", write("hide.sched", custom))
    assert status == 2
    assert [line for line in out.splitlines() if "hide.sched::hide" in line] == [
        "FAULTY  hide.sched::hide  ranks 3, alone of 7 cases with SL504: 1 error",
        "FAULTY  hide.sched::hide  ranks 5, and 1 more of 7 cases with SL221: 1 error",
        "UNUSABLE  hide.sched::hide  ranks 4, alone of 7 cases: 1 error",
    ]
    assert [out.count(f"error[{code}]") for code in ("SL504", "SL221", "SL205")] == [1, 1, 1]


def test_three_kinds_of_failure_are_shown_and_the_others_named(call):
    custom = ("schedule hide(ranks):\n    collective custom\n    verify ranks in 1..7\n"
              "    buffer input[1], output[1]\n    ensure output[0] on 0 == input[0] on 0\n"
              "    wait a on 0 if ranks == 2\n    send input[1] from 0 to 1 if ranks == 3\n"
              "    send input[0] from 0 to 0 if ranks > 3 and ranks < 6\n"
              "    copy input[0] into output[0] on 0 if ranks != 1\n"
              "    let x = 1 // (ranks - 6)\n")
    _, out, _ = call("verify", write("hide.sched", custom))
    assert out.count("hide.sched::hide") == 3
    assert "    SL224 besides in 2 cases, the first with ranks 4\n" in out


def test_a_fault_in_another_line_is_named_though_its_code_is_known(call):
    text = ("schedule two(ranks):\n    collective broadcast(0)\n    verify ranks in 2..9\n"
            "    for r in 1..ranks:\n        send data[0] from 0 to r\n"
            "    send data[0] from 0 to 0 if ranks % 2 == 1\n    send data[0] from 1 to 1 if ranks % 2 == 0\n")
    status, out, _ = call("verify", write("two.sched", text))
    assert status == 1 and out.count("error[SL224]") == 1 and "two.sched:7:28: error[SL224]" in out
    assert ("FAULTY  two.sched::two  ranks 2, and 6 more of 7 cases: 1 error\n"
            "    SL224 also in line 6, first with ranks 3\n") in out
    assert "    SL224 also in line 6, first with ranks 3\n" in call("verify", "two.sched", "--format", "concise")[1]
    assert "also" not in call("verify", "two.sched", "--ranks", "2,4,6")[1]
    write("lib.sched", "".join(text.replace("two", "lib").splitlines(True)[:6]))
    write("five.sched", 'import "lib.sched"\nschedule five(ranks):\n    collective broadcast(0)\n'
          "    use lib() on 0..ranks\n    send data[0] from 1 to 1 if ranks % 2 == 0\n")
    out = call("verify", "five.sched", "--ranks", "2..7")[1]
    assert "    SL224 also in line 6 of lib.sched, first with ranks 3\n" in out and "    and in" not in out
    many = text + "".join(f"    send data[0] from {n} to {n} if ranks == {n + 1}\n" for n in range(2, 8))
    out = call("verify", write("many.sched", many))[1]
    assert out.count("SL224 also in line") == 3 and "    and in 4 more lines\n" in out


def test_concise_is_a_line_a_finding(call):
    status, out, _ = call("verify", write("short.sched", FAULTY), "--format", "concise")
    assert status == 1 and len(out.splitlines()) == 2 and "error[SL504]" in out.splitlines()[0]


def test_json_tells_every_case(call):
    write("a/good.sched", GOOD)
    write("a/b/short.sched", FAULTY)
    write("a/broken.sched", "schedule broken(:\n")
    status, out, _ = call("verify", "a", "--format", "json")
    document = report(out)
    assert status == 2 and document["ok"] is False and document["sends"] == "default"
    assert [(s["schedule"], s["status"]) for s in document["schedules"]] == [("short", "faulty"), ("good", "ok")]
    short, good = document["schedules"]
    assert [c["status"] for c in short["cases"]] == ["ok", "ok", "ok", "faulty", "faulty"]
    assert [c["status"] for c in good["cases"]].count("skipped") == 2
    assert good["cases"][0]["values"] == {"ranks": 1, "k": 1} and good["cases"][-1]["facts"]["messages"] == 6
    assert {p["name"] for p in good["cases"][0]["proofs"]} >= {"matching", "deadlock", "races", "postcondition"}
    assert all(p["state"] in ("proved", "failed", "not judged") for c in short["cases"] for p in c["proofs"])
    finding = short["cases"][3]["diagnostics"][0]
    assert (finding["code"], finding["file"], finding["severity"]) == ("SL504", "a/b/short.sched", "error")
    assert [d["code"] for d in document["diagnostics"]] == ["SL101"]
    assert document["diagnostics"][0]["file"] == "a/broken.sched"


def test_a_folder_goes_on_after_a_broken_file(call):
    write("a/broken.sched", "schedule broken(:\n")
    write("a/good.sched", GOOD)
    status, out, _ = call("verify", "a")
    assert status == 2 and "error[SL101]" in out and "ok  a/good.sched::good" in out


def test_one_schedule_of_several(call):
    write("both.sched", GOOD + "\n" + FAULTY)
    assert call("verify", "both.sched::good")[0] == 0
    status, out, _ = call("verify", "both.sched")
    assert status == 1 and "1 of 2 schedules are right" in out
    assert "has no schedule `none`" in call("verify", "both.sched::none")[1]
    assert "SL212" in call("show", "both.sched", "--ranks", "2")[2]


def test_a_file_without_schedules(call):
    write("a/only.sched", "fn f(x) = x\n")
    write("a/good.sched", GOOD)
    status, out, _ = call("verify", "a/only.sched")
    assert status == 2 and "SL212" in out
    assert call("verify", "a")[0] == 0


def test_a_folder_without_schedules(call):
    write("a/only.sched", "fn f(x) = x\n")
    write("a/empty.sched", "")
    status, out, _ = call("verify", "a")
    assert status == 2 and out.startswith("error[SL212]") and "there is no schedule in a" in out
    status, out, _ = call("verify", "a", "--format", "json")
    assert status == 2 and [d["code"] for d in report(out)["diagnostics"]] == ["SL212"]
    for command in ("verify", "show", "run"):
        status, out, err = call(command, "a/empty.sched")
        assert status == 2 and "there is no schedule in a/empty.sched" in out + err


def test_what_several_files_import_is_complained_of_once(call):
    write("a/lib.sched", "schedule lib(:\n")
    for name in "bcd":
        write(f"a/{name}.sched", f'import "lib.sched"\nschedule {name}(ranks):\n    collective barrier\n')
    write("a/good.sched", GOOD)
    status, out, _ = call("verify", "a")
    assert status == 2 and out.count("a/lib.sched:1:13: error[SL101]") == 1
    assert "1 of 1 schedules are right; 4 files could not be used\n" in out
    assert len(report(call("verify", "a", "--format", "json")[1])["diagnostics"]) == 1


def test_a_schedule_that_lacks_a_value_counts_as_one(call):
    write("three.sched", GOOD + "\n" + GOOD.replace("good", "other") + "\nschedule lacks(ranks, k):\n"
          "    collective broadcast(0)\n")
    status, out, _ = call("verify", "three.sched")
    assert status == 2 and "error[SL206]" in out and "UNUSABLE  three.sched::lacks: 1 error\n" in out
    assert "2 of 3 schedules are right\n" in out
    (lacks,) = [s for s in report(call("verify", "three.sched", "--format", "json")[1])["schedules"] if not s["ok"]]
    assert (lacks["schedule"], lacks["status"], lacks["cases"][0]["values"]) == ("lacks", "unusable", {})
    assert [d["code"] for d in lacks["cases"][0]["diagnostics"]] == ["SL206"]


SOME = """\
schedule some(ranks, root):
    require root < ranks, "no such root"
    require ranks != 4, "not for four"
    collective broadcast(root)
    verify ranks in 1..6, root in 0..5
    for r in 0..ranks:
        send data[0] from root to r if r != root
"""


def test_what_is_skipped_does_not_contradict_what_is_right(call):
    status, out, _ = call("verify", write("some.sched", SOME))
    assert status == 0 and "ok  some.sched::some  ranks 1, 2, 3, 5, root 0 to 4 (11 cases)\n" in out
    assert "    skipped 10 cases, the first with ranks 1, root 1: no such root\n" in out
    assert "    skipped ranks 4, root 0 to 3: not for four\n" in out


def test_a_root_that_is_no_rank_is_unusable_input_and_skipped_among_others(call):
    write("some.sched", SOME.replace('    require root < ranks, "no such root"\n', ""))
    for command in ("verify", "run", "show"):
        status, out, err = call(command, "some.sched", "--ranks", "3", "-p", "root=9")
        assert status == 2 and "root 9 is not among the ranks" in out + err and "the ranks are 0 to 2" in out + err
    status, out, _ = call("verify", "some.sched", "--ranks", "2..6", "-p", "root=2")
    assert status == 0 and "ranks 3, 5, root 2 (2 cases)\n    skipped ranks 2, root 2: root 2 is not among" in out


def test_skipped_cases_are_not_counted_among_those_tried(call):
    write("some.sched", SOME.replace("r != root", "r != root and r < 2"))
    status, out, _ = call("verify", "some.sched")
    assert status == 1 and "FAULTY  some.sched::some  ranks 3, root 0, and 6 more of 11 cases: 1 error\n" in out


def test_faulty_and_unusable_cases_each_show_their_cause(call):
    write("some.sched", SOME.replace("!= root", "!= root and r < 2") + "    chunks 1 if ranks != 5 else 0\n")
    status, out, _ = call("verify", "some.sched", "--ranks", "2..6", "-p", "root=0")
    assert status == 2
    at = [out.index(text) for text in (
        "error[SL504]", "FAULTY  some.sched::some  ranks 3, root 0, alone of 3 cases: 1 error\n",
        "error[SL205]", "UNUSABLE  some.sched::some  ranks 5, root 0, alone of 3 cases: 1 error\n",
        "    skipped ranks 4, root 0: not for four\n")]
    assert at == sorted(at)


def test_files_named_twice_are_verified_once(call):
    write("a/good.sched", GOOD)
    assert call("verify", "a/good.sched", "a", "a/good.sched")[1].count("ok  a/good.sched") == 1


def test_agreement_can_be_required(call):
    write("one_shot.sched", ONE_SHOT)
    status, out, _ = call("verify", "one_shot.sched", "--ranks", "3")
    assert status == 0 and "ranks may get different bits" in out
    status, out, _ = call("verify", "one_shot.sched", "--ranks", "3", "--require-agreement")
    assert status == 1 and "error[SL505]" in out


def test_the_model_of_sends_is_chosen_and_named(call):
    write("shift.sched", "schedule shift(ranks):\n    collective custom\n    buffer input[1], output[1]\n"
          "    for r in 0..ranks:\n        ensure output[0] on (r + 1) % ranks == input[0] on r\n        on r:\n"
          "            step: send input[0] to (r + 1) % ranks\n            step: recv output[0] from (r - 1) % ranks\n")
    status, out, _ = call("verify", "shift.sched", "--ranks", "4")
    assert status == 1 and "error[SL305]" in out
    status, out, _ = call("verify", "shift.sched", "--ranks", "4", "--sends", "buffered=1")
    assert status == 0 and "All judged with --sends buffered=1." in out
    status, out, _ = call("verify", "shift.sched", "shift.sched::shift", "--ranks", "0")
    assert status == 2 and "judged" not in out


def test_where_nothing_was_judged_no_model_is_named(call):
    write("good.sched", GOOD)
    for text, ranks, wanted in ((GOOD.replace("chunks k", "chunks 0"), "2", 2), (GOOD, "3", 2),
                                (GOOD.replace("from 0 to r", "from 0 to 0"), "2", 1)):
        status, out, _ = call("verify", write("none.sched", text), "--ranks", ranks)
        assert status == wanted and "judged" not in out, out
        assert "Deadlock is judged" in call("verify", "none.sched", "good.sched", "--ranks", f"{ranks},4")[1]


def test_operator_and_limit(call):
    write("one_shot.sched", ONE_SHOT)
    assert call("verify", "one_shot.sched", "--ranks", "3", "--op", "max")[0] == 0
    assert call("verify", "one_shot.sched", "--ranks", "3", "--op", "mox")[0] == 2
    status, out, _ = call("verify", "one_shot.sched", "--ranks", "9", "--max-ops", "50")
    assert status == 2 and "error[SL208]" in out


def test_an_operator_is_for_those_of_several_schedules_that_reduce(call):
    write("a/one_shot.sched", ONE_SHOT)
    write("a/both.sched", GOOD + "\n" + ONE_SHOT.replace("one_shot", "other"))
    write("a/circle.sched", CIRCLE)
    assert call("compile", "a/both.sched::good", "--ranks", "4", "--target", "json", "-o", "a/t.json")[0] == 0
    said = "    nothing is reduced, so --op max changes nothing here\n"
    status, out, _ = call("verify", "a", "--ranks", "4", "--op", "max")
    assert status == 1 and "SL206" not in out and "SL806" not in out
    assert out.count(said) == 3 and all(f"{name}  ranks 4" in out for name in ("both.sched::good", "t.json::good"))
    assert out.index("circle.sched::circle") < out.index(said, out.index("circle.sched::circle"))
    for paths in (["a/both.sched"], ["a/both.sched::good", "a/one_shot.sched"], ["a/t.json", "a/one_shot.sched"]):
        status, out, _ = call("verify", *paths, "--ranks", "4", "--op", "max")
        assert status == 0 and out.count(said) == 1, paths
    for path, code in (("a/both.sched::good", "SL206"), ("a/circle.sched", "SL206"), ("a/t.json", "SL806")):
        status, out, _ = call("verify", path, "--ranks", "4", "--op", "max")
        assert status == 2 and code in out, path
    status, out, _ = call("verify", "a", "--ranks", "4", "--op", "mox")
    assert status == 2 and out.count("there is no reduction operator") == 5
    write("c/good.sched", GOOD)
    assert call("verify", "c", "--ranks", "4", "--op", "max")[0] == 0


def test_the_operator_of_a_custom_collective(call):
    text = ("schedule {0}(ranks):\n    collective custom{1}\n    buffer input[1], output[1]\n"
            "    ensure output[0] on 0 == {2}\n    copy input[0] into output[0] on 0\n")
    some = ("plain", "", "input[0] on 0"), ("op", "(sum)", "input[0] on 0"), ("many", "", "sum(input[0] on 0..1)")
    write("custom.sched", "\n".join(text.format(*one) for one in some))
    status, out, _ = call("verify", "custom.sched", "--ranks", "2", "--op", "max")
    assert status == 0 and out.count("nothing is reduced") == 1
    assert out.index("custom.sched::plain") < out.index("nothing is reduced") < out.index("custom.sched::op")


COUNTS = "schedule v(ranks, counts):\n    collective alltoallv(counts)\n    step:\n        for r in 0..ranks:\n" \
         "            copy input[r] into output[r] on r\n            for p in 0..ranks:\n" \
         "                send input[p] from r to p into output[r] if p != r\n"


def test_counts_are_made_up_or_given(call):
    write("v.sched", COUNTS)
    status, out, _ = call("verify", "v.sched", "--ranks", "2,3")
    assert status == 0 and "counts made up, uneven and with zeros" in out
    write("c.json", "[[1, 2], [0, 3]]")
    status, out, _ = call("verify", "v.sched", "--ranks", "2", "-p", "counts=@c.json")
    assert status == 0 and "made up" not in out and "counts (2 x 2)" in out
    status, _, err = call("show", "v.sched", "--ranks", "3")
    assert status == 0 and "`counts` was not given" in err
    assert call("show", "v.sched", "--ranks", "3", "-p", "counts=@c.json")[0] == 2
    write("wide.csv", "1,2,3\n4,5,6\n")
    for counts, form in (("@wide.csv", "2 lists of 3"), ("[1, 2]", "2 integers"),
                         ("[[1], [2, 3]]", "lists of different lengths"), ("[5]", "1 integer"),
                         ("[true]", "values of another kind")):
        status, _, err = call("run", "v.sched", "--ranks", "2", "-p", f"counts={counts}")
        assert status == 2 and f"`counts` must be 2 lists of 2 integers, not {form}" in err
    status, _, err = call("run", "v.sched", "--ranks", "3", "-p", "counts=5")
    assert status == 2 and "counts must be 3 lists of 3 integers" in err and "-p counts=@FILE reads them" in err


# ---- one table -----------------------------------------------------------------------------------------------------


def finding(call):
    with pytest.raises(SchedError) as caught:
        call()
    (found,) = [d for d in caught.value.diagnostics if d.severity is Severity.ERROR]
    return f"{found.code} {found.message} | {found.help}"


LISTED = """\
schedule listed(ranks, k=3, root):
    collective broadcast(root)
    chunks k
    require root > 0, "not from rank 0"
    verify ranks in 2..5, k in [1, 2], root in 0..ranks
    for r in 0..ranks:
        send data[0:k] from root to r if r != root
"""


def test_one_size_takes_defaults_then_the_verify_line(tmp_path):
    path = tmp_path / "listed.sched"
    path.write_text(LISTED)
    table, notes = load_table(str(path), ranks=7)
    assert (table.ranks, table.chunks, table.params["root"]) == (7, 3, 1)
    assert [(str(d.severity), d.message) for d in notes] == [
        ("note", "not given, so taken from the `verify` line: root = 1")]
    table, notes = load_table(str(path), ranks=7, params={"root": 2, "k": 5})
    assert (table.chunks, table.params["root"], notes) == (5, 2, [])
    assert "ranks=N" in finding(lambda: load_table(str(path)))
    assert finding(lambda: load_table(str(path), ranks=1)).startswith("SL207 not from rank 0")
    assert "given twice" in finding(lambda: load_table(str(path), ranks=3, params={"ranks": 4}))
    path.write_text(LISTED.replace("ranks, k", "ranks=4, k"))
    assert load_table(str(path))[0].ranks == 4
    path.write_text(LISTED.replace("    verify", "    # verify"))
    assert "SL206 schedule `listed` needs a value for its parameter `root` | give it with -p root=VALUE" in finding(
        lambda: load_table(str(path), ranks=3))


COMPUTED = """\
schedule computed(nodes, gpus=2, k=7):
    ranks nodes * gpus
    require nodes != 1
    collective broadcast(0)
    chunks k
    verify gpus in [1, 3], nodes in 0..9, k in [1, 2]
    for r in 1..ranks:
        send data[0:k] from 0 to r
"""


def test_a_computed_size_is_looked_for_with_the_defaults_first(tmp_path):
    path = tmp_path / "computed.sched"
    path.write_text(COMPUTED)

    def values(ranks, **params):
        return dict(load_table(str(path), ranks=ranks, params=params)[0].params)

    assert values(8) == {"nodes": 4, "gpus": 2, "k": 7}
    assert values(2) == {"nodes": 2, "gpus": 1, "k": 7}         # one node of 2 is excluded
    assert values(9) == {"nodes": 3, "gpus": 3, "k": 7}
    assert values(20, nodes=5, gpus=4) == values(None, nodes=5, gpus=4) == {"nodes": 5, "gpus": 4, "k": 7}
    assert values(10, nodes=10) == {"nodes": 10, "gpus": 1, "k": 7}
    assert "no values of `computed` make a world of 11 ranks" in finding(lambda: values(11))
    assert "no values of `computed` make a world of 11 ranks" in finding(lambda: values(11, nodes=3, gpus=3))
    path.write_text(COMPUTED.replace("nodes * gpus", "nodes // (gpus - gpus)"))
    assert finding(lambda: values(8)).startswith("SL223")
    path.write_text(COMPUTED.replace("0..9", "3..3"))
    assert "leaves no values to try" in finding(lambda: values(8))


def test_counts_are_made_up_for_pictures_only(tmp_path):
    path = tmp_path / "v.sched"
    path.write_text(COUNTS)
    assert "counts" in finding(lambda: load_table(str(path), ranks=2))
    assert load_table(str(path), ranks=2, make_up_counts=True)[0].collective.counts.shape == (2, 2)
    path.write_text(COUNTS.replace("(ranks, counts):", "(nodes, counts):\n    ranks nodes * 2"))
    for given in ({"ranks": 4, "params": {"nodes": 2}}, {"params": {"nodes": 2}}):
        assert load_table(str(path), make_up_counts=True, **given)[0].collective.counts.shape == (4, 4)


@pytest.mark.parametrize("head", ["v(ranks, counts):", "v(ranks, counts):\n    verify ranks in 3..6",
                                  "v(n, counts):\n    ranks 2 * n\n    verify n in 1..4"])
def test_given_counts_say_how_many_ranks_there_are(call, head):
    write("v.sched", COUNTS.replace("v(ranks, counts):", head))
    write("c.csv", "1,2,0,1\n0,3,1,1\n2,2,2,2\n0,0,0,0\n")
    status, out, _ = call("verify", "v.sched", "-p", "counts=@c.csv")
    assert status == 0 and "ranks 4" in out and "(4 x 4)" in out and "cases" not in out
    assert call("run", "v.sched", "-p", "counts=@c.csv", "--check")[0] == 0
    given = {"n": 2} if "(n," in head else {}
    assert schedlang.load("v.sched", counts=np.ones((4, 4), int), **given).ranks == 4
    assert call("verify", "v.sched", "-p", "counts=@c.csv", "--ranks", "2")[0] == 2


def test_a_world_size_that_is_a_number_is_called_that(call):
    text = "schedule three(k=1):\n    let n = 3\n    ranks n\n    collective barrier\n"
    for line in (text, text.replace("    let n = 3\n", "").replace("ranks n", "ranks 1 + 2")):
        write("three.sched", line)
        for command in ("verify", "run"):
            status, out, err = call(command, "three.sched", "--ranks", "4")
            said = out + err
            assert status == 2 and "`three` is for 3 ranks, as its `ranks " in said and "not for 4" in said
            assert "leave out --ranks" in said and "computed" not in said


def test_every_command_takes_values_by_one_rule(call):
    write("listed.sched", LISTED)
    for command in (["run"], ["show"], ["compile", "--target", "json"]):
        status, _, err = call(*command, "listed.sched", "--ranks", "3")
        assert status == 0 and "taken from the `verify` line: root = 1" in err, command
        status, _, err = call(*command, "listed.sched")
        assert status == 2 and "needs a number of ranks" in err and "--ranks N" in err, command
    schedule = schedlang.load("listed.sched", ranks=np.int64(3))
    assert (schedule.ranks, schedule.params["k"], schedule.params["root"]) == (3, 3, 1)
    for ranks in ([2, 3], "3", 3.0, True):
        assert finding(lambda ranks=ranks: schedlang.load("listed.sched", ranks=ranks)).startswith("SL206 ranks is ")


def test_a_verify_line_without_values_proves_nothing(call):
    status, out, _ = call("verify", write("listed.sched", LISTED.replace("2..5", "5..5")))
    assert status == 2 and "leaves no values to try" in out
    assert call("verify", "listed.sched", "--ranks", "3")[0] == 0


def test_a_table_is_what_it_is(call):
    write("listed.sched", LISTED)
    assert call("compile", "listed.sched", "--ranks", "4", "--target", "json", "-o", "t.json")[0] == 0
    same, other = ["-p", "k=3", "-p", "root=1", "--ranks", "4"], [["-p", "k=2"], ["--ranks", "3"], ["-p", "x=1"]]
    for command in (["verify"], ["run"], ["show"], ["compile", "--target", "json"]):
        assert call(*command, "t.json", *same)[0] == 0, command
        for options in other:
            status, out, err = call(*command, "t.json", *options)
            assert status == 2 and "error[SL206]" in out + err, (command, options)
    assert call("verify", "t.json", "--ranks", "2..5", "-p", "k=1..4")[0] == 0
    assert schedlang.load("t.json", ranks=4, k=3).ranks == 4
    assert "with k = 3, not 2" in finding(lambda: schedlang.load("t.json", k=2))


def test_show_draws_and_compile_writes(call):
    write("good.sched", GOOD)
    status, out, _ = call("show", "good.sched", "--ranks", "2", "-p", "k=1", "--steps", "0")
    assert status == 0 and "at the start" in out and "0 -> 1: data[0] =" in out
    status, out, _ = call("show", "good.sched", "--ranks", "2", "--rank", "1")
    assert status == 0 and out.count("recv data[") == 3
    assert call("show", "good.sched", "--ranks", "2", "--rank", "2")[0] == 2
    assert call("show", "good.sched", "--ranks", "2..4")[0] == 2
    status, out, _ = call("compile", "good.sched", "--ranks", "2", "--target", "json", "-o", "t.json")
    assert (status, out) == (0, "") and call("verify", "t.json")[0] == 0
    assert call("verify", "t.json", "--ranks", "3")[0] == 2
    assert call("compile", "good.sched", "--ranks", "2", "--target", "json", "-o", "no/t.json")[0] == 2


@pytest.mark.parametrize(("text", "code", "word"), [
    (RACE, "SL401 race", "nothing orders two accesses to tmp[0] on rank 1"),
    (CIRCLE, "SL305 deadlock", "wait for each other in a circle"),
    (FAULTY, "SL504 missing-result", "data[0] on rank 3"),
])
def test_a_picture_of_a_faulty_schedule_says_so_on_top(call, text, code, word, monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    write("bad.sched", text)
    name = text.split("(")[0].removeprefix("schedule ")
    for options, how in (([], "Drawn with unlimited buffering"), (["--rank", "1"], "says more.")):
        status, out, _ = call("show", "bad.sched", "--ranks", "4", *options)
        faulty, colon, _ = out.partition(f"\n{name}: ")
        said = " ".join(faulty.split())
        assert status == 0 and colon and said.startswith(f"FAULTY {code}: ") and word in said and how in said
        assert "`schedlang verify`" in said and all(len(line) <= 70 for line in faulty.splitlines())
    assert call("verify", "bad.sched", "--ranks", "4")[0] == 1


def test_a_picture_of_a_right_schedule_has_nothing_on_top(call):
    out = call("show", write("good.sched", GOOD), "--ranks", "2", "-p", "k=1")[1]
    assert out.startswith("good: broadcast on 2 ranks")


@pytest.mark.parametrize(("options", "says"), [
    (["--steps", "100..200"], "--steps 100..200: ring has the steps 0 to 3"),
    (["--steps", "4"], "ring has the steps 0 to 3"),
    (["--steps", "2..2"], "ring has the steps 0 to 3"),
    (["--steps", "9..", "--rank", "1"], "rank 1 has the steps 0 to 3"),
])
def test_steps_that_there_are_not_are_refused(call, shipped, options, says):
    status, out, err = call("show", str(shipped), "--ranks", "3", *options)
    assert (status, out) == (2, "") and says in err
    assert "ring has no steps" in call("show", str(shipped), "--ranks", "1", "--steps", "0")[2]


def test_large_pictures_are_refused(call, shipped):
    status, _, err = call("show", str(shipped), "--ranks", "300")
    assert status == 2 and "too many to draw" in err and "--rank" in err
    assert call("show", str(shipped), "--ranks", "300", "--rank", "299", "--steps", "0..2")[0] == 0


# ---- why -----------------------------------------------------------------------------------------------------------


def test_why_names_the_chain(call, shipped):
    status, out, _ = call("verify", str(shipped), "--ranks", "4", "-p", "channels=1", "--why",
                          "15@s=0,r=0,op=send", "15@s=1,r=1,op=send")
    assert status == 0
    assert out.splitlines()[3:] == [
        "A begins before B begins, but need not be over by then:",
        "    rank 0, step 0: send data[0] to 1 (line 15, c=0, s=0, r=0)",
        "    is received by rank 1, step 0: reduce data[0] from 0 (line 15, c=0, s=0, r=0)",
        "    then, on the same stream, rank 1, step 1: send data[0] to 2 (line 15, c=0, s=1, r=1)"]


@pytest.mark.parametrize(("a", "b", "said"), [
    ("rank=0,step=0,op=send", "rank=0,step=1,op=send", "A is over before B begins"),
    ("rank=0,step=1,op=send", "rank=0,step=0,op=send", "B is over before A begins"),
    ("rank=0,step=0,op=send", "rank=1,step=0,op=recv", "A begins before B is over"),
])
def test_why_in_either_direction(call, shipped, a, b, said):
    status, out, _ = call("verify", str(shipped), "--ranks", "4", "-p", "channels=1", "--why", f"15@{a}", f"15@{b}")
    assert status == 0 and said in out


def test_why_through_events_and_where_nothing_orders(call):
    write("two.sched", "schedule two(ranks):\n    collective broadcast(0)\n    buffer t[2]\n    stream a:\n"
          "        copy data[0] into t[0] on 0\n        record e on 0\n    stream b:\n        wait e on 0\n"
          "        copy t[0] into t[1] on 0\n    stream c:\n        copy data[0] into t[1] on 0\n")
    status, out, _ = call("verify", "two.sched", "--ranks", "1", "--why", "5", "9")
    assert status == 0 and "A is over before B begins" in out and "is waited for by" in out
    status, out, _ = call("verify", "two.sched", "--ranks", "1", "--why", "9", "11")
    assert status == 1 and "Nothing orders them" in out


USES = """\
schedule inner(ranks):
    collective allreduce(sum)
    for r in 1..ranks:
        reduce data[0] from r to 0
    for r in 1..ranks:
        send data[0] from 0 to r

schedule uses(ranks):
    collective allreduce(sum)
    chunks 2
    for g in 0..2:
        use inner() on 0..ranks for data[g : g + 1]
"""


def test_why_of_what_a_use_brings_in(call):
    def why(*names):
        return call("verify", write("uses.sched", USES) + "::uses", "--ranks", "3", "--why", *names)

    status, out, _ = why("12@g=0,r=1,op=send,rank=0", "uses.sched:12@g=1,r=1,op=send,rank=1")
    assert status == 0 and "A: rank 0, step 2: send data[0] to 1 (line 6, r=1; used in line 12, g=0)" in out
    assert "B: rank 1, step 2: send data[1] to 0 (line 4, r=1; used in line 12, g=1)" in out
    assert "12: 16 operations are called that" in why("12", "4")[2]
    assert "12@g=1: 8 operations are called that" in why("12@g=1", "4")[2]
    assert "operations there have no `gg`, but rank, step, stream, op, g, r" in why("12@gg=1", "4")[2]
    assert "no operation there has these values" in why("12@g=7", "4")[2]
    assert "the nearest lines from which some do: 12, 6, 4\n" in why("10", "4")[2]


def test_why_in_one_step(call):
    write("one_shot.sched", ONE_SHOT)
    status, out, _ = call("verify", "one_shot.sched", "--ranks", "2", "--why", "6@rank=0,op=send", "6@rank=0,op=recv")
    assert status == 1 and "one step" in out


@pytest.mark.parametrize("names", [("15@s=0", "15@s=1"), ("15@s=99", "15@s=1"), ("id=0", "id=0"), ("x", "id=0")])
def test_why_needs_two_operations(call, shipped, names):
    status, _, err = call("verify", str(shipped), "--ranks", "4", "-p", "channels=1", "--why", *names)
    assert status == 2 and "SL806" in err


def test_why_looks_for_a_size_that_has_both(call, shipped):
    status, out, _ = call("verify", str(shipped), "--why", "15@c=0,s=3,r=0,op=send", "15@c=0,s=2,r=0,op=send")
    assert status == 0 and out.startswith("ring with ranks 5, channels 1\n")


@pytest.mark.parametrize("form", ["full", "concise"])
def test_names_are_shown_without_control_characters(tmp_path, monkeypatch, capsys, form):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORCE_COLOR", "1")      # without colours, all escape sequences are dropped on the way
    name = "\x1b[5m\t\u202e\n.sched"
    Path(name).write_text(FAULTY.replace("    verify", '    require ranks > 4, "\x1b[5m\u202e"\n    verify'))
    assert main.main(["verify", name, "--format", form]) == 1
    shown = capsys.readouterr().out
    assert not any(c in shown for c in ("\x1b[5m", "\t", "\u202e")) and shown.count("\u241b[5m") > 2
    assert "  \x1b[1m\u241b[5m    \ufffd\u240a.sched::short\x1b[0m  ranks 5: " in shown
    assert "    skipped ranks 1 to 4: \u241b[5m\ufffd\n" in shown
    Path(name).write_text(FAULTY + "\n\n")
    assert [main.main(["fmt", option, name]) for option in ("--check", "--diff")] == [1, 0]
    shown = capsys.readouterr().out
    assert not any(c in shown for c in ("\x1b[5m", "\t", "\u202e")) and shown.count("\u241b[5m") == 3
