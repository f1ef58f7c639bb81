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
_ENDS_IN_VALUES = re.compile(r"=\s*(?:\"[^\"<]*?>[^\"<]*\"|'[^'<]*?>[^'<]*')")
_VALUE = re.compile(r"\"[^\"]*\"|'[^']*'")
_TAG = re.compile(r"<[^>]*>")
_MANY = re.compile(rf"<(?:[^> ]* ){{{ATTRIBUTES + 1}}}[^>]*>")
_LONG = re.compile(rf"(?<==\")[^\"]{{{STRING + 1},}}(?=\")|(?<=\s)[^\"'>\s=]{{{STRING},}}(?==)")
_OCTAL = re.compile(
    r"\s(?:ngpus|nchannels|nchunksperloop|inplace|outofplace|minBytes|maxBytes|nthreads|id|[ios]_chunks|send|recv|chan|s|srcoff|"
    r"dstoff|cnt|depid|deps|hasdep)=\"([+-]?0[0-9]+)\"")

# What it looks like, what it is called, how to mend it. No tag has a > inside, see _plain.
_FATAL = (
    (re.compile(r"<\?[^>]*>?"), "a declaration (<? ... ?>)", "take it out"),
    (re.compile(r"\t+"), "a tab", "write blanks"),
    (re.compile(r"(?<==)'"), "a value in single quotes", "write it in double quotes"),
    (re.compile(r"<[^>\n\r]*(?=[\n\r])"), "a line that ends inside a tag", "write each tag in one line"),
    (re.compile(r"</[^>\s]+\s+>"), "a blank at the end of a closing tag", "write it without"),
    (re.compile(r"(?<=>)[^<\s][^<]*"), "text between tags", "take it out"),
    (re.compile(r"<!\[CDATA\["), "text between tags", "take it out"),
)
_BESIDE = re.compile(r"\s+=\s*|=\s+")


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
    text = _plain(source.text)
    for pattern, what, mend in _FATAL:
        yield from _some(source, [match.span() for match in pattern.finditer(text)], what, mend)
    if _BESIDE.search(text):
        spans = [(tag.start() + at.start(), tag.start() + at.end()) for tag in _TAG.finditer(text)
                 for at in _BESIDE.finditer(_VALUE.sub(lambda value: '"' + "x" * (len(value[0]) - 2) + '"', tag[0]))]
        yield from _some(source, spans, "a blank beside a =", 'write name="value"')
    yield from _some(source, [match.span() for match in _LONG.finditer(text)],
                     f"a name or value of more than {STRING} characters", "shorten it")
    for tag in _MANY.finditer(text):
        if lost := _lost(tag[0]):
            yield Quirk(f"{lost} behind {ATTRIBUTES} other attributes, where it is not seen",
                        "put it before those that nobody reads, or take them out", Span(source, *tag.span()))
            break
    octal = [match for match in _OCTAL.finditer(text) if abs(int(match[1])) > 7]
    if octal:
        yield Quirk(f"a number with a zero before it, {octal[0][1]}, which is read as octal", "leave the zero out",
                    Span(source, *octal[0].span(1)), len(octal), fatal=False)


def _plain(text: str) -> str:
    """The text with blanks for comments, and without > in values; offsets stay what they are."""
    if "<!--" in text:
        text = _COMMENT.sub(lambda comment: " " * len(comment[0]), text)
    if _ENDS_IN_VALUES.search(text):
        text = _ENDS_IN_VALUES.sub(lambda value: value[0].replace(">", "x"), text)
    return text


def _some(source: Source, spans: list[tuple[int, int]], what: str, mend: str) -> Iterator[Quirk]:
    if spans:
        yield Quirk(what, mend, Span(source, *spans[0]), len(spans))


def _lost(tag: str) -> str | None:
    """The first attribute of a tag that a runtime needs and does not see. Each blank outside values begins one."""
    slots = re.findall(r" ([^>\" =]*)(?:=\"[^\"]*\")?", tag)
    name = re.match(r"<(\w+)", tag)
    needed = PER_TAG.get(name[1] if name else "", ())
    return next((word for word in slots[ATTRIBUTES:] if word in needed and word not in slots[:ATTRIBUTES]), None)
