"""Emitted files over Gloo: bit for bit what the NumPy back end computes."""

import random

import numpy as np
import pytest
import torch
import torch.distributed as dist

import schedlang
from schedlang.backends.torch.emit import source
from schedlang.ir.layout import Layout
from schedlang.running import dtypes
from tests.backends.torch.emission import EXAMPLES, NAMES, SCHEDULES, given, require_equal, some_runs, tables
from tests.backends.torch.emitted import function_name, module, perform, used
from tests.backends.worlds import some_inputs

KINDS = ["allreduce/ring", "reduce/direct", "broadcast/staged_chain", "reduce_scatter/ring", "allgather/ring",
         "scatter/direct", "gather/direct", "alltoall/pairwise", "barrier/dissemination", "custom/scan"]


def compared(world, table, runs):
    """Run an emitted file on all ranks, and compare with the NumPy back end."""
    text = source(table)
    got = world(table.ranks).each(perform, [(text, [given(table, run, rank) for run in runs])
                                            for rank in range(table.ranks)])
    for number, run in enumerate(runs):
        require_equal(table, run, [mine[number] for mine in got])


@pytest.mark.parametrize("path,schedule", SCHEDULES, ids=NAMES)
def test_every_shipped_schedule(path, schedule, world):
    rng = random.Random(schedule)
    found = tables(path, schedule, {2, 4}) or tables(path, schedule, {3})
    table = rng.choice(found)
    compared(world, table, some_runs(table, rng))


@pytest.mark.nightly
@pytest.mark.parametrize("path,schedule", SCHEDULES, ids=NAMES)
def test_every_shipped_schedule_at_every_size(path, schedule, world):
    rng = random.Random(schedule)
    for table in tables(path, schedule, {2, 3, 4, 8}):
        compared(world, table, some_runs(table, rng))


def supported(op, dtype):
    """Whether an operator is defined for a dtype, and torch can compute it."""
    if op in ("min", "max", "avg") and dtype.name in ("uint16", "uint32", "uint64"):
        return False
    try:
        dtypes.require_defined(op, dtype)
    except schedlang.SchedError:
        return False
    return True


@pytest.mark.parametrize("example", ["allreduce/double_tree", "reduce_scatter/ring"])
def test_every_dtype_and_operator(world, example):
    table = schedlang.load(str(EXAMPLES / f"{example}.sched"), ranks=4).table
    runs = []
    for dtype in dtypes.DTYPES.values():
        for op in dtypes.REDUCE_OPS:
            if supported(op, dtype):
                layout = Layout(table, 36)
                runs.append((some_inputs(table, layout, dtype.numpy, len(runs)), layout, op))
    compared(world, table, runs)


def refused(text):
    """What the function of an all-reduce says of what it cannot do, on one rank."""
    function = getattr(module(text), function_name(text))
    said = []
    for tensor, op in [(torch.ones(4, dtype=torch.uint16), "max"), (torch.ones(4), "bor"),
                       (torch.ones(4).bool(), "sum"), (torch.ones(4), "most"), (torch.ones(4, 2).T, "sum")]:
        with pytest.raises((TypeError, ValueError)) as error:
            function(tensor, op=op)
        said.append(str(error.value))
    return said


def test_what_cannot_be_is_refused_before_anything_moves(world):
    text = source(schedlang.load(str(EXAMPLES / "allreduce/ring.sched"), ranks=2).table)
    for said in world(2).run(refused, text):
        assert said == ["torch cannot compute max of torch.uint16", "bor is not defined for torch.float32",
                        "sum is not defined for torch.bool", "there is no operator most", "Tensors must be contiguous"]


def misfit(texts):
    """What functions say of a group of another size, and of sizes that do not fit."""
    said = []
    for text, shapes in texts:
        with pytest.raises(ValueError) as error:
            getattr(module(text), function_name(text))(*(torch.ones(size) for size in shapes))
        said.append(str(error.value))
    return said


def test_sizes_are_checked(world):
    texts = [source(schedlang.load(str(EXAMPLES / f"{name}.sched"), ranks=ranks).table)
             for name, ranks in [("allreduce/ring", 3), ("allgather/ring", 2), ("alltoall/pairwise", 2)]]
    for said in world(2).run(misfit, list(zip(texts, [[4], [5, 2], [5, 5]]))):
        assert said == ["the schedule is for 3 ranks, and the group has 2", "output must have 4 elements, and has 5",
                        "5 elements do not divide into 2 equal blocks"]


