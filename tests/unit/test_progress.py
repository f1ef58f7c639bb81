"""The line on a terminal that says which case is at work."""

import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pty = pytest.importorskip("pty", reason="pseudo-terminals are for Unix")

ROOT = Path(__file__).parents[2]

MANY = ["verify", "examples/allreduce/ring.sched", "--ranks", "2..6"]

SLOW = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)      # a shell may start what runs behind it without
from schedlang.cli import main, progress
import schedlang.verify as v
progress.PATIENCE = progress.REST = 0.02
whole = v.verify
def slow(*a, **k):
    time.sleep(0.05)
    return whole(*a, **k)
v.verify = slow
sys.exit(main.main(sys.argv[1:]))
"""


def on_a_terminal(arguments, *, interrupt=False, term="xterm", columns=None):
    """(exit status, standard output, what the terminal got on the standard error)."""
    ours, theirs = pty.openpty()
    if columns:
        import fcntl
        import struct
        import termios

        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([sys.executable, "-c", SLOW, *arguments], cwd=ROOT, stdout=subprocess.PIPE,
                               stderr=theirs, env={**os.environ, "TERM": term, "PYTHONPATH": str(ROOT)})
    os.close(theirs)
    said, end = b"", time.monotonic() + 60
    while time.monotonic() < end:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:         # the other end is closed
                break
            if not piece:
                break
            said += piece
            if interrupt and b"case" in said:
                process.send_signal(signal.SIGINT)
                interrupt = False
    printed = process.stdout.read()
    process.stdout.close()
    os.close(ours)
    return process.wait(60), printed, said.decode()


def screen(said):
    """What a terminal shows after it got these characters."""
    lines = []
    for line in said.split("\n"):
        lines.append(line.rsplit("\x1b[2K", 1)[-1].strip("\r"))
    return [line for line in lines if line]


def test_the_line_says_which_case_comes_and_goes():
    status, printed, said = on_a_terminal(MANY)
    alone = subprocess.run([sys.executable, "-m", "schedlang", *MANY], cwd=ROOT, capture_output=True,
                           env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60)
    assert (status, printed) == (alone.returncode, alone.stdout) and status == 0
    assert alone.stderr == b""
    shown = re.findall(r"examples/allreduce/ring.sched::ring  case (\d+) of (\d+): ranks (\d+), channels (\d+)", said)
    assert len(shown) > 2 and {of for _, of, _, _ in shown} == {"8"}
    assert [int(k) for k, *_ in shown] == sorted(int(k) for k, *_ in shown)
    assert screen(said) == []


def test_what_is_read_from_json_stays_json():
    status, printed, said = on_a_terminal([*MANY, "--format", "json"])
    assert status == 0 and printed.startswith(b'{\n "format": "schedlang-verify"') and printed.endswith(b"}\n")
    assert "case" in said and screen(said) == []


def test_a_dumb_terminal_gets_nothing():
    assert on_a_terminal(MANY, term="dumb")[2] == ""


def test_the_line_fits_the_terminal():
    said = on_a_terminal(MANY, columns=30)[2]
    lines = [line for line in said.split("\r\x1b[2K") if line]
    assert lines and all(len(line) <= 29 for line in lines) and screen(said) == []


def test_an_interrupt_leaves_one_line():
    status, printed, said = on_a_terminal([*MANY[:-1], "2..60"], interrupt=True)      # 58 sizes: never over before
    assert (status, printed, screen(said)) == (130, b"", ["interrupted"])


def test_the_line_is_gone_before_results_are_printed(tmp_path):
    """Here both go to one terminal: no result stands in the line."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.sched").write_text(f"schedule {name}(ranks):\n    collective broadcast(0)\n"
                                                "    for r in 1..ranks:\n        send data[0] from 0 to r\n")
    ours, theirs = pty.openpty()
    plain = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    process = subprocess.Popen([sys.executable, "-c", SLOW, "verify", "."], cwd=tmp_path, stdout=theirs,
                               stderr=theirs, env=plain)
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    assert process.wait(60) == 0
    shown = screen(said.decode())
    assert "case 2 of" in said.decode() and not any("case 2 of" in line for line in shown)
    assert sum(line.startswith("ok  ") for line in shown) == 2
