"""XML to the elements of an MSCCL file, by expat: what is there, whatever it may mean.

No DOCTYPE is read. So there are no entities but those of XML itself, and nothing is fetched or repeated: what the
package `defusedxml` takes care of. Beyond that, nothing here grows faster than the text.
"""

from __future__ import annotations

from typing import NoReturn
from xml.parsers import expat

import numpy as np

from schedlang.diagnostics import SchedError, error
from schedlang.ir.table import Array
from schedlang.msccl.complaints import Complaints
from schedlang.msccl.places import shown, tag_span
from schedlang.msccl.tally import Strange, Tally
from schedlang.source import Source, Span

ALGO = ("name", "proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace")
MAY_BE = ("outofplace", "minBytes", "maxBytes", "redop", "nthreads")
GPU = ("id", "i_chunks", "o_chunks", "s_chunks")
BLOCK = ("id", "send", "recv", "chan")
STEP = ("s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep")
COPY = ("i_off", "o_off", "cnt")

_LEVELS = ("algo", "gpu", "tb", "step")
"""Each stands in the one before it."""

_PARENT = {"gpu": "<algo>", "tb": "<gpu>", "step": "<tb>", "copy": "<gpu>"}
_FURTHER = bytes(range(0x80, 0xC0))
"""The bytes that begin no character in UTF-8."""

_DEEPEST = 100
_ATTRIBUTES = 1000


class Elements:
    """The elements of a file.

    ``algo``: its attributes, and ``algo_at``. ``gpus``, ``blocks``, ``steps``, ``copies``: the others, in the order in
    which they are written; of each its attributes, and as ``gpu_at`` and so on (int64) the offset of its tag.
    ``block_gpu``, ``copy_gpu``, ``step_block`` (int32): which of them it stands in. ``strange``: elements that there
    should not be, as ``<NAME> in <NAME>``.
    """

    def __init__(self) -> None:
        self.algo: dict[str, str] = {}
        self.algo_at = 0
        self.gpus, self.blocks, self.steps, self.copies = Tally(GPU), Tally(BLOCK), Tally(STEP), Tally(COPY)
        self.gpu_at = self.block_at = self.step_at = self.copy_at = np.empty(0, np.int64)
        self.block_gpu = self.copy_gpu = self.step_block = np.empty(0, np.int32)
        self.strange = Strange()


def parse(source: Source, complaints: Complaints) -> Elements:
    """The elements of a text. Raises SchedError (SL108) where it is not XML, or is another kind of file."""
    return _Parser(source, complaints).run()


