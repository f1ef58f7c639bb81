"""Places in the text of an MSCCL file: tags and attributes by the offset at which a tag begins."""

from __future__ import annotations

import re

from schedlang.source import Source, Span

_TAG = re.compile(r"<[^\"'>]*(?:(?:\"[^\"]*\"|'[^']*')[^\"'>]*)*>")
_NAME = re.compile(r"<[^\s/>]*")
_ATTRIBUTE = re.compile(r"\s+([^\s=/>]+)\s*=\s*(?:\"[^\"]*\"|'[^']*')")
_SHOWN = 40


def tag_span(source: Source, at: int) -> Span:
    """The tag that begins at an offset."""
    tag = _TAG.match(source.text, at)
    return Span(source, at, tag.end() if tag else len(source.text))


def attribute_span(source: Source, at: int, name: str) -> Span:
    """An attribute, with its value, of the tag that begins at an offset; the tag where it has none of that name."""
    begin = _NAME.match(source.text, at)
    place = begin.end() if begin else at
    while found := _ATTRIBUTE.match(source.text, place):
        if found[1] == name:
            return Span(source, found.start(1), found.end())
        place = found.end()
    return tag_span(source, at)


def shown(value: str) -> str:
    """A value in a message: in quotes, not too long, and printable."""
    text = value if len(value) <= _SHOWN else value[: _SHOWN - 4] + " ..."
    return '"' + (text if text.isprintable() else repr(text)[1:-1]) + '"'
