"""The command line's frame: options, errors, exit codes. What the commands compute has tests of its own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from schedlang.cli import common, main
from schedlang.cli.main import COMMANDS
from schedlang.cli.rows import RowName
from schedlang.cli.verify import targets
from schedlang.diagnostics import SchedError, error, warning
from schedlang.version import __version__
from tests.tables import ring

ROOT = Path(__file__).parents[2]


def fails(function, *arguments):
    with pytest.raises(SchedError) as caught:
        function(*arguments)
    (finding,) = caught.value.diagnostics
    assert finding.code == "SL806"
    return f"{finding.message} | {finding.help}"


# ---- the frame -----------------------------------------------------------------------------------------------------


def test_version(call):
    assert call("--version") == (0, f"schedlang {__version__}\n", "")


def test_help_lists_the_commands(call):
    status, out, _ = call("--help")
    assert status == 0 and all(name in out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(call, name):
    status, out, _ = call(name, "--help")
    assert status == 0 and out.startswith(f"Usage: schedlang {name} ") and "Options:" in out


@pytest.mark.parametrize(("arguments", "said"), [
    (["verfy"], ["no command verfy", "did you mean verify"]),
    (["verify", "--rank", "8", "x.sched"], ["no option --rank", "did you mean --ranks?"]),
    (["verify"], ["needs", "PATH"]),
    (["compile", "x.sched", "--target"], ["--target"]),
    (["verify", "x.sched", "--format", "xml"], ["'xml'", "concise"]),
    (["verify", "x.sched", "--sends", "many"], ["many", "rendezvous"]),
    (["verify", "x.sched", "--max-ops", "0"], ["--max-ops", "0"]),
    (["show", "x.sched", "--rank", "-1"], ["--rank", "-1"]),
    (["compile", "x.sched", "--target", "fpga"], ["no such target", "json"]),
    (["explain", "deadlok"], ["no finding deadlok", "did you mean deadlock?"]),
    (["explain", "305"], ["no finding 305", "did you mean SL305?"]),
    (["explain", "SL3005"], ["help: `schedlang explain --list`"]),
    (["explain", "SL999"], ["help: `schedlang explain --list`"]),
    (["explain", "SL399"], ["help: SL3xx are SL301 to SL3"]),
    (["verify", "no/such/file.sched"], ["no/such/file.sched"]),
    (["verify", "no/such/table.json"], ["no/such/table.json"]),
    (["verify", "no/such/pairwise.sched"], ["shipped schedule of that name is", "alltoall/pairwise.sched"]),
    (["show", "pairwise", "--ranks", "2"], ["shipped schedule of that name is", "alltoall/pairwise.sched"]),
    (["run", "/", "--ranks", "2"], ["cannot read /", "name a file in it"]),
    (["show", "-", "--ranks", "2"], ["cannot read -", "/dev/stdin"]),
    (["show", "x.sched::"], ["x.sched::"]),
    (["verify", ""], ["path is empty"]),
    (["verify", "::x"], ["path is empty"]),
    (["run", "", "--ranks", "2"], ["path is empty"]),
    (["fmt", ""], ["path is empty"]),
])
def test_unusable_arguments_are_named(call, arguments, said):
    status, out, err = call(*arguments)
    text = out + err
    assert status == 2
    assert text.startswith("error[SL") and all(word in text for word in said), text


def test_no_command_shows_the_help(call):
    status, out, err = call()
    assert status == 2 and "Commands:" in out + err


def test_explain(call):
    status, out, _ = call("explain", "SL305")
    assert status == 0 and out.startswith("SL305 deadlock\n") and "How to mend it" in out
    assert call("explain", "deadlock")[1] == out
    assert call("explain", "--list")[1].count("SL") >= 50


def test_exit_codes_follow_the_findings():
    assert common.exit_code([]) == 0
    assert common.exit_code([warning("SL602", "")]) == 0
    assert common.exit_code([error("SL305", ""), warning("SL101", "")]) == 1
    assert common.exit_code([error("SL305", ""), error("SL101", "")]) == 2


def test_a_bug_is_shown_with_a_plea(monkeypatch, capsys):
    def broken(*_, **__):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(main.group, "invoke", broken)
    assert main.main(["explain"]) == main.EXIT_BUG
    err = capsys.readouterr().err
    assert "oops" in err and "Please report" in err


@pytest.mark.parametrize(("failure", "status"), [(KeyboardInterrupt, 130), (MemoryError, 2)])
def test_interruption_and_memory(monkeypatch, capsys, failure, status):
    def broken(*_, **__):
        raise failure

    monkeypatch.setattr(main.group, "invoke", broken)
    assert main.main(["explain"]) == status
    assert "Traceback" not in capsys.readouterr().err


def python(code, *arguments, **options):
    return subprocess.run([sys.executable, *arguments, *(["-c", code] if code else [])], capture_output=True, text=True,
                          check=False, cwd=ROOT, **options)


def shell(arguments):
    """The command line as a shell runs it, with its redirections."""
    return subprocess.run(f'"{sys.executable}" -m schedlang {arguments}', shell=True, capture_output=True, text=True,
                          check=False, cwd=ROOT)


def test_a_reader_that_goes_away_is_no_error():
    code = "import sys; from schedlang.cli.main import main; sys.exit(main(['explain', '--list']))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               cwd=ROOT)
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait() in (main.EXIT_BROKEN_PIPE, -signal.SIGPIPE) and errors == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(("redirected", "status", "said"), [
    (">&-", 2, "it is closed"), (">/dev/full", 2, "No space left"), (">&- 2>&-", 2, ""),
    (">/dev/full 2>/dev/full", 2, ""), ("2>&-", 0, ""), ("2>/dev/full", 0, "")])
def test_output_that_cannot_be_written_is_said_in_a_line(redirected, status, said):
    done = shell(f"explain --list {redirected}")
    assert done.returncode == status and "Traceback" not in done.stderr and said in done.stderr
    assert done.stderr.count("\n") == bool(said)


def test_input_that_is_closed():
    done = shell("fmt - <&-")
    assert done.returncode == 2 and "the standard input is closed" in done.stderr


def test_output_that_cannot_be_encoded_is_replaced():
    done = python(None, "-m", "schedlang", "verify", "x\u6f22.sched",
                  env={**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"})
    assert done.returncode == 2 and "Traceback" not in done.stderr and "x?.sched" in done.stdout + done.stderr


HEAVY = ("torch", "cupy", "scipy", "matplotlib", "rich", "pandas", "jax")


@pytest.mark.parametrize("command", [
    "import schedlang",
    "from schedlang.cli.main import main; main(['--help'])",
    "from schedlang.cli.main import main; assert main(['verify', RING, '--ranks', '4']) == 0",
    "from schedlang.cli.main import main; assert main(['show', RING, '--ranks', '4']) == 0",
])
def test_nothing_heavy_is_imported(command, shipped):
    code = f"RING = {str(shipped)!r}\n{command}\nimport sys\n" \
           f"found = [m for m in {HEAVY!r} if m in sys.modules]\nassert not found, found"
    done = python(code)
    assert done.returncode == 0, done.stderr


def test_the_command_line_starts_without_numpy():
    done = python("import sys; from schedlang.cli.main import main; main(['explain', 'SL305']); "
                  "assert not {'numpy', 'lark'} & set(sys.modules)")
    assert done.returncode == 0, done.stderr


# ---- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "counts"), [
    ("8", [8]), ("2..5", [2, 3, 4]), ("2,4,8", [2, 4, 8]), (" 1 , 2 ", [1, 2]), (None, None)])
def test_rank_counts(text, counts):
    assert common.rank_counts(text) == counts


@pytest.mark.parametrize("text", [
    "", "x", "0", "0..4", "4..4", "5..2", "2...4", "1..9999999", "-1", "2,,4", "1.5", "9" * 12])
def test_bad_rank_counts(text):
    assert f"--ranks {text}" in fails(common.rank_counts, text)


@pytest.mark.parametrize(("text", "values"), [
    ("k=3", [3]), ("k=-3", [-3]), ("k=true", [True]), ("k=false", [False]), ("k=sum", ["sum"]), ("k=1..4", [1, 2, 3]),
    ("k=1,2,4", [1, 2, 4]), (" k = 7", [7]), ("k=[0,2,1]", [[0, 2, 1]]), ("k=2**10", [1024]),
    ("k=true,false", [True, False]), ("k=-1,2", [-1, 2])])
def test_parameters(text, values):
    assert common.parameters([text]) == {"k": values}


@pytest.mark.parametrize("texts", [["k"], ["=3"], ["2=3"], ["k=1", "k=2"], ["k=4..2"], ["k=0..9999999"],
                                   ["k=0..999999999999999999"]])
def test_bad_parameters(texts):
    assert "-p" in fails(common.parameters, texts)


@pytest.mark.parametrize("text", ["k=", "k=1 +", "k=f(", "k=(((", "k=x + 1", "k=1 // 0", "k=@",
                                  f"k=0..{1 << 70}", "k=0..(1 << 40)",
                                  "k=[x for x in 0..2 ** 21]", "k=" + "9" * 5000 + "..3", "k=\N{FULLWIDTH DIGIT TWO}"])
def test_values_that_are_none(text):
    with pytest.raises(SchedError):
        common.parameters([text])


@pytest.mark.parametrize(("name", "content", "expected"), [
    ("c.json", "[1, 2, 3]", [1, 2, 3]), ("c.json", "[[1, 2], [0, 4]]", [[1, 2], [0, 4]]),
    ("c.csv", "1,2\n0,4\n", [[1, 2], [0, 4]]), ("c.csv", "\n1,2,3\n", [1, 2, 3]), ("c.json", "[[7]]", [[7]])])
def test_counts_from_files(tmp_path, name, content, expected):
    (tmp_path / name).write_text(content)
    (found,) = common.parameters([f"c=@{tmp_path / name}"])["c"]
    assert found.dtype == np.int64 and found.tolist() == expected


@pytest.mark.parametrize(("name", "content"), [
    ("c.json", "[1, -2]"), ("c.json", "[1.5]"), ("c.json", "[true]"), ("c.json", "[[1], [2, 3]]"), ("c.json", "{"),
    ("c.json", "[]"), ("c.json", "[" * 100_000), ("c.json", f"[{1 << 70}]"), ("c.csv", "a,b"), ("c.csv", ""),
    ("c.csv", "1,2\n3\n"), ("c.json", "3"), ("c.json", "[\"1\"]"), ("c.json", "[[]]"), ("c.csv", "1_0,2"),
    ("c.csv", "1,"), ("c.csv", "1;2"), ("c.csv", "9" * 5000), ("c.json", "[" + "9" * 5000 + "]")])
def test_bad_counts(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    said = fails(common.parameters, [f"c=@{tmp_path / name}"])
    assert "does not hold counts" in said and "integers from 0 on" in said and "recursion" not in said


@pytest.mark.parametrize(("name", "content", "says"), [
    ("c.csv", "1,2\n3,x\n", "line 2 has 'x' where an integer belongs"),
    ("c.csv", "1,2\n\n3,\n", "line 3 has '' where an integer belongs"),
    ("c.csv", "1,2\n3\n", "line 2 has 1 count, and line 1 has 2"),
    ("c.csv", "1,2\n3,-4\n", "line 2 has -4, which is negative"),
    ("c.csv", "1,99999999999999999999\n", "line 1 has 99999999999999999999, which is too large"),
    ("c.csv", "\n \n", "the file is empty"),
    ("c.json", "[]", "the list is empty"), ("c.json", "[[]]", "row [0] is empty"), ("c.json", "3", "it is 3 where"),
    ("c.json", "[1, -2]", "the list has -2, which is negative"), ("c.json", "[[1], 2]", "row [1] is 2, where"),
    ("c.json", "[[1, 2], [3]]", "row [1] has 1 count, and row [0] has 2"),
    ("c.json", "[[1, true]]", "row [0] has true where an integer belongs"),
    ("c.json", "[1,\n2", "line 2, column 2 is not JSON")])
def test_bad_counts_are_pointed_at(tmp_path, name, content, says):
    (tmp_path / name).write_text(content)
    assert f"does not hold counts: {says}" in fails(common.parameters, [f"c=@{tmp_path / name}"])


@pytest.mark.parametrize("path", ["c4.csv", "a/b-1.json"])
def test_a_file_of_counts_without_its_mark(path):
    said = fails(common.parameters, [f"c={path}"])
    assert f"-p c={path} is the name of a file" in said and f"-p c=@{path} reads counts from it" in said


@pytest.mark.parametrize(("text", "wanted"), [
    ("3", range(3, 4)), ("1..4", range(1, 4)), ("..2", range(2)), (None, None)])
def test_step_ranges(text, wanted):
    assert common.a_range(text, "--steps") == wanted


@pytest.mark.parametrize("text", ["x", "1-3", "", "-1"])
def test_bad_step_ranges(text):
    assert "--steps" in fails(common.a_range, text, "--steps")


# ---- naming things -------------------------------------------------------------------------------------------------


def test_folders_stand_for_the_schedules_in_them(tmp_path):
    (tmp_path / "b").mkdir()
    for name in ("z.sched", "b/a.sched", "notes.txt", "counts.json"):
        (tmp_path / name).write_text("[1]")
    (tmp_path / "t.json").write_text('{"format": "schedlang-ops"')
    found = [file.removeprefix(f"{tmp_path}/") for file, _ in targets(str(tmp_path))]
    assert found == ["b/a.sched", "t.json", "z.sched"]
    assert targets("x.sched::y") == [("x.sched", "y")]
    assert "folder" in fails(targets, f"{tmp_path}::y")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SchedError, match="no schedule"):
        targets(str(tmp_path / "empty"))


def test_rows_by_id_and_marks():
    from schedlang.source import Place

    table = ring(4)
    assert RowName.parse("id=5").find(table) == 5
    located = table.with_columns(sites=tuple(
        type(s)(Place("x/ring.sched", 14 + k, 21), s.names, s.values) for k, s in enumerate(table.sites)))
    for text, row in (("14@s=1,r=2,op=send", 12), ("ring.sched:14:21@s=1,r=2,rank=3", 13), ("15@s=0,r=0,op=recv", 25)):
        assert RowName.parse(text).find(located) == row
    assert "called that" in fails(RowName.parse("14@s=1").find, located)
    assert "these values" in fails(RowName.parse("14@s=9").find, located)
    assert "operations there have no `ranks`, but rank, step, stream, op, c, s, r" in fails(
        RowName.parse("14@ranks=1").find, located)
    assert "there; the nearest lines from which some do: 15, 14 |" in fails(RowName.parse("99").find, located)
    assert "comes from there" in fails(RowName.parse("other.sched:14").find, located)
    assert "operations" in fails(RowName.parse("id=999").find, located)


@pytest.mark.parametrize("text", ["", "x", "14@", "14@s", "14@s=", "id=x", "@s=1", "14:x", "a14", "1:2:x"])
def test_bad_row_names(text):
    assert text in fails(RowName.parse, text)


def test_long_row_names_are_refused_at_once():
    assert "names no operation" in fails(RowName.parse, "a" * 1_000_000)


def test_output_files_are_whole_or_not_there(tmp_path):
    common.write_text(str(tmp_path / "t"), "abc\n")
    assert (tmp_path / "t").read_text() == "abc\n" and [p.name for p in tmp_path.iterdir()] == ["t"]
    with pytest.raises(SchedError, match="SL807"):
        common.write_text(str(tmp_path / "none" / "t"), "abc")


# ---- tables in JSON ------------------------------------------------------------------------------------------------


@pytest.fixture
def table_file(tmp_path):
    from schedlang.ir.json import dumps

    path = tmp_path / "ring.json"
    path.write_text(dumps(ring(4)))
    return path


def test_a_table_verifies_shows_and_compiles(call, table_file):
    status, out, _ = call("verify", str(table_file))
    assert status == 0 and "ring" in out
    status, out, _ = call("show", str(table_file), "--rank", "1")
    assert status == 0 and "reduce data[0] from 0" in out
    status, out, _ = call("compile", str(table_file), "--target", "json")
    again, first = json.loads(out)["ops"], json.loads(table_file.read_text())["ops"]
    assert status == 0 and [{**row, "line": 0} for row in again] == [{**row, "line": 0} for row in first]
    assert call("show", str(table_file), "--rank", "4")[0] == 2


def test_a_faulty_table_is_status_1(call, table_file):
    document = json.loads(table_file.read_text())
    document["ops"][1]["op"] = "recv"
    document["ops"][1].pop("from_buffer", None)
    document["ops"][1].pop("from_chunk", None)
    table_file.write_text(json.dumps(document))
    status, out, _ = call("verify", str(table_file))
    assert status == 1 and "error[SL501]" in out and "FAULTY" in out
    status, out, _ = call("verify", str(table_file), "--format", "json")
    report = json.loads(out)
    assert status == 1 and report["ok"] is False and report["schedules"][0]["status"] == "faulty"
    assert report["schedules"][0]["cases"][0]["diagnostics"][0]["code"] == "SL501"


@pytest.mark.parametrize(("field", "value", "code"), [
    ("peer", 9, "SL222"), ("chunk", 4, "SL221"), ("count", (1 << 31) - 1, "SL221")])
def test_a_table_that_leaves_its_world_is_refused_by_all(call, table_file, field, value, code):
    document = json.loads(table_file.read_text())
    document["ops"][-1][field] = value
    table_file.write_text(json.dumps(document))
    for command in (["verify"], ["run", "--no-verify", "--elements", "4"], ["show"], ["compile", "--target", "json"]):
        status, out, err = call(*command, str(table_file))
        assert status == 1 and f"error[{code}]" in out + err


def test_a_broken_table_is_status_2(call, table_file):
    table_file.write_text(table_file.read_text().replace('"peer"', '"pear"', 1))
    status, out, err = call("verify", str(table_file))
    assert status == 2 and "SL107" in out + err and "peer" in out + err


@pytest.mark.parametrize("command", [
    ["verify", "s.sched", "-o", "s.sched"], ["verify", "s.sched::s", "-o", "link"], ["verify", ".", "-o", "./s.sched"],
    ["verify", "gone", "s.sched", "--format", "sarif", "-o", "s.sched"], ["show", "s.sched", "-o", "s.sched"],
    ["show", "s.sched::s", "--format", "svg", "-o", "link"], ["compile", "s.sched", "--target", "json", "-o", "link"],
    ["run", "s.sched", "--elements", "4", "-o", "link"]], ids=" ".join)
def test_a_result_never_replaces_the_schedule_it_is_made_from(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    text = "schedule s(ranks=2):\n    collective broadcast(0)\n    send data[0] from 0 to 1\n"
    Path("s.sched").write_text(text)
    Path("link").symlink_to("s.sched")
    assert main.main(command) == 2
    out, err = capsys.readouterr()
    assert out == "" and f"--output {command[-1]}: this file is read here, and would be lost" in err
    assert Path("s.sched").read_text() == text and Path("link").is_symlink()
    assert main.main([*command[:-1], "other"]) in (0, 2) and Path("s.sched").read_text() == text
    capsys.readouterr()
    assert main.main([*command[:-1], ""]) == 2 and "--output: the name is empty" in capsys.readouterr().err
    assert main.main([*command[:-1], "-"]) in (0, 2) and not Path("-").exists()
    assert bool(capsys.readouterr().out) == (command[0] != "run")