class _Parser:
    def __init__(self, source: Source, complaints: Complaints) -> None:
        self.source, self.complaints = source, complaints
        self.elements = Elements()
        self.level, self.inside, self.depth = 0, 0, 0       # known elements that are open; unknown ones in them; all
        self.block_gpu: list[int] = []
        self.copy_gpu: list[int] = []
        self.first: list[int] = []      # of each block, its first step
        self.data = source.text.encode("utf-8", "surrogatepass")
        self.expat = expat.ParserCreate("utf-8")
        self.expat.ordered_attributes = True
        self.expat.StartElementHandler = self.start
        self.expat.EndElementHandler = self.end
        self.expat.StartDoctypeDeclHandler = self.doctype

    def run(self) -> Elements:
        try:
            self.expat.Parse(self.data, True)
        except expat.ExpatError as e:
            self.broken(e)
        self.finish()
        return self.elements

    def start(self, tag: str, attributes: list[str]) -> None:
        self.depth += 1
        if self.inside:
            self.inside += 1
            if self.depth > _DEEPEST:
                self.fail(f"elements nest deeper than {_DEEPEST}", "no MSCCL file does that")
        elif self.level < 4 and tag == _LEVELS[self.level]:
            self.level += 1
            self.open(tag, attributes)
        elif self.level == 2 and tag == "copy":
            self.inside = 1
            self.elements.copies.add(attributes, self.expat.CurrentByteIndex)
            self.copy_gpu.append(len(self.elements.gpus.at) - 1)
        else:
            self.inside = 1
            self.unknown(tag)

    def open(self, tag: str, attributes: list[str]) -> None:
        at, elements = self.expat.CurrentByteIndex, self.elements
        if len(attributes) > 2 * _ATTRIBUTES:
            self.fail(f"<{tag}> has {len(attributes) // 2:,} attributes", "no MSCCL file does that")
        if tag == "step":
            elements.steps.add(attributes, at)
        elif tag == "tb":
            elements.blocks.add(attributes, at)
            self.block_gpu.append(len(elements.gpus.at) - 1)
            self.first.append(len(elements.steps.at))
        elif tag == "gpu":
            elements.gpus.add(attributes, at)
        else:
            elements.algo = dict(zip(attributes[::2], attributes[1::2], strict=True))
            elements.algo_at = at

    def end(self, tag: str) -> None:
        self.depth -= 1
        if self.inside:
            self.inside -= 1
        else:
            self.level -= 1

    def unknown(self, tag: str) -> None:
        at = self.expat.CurrentByteIndex
        if self.level == 0:
            self.fail(f"this is XML, but not an MSCCL file: its outermost element is <{_short(tag)}>, not <algo>",
                      _OTHER.get(tag, "name a file with an MSCCL algorithm"))
        outer = f"<{_LEVELS[self.level - 1]}>"
        if tag not in _PARENT:
            self.elements.strange.add(f"<{_short(tag)}> in {outer}", at)
        elif not self.complaints.full:
            self.complaints.add(f"<{tag}> stands in {outer}, where nobody reads it", self.offset(at),
                                help=f"it belongs in {_PARENT[tag]}")

    def doctype(self, *_: object) -> None:
        word = "<!DOCTYPE"
        at = self.source.text.rfind(word, 0, self.offset(self.expat.CurrentByteIndex) + len(word))
        place = Span(self.source, max(at, 0), max(at, 0) + len(word))
        raise SchedError(error("SL108", "a DOCTYPE is not read: the entities that it can declare may grow without end",
                               place, help="take it out; no MSCCL file needs one"))

    # Places ----------------------------------------------------------------------------------------------------------

    def offset(self, at: int) -> int:
        """The offset in the text of an offset in its bytes."""
        return at if len(self.data) == len(self.source.text) else len(self.data[:at].translate(None, _FURTHER))

    def offsets(self, at: list[int]) -> Array:
        """The same for many, in increasing order."""
        found = np.array(at, np.int64)
        if not len(found) or len(self.data) == len(self.source.text):
            return found
        further = (np.frombuffer(self.data, np.uint8) & 0xC0) == 0x80
        before = np.add.reduceat(further, np.append(0, found), dtype=np.int64)[:-1]
        return found - np.cumsum(before)

    def finish(self) -> None:
        e = self.elements
        for tally in (e.gpus, e.blocks, e.steps, e.copies):
            tally.flush()
        e.algo_at = self.offset(e.algo_at)
        e.gpu_at, e.block_at = self.offsets(e.gpus.at), self.offsets(e.blocks.at)
        e.step_at, e.copy_at = self.offsets(e.steps.at), self.offsets(e.copies.at)
        e.block_gpu, e.copy_gpu = np.array(self.block_gpu, np.int32), np.array(self.copy_gpu, np.int32)
        number: Array = np.diff(np.array([*self.first, len(e.steps.at)], np.int64))
        e.step_block = np.repeat(np.arange(len(number), dtype=np.int32), number)
        for strange in (e.strange, e.gpus.strange, e.blocks.strange, e.steps.strange, e.copies.strange):
            strange.at = {name: self.offset(at) for name, at in strange.at.items()}

    # Complaints ------------------------------------------------------------------------------------------------------

    def fail(self, why: str, help: str) -> NoReturn:
        place = tag_span(self.source, self.offset(self.expat.CurrentByteIndex))
        raise SchedError(error("SL108", why, place, help=help))

    def broken(self, e: expat.ExpatError) -> NoReturn:
        text = self.source.text
        if not text.strip("\ufeff \t\r\n"):
            raise SchedError(error("SL108", "the file is empty", Span(self.source, 0, 0),
                                   help="an MSCCL file holds one <algo> element")) from None
        if not text.lstrip("\ufeff \t\r\n").startswith("<"):
            raise SchedError(error("SL108", "this is not XML: it should begin with <", Span(self.source, 0, 1),
                                   help="name a file with an MSCCL algorithm")) from None
        at = self.offset(max(0, min(self.expat.ErrorByteIndex, len(self.data))))
        why = expat.ErrorString(e.code) or "not well-formed"
        end = at + 1
        if e.code == expat.errors.codes[expat.errors.XML_ERROR_TAG_MISMATCH]:
            at = max(0, at - 2)     # expat points to the name
            end = tag_span(self.source, at).end
            why += f", {shown(text[at:end])}"
        elif at < len(text) and not text[at].isspace():
            why += f" at {shown(text[at])}"
        raise SchedError(error("SL108", f"this is not XML: {why}", Span(self.source, at, min(end, len(text))),
                               help=_XML_HELP.get(e.code, "write the file again; perhaps it was cut off"))) from None


_OTHER = {
    "system": "this is a topology of NCCL; name a file with an MSCCL algorithm",
    "graphs": "this is a graph of NCCL; name a file with an MSCCL algorithm",
    "msccl_algos": "this is a configuration that names MSCCL files; name one of those",
    "sccl_algos": "this is a configuration that names SCCL files; name one of those",
}

_XML_HELP = {expat.errors.codes[error]: help for error, help in (
    (expat.errors.XML_ERROR_DUPLICATE_ATTRIBUTE, "leave one of the two out"),
    (expat.errors.XML_ERROR_INVALID_TOKEN, "values stand in double quotes; in them & is written &amp; and < is &lt;"),
    (expat.errors.XML_ERROR_TAG_MISMATCH, "close first the element that was opened last"),
    (expat.errors.XML_ERROR_UNDEFINED_ENTITY, "there are &lt; &gt; &amp; &quot; and &apos; only; write the character "
                                              "itself"),
    (expat.errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT, "a file holds one <algo>; write one file for each algorithm"),
    (expat.errors.XML_ERROR_NO_ELEMENTS, "the file ends before its <algo> is closed: perhaps it was cut off"),
)}


def _short(tag: str) -> str:
    return tag if len(tag) <= 40 and tag.isprintable() else tag[:36] + " ..."
