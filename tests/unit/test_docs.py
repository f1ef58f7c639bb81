"""What the README and the documentation show is what happens."""

import re
import textwrap
from pathlib import Path

import pytest
from generators import options
from generators import schedules as gallery

import schedlang
from schedlang.cli import main
from schedlang.expand import cases, expand, load_program, load_text
from schedlang.ir.table import Transport
from schedlang.ops import BUILTINS, COLLECTIVES, REDUCE_OPS
from schedlang.source import Source
from schedlang.syntax import format_file, parse, tables
from schedlang.verify import dataflow, verify
from schedlang.verify.timing import flow, slots
from tests.unit.test_flow import ring as passing_ring

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LANGUAGE = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
QUICKSTART = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")


def blocks(text, language="sched"):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def is_file(block):
    return re.match(r"(#.*\n)*(schedule|fn|import) ", block) is not None


SOURCES = [block for text in (README, LANGUAGE, QUICKSTART) for block in blocks(text)]


@pytest.mark.parametrize("block", SOURCES, ids=lambda b: b.split("\n")[0][:40])
def test_every_piece_of_language_parses(block):
    text = block if is_file(block) else "schedule piece(ranks):\n" + re.sub(r"^(?=.)", "    ", block, flags=re.M)
    _, findings = parse(Source("piece", text))
    assert not findings


@pytest.mark.parametrize("block", [b for b in SOURCES if is_file(b)], ids=lambda b: b.split("\n")[0][:40])
def test_every_shown_file_has_the_usual_layout(block):
    file, _ = parse(Source("piece", block))
    assert format_file(file) == block


@pytest.mark.parametrize("block", [b for b in SOURCES if b.startswith("schedule") and "shout" not in b],
                         ids=lambda b: b.split("\n")[0][:40])
def test_every_shown_schedule_is_right(block):
    program = load_text(block)
    for values in cases(program, program.names[0], ranks=None, params={}):
        params = {k: v for k, v in values.items() if k != "ranks"}
        table, findings = expand(program, program.names[0], ranks=values["ranks"], params=params)
        assert table is not None, findings
        verdict = verify(table)
        assert verdict.ok, (values, verdict.diagnostics)


def test_the_mistake_that_the_quickstart_proposes_is_found_as_it_says():
    right, wrong = re.search(r"Change `(.*?)` into `(.*?)`", QUICKSTART).groups()
    (text,) = (b for b in blocks(QUICKSTART) if right in b)
    program = load_text(text.replace(right, wrong))
    (found,) = verify(expand(program, "pass", ranks=2)[0]).diagnostics
    assert found.code == "SL504"
    assert "data[3] on rank 1" in found.message and "should hold chunk 3 of data from rank 0" in found.message


def test_the_page_on_the_command_line_lists_all_options(update):
    made = options.options()
    page = ROOT / "docs" / "commands.md"
    before, title, listed = page.read_text(encoding="utf-8").partition("## All options\n\n")
    if update:
        page.write_text(before + title + made, encoding="utf-8")
    else:
        assert listed == made, "if this is meant: pytest tests/unit/test_docs.py --update"


PAGES = sorted(p.relative_to(ROOT) for p in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
               if not {"generated", "_build"} & set(p.parts))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", text):
        assert (ROOT / page.parent / target).exists(), target
    for target in re.findall(r"^```\{(?:literal)?include\} (\S+)$", text, re.M):
        made = "generated" in target        # by the build; only pages of the documentation have such parts
        assert page.parts[0] == "docs" if made else (ROOT / page.parent / target).exists(), target


def test_the_page_on_schedules_shows_each_of_them():
    made = gallery.pages()
    page, overview = made.pop("schedules.md"), made.pop("schedules-overview.md")
    names = [name for path in (ROOT / "examples").rglob("*.sched") for name in load_program(str(path)).names]
    assert sorted(re.findall(r"^### (\w+)$", page, re.M)) == sorted(names) and len(set(names)) == len(names)
    assert sorted(re.findall(r"\| \[`(\w+)`\]\(#\1\)", overview)) == sorted(names)
    assert overview.startswith("p ranks, n bytes") and not re.search(r"^#|\.sched|\.md", overview, re.M)
    assert set(made) == {f"extra/pictures/{name}.{form}" for name in names for form in ("svg", "html")}
    assert set(re.findall(r'"(pictures/[^"]+)"', page)) == {name.removeprefix("extra/") for name in made}
    for path in re.findall(r"^```\{literalinclude\} /\.\./(\S+)$", page, re.M):
        assert (ROOT / path).exists()
    assert not any(str(ROOT) in text for text in (page, *made.values())), "no path of the machine that builds it"