def narrow(text):
    """Sums of a dtype that torch cannot add: refused while nothing is under way, so the group is as good as before."""
    ring, value = getattr(module(text), function_name(text)), torch.ones(4)
    with pytest.raises(TypeError, match=r"torch cannot compute sum of torch\.float8_e4m3fn"):
        ring(value.to(torch.float8_e4m3fn))
    ring(value)
    return value.tolist()


def test_a_dtype_that_only_moves(world):
    text = source(schedlang.load(str(EXAMPLES / "allreduce/ring.sched"), ranks=2).table)
    assert world(2).run(narrow, text) == [[2.0] * 4] * 2


def in_a_part(text):
    """On four ranks: the sum in a group of two of them, by a schedule with two streams."""
    group = dist.new_group([1, 3])
    value = torch.full((5, 3), dist.get_rank() + 0.5)
    if dist.get_rank() in (1, 3):
        with used(text) as function:
            for _ in range(2):                              # the second call finds the groups of the first
                function(value, group)
        dist.destroy_process_group(group)
    return value.tolist()


def test_a_group_that_is_a_part_of_the_world(world):
    text = source(schedlang.load(str(EXAMPLES / "allreduce/bidirectional_ring.sched"), ranks=2).table)
    assert [np.unique(got).tolist() for got in world(4).run(in_a_part, text)] == [[0.5], [10.0], [2.5], [10.0]]


def other_counts(text, counts):
    rank = dist.get_rank()
    given = torch.arange(sum(counts[rank])) + 100 * rank
    output = torch.zeros(sum(row[rank] for row in counts), dtype=torch.int64)
    with used(text) as function:
        function(output, given, counts)
    wanted = torch.zeros_like(output)
    dist.all_to_all_single(wanted, given, [row[rank] for row in counts], counts[rank])
    return bool(torch.equal(output, wanted))


@pytest.mark.parametrize("name", ["pairwise", "bruck", "hierarchical"])
def test_counts_may_be_others_where_what_was_proved_holds_for_all(name, world):
    table = schedlang.load(str(EXAMPLES / f"alltoallv/{name}.sched"), ranks=4, counts=[[1] * 4] * 4).table
    counts = [[3, 0, 1, 7], [0, 0, 2, 5], [4, 1, 0, 0], [1, 2, 3, 9]]
    assert world(4).run(other_counts, source(table), counts) == [True] * 4


def own_test(text):
    """Failed comparisons of a file's own test, and a time."""
    emitted = module(text)
    with used(text):
        ours, _, _ = emitted.trial(emitted.UNIT, torch.float32, torch.device("cpu"), emitted.OPS[0])
        return (emitted.compared([emitted.UNIT, 3 * emitted.UNIT], torch.device("cpu")),
                emitted.timed(ours, 1, torch.device("cpu")) > 0)


def spoilt(text):
    """The same for a file whose schedule is not what it was."""
    return own_test(text.replace("recv_reduce(data[", "recv(data["))


@pytest.mark.parametrize("name", KINDS)
def test_files_test_themselves(name, world):
    text = source(schedlang.load(str(EXAMPLES / f"{name}.sched"), ranks=2).table)
    assert world(2).run(own_test, text) == [(0, True)] * 2


def test_a_files_own_test_can_fail(world):
    text = source(schedlang.load(str(EXAMPLES / "allreduce/ring.sched"), ranks=2).table)
    assert all(failed > 0 for failed, _ in world(2).run(spoilt, text))


@pytest.mark.parametrize("variables, arguments, words", [
    ({}, [], "this schedule is for 2 ranks, and torchrun has started no processes: start 2 in all"),
    ({"WORLD_SIZE": "3"}, [], "for 2 ranks, and torchrun has started 3 processes"),
    ({"WORLD_SIZE": "2"}, ["--dtype", "float31"], "--dtype float31: torch has no such dtype"),
    ({"WORLD_SIZE": "2"}, ["--dtype", "nn"], "--dtype nn: torch has no such dtype"),
    ({"WORLD_SIZE": "2"}, ["--repeat", "0"], "--repeat 0: run each once at least"),
])
def test_a_files_own_test_refuses_what_it_cannot_do(variables, arguments, words, monkeypatch, capsys):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    text = source(schedlang.load(str(EXAMPLES / "allreduce/ring.sched"), ranks=2).table)
    monkeypatch.setattr("sys.argv", ["ring.py", *arguments])
    with pytest.raises(SystemExit, match="2"):
        module(text).main()
    assert words in capsys.readouterr().err
