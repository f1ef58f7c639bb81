"""The stand-in for NCCL: what hangs there hangs here, and who does not wait is found out."""

import pytest
import torch

from tests.nccl_double import Hang, Misuse, World, device, host


def filled(value, size=4):
    return device(torch.full((size,), float(value)))


def test_exchange_in_one_batch():
    world = World(2)

    def rank(me):
        mine, other = filled(me), filled(-1)
        dist = world.dist
        batch = [dist.P2POp(dist.isend, mine, 1 - me), dist.P2POp(dist.irecv, other, 1 - me)]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
        other.add_(mine)
        return host(other).tolist()

    assert world.run(rank) == [[1.0] * 4] * 2


def test_messages_of_two_batches_that_are_sent_first_hang():
    """Each rank's send is over only once it is received, and its receive comes after."""
    world = World(2)

    def rank(me):
        world.dist.isend(filled(me), 1 - me)
        world.dist.irecv(filled(-1), 1 - me)

    with pytest.raises(Hang, match=r"(?s)rank 0, communicator 0: send to 1.*rank 1, communicator 0: send to 0"):
        world.run(rank)


def test_an_order_that_fits_does_not_hang():
    world = World(2)

    def rank(me):
        got = filled(-1)
        for which in (0, 1):
            if me == which:
                world.dist.isend(filled(me), 1 - me).wait()
            else:
                world.dist.irecv(got, 1 - me).wait()
        return host(got).tolist()

    assert world.run(rank) == [[1.0] * 4, [0.0] * 4]


def test_two_communicators_go_on_side_by_side_unless_the_device_has_room_for_one():
    def rank(me):
        dist = world.dist
        groups = [dist.group.WORLD, dist.new_group([0, 1])]
        for group in groups if me == 0 else groups[::-1]:       # in another order on each rank
            (dist.isend if me == 0 else dist.irecv)(filled(me), 1 - me, group)

    world = World(2, eager=True)
    world.run(rank)
    world = World(2, eager=True, serial=True)
    with pytest.raises(Hang):
        world.run(rank)


def test_the_first_batch_needs_every_rank():
    def rank(me):
        if ready:
            world.dist.all_reduce(filled(0))
        if me < 2:
            (world.dist.isend if me == 0 else world.dist.irecv)(filled(me), 1 - me)

    ready, world = False, World(3)
    with pytest.raises(Hang, match=r"sets up communicator 0, which needs all of \[0, 1, 2\]"):
        world.run(rank)
    ready, world = True, World(3)
    world.run(rank)
    ready, world = False, World(3, eager=True)
    world.run(rank)


def test_tags_do_not_tell_messages_apart():
    world = World(2)

    def rank(me):
        first, second = filled(1), filled(2)
        order = [(first, 1), (second, 2)] if me == 0 else [(second, 2), (first, 1)]
        for tensor, tag in order:
            (world.dist.isend if me == 0 else world.dist.irecv)(tensor, 1 - me, tag=tag)
        return host(first).tolist()

    assert world.run(rank)[1] == [2.0] * 4      # received second, so it is what was sent second


@pytest.mark.parametrize("size", [3, 5])
def test_sizes_must_agree(size):
    world = World(2)

    def rank(me):
        (world.dist.isend if me == 0 else world.dist.irecv)(filled(me, 4 if me == 0 else size), 1 - me)

    with pytest.raises(Misuse, match=f"sends 4 elements .* receives {size}"):
        world.run(rank)


def test_groups_are_made_in_one_order():
    world = World(3)

    def rank(me):
        for ranks in ([0, 1], [1, 2]) if me else ([1, 2], [0, 1]):
            world.dist.new_group(ranks)

    with pytest.raises(Misuse, match="makes group"):
        world.run(rank)


@pytest.mark.parametrize("waits", [True, False])
def test_who_does_not_wait_is_found_out(waits):
    """A receive whose stream nobody holds: what uses it may come first."""
    results = set()
    for seed in range(12):
        world = World(2, seed=seed)

        def rank(me, world=world):
            got = filled(me)
            work = (world.dist.isend if me == 0 else world.dist.irecv)(got, 1 - me)
            if waits:
                work.wait()
            twice = got.clone()
            return host(twice).tolist()[0]

        results.add(world.run(rank)[1])
    assert results == ({0.0} if waits else {0.0, 1.0})


def test_streams_are_ordered_by_events_only():
    results = set()
    for seed in range(12):
        world = World(1, seed=seed)

        def rank(me, world=world, ordered=seed % 2):
            cuda = world.torch.cuda
            value, other, event = filled(0), cuda.Stream(), cuda.Event()
            value.add_(1)
            event.record()
            with cuda.stream(other):
                if ordered:
                    other.wait_event(event)
                value.mul_(10)
            return ordered, host(value).tolist()[0]

        results |= set(world.run(rank))
    assert results == {(1, 10.0), (0, 10.0), (0, 1.0)}
