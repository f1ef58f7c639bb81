"""Random programs rich in streams, events, own views, fused forwards and used schedules, all right by construction.

A program is a set of recipes, each a schedule that is right for all its sizes, put together on slices of the buffer, in
streams of their own or one after another. Everything draws from a ``random.Random``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """A program, the schedule of it that is meant, and its world size."""

    text: str
    name: str
    ranks: int


def _indented(text: str, by: int) -> str:
    return "\n".join("    " * by + line if line else line for line in text.splitlines())


def _summing(name: str, chunks: int, body: list[str]) -> str:
    head = f"schedule {name}(ranks):\n    collective allreduce(sum)\n    chunks {chunks}\n"
    return head + _indented("\n".join(body), 1)


# ---- recipes: each gives the text of a schedule `NAME(ranks)`, an all-reduce or a broadcast --------------------------


def staged(rng: random.Random, name: str, chunks: int) -> str:
    """Chain broadcast through host memory, with as many slots as chunks or with back-pressure."""
    slots = rng.choice([chunks, 1, 2])
    tight = slots < chunks or rng.random() < 0.3
    wire = rng.choice(["wire", "wire[r % 2]", "7 + r % 3"])
    down, up = rng.choice([("down", "up"), ("c[0]", "c[1]"), ("0", "1")])
    place = rng.choice([" on host", " on device", ""])
    slot = f"i % {slots}" if tight else "i"
    lines = [f"stream {down}:", "    wait drained[i] on r if r > 0"]
    if tight:
        lines.append(f"    wait sent[i - {slots}, 0] on r if i >= {slots}")
    lines += [f"    copy data[i] into leaving[{slot}] on r", "    record staged[i] on r", f"stream {wire}:"]
    if rng.random() < 0.3:
        lines.append("    chan line")
    lines.append("    wait staged[i] on r")
    if tight:
        lines.append(f"    wait drained[i - {slots}] on r + 1 if i >= {slots}")
    lines += [f"    send leaving[{slot}] from r to r + 1 into landed[{slot}]", "    record sent[i, 0] on r",
              "    record arrived[i] on r + 1", f"stream {up}:", "    wait arrived[i] on r + 1",
              f"    copy landed[{slot}] into data[i] on r + 1", "    record drained[i] on r + 1"]
    loops = [f"for i in 0..{chunks}:", "for r in 0..ranks - 1:"]
    if rng.random() < 0.5:
        loops.reverse()
    return (f"schedule {name}(ranks):\n    collective broadcast(root=0)\n    chunks {chunks}\n"
            f"    buffer leaving[{slots}], landed[{slots}]{place}\n"
            f"    {loops[0]}\n        {loops[1]}\n" + _indented("\n".join(lines), 3))


def staged_own(rng: random.Random, name: str, chunks: int) -> str:
    """Chain broadcast, each rank's own view; copies from the slots on another stream."""
    slots = rng.choice([1, 2])
    first = ["if r > 0:", "    stream rx:", "        chan link",
             f"        wait drained[i - {slots}] if i >= {slots}", f"        recv landed[i % {slots}] from r - 1",
             "        record arrived[i]", "    stream up:", "        wait arrived[i]",
             f"        copy landed[i % {slots}] into data[i]", "        record drained[i]"]
    second = ["if r < ranks - 1:", "    stream tx:", "        chan link", "        wait drained[i] if r > 0",
              "        send data[i] to r + 1"]
    parts = [first, second] if rng.random() < 0.7 else [second, first]
    body = "\n".join(parts[0] + parts[1])
    return (f"schedule {name}(ranks):\n    collective broadcast(root=0)\n    chunks {chunks}\n"
            f"    buffer landed[{slots}]\n    for r in 0..ranks:\n        on r:\n            for i in 0..{chunks}:\n"
            + _indented(body, 4))


