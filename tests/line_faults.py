"""Programs with a fault: one line of a text changed, so that it may or may not still be right."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

SIMPLE = re.compile(r"^ +(send|recv|reduce|copy|record|wait|use) ")
FIXED = re.compile(r"^(schedule|fn) |^ +(collective|chunks|let size)\b")


def planted(rng: random.Random, text: str) -> tuple[str, list[int], str] | None:
    """The text with one fault, the lines that were changed (counted from 1), and which kind of fault: lines keep their
    numbers. None where the line drawn has no such fault."""
    lines = text.splitlines()
    kind = rng.choice([*FAULTS, *RARE])
    found = FAULTS[kind](rng, lines)
    return None if found is None else ("\n".join(lines) + "\n", found, kind)


def _simple(rng: random.Random, lines: list[str], word: str = "") -> int | None:
    at = [i for i, x in enumerate(lines) if SIMPLE.match(x) and x.strip().startswith(word)]
    return rng.choice(at) if at else None


def _drop(rng: random.Random, lines: list[str]) -> list[int] | None:
    at = _simple(rng, lines)
    return None if at is None else _leave_out(lines, at)


def _drop_wait(rng: random.Random, lines: list[str]) -> list[int] | None:
    at = _simple(rng, lines, "wait")
    return None if at is None else _leave_out(lines, at)


def _leave_out(lines: list[str], at: int) -> list[int]:
    margin = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    lines[at] = f"{margin}let nothing = 0"
    return [at + 1]


def _swap(rng: random.Random, lines: list[str]) -> list[int] | None:
    at = [i for i in range(len(lines) - 1) if SIMPLE.match(lines[i]) and SIMPLE.match(lines[i + 1])
          and _margin(lines[i]) == _margin(lines[i + 1])]
    if not at:
        return None
    i = rng.choice(at)
    lines[i], lines[i + 1] = lines[i + 1], lines[i]
    return [i + 1, i + 2]


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip())


def _twice(rng: random.Random, lines: list[str]) -> list[int] | None:
    """Another line takes the place of one."""
    at, other = _simple(rng, lines), _simple(rng, lines)
    if at is None or other is None or at == other:
        return None
    lines[at] = " " * _margin(lines[at]) + lines[other].strip()
    return [at + 1]


def _replace(pattern: str, *by: str) -> Callable[[random.Random, list[str]], list[int] | None]:
    """A fault that replaces one place where a pattern fits."""
    def fault(rng: random.Random, lines: list[str]) -> list[int] | None:
        at = [(i, m) for i, x in enumerate(lines) if not FIXED.match(x) for m in re.finditer(pattern, x)]
        if not at:
            return None
        i, m = rng.choice(at)
        new = m.expand(rng.choice(by))
        if new == m.group():
            return None
        lines[i] = lines[i][: m.start()] + new + lines[i][m.end() :]
        return [i + 1]
    return fault


FAULTS: dict[str, Callable[[random.Random, list[str]], list[int] | None]] = {
    "drop": _drop,
    "drop wait": _drop_wait,
    "swap": _swap,
    "another line": _twice,
    "index": _replace(r"\[([^\[\]:]+)\]", r"[\1 + 1]", r"[\1 - 1]", r"[(\1) // 2]", "[0]"),
    "rank": _replace(r"\b(on|to|from) (r \+ 1|r - 1|r|v|p|q)\b", r"\1 (\2 + 1) % ranks", r"\1 (\2 - 1) % ranks",
                     r"\1 0"),
    "apart": _replace(r"step:$", "if true:"),
    "waits for a later one": _replace(r"wait (\w+)\[(\w+)\]", r"wait \1[max(\2, 1)]", r"wait \1[\2 // 2 * 2 + 1]"),
    "stream": _replace(r"stream ([^:]+):", "stream other:", "stream up:", "stream 0:", "stream main:"),
    "channel": _replace(r"chan \S+", "chan other", "chan link"),
    "bound": _replace(r"(\w+)\.\.", r"\1 + 1.."),
    "range": _replace(r"\.\.(\w+)", r"..\1 - 1", r"..\1 + 1"),
    "condition": _replace(r" if [^:]*$", "", " if ranks > 3", " if r % 2 == 0"),
    "comparison": _replace(r" (>=|<|>|==) ", " > ", " >= ", " == ", " != ", " < "),
    "verb": _replace(r"^( +)(send|reduce|recv|copy) ", r"\1send ", r"\1reduce ", r"\1recv ", r"\1copy "),
    "event verb": _replace(r"^( +)(record|wait) ", r"\1record ", r"\1wait "),
    "event": _replace(r"(record|wait) \w+", r"\1 drained", r"\1 sent", r"\1 arrived", r"\1 got", r"\1 done"),
    "number": _replace(r"\b\d\b", "0", "1", "2", "3"),
    "sign": _replace(r" ([+-]) ", " + ", " - "),
    "buffer": _replace(r"\b(data|leaving|landed|slot|own|kept)\[", "data[", "leaving[", "landed[", "slot[", "own["),
    "only": _replace(r"( only| then send to [^:]*)$", "", " only"),
    "reversed": _replace(r" reversed$|(?<=\])$", "", " reversed"),
}

RARE = ["apart", "waits for a later one"] * 3
"""Faults that lead to deadlocks, which few do, are drawn more often."""
