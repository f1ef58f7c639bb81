"""`schedlang bench torch`."""

import csv
import io
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import schedlang
from schedlang.backends.torch import backend
from schedlang.backends.torch.contest import LEAST, contest
from schedlang.backends.torch.job import BUILT_IN, Contest
from schedlang.backends.torch.world import World
from schedlang.diagnostics import SchedError
from schedlang.running.pairs import Row, as_csv, ratio

ROOT = Path(__file__).parents[3]


def compete(what):
    group, told = dist.group.WORLD, []
    world = World(dist.get_rank(), dist.get_world_size(), torch.device("cpu"), group, group, timedelta(seconds=60),
                  told.append)
    return contest(world, what), told


FILES = [("allreduce/ring.sched", "max"), ("allreduce/all_pairs.sched", None), ("allgather/bruck.sched", None),
         ("reduce_scatter/pairwise.sched", None), ("alltoall/direct.sched", None), ("broadcast/chain.sched", None),
         ("reduce/binomial.sched", None)]


@pytest.mark.parametrize("path, op", FILES)
def test_each_collective_beside_the_built_in(world, path, op):
    schedule = schedlang.load(ROOT / "examples" / path, ranks=4)
    table = (schedule if op is None else schedule.with_op(op)).table
    what = Contest([("a", table), ("b", table)], [4, 12], "int32", 2, 1e-9)
    ranks = world(4).run(compete, what)
    times, told = ranks[0]
    assert told == [0.5, 1.0] and all(mine == times for mine, _ in ranks), "of the rank that took longest"
    assert [[len(side) for side in size] for size in times] == [[2, 2, 2]] * 2
    assert all(seconds > 0 for size in times for side in size for seconds in side)


def test_no_built_in_is_left_out():
    assert {schedlang.load(ROOT / "examples" / path, ranks=4).collective.name for path, _ in FILES} == set(BUILT_IN)


def test_time_limits_the_rounds(world):
    table = schedlang.load(ROOT / "examples/allreduce/ring.sched", ranks=2).table
    (times, _), _ = world(2).run(compete, Contest([("ring", table)], [8], "float32", 1000, 1e-9))
    assert [len(side) for side in times[0]] == [LEAST, LEAST]


def test_what_gives_something_else_is_no_match(world):
    product = schedlang.load(ROOT / "examples/allreduce/ring.sched", ranks=2).with_op("prod").table
    total = schedlang.load(ROOT / "examples/allreduce/ring.sched", ranks=2).table
    what = Contest([("sum", total), ("product", product)], [8], "float32", 2, 1.0)
    outcomes = world(2).outcomes(compete, [(what,)] * 2)
    for rank, raised in enumerate(outcomes):
        (finding,) = raised.findings
        assert finding.code == "SL805"
        assert finding.message == f"product on rank {rank} does not give what torch.distributed.all_reduce gives"


def test_the_command(call, tmp_path):
    status, out, err = call("bench", "torch", str(ROOT / "examples/allreduce/ring.sched"), "-p", "channels=1,2",
                            "--ranks", "2", "--sizes", "64,4KiB", "--pairs", "3", "--device", "cpu", "--format", "csv",
                            "-o", str(tmp_path / "out.csv"))
    assert (status, out, err) == (0, "", "")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text())))
    assert [(row["bytes"], row["what"]) for row in rows] == [
        (size, f"ring(channels={k})") for size in ("64", "4096") for k in (1, 2)]
    for row in rows:
        assert (row["bench"], row["collective"], row["op"], row["dtype"], row["ranks"], row["against"]) == (
            "torch", "allreduce", "sum", "float32", "2", "all_reduce")
        seconds, built_in, low, middle, high = (float(row[name]) for name in (
            "seconds", "against_seconds", "ratio_low", "ratio", "ratio_high"))
        assert row["pairs"] == "3" and seconds > 0 and built_in > 0 and low <= middle <= high
        assert float(row["algbw"]) == float(row["busbw"]) == pytest.approx(int(row["bytes"]) / seconds)


@pytest.mark.parametrize("arguments, code, words", [
    (["schedlang:barrier/dissemination.sched"], "SL806", "no built-in to compare a schedule for barrier with"),
    (["-p", "nonsense=1"], "SL806", "no schedule here has that parameter"),
    (["nothing.sched"], "SL105", "nothing.sched"),
    (["--dtype", "bool"], "SL803", "sum is not defined for bool"),
    (["--sizes", "many"], "SL806", "is no size"),
    (["--device", "tpu"], "SL806", "there is no device tpu"),
])
def test_what_cannot_be_timed(call, arguments, code, words):
    status, _, err = call("bench", "torch", "--ranks", "3", *arguments)
    assert status == 2 and code in err and words in err


def test_ratios():
    assert ratio([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]) == (2.0, 2.0, 2.0)
    middle, low, high = ratio([1.0] * 30 + [3.0] * 20, [1.0] * 50)
    assert (middle, low) == (1.0, 1.0) and high in (1.0, 2.0, 3.0)
    assert ratio([1.0, 2.0, 3.0], [1.0] * 3) == ratio([1.0, 2.0, 3.0], [1.0] * 3)


@pytest.mark.parametrize("low, high, verdict", [(0.8, 0.99, "faster"), (0.8, 1.0, "undecided"), (1.0, 1.2, "undecided"),
                                                (1.01, 1.2, "slower")])
def test_verdicts_and_lines(low, high, verdict):
    row = Row("torch", "barrier", None, "float32", 2, 0, "a, b", "c", 5, 1.5, 1.25, 0.9, low, high, None, None)
    assert row.verdict == verdict
    names, line = csv.reader(io.StringIO(as_csv([row])))
    assert line == ["torch", "barrier", "", "float32", "2", "0", "a, b", "c", "5", "1.5", "1.25", "0.9", str(low),
                    str(high), "", ""]
    assert names[:3] == ["bench", "collective", "op"] and len(names) == len(line)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 0.0, -1.0, 1e300])
def test_a_timeout_that_cannot_be(seconds):
    with pytest.raises(SchedError, match=r"SL806.*ranks cannot wait (nan|inf|0|-1|1e\+300) seconds"):
        backend.on(timeout=seconds)
    assert backend.on(timeout=1e9).timeout == 1e9
