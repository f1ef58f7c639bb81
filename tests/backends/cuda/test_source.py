"""What is written for a kernel: its text, and that it says what the normal form says, row for row."""

import random
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import schedlang
from schedlang.backends.cuda import kernel, source
from schedlang.backends.cuda.body import KEYWORDS
from schedlang.backends.cuda.formulas import Tables
from schedlang.backends.cuda.head import copied, names_of
from schedlang.diagnostics import SchedError
from schedlang.ir.build import table_from_rows
from schedlang.ir.table import NONE, Buffer, Collective
from schedlang.ops import Op
from schedlang.running.dtypes import DTYPES, named
from schedlang.verify import verify
from schedlang.version import __version__
from tests.strategies import tables, working_table
from tests.tables import ring

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
GOLDEN = ROOT / "tests" / "golden" / "cuda"
SHOWN = {"ring": ("allreduce/ring", 4, {}), "all_pairs": ("allreduce/all_pairs", 8, {}),
         "staged_chain": ("broadcast/staged_chain", 3, {}), "swing": ("allreduce/swing", 8, {})}

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


def table(name, ranks, **params):
    return schedlang.load(str(ROOT / "examples" / f"{name}.sched"), ranks=ranks, **params).table


def schedule_part(text):
    """A file from the line on before which all files are alike."""
    return text[text.index("// The schedule.") :]


@pytest.mark.parametrize("name", SHOWN)
def test_golden(name, update):
    where, ranks, params = SHOWN[name]
    text = schedule_part(source(table(where, ranks, **params)))
    path = GOLDEN / f"{name}.txt"
    if update:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


def test_a_file_says_what_it_is():
    text = source(table("allreduce/ring", 4), dtype="float16", op="avg")
    opening = "\n".join(text.splitlines()[:3])
    assert opening == ("// ring: allreduce (avg) of float16 on 4 ranks, as one CUDA kernel.\n//\n"
                       f"// Written by schedlang {__version__} from ring.sched for ranks=4, channels=1.")
    assert "using T = Half;  // float16" in text and "using Op = Sum;  // divided outside, once" in text
    on_a_gpu = re.sub(r"#ifdef SCHEDLANG_CPU\n(?:(?!#endif).*\n)*#endif", "", text)
    assert "#include" not in on_a_gpu                                          # NVRTC has no headers


@pytest.mark.parametrize("name", ["allreduce/ring", "allreduce/halving_doubling", "allreduce/all_pairs"])
def test_what_is_regular_is_as_long_for_many_ranks_as_for_few(name):
    small, wide = (schedule_part(source(table(name, ranks))) for ranks in (8, 64))
    assert len(small.splitlines()) == len(wide.splitlines()) and "const int CHUNK" not in wide


def test_what_is_not_right_is_refused():
    with pytest.raises(SchedError) as caught:
        source(ring(3).with_columns(chunk=np.zeros(len(ring(3)), np.int32)))
    assert {d.code for d in caught.value.diagnostics} >= {"SL401"} or caught.value.diagnostics
    with pytest.raises(SchedError, match="band is not defined for float32"):
        source(ring(3), op="band")


def test_tables_are_called_as_nothing_else_is():
    """lane.cuh has a MESSAGE of its own, which a table of messages must leave alone."""
    taken = names_of(copied("lane.cuh"))
    made = Tables(2, frozenset(taken))
    name = made.name("message", np.array([3, 1]), None)
    assert "MESSAGE" in taken and name == "MESSAGE_2" and made.name("message", np.array([1, 3]), None) == "MESSAGE_3"


