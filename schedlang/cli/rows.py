"""Naming one operation of an expanded schedule on the command line: by its place in the source, or by its id."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from schedlang.cli.common import bad_option
from schedlang.diagnostics import Note, SchedError, error
from schedlang.ir.origin import came_from
from schedlang.ir.table import Array, OpTable, Site
from schedlang.ops import Op
from schedlang.render.words import operation
from schedlang.source import Location

SPELLING = ("an operation is named by its line and what tells it apart from the others there, such as 14@s=0,r=2 or "
            "14@rank=3,op=recv, or by its id, such as id=17")

_OPS = {"send": (Op.SEND,), "recv": (Op.RECV, Op.REDUCE_RECV), "reduce": (Op.REDUCE, Op.REDUCE_RECV),
        "copy": (Op.COPY,), "record": (Op.RECORD,), "wait": (Op.WAIT,)}


@dataclass(frozen=True)
class RowName:
    """``[FILE:]LINE[:COLUMN][@NAME=VALUE,...]`` or ``id=N``, taken apart."""

    text: str
    row: int | None = None
    file: str | None = None
    line: int = 0
    column: int | None = None
    marks: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> RowName:
        """Raises SchedError (SL806) for text of another form."""
        if match := re.fullmatch(r"id=([0-9]{1,9})", text):
            return cls(text, row=int(match[1]))
        place, at, marked = text.partition("@")
        # The end of the place, then what stands before it: one pattern for both would try every split of a long text.
        match = re.search(r"(?:^|:)([0-9]{1,9})(?::([0-9]{1,9}))?$", place)
        file = place[: match.start()] if match else ""
        marks = tuple((name.strip(), value.strip()) for name, _, value in (
            mark.partition("=") for mark in marked.split(",") if mark))
        if match is None or (at and not marked) or not all(name and value for name, value in marks):
            raise bad_option(f"{text}: this names no operation", help=SPELLING)
        return cls(text, None, file or None, int(match[1]), int(match[2]) if match[2] else None, marks)

    def find(self, table: OpTable) -> int:
        """The one row it names. Raises SchedError (SL806) where there is none, or more than one."""
        if self.row is not None:
            if self.row >= len(table):
                raise bad_option(f"{self.text}: {table.name} has {len(table):,} operations, with the ids from 0 on")
            return self.row
        rows: list[Array] = []
        found: list[Array] = []
        keys = {"rank": table.rank, "step": table.step, "stream": table.stream, "op": table.op}
        named = dict.fromkeys(keys)
        for site in np.unique(table.site).tolist():
            chain = _chain(table, site)
            level = next((k for k, (at, _) in enumerate(chain) if self._at(at.location)), None)
            if level is None:
                continue
            here = (table.site == site).nonzero()[0]
            values: dict[str, int | Array] = {}
            for _, inside in (*reversed(chain), chain[level]):      # those of the named line first, then the innermost
                values |= inside
            named |= dict.fromkeys(values)
            rows.append(here)
            found.append(self._marked(table, here, values))
        if not rows:
            raise bad_option(f"{self.text}: no operation of {table.name} comes from there{self._nearest(table)}",
                             help=SPELLING)
        there = self._itself(table, np.sort(np.concatenate(found)))
        if len(there) == 1:
            return int(there[0])
        listed = there if len(there) else np.sort(np.concatenate(rows))
        strange = next((name for name, _ in self.marks if name not in named), None)
        many = (f"{len(there):,} operations are called that" if len(there) else
                f"operations there have no `{strange}`, but {', '.join(named)}" if strange else
                "no operation there has these values")
        notes = [Note(f"id={row}: rank {table.rank[row]}, {operation(table, row)}{came_from(table, row)}")
                 for row in listed[:4].tolist()]
        if len(listed) > 4:
            notes.append(Note(f"and {len(listed) - 4:,} more"))
        raise SchedError(error("SL806", f"{self.text}: {many}", notes=notes, help=SPELLING))

    def _itself(self, table: OpTable, rows: Array) -> Array:
        """Of an operation and the waits and records that come from the same place, as in an MSCCL file, the
        operation, unless the marks ask for another."""
        moves = rows[~np.isin(table.op[rows], (Op.RECORD, Op.WAIT))]
        one = len(moves) == 1 and len(np.unique(table.site[rows])) == 1
        return moves if one and not any(name == "op" for name, _ in self.marks) else rows

    def _at(self, location: Location | None) -> bool:
        if location is None:
            return False
        return (location.line == self.line and self.column in (None, location.column)
                and (self.file is None or location.file.endswith(self.file)))

    def _marked(self, table: OpTable, rows: Array, values: Mapping[str, int | Array]) -> Array:
        """Those of some rows of one site that the marks fit. ``values``: of the loop variables, over the turns."""
        kept = np.ones(len(rows), bool)
        for name, wanted in self.marks:
            if name in values:
                value = values[name]
                there = value[table.turn[rows]] if isinstance(value, np.ndarray) else np.full(len(rows), value)
                kept &= there == int(wanted) if re.fullmatch(r"-?[0-9]{1,18}", wanted) else False
            elif name == "op":
                kept &= np.isin(table.op[rows], _OPS.get(wanted, ()))
            elif name == "stream":
                kept &= np.isin(table.stream[rows], [i for i, s in enumerate(table.streams) if s == wanted])
            elif name in ("rank", "step"):
                kept &= getattr(table, name)[rows] == int(wanted) if re.fullmatch(r"[0-9]{1,9}", wanted) else False
            else:
                kept &= False
        found: Array = rows[kept]
        return found

    def _nearest(self, table: OpTable) -> str:
        """The nearest lines from which operations come, in words."""
        places = {(at.location.file, at.location.line) for site in np.unique(table.site).tolist()
                  for at, _ in _chain(table, site) if at.location is not None
                  and (self.file is None or at.location.file.endswith(self.file))}
        near = sorted(places, key=lambda place: (abs(place[1] - self.line), place))[:3]
        several = len({file for file, _ in places}) > 1
        listed = ", ".join(f"{line} of {file}" if several else str(line) for file, line in near)
        return f"; the nearest lines from which some do: {listed}" if near else ""


def _chain(table: OpTable, site: int) -> list[tuple[Site, dict[str, int | Array]]]:
    """A site with the values of the loop variables there, over its turns, followed by the `use` statements that brought
    it in, innermost first, with theirs in that turn."""
    own = table.sites[site]
    chain: list[tuple[Site, dict[str, int | Array]]] = [(own, dict(zip(own.names, own.values, strict=True)))]
    at = own.parent
    while at is not None:
        outer = table.sites[at[0]]
        chain.append((outer, dict(outer.loop_values(at[1]))))
        at = outer.parent
    return chain