def ring_own(rng: random.Random, name: str, chunks: int) -> str:
    """Ring all-reduce of own views: both in a step, by parity, or on two streams with events."""
    channels = chunks
    each = "data[c * ranks + ({}) % ranks]"
    way = rng.choice(["step", "parity", "streams"])
    phases = [("reduce", "r - s", "r - 1 - s", "0"), ("recv", "r + 1 - s", "r - s", "1")]
    lines: list[str] = []
    for verb, out, into, phase in phases:
        send = f"send {each.format(out)} to (r + 1) % ranks"
        recv = f"{verb} {each.format(into)} from (r - 1) % ranks"
        lines.append("for s in 0..ranks - 1:")
        if way == "step":
            lines += ["    step:", *("        " + x for x in rng.sample([send, recv], 2))]
        elif way == "parity":
            lines += ["    if r % 2 == 0:", f"        step: {send}", f"        {recv}", "    else:",
                      f"        copy {each.format(out)} into kept[c]",
                      f"        {recv}", "        send kept[c] to (r + 1) % ranks"]
        else:
            lines += ["    stream tx:", "        chan link[c]",
                      f"        wait got[{phase}, c, s - 1] if s > 0",
                      *(["        wait got[0, c, ranks - 2] if s == 0"] if phase == "1" else []),
                      f"        {send}", f"        record sent[{phase}, c, s]",
                      "    stream rx:", "        chan link[c]",
                      *(["        wait sent[0, c, s]"] if phase == "1" else []),
                      f"        {recv}", f"        record got[{phase}, c, s]"]
    stream = ["stream c:", *("    " + x for x in lines)] if rng.random() < 0.7 else lines
    buffer = f"    buffer kept[{channels}]\n" if way == "parity" else ""
    return (f"schedule {name}(ranks):\n    collective allreduce(sum)\n    chunks ranks * {channels}\n{buffer}"
            f"    for r in 0..ranks:\n        on r:\n            for c in 0..{channels}:\n"
            + _indented("\n".join(stream), 4))


def tree(rng: random.Random, name: str, chunks: int) -> str:
    """Binary tree all-reduce, up and down on two streams, one chunk after another."""
    each = rng.random() < 0.5
    streams = rng.choice([("up", "down"), ("2 * (i % 2)", "2 * (i % 2) + 1"), ("lane[0]", "lane[1]")])
    up = ["for v in 1..ranks:", "    reduce data[i] from ranks - v to (ranks - v - 1) // 2"]
    if rng.random() < 0.5:
        down = ["for v in 1..ranks:", "    send data[i] from (v - 1) // 2 to v"]
    else:
        down = ["for r in 0..ranks:", "    on r:", "        recv data[i] from (r - 1) // 2 if r > 0",
                "        for v in 2 * r + 1..2 * r + 3:", "            send data[i] to v if v < ranks"]
    marks = ["for r in 0..ranks:", "    record summed[i] on r"]
    waits = ["for r in 0..ranks:", "    wait summed[i] on r"]
    body = [f"stream {streams[0]}:", *("    " + x for x in up + marks),
            f"stream {streams[1]}:", *("    " + x for x in waits + down)]
    if each:
        body = ["for i in 0..chunks:", *("    " + x for x in body)]
    else:
        half = 1 + len(up + marks)
        body = ["for i in 0..chunks:", *("    " + x for x in body[:half]),
                "for i in 0..chunks:", *("    " + x for x in body[half:])]
    return _summing(name, chunks, body)


def fused(rng: random.Random, name: str, chunks: int) -> str:
    """A chain that sums up and one that hands down, each message passed on in one operation."""
    only = rng.choice(["", " only"])
    lines = ["for i in 0..chunks:", "    for r in 0..ranks:", "        on r:",
             f"            stream up{rng.choice(['', '[i % 2]'])}:",
             "                if r == 0:", "                    send data[i] to 1",
             "                elif r < ranks - 1:",
             f"                    reduce data[i] from r - 1 then send to r + 1{only}", "                else:",
             "                    reduce data[i] from r - 1", "                record done[i]",
             f"            stream down{rng.choice(['', '[i % 2]'])}:", "                wait done[i]",
             "                send data[i] to r - 1 if r == ranks - 1",
             "                recv data[i] from r + 1 then send to r - 1 if 0 < r and r < ranks - 1",
             "                recv data[i] from 1 if r == 0"]
    return _summing(name, chunks, lines)


def gathered(rng: random.Random, name: str, chunks: int) -> str:
    """An all-gather used backwards and another used forwards, both with streams of their own."""
    back, forth = (_gather(rng, f"{name}_{way}", several) for way, several in (("back", False), ("forth", True)))
    whole = "for data[c * ranks : c * ranks + ranks]"
    first, second = f"use {name}_back() {whole} reversed", f"use {name}_forth() {whole}"
    if rng.random() < 0.5:
        body = ["stream c:", f"    {first}", f"    {second}"]
    else:
        body = ["stream a[c]:", f"    {first}", "    for r in 0..ranks:", "        record halfway[c] on r",
                "stream b[c]:", "    for r in 0..ranks:", "        wait halfway[c] on r", f"    {second}"]
    return (f"{back}\n\n{forth}\n\n"
            f"schedule {name}(ranks):\n    collective allreduce(sum)\n    chunks ranks * {chunks}\n"
            f"    for c in 0..{chunks}:\n" + _indented("\n".join(body), 2))