@pytest.mark.parametrize("word", ["main", "Lane", "int", "T", "lane", "rank", "p", "i", "mod", "Sum", "chunk", "peer"])
def test_names_are_none_that_mean_something(word, tmp_path):
    path = tmp_path / "named.sched"
    path.write_text(f"""schedule named(ranks):
    collective allreduce(sum)
    chunks ranks
    buffer {word}[1]
    stream {word}:
        step:
            for r in 0..ranks:
                copy data[r] into {word}[0] on r
        for s in 0..ranks - 1:
            step:
                for r in 0..ranks:
                    reduce data[(r - s) % ranks] from r to (r + 1) % ranks
        for s in 0..ranks - 1:
            step:
                for r in 0..ranks:
                    send data[(r + 1 - s) % ranks] from r to (r + 1) % ranks
""", "utf-8")
    try:
        found = schedlang.load(str(path), ranks=4).table
    except SchedError:
        pytest.skip("the language has it for itself")
    text = schedule_part(source(found))
    made = re.findall(r"constexpr int (\w+) = |__device__ void (\w+)\(", text)
    names = [a or b for a, b in made]
    assert len(set(names)) == len(names) == 3 and not set(names) & {*KEYWORDS, "Lane", "T", "lane", "rank", "p", "i"}
    assert said([found]) == [wanted(found)]


@needs_compiler
@pytest.mark.parametrize("text", ['#include "cpu.h"\n', "#include <cmath>\n#include <cstdio>\n"])
def test_buffers_may_be_called_as_what_systems_declare(text, tmp_path):
    """Functions, variables and macros of C libraries, and what the header of the native back end calls its own."""
    words = ["index", "time", "read", "write", "exp", "y1", "abs", "wait", "signal", "clock", "environ", "stdin",
             "errno", "linux", "EOF", "NULL", "SEEK_SET", "now", "here", "Block", "Pool", "combine",
             "schedule", "Schedule"]
    rows = [{"op": "copy", "rank": 0, "stream": word, "step": 0, "buffer": word, "chunk": 0, "from_buffer": "input",
             "from_chunk": 0} for word in words]
    buffers = (Buffer("input", 1, role="input"), *(Buffer(word, 1) for word in words))
    found = table_from_rows(rows, ranks=1, collective=Collective("custom"), buffers=buffers, chunks=1, name="named")
    made = kernel(found, dtype=named("float32")).text
    path = tmp_path / "named.cpp"
    if "cpu.h" not in text:
        made = (HERE / "recorder.h").read_text("utf-8") + schedule_part(made)
    path.write_text(text + made, "utf-8")
    subprocess.run(["g++", "-std=gnu++17", "-fsyntax-only", "-I", str(ROOT / "backends" / "native"), str(path)],
                   check=True)


# What a file says, compared with the normal form


def said(all_tables, **options):
    """What the kernels of tables do: for each, by (rank, program), the lines that their lanes are told. One compilation
    for all of them. ``options``: of the generator."""
    made = [kernel(t, dtype=named("int64"), **options) for t in all_tables]
    parts = [(HERE / "recorder.h").read_text("utf-8")]
    for k, one in enumerate(made):
        body = schedule_part(one.text).replace("schedlang_kernel", f"kernel_{k}")
        parts.append(f"namespace table_{k} {{\n{body}\n}}")
    calls = [f'    std::printf("lane {k} {rank} {program}\\n"); table_{k}::kernel_{k}(Args{{{rank}, {program}}});'
             for k, one in enumerate(made) for rank, program in one.lanes.tolist()]
    pieces = [calls[at : at + 500] for at in range(0, len(calls), 500)]
    parts += [f"void run_{n}() {{\n" + "\n".join(piece) + "\n}" for n, piece in enumerate(pieces)]
    parts.append("int main() {" + " ".join(f"run_{n}();" for n in range(len(pieces))) + "}")
    return _run("\n".join(parts), len(made))


def _run(text, number):
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "says"
        subprocess.run(["g++", "-std=c++17", "-O0", "-x", "c++", "-", "-o", str(program)], input=text, text=True,
                       check=True)
        lines = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.splitlines()
    found = [{} for _ in range(number)]
    told = []
    for line in lines:
        if line.startswith("lane "):
            k, rank, program_number = map(int, line.split()[1:])
            told = found[k][rank, program_number] = []
        else:
            told.append(line)
    return found


