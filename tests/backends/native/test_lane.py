"""What lanes do, in kernels written by hand: results in all modes, deadlocks, timeouts, launches one after another."""

import os
import threading

import numpy as np
import pytest

from tests.backends.native.kernels import ALL, FIBERS, RING, ROTATE, World, Written, expected

MODES = {
    "threads": {},
    "threads that sleep at once": {"looks": 0, "yields": 0},
    "threads in blocks": {"threads": 3},
    "threads with delays": {"threads": 2, "delays": 4, "delay": 100},
    "fibers": {"kind": FIBERS},
    "fibers in blocks": {"kind": FIBERS, "threads": 3, "delays": 3},
}


def numbers(ranks: int, elements: int, seed: int, dtype=np.float32) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9, 9, (ranks, elements)).astype(dtype)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
@pytest.mark.parametrize("name", ALL)
def test_results(name, mode):
    kernel = ALL[name]
    for elements in (0, 1, 3, 17, 1001, 30011):
        for blocks, slices in ((1, 1), (1, 5), (3, 2)):
            world = World(kernel, 4, elements, blocks=blocks, slices=slices, flags=())
            for launch in range(3):                         # flags only rise, so nothing is set back in between
                values = numbers(4, elements, launch)
                world.fill(values)
                assert world.launch(seed=elements + launch, **mode) == 0, (world.stop, world.waits())
                assert np.array_equal(world.result(), expected(kernel, values)), (elements, blocks, slices, launch)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("ranks", [2, 5])
def test_ranks(name, ranks):
    world = World(ALL[name], ranks, 1001, blocks=2, slices=2)
    values = numbers(ranks, 1001, ranks)
    for seed in range(5):
        world.fill(values)
        assert world.launch(FIBERS, 2, seed=seed, delays=2) == 0
        assert np.array_equal(world.result(), expected(ALL[name], values))


def test_addresses_need_no_alignment():
    world = World(RING, 4, 1001, blocks=2, off=lambda rank, buffer: rank)
    values = numbers(4, 1001, 0)
    world.fill(values)
    assert world.launch(threads=2) == 0
    assert np.array_equal(world.result(), expected(RING, values))
    for here in world.buffers:
        owner = here[0].base                                # with some bytes before and behind
        here[0][:] = 0
        assert not owner.any()


def test_many_launches():
    world = World(RING, 3, 100)
    world.fill(np.ones((3, 100), np.float32))
    for _ in range(200):
        assert world.launch() == 0
        for here in world.buffers:
            here[0] /= 3
    assert (world.result() == 1).all()


def test_queue_that_is_full_waits_for_the_oldest():
    """A lane may have more sends than its queue holds; those of earlier steps have been taken by then."""
    kernel = Written("""
__device__ void main_0(Lane& lane) {
    for (int i = 0; i < 100; ++i) {
        if (lane.rank == 0) lane.post(1, 0, i);
        if (lane.rank == 1)
            for (int p = 0; p < lane.slices(1); ++p) lane.take(0, 0, i, p, {0, 0}, {0, 0}, 1, 0);
    }
}
""", queue=3, messages=lambda ranks: 100)
    world = World(kernel, 2, 10)
    values = numbers(2, 10, 0)
    for seed in range(10):
        world.fill(values)
        assert world.launch(FIBERS, seed=seed) == 0
        assert np.array_equal(world.buffers[1][0][:5], values[0, :5])


STUCK = Written("""
__device__ void main_0(Lane& lane) {
    const int other = 1 - lane.rank;
    for (int p = 0; p < lane.slices(1); ++p) lane.take(other, 0, 3, p, {0, 1}, {0, 1}, 1, 1);
    lane.post(other, 0, 3);
}
""")


def test_fibers_find_a_deadlock_at_once():
    world = World(STUCK, 2, 10)
    assert world.launch(FIBERS, 2, timeout=0) == 2
    assert world.stop == "deadlock"
    assert world.waits() == [("message", 1, 0, 3, 0), ("message", 0, 0, 3, 0)]


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_end_when_time_is_over(threads):
    world = World(STUCK, 2, 10)
    assert world.launch(threads=threads, timeout=0.1) == 1
    assert world.stop == "timeout"
    assert world.waits() == [("message", 1, 0, 3, 0), ("message", 0, 0, 3, 0)]


def test_what_is_waited_for_is_said():
    """A send that nobody takes, and an event that nobody records."""
    untaken = Written("__device__ void main_0(Lane& lane) { if (lane.rank == 0) lane.post(1, 0, 2); }")
    world = World(untaken, 2, 10)
    assert world.launch(FIBERS) == 2
    assert world.waits() == [("taken", 1, 0, 2, 0), ("nothing", 0, 0, 0, 0)]
    event = Written("__device__ void main_0(Lane& lane) { if (lane.rank == 1) lane.wait(1); }", events=2)
    world = World(event, 2, 10)
    assert world.launch(timeout=0.05) == 1
    assert world.waits() == [("nothing", 0, 0, 0, 0), ("event", 1, 0, 1, 0)]


def test_barrier_that_is_missed_is_a_deadlock():
    apart = Written("__device__ void main_0(Lane& lane) { if (threadIdx.x) __syncthreads(); else lane.wait(0); }",
                    events=1)
    world = World(apart, 1, 10)
    assert world.launch(FIBERS, 2) == 2
    world = World(apart, 1, 10)
    assert world.launch(threads=2, timeout=0.05) == 1


def test_host_stops_a_launch():
    world = World(STUCK, 2, 10)
    timer = threading.Timer(0.05, lambda: world.watch.__setitem__(0, 1))
    timer.start()
    assert world.launch(timeout=0) == 1
    assert world.stop == "asked"


def test_stopped_before_it_begins():
    world = World(RING, 2, 10)
    world.watch[0] = 1
    assert world.launch(FIBERS, 2, seed=1) == 1


def test_children_have_threads_of_their_own():
    world = World(RING, 3, 100)
    assert world.launch() == 0
    child = os.fork()
    if not child:
        os._exit(world.launch(timeout=5))
    assert os.waitpid(child, 0)[1] == 0


def test_two_worlds_at_once():
    worlds = [World(ROTATE, 3, 1000) for _ in range(2)]
    values = numbers(3, 1000, 0)
    found = []

    def work(world):
        for _ in range(20):
            world.fill(values)
            found.append(world.launch() == 0 and np.array_equal(world.result(), expected(ROTATE, values)))

    threads = [threading.Thread(target=work, args=(world,)) for world in worlds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found) and len(found) == 40
