"""Every file of tests/cases: `verify` finds what stands on its lines, no more. See tests/cases/README.md."""

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from schedlang.diagnostics import Diagnostic, SchedError, Severity
from schedlang.expand import constant_value, expand, load_program
from schedlang.ir.table import OpTable
from schedlang.syntax import parse_value
from schedlang.verify import Verdict, verify
from schedlang.verify.sends import Sends
from tests.comparison import MODELS, compare

CASES = sorted((Path(__file__).parent / "cases").glob("*.sched"))
MARK = re.compile(r"#!\s*(SL\d{3}|facts)(?::\s*(.*?))?\s*(?=#!|$)")


@dataclass
class Case:
    """What the head and the marks of a case file say."""

    options: dict[str, str] = field(default_factory=dict)
    findings: list[tuple[str, int, str]] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)


def read_case(path: Path) -> Case:
    case = Case()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if head := re.fullmatch(r"# ([a-z-]+)(?::\s*(.*))?", line):
            case.options[head[1]] = head[2] or ""
        for mark in MARK.finditer(line):
            if mark[1] == "facts":
                case.facts.update(pair.split("=") for pair in mark[2].split())
            else:
                case.findings.append((mark[1], number, mark[2] or ""))
    return case


def expanded(path: Path, case: Case) -> tuple[OpTable | None, list[Diagnostic]]:
    params = {}
    for pair in case.options.get("params", "").split():
        name, text = pair.split("=")
        params[name] = constant_value(parse_value(text, name))
    try:
        program = load_program(str(path))
    except SchedError as e:
        return None, list(e.diagnostics)
    limit = {"max_ops": int(case.options["max-ops"])} if "max-ops" in case.options else {}
    return expand(program, path.stem, ranks=int(case.options["ranks"]), params=params, **limit)


def judge(path: Path, case: Case) -> tuple[list[Diagnostic], Verdict | None]:
    """All findings; the verdict, where there is a table to judge."""
    table, findings = expanded(path, case)
    if table is None:
        return findings, None
    sends = {"sends": Sends.parse(case.options["sends"])} if "sends" in case.options else {}
    verdict = verify(table, require_agreement="require-agreement" in case.options, **sends)
    return [*findings, *verdict.diagnostics], verdict


def words(d: Diagnostic) -> str:
    return " ".join([d.message, *(n.message for n in d.notes), d.help or ""]).lower()


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_case(path: Path) -> None:
    case = read_case(path)
    found, verdict = judge(path, case)
    found = [d for d in found if d.severity > Severity.NOTE]
    places = sorted((d.code, d.location.line if d.location else 0) for d in found)
    assert places == sorted((code, line) for code, line, _ in case.findings), [words(d) for d in found]
    for code, line, text in case.findings:
        said = [words(d) for d in found if d.code == code and d.location.line == line]
        assert any(text.lower() in s for s in said), said
    for name, value in case.facts.items():
        assert verdict is not None
        said = verdict.facts[name]
        assert ({True: "yes", False: "no"}[said] if isinstance(said, bool) else str(said)) == value


def expands(path: Path) -> bool:
    """Whether there is a table to judge: nothing is expected of the text or of its expansion (SL1xx, SL2xx)."""
    return all(code >= "SL300" for code, _, _ in read_case(path).findings)


@pytest.mark.parametrize("path", [p for p in CASES if expands(p)], ids=lambda p: p.stem)
def test_the_interpreter_says_the_same(path: Path) -> None:
    table, findings = expanded(path, read_case(path))
    assert table is not None, findings
    for sends in MODELS:
        assert compare(table, sends).disagreement is None


def test_there_are_cases() -> None:
    assert len(CASES) > 50
