"""A kernel on GPUs: compiled for each kind of them, loaded, and launched with one structure for an argument."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from schedlang.backends.cupy import compiler
from schedlang.backends.cupy.machine import trouble
from schedlang.diagnostics import SchedError, error

THREADS = 512
"""Threads of a block: MOST_THREADS of lane.cuh."""


@dataclass(frozen=True)
class Function:
    """A kernel on one GPU. ``resident``: how many blocks of it there can be at once. ``cooperative``: whether the GPU
    makes sure of that in a launch. ``module`` keeps it loaded."""

    device: int
    module: Any
    pointer: int
    resident: int
    cooperative: bool

    def launch(self, blocks: int, argument: ctypes.Structure, stream: Any, *, together: bool = False) -> None:
        """Start so many blocks on ``stream``, which is one of this GPU. ``together``: they wait for each other, so all
        must be there at once."""
        from cupy.cuda import Device, driver

        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
        shape = (self.pointer, blocks, 1, 1, THREADS, 1, 1, 0, stream.ptr, ctypes.addressof(pointers))
        with Device(self.device):
            if together and self.cooperative:
                driver.launchCooperativeKernel(*shape)
            else:
                driver.launchKernel(*shape, 0)


def load(source: str, name: str, devices: Iterable[int]) -> dict[int, Function]:
    """The kernel ``name`` of a source on each of some GPUs, so that no launch has to load anything.

    Raises SchedError: SL804 where it cannot be compiled, SL811 where not even one block fits.
    """
    from cupy.cuda import Device, driver, function, runtime

    found = {}
    for device in devices:
        with Device(device) as here:
            capability = int(here.compute_capability)
            module = function.Module()
            try:
                module.load(compiler.compiled(source, capability).image)
                pointer = module.get_function(name).ptr
                each = driver.occupancyMaxActiveBlocksPerMultiprocessor(pointer, THREADS, 0)
            except (driver.CUDADriverError, runtime.CUDARuntimeError) as cause:
                raise trouble(cause, f"loading a kernel on GPU {device}") from None
        resident = each * runtime.deviceGetAttribute(runtime.cudaDevAttrMultiProcessorCount, device)
        if not resident:
            raise SchedError(error("SL811", f"GPU {device} has not the registers for one block of {THREADS} threads of "
                                            "this kernel", help="use another GPU: --devices"))
        cooperative = bool(runtime.deviceGetAttribute(runtime.cudaDevAttrCooperativeLaunch, device))
        found[device] = Function(device, module, pointer, resident, cooperative)
    return found