def wanted(t):
    """The same as the normal form says it."""
    made = kernel(t, dtype=named("int64"), op=None)
    n, table_ = made.normal, made.normal.table
    streams = {s: k for k, s in enumerate(made.programs)}
    found = {(rank, program): [] for rank, program in made.lanes.tolist()}
    phases = {}
    for row in range(len(table_)):
        key = int(table_.rank[row]), streams[int(table_.stream[row])], int(table_.step[row])
        phases.setdefault(key, []).append(row)
    for (rank, program, _), rows in sorted(phases.items()):
        told = found[rank, program]
        first = rows[0]
        sends = [r for r in rows if table_.op[r] == Op.SEND]
        takes = [r for r in rows if table_.op[r] in (Op.RECV, Op.REDUCE_RECV)]
        for r in sends:
            if table_.of[r] == NONE:
                told.append(f"post {table_.peer[r]} {n.tag[r]} {n.message[r]}")
        if n.before[first] != NONE:
            told.append(f"settle {n.before[first]}")
        for p in range(int(n.rounds[first])):
            for r in takes:
                if p < table_.count[r]:
                    reduces = bool(table_.op[r] == Op.REDUCE_RECV)
                    own = f" {table_.from_buffer[r]} {table_.from_chunk[r]}" if reduces else ""
                    told.append(f"take{'_reduce' * reduces} {table_.peer[r]} {n.tag[r]} {n.message[r]} {p} "
                                f"{n.their_buffer[r]} {n.their_chunk[r]} {table_.buffer[r]} {table_.chunk[r]}{own} "
                                f"{table_.count[r]} {n.like[r]}")
            for r in sends:
                if table_.of[r] != NONE and p < table_.count[r]:
                    told.append(f"pass {table_.peer[r]} {n.tag[r]} {n.message[r]} {p} {table_.count[r]}")
        for r in rows:
            if table_.op[r] in (Op.COPY, Op.REDUCE):
                told.append(f"{Op(int(table_.op[r])).name.lower()} {table_.from_buffer[r]} {table_.from_chunk[r]} "
                            f"{table_.buffer[r]} {table_.chunk[r]} {table_.count[r]} {n.like[r]}")
            elif table_.op[r] >= Op.RECORD:
                told.append(f"{Op(int(table_.op[r])).name.lower()} {made.flags[r]}")
        if n.after[first] != NONE:
            told.append(f"settle {n.after[first]}")
    return found


def shipped(ranks):
    """All shipped schedules on so many ranks, by name."""
    for path in sorted((ROOT / "examples").rglob("*.sched")):
        try:
            yield path, schedlang.load(str(path), ranks=ranks).table
        except SchedError:                              # not for so many ranks, or with counts
            continue


@needs_compiler
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 8, 9, 16])
def test_every_shipped_schedule_is_written_as_its_normal_form_says(ranks):
    names, all_tables = zip(*shipped(ranks))
    for name, loops, rows, expected in zip(names, said(all_tables), said(all_tables, most=0), map(wanted, all_tables)):
        assert loops == expected and rows == expected, name


def right(t):
    return verify(t.with_columns(transport=None)).ok


@needs_compiler
@settings(max_examples=15, deadline=None)
@given(st.lists(tables(flawless=True), min_size=1, max_size=6))
def test_random_tables_are_written_as_their_normal_form_says(some):
    some = [t for t in some if right(t)]
    assert said(some) == said(some, most=0) == list(map(wanted, some))


@pytest.mark.nightly
@needs_compiler
@pytest.mark.parametrize("seed", range(40))
def test_many_random_tables_are_written_as_their_normal_form_says(seed):
    rng = random.Random(seed)
    some = [t for t in (working_table(rng, flawless=True) for _ in range(50)) if right(t)]
    assert said(some) == list(map(wanted, some))


def test_what_is_irregular_is_a_table():
    """A file of statements of which no two follow each other alike would take compilers minutes."""
    rng = random.Random(7)
    t = next(t for t in (working_table(rng, flawless=True) for _ in range(200)) if len(t) > 60 and right(t))
    text = schedule_part(kernel(t, dtype=named("int32")).text)
    tabled = schedule_part(kernel(t, dtype=named("int32"), most=0).text)
    assert "follow(" not in text and "_STEPS[" in tabled and "lane.take(m[1]" in tabled


def test_every_dtype_has_a_name():
    for dtype in DTYPES:
        assert "using T = " in source(ring(2), dtype=dtype, op="max")
