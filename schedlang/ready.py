"""Files that hold op tables, expanded already: JSON, and MSCCL XML. All others are sources, expanded for a size."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedlang.diagnostics import Diagnostic, SchedError, error, note
from schedlang.ir.words import shown

if TYPE_CHECKING:
    from schedlang.ir.table import OpTable


@dataclass(frozen=True, eq=False)
class Ready:
    """What such a file holds: one schedule, for one number of ranks and a few values of its parameters.

    ``form``: what kind of file it is, with its article, for messages. ``choices``: the values of each parameter that
    there are tables for, the one that is preferred first. ``open``: those parameters of which any other integer may be
    asked for as well. ``make``: the table for a value of each parameter; raises SchedError where the file does not fit
    them. ``notes``: what there is to say of the file as a whole, by the values that were given. ``source``: what other
    sizes are for; ``elsewhere``: what to do where other values are wanted.
    """

    file: str
    form: str
    name: str
    ranks: int
    choices: Mapping[str, Sequence[Any]]
    make: Callable[[Mapping[str, Any]], OpTable]
    source: str
    elsewhere: str
    open: frozenset[str] = frozenset()
    notes: Callable[[Mapping[str, Any]], Sequence[Diagnostic]] = lambda _: ()

    def cases(self, ranks: Sequence[int] | None, given: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
        """The values, ``ranks`` among them, of each table that is asked for, the preferred one first. ``ranks`` and
        ``given``: the values wanted, of which those that are there are taken; all of what is not given.

        Raises SchedError (SL206) where none is there.
        """
        if ranks is not None and self.ranks not in ranks:
            raise SchedError(error("SL206", f"{self.file} is {self.form} for {self.ranks} ranks, not {ranks[0]}",
                                   help=f"it is expanded already; other sizes need {self.source}"))
        there: dict[str, Sequence[Any]] = {"ranks": (self.ranks,), **self.choices}
        for key, values in given.items():
            there[key] = self._wanted(key, values, there.get(key))
        return [dict(zip(there, values, strict=True)) for values in product(*there.values())]

    def _wanted(self, key: str, values: Sequence[Any], have: Sequence[Any] | None) -> Sequence[Any]:
        if have is None:
            raise SchedError(error("SL206", f"{self.file} is {self.form}, expanded already, without a parameter {key}",
                                   help=self.elsewhere))
        if key in self.open:
            return [one_integer(key, value, f"for example -p {key}={self.choices[key][0]}") for value in values]
        if found := [value for value in have if any(same_value(value, wanted) for wanted in values)]:
            return found
        offered = " or ".join(map(shown, have))
        raise SchedError(error("SL206", f"{self.file} is {self.form}, expanded already with {key} = {offered}, not "
                               f"{shown(values[0])}", help=self.elsewhere))

    def table(self, case: Mapping[str, Any]) -> OpTable:
        """The table for one of :meth:`cases`. Raises SchedError where the file does not fit it."""
        return self.make(case)

    def unasked(self, given: Mapping[str, Any]) -> list[Diagnostic]:
        """Notes on the values that nobody gave, where one table is taken of several."""
        found = []
        for key, (first, *others) in self.choices.items():
            if others and key not in given:
                found.append(note("SL606", f"`{key}` was not given, so {key} = {shown(first)} is taken; {self.file} is "
                                  f"for {key} = {' and '.join(map(shown, others))}, too",
                                  help=f"-p {key}={shown(others[0])} takes the other", values={key: first}))
        return found


def one_integer(name: str, value: Any, help: str) -> int:
    """A parameter that is one integer: an int, or NumPy's. Raises SchedError (SL206), with this help, for all else."""
    try:
        if not isinstance(value, bool):
            return index(value)
    except TypeError:
        pass
    raise SchedError(error("SL206", f"{name} is {shown(value)}, and must be one integer", help=help))


def same_value(a: Any, b: Any) -> bool:
    """Whether two values of a parameter are equal: integers, booleans, names, lists, matrices."""
    import numpy as np

    return np.array_equal(a, b)


# ---- files -----------------------------------------------------------------------------------------------------------


def is_ready(file: str) -> bool:
    """Whether a path names a file that holds tables rather than a schedule's text: by its name alone."""
    return Path(file).name.lower().endswith((".json", ".xml", ".gz"))


def is_msccl(file: str) -> bool:
    """Whether it is one of those by MSCCL."""
    return is_ready(file) and not file.lower().endswith(".json")


def read_ready(file: str, name: str | None = None) -> Ready:
    """What a file of those that :func:`is_ready` names holds. ``name``: how its schedule must be called.

    Raises SchedError: SL105 where it cannot be read, SL107 and SL108 where it breaks the rules of its format, SL212
    where it has another name.
    """
    lower = file.lower()
    if lower.endswith((".json.gz", ".sched.gz")):
        raise SchedError(error("SL105", f"{file} is compressed, which only MSCCL XML may be",
                               help=f"decompress it: gunzip -k {file}"))
    found = _json(file) if lower.endswith(".json") else _msccl(file)
    if name not in (None, found.name):
        raise SchedError(error("SL212", f"{file} holds the schedule {found.name}, not {name}"))
    return found


def _json(file: str) -> Ready:
    from schedlang.files import read_text
    from schedlang.ir.json import loads

    table = loads(read_text(file).text, file)
    return Ready(file, "an op table", table.name, table.ranks,
                 {key: (value,) for key, value in table.params.items()}, lambda _: table,
                 "the .sched file", "give parameters to a .sched file")


def _msccl(file: str) -> Ready:
    from schedlang.msccl import notes, placements, read, root_of, table

    plan = read(file)
    choices: dict[str, Sequence[Any]] = {"inplace": placements(plan)}
    root = root_of(plan)
    if root is not None:
        choices["root"] = (root,)
    return Ready(file, "an MSCCL file", plan.name, plan.ranks, choices,
                 lambda case: table(plan, case["inplace"], root=case.get("root")), "another file",
                 "-p takes inplace, true or false as its <algo> says, and root where the collective has one",
                 frozenset({"root"}), lambda given: notes(plan, given.get("root")))


# ---- folders ---------------------------------------------------------------------------------------------------------

_HEAD = 1 << 16
_TABLE = re.compile(rb'"schedlang-ops"')
_ALGO = re.compile(rb"<algo[\s/>]")


def looks_ready(path: Path) -> bool:
    """Whether a file in a folder is one of those that hold tables, by its name and its head: other JSON, such as
    counts, and other XML, such as topologies, are none of ours."""
    name = path.name.lower()
    if not name.endswith((".json", ".xml", ".gz")):
        return False
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    if name.endswith(".json"):
        return _TABLE.search(head[:4096]) is not None
    if head.startswith(b"\x1f\x8b"):
        try:
            head = zlib.decompressobj(31).decompress(head, _HEAD)
        except zlib.error:
            return name.endswith(".xml.gz")     # broken, and to be told so
    return _ALGO.search(head.replace(b"\0", b"")) is not None       # without NULs: of UTF-16 as well
