"""What emitted files look like, and what is refused."""

import ast
import re
from pathlib import Path

import pytest

import schedlang
from schedlang.backends.torch.emit import RULER, source
from schedlang.backends.torch.emit.body import Names
from schedlang.backends.torch.emit.check import compare
from schedlang.diagnostics import SchedError
from schedlang.version import __version__

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "torch"
WHOLE = {"ring": ("allreduce/ring", 4)}
STEPS = {"halving_doubling": ("allreduce/halving_doubling", 8), "staged_chain": ("broadcast/staged_chain", 3)}


def table(name, ranks, **params):
    return schedlang.load(str(ROOT / "examples" / f"{name}.sched"), ranks=ranks, **params).table


def schedule_part(text):
    """A file down to the line behind which all files are alike."""
    return text[: text.index(RULER)]


@pytest.mark.parametrize("name", [*WHOLE, *STEPS])
def test_golden(name, update):
    text = source(table(*(WHOLE | STEPS)[name])).replace(__version__, "VERSION")
    text = text if name in WHOLE else schedule_part(text)
    path = GOLDEN / f"{name}.txt"
    if update:
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


@pytest.mark.parametrize("file, command, module", [
    ("mine.py", "mine.py", "mine"), ("my ring.py", "'my ring.py'", None), ("for.py", "for.py", None),
    ("mine", "mine", None), ("a\\'\"\"\"\n.py", None, None),
])
def test_a_file_says_what_it_is_called(call, tmp_path, file, command, module):
    written = tmp_path / file
    status, _, err = call("compile", str(ROOT / "examples/allreduce/ring.sched"), "--ranks", "4", "--target", "torch",
                          "-o", str(written))
    text = written.read_text("utf-8")
    doc = ast.get_docstring(ast.parse(text))
    assert (status, err) == (0, "") and doc.count("\n    torchrun ") == 1
    if command is not None:
        assert f"\n    torchrun --nproc-per-node 4 {command}\n" in doc
    assert f"\n    from {module or 'ring'} import ring\n" in doc
    assert ("In a program:" in doc) == (module is not None)
    assert ("like ring.py:" in " ".join(doc.split())) == (module is None)


def test_a_file_for_the_standard_output_is_called_like_its_function(call):
    ring = str(ROOT / "examples/allreduce/ring.sched")
    texts = {call("compile", ring, "--ranks", "4", "--target", "torch", *more)[1] for more in ([], ["-o", "-"])}
    (text,) = texts
    assert text == source(table("allreduce/ring", 4))
    assert "    torchrun --nproc-per-node 4 ring.py\n" in text and "    from ring import ring\n" in text


@pytest.mark.parametrize("name", ['a"""b.sched', "a\\N{b.sched", "a\nb.sched", "a\rb.sched"])
def test_a_source_may_be_called_anything(tmp_path, name):
    path = tmp_path / name
    path.write_text((ROOT / "examples/allreduce/ring.sched").read_text("utf-8"))
    text = source(schedlang.load(str(path), ranks=2).table)
    shown = "".join(c if c.isprintable() else "?" for c in name)
    assert ast.get_docstring(ast.parse(text)) and text.count(f"# {shown}:") == 2


def test_a_wide_ring_is_as_short_as_a_small_one():
    small, wide = (schedule_part(source(table("allreduce/ring", ranks))) for ranks in (4, 128))
    assert "\nEARLY = True\n" in small and "\nEARLY = False\n" in wide       # not looked at
    wide = wide.replace("EARLY = False", "EARLY = True")
    assert len(wide.splitlines()) == len(small.splitlines()) < 90
    assert wide == small.replace("nproc-per-node 4", "nproc-per-node 128").replace("ranks=4", "ranks=128").replace(
        "4 ranks", "128 ranks").replace("% 4]", "% 128]").replace("% 4)", "% 128)").replace("RANKS = 4", "RANKS = 128"
        ).replace("range(3)", "range(127)").replace("elements, 4)", "elements, 128)")


SWAP = """schedule swap(ranks):
    collective custom
    buffer data[1]
    step:
        send data[0] from 0 to 1
        send data[0] from 1 to 0
    ensure data[0] on 0 == data[0] on 1
    ensure data[0] on 1 == data[0] on 0
"""
REPLY = """schedule reply(ranks):
    collective custom
    buffer data[2]
    step:
        send data[0] from 0 to 1 into data[1]
    step:
        send data[{}] from 1 to 0 into data[0]
    ensure data[0] on 0 == data[0] on {}
"""


@pytest.mark.parametrize("text,early", [(SWAP, False), (REPLY.format(1, 0), True),
                                        (REPLY.format(0, 1), False)])