def _gather(rng: random.Random, name: str, several: bool) -> str:
    """All-gather. Backwards, messages on several streams would be sums into one place in no order."""
    streams = rng.choice(["0", "d % 2", "go[d % 3]"] if several else ["go", "0"])
    ring = ["for d in 0..ranks - 1:", f"    stream {'go' if 'd' in streams else streams}:", "        step:",
            "            for r in 0..ranks:", "                send data[(r - d) % ranks] from r to (r + 1) % ranks"]
    direct = ["for d in 1..ranks:", f"    stream {streams}:", "        for r in 0..ranks:",
              "            send data[r] from r to (r + d) % ranks"]
    own = ["for r in 0..ranks:", "    on r:", "        for d in 1..ranks:", f"            stream {streams}:",
           "                step:", "                    send data[r] to (r + d) % ranks",
           "                    recv data[(r - d) % ranks] from (r - d) % ranks"]
    return (f"schedule {name}(ranks):\n    collective allgather inplace\n"
            + _indented("\n".join(rng.choice([ring, direct, own])), 1))


def exchanged(rng: random.Random, name: str, chunks: int) -> str:
    """All send everything to all; each sums in rank order, from slots, on another stream."""
    order = rng.choice(["p - r", "r - p"])
    ahead = rng.choice([1, 2])
    lines = ["for r in 0..ranks:", "    on r:", f"        for i in 0..{chunks}:",
             "            stream side:", "                copy data[i] into own[i]", "                record kept[i]",
             "            for d in 1..ranks:",
             f"                let q = ({'r + d' if order == 'p - r' else 'r - d'}) % ranks",
             f"                let p = ({'r - d' if order == 'p - r' else 'r + d'}) % ranks",
             "                let n = i * (ranks - 1) + d - 1",
             "                stream net:", "                    wait kept[i]",
             f"                    wait added[n - {ahead}] if n >= {ahead}",
             "                    step:", "                        send own[i] to q",
             f"                        recv slot[n % {ahead}] from p",
             "                    record here[n]", "                stream side:", "                    wait here[n]",
             f"                    reduce slot[n % {ahead}] into data[i]", "                    record added[n]"]
    return (f"schedule {name}(ranks):\n    collective allreduce(sum)\n    chunks {chunks}\n"
            f"    buffer own[{chunks}], slot[{ahead}]{rng.choice(['', ' on host'])}\n" + _indented("\n".join(lines), 1))


RECIPES: list[tuple[Callable[[random.Random, str, int], str], str]] = [
    (staged, "broadcast"), (staged_own, "broadcast"), (ring_own, "allreduce"), (tree, "allreduce"),
    (fused, "allreduce"), (gathered, "allreduce"), (exchanged, "allreduce"),
]


def sample(rng: random.Random) -> Sample:
    """A program that is right: one recipe, or several on slices of one buffer."""
    ranks = rng.choice([2, 3, 3, 4, 4, 5, 6])
    if rng.random() < 0.4:
        make, _ = rng.choice(RECIPES)
        return Sample(make(rng, "main", rng.choice([1, 2, 3])) + "\n", "main", ranks)
    parts, body = [], []
    ways = rng.randint(1, 3)
    size = ranks * 2
    for n in range(ways):
        make, kind = rng.choice(RECIPES)
        name = f"part{n}"
        many = make in (ring_own, gathered)
        on = " on [ranks - 1 - x for x in 0..ranks]" if ranks > 3 and rng.random() < 0.3 else ""
        chunks = rng.choice([1, 2]) if many else rng.choice([1, 2, ranks, size])
        parts.append(make(rng, name, chunks))
        slice_ = f" for data[{n} * size : {n} * size + size]"
        uses = [f"use {name}(){on}{slice_}"]
        if kind == "broadcast":
            back = rng.choice(["reversed", "ring"])
            uses.insert(0, f"use {name}(){on}{slice_} reversed" if back == "reversed" else f"use sum_up(){on}{slice_}")
        if rng.random() < 0.6:
            body += [f"stream {rng.choice([f'path[{n}]', f's{n}', str(n)])}:", *("    " + u for u in uses)]
        else:
            body += uses
    sum_up = ("schedule sum_up(ranks):\n    collective reduce(sum, root=0)\n    chunks 1\n    for v in 1..ranks:\n"
              "        stream rake:\n            reduce data[0] from ranks - v to ranks - v - 1\n")
    main = (f"schedule main(ranks):\n    collective allreduce(sum)\n    let size = {size}\n    chunks {ways * size}\n"
            + _indented("\n".join(body), 1))
    return Sample("\n\n".join([sum_up, *parts, main]) + "\n", "main", ranks)
