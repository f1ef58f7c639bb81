"""JSON text read with places in mind, and the fields of JSON objects read strictly."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from schedlang.diagnostics import SchedError, error
from schedlang.source import Place, Source

INT32, INT64 = (1 << 31) - 1, (1 << 63) - 1


class Bad(Exception):
    """A complaint; whoever knows the place turns it into a SchedError."""


class Reader:
    """A JSON text read member by member, so that each row's offset is known. ``at`` is where the reading stands."""

    def __init__(self, text: str, path: str) -> None:
        self.text, self.path, self.at = text, path, 0
        self.source = Source(path, text)
        self.decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)

    def place(self, offset: int) -> Place:
        """The place of an offset."""
        return Place(self.path, *self.source.position(offset))

    def fail(self, why: str) -> NoReturn:
        """Raises SchedError (SL107) at the place where the reading stands."""
        raise SchedError(error("SL107", why, self.place(min(self.at, len(self.text))),
                               help="`schedlang compile FILE --target json` shows what the format looks like"))

    def _next(self) -> str:
        """The next character that is no white space; empty at the end."""
        self.at = _SPACE.match(self.text, self.at).end()  # type: ignore[union-attr]  # it matches everywhere
        return self.text[self.at : self.at + 1]

    def _expect(self, characters: str) -> str:
        found = self._next()
        if not found or found not in characters:
            wanted = " or ".join(repr(c) for c in characters)
            raise Bad(f"this is not JSON: {wanted} should stand here" + (f", not {found!r}" if found else ""))
        self.at += 1
        return found

    def _value(self) -> Any:
        self._next()
        try:
            value, self.at = self.decoder.raw_decode(self.text, self.at)
        except json.JSONDecodeError as e:
            self.at = e.pos
            raise Bad(f"this is not JSON: {e.msg[:1].lower()}{e.msg[1:]}") from None
        except ValueError:  # an integer with more digits than Python reads
            raise Bad("a number with too many digits") from None
        return value

    def top(self) -> Iterator[tuple[str, Any]]:
        """The members of the outermost object; the value of ``ops`` is a list of (offset, row)."""
        if self._next() != "{":
            raise Bad("this is not an op table: an object in braces should stand here")
        self.at += 1
        more = self._next() != "}"
        if not more:
            self.at += 1
        while more:
            if self._next() != '"':
                raise Bad("this is not JSON: the name of a field in double quotes should stand here")
            key = self._value()
            self._expect(":")
            start = self.at
            value = list(self._rows()) if key == "ops" else self._value()
            end, self.at = self.at, start
            yield key, value
            self.at = end
            more = self._expect(",}") == ","
        if self._next():
            raise Bad("something stands after the end of the table")

    def _rows(self) -> Iterator[tuple[int, Any]]:
        if self._next() != "[":
            raise Bad("ops should be a list")
        self.at += 1
        more = self._next() != "]"
        if not more:
            self.at += 1
        while more:
            self._next()
            start = self.at
            yield start, self._value()
            more = self._expect(",]") == ","


_SPACE = re.compile(r"[ \t\n\r]*")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise Bad(f"the field {next(n for n in names if names.count(n) > 1)!r} stands there twice")
    return members


def _constant(name: str) -> NoReturn:
    raise Bad(f"{name} is not a number of JSON")


# Fields ------------------------------------------------------------------------------------------------------------


def shown(value: Any) -> str:
    """A JSON value in a message."""
    if type(value) is int and value.bit_length() > 200:
        return "a huge number"
    text = "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else json.dumps(value)
    return text if len(text) <= 60 else text[:56] + " ..."


def member(form: Mapping[str, Any], name: str) -> Any:
    """A field that must be there. Raises Bad."""
    if name not in form:
        raise Bad(f"{name} is missing")
    return form[name]


def integer(value: Any, name: str, low: int = 0, high: int = INT32) -> int:
    """An integer from ``low`` to ``high``. Raises Bad."""
    if type(value) is not int:
        raise Bad(f"{name} should be an integer, not {shown(value)}")
    if not low <= value <= high:
        raise Bad(f"{name} is {shown(value)}; it can be {low} to {high}")
    return value


def name_in(value: Any, name: str) -> str:
    """A name. Raises Bad."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise Bad(f"{name} should be a name in printable characters, not {shown(value)}")
    return value


def list_in(value: Any, name: str) -> list[Any]:
    """A list. Raises Bad."""
    if not isinstance(value, list):
        raise Bad(f"{name} should be a list, not {shown(value)}")
    return value


def object_in(value: Any, name: str) -> dict[str, Any]:
    """An object. Raises Bad."""
    if not isinstance(value, dict):
        raise Bad(f"{name} should be an object, not {shown(value)}")
    return value


def place_in(form: Mapping[str, Any], file: str) -> Place | None:
    """Where a row comes from, if it says so; ``file``: the file of those that name none. Raises Bad."""
    if form.get("line") is None:
        if form.get("file") is not None:
            raise Bad("file is given without a line")
        return None
    own = form.get("file")
    return Place(file if own is None else name_in(own, "file"), integer(form["line"], "line", 1))
