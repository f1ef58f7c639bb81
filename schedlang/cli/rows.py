"""Naming one operation of an expanded schedule on the command line: by its place in the source, or by its id."""

from __future__ import annotations

import re
from dataclasses import dataclass

from schedlang.cli.common import bad_option
from schedlang.diagnostics import Note, SchedError, error
from schedlang.ir.origin import came_from
from schedlang.ir.table import OpTable
from schedlang.ops import Op
from schedlang.render.words import operation, stream

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
        sites = [i for i, site in enumerate(table.sites) if self._at(site.location)]
        rows: list[int] = []
        for site in sites:
            rows += (table.site == site).nonzero()[0].tolist()
        if not rows:
            raise bad_option(f"{self.text}: no operation of {table.name} comes from there", help=SPELLING)
        found = sorted(row for row in rows if self._marked(table, row))
        if len(found) == 1:
            return found[0]
        listed = found or sorted(rows)
        many = f"{len(found):,} operations are called that" if found else "no operation there has these values"
        notes = [Note(f"id={row}: rank {table.rank[row]}, {operation(table, row)}{came_from(table, row)}")
                 for row in listed[:4]]
        if listed[4:]:
            notes.append(Note(f"and {len(listed) - 4:,} more"))
        raise SchedError(error("SL806", f"{self.text}: {many}", notes=notes, help=SPELLING))

    def _at(self, location: object) -> bool:
        line, column = getattr(location, "line", None), getattr(location, "column", None)
        file = getattr(location, "file", "")
        return line == self.line and self.column in (None, column) and (self.file is None or file.endswith(self.file))

    def _marked(self, table: OpTable, row: int) -> bool:
        known: dict[str, object] = {"rank": table.rank[row], "step": table.step[row], "stream": stream(table, row)}
        for _, values in reversed(list(table.origins(row))):
            known |= values
        for name, value in self.marks:
            if name == "op" and "op" not in known:
                if int(table.op[row]) not in _OPS.get(value, ()):
                    return False
            elif str(known.get(name)) != value:
                return False
        return True
