"""The text of an MSCCL file: packed by gzip or not, in any encoding that XML readers know."""

from __future__ import annotations

import re
import zlib

from schedlang.diagnostics import SchedError, error
from schedlang.files import read_bytes
from schedlang.source import Source

LIMIT = 1 << 28
"""How many bytes a file may have, packed and unpacked: some two million steps, a hundred times the largest known. It is
what bounds the memory and time that a hostile file takes."""

_MEMBERS = 1 << 16
"""How many pieces a packed file may consist of."""

_SLICE = 1 << 16

_DECLARED = re.compile(rb"<\?xml\s[^>]{0,200}?\sencoding\s*=\s*[\"']([A-Za-z][A-Za-z0-9._-]{0,40})[\"']")
_ENCODINGS = {"utf-8": "utf-8", "utf8": "utf-8", "us-ascii": "ascii", "ascii": "ascii", "iso-8859-1": "latin-1",
              "latin-1": "latin-1", "latin1": "latin-1", "windows-1252": "cp1252"}
_SIXTEEN = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"<\0": "utf-16-le", b"\0<": "utf-16-be"}
"""How texts of two bytes a character begin: with a mark, or with the first <."""


def read_source(path: str) -> Source:
    """The text of a file. What is packed is known by its first bytes, not by its name. A byte order mark of UTF-8 stays
    in the text: runtimes stumble over it.

    Raises SchedError (SL105): it cannot be read, unpacked or decoded, or has more than ``LIMIT`` bytes.
    """
    data = read_bytes(path, LIMIT)
    if data.startswith(b"\x1f\x8b"):
        data = _unpacked(path, data)
    return Source(path, _decoded(path, data))


def _unpacked(path: str, data: bytes) -> bytes:
    """Unpacked slice by slice, so that what unpacks to more than there may be is noticed before it is there."""
    pieces: list[bytes] = []
    size, members, member = 0, 0, zlib.decompressobj(31)
    for start in range(0, len(data), _SLICE):
        rest = data[start : start + _SLICE]
        while rest:
            if member.eof:
                rest = rest.lstrip(b"\0")       # tapes and some tools fill up with zeros
                if not rest:
                    break
                members += 1
                if members >= _MEMBERS:
                    raise _broken(path, f"it consists of more than {_MEMBERS} pieces")
                member = zlib.decompressobj(31)
            try:
                piece = member.decompress(rest, LIMIT + 1 - size)
            except zlib.error as e:
                more = "; another file stands behind the first one" if members else ""
                raise _broken(path, str(e).partition(": ")[2] or str(e), more) from None
            size += len(piece)
            if size > LIMIT:
                raise SchedError(error("SL105", f"cannot read {path}: unpacked it has more than {LIMIT >> 20} MiB",
                                       help="no MSCCL file is as large; is it what you meant?"))
            pieces.append(piece)
            rest = member.unused_data
    if not member.eof:
        raise _broken(path, "it ends too early")
    return b"".join(pieces)


def _broken(path: str, why: str, more: str = "") -> SchedError:
    return SchedError(error("SL105", f"cannot unpack {path}: {why}{more}", help="fetch or write the file again"))


def _decoded(path: str, data: bytes) -> str:
    encoding, name = _SIXTEEN.get(data[:2], "utf-8"), "UTF-8"
    if encoding != "utf-8":
        name = "UTF-16"
    elif declared := _DECLARED.match(data.removeprefix(b"\xef\xbb\xbf"), 0, 400):
        name = declared[1].decode("ascii")
        known = _ENCODINGS.get(name.lower())
        if known is None:
            raise SchedError(error("SL105", f"{path} says that its encoding is {name}, which it is not, or which "
                                   "is not known here", help="save the file as UTF-8"))
        encoding = known
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise SchedError(error("SL105", f"{path} is not {name} text: line {line} has the byte 0x{data[e.start]:02x}",
                               help="save the file as UTF-8")) from None
