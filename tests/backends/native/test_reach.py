"""Messages that are read out of another process, which has not mapped its memory for others."""

import ctypes
import errno
import mmap
import os

import numpy as np
import pytest

from tests.backends.native.kernels import RING, World, aligned, expected


class ReachStruct(ctypes.Structure):
    """``Reach``."""

    _fields_ = (("process", ctypes.c_longlong), ("buffers", ctypes.c_void_p))


def shared(elements: int, dtype, off: int = 0) -> np.ndarray:
    """Zeros that a child has, too."""
    return np.frombuffer(mmap.mmap(-1, max(1, elements * np.dtype(dtype).itemsize + off)), dtype, elements, off)


def two_processes(elements: int, **layout) -> tuple[World, list]:
    """A ring of two ranks. The buffer of rank 1 is not mapped for rank 0; where it is, and what must stay alive."""
    world = World(RING, 2, elements, allocate=shared, **layout)
    world.buffers[1][0] = aligned(elements, np.float32)
    place = world.buffers[1][0].ctypes.data
    mapped = (ctypes.c_void_p * 2).from_address(world.arguments.struct.buffers)
    mapped[1] = place
    return world, [place, mapped]


def reach(process: int, place: int) -> list:
    """How rank 0 reads rank 1."""
    private = (ctypes.c_void_p * 1)(place)
    return [(ReachStruct * 2)(ReachStruct(0, None), ReachStruct(process, ctypes.addressof(private))), private]


@pytest.mark.parametrize("elements", [2, 17, 100_003])     # with sums in more than one piece
def test_values(elements):
    world, (place, mapped) = two_processes(elements, slices=2)
    values = np.random.default_rng(0).integers(-9, 9, (2, elements)).astype(np.float32)
    world.buffers[0][0][:] = values[0]
    child = os.fork()
    if not child:
        world.buffers[1][0][:] = values[1]                      # of the child alone
        done = world.launch(first=1, lanes=1)
        os._exit(done or 4 * (not np.array_equal(world.buffers[1][0], expected(RING, values)[1])))
    how = reach(child, place)
    mapped[1] = None
    world.arguments.struct.reach = ctypes.addressof(how[0])
    done = world.launch(lanes=1)
    status = os.waitpid(child, 0)[1]
    if done and world.watch[1] == errno.EPERM:
        pytest.skip("this system lets no process read another's memory")
    assert done == 0 and status == 0
    assert np.array_equal(world.buffers[0][0], expected(RING, values)[0])
    assert not world.buffers[1][0].any()


def test_process_that_is_gone():
    world, (place, mapped) = two_processes(10)
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    how = reach(child, place)
    mapped[1] = None
    world.arguments.struct.reach = ctypes.addressof(how[0])
    world.flags[0][: 8 * 2 * 2] = 1 << 40       # as if all messages were ready and taken: all flags but the epoch
    assert world.launch(lanes=1) == 1
    assert world.stop == "unreadable"
    assert world.watch[1] in (errno.ESRCH, errno.EPERM) and world.watch[2] == 1
