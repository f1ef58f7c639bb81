"""The system's C++ compiler: found, asked to make a library of a source, and not asked twice for the same one."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from schedlang.backends.cuda import kept
from schedlang.diagnostics import Note, SchedError, error

HERE = Path(__file__).parent
HEADER = "cpu.h"
"""What gives the words of CUDA their meaning on a CPU; it comes before every source."""

KNOWN = ("g++", "clang++")
FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-strict-aliasing", "-ffp-contract=off", "-fPIC", "-shared",
         "-Wl,-Bsymbolic", "-pthread", "-w")
"""Without contraction: every operation rounds to its dtype. Symbols are a library's own, since each is made for another
dtype. Sources are made by us: warnings would tell nobody."""

GCC_FLAGS = ("-fno-gnu-unique",)
"""Else g++ has variables in templates and inline functions shared by all libraries of a process."""

THREAD_SANITIZER = ("-fsanitize=thread", "-g", "-O1")
"""Flags, to be added, that find races. The process must have libtsan loaded before all else."""

KEPT_BYTES = 256 << 20
"""How much the libraries on disk may take together; the one used longest ago goes first."""

FOLDER = "native"
"""Where they are kept, among what schedlang keeps."""


@dataclass(frozen=True)
class Compiler:
    """``command``: how it is called, with options that it always gets. ``version``: what it says of itself."""

    command: tuple[str, ...]
    version: str

    @property
    def flags(self) -> tuple[str, ...]:
        """What it is always given."""
        return FLAGS if "clang" in self.version else (*FLAGS, *GCC_FLAGS)


def find() -> Compiler:
    """The compiler that CXX names, else g++ or clang++. Raises SchedError (SL804) where there is none."""
    return _found(os.environ.get("CXX", ""), os.environ.get("PATH", ""))


@functools.cache
def _found(wanted: str, path: str) -> Compiler:
    try:
        named = tuple(shlex.split(wanted))
    except ValueError as cause:
        raise SchedError(error("SL804", f"CXX={wanted!r} cannot be read as a command: {cause}",
                               help="let it name a C++ compiler, or unset it")) from None
    for command in (named,) if named else tuple((name,) for name in KNOWN):
        if shutil.which(command[0], path=path) is None:
            continue
        try:
            asked = subprocess.run([*command, "--version"], capture_output=True, text=True, errors="replace",
                                   check=False, stdin=subprocess.DEVNULL)
        except OSError:                                     # no program of this system
            continue
        if asked.returncode == 0 and asked.stdout.strip():
            return Compiler(command, asked.stdout)
    what = f"{named[0]}, which CXX names, is not there or does not run" if named else "there is no g++ or clang++"
    raise SchedError(error("SL804", f"the back end native cannot run here: {what}",
                           help="install a C++ compiler (Debian, Ubuntu: apt-get install g++), or let CXX name one"))


def load(source: str, *, flags: Sequence[str] = ()) -> ctypes.CDLL:
    """A shared library made of ``source``, compiled after HEADER, with ``flags`` beside our own; from the cache where
    it has been made before.

    Raises SchedError: SL804 where there is no compiler, or it cannot compile that.
    """
    compiler = find()
    path = kept.folder(FOLDER) / f"{_key(compiler, source, flags)}.so"
    if kept.whole(path) is not None:
        with suppress(OSError):     # another process forgot it just now, or it is for a system that is no more
            os.utime(path)
            return ctypes.CDLL(str(path))
    _compile(compiler, source, flags, path)
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as cause:
        raise SchedError(error("SL804", f"what {compiler.command[0]} makes cannot be loaded: {cause}",
                               help="see whether it compiles for this system; CXX names another compiler")) from None
    kept.trim(path, KEPT_BYTES)
    return loaded


def _key(compiler: Compiler, source: str, flags: Sequence[str]) -> str:
    how = hashlib.blake2b(digest_size=20)
    headers = [path.read_bytes() for path in sorted(HERE.glob("*.h"))]
    for part in (compiler.version, *compiler.command, "", *compiler.flags, *flags, "", _processor(), source):
        how.update(part.encode() + b"\0")
    for header in headers:
        how.update(header + b"\0")
    return how.hexdigest()


@functools.cache
def _processor() -> str:
    """What -march=native depends on."""
    found: dict[str, str] = {}
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            found.setdefault(name.strip(), value.strip())
    told = [found[name] for name in ("vendor_id", "cpu family", "model", "flags", "Features") if name in found]
    return " ".join([platform.machine(), *told])


def _compile(compiler: Compiler, source: str, flags: Sequence[str], path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".making-") as folder:
        text, made = Path(folder) / "kernel.cpp", Path(folder) / "kernel.so"
        text.write_text(source)
        command = [*compiler.command, *compiler.flags, *flags, "-I", str(HERE), "-include", HEADER, str(text), "-o",
                   str(made)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False,
                              stdin=subprocess.DEVNULL)
        if done.returncode or not made.exists():
            raise _refused(compiler, command, done.returncode, done.stderr)
        made.write_bytes(kept.sealed(made.read_bytes()))
        made.replace(path)          # a whole file or none; two processes that make the same do not mind


def _refused(compiler: Compiler, command: Sequence[str], status: int, said: str) -> SchedError:
    lines = said.strip().splitlines()
    first = next((line for line in lines if "error" in line), lines[-1] if lines else "")
    how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    return SchedError(error(
        "SL804", f"{compiler.command[0]} cannot compile the schedule: it {how}",
        notes=(Note(f"it says: {first}"),) if first else (),
        help=f"g++ 9 and clang++ 10 and later should do (this one says: {compiler.version.splitlines()[0]}); CXX "
             "names another"))
