"""NVRTC, called as CuPy has it: a kernel for one kind of GPU, compiled once and kept on disk.

CuPy's own `RawModule` compiles with `-ftz=true`, so that sums near zero would differ from everybody else's. And here no
GPU is needed to compile.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from schedlang.backends.cuda import kept
from schedlang.diagnostics import Note, SchedError, error

OPTIONS = ("--std=c++17", "--ftz=false", "--fmad=false", "--prec-div=true", "--device-as-default-execution-space")
"""Every operation rounds to its dtype, as it does elsewhere."""

KEPT_BYTES = 64 << 20
"""How much compiled kernels may take on disk; the one used longest ago goes first."""

FOLDER = "cupy"
"""Where they are, among what schedlang keeps."""


@dataclass(frozen=True)
class Code:
    """``image``: what a module is loaded from. ``log``: what the compiler said; empty where it had nothing to say, or
    has not been asked."""

    image: bytes
    log: str


def compiled(source: str, capability: int) -> Code:
    """``source`` for GPUs of a compute capability (90: 9.0).

    Raises SchedError (SL804) where NVRTC is not there, does not know such a GPU, or refuses the source.
    """
    version, known = _nvrtc()
    architecture, binary = _architecture(capability, version, known)
    options = (*OPTIONS, f"--gpu-architecture={architecture}")
    how = hashlib.blake2b(digest_size=20)
    for part in (str(version), *options, source):
        how.update(part.encode() + b"\0")
    path = kept.folder(FOLDER) / f"{how.hexdigest()}.{'cubin' if binary else 'ptx'}"
    found = kept.whole(path)
    if found is not None:
        with suppress(OSError):     # another process forgot it just now
            os.utime(path)
        return Code(found, "")
    image, log = _compile(source, options, binary)
    with suppress(OSError):         # a full disk: then it is compiled again next time
        kept.put(path, image)
        kept.trim(path, KEPT_BYTES)
    return Code(image, log)


def missing() -> str | None:
    """What keeps NVRTC from being used, in a few words; None where nothing does."""
    try:
        _nvrtc()
    except SchedError as lacking:
        return lacking.diagnostics[0].message.partition(": ")[2]
    return None


def _nvrtc() -> tuple[tuple[int, int], tuple[int, ...]]:
    """The version of NVRTC, and the compute capabilities that it knows."""
    from cupy.cuda import nvrtc

    try:
        return tuple(nvrtc.getVersion()), tuple(sorted(nvrtc.getSupportedArchs()))
    except (RuntimeError, ImportError, OSError) as cause:   # the library is looked for in the first call
        raise SchedError(error("SL804", f"the back end cupy cannot run here: NVRTC, which compiles kernels, cannot be "
                                        f"loaded ({type(cause).__name__})", help=_extra())) from None


def _extra() -> str:
    return f"pip install 'schedlang[{flavour()}]' brings it"


def flavour() -> str:
    """The extra that goes with the CuPy that is installed."""
    from cupy.cuda import runtime

    return "cuda12" if runtime.runtimeGetVersion() // 1000 == 12 else "cuda13"


def _architecture(capability: int, version: tuple[int, int], known: tuple[int, ...]) -> tuple[str, bool]:
    """What to compile for, and whether that makes machine code, rather than PTX, which the driver compiles on."""
    alike = [k for k in known if k // 10 == capability // 10 and k <= capability]
    if alike:                       # machine code runs on later GPUs of the same generation
        return f"sm_{alike[-1]}", True
    before = [k for k in known if k <= capability]
    if before:
        return f"compute_{before[-1]}", False
    oldest = f"sm_{known[0]}" if known else "no GPU at all"
    other = "pip install 'schedlang[cuda12]', in an environment without cupy-cuda13x, knows sm_50 and later"
    raise SchedError(error("SL804", f"the back end cupy cannot run here: NVRTC {version[0]}.{version[1]} does not know "
                                    f"this GPU, which is sm_{capability}; the oldest that it knows is {oldest}",
                           help=other if version[0] > 12 else "use a later GPU, or the back end native"))


def _compile(source: str, options: tuple[str, ...], binary: bool) -> tuple[bytes, str]:
    from cupy.cuda import nvrtc

    program = nvrtc.createProgram(source, "schedule.cu", (), ())
    try:
        try:
            nvrtc.compileProgram(program, options)
        except nvrtc.NVRTCError as cause:
            raise _refused(options, cause, nvrtc.getProgramLog(program)) from None
        return (nvrtc.getCUBIN if binary else nvrtc.getPTX)(program), nvrtc.getProgramLog(program).strip("\0\n ")
    finally:
        nvrtc.destroyProgram(program)


def _refused(options: tuple[str, ...], cause: Any, log: str) -> SchedError:
    first = next((line for line in log.splitlines() if "error" in line), "")
    return SchedError(error("SL804", f"NVRTC cannot compile the schedule with {options[-1]}: {cause}",
                            notes=(Note(f"it says: {first}"),) if first else (),
                            help=f"{_extra()} in a version that can"))
