"""`schedlang verify --format sarif`, `--format github` and `--output`: what other tools are told."""

import json
import os
import re
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import jsonschema
import pytest

from schedlang.codes import CODES
from schedlang.diagnostics import Note, Severity, error, note, warning
from schedlang.render import github, sarif
from schedlang.render.listed import Listed, listed, relative
from schedlang.report import Case, Report
from schedlang.source import LIBRARY, SHIPPED, Place, Source, Span, on_disk, shipped_name
from tests.sarif_schema import SCHEMA

VALID = jsonschema.Draft202012Validator(SCHEMA)
ROOT = Path(__file__).parents[2]

LOST = """\
schedule lost(ranks):
    collective broadcast(0)
    verify ranks in 1..6
    for r in 1..min(ranks, 3):
        send data[0] from 0 to r
"""

SELF = """\
schedule own(ranks):
    collective broadcast(0)
    step:
        for r in 1..ranks:
            send data[0] from 0 to r
    send data[0] from 0 to 0 if ranks > 2
    send data[0] from 1 to 1
    send data[0] from 0 to 0 if ranks > 2
"""

STAGED = """\
schedule swap(ranks):
    collective custom
    buffer input[1], output[1]
    verify ranks in [2]
    for r in 0..2:
        ensure output[0] on r == input[0] on 1 - r
        copy input[0] into output[0] on r
    step:
        for r in 0..2:
            send output[0] from r to 1 - r
"""


