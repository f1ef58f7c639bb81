"""What the commands print, to the letter: golden files, one a command.

`pytest tests/test_golden.py --update` writes them anew.
"""

from pathlib import Path

import pytest

from schedlang.cli.main import main

ROOT = Path(__file__).parents[1]
GOLDEN = Path(__file__).parent / "golden"

COMMANDS = {
    "verify_ring": "verify examples/allreduce/ring.sched --ranks 4",
    "verify_concise": "verify tests/cases/missing.sched --ranks 4 --format concise",
    "verify_json": "verify tests/cases/missing.sched --ranks 4 --format json",
    "verify_github": "verify tests/cases/syntax_errors.sched tests/cases/missing.sched --ranks 3..6 --format github",
    "verify_sarif": "verify tests/cases/missing.sched tests/cases/none.sched --ranks 3..6 --format sarif",
    "deadlock": "verify tests/cases/cycle_send_then_recv.sched --ranks 4",
    "race": "verify tests/cases/down_overtakes_up.sched --ranks 2",
    "disagreement": "verify tests/cases/one_shot_must_agree.sched --ranks 4 --require-agreement",
    "syntax_errors": "verify tests/cases/syntax_errors.sched",
    "show_halving": "show examples/allreduce/halving_doubling.sched --ranks 4",
    "show_one_rank": "show examples/broadcast/staged_chain.sched --ranks 3 -p k=2 --rank 1",
    "json_table": "compile examples/broadcast/staged_chain.sched --ranks 2 -p k=1 --target json",
    "json_custom": "compile examples/custom/scan.sched --ranks 2 --target json",
    "explain": "explain deadlock",
    "msccl_never_told": "verify tests/msccl/never_told.xml",
    "msccl_wrong_offset": "verify tests/msccl/wrong_offset.xml -p inplace=true",
    "msccl_concise": "verify tests/msccl --format concise",
    "msccl_github": "verify tests/msccl/wrong_offset.xml --format github",
    "msccl_sarif": "verify tests/msccl/never_told.xml --format sarif",
    "msccl_why": "verify tests/msccl/wrong_offset.xml --why 16@rank=1 20",
    "msccl_show": "show tests/msccl/wrong_offset.xml -p inplace=false",
    "msccl_json": "compile tests/msccl/never_told.xml -p inplace=false --target json",
    "diff_order": "diff examples/allreduce/ring.sched tests/sketches/recursive_doubling.sched --ranks 4",
    "diff_ranges": "diff examples/allreduce/ring.sched tests/cases/one_shot_disagrees.sched --ranks 2..5",
    "diff_faulty": "diff tests/cases/cycle_send_then_recv.sched tests/cases/inplace_gather.sched --ranks 3",
    "diff_json": "diff tests/sketches/bcast_sag.sched tests/sketches/staged_chain.sched --ranks 4 -b k=2 --format json",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_golden(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], update: bool) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    status = main(COMMANDS[name].split())
    said = capsys.readouterr()
    printed = f"$ schedlang {COMMANDS[name]}\n{said.out}{said.err}exit {status}\n"
    path = GOLDEN / f"{name}.txt"
    if update:
        path.write_text(printed, encoding="utf-8")
    assert printed == path.read_text(encoding="utf-8")


def test_no_golden_file_without_a_command() -> None:
    assert {p.stem for p in GOLDEN.glob("*.txt")} == set(COMMANDS)
