"""The stand-in for CuPy has nothing that CuPy has not, and notices what CUDA refuses or leaves undefined."""

from functools import reduce

import pytest

from tests import cupy_double


def test_cupy_has_all_that_its_double_has():
    cupy = pytest.importorskip("cupy")
    for name, double in cupy_double._modules().items():
        real = reduce(getattr, name.split(".")[1:], cupy)
        assert real is not double
        lacking = [word for word in vars(double) if not word.startswith("_") and not hasattr(real, word)]
        assert not lacking, (name, lacking)
    from cupy import cuda

    # Stream.ptr is set when one is made, which takes a GPU.
    for kind, words in {cuda.Stream: ("done", "synchronize", "record", "wait_event", "begin_capture", "end_capture"),
                        cuda.Memory: ("ptr",), cuda.function.Function: ("ptr",),
                        cuda.Device: ("compute_capability", "__enter__"), cuda.Graph: ("launch",),
                        cuda.function.Module: ("load", "get_function")}.items():
        assert all(hasattr(kind, word) for word in words), kind


@pytest.fixture
def cuda():
    with cupy_double.installed(cupy_double.World(2)):
        from cupy import cuda

        yield cuda


def stream_on(cuda, device):
    with cuda.Device(device):
        return cuda.Stream(non_blocking=True), cuda.Event(disable_timing=True)


def test_memory_of_another_gpu_is_out_of_reach(cuda):
    (stream, _), memory = stream_on(cuda, 1), cuda.Memory(8)        # on GPU 0
    cuda.runtime.memsetAsync(memory.ptr, 0, 8, stream.ptr)
    with pytest.raises(AssertionError, match="GPU 1 does not reach the memory of GPU 0"):
        stream.synchronize()
    with cuda.Device(1):
        cuda.runtime.deviceEnablePeerAccess(0)
    cuda.runtime.memsetAsync(memory.ptr, 0, 8, stream.ptr)
    stream.synchronize()
    cuda.runtime.memsetAsync(memory.ptr, 0, 9, stream.ptr)
    with pytest.raises(AssertionError, match="beyond the end"):
        stream.synchronize()


def test_a_stream_that_does_not_come_back_to_a_graph(cuda):
    (first, start), (second, _) = stream_on(cuda, 0), stream_on(cuda, 1)
    first.begin_capture()
    first.record(start)
    second.wait_event(start)
    with pytest.raises(cuda.runtime.CUDARuntimeError, match="Unjoined"):
        first.end_capture()


def test_a_graph_that_waits_for_what_is_outside(cuda):
    (first, _), (second, outside) = stream_on(cuda, 0), stream_on(cuda, 1)
    second.record(outside)
    first.begin_capture()
    with pytest.raises(cuda.runtime.CUDARuntimeError, match="Isolation"):
        first.wait_event(outside)


def test_events_belong_to_a_gpu_and_are_recorded_before_anybody_waits(cuda):
    (first, mine), (_, other) = stream_on(cuda, 0), stream_on(cuda, 1)
    with pytest.raises(AssertionError, match="another GPU"):
        first.record(other)
    with pytest.raises(AssertionError, match="not recorded"):
        first.wait_event(mine)


def test_too_many_blocks_at_once(cuda):
    with pytest.raises(cuda.driver.CUDADriverError, match="TOO_LARGE"):
        cuda.driver.launchCooperativeKernel(1, 65, 1, 1, 512, 1, 1, 0, 1, 1)