@pytest.fixture
def call(call, monkeypatch, tmp_path):
    """Runs the command line in an empty folder: (exit status, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    return call


@pytest.fixture
def log(call):
    """The one run of a valid SARIF log, and the exit status."""
    def run(*arguments):
        status, out, err = call("verify", *arguments, "--format", "sarif")
        assert err == ""
        document = json.loads(out)
        VALID.validate(document)
        (found,) = document["runs"]
        assert found["invocations"][0]["exitCode"] == status
        rules = found["tool"]["driver"]["rules"]
        assert all(rules[r["ruleIndex"]]["id"] == r["ruleId"] for r in found["results"])
        return status, found

    return run


def write(name, text):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return name


def marks(run):
    return [result["partialFingerprints"][sarif.FINGERPRINT] for result in run["results"]]


def uri(result):
    return result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]


def region(result):
    return result["locations"][0]["physicalLocation"]["region"]


def span(part, text, file="a/x.sched", after=0):
    start = text.index(part, after)
    return Span(Source(file, text), start, start + len(part))


# ---- what is listed ------------------------------------------------------------------------------------------------


def test_each_kind_of_failure_is_told_by_its_smallest_case_and_a_place_once():
    at = [Span(Source("x.sched", LOST), start, start + 3) for start in (0, 5, 9)]
    one, two, three = error("SL504", "a", at[0]), error("SL221", "b", at[1]), error("SL224", "c", at[2])
    report = Report("x.sched", "lost", (
        Case({"ranks": 2}, "ok", (note("SL603", "n", at[0]),)), Case({"ranks": 3}, "faulty", (one,)),
        Case({"ranks": 4}, "faulty", (one,)), Case({"ranks": 5}, "faulty", (two, one)),
        Case({"ranks": 6}, "skipped", (error("SL207", "s"),)), Case({"ranks": 7}, "unusable", (three,))))
    assert [(f.diagnostic.code, f.values["ranks"], f.alike, f.tried) for f in listed([report], (), os.getcwd())] == [
        ("SL504", 3, 2, 5), ("SL221", 5, 1, 5), ("SL224", 7, 1, 5)]


def test_a_line_that_only_larger_cases_complain_of_is_listed_once():
    text = "one\ntwo\n"
    first, second = (error("SL504", word, span(word, text)) for word in ("one", "two"))
    report = Report("x.sched", "x", tuple(Case({"ranks": n}, "faulty", (d,)) for n, d in enumerate(
        (first, second, first, second), 2)))
    assert [(f.diagnostic.message, f.values["ranks"], f.alike) for f in listed([report], (), os.getcwd())] == [
        ("one", 2, 4), ("two", 3, 1)]


def test_places_of_two_files_are_two_places():
    at = [Span(Source(f"{name}.sched", LOST), 0, 3) for name in "ab"]
    report = Report("x.sched", "x", (Case({"ranks": 3}, "faulty", (error("SL504", "a", at[0]),)),
                                     Case({"ranks": 4}, "faulty", (error("SL504", "b", at[1]),
                                                                   error("SL221", "b", at[1])))))
    assert [f.diagnostic.message for f in listed([report], (), os.getcwd())] == ["a", "b", "b"]


def test_what_is_listed_is_sorted():
    at = [Place(file, line, column) for file in ("b", "a") for line in (10, 9) for column in (3, 1)]
    problems = [*(error("SL101", "", here) for here in at), error("SL105", "no place"), error("SL103", "", at[0])]
    found = listed((), problems, os.getcwd())
    keys = [(f.diagnostic.location and (f.diagnostic.location.file, f.diagnostic.location.line,
                                        f.diagnostic.location.column), f.diagnostic.code) for f in found]
    assert keys[0] == (None, "SL105") and keys[1:] == sorted(keys[1:]) and len(keys) == len(at) + 2


def test_paths_from_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to("in")
    root = str(tmp_path)
    assert relative("x.sched", root) == "x.sched" and relative("in/../in/x.sched", root) == "in/x.sched"
    assert relative("link/x.sched", root) == "in/x.sched" and relative(f"{root}/link/x.sched", root) == "in/x.sched"
    assert relative("..x/y.sched", root) == "..x/y.sched"
    assert relative("../x.sched", root) is None and relative("/x.sched", root) is None


# ---- SARIF ---------------------------------------------------------------------------------------------------------


def test_a_log(call, log):
    write("a/lost.sched", LOST)
    write("a/swap.sched", STAGED)
    status, run = log("a")
    assert status == 1 and run["invocations"] == [
        {"executionSuccessful": True, "exitCode": 1, "exitCodeDescription": "findings"}]
    assert run["properties"] == {"sends": "default"}
    lost, *remarks = run["results"]
    assert (lost["ruleId"], lost["level"], uri(lost)) == ("SL504", "error", "a/lost.sched")
    assert lost["locations"][0]["logicalLocations"] == [{"name": "lost", "kind": "function"}]
    assert lost["properties"]["values"] == {"ranks": 4}
    assert (lost["properties"]["casesAlike"], lost["properties"]["casesTried"]) == (2, 5)
    first, second, *_ = lost["message"]["text"].split("\n")
    assert first.startswith("data[0] on rank 3") and second == "in lost with ranks 4; 1 more of 5 cases fail alike"
    assert {(r["ruleId"], r["level"]) for r in remarks} == {("SL603", "note")}
    levels = {rule["id"]: rule["defaultConfiguration"]["level"] for rule in run["tool"]["driver"]["rules"]}
    assert levels == {"SL504": "error", "SL603": "note"}


def test_a_clean_log(log):
    status, run = log(write("good.sched", LOST), "--ranks", "2")
    assert (status, run["results"], run["tool"]["driver"]["rules"]) == (0, [], [])


def test_all_cases_of_the_tests_make_a_valid_log(call, log, monkeypatch):
    monkeypatch.chdir(ROOT)
    status, run = log("tests/cases", "--ranks", "4", "--max-ops", "20000")
    found = {r["ruleId"] for r in run["results"]}
    assert status == 2 and len(found) > 25 and {"SL101", "SL305", "SL401", "SL501"} <= found
    repeated = Counter((uri(r), mark) for r, mark in zip(run["results"], marks(run)))
    assert set(repeated.values()) == {1}
    for result in run["results"]:
        at, lines = region(result), (ROOT / uri(result)).read_text(encoding="utf-8").split("\n")
        assert at["startColumn"] <= len(lines[at["startLine"] - 1]) + 1
        assert at["endColumn"] <= len(lines[at["endLine"] - 1]) + 1
        assert (at["startLine"], at["startColumn"]) <= (at["endLine"], at["endColumn"])


def objects(value, path=()):
    """All objects of a document, but for bags of properties, which may hold anything."""
    if isinstance(value, dict) and "properties" not in path:
        yield value
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from objects(part, (*path, key))


def test_the_schema_lets_nothing_else_pass(call):
    document = json.loads(call("verify", write("lost.sched", LOST), "none.sched", "--format", "sarif")[1])
    there = list(objects(document))
    assert VALID.is_valid(document) and len(there) > 20
    for one in there:
        one["more"] = 1
        assert not VALID.is_valid(document), one
        del one["more"]
    assert VALID.is_valid(document)


@pytest.mark.parametrize("code", CODES)
def test_every_rule_is_valid(code):
    document = sarif.document([Listed(warning(code, "m", Place("x.sched", 1)))], status=0, root="/", sends="default")
    VALID.validate(document)


def test_notes_become_links_to_places():
    text = "schedule x(ranks):\n    send data[0] from 0 to 1\n"
    found = Listed(error("SL305", "a circle", span("send", text), count=3, help="post both", notes=[
        Note("no place"), Note("waits", span("data", text, "b/[y].sched"))]), "a/x.sched", "x", {"ranks": 2})
    document = sarif.document([found], status=1, root=os.getcwd(), sends="default")
    VALID.validate(document)
    (result,) = document["runs"][0]["results"]
    assert result["message"]["text"] == (
        "a circle (and 2 more like it)\nin x with ranks 2\nnote: no place\nnote: waits ([b/\\[y\\].sched:2](2))\n"
        "help: post both")
    (related,) = result["relatedLocations"]
    assert related["id"] == 2 and related["physicalLocation"] == {
        "artifactLocation": {"uri": "b/%5By%5D.sched", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 2, "startColumn": 10, "endLine": 2, "endColumn": 14}}
    assert result["occurrenceCount"] == 3


def test_columns_count_characters(log):
    line = '    require ranks > 0, "\U0001f600e\u0301" oops'
    write("wide.sched", f"schedule wide(ranks):\r\n{line}\r\n    collective barrier\r\n")
    _, run = log("wide.sched")
    at = region(run["results"][0])
    column = line.index("oops") + 1
    assert at == {"startLine": 2, "startColumn": column, "endLine": 2, "endColumn": column + 4}


@pytest.mark.parametrize("name", ["a b", "50%", "#1", "ü", "x?y", "C:x", "\U0001f600"])
def test_names_of_files_are_quoted(log, name):
    _, run = log(write(f"sub/{name}.sched", LOST))
    assert unquote(uri(run["results"][0])) == f"sub/{name}.sched"


@pytest.mark.parametrize("style", ["full", "concise", "json", "github", "sarif"])
def test_a_name_that_is_no_text(call, style):
    name = os.fsdecode(b"\xff.sched")
    write(name, LOST)
    status, out, _ = call("verify", name, "--format", style)
    assert status == 1 and "SL504" in out
    assert call("verify", name, "--format", style, "-o", "out.txt")[0] == 1
    written = Path("out.txt").read_bytes()
    assert b"SL504" in written and written.decode() and (b"%FF.sched" in written or style != "sarif")


def test_a_file_elsewhere_goes_by_its_whole_path(log, tmp_path, monkeypatch):
    write("lost.sched", LOST)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir("work")
    _, run = log("../lost.sched")
    assert run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"] == {
        "uri": "file://" + str(tmp_path / "lost.sched")}
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    assert uri(log("../lost.sched")[1]["results"][0]) == "lost.sched"


LIBRARY_USER = """\
schedule user(ranks):
    collective allreduce(sum)
    chunks ranks
    verify ranks in [3]
    buffer tmp[ranks]
    use ring() on 0..ranks for data=tmp[0:ranks]
