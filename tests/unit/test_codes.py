"""The table of findings."""

import ast
import re
from pathlib import Path

import pytest

import schedlang.codes
from schedlang.codes import CODES, FAULTY, GROUPS, UNUSABLE, find

PACKAGE = Path(schedlang.codes.__file__).parent


@pytest.mark.parametrize("code", CODES.values(), ids=list(CODES))
def test_every_code_is_explained(code):
    assert re.fullmatch(r"SL[1-8]\d\d", code.code)
    assert re.fullmatch(r"[a-z]+(-[a-z0-9]+)*", code.name)
    assert code.exit in (FAULTY, UNUSABLE)
    assert code.summary.endswith(".") and len(code.summary) > 15
    assert len(code.detail) > 60 and len(code.mend) > 20
    assert code.summary not in code.detail


def test_names_and_codes_are_unique():
    assert len({c.name for c in CODES.values()}) == len(CODES)
    assert [c for group in GROUPS.values() for c in group] == list(CODES.values())


def test_find_takes_code_or_name():
    assert find("sl305") is find("deadlock") is find("DEADLOCK") is CODES["SL305"]
    assert find("SL999") is None


def test_every_code_in_the_source_exists_and_every_code_is_used():
    used = set()
    for path in [*PACKAGE.rglob("*.py"), *(PACKAGE.parent / "backends").rglob("*.py")]:
        if path.name != "codes.py":
            used |= set(re.findall(r"\bSL\d{3}\b", path.read_text(encoding="utf-8")))
    assert used <= set(CODES), f"unknown codes in the source: {sorted(used - set(CODES))}"
    assert set(CODES) <= used, f"codes that nothing reports: {sorted(set(CODES) - used)}"


SOURCES = [path for folder in (PACKAGE, PACKAGE.parent / "backends") for path in folder.rglob("*.py")
           if "library" not in path.parts]


def texts(node):
    """The constant texts that an expression can begin with."""
    match node:
        case ast.Constant(str(text)):
            yield text
        case ast.JoinedStr([first, *_]):
            yield from texts(first)
        case ast.IfExp():
            yield from [*texts(node.body), *texts(node.orelse)]
        case ast.BoolOp():
            for value in node.values:
                yield from texts(value)
        case ast.BinOp():
            yield from texts(node.left)


def _last(call):
    """The last argument, where it is a help."""
    return call.args[-1:] if ast.unparse(call.func) in ("_bad", "_Fault", "_collapse") else []


def test_helps_begin_with_a_small_letter():
    helps = [text for path in SOURCES for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
             if isinstance(node, ast.Call) and ast.unparse(node.func) != "click.option"
             for given in [*(k.value for k in node.keywords if k.arg == "help"), *_last(node)] for text in texts(given)]
    assert len(helps) > 50 and [text for text in helps if text[:1].isupper()] == []
