"""Every shipped schedule, proved over the worlds of its own `verify` line, and listed where people look for it."""

import re
from itertools import product
from pathlib import Path

import pytest

from schedlang.diagnostics import Severity
from schedlang.expand import cases, expand, load_program
from schedlang.verify import verify
from tests.closed_forms import EXAMPLES

FILES = sorted(EXAMPLES.rglob("*.sched"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(EXAMPLES)))
def test_its_own_verify_line(path: Path) -> None:
    program = load_program(str(path))
    for name in program.names:
        for case in cases(program, name, ranks=None, params={}):
            given = dict(case)
            ranks = given.pop("ranks", None)
            table, findings = expand(program, name, ranks=ranks, params=given)
            assert table is not None, findings
            v = verify(table)
            assert v.ok, (case, v.diagnostics)
            found = (*findings, *v.diagnostics)
            assert all(d.severity < Severity.WARNING for d in found), (case, found)
            assert v.facts.get("agreement") in (True, None), case


def test_no_name_stands_twice() -> None:
    """Names of the library are found without an import, so each schedule and function has one of its own."""
    programs = [load_program(str(path)) for path in FILES]
    for names in ([n for p in programs for n in p.names], [n for p in programs for n in p.root.functions]):
        assert sorted(names) == sorted(set(names))


def test_names_of_helpers_tell_what_they_are_of() -> None:
    """Functions of the library are found from everywhere, so none has a name that anybody would give to one."""
    names = {n for path in FILES for n in load_program(str(path)).root.functions}
    assert not names & {"low", "wide", "up", "down", "depth", "place", "sits", "parent", "peer", "next", "left"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(EXAMPLES)))
def test_no_line_is_too_long(path: Path) -> None:
    """`schedlang fmt` lays out statements; docstrings and comments are left as their author broke them."""
    assert [line for line in path.read_text(encoding="utf-8").splitlines() if len(line) > 120] == []


def test_readme_lists_every_schedule() -> None:
    """Once, with the file that it is in."""
    listed = re.findall(r"^\| \[`(\w+)`\]\((\S+)\)", (EXAMPLES / "README.md").read_text(), re.M)
    shipped = [(name, str(path.relative_to(EXAMPLES))) for path in FILES for name in load_program(str(path)).names]
    assert sorted(listed) == sorted(shipped)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(EXAMPLES)))
def test_sizes_below_one_are_refused(path: Path) -> None:
    """Or, where nothing depends on them, change nothing: two negative sizes must not make a world of the right size."""
    program = load_program(str(path))
    for name in program.names:
        choices = {"inplace": (False,), "staged": (False,), "tree_inside": (False,), "tree_between": (False, True)}
        lists = {"host": [0, 1, 1]}
        sizes = [p for p in program.parameters(name) if p not in ("ranks", "counts", "root", "host", "owners")]
        ranks = 4 if "ranks" in program.parameters(name) else None
        for values in product(*(choices.get(p, (-2, -1, 0, 2)) for p in sizes)):
            given = {**dict(zip(sizes, values, strict=True)),
                     **{p: lists[p] for p in program.parameters(name) if p in lists}}
            if "counts" in program.parameters(name) or all(type(v) is bool or v > 0 for v in values):
                continue
            table, findings = expand(program, name, ranks=ranks, params=given)
            if table is None:
                assert {d.code for d in findings} <= {"SL205", "SL207"}, (given, findings)
            else:
                assert verify(table).ok and set(given) & {"k"}, given