"""


def test_a_finding_in_a_shipped_schedule_is_shown_where_that_is_used(call, log):
    write("user.sched", LIBRARY_USER)
    status, run = log("user.sched")
    (result,) = [r for r in run["results"] if r["level"] == "error" and r["ruleId"] == "SL403"]
    lines = result["message"]["text"].splitlines()
    assert status == 1 and uri(result) == "user.sched" and region(result)["startLine"] == 6
    *_, here = result["relatedLocations"]
    assert here["message"]["text"] == "found here" and lines[-2].startswith("note: found here ([")
    address = here["physicalLocation"]["artifactLocation"]
    assert address == {"uri": "allreduce/ring.sched", "uriBaseId": "%SCHEDLANG%"}
    assert "[schedlang:allreduce/ring.sched:" in lines[-2]
    assert f"]({here['id']}))" in lines[-2]
    commands = call("verify", "user.sched", "--format", "github")[1].splitlines()[:-1]
    (properties, message), = [(p, m) for _, p, m in map(parsed, commands) if p["title"].startswith("SL403")]
    assert (properties["file"], properties["line"]) == ("user.sched", "6")
    assert re.match(r"found in schedlang:allreduce/ring.sched:\d+:\d+$", message.splitlines()[1])


def test_nothing_tells_where_shipped_schedules_lie(call):
    """But the files of JSON, which programs open."""
    write("user.sched", LIBRARY_USER)
    write("right.sched", "schedule right(ranks):\n    collective allreduce(sum)\n    chunks 8\n    use double_tree()\n")
    name, sizes = "schedlang:allreduce/double_tree.sched", ("--ranks", "4")
    for command in (["verify", "user.sched"], ["verify", "user.sched", "--format", "sarif"],
                    ["show", "right.sched", *sizes], ["show", "right.sched", *sizes, "--format", "svg"],
                    ["show", "right.sched", *sizes, "--format", "html"], ["show", "user.sched", "--ranks", "3"],
                    ["diff", "right.sched", "right.sched", *sizes], ["verify", "double_tree"],
                    ["compile", "right.sched", *sizes, "--target", "json"]):
        out = "".join(map(str, call(*command)))
        assert str(LIBRARY) not in out and str(LIBRARY.resolve()) not in out, command
        assert command[0] != "diff" or f"{name}:30  reduce data[" in out
    files = re.findall(r'"file": "(.*)"', call("verify", "user.sched", "--format", "json")[1])
    assert str(LIBRARY / "allreduce/ring.sched") in files and not any(SHIPPED in file for file in files)
    write("t.json", call("compile", "right.sched", *sizes, "--target", "json")[1])
    assert f'"file": "{name}"' in Path("t.json").read_text() and call("verify", "t.json", name, *sizes)[0] == 0
    assert call("fmt", name)[0] == 2


def test_names_of_shipped_schedules(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = LIBRARY / "allreduce" / "ring.sched"
    assert shipped_name(path) == "schedlang:allreduce/ring.sched" and on_disk(shipped_name(path)) == str(path)
    assert relative(shipped_name(path), "/") is None
    assert on_disk("ring.sched") == "ring.sched" and on_disk("schedlang:no.sched") == "schedlang:no.sched"
    if LIBRARY.is_symlink():
        monkeypatch.chdir(LIBRARY.resolve().parent)     # a checkout has them as files of its own
        assert shipped_name(path) == os.path.join("examples", "allreduce", "ring.sched")


def test_what_is_wrong_before_there_is_a_schedule(log):
    write("a/broken.sched", "schedule broken(:\n")
    write("a/lost.sched", LOST)
    status, run = log("a", "missing.sched")
    assert status == 2 and [(r["ruleId"], uri(r)) for r in run["results"]] == [
        ("SL101", "a/broken.sched"), ("SL504", "a/lost.sched")]
    assert "logicalLocations" not in run["results"][0]["locations"][0]
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    (unread,) = invocation["toolExecutionNotifications"]
    assert unread["associatedRule"]["id"] == "SL105" and "missing.sched" in unread["message"]["text"]
    assert run["tool"]["driver"]["rules"][unread["associatedRule"]["index"]]["id"] == "SL105"


def test_a_finding_without_a_place_lies_in_the_file():
    report = Report("x.sched", "x", (Case({}, "unusable", (error("SL206", "m"),)),))
    document = sarif.document(listed([report], (), os.getcwd()), status=2, root=os.getcwd(), sends="default")
    VALID.validate(document)
    (result,) = document["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "x.sched", "uriBaseId": "%SRCROOT%"}}


def test_a_table_in_json(call, log):
    write("lost.sched", LOST)
    assert call("compile", "lost.sched", "--ranks", "4", "--target", "json", "-o", "t.json")[0] == 0
    status, run = log("t.json")
    (result,) = run["results"]
    assert status == 1 and result["ruleId"] == "SL504" and uri(result) in ("t.json", "lost.sched")
    write("odd.json", Path("t.json").read_text().replace("lost.sched", "../C:50% #1.sched"))
    related = log("odd.json")[1]["results"][0]["relatedLocations"]
    assert related[0]["physicalLocation"]["artifactLocation"]["uri"].endswith("/C%3A50%25%20%231.sched")
    write("cut.json", Path("t.json").read_text()[:-30])
    status, run = log("cut.json")
    assert status == 2 and run["results"][0]["ruleId"] == "SL107" and uri(run["results"][0]) == "cut.json"


# ---- fingerprints --------------------------------------------------------------------------------------------------


def test_a_finding_keeps_its_fingerprint(log, monkeypatch):
    (before,) = marks(log(write("sub/lost.sched", LOST))[1])
    assert marks(log("sub/lost.sched", "--ranks", "5..9")[1]) == [before]
    assert marks(log("sub", "--sends", "rendezvous")[1]) == [before]
    monkeypatch.chdir("sub")
    assert marks(log("lost.sched")[1]) == [before]
    write("lost.sched", "# one\nfn f(x) = x\n\n" + LOST.replace("\n    for", "\n\n    let k = 2\n    for"))
    assert marks(log("lost.sched")[1]) == [before]
    write("lost.sched", LOST.replace("    ", "  "))
    assert marks(log("lost.sched")[1]) == [before]
    write("other.sched", LOST)
    assert marks(log("other.sched")[1]) == [before]
    write("lost.sched", LOST.replace("lost", "gone"))
    assert marks(log("lost.sched")[1]) != [before]


def test_lines_that_read_alike_are_told_apart_whatever_else_is_found(log):
    status, run = log(write("own.sched", SELF), "--ranks", "3")
    assert status == 1 and [region(r)["startLine"] for r in run["results"]] == [6, 7, 8]
    first, second, third = marks(run)
    assert len({first, second, third}) == 3
    assert marks(log("own.sched", "--ranks", "2")[1]) == [second]
    write("own.sched", SELF.replace("    send data[0] from 1 to 1\n", ""))
    assert marks(log("own.sched", "--ranks", "3")[1]) == [first, third]


def test_findings_of_one_line_have_fingerprints_of_their_own():
    text = "schedule x(ranks):\n    send data[0] from 0 to 1\n"
    here = [span(word, text) for word in ("send", "data", "send")]
    found = [Listed(error("SL305", "m", at), "a/x.sched", "x") for at in here]
    a, b, c = sarif.fingerprints(found)
    assert len({a, b, c}) == 3 and sarif.fingerprints(found[1:]) == [b, a]
    for other in (Listed(error("SL306", "m", here[0]), "a/x.sched", "x"),
                  Listed(error("SL305", "m", here[0]), "a/x.sched", "y"),
                  Listed(error("SL305", "m", Place("a/x.sched", 2)), "a/x.sched", "x"),
                  Listed(error("SL305", "m", Place("a/x.sched", 3)), "a/x.sched", "x"),
                  Listed(error("SL305", "m"), "a/x.sched", "x")):
        assert sarif.fingerprints([other])[0] not in (a, b, c)


def test_the_same_line_in_two_files_does_not_disturb_either():
    text = "schedule x(ranks):\n    send data[0] from 0 to 1\n"
    both = [Listed(error("SL305", "m", span("send", text, file)), file, "x") for file in ("a.sched", "b.sched")]
    assert sarif.fingerprints(both) == sarif.fingerprints(both[1:]) * 2


def test_a_file_that_is_named_in_several_ways_is_one_file(log, tmp_path):
    write("sub/lost.sched", LOST)
    Path("link").symlink_to("sub")
    names = ["sub/lost.sched", "./sub//lost.sched", "sub/lost.sched", f"{tmp_path}/sub/lost.sched", "link/lost.sched"]
    _, run = log(*names)
    assert [uri(r) for r in run["results"]] == ["sub/lost.sched"] * 2       # through a link it may import other files
    first, second = marks(run)
    assert first != second and marks(log("sub")[1]) == [first]


# ---- GitHub --------------------------------------------------------------------------------------------------------


def parsed(line):
    """A workflow command as its runner reads it: (command, properties, message)."""
    kind, pairs, message = re.fullmatch(r"::(\w+) ([^:]*)::(.*)", line).groups()

    def whole(text, *marks):
        for mark, char in (("%0D", "\r"), ("%0A", "\n"), *marks, ("%25", "%")):
            text = text.replace(mark, char)
        return text

    properties = (pair.partition("=") for pair in pairs.split(","))
    return kind, {name: whole(value, ("%3A", ":"), ("%2C", ",")) for name, _, value in properties}, whole(message)


def test_annotations(call):
    write("a/lost.sched", LOST)
    write("a/swap.sched", STAGED)
    write("a/broken.sched", "schedule broken(:\n")
    status, out, err = call("verify", "a", "missing.sched", "--format", "github")
    *commands, last = out.splitlines()
    assert status == 2 and err == ""
    found = [parsed(command) for command in commands]
    assert [(kind, p.get("file"), p["title"]) for kind, p, _ in found] == [
        ("error", None, "SL105 unreadable"), ("error", "a/broken.sched", "SL101 syntax-error"),
        ("error", "a/lost.sched", "SL504 missing-result"), ("notice", "a/swap.sched", "SL603 staging-copy")]
    assert found[2][1] == {"file": "a/lost.sched", "line": "1", "endLine": "1", "col": "10", "endColumn": "14",
                           "title": "SL504 missing-result"}
    assert found[2][2].splitlines()[1] == "in lost with ranks 4; 1 more of 5 cases fail alike"
    assert found[2][2].splitlines()[-1].startswith("help: ")
    assert last == "3 errors, 1 note; 1 of 2 schedules are right; 2 files could not be used"


def test_nothing_to_annotate(call):
    assert call("verify", write("good.sched", LOST), "--ranks", "2", "--format", "github") == (
        0, "no findings; 1 of 1 schedules are right\n", "")


def test_annotations_are_sorted(call):
    write("b.sched", SELF)
    write("a.sched", SELF.replace("own", "self") + "\n" + LOST)
    _, out, _ = call("verify", "b.sched", "a.sched", "--ranks", "4", "--format", "github")
    places = [(p["file"], int(p["line"])) for _, p, _ in map(parsed, out.splitlines()[:-1])]
    assert len(places) == 7 and places == sorted(places)


def test_text_cannot_end_a_command():
    text = "schedule x(ranks):\n    send data[0] from 0 to 1\n"
    name = "a,b:100%\n::set-x::.sched"
    finding = Listed(error("SL305", "100%: a, b\n::error::x\r\x1b[0m", span("send", text, name),
                           notes=[Note("n\n::debug::")], help="h\n::stop::"), name, "x", {"ranks": 2})
    out = github.text([finding], right=0, judged=1, unread=0, root=os.getcwd())
    command, last = out.splitlines()
    assert last == "1 error; 0 of 1 schedules are right" and out.count("\n") == 2
    kind, properties, message = parsed(command)
    assert (kind, properties["file"]) == ("error", name)
    assert message.startswith("100%: a, b\n::error::x\u240d\u241b[0m\nin x with ranks 2\n")


@pytest.mark.parametrize(("part", "said"), [
    ("data[0]", "line=2,endLine=2,col=10,endColumn=17,"), ("0 to 1\n    send", "line=2,endLine=3,title")])
def test_columns_are_for_one_line(part, said):
    text = "schedule x(ranks):\n    send data[0] from 0 to 1\n    send data[1] from 0 to 1\n"
    out = github.text([Listed(error("SL305", "m", span(part, text)))], right=0, judged=1, unread=0, root=os.getcwd())
    assert said in out


@pytest.mark.parametrize(("severity", "kind"), [(error, "error"), (warning, "warning"), (note, "notice")])
def test_severities(severity, kind):
    found = [Listed(severity("SL305", "m", Place("x.json", 7, column))) for column in (1, 4)]
    out = github.text(found, right=0, judged=0, unread=1, root=os.getcwd())
    assert out.splitlines()[:2] == [f"::{kind} file=x.json,line=7,title=SL305 deadlock::m",
                                    f"::{kind} file=x.json,line=7,col=4,title=SL305 deadlock::m"]
    assert str(severity("SL305", "m").severity) in out.splitlines()[2] and len(Severity) == 3


def test_names_start_at_the_workspace(call, tmp_path, monkeypatch):
    write("sub/lost.sched", LOST)
    monkeypatch.chdir("sub")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    assert " file=sub/lost.sched," in call("verify", "lost.sched", "--format", "github")[1].replace("error ", " ")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "elsewhere"))
    out = call("verify", "lost.sched", "--format", "github")[1]
    assert parsed(out.splitlines()[0])[1]["file"] == str(tmp_path / "sub/lost.sched")


# ---- --output ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["full", "concise", "json", "github", "sarif"])
def test_a_file_holds_what_would_be_shown(call, style):
    write("a/lost.sched", LOST)
    write("a/broken.sched", "schedule broken(:\n")
    shown = call("verify", "a", "--format", style)
    assert shown[0] == 2 and "SL504" in shown[1] and "SL101" in shown[1]
    assert call("verify", "a", "--format", style, "-o", "out.txt") == (2, "", "")
    assert Path("out.txt").read_text(encoding="utf-8") == shown[1]


def test_a_file_holds_no_colours(call, monkeypatch):
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in call("verify", write("lost.sched", LOST))[1]
    assert call("verify", "lost.sched", "-o", "out.txt")[0] == 1
    assert "\x1b[" not in Path("out.txt").read_text() and "SL504" in Path("out.txt").read_text()


def test_an_output_that_cannot_be_written(call):
    status, out, err = call("verify", write("lost.sched", LOST), "--format", "sarif", "-o", "no/x.sarif")
    assert status == 2 and out == "" and "error[SL807]" in err and not Path("no").exists()
    write("old.sarif", "old")
    status, _, err = call("verify", "lost.sched", "--format", "sarif", "--ranks", "x", "-o", "old.sarif")
    assert status == 2 and "SL806" in err and Path("old.sarif").read_text() == "old"


@pytest.mark.parametrize("option", [["-o", "x"], ["--format", "sarif"], ["--format", "json"]])
def test_why_is_text(call, option):
    status, out, err = call("verify", write("lost.sched", LOST), "--why", "5", "5", *option)
    assert status == 2 and out == "" and "SL806" in err and not Path("x").exists()
