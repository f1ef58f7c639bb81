"""The GPUs of this machine as CuPy sees them: what is missing, where ranks are, who reaches whose memory, and memory.

Everything of CuPy is used through plain calls with addresses, so that a kernel may read what another GPU holds.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any
from weakref import finalize

import numpy as np

from schedlang.backends.cupy import compiler
from schedlang.diagnostics import SchedError, error
from schedlang.ir.table import Array

HOST = -1
"""In the place of a GPU's number: pinned memory of the host, which all GPUs reach."""

_NO_DRIVER = ("cudaErrorInsufficientDriver", "cudaErrorStubLibrary", "cudaErrorSystemDriverMismatch")
_PEER_ACCESS_IS_ON = "cudaErrorPeerAccessAlreadyEnabled"
_NO_MEMORY = ("cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY")


def missing() -> str | None:
    """What keeps CuPy from running kernels here, in a few words; None where nothing does."""
    if find_spec("cupy") is None:
        return "CuPy is not installed (pip install 'schedlang[cuda13]', or 'schedlang[cuda12]' for an older driver)"
    try:
        from cupy.cuda import runtime
    except ImportError as cause:
        return f"CuPy cannot be imported: {(str(cause).strip() or type(cause).__name__).splitlines()[0]}"
    if runtime.is_hip:
        return "this CuPy is for AMD GPUs, and kernels are written for those of NVIDIA"
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as cause:
        name = _name(cause)
        if name in _NO_DRIVER:
            return f"there is no NVIDIA driver, or one too old for CUDA {runtime.runtimeGetVersion() // 1000} ({name})"
        return f"there is no GPU that can be used ({name})"
    if not count:
        return "there is no GPU"
    return compiler.missing()


def _name(cause: Exception) -> str:
    """What CUDA calls an error."""
    return str(cause).partition(":")[0]


def trouble(cause: Exception, doing: str) -> SchedError:
    """What to raise where CUDA refuses something."""
    if _name(cause) in _NO_MEMORY:
        return SchedError(error("SL802", f"the GPUs' memory does not hold what this run needs ({doing})",
                                help="take fewer elements, or more GPUs: --devices"))
    return SchedError(error("SL813", f"a GPU gave up {doing}: {str(cause).strip()}",
                            help="see what `nvidia-smi` says; compute-sanitizer tells more of a kernel that is wrong"))


@dataclass(frozen=True)
class Machine:
    """``of``: the number of the GPU that each rank is on. ``apart``: pairs of GPUs (a, b), both in use, where a cannot
    read or write the memory of b."""

    of: tuple[int, ...]
    apart: frozenset[tuple[int, int]] = field(default_factory=frozenset)

    @property
    def devices(self) -> tuple[int, ...]:
        """The GPUs in use."""
        return tuple(sorted(set(self.of)))

    def reaches(self, a: int, b: int) -> bool:
        """Whether what runs on GPU a may use addresses of GPU b or of the HOST."""
        return (a, b) not in self.apart


def arranged(ranks: int, devices: Sequence[int] | None = None) -> Machine:
    """Where ranks are, with access between GPUs switched on where it can be. ``devices``: GPUs to use, by default all
    of them; one for each rank where there are as many, and where there are fewer, as many ranks on each as need be.

    Raises SchedError (SL806) where there are no such GPUs.
    """
    from cupy.cuda import runtime

    there = runtime.getDeviceCount()
    chosen = list(range(there)) if devices is None else list(devices)
    unknown = [d for d in chosen if not 0 <= d < there]
    if unknown or not chosen:
        what = f"there is no GPU {unknown[0]}" if unknown else "no GPU is named"
        have = "GPU 0" if there == 1 else f"GPUs 0 to {there - 1}"
        raise SchedError(error("SL806", f"{what}: this machine has {have}",
                               help=f"for example --devices {','.join(map(str, range(min(there, 4))))}"))
    of = tuple(chosen[:ranks] if len(chosen) >= ranks else (chosen[r * len(chosen) // ranks] for r in range(ranks)))
    used = sorted(set(of))
    apart = {(a, b) for a in used for b in used if a != b and not _opened(runtime, a, b)}
    return Machine(of, frozenset(apart))


def _opened(runtime: Any, a: int, b: int) -> bool:
    """Switches on that a reaches b; whether it does."""
    from cupy.cuda import Device

    if not runtime.deviceCanAccessPeer(a, b):
        return False
    with Device(a):
        try:
            runtime.deviceEnablePeerAccess(b)
        except runtime.CUDARuntimeError as cause:
            return _name(cause) == _PEER_ACCESS_IS_ON
    return True


class Memory:
    """``size`` bytes at ``address`` on a GPU, or in pinned memory of the HOST, as long as this object is there."""

    def __init__(self, device: int, size: int) -> None:
        """Raises SchedError (SL802) where there is not so much."""
        import cupy
        from cupy.cuda import runtime

        self.device, self.size, self.address = device, size, 0
        if not size:
            return
        try:
            if device == HOST:
                self.address = runtime.hostAlloc(size, runtime.hostAllocPortable | runtime.hostAllocMapped)
                finalize(self, runtime.freeHost, self.address)
            else:
                with cupy.cuda.Device(device):
                    self._owned = cupy.cuda.Memory(size)        # of CuPy's pools, some are closed to other GPUs
                    self.address = self._owned.ptr
        except runtime.CUDARuntimeError as cause:
            where = "of the host" if device == HOST else f"on GPU {device}"
            raise trouble(cause, f"{size:,} bytes {where}") from None

    def array(self) -> Array:
        """The bytes, where they are the HOST's."""
        assert self.device == HOST
        if not self.size:
            return np.empty(0, np.uint8)
        return np.ctypeslib.as_array((ctypes.c_ubyte * self.size).from_address(self.address))


def copy(to: int, from_: int, size: int, stream: Any) -> None:
    """So many bytes from one address to another, later."""
    from cupy.cuda import runtime

    if size:
        runtime.memcpyAsync(to, from_, size, runtime.memcpyDefault, stream.ptr)


def clear(memory: Memory, stream: Any) -> None:
    """All bytes to 0, later."""
    from cupy.cuda import runtime

    if memory.device == HOST:
        memory.array()[...] = 0
    elif memory.size:
        runtime.memsetAsync(memory.address, 0, memory.size, stream.ptr)
