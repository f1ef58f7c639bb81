"""Compiled kernels on disk: whole files, in a folder of this user's alone, and no more than there is room for."""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

_SEAL = b"schedlang library "
"""What stands at the end of a file, followed by the digest of all before: loaders of ELF files do not mind, and what is
cut off or changed is not loaded."""


def folder(name: str) -> Path:
    """Where files of a kind are kept: a folder of this user's alone, or else one for this process."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    try:
        found = (Path(base) if os.path.isabs(base) else Path("~/.cache").expanduser()) / "schedlang" / name
        found.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = found.stat()
        if state.st_uid == os.geteuid() and not state.st_mode & 0o022 and os.access(found, os.W_OK | os.X_OK):
            return found            # what others could write to, we do not load
    except (OSError, RuntimeError):                         # RuntimeError: there is no home
        pass
    return Path(_own_folder(name).name)


@functools.cache
def _own_folder(name: str) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=f"schedlang-{name}-")


def sealed(data: bytes) -> bytes:
    """What a file has in it."""
    return data + _seal(data)


def _seal(data: bytes) -> bytes:
    return _SEAL + hashlib.blake2b(data, digest_size=32).digest()


def whole(path: Path) -> bytes | None:
    """What was written, without the seal; None where there is no such file or it is damaged."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    head = len(data) - len(_seal(b""))
    return data[:head] if head > 0 and data[head:] == _seal(data[:head]) else None


def put(path: Path, data: bytes) -> None:
    """Write a file: all of it or nothing; two processes that make the same do not mind."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".making-", delete=False) as made:
        try:
            made.write(sealed(data))
            made.close()
            os.replace(made.name, path)
        except BaseException:
            os.unlink(made.name)
            raise


def trim(path: Path, most: int) -> None:
    """Forget what was used longest ago of all files beside ``path`` (which stays) and of its kind, until those that are
    left have no more than ``most`` bytes together."""
    found = []
    for other in path.parent.glob(f"*{path.suffix}"):
        with suppress(OSError):                             # another process forgets, too
            state = other.stat()
            found.append((state.st_mtime, state.st_size, other))
    total = 0
    for _, size, other in sorted(found, reverse=True):
        total += size
        if total > most and other != path:
            other.unlink(missing_ok=True)