def test_receives_stand_ready_only_where_nothing_can_come_too_early(text, early, tmp_path):
    (tmp_path / "x.sched").write_text(text)
    assert f"\nEARLY = {early}\n" in source(schedlang.load(str(tmp_path / "x.sched"), ranks=2).table)


@pytest.mark.nightly
def test_a_ring_of_1024():
    text = source(table("allreduce/ring", 1024))
    assert len(schedule_part(text).splitlines()) < 90


@pytest.mark.parametrize("name,ranks,expressions", [
    ("allreduce/halving_doubling", 16, ["d = 8 >> i", "rank ^ d", "// d * d"]),
    ("allreduce/all_pairs", 5, ["i + (i >= rank)"]),
    ("allgather/bruck", 8, ["(rank - d) % 8", "(rank + d) % 8"]),
    ("allreduce/hierarchical", 8, ["4 * (rank // 4) + (rank + 1) % 4"]),
])
def test_formulas_are_said_as_people_say_them(name, ranks, expressions):
    steps = schedule_part(source(table(name, ranks)))
    assert all(expression in steps for expression in expressions), steps
    assert not re.search(r"^(CHUNK|PEER|COUNT|TURN)\w* = [\[{]$", steps, re.MULTILINE)         # no table


def test_irregular_ones_are_tables():
    steps = schedule_part(source(table("allreduce/swing", 8)))
    assert "PEER[rank][i]" in steps and "    [1, 7, 3], [0, 2, 6]," in steps


def test_each_step_says_its_line():
    text = schedule_part(source(table("allreduce/ring", 4)))
    assert "# ring.sched:15  reduce data[c * ranks + (r - s) % ranks] from r to (r + 1) % ranks" in text


def test_names_that_are_taken_are_changed(tmp_path):
    """A schedule, its streams and buffers may be called like what the file has for itself."""
    path = tmp_path / "main.sched"
    path.write_text("""schedule main(ranks):
    collective allreduce(sum)
    chunks 2
    buffer torch[1], rank[1], i[1]
    verify ranks in [2]
    stream Call:
        step:
            for r in 0..ranks: send data[0] from r to (r + 1) % ranks into torch[0]
        for r in 0..ranks:
            reduce torch[0] into data[0] on r
    stream class:
        step:
            for r in 0..ranks: send data[1] from r to (r + 1) % ranks into i[0]
        for r in 0..ranks:
            copy i[0] into rank[0] on r
        for r in 0..ranks:
            reduce rank[0] into data[1] on r
""", "utf-8")
    text = source(schedlang.load(str(path), ranks=2).table)
    names = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    assert {"main", "main_2", "Call_2", "class_2"} <= names
    assert "def Call_2(rank, data, torch_2, rank_2, i_2):" in text


def test_what_is_not_right_is_refused():
    with pytest.raises(SchedError) as refused:
        source(schedlang.load(str(ROOT / "tests" / "cases" / "missing.sched"), ranks=4).table)
    assert refused.value.diagnostics[0].code == "SL501"


def test_what_needs_connections_that_hold_messages_is_refused():
    found = schedlang.load(str(ROOT / "tests" / "cases" / "cycle_needs_depth_1.sched"), ranks=4)
    with pytest.raises(SchedError) as refused:
        source(found.table)
    assert {d.code for d in refused.value.diagnostics} == {"SL305"}


def test_what_is_written_is_read_again():
    """A text that does not do what the table says is not given out."""
    ring = table("allreduce/ring", 3)
    names = Names({0: "data"}, {0: "steps"}, {0: ring.streams[0]})
    text = schedule_part(source(ring))
    steps = text[text.index("def steps") : text.index("STREAMS")]
    compare(ring, names, steps, turns=False)
    for wrong in (steps.replace("rank - i - 1", "rank - i"), steps.replace("range(2)", "range(1)"),
                  steps.replace("recv_reduce", "recv"), steps.replace("dst=(rank + 1)", "dst=(rank + 2)")):
        assert wrong != steps
        with pytest.raises(SchedError, match="SL808"):
            compare(ring, names, wrong, turns=False)


def test_compile_writes_it(call, tmp_path):
    path = tmp_path / "ring.py"
    ring = ("examples/allreduce/ring.sched", "--ranks", "4", "--target", "torch", "-o", str(path))
    status, out, _ = call("compile", *ring)
    assert (status, out) == (0, "")
    assert path.read_text("utf-8") == source(table("allreduce/ring", 4))
    status, out, err = call("compile", "tests/cases/missing.sched", "--ranks", "4", "--target", "torch")
    assert status != 0 and out == "" and "SL501" in err
