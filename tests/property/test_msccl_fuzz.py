"""Whatever stands in an MSCCL file: each command gives a result or says what is wrong, and soon."""

import contextlib
import io
import random
import re
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schedlang.cli.main import main
from tests.msccl_bases import BASES, moves
from tests.msccl_mutants import MUTATIONS, mutate
from tests.strategies_msccl import files

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}
SECONDS = 10
"""CPU time that no command may take for a file of some kilobytes; they take a fraction of one."""

COMMANDS = {
    "verify": ("verify", "{file}"),
    "verify as JSON": ("verify", "{file}", "--format", "json"),
    "verify at depth 1": ("verify", "{file}", "--sends", "buffered=1"),
    "verify for a runtime": ("verify", "{file}", "--runtime", "rccl", "--bytes", "1MiB"),
    "run": ("run", "{file}", "--size", "36KiB", "--check"),
    "run plainly": ("run", "{file}", "--size", "9KiB", "--backend", "interpret"),
    "show": ("show", "{file}"),
    "show as HTML": ("show", "{file}", "--format", "html", "-o", "{out}.html"),
    "to JSON": ("compile", "{file}", "--target", "json", "-o", "{out}.json"),
    "to source": ("compile", "{file}", "--target", "sched", "-o", "{out}.sched"),
    "diff": ("diff", "{file}", "{ring}"),
    "diff with itself": ("diff", "{file}", "{file}"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz")
    (path / "ring.xml").write_text(BASES["ring"](), encoding="utf-8")
    return path


def judged(folder: Path, text: str, *commands: str) -> set[int]:
    """The exit statuses of commands on a file with this text; nothing but results and findings comes out."""
    file, statuses = folder / "fuzz.xml", set()
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    names = {"file": str(file), "out": str(folder / "out"), "ring": str(folder / "ring.xml")}
    for command in commands:
        out, err, began = io.StringIO(), io.StringIO(), time.process_time()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main([word.format(**names) for word in COMMANDS[command]])
        assert status in (0, 1, 2), (command, err.getvalue())
        assert "Traceback" not in out.getvalue() + err.getvalue()
        assert time.process_time() - began < SECONDS, command
        if status == 2:
            assert re.search(r"error\[SL\d{3}\]|\"SL\d{3}\"", out.getvalue() + err.getvalue()), command
        statuses.add(status)
    return statuses


COMMAND = st.sampled_from(sorted(COMMANDS))

@settings(max_examples=150, **QUIET)
@given(text=files(), command=COMMAND)
def test_files_thrown_together(folder, text, command):
    judged(folder, text, "verify", command)


@settings(max_examples=100, **QUIET)
@given(seed=st.integers(0, 1 << 30), kinds=st.lists(st.sampled_from(sorted(MUTATIONS)), max_size=3), command=COMMAND)
def test_damaged_files(folder, seed, kinds, command):
    rng = random.Random(seed)
    text = rng.choice([*BASES.values(), lambda: moves(rng)])()
    for kind in kinds:
        text = mutate(text, kind, rng) or text
    judged(folder, text, command)


WORDS = ["-1", "0", "1", "2", "7", "70", "255", "32768", "2147483647", "4294967296", "9" * 25, "", " 1", "1 ", "+1",
         "0x10", "1.0", "1e9", "x", "é", "\0", "&lt;", "&#0;", "&#55296;", "&x;", "<", "o", "s", "rrcs", "nop", "LL",
         "\ud800", "'"]
SPOTS = [r'"[^"]*"', r'"[^"]*"', r'"[^"]*"', r' \w+="[^"]*"', r"\w+", r"<[^>]*>", r"."]


@settings(max_examples=150, **QUIET)
@given(seed=st.integers(0, 1 << 30), hits=st.integers(1, 3), command=COMMAND)
def test_files_with_other_words(folder, seed, hits, command):
    """Values and names of attributes and tags changed, doubled, left out; quotes and brackets lost."""
    rng = random.Random(seed)
    text = rng.choice(list(BASES.values()))()
    for _ in range(hits):
        found = list(re.finditer(rng.choice(SPOTS), text))
        hit = rng.choice(found) if found else None
        if hit is not None:
            old = hit[0]
            new = rng.choice([f'"{rng.choice(WORDS)}"' if old[0] == '"' else rng.choice(WORDS), "", old + old])
            text = text[:hit.start()] + new + text[hit.end():]
    judged(folder, text, command)


@pytest.mark.parametrize("base", sorted(BASES))
def test_each_command_takes_each_file(folder, base):
    for command in ("verify", "verify as JSON", "run", "run plainly", "show", "to JSON", "to source",
                    "diff with itself"):
        assert judged(folder, BASES[base](), command) == {0}, command


@pytest.mark.nightly
@settings(max_examples=4000, **QUIET)
@given(text=files(), command=COMMAND)
def test_many_files_thrown_together(folder, text, command):
    judged(folder, text, "verify", command)
