"""Names that the language takes, for what is called otherwise in a table."""

from __future__ import annotations

import re

from schedlang.ir.buffers import STANDARD
from schedlang.ir.table import OpTable
from schedlang.ops import BUILTINS, REDUCE_OPS

VARIABLES = "rcdstuvwxyzijkmnoabefghlpq"
"""Names of loop variables; no list, stream or event is called like one of them."""

OTHERS = VARIABLES[-2:]
"""Names of variables that go over the ranks but for some."""

SLOT, FIRST = "slot", "first"
"""Names for the place of a rank among the others, and for the first of the other ranks."""

_WORDS = """
    schedule fn import let require send recv reduce copy record wait ensure use step stream elif else if for in on and
    or not true false from to into then ranks chunks collective buffer device host verify chan inplace outofplace only
    reversed
    """
_TAKEN = frozenset((*_WORDS.split(), *BUILTINS, *REDUCE_OPS, *STANDARD))


def identifier(name: str, fallback: str) -> str:
    """A name made of ``name``: what cannot stand in one becomes an underscore."""
    word = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")
    word = re.sub(r"_+", "_", word)[:60].strip("_")
    if not word or word.isdigit():
        word = fallback + word
    elif word[0].isdigit():
        word = f"{fallback}_{word}"
    return f"{word}_" if word in _TAKEN else word


def taken() -> set[str]:
    """The names that lists may not have."""
    return {*_TAKEN, *VARIABLES, "place", "here", "before", "after", "counts", SLOT, FIRST}


def buffers(table: OpTable, own: set[int]) -> list[str]:
    """A name for each buffer: scratch has one that the language takes, those of ``own`` keep theirs."""
    found = ["" for _ in table.buffers]
    used = {table.buffers[i].name for i in own} | set(STANDARD)
    for i, b in enumerate(table.buffers):
        if i in own:
            found[i] = b.name
            continue
        word = name = identifier(b.name, "scratch")
        number = 1
        while name in used:
            number += 1
            name = f"{word}{number}"
        used.add(name)
        found[i] = name
    return found


def legal(name: str) -> bool:
    """Whether the language takes a name as it is."""
    return re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", name) is not None and (name not in _TAKEN or name in STANDARD)
