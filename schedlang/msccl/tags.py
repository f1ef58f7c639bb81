"""How the runtimes read tags: what is XML to everybody else and not to them.

Their reader (that of NCCL's topology files) takes one character at a time: a tag's name, then a blank before each
attribute, values in double quotes, then ``>`` or ``/>``. It knows comments, but neither declarations nor tabs, and no
line may end inside a tag.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from schedlang.msccl.runtimes import ATTRIBUTES, PER_TAG, STRING
from schedlang.source import Source, Span

_COMMENT = re.compile(r"<!--.*?-->", re.S)
_ODD_COMMENT = re.compile(r"<!--[^ >/\n\r=]*=")
_VALUE = re.compile(r"(=\s*)(?:\"([^\"]*)\"|'([^']*)')")
_MANY = re.compile(rf"<(?:[^> ]* ){{{ATTRIBUTES + 1}}}[^>]*>")
_LONG = re.compile(rf"(?<==\")[^\"]{{{STRING + 1},}}(?=\")|(?<=\s)[^\"'>\s=]{{{STRING},}}(?==)")
_OCTAL = re.compile(
    r"\s(?:ngpus|nchannels|nchunksperloop|inplace|outofplace|minBytes|maxBytes|nthreads|id|[ios]_chunks|send|recv|chan|s|srcoff|"
    r"dstoff|cnt|depid|deps|hasdep)=\"([+-]?0+(?:[89]|[1-9][0-9]+))\"")

# What it looks like, what it is called, how to mend it.
_FATAL = (
    (re.compile(r"<\?[^>]*>?"), "a declaration (<? ... ?>)", "take it out"),
    (re.compile(r"\t+"), "a tab", "write blanks"),
    (re.compile(r"(?<==)'"), "a value in single quotes", "write it in double quotes"),
    (re.compile(r"<[^>\n\r]*(?=[\n\r])"), "a line that ends inside a tag", "write each tag in one line"),
    (re.compile(r"</[^>\s]+\s+>"), "a blank at the end of a closing tag", "write it without"),
    (re.compile(r">\s*([^<\s][^<]*)"), "text between tags", "take it out"),
    (re.compile(r"<!\[CDATA\["), "text between tags", "take it out"),
    (re.compile(r"(?<!\s)\s+=\s*|=\s+"), "a blank beside a =", 'write name="value"'),
    (_LONG, f"a name or value of more than {STRING} characters", "shorten it"),
)


@dataclass(frozen=True)
class Quirk:
    """Something the runtimes' reader stumbles over: ``what`` it is, how to mend it, its first place and how often it
    occurs. ``fatal``: the reader gives up there; else it reads on, and takes something else than what is written."""

    what: str
    mend: str
    span: Span
    count: int = 1
    fatal: bool = True


def quirks(source: Source) -> Iterator[Quirk]:
    """What the runtimes read otherwise than XML, kind by kind, in a text that is XML."""
    if source.text.startswith("\ufeff"):
        yield Quirk("a byte order mark", "save the file as UTF-8 without one", Span(source, 0, 1))
    if odd := _ODD_COMMENT.search(source.text):
        yield Quirk("a comment whose first word has a =", "begin the comment with a blank",
                    Span(source, odd.start(), odd.end()))
    text = source.text
    if "<!--" in text:
        text = _COMMENT.sub(lambda comment: " " * len(comment[0]), text)
    if _MANY.search(text) or any(pattern.search(text) for pattern, _, _ in _FATAL):
        yield from _fatal(source, _VALUE.sub(_blotted, text))
    if octal := _OCTAL.search(text):
        yield Quirk(f"a number with a zero before it, {octal[1]}, which is read as octal", "leave the zero out",
                    Span(source, *octal.span(1)), sum(1 for _ in _OCTAL.finditer(text)), fatal=False)


def _fatal(source: Source, text: str) -> Iterator[Quirk]:
    """What the reader gives up at. ``text``: without comments and what is in values, so that signs belong to tags."""
    for pattern, what, mend in _FATAL:
        if match := pattern.search(text):
            yield Quirk(what, mend, Span(source, *match.span(match.lastindex or 0)),
                        sum(1 for _ in pattern.finditer(text)))
    for tag in _MANY.finditer(text):
        if lost := _lost(tag[0]):
            yield Quirk(f"{lost} behind {ATTRIBUTES} other attributes, where it is not seen",
                        "put it before those that nobody reads, or take them out", Span(source, *tag.span()))
            break


def _blotted(value: re.Match[str]) -> str:
    quote, text = ('"', value[2]) if value[2] is not None else ("'", value[3])
    return f"{value[1]}{quote}{'x' * len(text)}{quote}"


def _lost(tag: str) -> str | None:
    """The first attribute of a tag that a runtime needs and does not see. Each blank outside values begins one."""
    slots = re.findall(r" ([^>\" =]*)(?:=\"[^\"]*\")?", tag)
    name = re.match(r"<(\w+)", tag)
    needed = PER_TAG.get(name[1] if name else "", ())
    return next((word for word in slots[ATTRIBUTES:] if word in needed and word not in slots[:ATTRIBUTES]), None)
