"""Reading and writing files."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from schedlang.diagnostics import SchedError, error
from schedlang.source import Source


def read_file(path: str, most: int | None = None) -> bytes:
    """What a file holds. Raises OSError where it cannot be read, for a device such as /dev/zero, which has no end, and
    where there are more than ``most`` bytes; ValueError for a null character in the name."""
    with open(path, "rb") as file:
        if stat.S_ISCHR(os.fstat(file.fileno()).st_mode) and not file.isatty():
            raise OSError(errno.EINVAL, "it is a device; name a file")
        if most is None:
            return file.read()
        data = file.read(most + 1)
        if len(data) > most:
            raise OSError(errno.EFBIG, f"it has more than {most >> 20} MiB")
        return data


def read_bytes(path: str, most: int | None = None) -> bytes:
    """As :func:`read_file`. Raises SchedError (SL105) where it cannot be read."""
    try:
        return read_file(path, most)
    except (OSError, ValueError) as e:  # ValueError: a NUL in the path
        why = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise SchedError(error("SL105", f"cannot read {path}: {why}", help=_instead(path, e))) from None


def read_text(path: str) -> Source:
    """The text of a file. Raises SchedError (SL105) where it cannot be read or is not UTF-8."""
    data = read_bytes(path)
    if data.startswith(b"\x1f\x8b"):
        raise SchedError(error("SL105", f"{path} is compressed, not text",
                               help=f"decompress it: gunzip {path}; only MSCCL XML, whose name then ends in .xml.gz, "
                                    "is read as it is, and not to be imported or formatted"))
    try:
        return Source(path, data.decode("utf-8-sig"))
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise SchedError(error("SL105", f"{path} is not UTF-8 text: line {line} has the byte 0x{data[e.start]:02x}",
                               help="save the file as UTF-8")) from None


def _instead(path: str, why: Exception) -> str | None:
    """What to name where a path cannot be read."""
    if isinstance(why, IsADirectoryError):
        return "name a file in it, or all of them to `verify` or `fmt`"
    if path == "-" and isinstance(why, FileNotFoundError):
        return "only `fmt` takes - for the standard input; elsewhere it is /dev/stdin"
    return None


def write_file(path: str, write: Callable[[IO[bytes]], object]) -> None:
    """Have ``write`` write a file: it appears as a whole or not at all; a file that was there keeps its permissions.
    What is no file (a device, a pipe) is written to, not replaced.

    Raises SchedError (SL807).
    """
    try:
        if "\0" in path:
            raise OSError(0, "there is a null character in the name")
        mode = _mode(path)
        if mode is not None and not stat.S_ISREG(mode):
            with open(path, "wb") as place:
                write(place)
            return
        _replace(Path(path).resolve(), write, mode)
    except OSError as failure:
        shown = path.replace("\0", "?")
        raise SchedError(error("SL807", f"cannot write {shown}: {failure.strerror or failure}")) from None


def _replace(target: Path, write: Callable[[IO[bytes]], object], mode: int | None) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=".schedlang-")
    try:
        with open(descriptor, "wb") as file:
            write(file)
        # A temporary file is readable by its owner only; give it what the old file had, or what a new one would have.
        os.chmod(temporary, stat.S_IMODE(mode) if mode is not None else 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _mode(path: str) -> int | None:
    """The kind and permissions of what a path leads to; None where there is nothing."""
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