@pytest.mark.parametrize("file, wanted", [
    # Not one owner, nor one part.
    ("allreduce/two_tier", {"ranks": 4, "host": [0, 0, 1, 1], "owners": [0, 1], "k": 4}),
    ("broadcast/staged_chain", {"ranks": 4, "k": 2}),
    ("allgather/pat", {"ranks": 4, "carry": 2, "inplace": False, "staged": False}),
])
def test_a_picture_shows_a_case_that_says_something(file, wanted):
    (name,) = (program := load_program(str(ROOT / "examples" / f"{file}.sched"))).names
    assert gallery.picture_case(program, name)[1] == wanted


def test_the_language_page_names_everything():
    for name in (*COLLECTIVES, *REDUCE_OPS, *BUILTINS):
        assert re.search(rf"`[^`]*\b{name}\b[^`]*`", LANGUAGE), f"docs/language.md does not mention {name}"


def test_the_readme_shows_every_word_of_the_language():
    overview = README.partition("The rest of the language")[2]
    shown = " ".join([*blocks(README), *re.findall(r"`[^`]+`", overview)])
    words = {word for word in tables.load().literals if word.isidentifier()}
    assert len(words) > 40 and {w for w in words if not re.search(rf"\b{w}\b", shown)} == set()
    for written in ("on [0, 2, 4] reversed", "for input=X[a:b], output=Y[c:d]", "-p counts=@c.csv"):
        assert f"{written}`" in overview


@pytest.fixture
def tour(tmp_path, monkeypatch):
    """The versions of shout.sched that the README goes through, as functions that put them into the current folder."""
    (first,) = [b for b in blocks(README) if b.startswith("schedule shout")]
    versions = {
        "faulty": first,
        "clean": first.replace("for r in 0..ranks:", "for r in 1..ranks:"),
        "missing": first.replace("for r in 0..ranks:", "for r in 1..ranks:").replace("for r in 1..", "for r in 2..", 1),
    }
    assert len(set(versions.values())) == 3
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    return lambda name: (tmp_path / "shout.sched").write_text(versions[name])


def test_the_tour_of_the_readme(tour, capsys, update):
    shown, text = blocks(README, "console"), README
    assert len(shown) == 5
    for version, block in zip(("faulty", "clean", "missing", "clean", "clean"), shown, strict=True):
        tour(version)
        command, _, output = block.partition("\n")
        assert command.startswith("$ schedlang ")
        main.main(command.split()[2:])
        printed = capsys.readouterr().out
        if update:
            text = text.replace(block, f"{command}\n{wrapped(printed)}")
            continue
        if " run " in command:  # times differ
            output, printed = (re.sub(r"\d[\d.,e+-]*( ms| s)?", "#", t) for t in (output, printed))
        assert output.split() == printed.split(), "if this is meant: pytest tests/unit/test_docs.py --update"
    if update:
        (ROOT / "README.md").write_text(text, encoding="utf-8")


def wrapped(text):
    """Long lines broken, but for source lines with their underline."""
    lines = []
    for line in text.splitlines():
        if len(line) > 118 and not re.match(r" *\d* \|", line):
            lines += textwrap.wrap(line, 118, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False)
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def test_the_readmes_python(tour):
    tour("clean")
    (code,) = blocks(README, "python")
    names = {}
    exec(code, names)
    assert all((out == names["np"].arange(10.0) * 6).all() for out in names["outputs"])


def test_the_facts_of_a_verdict_are_all_listed(monkeypatch):
    table = COMMANDS.partition("### Facts")[2].partition("\n## ")[0]
    listed = {name for row in re.findall(r"^\| (`.*?) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)}
    ring = schedlang.load(ROOT / "examples/allreduce/ring.sched", ranks=4)
    found = {*ring.verify(dtype="float16", accumulate="float32").facts}
    monkeypatch.setattr(dataflow, "STATE_LIMIT", 0)     # fingerprints, which leave a doubt
    whole, _ = expand(load_text("schedule s(ranks):\n    collective broadcast(0)\n    chunks 2\n"
                                "    send data[0:2] from 0 to 1\n"), "s", ranks=2)
    carried = verify(whole.with_columns(transport=Transport("LL", 8)))
    monkeypatch.setattr(slots, "FEW", 100)      # chunks that are passed on are counted, and that takes too long
    monkeypatch.setattr(flow, "WORK", 100)
    inexact = verify(passing_ring(1000, depth=1001))
    custom, _ = expand(load_text("schedule s(ranks):\n    collective custom\n    buffer input[1]\n"), "s", ranks=2)
    found |= {*ring.verify(require_agreement=True).facts, *carried.facts, *inexact.facts, *verify(custom).facts}
    assert found == listed
