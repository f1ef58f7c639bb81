"""What is said of each file of tests/cases, to the letter: findings with notes, help and witnesses, proofs, facts.

`pytest tests/test_case_reports.py --update` writes golden/cases anew.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedlang.render.json import diagnostic, plain
from schedlang.render.terminal import render
from tests.test_cases import CASES, judge, read_case

GOLDEN = Path(__file__).parent / "golden" / "cases"


def report(path: Path) -> Iterator[str]:
    case = read_case(path)
    findings, verdict = judge(path.relative_to(Path.cwd()), case)
    yield render(findings, format="full", color=False, width=120)
    for d in findings:
        said = diagnostic(d)
        yield f"{said['code']} {said['severity']} count {said['count']} witness {json.dumps(said['witness'])}\n"
    if verdict is not None:
        yield from (f"{proof.name}: {proof.state}{proof.detail and f' ({proof.detail})'}\n" for proof in verdict.proofs)
        yield from (f"{name} = {json.dumps(plain(value))}\n" for name, value in verdict.facts.items())


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_report(path: Path, monkeypatch: pytest.MonkeyPatch, update: bool) -> None:
    monkeypatch.chdir(path.parent)
    said = "".join(report(path))
    golden = GOLDEN / f"{path.stem}.txt"
    if update:
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(said, encoding="utf-8")
    assert said == golden.read_text(encoding="utf-8")


def test_no_report_without_a_case() -> None:
    assert {p.stem for p in GOLDEN.glob("*.txt")} == {p.stem for p in CASES}
