"""How the runtimes' own reader takes XML apart, character by character: ``schedlang.msccl.tags`` is tested against it.

Written from what it does: a name ends at a blank, a line end, ``/`` or ``>``; an attribute begins with one blank; a
value begins with either quote and ends with a double one.
"""

from __future__ import annotations

LONGEST = 255
SEEN = 16


class Refused(Exception):
    """The reader gives up."""


class PlainReader:
    """Reads a text; see :meth:`elements`."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def elements(self) -> list[tuple[str, dict[str, str]]]:
        """All elements in the order in which they begin, with the attributes that are seen. Raises Refused."""
        found: list[tuple[str, dict[str, str]]] = []
        opened: list[str] = []
        while (tag := self._tag()) is not None:
            kind, name, attributes = tag
            if kind == "close":
                if not opened or opened.pop() != name:
                    raise Refused("tags do not match")
                continue
            found.append((name, attributes))
            if kind == "open":
                opened.append(name)
        if opened:
            raise Refused("unterminated")
        return found

    def _next(self) -> str:
        if self.at >= len(self.text):
            raise Refused("end of file")
        self.at += 1
        return self.text[self.at - 1]

    def _tag(self) -> tuple[str, str, dict[str, str]] | None:
        while self.at < len(self.text) and self.text[self.at] in " \n\r":
            self.at += 1
        if self.at >= len(self.text):
            return None
        if self._next() != "<":
            raise Refused("expecting <")
        name, _, last = self._token(valued=False)
        if name.startswith("!--"):
            end = self.text.find("-->", self.at - len(name) + 3 - 1)
            if end < 0:
                raise Refused("unterminated comment")
            self.at = end + 3
            return self._tag()
        if name == "" and last == "/":
            name, _, last = self._token(valued=False)
            if last != ">":
                raise Refused("in a closing tag")
            return "close", name, {}
        attributes: list[tuple[str, str]] = []
        while last == " ":
            key, value, last = self._token(valued=True)
            attributes.append((key, value))
        kind = "open"
        if last == "/":
            kind = "single"
            _, _, last = self._token(valued=False)
        if last != ">":
            raise Refused("expecting >")
        seen: dict[str, str] = {}
        for key, value in attributes[:SEEN]:
            seen.setdefault(key, value)
        return kind, name, seen

    def _token(self, *, valued: bool) -> tuple[str, str, str]:
        """A name, its value if it has one, and the character after them."""
        name = ""
        while True:
            c = self._next()
            if c == "=":
                if not valued:
                    raise Refused("a value where none can be")
                return name, *self._value()
            if len(name) == LONGEST - 1:
                raise Refused("a name too long")
            if c in " >/\n\r":
                return name, "", c
            name += c

    def _value(self) -> tuple[str, str]:
        if self._next() not in "\"'":
            raise Refused("expecting a quote")
        begin = self.at
        while self._next() != '"':
            pass
        value = self.text[begin:self.at - 1]
        if len(value) > LONGEST:
            raise Refused("it would write past its memory")
        return value, self._next()
