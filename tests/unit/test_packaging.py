"""What is installed, and under which names. That wheel, sdist, editable install and clone work is tried by .ci/run."""

import ast
import importlib
import re
import sys
from pathlib import Path

import pytest

import schedlang
from schedlang.version import __version__

ROOT = Path(__file__).parents[2]
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_version_is_written_once():
    assert schedlang.__version__ == __version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("target", re.findall(r'= "(schedlang[\w.]*:\w+)"', PYPROJECT))
def test_entry_points_exist(target):
    module, name = target.split(":")
    assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize(("link", "folder"), [
    ("backends", "backends"), ("grammars", "grammars"), ("library", "examples")])
def test_a_clone_has_the_folders_inside_the_package(link, folder):
    assert (ROOT / "schedlang" / link).resolve() == ROOT / folder


def test_what_a_wheel_holds():
    builder = pytest.importorskip("hatchling.builders.wheel", reason="no hatchling; .ci/run builds the wheel")
    held = {file.distribution_path for file in builder.WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {"schedlang/grammars/sched.lark", "schedlang/grammars/sched.tmLanguage.json",
            "schedlang/backends/numpy/__init__.py", "schedlang/py.typed",
            "schedlang/library/allreduce/ring.sched", "schedlang/cli/main.py", "schedlang/render/page/page.js"} <= held
    assert all(path.startswith("schedlang/") for path in held), "nothing but our own package is installed"
    assert {Path(path).suffix for path in held if path.startswith("schedlang/library/")} == {".sched"}


def test_every_package_that_is_imported_is_declared():
    declared = set(re.findall(r'"([\w-]+)[>=]', re.search(r"^dependencies = (.*)$", PYPROJECT, re.M)[1]))
    optional = {"torch", "cupy", "pygments"}  # imported only for arrays of theirs, and by Pygments itself
    imported = set()
    for path in [*(ROOT / "schedlang").rglob("*.py"), *(ROOT / "backends").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else (
                [node.module] if isinstance(node, ast.ImportFrom) else [])
            imported |= {name.partition(".")[0] for name in names}
    assert imported - set(sys.stdlib_module_names) - {"schedlang"} - optional == declared
